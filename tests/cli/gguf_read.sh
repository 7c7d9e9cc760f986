#!/usr/bin/env bash
# GGUF files as models: info, verify, diff, convert, train, eval and generate; what is wrong with them.
. "$(dirname "$0")/lib.sh"

gguf=${SHEAF_RECORDINGS:-$SHEAF_SOURCE_ROOT/tests/data}/gguf
model=$gguf/tiny_qwen2/qwen2-q8_0.gguf

# ---- what is there ----

runs "a file is a model" 0 'dialect +gguf.*model +qwen2.*tensors +14.*bytes +43856.*dtypes +F32 \(6\), q8_0 \(8\)' info "$model"
runs "is sound" 0 'tensors +14 with 40480 elements.*sound' verify "$model"
runs "in Hugging Face's form" 0 'gguf to hf, 14 tensors' convert "$model" "$work/hf" --to hf
runs "it is the same model" 0 'equal: 14 tensors, all bytes agree' diff "$model" "$work/hf"
mkdir "$work/folder"
cp "$model" "$work/folder"
runs "also by its folder" 0 'equal' diff "$work/folder" "$work/hf"
check "with a tokenizer" test -s "$work/hf/tokenizer.json"
check "and a chat template" grep -q chat_template "$work/hf/tokenizer_config.json"
for text in 'Hello, world!  two  spaces' $'K\xc3\xb6ln \xe6\x97\xa5\xe6\x9c\xac 42'; do
    printf '%s' "$text" >"$work/text"
    runs "ids of '$text'" 0 . tokenize --tokenizer "$model" "$work/text"
    cp "$work/stdout" "$work/ids"
    runs "are those of the folder" 0 . tokenize --tokenizer "$work/hf" "$work/text"
    same "all of them" "$work/ids" "$work/stdout"
done

# ---- as a base ----

generated() {
    runs "$1" 0 . generate --prompt 'the cat' --max-new 6 --greedy --json "${@:2}"
    grep -oE '"tokens":\[[0-9,]+\]' "$work/stdout" >"$work/tokens" || fail "$1 in tokens"
}
generated "it answers" --model "$model"
cp "$work/tokens" "$work/first"
generated "at three ranks" --model "$model" --tp 3
same "with the same tokens" "$work/tokens" "$work/first"
generated "as its folder" --model "$work/hf"
same "with the same ones" "$work/tokens" "$work/first"
printf '{"text": "the cat sat on the mat"}\n{"text": "hello, world"}\n' >"$work/data.jsonl"
train=(train --data "$work/data.jsonl" --steps 2 --lora-rank 2 --micro-batch 1 --dtype float32 --threads 1)
runs "it is trained on" 0 . "${train[@]}" --model "$model" --out "$work/run" --tp 2
runs "as its folder is" 0 . "${train[@]}" --model "$work/hf" --out "$work/run2"
same "to the same adapter" "$work/run/adapter/adapter_model.safetensors" "$work/run2/adapter/adapter_model.safetensors"
runs "which it is evaluated with" 0 '"loss"' eval --model "$model" --adapter "$work/run/adapter" --data "$work/data.jsonl" --json
cp "$work/stdout" "$work/loss"
runs "also that of the folder" 0 . eval --model "$model" --adapter "$work/run2/adapter" --data "$work/data.jsonl" --json
same "with the same loss" "$work/stdout" "$work/loss"
runs "and merged with" 0 . merge "$model" "$work/run/adapter" "$work/merged"
runs "into a model" 0 'sound' verify "$work/merged"
runs "plan says what it takes" 0 '8 of 14 tensors are stored in blocks \(q8_0 8\)' plan --model "$model" --lora-rank 2 --seq 16

# ---- codes in memory ----

# Groups of 16 and 32 in rows of 256 and 1280, which eight slices cut where no block ends; a head of its own.
sed -e 's/"hidden_size": 512/"hidden_size": 256/; s/"intermediate_size": 1408/"intermediate_size": 1280/; s/"num_hidden_layers": 4/"num_hidden_layers": 2/' \
    "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/mini.json"
runs "a model" 0 . init "$work/mini.json" "$work/mini" --seed 3
runs "in blocks of 256" 0 . convert "$work/mini" "$work/mini.gguf" --to gguf --dtype q4_k_m
runs "of two types" 0 'dtypes +F32 \(5\), q4_K \(1.\), q6_K \(.\)' info "$work/mini.gguf"
runs "and its numbers" 0 . convert "$work/mini.gguf" "$work/numbers" --to hf
awk 'BEGIN { for (i = 0; i < 3; i++) { s = ""; for (j = 0; j < 70 + 50 * i; j++) s = s sprintf("%c", 97 + (i * 7 + j * j) % 26); printf "{\"text\": \"%s\"}\n", s } }' >"$work/letters.jsonl"
for flags in "--dtype float32 --tp 3" "--dtype bfloat16 --sums pairs" "--dtype bfloat16 --sums tiles --tp 5" "--dtype float16 --tp 2"; do
    # shellcheck disable=SC2086
    for of in mini.gguf numbers; do
        rm -rf "$work/run"
        runs "$of is trained on, $flags" 0 . train --model "$work/$of" --data "$work/letters.jsonl" --out "$work/run" --steps 2 --micro-batch 2 \
            --lora-targets all-linear --lora-rank 2 --threads 3 $flags
        cp "$work/run/adapter/adapter_model.safetensors" "$work/$of.adapter"
        runs "and answers" 0 . generate --model "$work/$of" --prompt 'the cat' --max-new 9 --greedy --json $flags
        cp "$work/stdout" "$work/$of.answer"
    done
    same "to one adapter" "$work/mini.gguf.adapter" "$work/numbers.adapter"
    same "with the same tokens" "$work/mini.gguf.answer" "$work/numbers.answer"
done
quarter() { [ "$(planned "$work/mini.gguf")" -lt $(($(planned "$work/numbers") / 3)) ]; }
planned() { "$sheaf" plan --model "$1" --lora-rank 2 --seq 16 --json 2>/dev/null | grep -oE '"weights":[0-9]+' | head -n 1 | cut -d: -f2; }
check "and a third of the memory" quarter

# ---- there and back ----

# Made models differ from what llama.cpp has in its code for an architecture; then it is made so.
declare -A as_llama_cpp=(
    [mixtral]='s/"sliding_window":9/"sliding_window":null/'
    [qwen3]='s/"layer_types":\[[^]]*\],//; s/_window":true/_window":false/'
    [gemma2]='s/"query_pre_attn_scalar":5/"query_pre_attn_scalar":4/'
    [gemma3]='s/"full_attention",//; s/"layer_types":\[/&"sliding_attention",/; s/pattern":3/pattern":6/g; s/_scalar":11/_scalar":6/'
    [smollm3]='s/"layer_types":\[[^]]*\],//; s/"no_rope_layers":\[[^]]*\]/"no_rope_layers":[1,1,1,0]/; s/_window":true/_window":false/'
)
logits() { runs "$1" 0 . eval --model "$2" --data "$3" --dtype float32 --save-logits "$4"; }

# Models of all families there are; the writer stores what has one axis in float32.
for dir in "$llama"/tiny_llama "$SHEAF_SOURCE_ROOT"/tests/data/families/*; do
    [ -f "$dir/hf/config.json" ] || continue
    name=$(basename "$dir")
    rm -rf "$work/made"
    cp -r "$dir/hf" "$work/made"
    chmod -R u+w "$work/made"
    sed -i "${as_llama_cpp[$name]:-}" "$work/made/config.json"
    for dtype in float32 bfloat16 float16; do
            rm -rf "$work"/{source,there.gguf,back,a.safetensors,b.safetensors}
        "$sheaf" convert "$work/made" "$work/source" --to hf --dtype $dtype >"$work/stdout" 2>&1
        runs "$name in $dtype" 0 . convert "$work/source" "$work/there.gguf" --to gguf
        runs "is sound" 0 'sound' verify "$work/there.gguf"
        runs "and comes back" 0 . convert "$work/there.gguf" "$work/back" --to hf
        same "with its bytes" "$work/source/model.safetensors" "$work/back/model.safetensors"
        [ -f "$dir/fwd_inputs.safetensors" ] || continue
        logits "is evaluated" "$work/source" "$dir/fwd_inputs.safetensors" "$work/a.safetensors"
        logits "as the file is" "$work/there.gguf" "$dir/fwd_inputs.safetensors" "$work/b.safetensors"
        same "with the same logits" "$work/a.safetensors" "$work/b.safetensors"
    done
done

# By ChatGLM's names and keys, in which q, k and v are one tensor; the text model of GLM-4V.
runs "GLM-4V" 0 . init glm4v-tiny "$work/glm4v"
runs "its text model" 0 . convert "$work/glm4v" "$work/chatglm.gguf" --to gguf
runs "is sound" 0 'model +chatglm.*sound' verify "$work/chatglm.gguf"
for of in glm4v chatglm.gguf; do
    runs "$of answers" 0 . generate --model "$work/$of" --tokens 5,6,7 --max-new 6 --greedy --json
    grep -oE '"tokens":\[[0-9,]+\]' "$work/stdout" >"$work/$of.answer" || fail "$of in tokens"
done
same "with the same tokens" "$work/glm4v.answer" "$work/chatglm.gguf.answer"

# ---- what is wrong ----

for file in "$gguf"/edge/{cut_in_kv,duplicate_tensor,type_999,version_1,string_length_huge}.gguf; do
    runs "$(basename "$file") is refused" '1|3' 'expected' verify "$file"
done
runs "a file without a model's keys" 3 "a whole number; there is no such key.*key 'llama.embedding_length'" convert "$gguf/edge/good.gguf" "$work/x" --to hf
absent "nothing is left of it" "$work/x"
head -c 20000 "$model" >"$work/short.gguf"
runs "half of a file" 1 'damaged.*data with its padding up to byte 24704.*cut short: a file of 20000 bytes' verify "$work/short.gguf"
runs "is no base" 3 'damaged.*cut short' generate --model "$work/short.gguf" --prompt a
cp "$model" "$work/bad.gguf"
chmod u+w "$work/bad.gguf"
python3 - "$work/bad.gguf" <<'PYTHON'
import struct, sys
with open(sys.argv[1], "r+b") as file: # of two tensors the type: behind their name, two axes and their lengths
    bytes = file.read()
    for name in (b"blk.0.attn_k.weight", b"blk.0.ffn_up.weight"):
        at = bytes.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        file.seek(at + 4 + 8 * struct.unpack_from("<I", bytes, at)[0])
        file.write(struct.pack("<I", 999))
PYTHON
runs "two bad tensors are two defects" 1 "blk.0.attn_k.weight.*type.*blk.0.ffn_up.weight.*type.*not sound: 2 defects" verify "$work/bad.gguf"
cp "$model" "$work/folder/another.gguf"
for command in "verify" "info" "generate --prompt a --model" "tokenize $work/text --tokenizer"; do
    # shellcheck disable=SC2086
    runs "of two files none is taken: $command" 2 'one GGUF file.*2: another.gguf, qwen2-q8_0.gguf.*--model .*/folder/another.gguf' $command "$work/folder"
done
cp "$model" "$work/folder/mmproj-x.gguf"
rm "$work/folder/another.gguf"
runs "a projector is none" 0 'equal' diff "$work/folder" "$work/hf"
printf 'GGU' >"$work/none.gguf"
runs "three bytes" 1 'damaged' verify "$work/none.gguf"
finish
