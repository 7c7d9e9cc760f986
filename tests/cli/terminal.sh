#!/usr/bin/env bash
# Text that comes from files, on its way to a terminal: nothing in it steers, ends a line or forges one; --json stays exact.
. "$(dirname "$0")/lib.sh"

# As JSON writes it: escape, line feed and a forged line, CSI in one character, right-to-left override, separator.
evil='x\u001b[31m\u0007\nsound\r\u009b1m\u202eabc\u2066\u2028\u007f'
path=$work/$'p\e[2J\nsound\n\xc2\x9b\xe2\x80\xae\xff' # no UTF-8 either
mkdir -p "$path"

# clean NAME ARGUMENT...: whatever the command answers, both streams hold lines of plain text, and none but its last says "sound".
clean() {
    local name=$1
    shift
    "$sheaf" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null
    cat "$work/stdout" "$work/stderr" >"$work/both"
    if ! [ -s "$work/both" ]; then
        fail "$name" "no output: sheaf $*"
    elif LC_ALL=C grep -nP '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]' "$work/both" >"$work/bad" ||
        ! iconv -f UTF-8 -t UTF-8 "$work/both" >/dev/null 2>&1 || { grep -nE '^[^a-z]*sound' "$work/both" | grep -v "^$(wc -l <"$work/stdout"):sound" >"$work/bad"; }; then
        fail "$name" "sheaf $*" "$(cat -v "$work/bad" "$work/both")"
    else
        pass "$name"
    fi
}
# exact NAME KEYS ARGUMENT...: --json gives one line of JSON in which the evil text stands as it is.
exact() {
    local name=$1
    shift
    "$sheaf" "$@" --json >"$work/stdout" 2>/dev/null </dev/null
    if [ "$(wc -l <"$work/stdout")" -eq 1 ] && LC_ALL=C grep -qF "$(printf '%b' 'x\\u001b[31m\\u0007\\nsound\\r\xc2\x9b1m\xe2\x80\xaeabc\xe2\x81\xa6\xe2\x80\xa8\x7f')" "$work/stdout"; then
        pass "$name"
    else
        fail "$name" "sheaf $* --json" "$(cat -v "$work/stdout" | cut -c 1-600)"
    fi
}
# tensors FILE JSON SIZE: a .safetensors file.
tensors() {
    local header=$2
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    { int32_bytes ${#header} 0; printf '%s' "$header"; head -c "$3" /dev/zero; } >"$1"
}

mkdir "$work/one" "$work/two" "$work/adapter" "$work/index" "$work/save" "$work/config"
tensors "$work/one/model.safetensors" "{\"$evil\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"__metadata__\":{\"$evil\":\"$evil\"}}" 8
tensors "$work/two/model.safetensors" "{\"$evil\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},\"$evil.b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[12,14]}}" 14
cp -r "$work/one/." "$path/"
clean "verify: a tensor's name" verify "$work/one"
clean "info: a tensor's name" info --tensors "$work/one"
exact "info --json" info --tensors "$work/one"
clean "diff: a tensor's name" diff "$work/one" "$work/two"
exact "diff --json" diff "$work/one" "$work/two"
clean "convert: a tensor's name" convert "$work/one" "$work/out" --to hf
clean "a path" verify "$path"
clean "a path that is not there" verify "$path/none"
clean "info of a path" info "$path"
clean "convert from a path to a path" convert "$path" "$path/../${path##*/}2" --to hf
for command in "verify" "info" "info --tensors"; do
    # shellcheck disable=SC2086
    "$sheaf" $command "$path" --json >"$work/stdout" 2>/dev/null
    check "$command --json of a path that is no UTF-8 is one line of UTF-8" sh -c "[ \$(wc -l <'$work/stdout') -eq 1 ] && [ \$(wc -c <'$work/stdout') -gt 100 ] && iconv -f UTF-8 -t UTF-8 '$work/stdout' >/dev/null"
done

# damaged: what is wrong is told with names
tensors "$work/two/model.safetensors" "{\"$evil\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}" 4
clean "verify: a name in a defect" verify "$work/two"
clean "a name in an error" convert "$work/two" "$work/out2" --to hf
tensors "$work/two/model.safetensors" "{\"$evil\":{\"dtype\":\"$evil\",\"shape\":[3],\"data_offsets\":[0,12]}}" 12
clean "a dtype" info "$work/two"
printf '{"metadata": {}, "weight_map": {"%s": "%s", "b": "%s.safetensors"}}' "$evil" "$evil" "$evil" >"$work/index/model.safetensors.index.json"
clean "verify: entries of an index" verify "$work/index"
clean "info: entries of an index" info "$work/index"

# configs
printf '{"model_type": "%s", "architectures": ["%s"]}' "$evil" "$evil" >"$work/config/config.json"
cp "$work/one/model.safetensors" "$work/config/"
clean "verify: values of a config" verify "$work/config"
clean "info: values of a config" info "$work/config"
clean "init: values of a config" init "$work/config" "$work/out3"
model=$(copy_model tiny_llama)
sed -i "s/^{/{\"$(sed 's/\\/&&/g' <<<"$evil")\": 1,/" "$model/config.json"
clean "info: unknown keys" info "$model"
clean "verify: unknown keys" verify "$model"
sed -i 's/"hidden_act": *"[^"]*"/"hidden_act": "'"$(sed 's/\\/&&/g' <<<"$evil")"'"/' "$model/config.json"
clean "a value that is refused" generate --model "$model" --tokens 1 --max-new 1
cp "$llama"/tiny_llama/adapters/*/adapter_model.safetensors "$work/adapter/" 2>/dev/null || tensors "$work/adapter/adapter_model.safetensors" "{\"$evil.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}" 8
printf '{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["%s"], "base_model_name_or_path": "%s", "%s": 2}' "$evil" "$evil" "$evil" >"$work/adapter/adapter_config.json"
clean "info: an adapter" info "$work/adapter"
exact "its base, exactly" info "$work/adapter"
clean "verify: an adapter" verify "$work/adapter"
clean "merge: an adapter" merge "$llama/tiny_llama/hf" "$work/adapter" "$work/out4"
printf '{"peft_type": "%s"}' "$evil" >"$work/adapter/adapter_config.json"
clean "a kind of adapter" merge "$llama/tiny_llama/hf" "$work/adapter" "$work/out5"

# files that name others
printf '%b' "${evil//\\u00/\\x}" >"$work/save/latest"
clean "verify: latest" verify "$work/save"
clean "info: latest" info "$work/save"
clean "convert: latest" convert "$work/save" "$work/out6" --to hf

# data, recipes and words of the command line
printf '{"prompt": "a", "completion": 3, "%s": "%s"}\n' "$evil" "$evil" >"$work/data.jsonl"
clean "train: data" train --model "$llama/tiny_llama/hf" --data "$work/data.jsonl" --out "$work/run" --steps 1
printf '%b: 1\n' "${evil//\\u00/\\x}" >"$work/recipe"
clean "train: a recipe" train --recipe "$work/recipe"
clean "a word" $'tr\e[31main\n\xc2\x9b'
clean "a flag" train $'--st\e[31meps\n\xff' 1
clean "a value" train --steps $'1\e[31m\nsound\xff'

# A run in a folder whose name is no UTF-8: --json says so with one line.
tokens_file "$work/tokens.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
"$sheaf" train --model "$llama/tiny_llama/hf" --data "$work/tokens.safetensors" --out "$work"/$'r\xffn' --steps 1 --lora-rank 1 --json >"$work/stdout" 2>"$work/stderr"
check "train --json names its result" grep -q '"result":"[^"]*/r�n/adapter"' "$work/stdout"
runs "init --json" 0 '"out": "[^"]*"' init tiny-bytes "$path/new" --json

# A terminal: an answer too is shown without what steers it; a dumb one gets no line that is rewritten.
command -v script >/dev/null || fail "script(1), of util-linux, is needed"
printf '%s' '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32", "sheaf_tokenizer": "bytes", "initializer_range": 2.0}' >"$work/bytes.json"
runs "a model that says anything" 0 . init "$work/bytes.json" "$work/bytes"
say="'$sheaf' generate --model '$work/bytes' --prompt a --max-new 200 --temperature 100000 --seed 3"
sh -c "$say" >"$work/said"
check "its answer steers" sh -c "LC_ALL=C grep -qaP '[\\x01-\\x08\\x0e-\\x1f]' '$work/said'"
script -qec "$say" /dev/null </dev/null >"$work/typed"
check "but no terminal" sh -c "! LC_ALL=C grep -qaP '[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]|\\xc2[\\x80-\\x9f]' '$work/typed'"
for TERM in dumb xterm; do
    export TERM
    rm -rf "$work/typed-run"
    script -qec "'$sheaf' train --model '$llama/tiny_llama/hf' --data '$work/tokens.safetensors' --out '$work/typed-run' --steps 2 --lora-rank 1" /dev/null </dev/null >"$work/$TERM"
done
check "an xterm sees a line that is rewritten" grep -q $'\rstep 2/2' "$work/xterm"
check "a dumb terminal sees lines" sh -c "tr -d '\n' <'$work/dumb' | sed 's/\r\$//' | LC_ALL=C tr -d '\r' | LC_ALL=C grep -qvaP '[\\x00-\\x1f\\x7f]'"
check "that none of them returns to" sh -c "! LC_ALL=C grep -qaP '\\r[^\\n\\r]' '$work/dumb'"
finish
