#!/usr/bin/env bash
# Training on pictures: a folder of captchas and records of LLaVA's kind give the same adapter at any number of
# ranks; what is bad is all named before the first step; a picture that goes missing in between stops every rank.
. "$(dirname "$0")/lib.sh"

pictures=$SHEAF_SOURCE_ROOT/tests/data/images
if [ -d "$golden/cogvlm/mp1" ]; then
    model=$golden/cogvlm/mp1
    words=(--tokenizer "$golden/cogvlm/tiny_tokenizer.model")
    agent=$golden/cogagent/mp1
else # the committed recordings hold no weights
    model=$work/cogvlm
    words=()
    agent=$work/cogagent
    runs "a model" 0 . init cogvlm-tiny "$model" --seed 4
    runs "one with two towers" 0 . init cogagent-tiny "$agent" --seed 4
fi
how=(--lora-rank 2 --lora-targets all-linear --lr 1e-2 --schedule constant --seed 3)
lora=("${how[@]}" --micro-batch 2 --steps 2)

mkdir -p "$work/caps/more"
cp "$pictures/rgb8.png" "$work/caps/1234.png"
cp "$pictures/turned6.jpg" "$work/caps/98.some.jpg"
cp "$pictures/lossy.webp" "$work/caps/more/5.WEBP"
cp "$pictures/cmyk.jpg" "$work/caps/more/77.jpeg"
cp "$pictures/grey16.png" "$work/caps/0.png"
echo note >"$work/caps/README"

# ---- a folder ----
runs "a folder on one rank" 0 'prompt template base' train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/t1" --threads 1
runs "on three ranks" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/t3" --tp 3 --threads 3
same "the same adapter" "$work/t1/adapter" "$work/t3/adapter"
runs "with the pictures in order" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --no-shuffle --out "$work/t-order"
check "another one" bash -c '! cmp -s "$1/t1/adapter/adapter_model.safetensors" "$1/t-order/adapter/adapter_model.safetensors"' . "$work"
runs "another template" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --template vqa --out "$work/t-vqa"
check "is another question" bash -c '! cmp -s "$1/t1/adapter/adapter_model.safetensors" "$1/t-vqa/adapter/adapter_model.safetensors"' . "$work"
runs "a template that is none" 2 'chat_old' train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --template chatold --out "$work/none"
runs "eval reads the folder too" 0 '"loss"' eval --model "$model" "${words[@]}" --adapter "$work/t1/adapter" --data "$work/caps" --json
one=$(json_number "$work/stdout" loss)
runs "on three ranks, one row at a time" 0 '"loss"' eval --model "$model" "${words[@]}" --adapter "$work/t1/adapter" --data "$work/caps" --tp 3 --micro-batch 1 --json
check "the same loss" test "$(json_number "$work/stdout" loss)" = "$one"
runs "plan knows its length" 0 . plan --model "$model" "${words[@]}" --data "$work/caps" --lora-targets all-linear --json
runs "two towers on a folder" 0 . train --model "$agent" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/a1"
runs "on two ranks" 0 . train --model "$agent" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/a2" --tp 2
same "the same adapter with two towers" "$work/a1/adapter" "$work/a2/adapter"

# ---- records ----
cat >"$work/llava.jsonl" <<'END'
{"id": 1, "image": "caps/1234.png", "conversations": [{"from": "human", "value": "<image>\nWhich digits?"}, {"from": "gpt", "value": "1234"}]}
{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "caps/0.png"}}, {"type": "text", "text": "Which digits?"}]}, {"role": "assistant", "content": "0"}]}
{"prompt": "No picture, <images> is text here", "completion": "yes"}
END
runs "records" 0 . train --model "$model" "${words[@]}" --data "$work/llava.jsonl" "${lora[@]}" --out "$work/j1"
runs "records on three ranks" 0 . train --model "$model" "${words[@]}" --data "$work/llava.jsonl" "${lora[@]}" --out "$work/j3" --tp 3
same "the same adapter of records" "$work/j1/adapter" "$work/j3/adapter"
{ echo '['; sed '$!s/$/,/' "$work/llava.jsonl"; echo ']'; } >"$work/llava.json"
runs "the same as one array" 0 . train --model "$model" "${words[@]}" --data "$work/llava.json" "${lora[@]}" --out "$work/j2"
same "gives the same adapter" "$work/j1/adapter" "$work/j2/adapter"
# Two data sets: pictures of each are read where they lie.
for tp in 1 3; do
    runs "a folder and records, --tp $tp" 0 . train --model "$model" "${words[@]}" --data "$work/caps:2,$work/llava.jsonl:1" "${lora[@]}" --out "$work/two$tp" --tp $tp
done
same "and the same adapter" "$work/two1/adapter" "$work/two3/adapter"
runs "rows of unequal length" 0 . train --model "$model" "${words[@]}" --data "$work/llava.jsonl" "${how[@]}" --micro-batch 3 --steps 1 --lora-dropout 0.2 --out "$work/unequal"
runs "text alone is not for two towers" 3 'llava.jsonl: line 3: image.*expected: +one: the cross-attention of cogagent' \
    train --model "$agent" "${words[@]}" --data "$work/llava.jsonl" "${lora[@]}" --out "$work/none"

# ---- one rule for marks, in every form and in generate and chat ----
echo '{"image": "caps/0.png", "prompt": "Which digits?", "completion": "0"}' >"$work/bare.jsonl"
echo '{"image": "caps/0.png", "prompt": "<image>\nWhich digits?", "completion": "0"}' >"$work/marked.jsonl"
echo '{"image": "caps/0.png", "conversations": [{"role": "user", "content": "Which digits? <image>"}, {"role": "assistant", "content": "0"}]}' >"$work/roles.jsonl"
echo '{"prompt": "<image>\nWhich digits?", "completion": "0"}' >"$work/lost.jsonl"
echo '{"image": "caps/0.png", "prompt": "<img>caps/0.png</img> Which?", "completion": "0"}' >"$work/spelled.jsonl"
runs "a question without a mark" 0 '"loss"' eval --model "$model" "${words[@]}" --data "$work/bare.jsonl" --json
loss=$(json_number "$work/stdout" loss)
for form in marked roles; do
    runs "$form" 0 '"loss"' eval --model "$model" "${words[@]}" --data "$work/$form.jsonl" --json
    check "is the same" test "$(json_number "$work/stdout" loss)" = "$loss"
done
runs "a mark without a picture" 3 "line 1: field 'image'.*marks by <image>" eval --model "$model" "${words[@]}" --data "$work/lost.jsonl"
runs "a picture that is spelled out" 0 "warning: .*line 1: '<img>...</img>' in a question is read as text" eval --model "$model" "${words[@]}" --data "$work/spelled.jsonl"
for m in "$model" "$agent"; do
    runs "asked without a mark" 0 . generate --model "$m" "${words[@]}" --image "$work/caps/0.png" --prompt "Which?" --max-new 4 --json
    cp "$work/stdout" "$work/asked"
    runs "asked with it" 0 . generate --model "$m" "${words[@]}" --image "$work/caps/0.png" --prompt '<image>
Which?' --max-new 4 --json
    check "gives the same tokens" test "$(grep -o '"tokens":[^]]*' "$work/stdout")" = "$(grep -o '"tokens":[^]]*' "$work/asked")"
done
runs "asked with two" 3 "question 1.*'<image>' once, in the first question.*found: +2 of them" generate --model "$model" "${words[@]}" --image "$work/caps/0.png" --prompt '<image> <image>' --max-new 4
runs "asked without a picture" 3 "question 1.*expected: a picture for '<image>'.*try: +give the picture" generate --model "$model" "${words[@]}" --prompt '<image> Which?' --max-new 4
echo '<image> Which?' | "$sheaf" chat --model "$model" "${words[@]}" --image "$work/caps/0.png" --max-new 4 >"$work/marked" 2>&1
echo 'Which?' | "$sheaf" chat --model "$model" "${words[@]}" --image "$work/caps/0.png" --max-new 4 >"$work/unmarked" 2>&1
same "a talk, too" "$work/marked" "$work/unmarked"

# ---- bad records that are left out ----
{ echo '{"image": "caps/none.png", "prompt": "Q", "completion": "0"}'; cat "$work/bare.jsonl"; echo '{"question": "no picture"}'; } >"$work/some.jsonl"
cp "$pictures/rgb8.png" "$work/cut.png" && head -c 60 "$work/cut.png" >"$work/cut2.png"
echo '{"image": "cut2.png", "prompt": "Q", "completion": "0"}' >>"$work/some.jsonl"
runs "bad ones are left out" 0 'warning: .*3 of 4 records are bad and left out' eval --model "$model" "${words[@]}" --data "$work/some.jsonl" --on-bad skip --json
check "and the others are as alone" test "$(json_number "$work/stdout" loss)" = "$loss"
runs "also of what is asked" 0 '"exact_match"' eval --model "$model" "${words[@]}" --data "$work/some.jsonl" --on-bad skip --match --max-new 2 --json
check "said once" test "$(grep -c 'left out' "$work/stderr")" = 1
runs "and not unasked" 3 '3 of 4 records are bad' eval --model "$model" "${words[@]}" --data "$work/some.jsonl"
sed 's/prompt/question/; s/completion/answer/' "$work/bare.jsonl" >"$work/named.jsonl"
runs "fields by other names" 0 '"loss"' eval --model "$model" "${words[@]}" --data "$work/named.jsonl" --fields question=prompt --json
check "are the same" test "$(json_number "$work/stdout" loss)" = "$loss"

# ---- upstream's SFT data ----
mkdir -p "$work/sft/images" "$work/sft/labels" "$work/sft/.ipynb_checkpoints"
cp "$work/caps/0.png" "$work/sft/images/7.png"
cp "$work/roles.jsonl" "$work/sft/labels/7.json"
sed -i 's/"image": "caps.0.png", //' "$work/sft/labels/7.json"
runs "labels beside images" 0 'warning: .*/sft: 1 of its entries is not read, .*\.ipynb_checkpoints' eval --model "$model" "${words[@]}" --data "$work/sft" --json
check "are what is learned" test "$(json_number "$work/stdout" loss)" = "$loss"
runs "and asked" 0 '"expected": ?"0"' generate --model "$model" "${words[@]}" --data "$work/sft" --max-new 2 --json

# ---- what is bad ----
cp -r "$work/caps" "$work/bad"
head -c 100 "$pictures/rgb8.png" >"$work/bad/55.png"
echo "not a picture" >"$work/bad/66.jpg"
: >"$work/bad/77.png"
cp "$pictures/rgb8.png" "$work/bad/.png"
runs "bad pictures are all named" 3 'bad: 4 of 9 records are bad.*/\.png.*/55\.png.*/66\.jpg.*/77\.png' \
    train --model "$model" "${words[@]}" --data "$work/bad" "${lora[@]}" --out "$work/none"
for order in --group-by-length "--pack --seq 64"; do # before pictures are read, which are bad
    runs "${order%% *} is for texts" 3 "sheaf: ${order%% *}.*without a vision tower.*found: .*cogvlm.*try: +leave it out" \
        train --model "$model" "${words[@]}" --data "$work/bad" "${lora[@]}" $order --out "$work/none"
done
runs "by eval too" 3 '4 of 9 records are bad' eval --model "$model" "${words[@]}" --data "$work/bad"
runs "and by plan" 3 '4 of 9 records are bad' plan --model "$model" "${words[@]}" --data "$work/bad" --lora-targets all-linear
runs "a --seq that no image fits into" 2 'at least [0-9]+ and the tokens of the prompt.*patches between two marks' \
    train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --seq 15 --out "$work/none"
runs "a --seq that is short for a text" 3 'the value of --seq.*try: +--seq [0-9]+' \
    train --model "$model" "${words[@]}" --data "$work/llava.jsonl" "${lora[@]}" --seq 31 --out "$work/none"
absent "none of these left anything" "$work/none"
runs "a folder for a model of text" 3 'of images .a folder of them is for CogVLM and CogAgent. a file' \
    eval --model "$llama/tiny_llama/hf" --data "$work/caps"

# ---- going on ----
runs "four steps" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${how[@]}" --micro-batch 2 --steps 4 --save-every 2 --out "$work/whole"
runs "two of them" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/part"
runs "and on from there" 0 . train --resume --out "$work/part" --steps 4 --tp 3
same "give the adapter of four" "$work/whole/adapter" "$work/part/adapter"

# ---- the template that nobody named stands in the settings ----
check "the model's, or base" grep -qx 'template: base' "$work/part/settings"
check "the one that was given" grep -qx 'template: vqa' "$work/t-vqa/settings"
runs "going on with it by name" 0 . train --resume --out "$work/part" --steps 5 --template base
runs "but not with another" 2 'template cannot change.*expected: +base, as the run began.*found: +chat' train --resume --out "$work/part" --steps 6 --template chat
cp -r "$model" "$work/talks"
chmod -R u+w "$work/talks"
for config in "$work/talks"/*config.json; do
    sed -i '1s/{/{"text_processor_version": "chat",/' "$config"
done
runs "a model that names one" 0 'template chat, which the model' train --model "$work/talks" "${words[@]}" --data "$work/caps" "${lora[@]}" --out "$work/talk1"
check "stands there too" grep -qx 'template: chat' "$work/talk1/settings"
runs "its settings, and a model that names none" 0 . train --recipe "$work/talk1/settings" --model "$model" --out "$work/talk2"
same "give the same run" "$work/talk1/adapter/adapter_model.safetensors" "$work/talk2/adapter/adapter_model.safetensors"
# A run that began without a template in its settings (as if stopped before its first checkpoint) goes on without.
runs "a run" 0 . train --model "$model" "${words[@]}" --data "$work/caps" "${how[@]}" --micro-batch 2 --steps 1 --out "$work/old"
sed -i '/^template:/d' "$work/old/settings"
rm -r "$work/old/checkpoints" "$work/old/adapter"
runs "goes on" 0 'no checkpoint yet.*prompt template base|prompt template base.*no checkpoint yet' train --resume --out "$work/old" --steps 2
check "as it was" bash -c '! grep -q "^template:" "$1"' . "$work/old/settings"
check "also in its checkpoints" bash -c '! grep -q "template:" "$1"/*/manifest.json' . "$work/old/checkpoints"
runs "and again" 0 'going on after step 2' train --resume --out "$work/old" --steps 4
same "to the same adapter" "$work/whole/adapter" "$work/old/adapter"

# ---- a picture that is lost while the run goes on (three are held at a time, of five) ----
(
    for ((i = 0; i < 600; i++)); do
        [ -s "$work/lost/metrics.jsonl" ] && break
        sleep 0.1
    done
    mv "$work/caps/0.png" "$work/0.png"
) &
remover=$!
runs "a lost picture stops three ranks" 3 'caps/0\.png' train --model "$model" "${words[@]}" --data "$work/caps" "${how[@]}" --micro-batch 1 \
    --steps 1000000 --tp 3 --out "$work/lost"
wait "$remover"
mv "$work/0.png" "$work/caps/0.png"

cp "$pictures/rgb16.png" "$work/caps/1234.png"
runs "another picture under the same name is other data" 2 'the data' train --resume --out "$work/part" --steps 6
finish
