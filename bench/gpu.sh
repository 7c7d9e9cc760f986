#!/usr/bin/env bash
# gpu.sh build | [FOLDER] - what only an NVIDIA GPU can show, in ten minutes; the most valuable first.
#
# `bench/gpu.sh build` needs nvcc but no GPU: it packs build-gpu/carry.tar.xz, with programs, kernels, PEFT, data, and the
# hashes of this processor's runs. `bench/gpu.sh [FOLDER]` runs beside a GPU, builds nothing where that is there, and adds to
# FOLDER/gpu.jsonl (default build-gpu), a line a point; points that it already holds as done are left out. It ends after
# GPU_SECONDS (570): what there was no time for is not in the log. GPU_POINTS="load twins runs" runs these alone, and
# GPU_PATIENCE=60 lets all take 60 times as long (tests/soak_ptx.sh).
#   1 load      the driver loads the kernels, the start-up probe agrees: wgmma and its maps too
#   2 twins     every operation, odd and production sizes, special values, against plain loops (the unit tests)
#   3 runs      LoRA of small models in float32, pairs and mma: the processor's hashes at several T, resumed, checkpointed
#   4 speed     products, with quantised weights too, and attention of 8B
#   5 step      LoRA of 8 layers of Llama-3-8B beside PyTorch + PEFT and cuBLAS, and onto a base in NF4; tokens a second; planned
#               and real memory
#   6 rule      1e9 results of each instruction of tensor cores against the rule (gpu/probe.cu); an H100's follow it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
carry=build-gpu/carry
tests="matmul_far attention_far matmul_weight tensor_activation tensor_elements tensor_experts tensor_finite tensor_images tensor_linear tensor_loss tensor_norm
 tensor_rope tensor_rows tensor_shrink tensor_table tensor_trained"

# The runs of point 4, NAME FLAG...; each trains a model that is made from its seed.
runs() {
    cat <<'END'
mma small-bytes --dtype bfloat16 --sums mma16 --steps 3
mini mini --dtype bfloat16 --sums mma16 --steps 2
f32 small-bytes --dtype float32 --steps 3
pairs small-bytes --dtype bfloat16 --sums pairs --steps 3
mma-f16 small-bytes --dtype float16 --sums mma16 --steps 3
mma-int8 small-bytes --dtype bfloat16 --sums mma16 --steps 3 --keep-activations int8
mma-packed small-bytes --dtype bfloat16 --sums mma16 --steps 3 --pack --lora-dropout 0.1
mini-f32 mini --dtype float32 --steps 2
mini-nf4 mini --dtype bfloat16 --sums mma16 --steps 2 --quantize nf4
mini-nf4-f32 mini --dtype float32 --steps 2 --quantize nf4-double
END
}
# one NAME MODEL FLAG...: trains in $work/NAME; says the adapter's hash.
one() {
    local name=$1 model=$2
    shift 2
    rm -rf "${work:?}/run.$name"
    "$sheaf" train --model "$work/$model" --data "$(echo "$work/$model".data.*)" --lora-targets all-linear --lora-rank 8 --lr 1e-3 --micro-batch 2 --seq 256 \
        --out "$work/run.$name" "$@" >"$work/run.$name.log" 2>&1 || { tail -n 4 "$work/run.$name.log" >&2; return 1; }
    sha256sum <"$work/run.$name/adapter/adapter_model.safetensors" | cut -c1-16
}
# models: what point 4 trains, and its data.
models() {
    "$sheaf" init small-bytes "$work/small-bytes" --seed 1 >/dev/null 2>&1
    for i in $(seq 1 40); do printf '{"prompt": "%s plus %s is", "completion": " %s, as everyone knows who can count to it."}\n' $i $i $((2 * i)); done >"$work/small-bytes.data.jsonl"
    "$sheaf" init mini "$work/mini" --seed 1 >/dev/null 2>&1
    cp "$data/mini.data.safetensors" "$work/"
}

if [ "${1:-}" = build ]; then
    meson setup build-gpu --reconfigure -Dcuda=enabled "-Dgpu_kinds=${GPU_KINDS:-sm_80,sm_90a}" >/dev/null 2>&1 || meson setup build-gpu -Dcuda=enabled "-Dgpu_kinds=${GPU_KINDS:-sm_80,sm_90a}" >/dev/null
    # shellcheck disable=SC2086
    ninja -C build-gpu src/cli/sheaf src/cli/sheaf-cuda.so bench/gpu_speed $(printf 'ops_%s_test ' $tests) >/dev/null
    rm -rf "$carry"
    mkdir -p "$carry/lib"
    cp build-gpu/src/cli/sheaf build-gpu/src/cli/sheaf-cuda.so build-gpu/bench/gpu_speed "$carry/"
    for t in $tests; do cp "build-gpu/ops_${t}_test" "$carry/"; done
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    "$nvcc" -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -ftz=true -fmad=false -o "$carry/gpu-probe" bench/gpu/probe.cu
    python3 -m pip install --quiet --no-deps --target "$carry/site" peft || echo "gpu.sh: no PEFT, whose step is the one to beat" >&2
    strip "$carry"/sheaf "$carry"/gpu_speed "$carry"/ops_*
    # Libraries, should the other machine lack some.
    for program in "$carry"/sheaf "$carry"/ops_matmul_far_test; do ldd "$program"; done |
        awk '/=> \// { print $3 }' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} "$carry/lib/"
    work=$(mktemp -d) sheaf=$carry/sheaf data=$carry
    trap 'rm -rf "$work"' EXIT
    python3 - "$carry/mini.data.safetensors" <<'END'
import json, random, struct, sys
r = random.Random(1)
rows, seq = 8, 256
ids = [r.randrange(8192) for _ in range(rows * seq)]
blob = struct.pack(f"<{rows * seq}i", *ids)
head = json.dumps({n: {"dtype": "I32", "shape": [rows, seq], "data_offsets": [i * len(blob), (i + 1) * len(blob)]} for i, n in enumerate(("input_ids", "labels"))}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + blob + blob)
END
    models
    runs | while read -r name flags; do
        # shellcheck disable=SC2086
        echo "$name $(one "$name" $flags)"
    done >"$carry/hashes"
    cat "$carry/hashes"
    XZ_OPT='-9 -T1' tar -C build-gpu -cJf "$carry.tar.xz" carry # programs that are alike: a tenth
    ls -sh "$carry.tar.xz"
    exit
fi

out=${1:-build-gpu}
mkdir -p "$out"
[ -d "$carry" ] || { [ -f "$carry.tar.xz" ] && tar -C build-gpu -xJf "$carry.tar.xz"; } || bash "$0" build
work=$(mktemp -d) sheaf=$carry/sheaf data=$carry log=$out/gpu.jsonl
trap 'rm -rf "$work"' EXIT
export SHEAF_GPU=real SHEAF_PLUGINS=$PWD/$carry
if ldd "$sheaf" | grep -q 'not found'; then export LD_LIBRARY_PATH=$PWD/$carry/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
touch "$log"
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1) || card="no nvidia-smi"

# say POINT NAME RESULT DETAIL: a line of the log.
say() {
    python3 -c 'import json,sys,time; print(json.dumps({"date": time.strftime("%F"), "card": sys.argv[1], "point": sys.argv[2], "name": sys.argv[3], "result": sys.argv[4], "detail": sys.argv[5][-1500:]}))' \
        "$card" "$1" "$2" "$3" "$4" | tee -a "$log"
}
done_before() { grep -qF "\"point\": \"$1\", \"name\": \"$2\", \"result\": \"done\"" "$log"; }
# point SECONDS POINT NAME COMMAND...: at most so long; what it prints is the detail.
point() {
    local limit=$(($1 * ${GPU_PATIENCE:-1})) left=$((${GPU_SECONDS:-570} * ${GPU_PATIENCE:-1} - SECONDS)) point=$2 name=$3 began=$SECONDS rc=0
    shift 3
    [[ " ${GPU_POINTS:-$point} " == *" $point "* ]] || return 0
    if done_before "$point" "$name" || [ $left -lt 10 ]; then return; fi
    [ $limit -le $left ] || limit=$left
    timeout "$limit" "$@" >"$work/point" 2>&1 || rc=$?
    say "$point" "$name" "$([ $rc = 0 ] && echo done || echo "failed with $rc")" "$((SECONDS - began)) s: $(tail -n 30 "$work/point")"
}

point 60 load info "$sheaf" info --machine --json
for t in $tests; do point 60 twins "$t" "$carry/ops_${t}_test"; done

models
# against NAME HASH FLAG...: such a run on the GPU.
against() {
    local name=$1 want=$2 got
    shift 2
    got=$(one "$name" "$@") && echo "$got, wanted $want" && [ "$got" = "$want" ]
}
# resumed NAME HASH MODEL FROM TO FLAG...: the same run, of which the device TO goes on behind the first step.
resumed() {
    local name=$1 want=$2 model=$3 from=$4 to=$5
    shift 5
    one "$name" "$model" "$@" --device "$from" --save-every 1 >/dev/null || return
    rm -rf "$work/run.$name"/adapter "$work/run.$name"/checkpoints/step-0000000[2-9]
    "$sheaf" train --resume --out "$work/run.$name" --device "$to" || return
    [ "$(sha256sum <"$work/run.$name/adapter/adapter_model.safetensors" | cut -c1-16)" = "$want" ]
}
export -f one against resumed
export work sheaf
while read -r name flags; do
    want=$(awk -v n="$name" '$1 == n { print $2 }' "$carry/hashes")
    for tp in 1 2 5; do
        case $name in mini*) [ $tp -le 2 ] || continue ;; esac
        point 60 runs "$name, T = $tp" bash -c "against $name-$tp $want $flags --device cuda --tp $tp"
    done
    case $name in mma | f32)
        point 60 runs "$name, checkpointing" bash -c "against $name-c $want $flags --device cuda --checkpointing"
        point 60 runs "$name, stopped on the GPU" bash -c "resumed $name-r $want ${flags/ / cuda cpu }"
        point 60 runs "$name, stopped on the processor" bash -c "resumed $name-q $want ${flags/ / cpu cuda }"
        ;;
    esac
done < <(runs)

point 60 speed operations "$carry/gpu_speed"

ended() {
    point 90 rule probe "$carry/gpu-probe"
    grep -c '"result": "done"' "$log" | sed 's/$/ points done/'
}
[[ " ${GPU_POINTS:-step} " == *" step "* ]] || { ended; exit; }

# ---- a step of 8 layers of Llama-3-8B ----
cat >"$work/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "max_position_embeddings": 8192,
 "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
END
python3 - "$work/8b.safetensors" <<'END'
import json, random, struct, sys
r = random.Random(1)
rows, seq = 16, 4096
blob = struct.pack(f"<{rows * seq}i", *[r.randrange(128256) for _ in range(rows * seq)])
head = json.dumps({n: {"dtype": "I32", "shape": [rows, seq], "data_offsets": [i * len(blob), (i + 1) * len(blob)]} for i, n in enumerate(("input_ids", "labels"))}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + blob + blob)
END
step() { # FLAG...: eight steps; the last lines of metrics, the plan's peak
    model && "$sheaf" train --model "$work/8b" --data "$work/8b.safetensors" --out "$work/step" --lora-targets all-linear --lora-rank 16 --lr 1e-4 \
        --dtype bfloat16 --micro-batch 1 --device cuda --steps 8 --json "$@" >"$work/step.json" || return
    tail -n 2 "$work/step/metrics.jsonl"
    "$sheaf" plan --model "$work/8b" --data "$work/8b.safetensors" --lora-targets all-linear --lora-rank 16 --dtype bfloat16 --device cuda --json "$@" | head -c 600
    rm -rf "$work/step"
}
decode() { # FOLDER
    model && { [ -d "$1" ] || "$sheaf" convert "$work/8b" "$1" --to hf --quantize nf4; } &&
        "$sheaf" generate --model "$1" --tokens 3,4,5 --max-new 64 --greedy --dtype bfloat16 --device cuda --json
}
model() { [ -d "$work/8b" ] || "$sheaf" init "$work/config.json" "$work/8b" --seed 1 --dtype bfloat16 >/dev/null 2>&1; }
export -f step decode model
mkdir -p "$work/rival"
cp "$work/config.json" "$work/rival/"
rival() { PYTHONPATH=$PWD/$carry/site point 90 step "PyTorch + PEFT, $1" python3 bench/gpu/rival.py "$work/rival" 4096 1 "${@:2}"; }
point 120 step "1 x 4096" bash -c step
rival "1 x 4096"
point 60 step decode bash -c "decode $work/8b"
point 60 step "1 x 4096, checkpointing" bash -c 'step --checkpointing'
# QLoRA: the same model, quantised while it is loaded, and as a folder that generates.
point 60 step "1 x 4096, nf4" bash -c 'step --quantize nf4'
point 60 step "decode, nf4" bash -c "decode $work/8b-nf4"
rival "1 x 4096, checkpointing" --checkpointing
point 60 step "1 x 4096, nf4-double, checkpointing" bash -c 'step --quantize nf4-double --checkpointing'
point 60 step "1 x 4096, one slice" bash -c 'step --slices 1'
ended
