#!/usr/bin/env bash
# `train --restarts N`: a run that dies goes on by itself to the bytes of an undisturbed one; what
# nobody could mend is not begun again. And a rank that hangs is named.
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 2 --steps 6 --save-every 2 --lr 3e-3 --seed 11
       --lora-rank 3 --lora-targets all-linear --threads 1)
check "the undisturbed run" "$sheaf" "${flags[@]}" --out "$work/one"
equal() { [ "$(digest "$1")" = "$(digest "$2")" ]; }
again() { grep -c '^restart ' "$work/stderr"; }

# The n-th sum comes again in what is left of the run, until too few are left.
runs "a rank dies, and again" 0 'restart 1 of 9: the run was killed by signal 9; it goes on after step 2.*restart 2 of 9: .*after step 4' \
    "${flags[@]}" --tp 2 --out "$work/killed" --restarts 9 --inject 1:sum:110:kill
check "the bytes of the undisturbed run" equal "$work/one" "$work/killed"
runs "as JSON it says so too" 0 '"note": "restart 1 of 9: the run was killed by signal 9; it goes on after step 2"' \
    "${flags[@]}" --tp 2 --out "$work/objects" --restarts 9 --inject 1:sum:110:kill --progress json
check "in nothing but objects" bash -c '! grep -v "^{.*}$" "$1"' - "$work/stderr"
began=$(date +%s%3N)
runs "it dies before the first checkpoint" 3 'restart 1 of 2: the run was killed by signal 9; it goes on from the start.*restart 2 of 2: .*sheaf: the run was killed by signal 9, and no restart is left' \
    "${flags[@]}" --tp 2 --out "$work/early" --restarts 2 --inject 0:sum:5:kill
check "the second time it waits: whatever it is may pass" test $(($(date +%s%3N) - began)) -ge 2000
runs "no memory" 0 'restart 1 of 9: the run ended with code 3' "${flags[@]}" --tp 2 --out "$work/memory" --restarts 9 --inject 1:sum:110:fail
check "the bytes of the undisturbed run, too" equal "$work/one" "$work/memory"
runs "a rank that hangs" 0 'the run hangs: no rank got on for 1 s.*rank 1 \(host .*\): in sum, call .*step .*, micro-batch .*restart 1 of 9: the run ended with code 3' \
    "${flags[@]}" --tp 2 --out "$work/hung" --restarts 9 --inject 1:sum:110:hang --hang-after 1s
check "and once more the same bytes" equal "$work/one" "$work/hung"

runs "--max-time is of all tries together" 3 'restart 1 of 9: .*; it goes on after step 2.*--max-time is over after step 3' \
    "${flags[@]}" --tp 2 --out "$work/late" --restarts 9 --inject 1:sum:110:hang --hang-after 4s --max-time 3s

runs "--resume of nothing" 2 'nothing there' "${flags[@]}" --resume --out "$work/never"

# What another run would not mend.
code=0
SHEAF_FAULT=write:9+:enospc "$faulty" "${flags[@]}" --restarts 9 --out "$work/full" >"$work/stdout" 2>"$work/stderr" </dev/null || code=$?
check "a full disk" test $code -eq 3
check "is named" grep -q 'No space left' "$work/stderr"
check "and not filled again" test "$(again)" = 0

# What it says need not be heard.
{ "$faulty" "${flags[@]}" --tp 2 --out "$work/unheard" --restarts 9 --inject 1:sum:110:kill 2>&1 >/dev/null; echo $? >"$work/code"; } | true
check "nobody reads its messages: it goes on" test "$(cat "$work/code")" = 0
check "to the bytes of the undisturbed run, once more" equal "$work/one" "$work/unheard"
"$sheaf" "${flags[@]}" --out "$work/ranks_unknown" --restarts 9 >/dev/full 2>"$work/stderr"
check "a result that cannot be told is an error" test $? -eq 3
check "for which a run that is done is not begun again" test "$(again)" = 0

# Signals reach the run, and nothing outlives the process that watches over it.
endless=("${flags[@]}")
endless[10]=1000000
saved() { compgen -G "$work/$1/checkpoints/step-????????" >/dev/null; } # an older one goes when a newer one is there
begin() { "$faulty" "${endless[@]}" --out "$work/$1" --restarts 9 --inject 0:sum:1:1 >"$work/stdout" 2>"$work/stderr" </dev/null & process=$!; check "it begins: $1" waits saved "$1"; }
begin stopped
kill -TERM $process
code=0
wait $process || code=$?
check "SIGTERM is passed on" test $code -eq 3
check "the run saves and stops" grep -q 'SIGTERM: asked to stop after step' "$work/stderr"
check "and is not begun again" test "$(again)" = 0
# A terminal's Ctrl-C reaches both at once. (A shell starts what is in the background with SIGINT ignored: default again.)
slow=("${endless[@]}") # longer than the watching one sleeps
slow[8]=256
env --default-signal=INT setsid "$faulty" "${slow[@]}" --out "$work/both" --restarts 9 --inject 0:sum:1:1 >"$work/stdout" 2>"$work/stderr" </dev/null &
process=$!
check "it begins: both" waits saved both
kill -INT -- -$process
code=0
wait $process || code=$?
check "Ctrl-C saves and stops" grep -q 'SIGINT: asked to stop after step' "$work/stderr"
check "once" test $code -eq 3
begin left
child=$(pgrep -P $process || echo none)
kill -KILL $process
{ wait $process; } 2>/dev/null
gone() { [ ! -d "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"; }
check "nothing outlives the one that watches" waits gone "$child"
gone "$child" || kill -KILL "$child" # a run that should have ended is not left behind
finish
