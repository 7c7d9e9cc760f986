#!/usr/bin/env bash
# Questions about pictures: generate, eval --match and chat, at any number of ranks, with any picture; recorded models
# give SAT's own tokens.
. "$(dirname "$0")/lib.sh"

mkdir "$work/tmp" "$work/empty"
export TMPDIR=$work/tmp
images=$SHEAF_SOURCE_ROOT/tests/data/images
tokens() { grep -o '"tokens":\[[0-9,]*\]' "$1" | sed 's/.*\[//; s/\]//'; } # tokens FILE: a line for each answer

# ---- recorded models ----
# wanted DIR: what SAT added to each sample, a line each
wanted() {
    tr -d ' \n' <"$1/generate_greedy.json" | grep -o '"sample[0-9]*":{[^}]*}' |
        sed 's/.*"context_length":\([0-9]*\).*"output_ids":\[\([0-9,]*\)\].*/\1,\2/' | awk -F, '{ for (i = $1 + 2; i <= NF; i++) printf "%s%s", $i, i < NF ? "," : "\n" }'
}
recorded=0
for dir in "$golden"/*/; do
    dir=${dir%/}
    [ -f "$dir/inputs.safetensors" ] && [ -f "$dir/mp1/model_config.json" ] && [ -f "$dir/generate_greedy.json" ] || continue
    recorded=$((recorded + 1))
    name=$(basename "$dir")
    new=$(wanted "$dir" | head -n 1 | tr ',' '\n' | wc -l)
    wanted "$dir" >"$work/wanted"
    for parts in "$dir"/mp[0-9]*; do
        case $parts in *_*) continue ;; esac
        for tp in 1 3; do
            runs "$name, $(basename "$parts"), --tp $tp" 0 . generate --model "$parts" --data "$dir/inputs.safetensors" --max-new "$new" --greedy --tp $tp --json
            tokens "$work/stdout" >"$work/got"
            same "$name: SAT's tokens" "$work/wanted" "$work/got"
        done
    done
done
[ -z "${SHEAF_GOLDEN:-}" ] || check "some recorded model was asked" test $recorded -gt 0

# ---- models of our own, whose vocabulary is bytes ----
vlm=$work/vlm agent=$work/agent
runs "a CogVLM" 0 . init cogvlm-tiny "$vlm" --seed 3
runs "a CogAgent" 0 . init cogagent-tiny "$agent" --seed 4
check "pictures" "$SHEAF_BUILD_ROOT/examples/captcha" night "$work/pictures" 6 3
picture=$images/grey_alpha8.png
ask=(--image "$picture" --prompt "what" --max-new 6)
for m in vlm agent; do
    for how in "--greedy" "--sampling sat --top-k 5 --top-p 0.9 --temperature 2 --repetition-penalty 1.5 --seed 3" "--temperature 3 --seed 3"; do
        # shellcheck disable=SC2086
        for tp in 1 3; do
            runs "$m $how, --tp $tp" 0 'template base' generate --model "${!m}" "${ask[@]}" $how --tp $tp --json
            tokens "$work/stdout" >"$work/$tp.tokens"
        done
        same "$m: equal tokens" "$work/1.tokens" "$work/3.tokens"
    done
    cat "$work/1.tokens" >>"$work/sampled"
    for kind in one.png animated.webp apng.png grey.jpg grey16.png cmyk.jpg lossless_alpha.webp; do
        runs "$m: $kind" 0 '"tokens":\[[0-9]' generate --model "${!m}" --image "$images/$kind" --prompt "what" --max-new 2 --json
    done
    runs "$m: a picture that is text" 3 'lib.sh.*expected: JPEG, PNG or WebP.*found: +text' generate --model "${!m}" --image "$SHEAF_SOURCE_ROOT/tests/cli/lib.sh" --prompt x
    printf '\211PNG\r\n\032\n\000\000\000\015IHDR\000\000\116\040\000\000\116\040\010\002\000\000\000\154\022\321\156\000\000\000\011IDAT\170\234\143\000\000\000\001\000\001\136\377\175\371' >"$work/huge.png"
    runs "$m: a picture of 20000 x 20000" 3 'huge.png.*found: +20000 x 20000' generate --model "${!m}" --image "$work/huge.png" --prompt x
    runs "$m: no such picture" 3 'nothing.png' generate --model "${!m}" --image "$work/nothing.png" --prompt x
    runs "$m: the mark of an image in a question is text" 3 'found: .* 7 for the prompt' generate --model "${!m}" --image "$picture" --prompt "a<EOI>b" --max-length 12
    runs "$m: no room for the image" 3 'max_length 12.*for the image .*try: +a max_length above' generate --model "${!m}" --image "$picture" --prompt x --max-length 12
    runs "$m: a template that is none" 2 'base, chat, vqa or chat_old.*try: +chat' generate --model "${!m}" "${ask[@]}" --template chatt
    runs "$m: a tokenizer that is none" 3 'lib.sh: sentencepiece model: byte [0-9]+.*try: +the model.s sentencepiece file, tokenizer.model' generate --model "${!m}" "${ask[@]}" --tokenizer "$SHEAF_SOURCE_ROOT/tests/cli/lib.sh"
done
runs "a CogVLM without a picture" 0 '"tokens"' generate --model "$vlm" --prompt what --max-new 2 --json
runs "a CogAgent without one is refused" 3 'an image: the cross-attention of cogagent.*try: +--image FILE, or "image" in the record' generate --model "$agent" --prompt what
echo '{"prompt": "a", "completion": "b"}' >"$work/blind.jsonl"
runs "each record needs one" 3 'line 1: image.*found: +none.*try: +"image" in the record' eval --model "$agent" --data "$work/blind.jsonl"
runs "token ids have none" 3 'an image: the cross-attention of cogagent' generate --model "$agent" --tokens 1,2
runs "a picture without a question" 2 'a --prompt that asks' generate --model "$vlm" --tokens 1,2 --image "$picture"
runs "a picture for a model of text" 3 'llama has no vision tower' generate --model "$llama/tiny_llama/hf" "${ask[@]}"

# ---- flags of sampling, and bytes that are no UTF-8 ----
runs "a temperature that is 0 as a float" 2 'at least 1e-06' chat --model "$vlm" --temperature 1e-46
runs "a penalty that is 0 as a float" 2 'repetition-penalty.*at least 1e-06' generate --model "$vlm" --prompt what --repetition-penalty 1e-46
runs "a top-p that is 0 as a float" 2 'top-p.*at least 1e-06' generate --model "$vlm" --prompt what --top-p 1e-46
runs "a question that is no UTF-8" 2 'text in UTF-8' generate --model "$vlm" --prompt $'a\xff' --json
mkdir "$work"/$'odd\xff'
cp "$picture" "$work"/$'odd\xff/47.png'
odd=$(printf '"image":"[^"]*odd\357\277\275/47.png"')
runs "a path that is no UTF-8 as JSON" 0 "$odd" generate --model "$vlm" --data "$work"/$'odd\xff' --max-new 2 --greedy --json
runs "in eval too" 0 "\"mismatches\":.\{\"record\":1,$odd" eval --model "$vlm" --data "$work"/$'odd\xff' --max-new 2 --match --json
runs "and in an error" 3 "$(printf 'odd\357\277\275/none')" eval --model "$vlm" --data "$work"/$'odd\xff/none' --json

# The most probable token after this question is one of the question.
first() { "$sheaf" generate --model "$vlm" --image "$images/one.png" --prompt "?" --max-new 1 --greedy --json "$@" 2>/dev/null | grep -o '"tokens":\[[0-9]*'; }
check "an answer that repeats the question" test "$(first)" = '"tokens":[63'
check "SAT's penalty is of new tokens" test "$(first --sampling sat --repetition-penalty 100)" = '"tokens":[63'
check "that of transformers is of the prompt's too" test "$(first --repetition-penalty 100)" != '"tokens":[63'

# ---- records ----
text() { sed 's/.*"text":"//; s/","prompt".*//' "$1"; } # text FILE: of an answer, as it stands in JSON
runs "an answer with letters and nothing that JSON escapes" 0 '"text":"[^"\\]*[a-zA-Z][^"\\]*"' generate --model "$vlm" "${ask[@]}" --greedy --json
good=$(text "$work/stdout")
record() { printf '{"image": "%s", "prompt": "what", "answer": "%s"}\n' "$picture" "$1"; }
{ record "$good"; record "$(tr 'a-zA-Z' 'A-Za-z' <<<"$good")"; record "nothing"; record "$good "; } >"$work/records.jsonl"
for tp in 1 3; do
    runs "eval --match, --tp $tp" 0 'instead of .nothing' eval --model "$vlm" --data "$work/records.jsonl" --match --max-new 6 --tp $tp
    runs "as JSON" 0 '"mismatches":\[\{"record":3,"image":".*grey_alpha8.png","expected":"nothing"' eval --model "$vlm" --data "$work/records.jsonl" --exact-match --max-new 6 --tp $tp --json
    check "two of four are right" test "$(json_number "$work/stdout" exact_match)" = 0.5
    check "three without case" test "$(json_number "$work/stdout" exact_match_nocase)" = 0.75
    check "and there is a loss" test -n "$(json_number "$work/stdout" loss)"
done
check "with the progress shown" sh -c "grep -q 'images checked: 4 of 4' '$work/stderr' && grep -q 'prompts: 4 of 4' '$work/stderr'"
runs "generate compares too" 0 '"exact_match":0.5' generate --model "$vlm" --data "$work/records.jsonl" --greedy --max-new 6 --json
check "with the progress shown" sh -c "grep -q 'images checked: 4 of 4' '$work/stderr' && grep -q 'prompts: 4 of 4' '$work/stderr'"
runs "a folder of pictures" 0 'answers":3' eval --model "$agent" --data "$work/pictures/heldout" --match --max-new 4 --micro-batch 2 --json
cp "$SHEAF_SOURCE_ROOT/tests/cli/lib.sh" "$work/pictures/heldout/7777.0.png"
printf '\377\330\377' >"$work/pictures/heldout/8888.0.jpg"
runs "bad pictures are told together" 3 '2 of 5 records are bad.*7777.*8888' generate --model "$vlm" --data "$work/pictures/heldout" --max-new 1
rm "$work/pictures/heldout/7777.0.png" "$work/pictures/heldout/8888.0.jpg"

# ---- a run as a model ----
run=$work/run
runs "a short run" 0 . train --model "$vlm" --data "$work/pictures/train" --out "$run" --method lora --lora-rank 2 --steps 2 --save-every 1 --lr 1e-2 \
    --train 'mixins.lm.lm_head.weight' --template vqa --query "number?" --micro-batch 3
loss() { runs "loss of $1" 0 . eval "${@:2}" --data "$work/pictures/heldout" --json; loss=$(json_number "$work/stdout" loss); }
loss "a run" --model "$run"; result=$loss
loss "its adapter" --model "$vlm" --adapter "$run/adapter" --template vqa --query "number?"
check "is the same" test "$loss" = "$result"
loss "its last checkpoint" --model "$run/checkpoints/step-00000002" --tp 3
check "is the same" test "$loss" = "$result"
loss "its first checkpoint" --model "$run/checkpoints/step-00000001"; first=$loss
check "is another" test "$loss" != "$result"
loss "the first checkpoint as an adapter" --model "$vlm" --adapter "$run/checkpoints/step-00000001/"
check "is the same" test "$loss" = "$first"
rm -r "$run/adapter"
loss "a run that is not done" --model "$run"
check "is its newest checkpoint" test "$loss" = "$result"
runs "a run with an adapter is refused" 2 '--adapter.*try: +--model' eval --model "$run" --adapter "$run/checkpoints/step-00000001" --data "$work/pictures/heldout"
runs "another model" 0 . init cogvlm-tiny "$work/other2" --seed 9
runs "is not the base" 3 'the base of the run.*fingerprint' eval --model "$work/other2" --adapter "$run/checkpoints/step-00000001" --data "$work/pictures/heldout"
same "no folder is left behind" "$TMPDIR" "$work/empty"

# ---- killed: nothing that looks whole, and no folder ----
killed() { # killed FLAG...: an eval that is under way
    "$sheaf" eval "$@" --data "$work/many.jsonl" --match --save-logits "$work/logits.safetensors" >"$work/stdout" 2>"$work/stderr" &
    local process=$! there=0
    waits grep -q 'rows: ' "$work/stderr" && [ -n "$(ls "$work" | grep '^logits.safetensors.partial-')" ] && there=1
    kill -KILL $process
    wait $process 2>/dev/null
    [ $there = 1 ]
}
for i in $(seq 400); do record x; done >"$work/many.jsonl"
check "an evaluation of a checkpoint is killed" killed --model "$run/checkpoints/step-00000002"
absent "it leaves no file of logits" "$work/logits.safetensors"
same "and no folder" "$TMPDIR" "$work/empty"
rm -f "$work"/logits.safetensors.partial-*
runs "to its end" 0 . eval --model "$vlm" --data "$work/records.jsonl" --save-logits "$work/logits.safetensors"
check "there is one" test -s "$work/logits.safetensors"
check "under its name alone" test "$(ls "$work" | grep -c '^logits')" = 1
runs "a file of logits that is there, before data are read" 2 'save-logits .*does not exist' eval --model "$llama/tiny_llama/hf" --data "$work/none" --save-logits "$work/logits.safetensors"

# ---- chat ----
talk=(--model "$vlm" --template chat --max-new 6 --json)
for tp in 1 3; do
    chats "chat, --tp $tp" 0 . "what\nand now?\n/reset\nwhat\n/image $picture\nwhat\n/quit\nnot asked\n" "${talk[@]}" --image "$picture" --tp $tp
    tokens "$work/stdout" >"$work/chat.$tp"
done
same "the same at three ranks" "$work/chat.1" "$work/chat.3"
check "four answers before /quit" test "$(wc -l <"$work/chat.1")" -eq 4
turn() { sed -n "$1p" "$work/chat.1"; }
check "/reset forgets" test "$(turn 1)" = "$(turn 3)"
check "so does a picture" test "$(turn 1)" = "$(turn 4)"
said=$(head -n 1 "$work/stdout" | sed 's/.*"text":"//; s/","prompt".*//')
printf '{"image": "%s", "conversations": [{"from": "human", "value": "what"}, {"from": "gpt", "value": "%s"}, {"from": "human", "value": "and now?"}]}\n' \
    "$picture" "$said" >"$work/talk.jsonl"
runs "the second answer is that of the whole conversation" 0 . generate --model "$vlm" --template chat --data "$work/talk.jsonl" --greedy --max-new 6 --json
check "token by token" test "$(tokens "$work/stdout")" = "$(turn 2)"
chats "questions that are no UTF-8" 1 '"prompt":"/\?".*text in UTF-8.*text in UTF-8' 'a\377\n//\377\n//?\n' "${talk[@]}"
# What was seen of a picture is kept between turns, and no longer than the picture.
other=$images/turned6.jpg
for m in vlm agent; do
    for dtype in float32 bfloat16; do
        looks=(--model "${!m}" --template chat --max-new 6 --json --dtype $dtype --top-k 100 --temperature 4)
        chats "$m: three pictures in $dtype" 0 . "/reset\nwhat\n/image $other\nwhat\nand now?\n/image $picture\nwhat\nand now?" "${looks[@]}" --image "$picture"
        tokens "$work/stdout" >"$work/looks"
        for turn in 1 2 4; do # asked as the first, second and fourth question of a chat that has seen nothing before
            shown=$picture; [ $turn -ne 2 ] || shown=$other
            chats "$m: one of them in $dtype" 0 . "$(for ((i = 1; i < turn; i++)); do printf 'no\\n/reset\\n'; done)/image $shown\nwhat" "${looks[@]}" --image "$images/grey16.png"
            check "$m: turn $turn is of the picture shown" test "$(sed -n ${turn}p "$work/looks")" = "$(tokens "$work/stdout" | tail -n 1)"
        done
    done
done
chats "text is printed" 0 'every question is asked alone' "what\nwhat" --model "$vlm" --image "$picture" --max-new 6
check "a line for each answer" test "$(wc -l <"$work/stdout")" -eq 2
check "that of generate" test "$(head -n 1 "$work/stdout")" = "$("$sheaf" generate --model "$vlm" "${ask[@]}" --greedy 2>/dev/null)"
chats "what is no command" 1 '/image \[FILE\], /system.*/help or /quit.*found: +/imag x.*try: +/image \[FILE\]' "/imag x\n" "${talk[@]}"
chats "a picture that is text" 1 'JPEG, PNG or WebP' "/image $SHEAF_SOURCE_ROOT/tests/cli/lib.sh\nwhat\n" "${talk[@]}"
chats "a CogAgent wants one first" 1 'a picture first ./image FILE' "what\n/image $picture\nwhat\n" --model "$agent" --max-new 2 --json
check "and goes on" test "$(tokens "$work/stdout" | wc -l)" -eq 1
chats "a conversation that is too long" 1 'try: .*/reset' "what\nwhat\n/reset\nwhat\n" "${talk[@]}" --max-length 40
check "goes on after /reset" test "$(tokens "$work/stdout" | wc -l)" -eq 2
chats "a slash before a question" 0 '"prompt":"/what"' "//what" "${talk[@]}"
chats "a model without a tokenizer" 3 'tokenizer.model.*try: +--tokenizer FILE' "hi\n" --model "$llama/tiny_llama/hf"

interrupted "an answer" --model "$vlm" --image "$picture"
finish
