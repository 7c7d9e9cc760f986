#!/usr/bin/env bash
# --offload: weights lie in a file between their uses, and all bytes are those of a run without, at every number of ranks and
# across a resume; peaks are those of the plan, and smaller; a full disk and a file that cannot be read are statuses; nothing is
# left behind.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

mini=$work/mini
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$mini" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a model"
for ((i = 0; i < 24; i++)); do printf '{"text": "row %d %0120d"}\n' $i $i; done >"$work/rows.jsonl"
how=(--model "$mini" --data "$work/rows.jsonl" --micro-batch 2 --accumulate 2 --save-every 2 --keep 0 --lr 1e-3 --schedule constant)

# ---- the same bytes ----
runs "without" 0 . train "${how[@]}" --steps 4 --out "$work/without"
compare() { # compare NAME FLAG...
    local name=$1
    shift
    rm -rf "$work/with"
    runs "$name" 0 'offload, a step: [0-9.]+ GB read at [0-9.]+ GB/s.*s waited' train "${how[@]}" --steps 4 --out "$work/with" "$@"
    for step in 2 4; do same "$name: the same checkpoint $step" "$work/without/checkpoints/step-0000000$step" "$work/with/checkpoints/step-0000000$step"; done
    same "$name: the same adapter" "$work/without/adapter" "$work/with/adapter"
}
for tp in 1 2 3; do compare "weights, --tp $tp" --offload weights --tp $tp; done
compare "weights, recomputing" --offload weights --checkpointing
check "metrics have what was read" grep -qE '"offload": \{"read": [1-9][0-9]+, "written": 0, "reading": [0-9.e-]+' "$work/with/metrics.jsonl"
runs "and the report" 0 '"offload":\{"read":[1-9][0-9]*,"written":0,"reading":' train "${how[@]}" --steps 4 --out "$work/json" --offload weights --json

# ---- resumed with and without ----
for first in "" weights; do
    for then in none weights; do
        rm -rf "$work/half"
        runs "two steps with '$first'" 0 . train "${how[@]}" --out "$work/half" --offload "$first" --steps 2
        runs "resumed with '$then'" 0 . train --out "$work/half" --resume --steps 4 --offload "$then" --tp 2
        same "the bytes of a run without" "$work/without/checkpoints/step-00000004" "$work/half/checkpoints/step-00000004"
    done
done

# ---- memory ----
base=$(peak_of version)
for flags in "--offload weights" "--offload weights --tp 3" "--offload weights --checkpointing --micro-batch 4"; do
    # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$mini" "$work/rows.jsonl" $flags
done
peak() { "$sheaf" plan "${how[@]:0:6}" "$@" --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2; }
check "weights are not in memory" test "$(peak --offload weights)" -lt $(($(peak) - 10000000))

# ---- files ----
mkdir "$work/dir"
runs "another folder" 0 . train "${how[@]}" --steps 1 --out "$work/elsewhere" --offload weights --offload-dir "$work/dir"
check "is empty afterwards" test -z "$(ls "$work/dir")"
runs "one that is not there" 3 "$work/none" train "${how[@]}" --steps 1 --out "$work/no" --offload weights --offload-dir "$work/none"
absent "nothing is written" "$work/no"
runs "not a kind" 2 'expected: +weights, moments.*found: +weight *$' train "${how[@]}" --steps 1 --out "$work/no" --offload weight
"$sheaf" train "${how[@]}" --steps 100000 --out "$work/stopped" --offload weights >"$work/said" 2>&1 &
process=$!
check "a run has begun" waits test -s "$work/stopped/metrics.jsonl"
kill -INT $process
wait $process
check "Ctrl-C saves" grep -q 'checkpoint' "$work/said"
check "and leaves nothing else" test "$(ls -A "$work/stopped" | sort | tr '\n' ' ')" = "checkpoints metrics.jsonl run.json settings "
finish
