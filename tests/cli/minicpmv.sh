#!/usr/bin/env bash
# MiniCPM-V through the command: the three small models that init makes, placed and trained on several
# ranks, the tower's last block in the files or not, and folders that are not what they say.
. "$(dirname "$0")/lib.sh"

old=$SHEAF_SOURCE_ROOT/tests/data/minicpmv/v2_5
row=$old/one_row.safetensors
tokens() { # tokens ARGUMENT...: of an answer to the recorded row
    timeout 60 "$sheaf" generate --data "$row" --max-new 5 --greedy --json "$@" 2>/dev/null |
        sed -n 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/p'
}

one=$(tokens --model "$old")
check "an answer has five tokens" test "$(tr -cd , <<<"$one" | wc -c)" = 4
for how in "--tp 2" "--tp 3" "--place 0-0 --tp 2"; do
    # shellcheck disable=SC2086
    check "the same tokens with $how" test "$(tokens --model "$old" $how)" = "$one"
done

for name in minicpmv-tiny minicpmv-2.5-tiny minicpmv-2.0-tiny; do
    runs "init makes $name" 0 "$name: " init "$name" "$work/$name"
    runs "which is sound" 0 'sound' verify "$work/$name"
done
printf '{"messages": [%s, %s, %s, %s]}\n' '{"role": "user", "content": "a"}' '{"role": "assistant", "content": "b"}' \
    '{"role": "user", "content": "c"}' '{"role": "assistant", "content": "d", "weight": 0}' >"$work/unweighted.jsonl"
runs "a last answer of weight 0 teaches nothing" 3 'messages.3..weight.*1: with --loss-on last nothing else is learned +found: +0' train "$work/minicpmv-tiny" --data "$work/unweighted.jsonl" --loss-on last --steps 1 --out "$work/unweighted"
for how in "--tp 2" "--place 2" "--place 0-0,1-3 --tp 2"; do
    # shellcheck disable=SC2086
    check "the same tokens of more layers with $how" test \
        "$(timeout 60 "$sheaf" generate --model "$work/minicpmv-tiny" --tokens 3,4,5 --max-new 6 --greedy --json $how 2>/dev/null)" = \
        "$(timeout 60 "$sheaf" generate --model "$work/minicpmv-tiny" --tokens 3,4,5 --max-new 6 --greedy --json 2>/dev/null)"
done

train() { # train OUT ARGUMENT...
    "$sheaf" train --model "$old" --data "$row" --out "$work/$1" --steps 2 --lr 1e-2 "${@:2}" >"$work/log" 2>&1 || cat "$work/log"
}
for ranks in 1 3; do
    train "lora$ranks" --method lora --modules-to-save embed_tokens,resampler,vpm --tp "$ranks"
    train "full$ranks" --method full --tp "$ranks"
done
check "adapters with saved modules are the same bytes" cmp "$work/lora1/adapter/adapter_model.safetensors" "$work/lora3/adapter/adapter_model.safetensors"
check "so are models trained in full" cmp "$work/full1/model/model.safetensors" "$work/full3/model/model.safetensors"
check "factors are upstream's: not in the tower" bash -c '! grep -a -o "vpm[a-z0-9_.]*lora_A" "$1"' . "$work/lora1/adapter/adapter_model.safetensors"
runs "the adapter merges" 0 'replaced' merge "$old" "$work/lora1/adapter" "$work/merged"
loss() { # loss ARGUMENT...
    "$sheaf" eval --data "$row" --json "$@" 2>/dev/null | sed -n 's/.*"loss":\([0-9]*\.[0-9]\{4\}\).*/\1/p'
}
check "what is merged computes what base and adapter do, but for its bfloat16" awk -v a="$(loss --model "$work/merged")" -v b="$(loss --model "$old" --adapter "$work/lora1/adapter")" \
    'BEGIN { exit !(a > 1 && a - b < 0.002 && b - a < 0.002) }'
check "which is not the base" test "$(loss --model "$work/merged")" != "$(loss --model "$old")"

# A plan by --images is that of data with such pictures, which are seen whole, and in slices. Data tell also which rows have
# labels, so their last layer may have fewer operations, and their peak be lower.
picture=$SHEAF_SOURCE_ROOT/tests/data/images/preprocess_img0.png
planned() { # planned OUT ARGUMENT...: bytes, positions and pictures; all of it in OUT
    local out=$1
    shift
    "$sheaf" plan --config "$work/small.json" --micro-batch 2 --json "$@" 2>/dev/null >"$out"
    grep -oE '"(weights|inputs|seq|images)":[0-9.]+' "$out" | sort
}
largest() { grep -oE '"largest_rank":[0-9]+' "$1" | cut -d: -f2; }
for _ in 1 2; do printf '{"images": ["%s", "%s"], "prompt": "What is this?", "completion": "A tree."}\n' "$picture" "$picture"; done >"$work/planned.jsonl"
for name in minicpmv-tiny:28:12 minicpmv-2.0-tiny:28:12 minicpmv-tiny:84:4; do
    sed "s/\"scale_resolution\": 84/\"scale_resolution\": $(cut -d: -f2 <<<"$name")/" "$work/${name%%:*}/config.json" >"$work/small.json"
    want=$(planned "$work/by_data" --data "$work/planned.jsonl")
    check "$name images" grep -q "\"images\":${name##*:}" <<<"$want"
    check "are those of --images" test "$want" = "$(planned "$work/by_number" --images 2:61x37 --seq "$(grep -oE '"seq":[0-9]+' <<<"$want" | cut -d: -f2)")"
    check "and takes as much memory at least" test "$(largest "$work/by_number")" -ge "$(largest "$work/by_data")"
    check "with as many operations, but of the last layer" awk -v a="$(json_number "$work/by_data" flops_per_step)" -v b="$(json_number "$work/by_number" flops_per_step)" \
        'BEGIN { exit !(a > b / 2 && a <= b) }'
done
for bad in "" x 2x 1001 1:0x4 1:9; do
    runs "refused: --images '$bad'" 2 'images.*how many pictures.*found:.*try: +--images 2' plan --model "$work/minicpmv-tiny" --images "$bad"
done
runs "no pictures" 0 '"images":0,' plan --model "$work/minicpmv-tiny" --images 0 --json
runs "more than there is room for" 2 'seq.*at least 49: 3 images take 16 tokens each.*found: +20' plan --model "$work/minicpmv-tiny" --images 3 --seq 20
runs "in slices" 0 '1344x896 is seen whole and in slices: 9 images' plan --model "$work/minicpmv-tiny" --images 2:1344x896

# NEFTune's noise is on the table's rows, before scale_emb: a large factor does not drown it.
sed -i 's/"scale_emb": 12/"scale_emb": 1000000/' "$work/minicpmv-2.0-tiny/config.json"
echo '{"prompt": "What is this?", "completion": "A tree."}' >"$work/text.jsonl"
noisy() { # noisy ALPHA: loss of the first step
    "$sheaf" train --model "$work/minicpmv-2.0-tiny" --data "$work/text.jsonl" --out "$work/noisy$1" --steps 1 --neftune-alpha "$1" --json 2>/dev/null |
        sed -n 's/.*"step":1,.*"loss":\([0-9.]*\).*/\1/p'
}
check "noise is scaled as the embedding is" awk -v a="$(noisy 0)" -v b="$(noisy 20)" \
    'BEGIN { exit !(a > 1 && b > 1 && (a - b > 0.01 || b - a > 0.01)) }'
sed -i 's/"scale_emb": 1000000/"scale_emb": 12/' "$work/minicpmv-2.0-tiny/config.json"

# Tokenizers as they lie in the published folders: small ones, with marks where upstream's have them. Ids of marks are the
# tokenizer's, by name; the config's own are for models without one.
published() { # published NAME SPEC CLASS FILE MARK...: a folder $work/NAME, whose further tokens are MARKs, behind the file's own
    local name=$1 spec=$2 class=$3 file=$4 id=420 list="" mark
    shift 4
    [ "$file" != bpe.model ] || id=340
    for mark in "$@"; do
        list="$list,\"$((id++))\": {\"content\": \"$mark\", \"lstrip\": false, \"normalized\": false, \"rstrip\": false, \"single_word\": false, \"special\": true}"
    done
    sed 's/"sheaf_tokenizer": "bytes",//; s/"vocab_size": 266/"vocab_size": 480/; s/"\(im_start\|im_end\|unk\|slice_start\|slice_end\|im_id_start\|im_id_end\)_token": [0-9]*,\{0,1\}//g' "$work/$spec/config.json" >"$work/$name.json"
    "$sheaf" init "$work/$name.json" "$work/$name" --seed 4 >/dev/null 2>"$work/log" || cat "$work/log"
    cp "$SHEAF_SOURCE_ROOT/tests/data/tokenizers/$file" "$work/$name/tokenizer.${file##*.}"
    printf '{"tokenizer_class": "%s", "auto_map": {"AutoTokenizer": ["x.%s", null]}, "added_tokens_decoder": {%s}, "bos_token": "<s>", "eos_token": "</s>", "legacy": true}\n' "$class" "$class" "${list#,}" >"$work/$name/tokenizer_config.json"
}
cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$work/0.png"
printf '[{"id": "0", "image": "0.png", "conversations": [{"role": "user", "content": "<image>\\nWhat is that?"}, {"role": "assistant", "content": "one"}]}]\n' >"$work/talk.json"
marks=("<image>" "</image>" "<ref>" "</ref>" "<slice>" "</slice>")
published hub26 minicpmv-tiny MiniCPMVTokenizerFast qwen2.json "${marks[@]}" "<image_id>" "</image_id>" "<unk>" "<|im_start|>" "<|im_end|>"
published hub25 minicpmv-2.5-tiny MiniCPMVTokenizerFast llama3.json "${marks[@]}" "<unk>" "<|start_header_id|>" "<|end_header_id|>" "<|eot_id|>"
published hub20 minicpmv-2.0-tiny LlamaTokenizerWrapper bpe.model "${marks[@]}"
for name in hub26 hub25 hub20; do
    runs "$name: a conversation with a picture" 0 '"loss":' eval --model "$work/$name" --data "$work/talk.json" --json
    check "$name: whose mark is no special token that is spelled out" bash -c "! grep -q 'as text' '$work/stderr'"
    sed 's/one/<ref>one<\/ref>/' "$work/talk.json" >"$work/refs.json"
    runs "$name: others are, which is said" 0 "1 of 1 records write special tokens as text .'<ref>' in entry 1" eval --model "$work/$name" --data "$work/refs.json"
    runs "$name: of a question too" 0 "1 of 1 prompts write special tokens as text .'<ref>'" generate --model "$work/$name" --prompt "Where is <ref>it</ref>?" --max-new 2
    runs "$name: with --specials they are tokens" 0 '"tokens":' generate --model "$work/$name" --prompt "Where is <ref>it</ref>?" --max-new 2 --specials --json
    check "$name: and nothing is said" bash -c "! grep -q 'as text' '$work/stderr'"
    runs "$name: its answer" 0 '"tokens":' generate --model "$work/$name" --image "$work/0.png" --prompt "What?" --max-new 2 --greedy --json
    for mark in "<image>" "</image>" "<unk>" "<slice>"; do
        sed "s,\"$mark\",\"<other>\",g" "$work/$name/tokenizer_config.json" >"$work/changed.json"
        ! cmp -s "$work/changed.json" "$work/$name/tokenizer_config.json" || continue # of the vocabulary
        rm -rf "$work/lacks"
        cp -r "$work/$name" "$work/lacks"
        cp "$work/changed.json" "$work/lacks/tokenizer_config.json"
        runs "$name: without $mark" 3 "a tokenizer with the token $mark, below 480.*--tokenizer PATH" eval --model "$work/lacks" --data "$work/talk.json"
    done
done
echo 'What is <image> here?' >"$work/text"
ids() { "$sheaf" tokenize --tokenizer "$1" --specials "$work/text" 2>/dev/null; }
cp -r "$work/hub20" "$work/plain20"
sed -i 's/LlamaTokenizerWrapper/LlamaTokenizer/g' "$work/plain20/tokenizer_config.json"
check "hub20: upstream's class is a LlamaTokenizer: $(ids "$work/hub20")" [ "$(ids "$work/hub20")" = "$(ids "$work/plain20")" ]
check "hub20: its mark is a token" bash -c '[[ "$1" == *", 340, "* ]]' . "$(ids "$work/hub20")"

# The tower's last block: dropped, and yet in the files.
mkdir "$work/dropped"
sed 's/"drop_vision_last_layer": false/"drop_vision_last_layer": true/' "$work/minicpmv-tiny/config.json" >"$work/dropped/config.json"
cp "$work/minicpmv-tiny/model.safetensors" "$work/dropped"
runs "a dropped block may be in the files" 0 'sound' verify "$work/dropped"
runs "and does not stop an answer" 0 '"tokens":' generate --model "$work/dropped" --tokens 3,4,5 --max-new 2 --greedy --json

# Folders that are not what they say.
mkdir "$work/other" "$work/int4"
cp "$work/minicpmv-2.0-tiny/config.json" "$work/other"
cp "$work/minicpmv-tiny/model.safetensors" "$work/other"
runs "weights of another version are named" 1 'tensors of MiniCPM-V 2.6' verify "$work/other"
runs "also where they are used" 3 'tensors of MiniCPM-V 2.0, as it says.*tensors of MiniCPM-V 2.6' generate --model "$work/other" --tokens 3 --max-new 1
sed 's/^{/{"quantization_config": {"quant_method": "hqq"},/' "$work/minicpmv-tiny/config.json" >"$work/int4/config.json"
LC_ALL=C sed 's/llm\.model\.layers\.0\.mlp\.up_proj\.weight/llm.model.layers.0.mlp.up_projjjj.W_q/' "$work/minicpmv-tiny/model.safetensors" >"$work/int4/model.safetensors"
runs "of a folder by a quantizer that is not read the other is named" 3 'openbmb/MiniCPM-V-2_6' generate --model "$work/int4" --tokens 3 --max-new 1
# changed NAME PATTERN SPEC FILE SCRIPT: a copy of a model one of whose files sed changes, the weights without changing a length.
changed() {
    rm -rf "$work/changed"
    cp -r "$work/$3" "$work/changed"
    LC_ALL=C sed -i "$5" "$work/changed/$4"
    runs "$1" 3 "$2" generate --model "$work/changed" --tokens 3 --max-new 1
}
changed "without a config that says it, by its tensors" 'quantized weights \(GPTQ or AWQ\).*MiniCPM-V 2.6 in 16 or 32 bits' minicpmv-tiny \
    model.safetensors 's/llm\.model\.layers\.0\.mlp\.up_proj\.weight/llm.model.layers.0.mlp.up_pro.qweight/'
changed "a last block that is not there" 'vpm.encoder.layers.2.*: missing.*drop_vision_last_layer": true' minicpmv-tiny \
    model.safetensors 's/vpm\.encoder\.layers\.2\./vpm.encoder.layers.7./g'
changed "not another block" 'vpm.encoder.layers.1.*: missing.*complete copy' minicpmv-tiny \
    model.safetensors 's/vpm\.encoder\.layers\.1\./vpm.encoder.layers.7./g'
changed "a table of positions of another size" 'found: +\[100, 64\].*10 x 10 places.*vision_config.image_size is 140' minicpmv-tiny \
    config.json 's/"image_size": 140/"image_size": 154/'
changed "of 2.0 too" 'found: +\[1, 36, 64\].*6 x 6 places.*vision_config.img_size is 84' minicpmv-2.0-tiny config.json 's/"img_size": 84/"img_size": 56/'

# Of 400 pixels' side a picture has 28 x 28 patches, the tables 10 x 10 and 6 x 6 places.
for name in minicpmv-tiny minicpmv-2.0-tiny; do
    asked=(--image "$SHEAF_SOURCE_ROOT/tests/data/images/420.jpg" --prompt what --max-new 4 --greedy --json)
    small=$("$sheaf" generate --model "$work/$name" "${asked[@]}" 2>/dev/null)
    sed -i 's/"scale_resolution": 84/"scale_resolution": 400/' "$work/$name/config.json"
    large=$("$sheaf" generate --model "$work/$name" "${asked[@]}" 2>/dev/null)
    check "$name: a grid beyond the table" test -n "$large" -a "$large" != "$small"
    check "the same on three ranks" test "$("$sheaf" generate --model "$work/$name" "${asked[@]}" --tp 3 2>/dev/null)" = "$large"
done
finish
