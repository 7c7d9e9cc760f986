#!/usr/bin/env bash
# --offload: weights, moments and activations lie in a file between their uses, and all bytes are those of a run without, at every
# number of ranks and across a resume; peaks are those of the plan, and smaller; a full disk and a file that cannot be read are statuses; nothing is
# left behind. SHEAF_SOAK=1: more ranks, peaks, and faults in more calls.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

mini=$work/mini large=$work/large # the second one is measured
sed 's/_size": 512/_size": 128/; s/_size": 1408/_size": 384/' "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/mini.json"
"$sheaf" init "$work/mini.json" "$mini" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a model"
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$large" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a larger model"
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
compare "weights" --offload weights
compare "both, on ranks" --offload weights,moments --tp 3
for tp in ${SHEAF_SOAK:+1 2 3}; do
    compare "weights, --tp $tp" --offload weights --tp $tp
    compare "both, --tp $tp" --offload weights,moments --tp $tp
    compare "activations, --tp $tp" --offload activations --tp $tp
done
compare "all three" --offload weights,moments,activations --tp 2
for kept in attention none; do
    compare "activations of which is kept: $kept" --offload activations --keep-activations $kept --tp 2
done
compare "moments in groups" --offload moments --dp 2 --accumulators 4
compare "weights, recomputing" --offload weights --checkpointing
check "metrics have what was read" grep -qE '"offload": \{"read": [1-9][0-9]+, "written": 0, "reading": [0-9.e-]+' "$work/with/metrics.jsonl"
written() { # of the last step, what was written is what was read
    local last
    last=$(tail -n 1 "$work/with/metrics.jsonl" | grep -oE '"offload": \{"read": [0-9]+, "written": [0-9]+' | grep -oE '[0-9]+' | sort -u)
    echo "$last"
    test "$(wc -l <<<"$last")" -eq 1 -a "${last:-0}" -gt 300000
}
compare "activations" --offload activations
check "each byte once" written
rm -rf "$work/int8" "$work/with"
runs "in 8 bits" 0 . train "${how[@]}" --steps 2 --out "$work/int8" --keep-activations int8
runs "in 8 bits, away" 0 'GB written at' train "${how[@]}" --steps 2 --out "$work/with" --keep-activations int8 --offload weights,activations --tp 3
same "in 8 bits: the same checkpoint" "$work/int8/checkpoints/step-00000002" "$work/with/checkpoints/step-00000002"
runs "and the report" 0 '"offload":\{"read":[1-9][0-9]*,"written":0,"reading":' train "${how[@]}" --steps 4 --out "$work/json" --offload weights --json

# ---- resumed with and without ----
for ways in "/weights,moments,activations" weights,moments/none weights,moments/moments ${SHEAF_SOAK:+/moments weights,moments/weights,moments,activations}; do
    rm -rf "$work/half"
    runs "two steps with '${ways%/*}'" 0 . train "${how[@]}" --out "$work/half" --offload "${ways%/*}" --steps 2
    runs "resumed with '${ways#*/}'" 0 . train --out "$work/half" --resume --steps 4 --offload "${ways#*/}" --tp 2
    same "the bytes of a run without" "$work/without/checkpoints/step-00000004" "$work/half/checkpoints/step-00000004"
done

# ---- quantised weights ----
for form in nf4-double int8; do
    rm -rf "$work/quantised" "$work/with"
    runs "$form" 0 . train "${how[@]}" --steps 2 --out "$work/quantised" --quantize $form
    runs "$form, away" 0 'GB read at' train "${how[@]}" --steps 2 --out "$work/with" --quantize $form --offload weights,moments --tp 2
    same "$form: the same checkpoint" "$work/quantised/checkpoints/step-00000002" "$work/with/checkpoints/step-00000002"
done

# ---- all weights are trained ----
full=(--method full --dtype float32 --weight-decay 0.1)
how+=("${full[@]}")
rm -rf "$work/without"
runs "all weights" 0 . train "${how[@]}" --steps 4 --out "$work/without"
for flags in ${SHEAF_SOAK:+"--tp 1"} "--tp 2" "--tp 2 --dp 2 --accumulators 2"; do
    rm -rf "$work/with" "$work/without2"
    against=$work/without
    # shellcheck disable=SC2086
    [[ $flags != *dp* ]] || { against=$work/without2; runs "in groups" 0 . train "${how[@]}" --steps 4 --out "$against" $flags; }
    # shellcheck disable=SC2086
    runs "moments, $flags" 0 'GB written at' train "${how[@]}" --steps 4 --out "$work/with" --offload moments $flags
    for step in 2 4; do same "$flags: the same checkpoint $step" "$against/checkpoints/step-0000000$step" "$work/with/checkpoints/step-0000000$step"; done
done
how=("${how[@]:0:${#how[@]}-${#full[@]}}")

# ---- devices with memory of their own, of which the host has what is away ----
devices=$SHEAF_BUILD_ROOT/tests/sheaf_devices
on=(--model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --steps 2 --micro-batch 2 --dtype bfloat16 --sums mma16 --threads 2)
"$devices" train "${on[@]}" --out "$work/cpu" >"$work/said" 2>&1 || fail "a run for devices" "$(tail -n 4 "$work/said")"
for device in cuda copied checked; do
    rm -rf "$work/on"
    "$devices" train "${on[@]}" --device $device --offload weights,moments,activations --out "$work/on" >"$work/said" 2>&1 || fail "a run on $device" "$(tail -n 4 "$work/said")"
    same "$device: the same checkpoint" "$work/cpu/checkpoints/step-00000002" "$work/on/checkpoints/step-00000002"
    check "$device: it was away" grep -q 'GB read at .* GB written at' "$work/said"
done

# ---- memory ----
base=$(peak_of version)
for flags in "--offload weights,moments --tp 3" "--offload weights,activations --tp 2 --micro-batch 4" \
    "--offload moments,activations --method full --dtype bfloat16 --optimizer adamw8bit --tp 2" \
    ${SHEAF_SOAK:+"--offload weights" "--offload moments --method full --dtype float32 --tp 2" "--offload weights --checkpointing --micro-batch 4"
    "--offload activations" "--offload activations --keep-activations int8"}; do
    # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$large" "$work/rows.jsonl" $flags
done
planned=(plan --model "$large" --data "$work/rows.jsonl" --micro-batch 2)
peak() { "$sheaf" "${planned[@]}" "$@" --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2; }
check "nor activations" test "$(peak --offload activations)" -lt $(($(peak) - 2000000))
check "weights are not in memory" test "$(peak --offload weights)" -lt $(($(peak) - 10000000))

for memory in ${SHEAF_SOAK:+46M} 40M; do
    check "what fits $memory" fitted "$large" "$work/rows.jsonl" $memory --dtype bfloat16 --lora-rank 16
done
check "what fits 190M of all weights" fitted "$large" "$work/rows.jsonl" 190M --dtype bfloat16 --method full

runs "a plan says what lies in files" 0 'offloaded: 2[0-9.]+ MiB' "${planned[@]}" --offload weights --tp 2

runs "another optimizer is told, not chosen" 0 'fits: --tp 1 .*--offload moments .*with --optimizer adamw8bit: [0-9.]+ MiB, which' "${planned[@]:0:5}" --method full --dtype bfloat16 --memory 190M
runs "whose moments lie in a file, too" 0 'fits: --tp 1 --offload moments \(1[34][0-9.]+ MiB' "${planned[@]:0:5}" --method full --dtype bfloat16 --optimizer adamw8bit --memory 150M

# ---- files ----
mkdir "$work/dir"
runs "another folder" 0 . train "${how[@]}" --steps 1 --out "$work/elsewhere" --offload weights --offload-dir "$work/dir"
check "is empty afterwards" test -z "$(ls "$work/dir")"
runs "one that is not there" 3 "$work/none" train "${how[@]}" --steps 1 --out "$work/no" --offload weights --offload-dir "$work/none"
absent "nothing is written" "$work/no"
# full DISK CALL: the run fails with a status, or has the same bytes.
rm -rf "$work/good"
runs "one step" 0 . train "${how[@]}" --steps 1 --out "$work/good"
faults() { # faults FAULT: in each of the first calls
    local n code
    for n in 1 5 40 ${SHEAF_SOAK:+2 3 4 6 8 12 20 80}; do
        code=0
        rm -rf "$work/hit"
        SHEAF_FAULT=${1/N/$n} "$faulty" train "${how[@]}" --dtype bfloat16 --steps 1 --out "$work/hit" --offload weights,moments,activations >"$work/said" 2>&1 || code=$?
        case $code in
        0) diff -r "$work/good/checkpoints/step-00000001" "$work/hit/checkpoints/step-00000001" || return 1 ;;
        3 | 4) grep -q 'found:' "$work/said" || { cat "$work/said"; return 1; } ;;
        *) echo "$1, call $n: code $code"; tail -n 5 "$work/said"; return 1 ;;
        esac
    done
}
check "a disk that is full from some call on" faults write:N:enospc
check "reads that fail" faults read:N:fail
check "reads of a byte" faults read:N:short
check "writes of a byte" faults write:N:short
runs "not a kind" 2 'expected: +weights, moments, activations.*found: +weight *$' train "${how[@]}" --steps 1 --out "$work/no" --offload weight
"$sheaf" train "${how[@]}" --steps 100000 --out "$work/stopped" --offload weights,activations >"$work/said" 2>&1 &
process=$!
check "a run has begun" waits test -s "$work/stopped/metrics.jsonl"
kill -INT $process
wait $process
check "Ctrl-C saves" grep -q 'checkpoint' "$work/said"
check "and leaves nothing else" test "$(ls -A "$work/stopped" | sort | tr '\n' ' ')" = "checkpoints metrics.jsonl run.json settings "
finish
