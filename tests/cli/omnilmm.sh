#!/usr/bin/env bash
# An OmniLMM that sheaf made, as a user takes it: conversations with no picture, one and two; the same bytes at any number of
# ranks and on any stages; its files in other forms, damaged and of another model; and the recorded one where there is one.
. "$(dirname "$0")/lib.sh"

check "pictures" "$SHEAF_BUILD_ROOT/examples/captcha" night "$work/pictures" 6 4
pictures=("$work"/pictures/train/*.png)
m=$work/model
runs "init" 0 'parameters' init omnilmm-tiny "$m" --seed 3
runs "is sound" 0 'model +omnilmm .*sound' verify "$m"

# talk QUESTION IMAGES: a data set of one conversation.
talk() {
    printf '[{"id":0,%s"conversations":[{"role":"user","content":"%s"},{"role":"assistant","content":"abc"}]}]\n' "$2" "$1"
}
one="\"image\":\"${pictures[0]##*/}\","
two="\"image\":{\"<image_00>\":\"${pictures[0]##*/}\",\"<image_01>\":\"${pictures[1]}\"}," # beside the file, and anywhere
last="\"image\":\"${pictures[1]##*/}\","
folder=$work/pictures/train
talk 'what?' "" >"$folder/none.json"
talk '<image>\nwhat?' "$one" >"$folder/one.json"
talk '<image_00>\n<image_01>\nwhat?' "$two" >"$folder/two.json"
talk '<image>\nwhat?' "$last" >"$folder/last.json"
sed 's/^\[//; s/\]$//' "$folder/none.json" "$folder/one.json" "$folder/two.json" | paste -sd, | sed 's/^/[/; s/$/]/' >"$folder/all.json"

loss_anywhere "$m" "$folder/all.json"
# What upstream loses: the first of two pictures.
runs "of two pictures" 0 '"loss":' eval --model "$m" --data "$folder/two.json" --json
with_two=$(json_number "$work/stdout" loss)
sed "s/${pictures[0]##*/}/${pictures[2]##*/}/" "$folder/two.json" >"$folder/other.json"
runs "with another first picture" 0 '"loss":' eval --model "$m" --data "$folder/other.json" --json
check "the first counts" test "$with_two" != "$(json_number "$work/stdout" loss)"

# ---- what is not read is told ----
sed 's/"image"/"imges"/' "$folder/one.json" >"$folder/misspelt.json"
runs "a misspelt field" 3 "misspelt.json: entry 1: message 1.*a picture for '<image>'.*a field 'imges', which is not read" eval --model "$m" --data "$folder/misspelt.json"
runs "also where an answer is asked for" 3 "a field 'imges', which is not read" generate --model "$m" --data "$folder/misspelt.json" --max-new 1
sed 's/<image>.n//; s/"id"/"width"/' "$folder/misspelt.json" >"$folder/unread.json"
runs "fields that are not used" 0 "entry 1: field '(imges|width)' is not used" eval --model "$m" --data "$folder/unread.json"
runs "a cache that is not made" 0 'data-cache .* has no effect: records with pictures' eval --model "$m" --data "$folder/one.json" --data-cache "$work/cache"
many=()
for _ in $(seq 17); do many+=(--image "${pictures[0]}"); done
runs "too many pictures for a command" 2 'image.*at most 16 of them.*one more.*images' generate --model "$m" --prompt what "${many[@]}"
runs "a folder with several files" 3 'a folder with one.*such files in it.*one of them' eval --model "$m" --data "$folder"
printf '{"instruction": "what?", "output": "abc", "image": "%s"}\n' "${pictures[0]}" >"$work/pictures/asked.jsonl"
runs "instructions, in a folder" 0 '"expected":"abc"' generate --model "$m" --data "$work/pictures" --max-new 1 --json

# ---- training ----
flags=(--steps 3 --micro-batch 3 --lr 1e-3 --threads 1 --data "$folder/all.json")
lora=(--lora-targets all-linear --lora-rank 4 --lora-dropout 0.1 --modules-to-save "embed_tokens,resampler")
for tp in 1 3; do
    runs "LoRA on $tp" 0 . train --model "$m" "${flags[@]}" "${lora[@]}" --tp $tp --out "$work/lora$tp"
    runs "in full on $tp" 0 . train --model "$m" "${flags[@]}" --method full --tp $tp --out "$work/full$tp"
done
same "the same adapter" "$work/lora1/adapter" "$work/lora3/adapter"
same "the same model" "$work/full1/model" "$work/full3/model"
runs "which is sound" 0 'model +omnilmm .*sound' verify "$work/full1/model"
learned_and_merged "$m"
runs "the default targets" 0 'LoRA on q_proj,k_proj,v_proj' train --model "$m" "${flags[@]}" --out "$work/default"

# Groups whose rows hold no, one and two pictures; and a run that goes on elsewhere.
grouped=(--data "$folder/all.json" --method full --micro-batch 1 --accumulate 4 --accumulators 4 --schedule constant --lr 1e-3 --no-shuffle)
runs "one group" 0 . train --model "$m" "${grouped[@]}" --steps 3 --out "$work/group1"
runs "two groups" 0 . train --model "$m" "${grouped[@]}" --steps 3 --dp 2 --out "$work/group2"
runs "two steps" 0 . train --model "$m" "${grouped[@]}" --steps 2 --out "$work/part"
runs "and the third on three ranks" 0 . train --model "$m" "${grouped[@]}" --steps 3 --out "$work/part" --resume --tp 3
same "groups: the same model" "$work/group1/model" "$work/group2/model"
same "resumed: the same model" "$work/group1/model" "$work/part/model"

# ---- asking ----
answer_anywhere "$m" "${pictures[0]}"

# A tokenizer as it was published: sentencepiece, the marks added behind its pieces; the config says no ids.
sed 's/"sheaf_tokenizer": "bytes",//; s/"vocab_size": 262/"vocab_size": 349/; s/"im_\(start\|patch\|end\)_token": [0-9]*,//g' "$m/config.json" >"$work/hub.json"
runs "a model with a tokenizer" 0 'parameters' init "$work/hub.json" "$work/hub" --seed 4
cp "$SHEAF_SOURCE_ROOT/tests/data/tokenizers/bpe.model" "$work/hub/tokenizer.model"
printf '{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "legacy": true}\n' >"$work/hub/tokenizer_config.json"
runs "that lacks the marks" 3 'a tokenizer with the token <im_(start|patch|end)>, below 349' eval --model "$work/hub" --data "$folder/all.json"
printf '{"<im_patch>": 340, "<im_start>": 341, "<im_end>": 342}\n' >"$work/hub/added_tokens.json"
loss "with them" --model "$work/hub"
check "it reads pictures" test "$loss" != ""
runs "and answers" 0 '"tokens"' generate --model "$work/hub" --prompt what --image "${pictures[0]}" --max-new 2 --greedy --json

# ---- other files ----
runs "in shards" 0 . convert "$m" "$work/shards" --to hf --shard-mb 1
check "of which there are some" test -f "$work/shards/model.safetensors.index.json"
loss "from shards" --model "$work/shards"
check "the same loss" test "$loss" = "$all"
# damaged NAME SCRIPT: a copy whose header sed changes to one of the same length.
damaged() {
    rm -rf "$work/damaged"
    cp -r "$m" "$work/damaged"
    LC_ALL=C sed -i "$2" "$work/damaged/model.safetensors"
    runs "$1" "$3" "$4" "${5:-eval}" --data "$folder/one.json" --model "$work/damaged"
}
damaged "a tower that was not saved" 's/model\.vision_tower\./model.vision_towed./g' 3 'the vision tower.*45 tensors.*before it was trained'
damaged "a block of the tower is missing" 's/vision_tower\.blocks\.1\./vision_tower.blocks.7./g' 3 'vision_tower.blocks.1.attn.qkv.weight'
# The table of the queries' positions can be computed: nothing is lost with it.
mkdir "$work/lacking"
cp "$m/config.json" "$m/model.safetensors" "$work/lacking"
check "a model without its table of positions" without_tensor "$work/lacking/model.safetensors" model.resampler.pos_embed
runs "is sound" 0 'tensors +97 .*sound' verify "$work/lacking"
for tp in 1 3; do
    loss "and computes, on $tp" --model "$work/lacking" --tp $tp --save-logits "$work/other"
    same "the same logits" "$work/one" "$work/other"
    rm "$work/other"
done
runs "says that it was computed" 0 "model.resampler.pos_embed' is not in the files: computed" train --model "$work/lacking" "${flags[@]}" "${lora[@]}" --out "$work/lacking1"
same "gives the same adapter" "$work/lora1/adapter/adapter_model.safetensors" "$work/lacking1/adapter/adapter_model.safetensors"
runs "which merges into it" 0 'replaced' merge "$work/lacking" "$work/lora1/adapter" "$work/lackmerged"
loss "and says the same" --model "$work/lackmerged"
check "but for rounding" near "$loss" "$adapted" 1e-5
check "other tensors are not computed" without_tensor "$work/lacking/model.safetensors" model.resampler.query
runs "but named" 3 "'model.resampler.query': missing" eval --model "$work/lacking" --data "$folder/one.json"

sed 's/"depth": 4/"depth": 3/' "$m/config.json" >"$work/shallow.json"
loss "a last block that is never run" --model "$m" --config "$work/shallow.json"
rm -rf "$work/damaged"
cp -r "$m" "$work/damaged"
cp "$work/shallow.json" "$work/damaged/config.json"
runs "may lie in the files" 0 'sound' verify "$work/damaged"
sed 's/"img_size": 56/"img_size": 70/' "$m/config.json" >"$work/larger.json"
runs "a table of positions of another size" 3 '\[1, 17, 64\].*4 x 4 places.*vision_config.img_size is 56' eval --model "$m" --config "$work/larger.json" --data "$folder/one.json"
runs "another model's config" 3 'those of CogVLM|tensors of OmniLMM|missing' eval --model "$m" --config "$llama/tiny_llama/hf/config.json" --data "$folder/one.json"

# ---- the recordings ----
for single in "$golden"/*/single.safetensors; do
    [ -e "$single" ] || continue
    g=${single%/*}
    runs "${g##*/}: greedy tokens" 0 '"tokens":\[' generate --model "$g" --data "$single" --greedy --max-new 8 --json
    header=$(($(od -An -tu8 -N8 "$single")))
    at=$(head -c $((8 + header)) "$single" | grep -aoE '"greedy_tokens": *\{[^}]*' | grep -oE 'data_offsets": *\[[0-9]+' | grep -oE '[0-9]+$')
    want=$(od -An -v -t d8 -w64 -j $((8 + header + at)) -N 64 "$single" | tr -s ' ' , | sed 's/^,//')
    check "${g##*/}: as recorded" grep -q "\"tokens\":\[$want\]" "$work/stdout"
done
check "there are recordings" test -n "${want:-}" -o -z "${SHEAF_GOLDEN:-}"
finish
