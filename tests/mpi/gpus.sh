#!/usr/bin/env bash
# Ranks that are processes, each on an emulated GPU: the bytes of ranks that are threads on processors, with an MPI that reads
# the memory of GPUs and with one that does not; and what a launch that fails and a killed process leave.
#
#   gpus.sh MPI
. "$(dirname "$0")/lib.sh"
sheaf=$SHEAF_BUILD_ROOT/tests/sheaf_devices
qwen=$SHEAF_SOURCE_ROOT/tests/data/families/qwen3
data=$qwen/fwd_inputs.safetensors
unset SHEAF_EMULATED_GPU
run=(train --model "$qwen/hf" --data "$data" --save-every 1 --micro-batch 1 --accumulate 2 --accumulators 2 --threads 4 --lr 1e-2 --lora-rank 3
     --lora-targets all-linear --lora-dropout 0.1 --dtype bfloat16 --schedule constant --sums mma16)
equal() { [ "$(digest "$1")" = "$(digest "$2")" ] || { diff -rq "$1" "$2"; return 1; }; }

check "threads on processors" "$sheaf" "${run[@]}" --steps 2 --tp 2 --out "$work/whole"
check "2 groups of 2 processes on GPUs" ranks 4 "$sheaf" "${run[@]}" --steps 2 --tp 2 --dp 2 --transport mpi --device cuda --out "$work/groups"
check "the same" equal "$work/whole" "$work/groups"
for on in cpu cuda; do
    as=("$sheaf") how=(--tp 2)
    [ $on = cpu ] || as=(ranks 2 "$sheaf") how+=(--transport mpi --device cuda)
    "${as[@]}" eval --model "$work/whole" --data "$data" --micro-batch 1 "${how[@]}" --json >"$work/eval.$on" 2>"$work/stderr"
    "${as[@]}" generate --model "$work/whole" --tokens 3,4,5 --max-new 4 --seed 2 --logprobs 2 "${how[@]}" --json >"$work/answer.$on" 2>"$work/stderr"
done
same "they judge alike" "$work/eval.cpu" "$work/eval.cuda"
same "and answer alike" "$work/answer.cpu" "$work/answer.cuda"
check "something" grep -q '"loss".*"tokens"' "$work/eval.cuda" "$work/answer.cuda"

# Exchanges in pieces, whose last is no whole one, and shares that are not even.
/bin/printf '%s' "{\"prompt\": \"$(seq -s' ' 60)\", \"completion\": \"$(seq -s' ' 61 78)\"}" >"$work/wide.jsonl"
"$sheaf" init tiny-bytes "$work/tiny" >/dev/null 2>&1 && sed -i 's/"num_hidden_layers": 4/"num_hidden_layers": 1/' "$work/tiny/config.json"
check "a wide model" "$sheaf" init "$work/tiny" "$work/wide" --seed 1
wide=(train --model "$work/wide" --data "$work/wide.jsonl" --micro-batch 1 --accumulate 1 --threads 3 --lr 1e-2 --lora-rank 3 --lora-targets all-linear
      --dtype bfloat16 --sums mma16)
check "one rank" "$sheaf" "${wide[@]}" --steps 2 --out "$work/one"
through() { # through MEMORY TEXT: an MPI that sends from there
    local memory=$1 text=$2 t=3
    [ "$memory" = pinned ] || export SHEAF_READS_GPUS=1
    ranks $t env LD_PRELOAD="$SHEAF_BUILD_ROOT/tests/mpi/reads_gpus.so" "$sheaf" "${wide[@]}" --steps 2 --tp $t --transport mpi --device cuda --json \
        --out "$work/$memory.$t" >"$work/$memory.json" 2>"$work/$memory.log"
    check "$t processes, sent from $memory memory" test $? = 0
    unset SHEAF_READS_GPUS
    check "$t processes, sent from $memory memory: the bytes of one rank" equal "$work/one" "$work/$memory.$t"
    check "$t processes, sent from $memory memory: each says so" test "$(grep -c "^rank .* on .*: GPU .*, exchanges $text" "$work/$memory.log")" = $t
    check "$t processes, sent from $memory memory: so does the JSON" test "$(grep -o "\"sent_from\":\"$memory\"" "$work/$memory.json" | wc -l)" = $t
}
through pinned "through pinned memory of the host"
through gpu "out of its memory"

# goes_on NAME: $work/broken is sound, and goes on to the bytes of $work/whole, which are made as long.
goes_on() {
    local step
    check "$1: what is saved is sound" "$sheaf" verify "$work/broken"
    step=$(ls "$work/broken/checkpoints" | sed -n 's/^step-0*//p' | tail -n 1)
    "$sheaf" train --resume --out "$work/whole" --steps $((step + 1)) >/dev/null 2>&1
    check "$1: it goes on" ranks 2 "$sheaf" train --resume --out "$work/broken" --steps $((step + 1)) --transport mpi --device cuda
    check "$1: to the same bytes" equal "$work/whole" "$work/broken"
    rm -rf "$work/broken"
}
cat >"$work/each" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" != 1 ] || export SHEAF_GPU_FAULT="cuLaunchKernel 50 719 2"
exec "$@"
END
ranks 2 bash "$work/each" "$sheaf" "${run[@]}" --steps 9 --tp 2 --transport mpi --device cuda --out "$work/broken" >"$work/log" 2>&1
check "a launch that fails: told once, of rank, host, GPU and kernel" bash -c '[ "$(grep -c "^sheaf: " "$0")" = 1 ] && grep -q "^sheaf: rank 1 on $1: step 3: .*GPU 1 (Emulated GPU): launching [a-z0-9_]*$" "$0"' "$work/log" "$(hostname)"
goes_on "a launch that fails"

timeout 120 "$mpirun" -n 2 "$sheaf" "${run[@]}" --steps 1000 --tp 2 --transport mpi --device cuda --out "$work/broken" >"$work/log" 2>&1 &
caller=$!
check "a long run has begun" waits grep -q "^saved .*step-00000003" "$work/log"
members() { # the processes that compute, by number
    for p in /proc/[0-9]*; do
        [ ! "$p/exe" -ef "$sheaf" ] || ! tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -q -- "--out $work/broken" || echo "${p#/proc/}"
    done
}
none() { [ -z "$(members)" ]; }
kill -KILL "$(members | tail -n 1)"
wait $caller
check "a killed process: the run ends" test $? != 0
check "a killed process: all of them" waits none
goes_on "a killed process"

# In the middle of an exchange, of which some pieces are through.
cat >"$work/each" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" != 1 ] || export SHEAF_KILL_AT=41
exec "$@"
END
for memory in pinned gpu; do
    [ $memory = pinned ] || export SHEAF_READS_GPUS=1
    code=0
    timeout 30 "$mpirun" -n 3 bash "$work/each" env LD_PRELOAD="$SHEAF_BUILD_ROOT/tests/mpi/reads_gpus.so" "$sheaf" "${wide[@]}" --steps 1000 --tp 3 --transport mpi \
        --device cuda --out "$work/broken" >"$work/log" 2>&1 || code=$?
    check "killed within an exchange, $memory: all end in 30 seconds" test $code != 0 -a $code != 124
    check "killed within an exchange, $memory: none is left" waits none
    check "killed within an exchange, $memory: which is told" grep -qE "rank 1 of 3 .*has died|signal 9" "$work/log"
    rm -rf "$work/broken"
done
finish
