#!/usr/bin/env bash
# run.sh - `./run bench`: sheaf beside PyTorch + PEFT, in turns, on the same files.
#
# Needs python3 with venv and a network once, to put the rivals into
# build/bench-venv. Arguments go to compare.py (see its --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=build/bench
mkdir -p "$work"
. bench/rivals.sh

for model in mini tiny1b-4l; do
    for dtype in float32 bfloat16; do
        [ -f "$work/$model-$dtype/config.json" ] && continue
        sed "s/\"torch_dtype\": \"float32\"/\"torch_dtype\": \"$dtype\"/" "bench/models/$model.json" >"$work/$model-$dtype.json"
        build/sheaf init "$work/$model-$dtype.json" "$work/$model-$dtype" --seed 1
    done
    vocabulary=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "bench/models/$model.json")
    [ -f "$work/$model-data.safetensors" ] ||
        "$rivals_python" bench/make_data.py "$work/$model-data.safetensors" 64 512 "$vocabulary"
done
exec "$rivals_python" bench/compare.py --work "$work" "$@"
