#!/usr/bin/env bash
# Ranks that are processes give the bytes of ranks that are threads, started by mpirun or by the command itself;
# what goes wrong in one of them is told once, and leaves nothing behind.
#
#   train.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--data "$data" --micro-batch 1 --accumulate 4 --save-every 1000 --lr 3e-3 --seed 11
       --lora-rank 5 --lora-alpha 10 --lora-targets all-linear --lora-dropout 0.1 --threads 2 --schedule constant)
processes=(--transport mpi --mpi "$mpi")
other=$([ "$mpi" = mpich ] && echo openmpi || echo mpich)
same_run() { # same_run NAME OUT
    same "$1: the checkpoint" "$work/one/checkpoints/step-00000004" "$2/checkpoints/step-00000004"
    same "$1: the adapter" "$work/one/adapter" "$2/adapter"
}

check "one rank" "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 4 --out "$work/one"
check "$mpi, 3 processes" ranks 3 "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 4 --tp 3 --transport mpi --out "$work/3"
same_run "$mpi, 3 processes" "$work/3"
runs "mpirun is started" 0 "2 steps done.* 2 processes on $(hostname): 1 compute thread" \
    train --model "$work/odd" "${flags[@]}" --steps 2 --tp 2 "${processes[@]}" --out "$work/2"
runs "and for a run that goes on" 0 "going on after step 2" train --resume --steps 4 --tp 3 --out "$work/2"
same_run "2 processes, then 3" "$work/2"
runs "2 groups of 2 processes" 0 "4 steps done.* 4 processes" \
    train --model "$work/odd" "${flags[@]}" --steps 4 --tp 2 --dp 2 "${processes[@]}" --out "$work/groups"
same_run "2 groups of 2 processes" "$work/groups"
whole=(--data "$data" --micro-batch 1 --accumulate 4 --accumulators 4 --lr 3e-3 --seed 11 --method full --dtype bfloat16 --schedule constant
       --eval-data "$data" --eval-every 2 --save-every 2)
check "all weights on one rank" "$sheaf" train --model "$work/odd" "${whole[@]}" --steps 4 --out "$work/all"
check "in 4 groups, which divide masters and moments" "$sheaf" train --model "$work/odd" "${whole[@]}" --steps 2 --dp 4 "${processes[@]}" --out "$work/shared"
check "going on as 2 groups of 2" "$sheaf" train --resume --steps 4 --tp 2 --dp 2 --out "$work/shared"
same "to the checkpoints of one rank" "$work/all/checkpoints/step-00000004" "$work/shared/checkpoints/step-00000004"
same "and its model" "$work/all/model" "$work/shared/model"
check "no MPI in the command itself" bash -c '! ldd "$0" | grep -i mpi' "$sheaf"

# The first process has the numbers for Prometheus; where it cannot have the port, none of them begins.
port=$((20000 + RANDOM % 10000))
"$sheaf" train --model "$work/odd" "${flags[@]}" --steps 100000 --tp 2 "${processes[@]}" --metrics-port $port --out "$work/asked" >"$work/log" 2>&1 &
asked=$!
numbers() { curl -s --max-time 10 "http://127.0.0.1:$port/metrics" | grep -c '^sheaf_sent_bytes_total{rank="[01]"} [1-9]'; }
check "numbers of both processes" waits bash -c "$(declare -f numbers); port=$port; [ \"\$(numbers)\" = 2 ]"
ranks 2 "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 2 --transport mpi --metrics-port $port --out "$work/apart" >"$work/second" 2>&1
check "a port in use is told once" test "$(grep -c "^sheaf: --metrics-port: 127.0.0.1, port $port" "$work/second")" = 1 -a "$(grep -c '^sheaf: ' "$work/second")" = 1
absent "and nothing is begun" "$work/apart"
kill -INT $asked
wait $asked
check "it ends as ever" test $? -eq 3

# Each process for itself would train in the same folder.
if ls "$SHEAF_PLUGINS/sheaf-$other.so" >/dev/null 2>&1; then
    ranks 2 "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 2 --transport mpi --mpi "$other" --out "$work/apart" >"$work/log" 2>&1
    check "processes that are not together" grep -q "each for itself: .* finds 1" "$work/log"
    check "is told once" test "$(grep -c '^sheaf: ' "$work/log")" = 1
    absent "and nothing is begun" "$work/apart"
fi
ranks 2 "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 3 --transport mpi --out "$work/apart" >"$work/log" 2>&1
check "a number of processes that is not that of ranks" grep -q "expected: 3 processes, one for each rank" "$work/log"
runs "flags of processes without them" 2 "hosts.*transport mpi beside it" train --model "$work/odd" "${flags[@]}" --steps 1 --hosts a:1 --out "$work/apart"
SHEAF_PLUGINS=$work runs "no module" 3 "sheaf-nothing.so.*install libopenmpi-dev" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 2 --transport mpi --mpi nothing --out "$work/apart"

# One of them has no model.
cat >"$work/odd_one" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" != 1 ] || set -- "${@/%odd/nowhere}"
exec "$@"
END
ranks 2 bash "$work/odd_one" "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 2 --transport mpi --out "$work/apart" >"$work/log" 2>&1
check "a failure of another process names it" grep -q "^sheaf: rank 1 on $(hostname): $work/nowhere" "$work/log"
check "once" test "$(grep -c '^sheaf: ' "$work/log")" = 1
absent "and leaves nothing" "$work/apart"

# One of them cannot write. UCX has its own files in memory, but for its older kind.
cat >"$work/small" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" != 1 ] || ulimit -f 4
exec "$@"
END
UCX_TLS=self,sysv ranks 2 bash "$work/small" "$sheaf" train --model "$work/odd" "${flags[@]}" --steps 1 --tp 2 --transport mpi --out "$work/unsaved" >"$work/log" 2>&1
check "a failure while all save names its rank, and no other" bash -c 'grep "^sheaf: " "$0"; grep "^sheaf: " "$0" | grep -q "^sheaf: rank 1 on $1: saving step 1: $2/unsaved/checkpoints/.*: claiming space$" && grep -q "found:  *File too large" "$0"' \
    "$work/log" "$(hostname)" "$work"

# What the caller is asked to do, all do.
"$sheaf" train --model "$work/odd" "${flags[@]}" --steps 100000 --tp 2 "${processes[@]}" --out "$work/stopped" >"$work/log" 2>&1 &
caller=$!
check "a long run has begun" waits grep -q '"step": *1\b' "$work/stopped/metrics.jsonl"
kill -USR1 $caller
check "a request to save" waits bash -c 'ls "$0" | grep -q step-' "$work/stopped/checkpoints"
kill -INT $caller
wait $caller
code=$?
check "Ctrl-C ends it, saved" grep -q "^sheaf: SIGINT: asked to stop after step" "$work/log"
check "with the code of a run that was stopped" test $code = 3
check "and the checkpoint is sound" "$sheaf" verify "$work/stopped"
finish
