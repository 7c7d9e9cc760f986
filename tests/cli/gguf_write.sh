#!/usr/bin/env bash
# sheaf convert --to gguf, gguf-lora and gguf-mmproj: models, merged runs, adapters, towers; what llama.cpp cannot have is refused.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
families=$SHEAF_SOURCE_ROOT/tests/data/families
here=$SHEAF_SOURCE_ROOT/tests/data/gguf

# what is stored comes back
for name in llama/tiny_llama llama/tiny_llama3rope llama/tiny_mistral llama/tiny_qwen2; do
    runs "$name to GGUF" 0 'hf to gguf' convert "$golden/$name/hf" "$work/one.gguf" --to gguf
    runs "$name and back" 0 'gguf to hf' convert "$work/one.gguf" "$work/back" --to hf
    "$sheaf" diff "$golden/$name/hf" "$work/back" --json >"$work/diff" 2>&1
    check "$name has every number it had" grep -q '"different": *0' "$work/diff"
    rm -r "$work/one.gguf" "$work/back"
done
for name in mixtral olmo2 qwen3; do
    runs "$name to GGUF" 0 'hf to gguf' convert "$families/$name/hf" "$work/one.gguf" --to gguf
    runs "$name and back" 0 'gguf to hf' convert "$work/one.gguf" "$work/back" --to hf
    "$sheaf" diff "$families/$name/hf" "$work/back" --json >"$work/diff" 2>&1
    check "$name has every number it had" grep -q '"different": *0' "$work/diff"
    rm -r "$work/one.gguf" "$work/back"
done

# with its tokenizer, of fewer tokens than the table has rows
runs "a model with a tokenizer" 0 . convert "$here/tiny_qwen2/hf" "$work/one.gguf" --to gguf
runs "and back" 0 . convert "$work/one.gguf" "$work/again/hf" --to hf
runs "and there" 0 . convert "$work/again/hf" "$work/two.gguf" --to gguf
same "is the same file" "$work/one.gguf" "$work/two.gguf"
rm -r "$work/one.gguf" "$work/two.gguf" "$work/again"

# what encoding puts around a text is what the file says, whatever tokenizer_config.json and the name of the pattern say
around() { # around NAME BOS EOS STEPS CONFIG: steps of tokenizer.json, keys of tokenizer_config.json
    local name=$1 model=$work/around/hf
    rm -rf "$work/around"
    mkdir -p "$model"
    cp "$here/tiny_qwen2/hf"/{config.json,model.safetensors} "$model"
    sed 's/^  "post_processor": null,/  "post_processor": '"$4"',/' "$here/tiny_qwen2/hf/tokenizer.json" >"$model/tokenizer.json"
    printf '%s' "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"pad_token\": \"<|endoftext|>\", $5}" >"$model/tokenizer_config.json"
    runs "$name" 0 'hf to gguf' convert "$model" "$work/around/x.gguf" --to gguf
    check "$name: add_bos_token $2" has_flag add_bos_token "$2"
    check "$name: add_eos_token $3" has_flag add_eos_token "$3"
    runs "$name, and back" 0 . convert "$work/around/x.gguf" "$work/around/back" --to hf
    for tokenizer in hf x.gguf back; do
        printf 'hello world' | "$sheaf" tokenize --tokenizer "$work/around/$tokenizer" --specials --add-special - >"$work/ids-$tokenizer" 2>&1
    done
    same "$name: the ids of the file" "$work/ids-hf" "$work/ids-x.gguf"
    same "$name: and of the folder made of it" "$work/ids-hf" "$work/ids-back"
}
# a key's name, its type (7) and its value
has_flag() { od -An -v -tx1 "$work/around/x.gguf" | tr -d ' \n' | grep -q "$(printf 'tokenizer.ggml.%s' "$1" | od -An -v -tx1 | tr -d ' \n')07000000$2"; }
piece() { printf '{"SpecialToken":{"id":"%s","type_id":0}}' "$1"; }
text='{"Sequence":{"id":"A","type_id":0}}'
specials='"special_tokens":{"<|im_start|>":{"id":"<|im_start|>","ids":[1],"tokens":["<|im_start|>"]},"<|im_end|>":{"id":"<|im_end|>","ids":[2],"tokens":["<|im_end|>"]}}'
template() { printf '{"type":"TemplateProcessing","single":[%s],"pair":[],%s}' "$1" "$specials"; }
start=$(piece '<|im_start|>') end=$(piece '<|im_end|>')
named='"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"'
around "no steps, keys that say true" 00 00 null "$named, \"add_bos_token\": true, \"add_eos_token\": true"
around "bos by a template, a key that says false" 01 00 "$(template "$start,$text")" "$named, \"add_bos_token\": false"
around "bos and eos" 01 01 "$(template "$start,$text,$end")" "$named"
around "eos alone" 00 01 "$(template "$text,$end")" "$named"
around "one token for both, behind" 00 01 "$(template "$text,$end")" '"bos_token": "<|im_end|>", "eos_token": "<|im_end|>"'
around "a sequence of steps, as Llama 3 has" 01 00 '{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},'"$(template "$start,$text")"']}' "$named"
around "RoBERTa's" 01 01 '{"type":"RobertaProcessing","sep":["<|im_end|>",2],"cls":["<|im_start|>",1],"trim_offsets":true,"add_prefix_space":false}' "$named"
around "a first token that nothing names" 01 00 "$(template "$start,$text")" '"eos_token": "<|im_end|>"'
around "a last token that is not eos" 00 01 "$(template "$text,$end")" '"bos_token": null, "eos_token": "<|im_start|>"'
check "eos becomes the end of a turn" grep -q '"eos_token_id": *\[2, *1\]' "$work/around/back/config.json"
tiny=$work/around/hf
sed 's/^  "post_processor": null,/  "post_processor": '"$(template "$start,$end,$text")"',/' "$here/tiny_qwen2/hf/tokenizer.json" >"$tiny/tokenizer.json"
runs "two tokens before a text, which no key can say" 0 'the tokenizer puts 2 tokens other than bos before each text' convert "$tiny" "$work/around/two.gguf" --to gguf

# templates with names
printf '%s' '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": [{"name": "tool-use", "template": "T"}, {"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]}' >"$tiny/tokenizer_config.json"
cp "$here/tiny_qwen2/hf/tokenizer.json" "$tiny"
rm -rf "$work/around/back"
runs "named templates" 0 . convert "$tiny" "$work/around/named.gguf" --to gguf
runs "and back" 0 . convert "$work/around/named.gguf" "$work/around/back" --to hf
check "are all there" grep -qF '"chat_template":[{"name":"tool_use","template":"T"},{"name":"rag","template":"R"},{"name":"default","template":"D"}]' "$work/around/back/tokenizer_config.json"
mkdir "$tiny/additional_chat_templates"
printf 'F' >"$tiny/additional_chat_templates/rag.jinja"
printf 'J' >"$tiny/chat_template.jinja"
runs "in files of their own" 0 . convert "$tiny" "$work/around/files.gguf" --to gguf
check "they count before the config" grep -qF 'tokenizer.chat_template.rag' "$work/around/files.gguf"
check "which has others" sh -c "! grep -qF tokenizer.chat_template.tool_use '$work/around/files.gguf'"
runs "and are copied with a model" 0 . convert "$tiny" "$work/around/copy" --to hf
same "as they are" "$tiny/additional_chat_templates/rag.jinja" "$work/around/copy/additional_chat_templates/rag.jinja"

# bytes as tokens
runs "a model of bytes" 0 . init tiny-bytes "$work/bytes" --seed 3
runs "to GGUF" 0 . convert "$work/bytes" "$work/bytes.gguf" --to gguf
answer=(--prompt "hello é" --greedy --max-new 5 --threads 1 --json)
"$sheaf" generate "$work/bytes" "${answer[@]}" 2>/dev/null | grep -o '"tokens":\[[0-9,]*\]' >"$work/a"
"$sheaf" generate "$work/bytes.gguf" "${answer[@]}" 2>/dev/null | grep -o '"tokens":\[[0-9,]*\]' >"$work/b"
check "there is an answer" test -s "$work/a"
same "the same one" "$work/a" "$work/b"

# types, threads, and what lies beside
runs "blocks" 0 'weights quantised' convert "$here/tiny_qwen2/hf" "$work/q/q8.gguf" --to gguf --dtype q8_0 --modelfile
check "a Modelfile names the file" grep -qx 'FROM ./q8.gguf' "$work/q/Modelfile"
check "and what ends an answer" grep -qxF 'PARAMETER stop "<|im_end|>"' "$work/q/Modelfile"
runs "which is not replaced" 2 'Modelfile.*nothing there' convert "$here/tiny_qwen2/hf" "$work/q/other.gguf" --to gguf --modelfile
absent "and no other file is left" "$work/q/other.gguf"
runs "smaller blocks where rows are short" 0 . convert "$here/tiny_qwen2/hf" "$work/q/k1.gguf" --to gguf --dtype q4_k_m --threads 1
runs "on more threads" 0 . convert "$here/tiny_qwen2/hf" "$work/q/k3.gguf" --to gguf --dtype q4_k_m --threads 3
same "the same bytes" "$work/q/k1.gguf" "$work/q/k3.gguf"
sed 's/"hidden_size": 512/"hidden_size": 256/; s/"intermediate_size": 1408/"intermediate_size": 512/' "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/wide.json"
runs "a wider model" 0 . init "$work/wide.json" "$work/wide" --seed 5
for type in q5_k_m:17 q6_k:18; do
    runs "${type%:*}" 0 'weights quantised' convert "$work/wide" "$work/q/${type%:*}.gguf" --to gguf --dtype "${type%:*}"
    runs "is read" 0 "sound" verify "$work/q/${type%:*}.gguf"
    runs "its blocks" 0 "$([ $type = q6_k:18 ] && echo 'q6_K' || echo 'q5_K.*q6_K')" info "$work/q/${type%:*}.gguf" --tensors
    runs "and answers" 0 '"tokens":\[' generate "$work/q/${type%:*}.gguf" --tokens 3,4 --max-new 3 --json
done
check "fewer bits take less room" test "$(stat -c %s "$work/q/q5_k_m.gguf")" -lt "$(stat -c %s "$work/q/q6_k.gguf")"

# a run
runs "a run" 0 . train --model "$model" --data "$llama/tiny_llama/fwd_inputs.safetensors" --out "$work/run" --steps 1 --micro-batch 1 --lr 0.01
if [ -d "$work/run" ]; then
    runs "its adapter" 0 'to gguf-lora' convert "$work/run" "$work/lora.gguf" --to gguf-lora
    runs "and by the adapter's folder" 0 'to gguf-lora' convert "$work/run/adapter" "$work/lora2.gguf" --to gguf-lora --base "$model"
    runs "the model with it" 0 'warning: [^ ]*/run: no tokenizer' convert "$work/run" "$work/merged.gguf" --to gguf
    check "leaves nothing beside it" sh -c "! ls -d '$work'/merged.gguf.*"
    runs "as a merge of both" 0 . merge "$model" "$work/run/adapter" "$work/merged"
    runs "is" 0 . convert "$work/merged" "$work/merged2.gguf" --to gguf
    runs "the first as a folder" 0 . convert "$work/merged.gguf" "$work/m1" --to hf
    runs "and the second" 0 . convert "$work/merged2.gguf" "$work/m2" --to hf
    runs "the same model" 0 equal diff "$work/m1" "$work/m2"
    runs "an adapter is no model" 3 'LoRA factors only.*sheaf merge BASE .*run/adapter.*--to gguf-lora' convert "$work/run/adapter" "$work/x.gguf" --to gguf
    runs "a run with a module in full" 0 . train --model "$model" --data "$llama/tiny_llama/fwd_inputs.safetensors" --out "$work/saved" --modules-to-save lm_head --steps 1
    runs "has more than factors" 3 'trained in full.*try: +merge it: sheaf convert RUN DST --to gguf' convert "$work/saved" "$work/x.gguf" --to gguf-lora
fi

# a tower for pictures, beside its text model
runs "a model with a tower" 0 . init "$here/mmproj/config.json" "$work/seeing"
runs "its text model" 0 'to gguf, 15 tensors.*50 tensors are left out.*--to gguf-mmproj writes the tower' convert "$work/seeing" "$work/text.gguf" --to gguf
runs "its tower" 0 'to gguf-mmproj, 55 tensors' convert "$work/seeing" "$work/tower.gguf" --to gguf-mmproj
runs "is told from a model" 1 "found: +general.architecture: 'clip', a tower for pictures.*--mmproj" verify "$work/tower.gguf"
runs "and is none" 3 "'clip'" generate --model "$work/tower.gguf" --prompt a
header='{"input_ids":{"dtype":"I64","shape":[1,4],"data_offsets":[0,32]},"labels":{"dtype":"I64","shape":[1,4],"data_offsets":[32,64]}}'
{ printf "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"; for id in 1 9 a b 1 9 a b; do printf "\\x$id\\0\\0\\0\\0\\0\\0\\0"; done; } >"$work/row.safetensors"
runs "a run on it" 0 . train --model "$work/seeing" --data "$work/row.safetensors" --out "$work/seeing-run" --steps 1 --lr 0.1
[ ! -d "$work/seeing-run" ] || runs "has the tower too" 0 'to gguf-mmproj, 55 tensors' convert "$work/seeing-run" "$work/tower2.gguf" --to gguf-mmproj
[ ! -d "$work/seeing-run" ] || same "with its bytes, as factors lie in the text model" "$work/tower.gguf" "$work/tower2.gguf"
for n in 1 2 3 5 8 13 21 34; do
    rm -rf "$work"/t.gguf*
    SHEAF_FAULT=any:$n:kill "$faulty" convert "$work/seeing" "$work/t.gguf" --to gguf-mmproj >/dev/null 2>&1 </dev/null
    [ ! -e "$work/t.gguf" ] || cmp -s "$work/t.gguf" "$work/tower.gguf" || fail "killed at call $n" "half a tower"
done
pass "killed at eight places: whole or nothing"
sed -i 's/"max_slice_nums": *9/"max_slice_nums": 4/' "$work/seeing/config.json"
runs "slices that llama.cpp has otherwise" 0 'max_slice_nums 4: llama.cpp divides' convert "$work/seeing" "$work/tower4.gguf" --to gguf-mmproj
sed 's/"version": *2.6/"version": 2.5/' "$here/mmproj/config.json" >"$work/old.json"
runs "the oldest with such a tower" 0 . init "$work/old.json" "$work/old"
runs "has places that llama.cpp has otherwise" 0 'patches of a picture in one row' convert "$work/old" "$work/old.gguf" --to gguf-mmproj
runs "an older one" 0 . init minicpmv-2.0-tiny "$work/older"
runs "has a tower that it has not" 3 'MiniCPM-V 2.5, 2.6.*found: +a model of MiniCPM-V 2.0' convert "$work/older" "$work/x.gguf" --to gguf-mmproj
runs "a text model has none" 3 'found: +a model of Llama' convert "$model" "$work/x.gguf" --to gguf-mmproj
runs "a tower has no blocks" 2 'float16 or float32' convert "$work/seeing" "$work/x.gguf" --to gguf-mmproj --dtype q8_0
runs "and no Modelfile" 2 '--modelfile.*--to gguf' convert "$work/seeing" "$work/x.gguf" --to gguf-mmproj --modelfile

# whole or not there
( trap '' XFSZ; ulimit -f 200; "$sheaf" convert "$model" "$work/full.gguf" --to gguf >"$work/stdout" 2>"$work/stderr" </dev/null ); got=$?
check "no space: exit code 3" test $got -eq 3
check "and nothing is left" test -z "$(ls -d "$work"/full.gguf* 2>/dev/null)"
"$sheaf" convert "$model" "$work/want.gguf" --to gguf >/dev/null 2>&1
for n in 1 2 3 5 8 13 21 34 55 89; do
    rm -rf "$work"/k.gguf*
    SHEAF_FAULT=any:$n:kill "$faulty" convert "$model" "$work/k.gguf" --to gguf >/dev/null 2>&1 </dev/null
    [ ! -e "$work/k.gguf" ] || cmp -s "$work/k.gguf" "$work/want.gguf" || fail "killed at call $n" "half a file"
done
pass "killed at ten places: whole or nothing"
# each call fails once, until none does
for ((n = 1; n < 400; n++)); do
    rm -rf "$work/both"
    SHEAF_FAULT=any:$n:fail "$faulty" convert "$model" "$work/both/m.gguf" --to gguf --modelfile --threads 1 >/dev/null 2>&1 </dev/null && break
    [ ! -e "$work/both/m.gguf" ] && [ ! -e "$work/both/Modelfile" ] || cmp -s "$work/both/m.gguf" "$work/want.gguf" && [ -s "$work/both/Modelfile" ] && continue
    [ ! -e "$work/both/m.gguf" ] && [ ! -e "$work/both/Modelfile" ] || fail "a file and its Modelfile: call $n fails" "$(ls -la "$work/both")"
done
check "both or none, whichever call fails" test $n -gt 20 -a $n -lt 400
runs "the next one sweeps" 0 . convert "$model" "$work/k2.gguf" --to gguf

# refused
runs "blocks are GGUF's" 2 'q8_0.*--to gguf' convert "$model" "$work/x" --to hf --dtype q8_0
runs "and no others are" 2 '--quantize' convert "$model" "$work/x.gguf" --to gguf --quantize nf4
runs "blocks are a type" 2 '--quantize.*try: +blocks of llama.cpp are a type: --to gguf --dtype q8_0' convert "$model" "$work/x.gguf" --to gguf --quantize q8_0
runs "not both" 2 '--quantize' convert "$model" "$work/x.gguf" --to gguf --quantize nf4 --dtype q8_0
runs "a Modelfile is for GGUF" 2 '--modelfile.*gguf' convert "$model" "$work/x" --to hf --modelfile
runs "an adapter is no model" 2 'a PEFT adapter' convert "$model" "$work/x.gguf" --to gguf-lora
runs "an adapter needs its base" 2 '--base' convert "$here/tiny_llama/peft_adapter" "$work/x.gguf" --to gguf-lora
runs "factors have no blocks" 2 'float32, bfloat16 or float16' convert "$here/tiny_llama/peft_adapter" "$work/x.gguf" --to gguf-lora --config "$here/tiny_llama/hf/config.json" --dtype q8_0
cp -r "$here/tiny_llama/peft_adapter" "$work/zero"
chmod -R u+w "$work/zero"
sed -i 's/"lora_alpha": 6/"lora_alpha": 0/' "$work/zero/adapter_config.json"
runs "an adapter whose scale is 0" 3 'an alpha above 0' convert "$work/zero" "$work/x.gguf" --to gguf-lora --config "$here/tiny_llama/hf/config.json"
runs "layers that llama.cpp has otherwise" 3 'without rotary embedding' convert "$families/smollm3/hf" "$work/x.gguf" --to gguf
runs "a family that it has not" 3 'a text model that llama.cpp has' convert "$SHEAF_SOURCE_ROOT/tests/data/successors/qwen3_vl/hf" "$work/x.gguf" --to gguf
mkdir "$work/folder"
runs "DST is a file" 2 'name of a new file' convert "$model" "$work/folder" --to gguf
cp -r "$model" "$work/split"
cp "$here"/tiny_qwen2/hf/tokenizer* "$work/split"
chmod -R u+w "$work/split"
runs "a tokenizer whose way it knows" 0 . convert "$work/split" "$work/known.gguf" --to gguf
letters='[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]' small='[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]' first='[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?'
ends=' ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+'
sed "s#\"Regex\":.*#\"Regex\": \"$first$letters*$small+|$first$letters+$small*|\\\\\\\\p{N}|$ends\"#" "$here/tiny_qwen2/hf/tokenizer.json" >"$work/split/tokenizer.json"
runs "as Tekken's" 0 . convert "$work/split" "$work/tekken.gguf" --to gguf
check "by its name" grep -aq tekken "$work/tekken.gguf"
runs "and back" 0 . convert "$work/tekken.gguf" "$work/tekken" --to hf
check "with its pattern" grep -qF 'p{Lu}' "$work/tekken/tokenizer.json"
cp "$here/tiny_qwen2/hf/tokenizer.json" "$work/split"
sed -i 's/p{N}| ?/p{N}{1,2}| ?/' "$work/split/tokenizer.json"
runs "texts divided as llama.cpp cannot" 3 'texts divided as' convert "$work/split" "$work/x.gguf" --to gguf
absent "nothing is left of what was refused" "$work/x.gguf"

finish
