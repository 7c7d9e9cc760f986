#!/usr/bin/env bash
# Layers placed over stages: the same logits and tokens, bit for bit, wherever they lie.
. "$(dirname "$0")/lib.sh"

pictures=$SHEAF_SOURCE_ROOT/tests/data/images

# placed NAME MODEL DATA PLACE...: eval at each placement ("2 --tp 2") gives the logits of one stage.
placed() {
    local name=$1 model=$2 data=$3 dtype place
    shift 3
    for dtype in float32 bfloat16; do
        rm -f "$work/one"
        runs "$name in $dtype on one stage" 0 '"loss"' eval --model "$model" --data "$data" --dtype $dtype --save-logits "$work/one" --json
        cp "$work/stdout" "$work/one.json"
        for place; do
            rm -f "$work/other"
            runs "$name in $dtype, --place $place" 0 '"loss"' eval --model "$model" --data "$data" --dtype $dtype --place $place --save-logits "$work/other" --json
            check "$name in $dtype, --place $place: the same logits" cmp "$work/one" "$work/other"
            check "$name in $dtype, --place $place: the same loss" cmp "$work/one.json" "$work/stdout"
        done
    done
}
# tokens NAME FLAG... -- PLACE...: so do the tokens of generate.
tokens() {
    local name=$1 flags=() place
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    runs "$name: tokens on one stage" 0 '"tokens"' generate "${flags[@]}" --json
    cp "$work/stdout" "$work/tokens"
    for place; do
        runs "$name: --place $place" 0 '"tokens"' generate "${flags[@]}" --place $place --json
        check "$name: --place $place: the same tokens" cmp "$work/tokens" "$work/stdout"
    done
}

found=0
for model in "$llama"/*/hf; do
    name=$(basename "$(dirname "$model")")
    [ -f "$(dirname "$model")/fwd_inputs.safetensors" ] || continue
    placed "$name" "$model" "$(dirname "$model")/fwd_inputs.safetensors" 2 "2 --tp 2" "3,1 --tp 3"
    tokens "$name" --model "$model" --tokens 5,9,2 --max-new 6 --greedy -- 2 "1,2 --tp 3"
    tokens "$name, sampled" --model "$model" --tokens 5,9,2 --max-new 6 --seed 3 -- 2
    found=$((found + 1))
done
check "models to place ($found)" test "$found" -ge 2
if [ -d "$llama/tiny_llama/lora" ] && [ -f "$llama/tiny_llama/lora/adapter_config.json" ]; then
    tokens "with an adapter" --model "$llama/tiny_llama/hf" --adapter "$llama/tiny_llama/lora" --tokens 5,9,2 --max-new 6 --greedy -- 2
fi

captions
cp "$pictures/grey16.png" "$work/caps/0.png"
for family in cogvlm cogagent; do
    runs "a $family" 0 . init $family-tiny "$work/$family" --seed 4
    placed "$family" "$work/$family" "$work/caps" 2 "3 --tp 2" "0-0,1-3 --tp 3" 4
    tokens "$family" --model "$work/$family" --image "$work/caps/1234.png" --prompt "Which digits?" --max-new 6 --greedy -- 2 "1,3 --tp 2" 4
    if [ -d "$golden/$family/mp1" ]; then
        placed "$family as recorded" "$golden/$family/mp1" "$golden/$family/inputs.safetensors" 2 "0-0,1-1 --tp 8"
        parts=$golden/$family/mp4 # not in the repository's subset: divided here
        [ -d "$parts" ] || { parts=$work/$family-mp4; runs "$family divided by four" 0 . convert "$golden/$family/mp1" "$parts" --to sat --tp 4; }
        placed "$family of a save in four" "$parts" "$golden/$family/inputs.safetensors" "2 --tp 3"
    fi
done

# ---- chat: the same conversation, with pictures and without, and the same ends ----
talk="what\nand now?\n/reset\nwhat\n/image $pictures/turned6.jpg\nwhat\n/image $0\nand that?"
talks() { # talks NAME PLACE FLAG...: answers to $talk into $work/talk, with the exit code
    local name=$1 place=$2 got=0
    shift 2
    # shellcheck disable=SC2086
    printf "$talk" | "$sheaf" chat "$@" --json --max-new 5 $place >"$work/talk" 2>"$work/stderr" || got=$?
    echo "exit code $got" >>"$work/talk"
    [ "$(grep -c '"tokens":\[[0-9]' "$work/talk")" -ge 4 ] || fail "$name: answers" "$(cat "$work/talk" "$work/stderr")"
}
for family in cogvlm cogagent; do
    for how in "" "--top-k 40 --temperature 3 --seed 5"; do
        # shellcheck disable=SC2086
        flags=(--model "$work/$family" --template chat --image "$work/caps/1234.png" $how)
        talks "a chat with $family" "" "${flags[@]}"
        cp "$work/talk" "$work/talk.one"
        for place in "--place 2" "--place 3" "--place 1,3 --tp 2"; do
            talks "a chat with $family, $place" "$place" "${flags[@]}"
            same "a chat with $family ${how:+sampled}, $place: the same answers" "$work/talk.one" "$work/talk"
        done
    done
done
talk="what\nand now?\n/reset\nwhat\nagain"
runs "a model of text" 0 . init tiny-bytes "$work/untied" --seed 3
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$work/untied/config.json" >"$work/tied.json"
runs "whose table is tied" 0 . init "$work/tied.json" "$work/tied" --seed 3
for from in "$work/cogvlm" "$work/tied"; do
    talks "a chat without a picture" "" --model "$from" --template chat
    cp "$work/talk" "$work/talk.one"
    for place in "--place 2" "--place 3 --tp 2"; do
        talks "a chat without a picture, $place" "$place" --model "$from" --template chat
        same "a chat without a picture with $(basename "$from"), $place: the same answers" "$work/talk.one" "$work/talk"
    done
done
interrupted "an answer from three stages" --model "$work/cogvlm" --place 3 --image "$work/caps/1234.png"

# A router's own loss is one of all layers; answers have none.
mixture=$SHEAF_SOURCE_ROOT/tests/data/families/mixtral
cp -r "$mixture/hf" "$work/mixture"
chmod -R u+w "$work/mixture"
sed -i 's/"output_router_logits": *false/"output_router_logits": true/' "$work/mixture/config.json"
check "a router with a loss" grep -q '"output_router_logits": true' "$work/mixture/config.json"
for place in 1 2; do
    runs "its answer, --place $place" 0 . generate --model "$work/mixture" --tokens 5,9,3 --max-new 6 --greedy --place $place
    cp "$work/stdout" "$work/of-$place"
done
same "the same by stages" "$work/of-1" "$work/of-2"
runs "its loss by stages" 3 'output_router_logits.*found: +2 stages.*--tp or --dp' eval --model "$work/mixture" --data "$mixture/fwd_inputs.safetensors" --place 2

one=("$llama/tiny_llama/hf" --tokens 5 --max-new 1)
runs "more stages than layers" 2 'at most [0-9]+ stages, one for each layer' generate --model "${one[@]}" --place 60
runs "layers left out" 2 'all [0-9]+ layers' generate --model "${one[@]}" --place 0-0
runs "layers twice" 2 'layers from 1 on' generate --model "${one[@]}" --place 0-0,0-1
runs "layers that are not there" 2 'up to [0-9]+' generate --model "${one[@]}" --place 0-900
for text in 0 -1 1,,2 1,x 2.5 nan 1-2-3 99999999999999999999 0-99999999999999999999; do
    runs "--place $text" 2 "--place: '$text'|expects|number of stages" generate --model "${one[@]}" "--place=$text"
done
runs "more ranks than there can be" 2 '1 to 64 ranks in all|at most' generate --model "$work/cogvlm" --prompt x --max-new 1 --slices 32 --tp 32 --place 4
runs "a place that is empty" 2 "place.*a text" generate --model "${one[@]}" --place ""
finish
