#!/usr/bin/env bash
# Every checkpoint of training is of use to others: as an adapter, as a model, merged into its base; and --export-every.
. "$(dirname "$0")/lib.sh"

captions
model=$(copy_model tiny_llama)
data=$llama/tiny_llama/fwd_inputs.safetensors
flags=(--model "$model" --data "$data" --save-every 1 --keep 0 --export-every 2 --lr 1e-2 --micro-batch 1)

# once FILE ARGUMENT...: the command succeeds and reads less than FILE and a half of it.
once() {
    local size read
    size=$(stat -c %s "$1")
    shift
    read=$(bash -c '"$@" >/dev/null 2>&1 || exit; while read -r what n; do [ "$what" = rchar: ] && echo "$n"; done </proc/$$/io' . "$sheaf" "$@")
    echo "read ${read:-nothing} bytes of $size"
    [ "${read:-0}" -gt 0 ] && [ "${read:-0}" -lt $((size * 3 / 2)) ]
}

# ---- an adapter ----
run=$work/lora
step2=$run/checkpoints/step-00000002
step4=$run/checkpoints/step-00000004
runs "an adapter is trained" 0 'wrote .*/exports/step-00000002.*wrote .*/exports/step-00000004' train "${flags[@]}" --steps 4 --out "$run" --tp 3 --lora-targets q_proj,down_proj
runs "on one rank too" 0 . train "${flags[@]}" --steps 4 --out "$work/one" --lora-targets q_proj,down_proj
same "the exports are the same" "$run/exports" "$work/one/exports"
same "the last one is the result" "$run/adapter" "$run/exports/step-00000004"
check "an earlier one is another" sh -c "! cmp -s '$run/adapter/adapter_model.safetensors' '$run/exports/step-00000002/adapter_model.safetensors'"
runs "a step to peft" 0 'sheaf to peft, 12 tensors' convert "$step2" "$work/peft2" --to peft
same "is what was exported then" "$run/exports/step-00000002" "$work/peft2"
runs "the run to peft" 0 '"to": "peft".*"step": 4' convert "$run" "$work/peft4" --to peft --json
same "is its newest" "$run/adapter" "$work/peft4"
runs "merged by hand" 0 . merge "$model" "$run/adapter" "$work/merged"
for how in "merge $model $step4" "merge $model $run" "merge $run" "convert $step4 --to hf" "convert $run --to hf"; do
    # shellcheck disable=SC2086
    set -- $how
    runs "$1 $(($# - 1))" 0 "on $model" "$@" "$work/same"
    same "$how: the same model" "$work/merged" "$work/same"
    rm -rf "$work/same"
done
runs "another dtype" 0 . convert "$step4" "$work/half" --to hf --dtype bfloat16
runs "by hand" 0 . merge "$model" "$run/adapter" "$work/half2" --dtype bfloat16
same "is the same" "$work/half" "$work/half2"
runs "two in turn" 0 . merge "$model" "$step2" "$step4" "$work/both"
runs "by hand" 0 . merge "$model" "$run/exports/step-00000002" "$run/adapter" "$work/both2"
same "are the same" "$work/both" "$work/both2"
runs "combined" 0 'combined' merge --adapter-only --combine cat "$step2" "$step4" "$work/cat"
runs "by hand" 0 'combined' merge --adapter-only --combine cat "$run/exports/step-00000002" "$run/adapter" "$work/cat2"
same "is the same" "$work/cat" "$work/cat2"
runs "with a module that is saved whole" 0 . train "${flags[@]}" --steps 1 --out "$work/saved" --modules-to-save lm_head --lr-scale 'lm_head*=2'
runs "to peft" 0 . convert "$work/saved" "$work/saved.peft" --to peft
same "with it" "$work/saved/adapter" "$work/saved.peft"
runs "which goes on from there" 0 . train --model "$model" --data "$data" --steps 2 --micro-batch 1 --adapter "$work/saved/adapter" --out "$work/further"
runs "to peft" 0 . convert "$work/further/checkpoints/step-00000002" "$work/further.peft" --to peft
same "as its result" "$work/further/adapter" "$work/further.peft"
cp -r "$step4" "$work/alone"
runs "a step alone" 0 . merge "$model" "$work/alone" "$work/same"
same "with its base" "$work/merged" "$work/same"
rm -rf "$work/same"
runs "to peft" 0 . convert "$work/alone" "$work/peft" --to peft --base "$model"
same "has the same factors" "$run/adapter/adapter_model.safetensors" "$work/peft/adapter_model.safetensors"
runs "without its base" 3 'the base of this run .*the run.s settings beside it.*try: +where it lies now: --base BASE' convert "$work/alone" "$work/none" --to peft
runs "nor has eval one" 3 'alone: the base of this run .*the run.s settings beside it.*try: +where it lies now: --model BASE --adapter [^ ]*/alone' eval --model "$work/alone" --data "$data"
runs "that is given" 0 'over [0-9]* label tokens' eval --model "$model" --adapter "$work/alone" --data "$data"
runs "another base" 3 "the base of the run: weights, tensor .*try: +give the model that the run was trained on" merge "$work/merged" "$step4" "$work/none"
runs "an adapter for SAT" 3 'expected: CogVLM or CogAgent.*found: +a run on a model of family llama.*try: +--to hf, the whole model; --to peft, the adapter' convert "$step4" "$work/none" --to sat
runs "a base without a run" 2 '--base.*a run or a checkpoint of training' convert "$model" "$work/none" --to hf --base "$model"
mkdir "$work/full folder"
touch "$work/full folder/mine"
runs "over something" 2 . convert "$step4" "$work/full folder" --to peft
check "leaves it" test -e "$work/full folder/mine"
absent "nothing is left of what was refused" "$work/none"
check "nor of what lay between" sh -c "! ls '$work' | grep -q export-"

# ---- the fingerprint of its base that an adapter carries ----
adapter=$run/adapter
cp -r "$model" "$work/other"
size=$(stat -c %s "$model/model.safetensors")
printf '\x3f' | dd of="$work/other/model.safetensors" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null # one number, in the middle of a row
ask=(--tokens 1,2,3 --max-new 1)
other="adapter: its base .*expected: fingerprint [0-9a-f]{32}, of the base that it was trained on .*found: +another, .*try: .*sheaf convert ADAPTER COPY --to peft"
runs "another base of the same shape: merge" 3 "$other" merge "$work/other" "$adapter" "$work/none"
runs "eval" 3 "$other" eval --model "$work/other" --adapter "$adapter" --data "$data"
runs "generate" 3 "$other" generate --model "$work/other" --adapter "$adapter" "${ask[@]}"
runs "by its run" 3 "try: +with the right one: --model BASE --adapter $run; to use its adapter" generate --model "$work/other" --adapter "$run" "${ask[@]}"
runs "train" 3 "$other" train --model "$work/other" --adapter "$adapter" --data "$data" --steps 1 --out "$work/none"
runs "verify" 1 "sound.*conflict: .*another.*not sound: 1 defect" verify "$work/other" "$adapter"
runs "on ranks" 3 "$other" eval --model "$work/other" --adapter "$adapter" --data "$data" --tp 3 --slices 4
runs "with adapters that carry none" 3 "$other" merge "$work/other" "$llama/tiny_llama/lora/adapter_final" "$adapter" "$work/none"
absent "nothing was written" "$work/none"
runs "its own: verify" 0 'sound.*sound' verify "$model" "$adapter"
check "without a word" test ! -s "$work/stderr"
runs "in other files" 0 . convert "$model" "$work/shards" --to hf --shard-mb 1
runs "eval" 0 loss eval --model "$work/shards" --adapter "$adapter" --data "$data"
check "without a word" bash -c '! grep -q fingerprint "$1"' . "$work/stderr"
runs "a larger base" 0 . init small-bytes "$work/large"
echo '{"text": "once"}' >"$work/text.jsonl"
runs "an adapter of it" 0 . train --model "$work/large" --data "$work/text.jsonl" --steps 1 --micro-batch 1 --out "$work/larger"
for how in "generate ${ask[*]}" "generate ${ask[*]} --tp 3" "eval --data $work/text.jsonl --slices 16" "train --data $work/text.jsonl --steps 1 --micro-batch 1 --out $work/longer"; do
    # shellcheck disable=SC2086
    check "the base is read once: $how" once "$work/large/model.safetensors" $how --model "$work/large" --adapter "$work/larger/adapter"
done
runs "another" 0 . init small-bytes "$work/large2" --seed 1
runs "chat" 3 "$other" chat --model "$work/large2" --adapter "$work/larger/adapter"
runs "a copy without it" 0 . convert "$adapter" "$work/copy" --to peft
runs "says so once: generate" 0 'it carries no fingerprint of its base' generate --model "$work/other" --adapter "$work/copy" "${ask[@]}"
check "once" test "$(grep -c fingerprint "$work/stderr")" = 1
runs "merge" 0 'it carries no fingerprint of its base' merge "$work/other" "$work/copy" "$work/copied"
runs "what was combined carries it on" 3 'its base .*expected: fingerprint' merge "$work/other" "$work/cat" "$work/none"
runs "of two bases" 0 . train --model "$work/other" --data "$data" --steps 1 --micro-batch 1 --out "$work/apart" --lora-targets q_proj,down_proj
runs "none is combined" 3 'its base .*expected: fingerprint .*found: +another' merge --adapter-only --combine cat "$adapter" "$work/apart/adapter" "$work/none"

# ---- whole tensors ----
for method in head full; do
    run=$work/$method
    step4=$run/checkpoints/step-00000004
    runs "$method" 0 . train "${flags[@]}" --steps 4 --method $method --out "$run" --tp 2
    same "$method: the last export is the result" "$run/model" "$run/exports/step-00000004"
    for how in "convert $step4 --to hf" "convert $run --to hf" "merge $model $step4" "merge $model $run" "merge $step4"; do
        # shellcheck disable=SC2086
        runs "$how" 0 "on $model" $how "$work/same"
        same "$how: the result" "$run/model" "$work/same"
        rm -rf "$work/same"
    done
    runs "$method, an earlier step" 0 . convert "$run/checkpoints/step-00000002" "$work/same" --to hf
    same "is what was exported then" "$run/exports/step-00000002" "$work/same"
    rm -rf "$work/same" "$work/half" "$work/half2"
    runs "$method, another dtype" 0 . convert "$step4" "$work/half" --to hf --dtype bfloat16
    runs "by hand" 0 . convert "$run/model" "$work/half2" --to hf --dtype bfloat16
    same "is the same" "$work/half" "$work/half2"
    runs "$method is no adapter" 2 'a run of method lora.*one that trained whole tensors.*try: +--to hf' convert "$step4" "$work/none" --to peft
    runs "nor one of several" 2 'a checkpoint that holds whole tensors' merge "$model" "$step4" "$work/lora/adapter" "$work/none"
    for how in "--to sat" "--quantize nf4"; do
        # shellcheck disable=SC2086
        runs "merge writes it in Hugging Face's form alone" 2 'an adapter, for .*a checkpoint that holds whole tensors' merge "$model" "$step4" "$work/none" $how
    done
done

# ---- what a killed run left out ----
runs "a run of two steps" 0 . train "${flags[@]}" --steps 2 --out "$work/left"
rm -r "$work/left/exports"
runs "goes on" 0 'wrote .*exports/step-00000002.*wrote .*exports/step-00000004' train --resume --out "$work/left" --steps 4
same "and has all" "$work/left/exports/step-00000004" "$work/left/adapter"

# ---- CogVLM, as SAT has it ----
runs "a CogVLM" 0 . init cogvlm-tiny "$work/vlm" --seed 3 --dtype bfloat16
for method in lora head; do
    run=$work/cog-$method
    runs "CogVLM, $method" 0 . train --model "$work/vlm" --data "$work/caps" --out "$run" --steps 2 --method $method --micro-batch 1
    rm -rf "$work/sat" "$work/sat2"
    runs "to SAT in two" 0 . convert "$run/checkpoints/step-00000002" "$work/sat" --to sat --tp 2
    check "of its step" grep -qx 2 "$work/sat/latest"
    if [ $method = lora ]; then
        runs "by hand" 0 . convert "$work/vlm" "$work/sat2" --to sat --tp 2 --step 2 --adapter "$run/adapter"
        runs "LoRA that is not merged makes another model" 1 'matrix_A.0: only in B' diff "$work/vlm" "$work/sat2"
    else
        runs "by hand" 0 . convert "$run/model" "$work/sat2" --to sat --tp 2 --step 2
    fi
    for part in 00 01; do
        check "part $part is the same" sh -c "cmp \$(find '$work/sat' -name mp_rank_$part*) \$(find '$work/sat2' -name mp_rank_$part*)"
    done
done
finish
