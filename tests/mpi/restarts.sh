#!/usr/bin/env bash
# `train --restarts N` of ranks that are processes: a run of which any one dies or is stopped goes on by itself, to the
# bytes of an undisturbed one, and no process outlives the one that watches.
#
#   restarts.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 2 --save-every 2 --lr 3e-3 --seed 11
       --lora-rank 3 --lora-targets all-linear --threads 1)
processes=(--tp 2 --transport mpi --mpi "$mpi" --restarts 9 --heartbeat 2s)
check "the undisturbed run" "$sheaf" "${flags[@]}" --steps 4 --out "$work/one"
equal() { [ "$(digest "$1")" = "$(digest "$2")" ]; }
again='restart 1 of 9: the run ended with code [0-9]+; it goes on after step 2.*going on after step 2'

# The n-th sum comes again in what is left of the run, until too few are left.
runs "a rank is killed" 0 "rank 1 of 2 \(host .*\) has died.*$again" \
    "${flags[@]}" --steps 4 --out "$work/killed" "${processes[@]}" --inject 1:sum:200:kill
check "the bytes of the undisturbed run" equal "$work/one" "$work/killed"
runs "the first one is stopped" 0 "$again" "${flags[@]}" --steps 4 --out "$work/stopped" "${processes[@]}" --inject 0:sum:200:stop
check "which says so" grep -qE 'rank 0 of 2 \(host .*\) is silent: .*it is killed' "$work/stderr"
check "and once more the same bytes" equal "$work/one" "$work/stopped"

# mpirun itself is killed, while the run waits in step 3: its ranks are over, and their lock with them, when the next
# begins.
"$faulty" "${flags[@]}" --steps 4 --out "$work/mpirun" "${processes[@]}" --inject 1:sum:200:hang --hang-after 300s >"$work/stdout" 2>"$work/stderr" </dev/null & process=$!
check "a run has begun" waits test -e "$work/mpirun/checkpoints/step-00000002"
sleep 1
kill -KILL "$(pgrep -P $process)"
wait $process
check "mpirun is killed: the run goes on" test $? -eq 0
check "mpirun is killed: which it says" bash -c 'tr "\n" " " <"$0" | grep -qE "$1"' "$work/stderr" "sheaf: the processes that .* started.*restart 1 of 9: .*; it goes on after step 2.*going on after step 2"
check "mpirun is killed: to the bytes of the undisturbed run" equal "$work/one" "$work/mpirun"

# Signals reach all, and nothing outlives the process that watches over it.
saved() { compgen -G "$work/$1/checkpoints/step-????????" >/dev/null; } # an older one goes when a newer one is there
begin() {
    "$sheaf" "${flags[@]}" --steps 1000000 --out "$work/$1" "${processes[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null & process=$!
    check "it begins: $1" waits saved "$1"
}
none_of() { ! pgrep -f -- "--out $work/$1 " >/dev/null; }
begin asked
kill -TERM $process
code=0
wait $process || code=$?
check "SIGTERM is passed on" test $code -eq 3
check "the run saves and stops" grep -q '^sheaf: SIGTERM: asked to stop after step' "$work/stderr"
check "and is not begun again" test "$(grep -c '^restart ' "$work/stderr")" = 0
begin left
kill -KILL $process
{ wait $process; } 2>/dev/null
check "nothing outlives the one that watches" waits none_of left
none_of left || kill -KILL $(pgrep -f -- "--out $work/left ") # a run that should have ended is not left behind
finish
