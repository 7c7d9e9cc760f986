#!/usr/bin/env bash
# A CogVLM2 that sheaf made, as a user takes it: records with a picture and without; the same bytes at any number of ranks,
# on stages; adapters, merging, other files, and configs of another generation.
. "$(dirname "$0")/lib.sh"

check "pictures" "$SHEAF_BUILD_ROOT/examples/captcha" night "$work/pictures" 4 4
pictures=("$work"/pictures/train/*.png)
m=$work/model
runs "init" 0 'parameters' init cogvlm2-tiny "$m" --seed 3
runs "is sound" 0 'model +cogvlm2 .*sound' verify "$m"
cat >"$work/all.jsonl" <<END
{"image": "${pictures[0]}", "prompt": "what?", "completion": "abc"}
{"prompt": "and without?", "completion": "none"}
{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "${pictures[1]}"}}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
END
head -n 1 "$work/all.jsonl" >"$work/one.jsonl"
sed -n 2p "$work/all.jsonl" >"$work/none.jsonl"

loss_anywhere "$m" "$work/all.jsonl"
runs "a row without a picture alone" 0 '"loss":' eval --model "$m" --data "$work/none.jsonl" --json

# ---- training ----
flags=(--steps 3 --micro-batch 3 --lr 1e-2 --threads 1 --data "$work/all.jsonl")
for tp in 1 3; do
    runs "LoRA on $tp" 0 'vision_expert_query_key_value' train --model "$m" "${flags[@]}" --lora-rank 4 --lora-dropout 0.1 --tp $tp --out "$work/lora$tp"
    runs "in full on $tp" 0 . train --model "$m" "${flags[@]}" --method full --tp $tp --out "$work/full$tp"
done
same "the same adapter" "$work/lora1/adapter" "$work/lora3/adapter"
same "the same model" "$work/full1/model" "$work/full3/model"
check "one pair of factors for a fused layer, by the hub's names" bash -c '[ "$(grep -a -o "base_model.model.model.layers.[0-9].self_attn.vision_expert_query_key_value.lora_[AB].weight" "$1" | sort -u | wc -l)" = 8 ]' . "$work/lora1/adapter/adapter_model.safetensors"
check "and no others" bash -c '! grep -a -q "language_expert" "$1"' . "$work/lora1/adapter/adapter_model.safetensors"
runs "which is sound" 0 'model +cogvlm2 .*sound' verify "$work/full1/model"
learned_and_merged "$m"

# ---- asking ----
answer_anywhere "$m" "${pictures[0]}"
runs "without a picture" 0 '"tokens"' generate --model "$m" --prompt what --max-new 2 --greedy --json
runs "two pictures" 3 'images of a prompt.*one: cogvlm2 reads no more' generate --model "$m" --prompt what --image "${pictures[0]}" --image "${pictures[1]}" --max-new 2

# ---- other files ----
runs "in shards" 0 . convert "$m" "$work/shards" --to hf --shard-mb 1
loss "from shards" --model "$work/shards"
check "the same loss" test "$loss" = "$all"
check "with the frequencies of each layer" bash -c 'grep -q "layers.3.self_attn.rotary_emb.inv_freq" "$1"' . "$work/shards/model.safetensors.index.json"
runs "in bfloat16" 0 . convert "$m" "$work/half" --to hf --dtype bfloat16
runs "quantised" 0 . convert "$m" "$work/codes" --to hf --quantize nf4
loss "on codes" --model "$work/codes"
codes=$loss
loss "on three ranks" --model "$work/codes" --tp 3
check "the same loss" test "$loss" = "$codes"

# changed NAME CODE PATTERN SED: the model with another config.
changed() {
    rm -rf "$work/changed"
    cp -r "$m" "$work/changed"
    sed -i "$4" "$work/changed/config.json"
    runs "$1" "$2" "$3" eval --model "$work/changed" --data "$work/one.jsonl"
}
changed "a grid that is odd" 3 'image_size.*a multiple of 28.*42' 's/"image_size": 56/"image_size": 42/'
changed "a config of other sizes" 3 'vision_expert_query_key_value' 's/"num_multi_query_heads": 2/"num_multi_query_heads": 4/'
LC_ALL=C sed 's/self_attn\.rotary_emb\.inv_freq/self_attn.rotary_emb.inv_fred/g' "$m/model.safetensors" >"$work/changed/model.safetensors"
cp "$m/config.json" "$work/changed/config.json"
runs "a tensor that it does not have" 3 'inv_fred' eval --model "$work/changed" --data "$work/one.jsonl"
runs "a picture that is not there" 3 'missing.png' generate --model "$m" --prompt what --image "$work/missing.png" --max-new 1
finish
