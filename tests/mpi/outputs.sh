#!/usr/bin/env bash
# convert and merge are the work of one process: of several that mpirun starts the first does it, with the bytes and the
# report of one that was started alone, and the others do nothing.
#
#   outputs.sh MPI
. "$(dirname "$0")/lib.sh"

odd_model "$work/odd" || fail "init of the odd model"
data=$llama/tiny_llama/fwd_inputs.safetensors
check "a run" "$sheaf" train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 1 --steps 1 --lr 0.1 --lora-rank 3 --lora-targets all-linear --out "$work/run"
alike() { # alike NAME COMMAND...: by one process into $work/one, by three into $work/three; "OUTPUT" stands for it
    local name=$1 word
    local -a one=() three=()
    shift
    rm -rf "$work/one" "$work/three"
    for word in "$@"; do one+=("${word/#OUTPUT/$work/one}") three+=("${word/#OUTPUT/$work/three}"); done
    "$sheaf" "${one[@]}" --json 2>"$work/stderr" | sed 's/, "seconds".*//; s#/one"#/"#' >"$work/told.one"
    ranks 3 "$sheaf" "${three[@]}" --json 2>"$work/stderr" | sed 's/, "seconds".*//; s#/three"#/"#' >"$work/told.three"
    check "$name" test -e "$work/one" -a -s "$work/told.one"
    same "the bytes of one process" "$work/one" "$work/three"
    same "and what it reports" "$work/told.one" "$work/told.three"
    check "the first says so, once" test "$(grep -c 'does not divide its work over processes' "$work/stderr")" = 1
}
alike "shards" convert "$llama/tiny_llama/hf_sharded" OUTPUT --to hf --dtype bfloat16
alike "slices" convert "$work/odd" OUTPUT --to sheaf --slices 4
alike "a run" convert "$work/run" OUTPUT --to hf --dtype bfloat16
alike "a merge" merge "$work/odd" "$work/run/adapter" OUTPUT
check "a failure of the first is that of all" bash -c '! "$@" 2>"$0"' "$work/log" "$mpirun" -n 3 "$sheaf" merge "$work/none" "$work/run/adapter" "$work/out"
check "and is told once" test "$(grep -c '^sheaf: .*none' "$work/log")" = 1
absent "nothing is left" "$work/out"
finish
