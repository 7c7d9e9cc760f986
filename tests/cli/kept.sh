#!/usr/bin/env bash
# --keep-activations: in 8 bits the same bytes on every number of ranks and groups, with every kernel and across a stop;
# recomputed the bytes of all; peaks as planned, and smaller; what is part of the result stays for a run. SHEAF_SOAK=1: more peaks.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

# 500 columns of an MLP are eight slices of 62 and 63: no block of 32 ends where a slice does.
text=$work/text
"$sheaf" init "$SHEAF_SOURCE_ROOT/demo/model.json" "$work/larger" --seed 1 >/dev/null 2>&1 || fail "init of a model to measure"
sed 's/"hidden_size": 192/"hidden_size": 48/; s/_layers": 4/_layers": 2/' "$SHEAF_SOURCE_ROOT/demo/model.json" >"$work/text.json"
"$sheaf" init "$work/text.json" "$text" --seed 1 >/dev/null 2>&1 || fail "init of a model"
for ((i = 0; i < 30; i++)); do printf '{"text": "row %d %0*d"}\n' $i $((20 + i)) $i; done >"$work/rows.jsonl"
for ((i = 0; i < 16; i++)); do printf '{"prompt": "%060d", "completion": "%040d"}\n' $i $((7 * i)); done >"$work/answers.jsonl" # four are longer than a block of rows
mkdir "$work/pictures" && make_pictures "$work/pictures"
for picture in "$work"/pictures/*; do
    printf '{"image": "%s", "messages": [{"role": "user", "content": "<image>\\nwhat?"}, {"role": "assistant", "content": "%s"}]}\n' "$picture" "$(basename "$picture" | cut -d. -f1)"
done >"$work/asked.jsonl"
for model in cogagent minicpmv; do "$sheaf" init $model-tiny "$work/$model" --seed 2 >/dev/null 2>&1 || fail "init of $model"; done
of_text=(--model "$text" --data "$work/rows.jsonl" --micro-batch 3)
of_cog=(--model "$work/cogagent" --data "$work/pictures" --micro-batch 2)
of_minicpmv=(--model "$work/minicpmv" --data "$work/asked.jsonl" --micro-batch 2)
results="checkpoints adapter model"

# run OUT FLAG...: three steps
run() {
    local out=$work/$1
    shift
    rm -rf "$out"
    [[ " $* " == *" --method full "* ]] || set -- --lora-targets all-linear --lora-rank 4 "$@"
    "$sheaf" train --steps 3 --accumulate 4 --lr 1e-2 --seed 3 --out "$out" "$@" >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
}

# ---- the same bytes ----
alike "text in float32" "${of_text[@]}" --keep-activations int8 -- "--tp 3 --isa avx2" "--tp 8" "--tp 2 --dp 2 --threads 3 --isa ref"
alike "text in bfloat16" "${of_text[@]}" --keep-activations int8 --dtype bfloat16 --sums tiles -- "--tp 8 --isa avx2"
alike "text in full, in float16" "${of_text[@]}" --keep-activations int8 --method full --accumulators 4 --dtype float16 -- "--tp 3 --dp 2"
alike "LoRA that drops" "${of_text[@]}" --keep-activations int8 --lora-dropout 0.1 -- "--tp 3"
alike "DoRA, of which the head reads some rows" --model "$text" --data "$work/answers.jsonl" --micro-batch 4 --lora-dora -- "--tp 3" "--tp 2 --keep-activations attention"
mixture=$SHEAF_SOURCE_ROOT/tests/data/families/mixtral
alike "a mixture" --model "$mixture/hf" --data "$mixture/fwd_inputs.safetensors" --keep-activations int8 -- "--tp 2"
alike "a mixture, recomputed" --model "$mixture/hf" --data "$mixture/fwd_inputs.safetensors" -- "--keep-activations attention --tp 2"
alike "pictures of CogAgent" "${of_cog[@]}" --keep-activations int8 -- "--tp 3"
alike "pictures of MiniCPM-V" "${of_minicpmv[@]}" --method full --keep-activations int8 -- "--tp 8"
for of in of_text of_cog of_minicpmv; do
    declare -n these=$of
    alike "${of#of_}, recomputed" "${these[@]}" -- "--keep-activations attention --tp 3" "--checkpointing --tp 2"
done

# ---- but not those of all ----
check "all" run all "${of_text[@]}"
check "in 8 bits" run eight "${of_text[@]}" --keep-activations int8
check "the first loss is the same" test "$(metric all 1 loss)" = "$(metric eight 1 loss)"
check "then others, little" near "$(metric all 3 loss)" "$(metric eight 3 loss)" 0.002
check "not the same" test "$(metric all 3 loss)" != "$(metric eight 3 loss)"

# ---- stopped and resumed ----
halved() { run half "${of_text[@]}" --max-time 0.0001 "$@" >/dev/null || test $? = 3; } # after its first step
check "a run in 8 bits stops" halved --keep-activations int8
runs "goes on with what is stored" 0 'step 3/3' train --out "$work/half" --resume --max-time 0 --tp 3
check "to the bytes of one run" test "$(cd "$work/half" && sha256sum adapter/*)" = "$(cd "$work/eight" && sha256sum adapter/*)"
check "a run in 8 bits stops" halved --keep-activations int8
for other in "--keep-activations all" "--keep-activations none" "--keep-activations attention"; do
    # shellcheck disable=SC2086
    runs "which cannot go on with $other" 2 'keep-activations cannot change.*expected: +int8' train --out "$work/half" --resume $other
done
runs "nor recompute" 2 'checkpointing.*int8.*leave --checkpointing out' train --out "$work/half" --resume --checkpointing
check "a run that keeps MLPs stops" halved --keep-activations attention
runs "which cannot go on in 8 bits" 2 'keep-activations cannot change.*found: +int8' train --out "$work/half" --resume --keep-activations int8
cp -r "$work/half" "$work/begun"
for other in "--keep-activations all" "--checkpointing" "--keep-activations none" ""; do
    rm -r "$work/half" && cp -r "$work/begun" "$work/half"
    # shellcheck disable=SC2086
    runs "and goes on${other:+ with $other}" 0 'step 3/3' train --out "$work/half" --resume --max-time 0 $other
    check "to the bytes of all" test "$(cd "$work/half" && sha256sum adapter/*)" = "$(cd "$work/all" && sha256sum adapter/*)"
done
runs "one of two" 2 'checkpointing and --keep-activations.*one of the two' train "${of_text[@]}" --steps 1 --out "$work/no" --checkpointing --keep-activations int8
runs "not a form" 2 'keep-activations.*int8.*found: +int4' train "${of_text[@]}" --steps 1 --out "$work/no" --keep-activations int4
absent "nothing is written" "$work/no"

# ---- a loss that is not finite ----
runs "a step that is not finite ends the run" 3 'finite' train "${of_text[@]}" --method full --steps 50 --lr 1e30 --clip 0 --out "$work/nan" --keep-activations int8

# ---- memory ----
# activations FLAG...: of the fullest moment, as metrics have them
activations() {
    "$sheaf" train "$work/larger" "$work/rows.jsonl" --micro-batch 12 --steps 1 --lora-targets all-linear --out "$work/seen.$1" --keep-activations "$1" >"$work/said" 2>&1 || cat "$work/said" >&2
    json_number "$work/seen.$1/metrics.jsonl" activations
}
all=$(activations all) eight=$(activations int8) attention=$(activations attention) none=$(activations none)
check "in 8 bits three quarters or less" test "$eight" -lt $((all * 3 / 4))
check "without MLPs as well" test "$attention" -lt $((all * 3 / 4))
check "without layers half" test "$none" -lt $((all / 2))
base=$(peak_of version)
for model in larger minicpmv; do
    data=$work/rows.jsonl
    [ $model = larger ] || data=$work/asked.jsonl
    for flags in "--keep-activations attention" "--keep-activations int8 --tp 3" ${SHEAF_SOAK:+"--keep-activations int8" "--keep-activations int8 --dtype bfloat16 --method full"}; do
        # shellcheck disable=SC2086
        check "$model, planned and measured: $flags" predicted "$work/$model" "$data" --micro-batch 4 $flags
    done
done
finish
