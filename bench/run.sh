#!/usr/bin/env bash
# run.sh - `./run bench`: sheaf beside PyTorch + PEFT, in turns, on the same files.
#
# Needs python3 with venv and a network once, to put the rivals into
# build/bench-venv. Arguments go to compare.py (see its --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=build/bench-venv
work=build/bench
mkdir -p "$work"

if ! "$venv/bin/python" -c 'import torch, transformers, peft, safetensors' 2>/dev/null; then
    echo "== installing PyTorch, transformers and PEFT into $venv (about 6 GB)"
    python3 -m venv "$venv" || { echo "bench: needs the package python3-venv" >&2; exit 3; }
    "$venv/bin/python" -m pip install --quiet torch==2.13.0 transformers==5.23.0 peft==0.21.2 safetensors ||
        "$venv/bin/python" -m pip install --quiet torch transformers peft safetensors ||
        { echo "bench: could not install the rivals; is there a network?" >&2; exit 3; }
fi

for model in mini tiny1b-4l; do
    for dtype in float32 bfloat16; do
        [ -f "$work/$model-$dtype/config.json" ] && continue
        sed "s/\"torch_dtype\": \"float32\"/\"torch_dtype\": \"$dtype\"/" "bench/models/$model.json" >"$work/$model-$dtype.json"
        build/sheaf init "$work/$model-$dtype.json" "$work/$model-$dtype" --seed 1
    done
    vocabulary=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "bench/models/$model.json")
    [ -f "$work/$model-data.safetensors" ] ||
        "$venv/bin/python" bench/make_data.py "$work/$model-data.safetensors" 64 512 "$vocabulary"
done
exec "$venv/bin/python" bench/compare.py --work "$work" "$@"
