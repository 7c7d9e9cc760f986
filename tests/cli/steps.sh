#!/usr/bin/env bash
# A checkpoint of a run is a model: the last one gives the bits of the model that the run leaves, an earlier one others, on the base
# that the settings name or on the one that is given. Methods head and full; vision.sh has lora.
. "$(dirname "$0")/lib.sh"

captions

# answers NAME FLAG...: logits, loss and tokens into $work/NAME.*
answers() {
    local name=$1 tp=$2
    shift 2
    rm -f "$work/$name.logits"
    runs "$name: eval" 0 '"loss"' eval "$@" --data "$data" --tp $tp --save-logits "$work/$name.logits" --json
    cp "$work/stdout" "$work/$name.loss"
    runs "$name: generate" 0 '"tokens"' generate "$@" "${ask[@]}" --max-new 5 --greedy --tp $tp --json
    cp "$work/stdout" "$work/$name.tokens"
}
alike() { # alike NAME A B
    for what in logits loss tokens; do same "$1: the same $what" "$work/$2.$what" "$work/$3.$what"; done
}

# steps NAME MODEL DATA METHOD FLAG...: a run of two steps, and its checkpoints as models.
steps() {
    local name=$1 model=$2 data=$3 method=$4 run=$work/run tp dtype=()
    shift 4
    [ "${1:-}" != --dtype ] || dtype=(--dtype "$2") # what the run leaves is a model and no longer knows
    rm -rf "$run"
    runs "$name is trained" 0 . train --model "$model" --data "$data" --out "$run" --method "$method" --steps 2 --save-every 1 --lr 1e-2 --micro-batch 1 "$@"
    answers whole 1 --model "$run/model" "${dtype[@]}"
    answers run 1 --model "$run"
    answers step2 2 --model "$run/checkpoints/step-00000002"
    alike "$name: the last checkpoint" whole step2
    alike "$name: the run" whole run
    answers step1 2 --model "$run/checkpoints/step-00000001"
    check "$name: the first checkpoint gives others" test "$(cat "$work/step1.loss")" != "$(cat "$work/whole.loss")"
    rm -r "$run/model"
    answers undone 2 --model "$run"
    alike "$name: a run without its result" whole undone
    mv "$model" "$work/elsewhere"
    runs "$name: the base is gone" 3 "the base of this run.*expected: +a model at $model.*nothing there.*try: .*--model BASE --adapter $run/checkpoints/step-00000001" \
        eval --model "$run/checkpoints/step-00000001" --data "$data"
    answers given 1 --model "$work/elsewhere" --adapter "$run/checkpoints/step-00000001"
    alike "$name: the base is given" step1 given
    mv "$work/elsewhere" "$model"
}

# Stored in any dtype: a trained tensor is rounded to it, as in the result.
ask=(--tokens 5,9,2)
found=0
for data in "$llama"/*/fwd_inputs.safetensors; do
    from=$(basename "$(dirname "$data")")
    [ -d "$llama/$from/hf" ] || continue
    model=$(copy_model "$from")
    method=(head full)
    steps "$from, ${method[found % 2]}" "$model" "$data" ${method[found % 2]} # both with a table that is tied, below
    found=$((found + 1))
done
check "models to train ($found)" test $found -ge 2
# A tied table, which is the head too.
"$sheaf" init tiny-bytes "$work/untied" --seed 3 >/dev/null 2>&1
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$work/untied/config.json" >"$work/tied.json"
runs "a tied model of bfloat16" 0 . init "$work/tied.json" "$work/tied" --seed 3 --dtype bfloat16
data=$work/data.safetensors
tokens_file "$data" 2 4 "1 5 9 2 7 7 1 0" "5 9 2 1 7 1 0 3"
for method in head full; do
    steps "tied, bfloat16, $method" "$work/tied" "$data" $method --dtype bfloat16
done
ask=(--image "$work/caps/98.jpg" --prompt "Which?")
runs "a CogVLM of bfloat16" 0 . init cogvlm-tiny "$work/vlm" --seed 3 --dtype bfloat16
steps "CogVLM, bfloat16, head" "$work/vlm" "$work/caps" head --train '*.proj.weight,mixins.eva.vit_model.*bias,mixins.lm.lm_head.weight,mixins.eva.boi'
runs "one of float16" 0 . init cogvlm-tiny "$work/halves" --seed 3 --dtype float16
steps "CogVLM, float16, full" "$work/halves" "$work/caps" full
# A folder of SAT, whose parts are joined as they are read.
runs "a CogAgent" 0 . init cogagent-tiny "$work/hf" --seed 5 --dtype bfloat16
runs "as SAT saves it in two" 0 . convert "$work/hf" "$work/sat" --to sat --tp 2
steps "CogAgent, head" "$work/sat" "$work/caps" head --train 'mixins.encoder.*proj.weight,transformer.layers.{0..1}.*'

# ---- what cannot be ----
step=$work/run/checkpoints/step-00000001
runs "another model" 0 . init cogagent-tiny "$work/other" --seed 6 --dtype bfloat16
runs "is not the base" 3 'step-00000001.*the base of the run.*fingerprint.*try: .*--adapter' eval --model "$work/other" --adapter "$step" --data "$work/caps"
runs "the same base in another form" 0 '"loss"' eval --model "$work/hf" --adapter "$step" --data "$work/caps" --json
check "gives the same loss" cmp "$work/step1.loss" "$work/stdout"
for how in "--model $work/run" "--model $work/run/checkpoints/step-00000002" "--model $work/hf --adapter $work/run"; do
    # shellcheck disable=SC2086
    "$sheaf" chat $how --image "$work/caps/98.jpg" --max-new 4 --json <<<"Which?" >"$work/chat" 2>/dev/null
    check "chat $how" grep -q '"tokens":\[[0-9]' "$work/chat"
    cat "$work/chat" >>"$work/chats"
done
check "gives the same answers" test "$(sort -u "$work/chats" | wc -l)" -eq 1
check "a run that is being written" flock "$work/run/checkpoints/lock" "$sheaf" eval --model "$work/run" --data "$work/caps"
SHEAF_FAULT=write:2:kill "$faulty" convert "$work/hf" "$work/run/checkpoints/step-00000003" --to sheaf 2>/dev/null
before=$(find "$work/run" | sort | md5sum)
runs "what it has not finished is not looked at" 0 'step-00000002, on' eval --model "$work/run" --data "$work/caps"
check "and left" test -d "$(echo "$work"/run/checkpoints/step-00000003.partial-*)"
check "nothing else is made or removed" test "$(find "$work/run" | sort | md5sum)" = "$before"
runs "a run as an adapter of another run" 2 '--model is a run' eval --model "$work/run" --adapter "$step" --data "$work/caps"
mkdir "$work/run/model"
runs "a whole model is no adapter" 2 'a run whose result is a whole model.*try: +--model .*run/model' eval --model "$work/sat" --adapter "$work/run" --data "$work/caps"
truncate -s -1 "$step/slice_003.safetensors"
runs "a checkpoint that is cut short" 3 'slice_003.safetensors: file size.*expected: [0-9]+ bytes' eval --model "$step" --data "$work/caps"
finish
