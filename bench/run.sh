#!/usr/bin/env bash
# run.sh - `./run bench`: sheaf beside PyTorch + PEFT, alternating, on the same files.
#
# `./run bench checkpoints` compares merging and resharding with cp and PEFT instead,
# `./run bench vision` steps of CogVLM and loading SAT's checkpoints with PyTorch.
#
# Needs python3 with venv and a network once, to put the rivals into
# build/bench-venv. Arguments go to compare.py (see its --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=build/bench
mkdir -p "$work"
. bench/rivals.sh

case ${1:-} in
    checkpoints) shift; exec "$rivals_python" bench/checkpoints.py --work "$work" "$@" ;;
    vision) shift; exec "$rivals_python" bench/cog_bench.py --work "$work" "$@" ;;
esac

for model in mini:8192 tiny1b-4l:32000; do
    name=${model%:*}
    for dtype in float32 bfloat16; do
        [ -f "$work/$name-$dtype/config.json" ] || build/sheaf init "$name" "$work/$name-$dtype" --dtype $dtype --seed 1
    done
    [ -f "$work/$name-data.safetensors" ] ||
        "$rivals_python" bench/make_data.py "$work/$name-data.safetensors" 64 512 "${model#*:}"
done
exec "$rivals_python" bench/compare.py --work "$work" "$@"
