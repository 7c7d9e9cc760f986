#!/usr/bin/env bash
# run.sh - `./run bench`: sheaf beside PyTorch + PEFT, alternating, on the same files.
#
# `./run bench checkpoints` compares merging and resharding with cp and PEFT instead,
# `./run bench vision` steps of CogVLM and loading SAT's checkpoints with PyTorch,
# `./run bench vision --family omnilmm` (or minicpmv) steps of those with PyTorch that pads nothing,
# the same with `--upstream DIR` also with upstream's own classes, of which DIR is a checkout,
# `./run bench preference` DPO and GRPO steps with TRL,
# `./run bench decode` tokens a second with transformers, llama.cpp and the speed of memory,
# `./run bench real` a published model with PEFT, transformers and llama.cpp (docs/real-models.md),
# `./run bench serve` answers over HTTP under load, with llama.cpp's server,
# `./run bench attention` attention of long sequences with PyTorch's,
# `./run bench ranks` one rank with ranks of one thread each,
# `./run bench keep` what --keep-activations costs and gives,
# `./run bench plan` what `sheaf plan --time` predicts with what steps take.
#
# Needs python3 with venv and a network once, to put the rivals into
# build/bench-venv. Arguments go to compare.py or what runs instead (see its --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=build/bench
mkdir -p "$work"
case ${1:-} in # no rival takes part
    ranks) shift; exec python3 bench/ranks.py --work "$work" "$@" ;;
    keep) shift; ninja -C build examples/captcha >/dev/null; exec python3 bench/keep.py --work "$work/keep" "$@" ;;
    plan) shift; exec python3 bench/plan_time.py --work "$work" "$@" ;;
esac
. bench/rivals.sh
need_llama_cpp() { "$rivals_python" -c 'import xllamacpp, gguf' 2>/dev/null || "$rivals_python" -m pip install --quiet xllamacpp gguf || true; }

case ${1:-} in
    checkpoints) shift; exec "$rivals_python" bench/checkpoints.py --work "$work" "$@" ;;
    vision) shift; exec "$rivals_python" bench/cog_bench.py --work "$work" "$@" ;;
    real)
        shift
        . demo/smollm2.sh
        need_llama_cpp
        exec "$rivals_python" bench/real.py --work "$work/real" --gguf "$model" "$@" ;;
    serve)
        shift
        . demo/smollm2.sh
        need_llama_cpp
        exec "$rivals_python" -B bench/serve.py --gguf "$model" "$@" ;;
    attention) shift; ninja -C build bench/attention_bench >/dev/null; exec "$rivals_python" -B bench/attention.py "$@" ;;
esac

for model in mini:8192 tiny1b-4l:32000; do
    name=${model%:*}
    for dtype in float32 bfloat16; do
        [ -f "$work/$name-$dtype/config.json" ] || build/sheaf init "$name" "$work/$name-$dtype" --dtype $dtype --seed 1
    done
    [ -f "$work/$name-data.safetensors" ] ||
        "$rivals_python" bench/make_data.py "$work/$name-data.safetensors" 64 512 "${model#*:}"
done
if [ "${1:-}" = decode ]; then
    shift
    ninja -C build bench/memory_bench >/dev/null
    need_llama_cpp
    exec "$rivals_python" -B bench/decode.py --work "$work" "$@"
fi
ninja -C build bench/matmul_bench >/dev/null
if [ "${1:-}" = preference ]; then
    shift
    "$rivals_python" -c 'import trl' 2>/dev/null || "$rivals_python" -m pip install --quiet trl==1.16.0
    exec "$rivals_python" -B bench/preference.py --work "$work" "$@"
fi
exec "$rivals_python" bench/compare.py --work "$work" "$@"
