#!/usr/bin/env bash
# Whole runs on emulated GPUs: what goes wrong there ends a run with the GPU, the kernel and what to try, leaves nothing half
# written, and the run goes on to the bytes of the undisturbed one; GPUs of each class, several, and what each refuses.
. "$(dirname "$0")/lib.sh"
command=$SHEAF_BUILD_ROOT/tests/sheaf_devices
qwen=$SHEAF_SOURCE_ROOT/tests/data/families/qwen3
sheaf=$command
unset SHEAF_EMULATED_GPU
run=(train --model "$qwen/hf" --data "$qwen/fwd_inputs.safetensors" --save-every 1 --micro-batch 2 --threads 2 --lr 1e-2
     --lora-rank 3 --lora-targets q_proj,down_proj --dtype bfloat16 --schedule constant)
equal() { [ "$(digest "$1")" = "$(digest "$2")" ] || { diff -rq "$1" "$2"; return 1; }; }
# breaks NAME FAULT PATTERN FLAG...: FAULT (devices/gpu_faults.c) ends the run, said in one message; goes_on NAME OUT FLAG...
breaks() {
    local name=$1 pattern=$3
    export SHEAF_GPU_FAULT=$2
    shift 3
    rm -rf "$work/broken"
    runs "$name" 3 "$pattern" "${run[@]}" --steps 3 --out "$work/broken" "$@"
    unset SHEAF_GPU_FAULT
    check "$name: once, and the GPU is given back" bash -c '[ "$(grep -c "^sheaf: " "$0")" = 1 ] && ! grep "not given back" "$0"' "$work/stderr"
    [ ! -e "$work/broken" ] || check "$name: what is saved is sound" "$command" verify "$work/broken"
}
goes_on() {
    local name=$1 out=$2
    shift 2
    runs "$name: goes on" 0 "going on after step [12]" train --resume --out "$out" "$@"
    check "$name: to the bytes of the undisturbed run" equal "$work/whole" "$out"
}

check "an undisturbed run" "$command" "${run[@]}" --steps 3 --sums mma16 --out "$work/whole"
again="try: *go on from the last checkpoint with --resume; dmesg"
breaks "a launch that fails" "cuLaunchKernel 90 700 1" "^.*sheaf: step 2: .*GPU [01] \(Emulated GPU\): launching [a-z0-9_]+ .*CUDA_ERROR_ILLEGAL_ADDRESS \(700\).*the last kernel launched was [a-z0-9_]+ *$again" --device cuda --tp 2
goes_on "a launch that fails" "$work/broken" --device cpu
SHEAF_GPU_FAULT="cuLaunchKernel 90 700 1" runs "it may pass: --restarts begins again" 3 "restart 1 of 1: the run ended with code 3; it goes on after step 1" \
    "${run[@]}" --steps 3 --out "$work/again" --device cuda --restarts 1
breaks "a lost GPU" "any 60 214 2" "sheaf: step 3: .*GPU 0 .*CUDA_ERROR_ECC_UNCORRECTABLE.* try: *the GPU's memory is damaged" --device cuda
goes_on "a lost GPU" "$work/broken" --device cuda:1
breaks "memory refused at the start" "cuMemCreate 1 2 -1" "sheaf: allocating .* for [a-z]+ .*GPU 0 \(Emulated GPU\) to grant it: .* try: *a smaller micro-batch" --device cuda
absent "memory refused at the start: nothing is begun" "$work/broken"

# ---- a run that is stopped, and one that is killed ----
for signal in INT KILL; do
    rm -f "$work/stderr"
    env --default-signal=INT "$command" "${run[@]}" --steps 1000 --out "$work/ended" --tp 2 --device cuda >"$work/stdout" 2>"$work/stderr" &
    process=$!
    check "a run has begun" waits grep -q "^saved .*step-00000001" "$work/stderr"
    kill -s $signal $process
    wait $process 2>/dev/null
    code=$?
    [ $signal = KILL ] || check "SIGINT: the code of what was stopped" test $code = 3
    check "SIG$signal: what is saved is sound" "$command" verify "$work/ended"
    step=$(ls "$work/ended/checkpoints" | sed -n 's/^step-0*//p' | tail -n 1)
    "$command" train --resume --out "$work/whole" --steps $((step + 1)) >/dev/null 2>&1
    goes_on "SIG$signal" "$work/ended" --steps $((step + 1)) --device cpu
    rm -rf "$work/ended" "$work/whole"
    "$command" "${run[@]}" --steps 2 --out "$work/whole" --sums mma16 >/dev/null 2>&1
done

"$command" init tiny-bytes "$work/bytes" --seed 3 >/dev/null 2>&1
interrupted "an answer on a GPU" --model "$work/bytes" --seed 1 --temperature 9 --device cuda --tp 2

# ---- classes of tensor cores, several GPUs, orders that are not theirs ----
export SHEAF_EMULATED_GPU=8.6,9.0
runs "a run on a GPU of another class" 3 "sums in the order mma16 on cuda:0 .*expected: *mma8, which its tensor cores compute, or pairs.* try: *a run keeps its order" \
    train --resume --out "$work/whole" --steps 3 --device cuda
same_on() { # same_on NAME SUMS "CPU'S FLAGS" "CUDA'S FLAGS"
    rm -rf "$work/cpu" "$work/cuda"
    # shellcheck disable=SC2086
    "$command" "${run[@]}" --steps 1 --out "$work/cpu" --sums $2 $3 >/dev/null 2>&1
    # shellcheck disable=SC2086
    check "$1" "$command" "${run[@]}" --steps 1 --out "$work/cuda" $3 $4
    check "$1: the processor's bytes" equal "$work/cpu" "$work/cuda"
}
run=("${run[@]/bfloat16/float16}")
same_on "the own order of an older GPU" mma8 "" "--device cuda:0"
same_on "four ranks on two GPUs of two classes, float16 as on processors" pairs "--tp 4" "--sums pairs --device cuda:1,0"
runs "GPUs of two classes and no order that both have" 3 "rank 1: sums in the order mma8 on cuda:1 .* try: .*GPUs of several classes take --sums pairs" \
    "${run[@]}" --steps 1 --out "$work/none" --device cuda --tp 2
unset SHEAF_EMULATED_GPU
export SHEAF_GPU_FAULT="cuLaunchKernel 30 719 -1"
for what in "eval --data $qwen/fwd_inputs.safetensors" "generate --tokens 3,4 --max-new 3"; do
    # shellcheck disable=SC2086
    runs "${what%% *} whose launch fails" 3 "sheaf: .*GPU [01] \(Emulated GPU\): launching" $what --model "$qwen/hf" --device cuda --tp 2
done
unset SHEAF_GPU_FAULT
SHEAF_EMULATED_GPU=9.0:0.571 runs "a GPU that is too small" 3 "memory of GPU 0 for this run .*expected: *at most 72.0 MiB.* try: *more GPUs" "${run[@]}" --steps 1 --out "$work/none" --device cuda
absent "a GPU that is too small: nothing is begun" "$work/none"
finish
