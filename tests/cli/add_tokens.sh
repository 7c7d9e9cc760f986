#!/usr/bin/env bash
# train --add-tokens: tokens that the model's tokenizer gets, with rows that are made, trained, saved
# with the adapter and merged, at every number of ranks with the same bytes.
. "$(dirname "$0")/lib.sh"

published=$SHEAF_SOURCE_ROOT/tests/data/gguf/tiny_qwen2/hf # a tokenizer of 273 tokens
model() { # model NAME ROWS TIED: two layers, 6 heads of which 3 have keys, a width that 8 slices do not share evenly
    sed "s/\"vocab_size\": 276/\"vocab_size\": $2/; s/\"tie_word_embeddings\": true/\"tie_word_embeddings\": $3/
         s/\"num_hidden_layers\": 1/\"num_hidden_layers\": 2/; s/\"layer_types\": \[/&\"full_attention\",/
         s/\"hidden_size\": 64/\"hidden_size\": 60/; s/\"num_attention_heads\": 4/\"num_attention_heads\": 6/
         s/\"num_key_value_heads\": 1/\"num_key_value_heads\": 3/; s/\"intermediate_size\": 64/\"intermediate_size\": 44/
         s/\"dtype\": \"bfloat16\"/\"dtype\": \"float32\"/" "$published/config.json" >"$work/config.json"
    runs "a model, $1" 0 "." init "$work/config.json" "$work/$1" --seed 7
    cp "$published"/tokenizer*.json "$work/$1"
}
model untied 273 false
model tied 275 true
printf '[ACT]\n<tool>\nhello world\n' >"$work/tokens.txt"
for i in 1 2 3 4 5 6 7; do
    echo '{"messages":[{"role":"user","content":"say [ACT] '$i'"},{"role":"assistant","content":"<tool>hello world<tool>[ACT]"}]}'
done >"$work/data.jsonl"
how=(--lora-rank 3 --micro-batch 2 --schedule constant)
adding=("${how[@]}" --add-tokens "$work/tokens.txt" --lr 2e-2)
learn() { # learn MODEL OUT FLAG...
    local base=$1 out=$2
    shift 2
    runs "$out" 0 "tables of 276 rows" train "$work/$base" "$work/data.jsonl" --out "$work/$out" "${adding[@]}" --steps "${steps:-60}" --save-every 20 "$@"
}
with() { "$sheaf" eval "$@" --data "$work/data.jsonl" --json 2>/dev/null; } # with MODEL...: its loss


for base in untied tied; do
    learn $base $base-1
    for flags in "--tp 2" "--tp 5 --threads 1"; do
        out=$base-${flags:5:1}
        # shellcheck disable=SC2086
        learn $base "$out" $flags
        same "the adapter is the same with $flags" "$work/$base-1/adapter" "$work/$out/adapter"
        same "and so are its checkpoints" "$work/$base-1/checkpoints" "$work/$out/checkpoints"
    done
    mkdir "$work/$base-again" && cp -r "$work/$base-1"/{settings,run.json,metrics.jsonl,checkpoints} "$work/$base-again"
    rm -r "$work/$base-again/checkpoints"/step-000000{40,60}
    runs "one that stopped goes on with three ranks" 0 'result' train --resume --out "$work/$base-again" --tp 3
    same "to the same adapter" "$work/$base-1/adapter" "$work/$base-again/adapter"

    with "$work/$base" --adapter "$work/$base-1/adapter" >"$work/loss"
    check "it has a loss" grep -q '"loss"' "$work/loss"
    for tp in 2 7; do
        with "$work/$base" --adapter "$work/$base-1/adapter" --tp $tp >"$work/other"
        same "which $tp ranks have, too" "$work/loss" "$work/other"
    done
    for of in "$base-1" "$base-1/checkpoints/step-00000060"; do
        with "$work/$of" >"$work/other"
        check "so has $of" near "$(json_number "$work/loss" loss)" "$(json_number "$work/other" loss)" 0
    done
    runs "an answer in new tokens" 0 '^ *<tool>hello world<tool>\[ACT\]' generate --model "$work/$base-1" --prompt 'say [ACT] 3' --greedy --max-new 8 --tp 2
    runs "of a step" 0 'hello world' generate --model "$work/$base-1/checkpoints/step-00000060" --prompt 'say [ACT] 3' --greedy --max-new 8
    runs "of base and adapter, where a template says how" 0 'hello world' generate --model "$work/$base" --adapter "$work/$base-1/adapter" --template stored --prompt 'say [ACT] 3' --greedy --max-new 8
    runs "merged" 0 'read back' merge "$work/$base" "$work/$base-1/adapter" "$work/$base-merged"
    with "$work/$base-merged" >"$work/other"
    check "the loss stays" near "$(json_number "$work/loss" loss)" "$(json_number "$work/other" loss)" 1e-5 # sums of float32 in another order
    check "with its rows in the config" grep -q '"vocab_size": 276' "$work/$base-merged/config.json"
    same "and the adapter's tokenizer" "$work/$base-1/adapter/tokenizer.json" "$work/$base-merged/tokenizer.json"
    for folder in "$base-merged" "$base-1/adapter" "$base-1"; do runs "$folder is sound" 0 'sound' verify "$work/$folder"; done
done
check "tied tables are saved under both names" grep -q 'lm_head\.weight' "$work/tied-1/adapter/adapter_model.safetensors"
runs "a step as an adapter" 0 . convert "$work/tied-1/checkpoints/step-00000060" "$work/step" --to peft
same "is the result, tokenizer included" "$work/step/tokenizer.json" "$work/tied-1/adapter/tokenizer.json"

runs "a copy of an adapter" 0 . convert "$work/tied-1/adapter" "$work/copy" --to peft
same "has its tokenizer, too" "$work/copy/tokenizer.json" "$work/tied-1/adapter/tokenizer.json"
runs "answers without a fingerprint of its base" 0 'carries no fingerprint.*tables of 276 rows' eval "$work/tied" "$work/data.jsonl" --adapter "$work/copy"

# Served beside its base, which has fewer rows: each answers as it does alone, the adapter in the template of its run.
serves "it is served" serve "$work/tied" --adapter "$work/tied-1/adapter" --batch 5 --tp 2
asked=()
for i in 1 2 3 4 5 6; do
    name=$([ $((i % 2)) = 1 ] && echo tied-1 || echo tied)
    curl -sS --max-time 60 -H 'Content-Type: application/json' -d "{\"model\": \"$name\", \"prompt\": \"say [ACT] $i\", \"max_tokens\": 12, \"temperature\": 0.9, \"seed\": $i}" "$url/v1/completions" >"$work/got$i" &
    asked+=($!)
done
wait "${asked[@]}"
stops "it ends"
text_of() { grep -oE '"text": ?"([^"\\]|\\.)*"' "$1" | sed -E 's/^"text": ?//; s/\\u00([0-9A-F]{2})/\\u00\L\1/g'; }
for i in 1 2 3 4 5 6; do
    "$sheaf" generate "$work/tied" $([ $((i % 2)) = 0 ] && echo --raw || echo --adapter "$work/tied-1/adapter") --prompt "say [ACT] $i" --max-new 12 --temperature 0.9 --seed $i --json >"$work/want$i" 2>/dev/null
    check "answer $i" test -n "$(text_of "$work/want$i")" -a "$(text_of "$work/got$i")" = "$(text_of "$work/want$i")"
done

# Training goes on from such an adapter, with its tokenizer.
runs "from it" 0 "tables of 276 rows" train "$work/tied" "$work/data.jsonl" --adapter "$work/tied-1/adapter" --steps 1 --lr 1e-5 --out "$work/more"
same "its tokenizer goes on, too" "$work/more/adapter/tokenizer.json" "$work/tied-1/adapter/tokenizer.json"
runs "of which plan knows the rows" 0 'embed_tokens \(16560\)' plan "$work/tied" "$work/data.jsonl" --adapter "$work/tied-1/adapter"

# Groups of ranks.
steps=3
learn untied whole --accumulate 2
learn untied groups --accumulate 2 --dp 2 --tp 2
same "two groups of two ranks" "$work/whole/adapter" "$work/groups/adapter"

learn tied brief
for device in checked cuda; do # memory that only operations touch; an emulated GPU
    sheaf=$SHEAF_BUILD_ROOT/tests/sheaf_devices learn tied $device --device $device
    same "on $device" "$work/brief/adapter" "$work/$device/adapter"
done

# Rows begin as the mean, or random; the same however they are read.
begun() { runs "rows of $1 begin" 0 result train "$work/untied" "$work/data.jsonl" --out "$work/$1" "${how[@]}" --lr 1e-30 --steps 1 --add-tokens "$work/$2" "${@:3}"; }
begun mean tokens.txt
begun mean3 tokens.txt --tp 3
begun random tokens.txt --add-tokens-init random
begun random3 tokens.txt --add-tokens-init random --tp 3
begun seeded tokens.txt --add-tokens-init random --seed 6
same "means are of all ranks" "$work/mean/adapter" "$work/mean3/adapter"
same "random rows, too" "$work/random/adapter" "$work/random3/adapter"
check "they are not the mean" bash -c '! cmp -s "$1" "$2"' . "$work/"{mean,random}/adapter/adapter_model.safetensors
check "and follow the seed" bash -c '! cmp -s "$1" "$2"' . "$work/"{seeded,random}/adapter/adapter_model.safetensors
runs "codes beside them" 0 result train "$work/untied" "$work/data.jsonl" --out "$work/nf4" "${adding[@]}" --steps 1 --quantize nf4
check "their base has the rows that it had" grep -q 'vocab_size: 273' "$work/nf4/run.json"
runs "and eval" 0 '"loss"' eval "$work/nf4" "$work/data.jsonl" --json

runs "a base whose tables are in codes" 0 . convert "$published" "$work/codes" --to gguf --dtype q8_0
runs "has its tokenizer in it" 3 'a folder with a tokenizer.json.*try: .*sheaf convert FILE FOLDER --to hf' train "$work/codes" "$work/data.jsonl" --out "$work/coded" "${adding[@]}" --steps 1
runs "is read as numbers" 0 'result' train "$work/codes" "$work/data.jsonl" --out "$work/coded" "${adding[@]}" --steps 1 --tokenizer "$published"

# What plan says is what is written.
runs "a config alone has no tokenizer" 3 'the model: its tokenizer' plan --config "$work/config.json" "${adding[@]}" --seq 64
runs "plan" 0 '"copies":33120' plan "$work/untied" "$work/data.jsonl" "${adding[@]}" --json
runs "bytes of the adapter" 0 '"kind": "adapter"' info "$work/untied-1/adapter" --json
planned=$("$sheaf" plan "$work/untied" "$work/data.jsonl" "${adding[@]}" --json 2>/dev/null | grep -o '"copies":[0-9]*,"bytes":[0-9]*' | grep -o '[0-9]*$')
check "as planned" test "$planned" = "$(grep -o '"bytes": *[0-9]*' "$work/stdout" | head -n 1 | grep -o '[0-9]*$')"

# A list says more of a token; lines may end as on Windows.
printf '\xef\xbb\xbf[ACT]\r\n<tool>\r\nhello world' >"$work/other.txt"
printf '["[ACT]", {"content": "<tool>"}, {"content": "hello world", "normalized": true}]' >"$work/list.json"
for file in other.txt list.json; do
    begun "of-$file" "$file"
    same "$file is the same" "$work/mean/adapter" "$work/of-$file/adapter"
done
printf '[{"content": "<tool>", "special": true, "lstrip": true}]' >"$work/special.json"
begun special special.json
check "a special token" grep -q '"lstrip": true' "$work/special/adapter/tokenizer.json"
sed 's/"tokenizer_class"/"added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true}, "1": {"content": "<|im_start|>", "special": true}, "2": {"content": "<|im_end|>", "special": true}}, &/' "$published/tokenizer_config.json" >"$work/untied/tokenizer_config.json"
begun listed tokens.txt
check "a list in tokenizer_config.json goes on" grep -q '"275"' "$work/listed/adapter/tokenizer_config.json"
cp "$published/tokenizer_config.json" "$work/untied"

# What is wrong with a list, or cannot be done.
bad() { # bad WHAT PATTERN TEXT [NAME]
    printf "$3" >"$work/${4:-bad.txt}"
    runs "$1" 3 "$2" train "$work/untied" "$work/data.jsonl" --out "$work/no" "${how[@]}" --lr 1e-3 --steps 1 --add-tokens "$work/${4:-bad.txt}"
}
bad "no token" 'expected: tokens to add.*found: *none' ''
bad "an empty line" 'bad.txt: line 2.*expected: a token.*found: *nothing' '<a>\n\n<b>\n'
bad "a token that is there" "line 2.*'<\|im_end\|>', which is its token 2" '<a>\n<|im_end|>\n'
bad "one of the model's" "line 1.*which is its token" 'a\n'
bad "twice" "line 3.*each token once.*'<a>', as in line 1" '<a>\n<b>\n<a>\n'
bad "control characters" 'line 1.*the byte 0x09' '<a\t>\n'
bad "NUL" 'line 1.*the byte 0x00' '<a\000>\n'
bad "no UTF-8" 'line 2.*expected: UTF-8' '<a>\n<\xff>\n'
bad "too long" 'line 1.*at most 512 bytes' "$(printf 'x%.0s' $(seq 600))"
bad "too many" 'at most 65536 tokens' "$(seq -f '<%.0f>' 65537)"
bad "no list" 'a list of tokens' '{"a": 1}' bad.json
bad "another key" "token 1.*'id'" '[{"content": "<a>", "id": 7}]' bad.json
bad "a number" "token 2.*an object with its" '["<a>", 3]' bad.json
bad "cut JSON" 'bad.json.*line 1' '["<a>"' bad.json
runs "no file" 3 'add-tokens: .*No such file' train "$work/untied" "$work/data.jsonl" --out "$work/no" "${how[@]}" --lr 1e-3 --steps 1 --add-tokens "$work/none"
runs "with method head" 2 'a new adapter.*another method' train "$work/untied" "$work/data.jsonl" --out "$work/no" "${adding[@]:2}" --steps 1 --method head
runs "how rows of none begin" 2 'add-tokens-init.*expected: --add-tokens' train "$work/untied" "$work/data.jsonl" --out "$work/no" "${how[@]}" --lr 1e-3 --steps 1 --add-tokens-init random
runs "with an adapter" 2 'a new adapter' train "$work/untied" "$work/data.jsonl" --out "$work/no" "${adding[@]}" --steps 1 --adapter "$work/untied-1/adapter"
runs "a vocabulary of bytes" 0 . init tiny-bytes "$work/bytes"
runs "has no tokenizer" 3 'a folder with a tokenizer.json' train "$work/bytes" "$work/data.jsonl" --out "$work/no" "${adding[@]}" --steps 1
runs "nor is another's taken" 3 'a vocabulary of bytes' train "$work/bytes" "$work/data.jsonl" --out "$work/no" "${adding[@]}" --steps 1 --tokenizer "$published"
model short 270 false
runs "a model with fewer rows than tokens" 3 '273 tokens of the tokenizer, 270 rows' train "$work/short" "$work/data.jsonl" --out "$work/no" "${adding[@]}" --steps 1
absent "nothing is begun" "$work/no/checkpoints"

printf '[ACT]\n<tool>\nhello worlds\n' >"$work/tokens.txt"
rm -r "$work/untied-again/checkpoints/step-00000060" "$work/untied-again/adapter"
runs "a run goes on with its own tokens alone" 2 'add-tokens, token 275.*expected:.*"hello world".*found:.*"hello worlds"' train --resume --out "$work/untied-again"
mv "$work/tokens.txt" "$work/others.txt"
runs "nor with others that are named" 2 'add-tokens, token 275' train --resume --out "$work/untied-again" --add-tokens "$work/others.txt"
check "which it still names" grep -q '^add-tokens: .*/tokens\.txt' "$work/untied-again/settings"
runs "and which must be there" 3 'tokens.txt.*' train --resume --out "$work/untied-again"
runs "its result needs no list" 0 'hello world' generate --model "$work/untied-1" --prompt 'say [ACT] 3' --greedy --max-new 8
check "no tokenizer is left in the folder of temporary files" bash -c '! ls -d "${TMPDIR:-/tmp}"/sheaf-tokenizer.* 2>/dev/null'
finish
