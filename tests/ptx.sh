#!/usr/bin/env bash
# ptx.sh - nvcc's code of the kernels, run without a GPU: the processor's bytes, and no complaint.
#
#   ptx.sh KIND TEST...      programs that test operations, on two GPUs of KIND, sm_80 or sm_90a, and runs of the command; or
#   ptx.sh both TEST...      on one of sm_80 and one of sm_90a, the programs alone
#
# Both kinds have the same PTX, but for wgmma's kernels (src/ops/devices/gpu/cuda/compile.sh); what differs are tensor cores. So what does
# not use them runs on one kind, sm_80, in ./run soak on both.
#
# $SHEAF_PTXRUN is the folder of ptxrun, from which a libcuda.so.1 is built that executes PTX and says on standard error, in
# lines that begin with "ptxrun: ", where kernels race, leave their memory, or read what nothing wrote. The command, its
# module and the tests of operations are those of the build, unchanged.
. "$(dirname "$0")/mpi/lib.sh" openmpi
: "${SHEAF_PTXRUN:?the folder of ptxrun}"
kind=$1
shift
ptxrun=$SHEAF_BUILD_ROOT/ptxrun
# Of a copy, in which xor.pred with -1, nvcc's "not", gives 0 or 1, and which knows whether network adapters reach memory.
build_ptxrun() (
    mkdir -p "$ptxrun/src" && exec 8>"$ptxrun/lock" && flock 8 || exit
    new=no # another test may be using the library
    [ -f "$ptxrun/libcuda.so.1" ] || new=yes
    for file in "$SHEAF_PTXRUN"/*.*; do
        sed '/xor_pred/s/, a ^ b)/, (a ^ b) \& 1)/; s/{ 102, 1 } }/{ 102, 1 }, { 110, 1 } }/' "$file" >"$ptxrun/copy"
        cmp -s "$ptxrun/copy" "$ptxrun/src/${file##*/}" || { cp "$ptxrun/copy" "$ptxrun/src/${file##*/}" && new=yes; }
    done
    [ $new = no ] || sh "$ptxrun/src/build.sh" "$ptxrun"
)
check "ptxrun is built" build_ptxrun
[ $failures = 0 ] || finish

export LD_LIBRARY_PATH=$ptxrun SHEAF_GPU=real SHEAF_PLUGINS=$SHEAF_BUILD_ROOT/src/cli PTXRUN_PTX=$SHEAF_BUILD_ROOT/src/ops/devices/gpu/cuda PTXRUN_THREADS=1
# so few multiprocessors that small products fill them
case $kind in sm_90a) gpu=9.0:2 own=mma16 ;; *) gpu=8.0:2 own=mma8 ;; esac
export PTXRUN_GPUS=$gpu,$gpu
[ "$kind" != both ] || export PTXRUN_GPUS=8.0:4,9.0:4

# quiet COMMAND...: it succeeds, and ptxrun has nothing to say.
quiet() { "$@" >"$work/quiet" 2>&1 </dev/null && ! grep '^ptxrun: ' "$work/quiet" || { grep -v '^\[ \|^ok' "$work/quiet" | tail -n 8; return 1; }; }

# ---- operations: odd and production sizes, special values ----
for test; do
    name=${test##*/ops_}
    check "${name%_test}" quiet "$test"
done

[ "$kind" != both ] || finish

# ---- whole runs ----
all() { [ "$kind" = sm_80 ] || [ -n "${SHEAF_SOAK:-}" ]; }
equal() { [ -n "$1" ] && [ "$1" = "$2" ]; }
steps=(--steps 2 --micro-batch 2)
# trains NAME FLAG...: in the order and at the T that FLAGs name; what runs on one GPU or two leaves what the processor does.
trains() {
    local name=$1 run
    shift
    run=(train --lr 1e-2 "${steps[@]}" "$@")
    [[ " $* " == *" --method "* ]] || run+=(--lora-rank "${rank:-3}" --lora-targets all-linear)
    "$sheaf" "${run[@]}" --out "$work/$name.cpu" >"$work/$name.log" 2>&1 || fail "$name on the processor" "$(tail -n 4 "$work/$name.log")"
    check "$name" quiet "$sheaf" "${run[@]}" --device cuda --out "$work/$name.cuda"
    check "$name: the processor's bytes" equal "$(digest "$work/$name.cpu")" "$(digest "$work/$name.cuda")"
    rm -rf "$work/$name".cpu "$work/$name".cuda
}
# says NAME FLAG...: generate.
says() {
    local name=$1
    shift
    "$sheaf" generate "$@" >"$work/cpu" 2>&1
    check "$name" quiet "$sheaf" generate "$@" --device cuda
    check "$name: the processor's tokens" equal "$(grep -o '"tokens": *\[[^]]*\]' "$work/cpu")" "$(grep -o '"tokens": *\[[^]]*\]' "$work/quiet")"
}
qwen3=(--model "$SHEAF_SOURCE_ROOT/tests/data/families/qwen3/hf" --data "$SHEAF_SOURCE_ROOT/tests/data/families/qwen3/fwd_inputs.safetensors")
llama_run=(--model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors")
trains $own "${qwen3[@]}" --dtype bfloat16 --sums $own --tp 2 --checkpointing
trains half "${llama_run[@]}" --dtype float16 --sums $own --keep-activations int8
trains nf4 "${llama_run[@]}" --dtype bfloat16 --sums $own --quantize nf4 --tp 2
if all; then
    trains pairs "${qwen3[@]}" --dtype bfloat16 --sums pairs --lora-dropout 0.2
    trains tiles "${llama_run[@]}" --dtype bfloat16 --sums tiles --tp 2
    trains float32 "${qwen3[@]}" --dtype float32 --method full --tp 3
    trains nf4-double "${llama_run[@]}" --dtype float32 --quantize nf4-double
fi
# of shapes that fill tiles; what kernels of tensor cores spend on an mma does not grow, and wgmma is used where it is
"$sheaf" init small-bytes "$work/small" --seed 1 >/dev/null 2>&1
for i in 1 2 3; do printf '{"prompt": "%s:", "completion": " %s, as everyone knows who can count to %s."}\n' $i $i $i; done >"$work/small.jsonl"
steps=(--steps 1 --micro-batch 3)
export PTXRUN_STATS=$work/stats
rank=8 trains small --model "$work/small" --data "$work/small.jsonl" --seq 64 --dtype bfloat16 --sums $own
unset PTXRUN_STATS
check "instructions an mma do not grow" python3 -B "$SHEAF_SOURCE_ROOT/bench/gpu/count.py" "$work/stats" "$SHEAF_SOURCE_ROOT/tests/ptx_counts.txt" "$kind"
if [ -n "$mpirun" ] && [ -e "$SHEAF_PLUGINS/sheaf-openmpi.so" ]; then
    trains two-processes "${qwen3[@]}" --dtype bfloat16 --sums $own --tp 2 --transport mpi --mpi openmpi
    [ -z "${SHEAF_SOAK:-}" ] || rank=8 trains three-processes --model "$work/small" --data "$work/small.jsonl" --seq 64 --dtype bfloat16 --sums $own --tp 3 --transport mpi --mpi openmpi
fi
says generates --model "$SHEAF_SOURCE_ROOT/tests/data/families/qwen3/hf" --tokens 3,4,5,6 --max-new 6 --greedy --tp 2 --dtype bfloat16 --sums $own --json
finish
