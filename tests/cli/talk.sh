#!/usr/bin/env bash
# Talking to models of text: prompts that run together, what ends an answer and what comes with it, conversations that are
# saved and go on, and how a model says it is sampled.
. "$(dirname "$0")/lib.sh"

# ---- rows padded on the left, as transformers' generate() takes them: recorded batches ----
padded_rows() { # padded_rows FILE ROWS LENGTH IDS MASK: no labels
    local file=$1 rows=$2 length=$3 size header
    size=$((rows * length * 4))
    header="{\"input_ids\":{\"dtype\":\"I32\",\"shape\":[$rows,$length],\"data_offsets\":[0,$size]},\"attention_mask\":{\"dtype\":\"I32\",\"shape\":[$rows,$length],\"data_offsets\":[$size,$((2 * size))]}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    # shellcheck disable=SC2086,SC2046
    { int32_bytes ${#header} 0; printf '%s' "$header"; int32_bytes $4; int32_bytes $5; } >"$file"
}
for model in tiny_llama tiny_llama3rope tiny_mistral tiny_qwen2; do
    last=$(tr -d ' \n' <"$llama/$model/generation.json" | grep -o '"batch_prompts":.*')
    mapfile -t rows < <(grep -o '"sequences":.*' <<<"$last" | grep -oE '[0-9]+(,[0-9]+)+' | tr ',' ' ')
    length=$(grep -oE '"left_padded_to":[0-9]+' <<<"$last" | grep -oE '[0-9]+')
    read -ra short <<<"$(grep -oE '^"batch_prompts":\[\[[0-9,]+' <<<"$last" | grep -oE '[0-9,]+$' | tr ',' ' ')"
    pads=$((length - ${#short[@]})) ids="" mask="" want=""
    for i in 0 1; do
        read -ra row <<<"${rows[i]}"
        ids="$ids ${row[*]:0:length}"
        for ((j = 0; j < length; j++)); do mask="$mask $((i > 0 || j >= pads))"; done
        want="$want\"tokens\":[$(tr ' ' ',' <<<"${row[*]:length}")]"
    done
    padded_rows "$work/$model.safetensors" 2 "$length" "$ids" "$mask"
    for how in "--batch 2" "--batch 1 --tp 3"; do
        # shellcheck disable=SC2086
        runs "$model: rows padded on the left, $how" 0 . generate --model "$llama/$model/hf" --data "$work/$model.safetensors" --max-new 16 --greedy --json $how
        check "are as recorded" test "$(grep -oE '"tokens":\[[0-9,]*\]' "$work/stdout" | tr -d '\n')" = "$want"
    done
done
padded_rows "$work/hole.safetensors" 1 5 "5 6 7 8 9" "0 1 0 1 1"
runs "padding between tokens is refused" 3 'row 1: attention_mask.*no padding between the tokens of the prompt.*0 at position 3' generate --model "$llama/tiny_llama/hf" --data "$work/hole.safetensors" --max-new 2

bytes=$work/bytes
runs "a model of bytes" 0 . init tiny-bytes "$bytes" --seed 11
say=(generate --model "$bytes" --max-new 24 --temperature 3 --seed 4)

# ---- several prompts: each as it is alone ----
cat >"$work/prompts.jsonl" <<'END'
"a text of its own"
{"prompt": "another one that is quite a bit longer than the first"}
{"messages": [{"role": "user", "content": "x"}]}
{"messages": [{"role": "user", "content": "y"}, {"role": "assistant", "content": "an answer"}]}
{"tokens": [104, 105]}
END
for how in "--batch 1" "--batch 5 --tp 3" "--batch 2"; do
    # shellcheck disable=SC2086
    runs "prompts, $how" 0 '"expected":"an answer"' "${say[@]}" --prompts "$work/prompts.jsonl" --logprobs 2 --json $how
    cp "$work/stdout" "$work/prompts${how//[ -]/}"
done
same "the same bytes, probabilities too" "$work/promptsbatch1" "$work/promptsbatch5tp3"
same "in every batch" "$work/promptsbatch1" "$work/promptsbatch2"
runs "the first alone" 0 . "${say[@]}" --prompt "a text of its own" --logprobs 2 --json
check "is the first of all" grep -qF "$(tr -d '\n{}' <"$work/stdout" | cut -c 1-200)" <(tr -d '\n{}' <"$work/promptsbatch1")
runs "probabilities are for programs" 2 'logprobs.*--json' "${say[@]}" --prompt a --logprobs 2
printf '{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}\n{"messages": [{"role": "tool", "content": "x"}]}\n{"messages": []}\n{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}\n7\n' >"$work/bad.jsonl"
runs "bad prompts are told together" 3 'line 1: message 2: role.*assistant: user and assistant take turns.*line 2.*expected user or system, found tool.*line 3.*1 to 10000 messages.*line 4: messages: expected a template.*line 5: record.*a list .messages' "${say[@]}" --prompts "$work/bad.jsonl"
runs "prompts and data" 2 'no --data beside it' "${say[@]}" --prompts "$work/bad.jsonl" --data "$work/bad.jsonl"

# ---- tools of a conversation ----
printf '{"functions": [{"name": "f"}], "conversations": [{"from": "human", "value": "x"}]}\n' >"$work/tools.jsonl"
runs "functions are not read, which is said" 0 "line 1: field 'functions' is not used" "${say[@]}" --data "$work/tools.jsonl"
sed 's/functions/tools/' "$work/tools.jsonl" >"$work/newer.jsonl"
runs "tools are refused" 3 "line 1: 'tools' +expected: +no tools" "${say[@]}" --data "$work/newer.jsonl"

# ---- texts that end an answer ----
runs "an answer" 0 '"end":"length"' "${say[@]}" --prompt "What?" --json
whole=$(grep -o '"tokens":[^]]*' "$work/stdout" | grep -oE '[0-9]+')
printable=$(for id in $whole; do [ "$id" -gt 32 ] && [ "$id" -lt 127 ] && [ "$id" -ne 34 ] && [ "$id" -ne 92 ] && printf "\\x$(printf %x "$id")\\n"; done | tail -n 1)
"$sheaf" "${say[@]}" --prompt "What?" 2>/dev/null >"$work/whole"
runs "a text ends it" 0 '"end":"text"' "${say[@]}" --prompt "What?" --json --stop "$printable" --stop "never said"
check "with fewer tokens" test "$(grep -o '"tokens":[^]]*' "$work/stdout" | grep -oE '[0-9]+' | wc -l)" -lt 24
"$sheaf" "${say[@]}" --prompt "What?" --stop "$printable" --stop "never said" --tp 3 2>/dev/null >"$work/cut"
check "printed up to it" test "$(head -c $(($(wc -c <"$work/cut") - 1)) "$work/cut" | od -c)" = "$(head -c $(($(wc -c <"$work/cut") - 1)) "$work/whole" | od -c)"
check "and not it" sh -c "! tail -c +6 '$work/cut' | grep -qaF '$printable'"
runs "an empty text ends nothing" 2 'stop.*expected: +a text' "${say[@]}" --prompt a --stop ""
runs "nor does one of a model without text" 3 'stop.*tokenizer' generate --model "$llama/tiny_llama/hf" --tokens 5 --stop a
runs "a system message needs a template" 3 'a system message.*a template with a place for it.*--template' "${say[@]}" --prompt a --system "Be brief."

# ---- as generation_config.json says ----
model=$(copy_model tiny_llama)
ask=(generate --model "$model" --tokens 57,449,134,417 --max-new 16)
config() { printf '%s' "$1" >"$model/generation_config.json"; }
tokens() { grep -o '"tokens":[^]]*' "$work/stdout"; }
config '{"eos_token_id": [41, 7]}'
runs "greedy without a word" 0 '"tokens":\[60,39,41\].*"end":"token"' "${ask[@]}" --json
config '{"do_sample": true, "temperature": 1.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2}'
runs "sampled as the model says" 0 'sampled as generation_config.json says: do_sample, temperature 1.7, top_k 20, top_p 0.9, repetition_penalty 1.2' "${ask[@]}" --seed 3 --json
said=$(tokens)
runs "as with flags" 0 . generate --model "$llama/tiny_llama/hf" --tokens 57,449,134,417 --max-new 16 --seed 3 --temperature 1.7 --top-k 20 --top-p 0.9 --repetition-penalty 1.2 --json
check "the same" test "$said" = "$(tokens)"
config '{"do_sample": true, "max_new_tokens": 5, "num_beams": 4}'
runs "what transformers has besides" 0 'num_beams 4 is not done here.*do_sample, top_k 50' generate --model "$model" --tokens 57 --seed 3
check "as many as it says" test "$(tr ',' '\n' <"$work/stdout" | wc -l)" -eq 5
runs "but not beside a flag" 0 . generate --model "$model" --tokens 57 --seed 3 --top-p 0.9
check "nor is it told of" sh -c "! grep -q top_k '$work/stderr'"
runs "a flag goes before it" 0 '"tokens":\[60,39,41,27' "${ask[@]}" --greedy --json
config '{"do_sample": true, "top_p": 0, "top_k": 0, "max_new_tokens": 16, "max_length": 8}'
runs "a top_p of 0 keeps one" 0 'says: do_sample, top_k 0, top_p 0' "${ask[@]}" --seed 3 --json
said=$(tokens)
check "and max_new_tokens goes before max_length" sh -c '! grep max_length "$1"' sh "$work/stderr"
runs "the most probable" 0 . "${ask[@]}" --greedy --json
check "as greedily" test "$said" = "$(tokens)"
config '{"max_length": 8, "top_h": 0.5, "max_time": 2.5, "num_return_sequences": 3, "token_healing": true, "cache_implementation": "quantized"}'
runs "each setting that is not done is told" 0 'top_h 0.5.* is not done here.*max_time 2.5.*num_return_sequences 3.*token_healing true.*max_length 8 is not done here: --max-new.*cache_implementation "quantized"' "${ask[@]}"
config '{"num_return_sequences": 1, "token_healing": false, "max_time": null, "cache_implementation": "hybrid"}'
runs "and none that changes nothing" 0 '^60,39,41' "${ask[@]}"
check "in a word" sh -c '! grep "not done" "$1"' sh "$work/stderr"
rm "$model/generation_config.json"
cp "$model/config.json" "$work/config.json"
sed 's/{/{"repetition_penalty": 1.5, "min_length": 9,/' "$work/config.json" | tr -d '\n' >"$model/config.json"
runs "without the file config.json says it, as in transformers" 0 'config.json: min_length 9 is not done.*sampled as config.json says: repetition_penalty 1.5' "${ask[@]}" --json
said=$(tokens)
cp "$work/config.json" "$model/config.json"
runs "with the flag" 0 . "${ask[@]}" --json --repetition-penalty 1.5
check "the same tokens" test "$said" = "$(tokens)"
config '{"eos_token_id": "two"}'
runs "an id that is none" 3 'generation_config.json.*eos_token_id.*an id' "${ask[@]}"
config '{"temperature": -1}'
runs "a temperature that is none" 3 'generation_config.json.*temperature' "${ask[@]}"

# ---- conversations ----
chat() { chats "${@:1:4}" --model "$bytes" --max-new 8 --temperature 3 "${@:5}"; } # chat NAME CODE PATTERN INPUT FLAG...
chat "three questions" 0 . 'one\ntwo\nthree\n' --json --logprobs 1 --save "$work/talk.json"
cp "$work/stdout" "$work/talk"
check "are saved" grep -qE '^\{"messages": \[\{"role": "user", "content": "one"\}, \{"role": "assistant", .*"content": "three"\}, \{"role": "assistant", "content": .*\}\]\}$' "$work/talk.json"
chat "at three ranks" 0 . 'one\ntwo\nthree\n' --json --logprobs 1 --tp 3
same "the same bytes" "$work/talk" "$work/stdout"
# What was kept of earlier turns changes nothing: the third question with all before it, as one prompt.
chat "greedily" 0 . 'one\ntwo\nthree\n' --json --logprobs 1 --greedy --save "$work/greedy.json"
tail -n 1 "$work/stdout" | grep -o '"tokens":.*"logprobs":.*\]' | sed 's/,"prompt.*//' >"$work/kept"
sed -E 's/(.*"content": "three"\}), .*/\1]}/' "$work/greedy.json" >"$work/third.jsonl"
runs "as one prompt" 0 . generate --model "$bytes" --template chat --prompts "$work/third.jsonl" --max-new 8 --greedy --logprobs 1 --json
grep -o '"tokens":.*"logprobs":.*\]' "$work/stdout" | sed 's/,"prompt.*//' >"$work/alone"
same "what was kept of earlier turns changes nothing" "$work/kept" "$work/alone"
chat "a file that is there stays" 2 'save.*does not exist, or the one of --load.*--load .*talk.json too' 'one\n' --save "$work/talk.json"
chat "a folder that is not there" 3 'save: .*/nowhere/talk.json +expected: a folder that is there and may be written +found: +[^ ]*/nowhere: No such file or directory +try: +mkdir -p [^ ]*/nowhere' 'one\n' --save "$work/nowhere/talk.json"
check "is told before a question" test ! -s "$work/stdout"
printf '#!/bin/sh\n' >"$work/program"
chmod +x "$work/program"
chat "nor a folder that is a file" 3 'save: .*found: +[^ ]*program: Not a directory' 'one\n' --save "$work/program/talk.json"
# A folder that goes while it is talked is a full disk: what was said is still there.
# goes LINE...: two questions, the folder of --save gone before the second, and LINE
goes() {
    mkdir -p "$work/goes"
    { echo one; waits test -s "$work/goes/talk.json"; rm -r "$work/goes"; printf '%s\n' two "$@"; } |
        "$sheaf" chat --model "$bytes" --max-new 8 --greedy --save "$work/goes/talk.json" >"$work/stdout" 2>"$work/stderr"
}
got=0
goes three "/save $work/went.json" || got=$?
check "a save that fails is told" grep -q 'goes/talk.json: cannot create' "$work/stderr"
check "with what helps" grep -q '/save FILE, at another place' "$work/stderr"
check "and the chat goes on" test "$got" -eq 1
check "with all that was said" test "$(grep -o '"user"' "$work/went.json" | wc -l)" -eq 3
got=0
goes || got=$?
check "an answer that was saved nowhere is an error at the end" test "$got" -eq 3
# A terminal that is closed, or a connection that breaks, ends an answer as SIGTERM does: what came of it is saved.
hung_up() { # hung_up NAME COMMAND...: SIGHUP to COMMAND, a chat, in the middle of an answer
    local name=$1 process
    shift
    rm -f "$work/hung.json" "$work/hung.in" "$work/stdout"
    mkfifo "$work/hung.in"
    "$@" <"$work/hung.in" >"$work/stdout" 2>"$work/stderr" &
    process=$!
    exec 9>"$work/hung.in"
    echo one >&9
    check "$name: an answer has begun" waits test -s "$work/stdout"
    kill -HUP "$process"
}
long=("$sheaf" chat --model "$bytes" --max-new 100000 --max-length 200000 --temperature 3 --save "$work/hung.json")
hung_up "SIGHUP" env --default-signal=HUP "${long[@]}" # which the tests themselves may pass over
wait "$!"
exec 9>&-
check "saves what came of it" grep -q '"role": "assistant", "content": "..*"' "$work/hung.json"
hung_up "SIGHUP under nohup" nohup "${long[@]}"
sleep 0.3
check "is passed over" kill -TERM "$!"
wait "$!"
exec 9>&-
check "and SIGTERM ends it" grep -q '"role": "assistant", "content": "..*"' "$work/hung.json"
cp "$work/greedy.json" "$work/both.json"
chat "it goes on" 0 . 'four\n' --greedy --json --load "$work/both.json" --save "$work/both.json"
check "in the same file" grep -q '"content": "three".*"content": "four"' "$work/both.json"
# Another chat goes on with the same file meanwhile: what it saved there stays.
saved() { grep -q "$1" "$work/both.json"; }
beside() {
    echo five
    waits saved five
    sed 's/five/six/' "$work/greedy.json" >"$work/theirs.json"
    cp "$work/theirs.json" "$work/both.json"
    printf 'seven\n/save %s\n' "$work/seven.json"
    waits test -e "$work/seven.json"
}
beside | "$sheaf" chat --model "$bytes" --max-new 8 --greedy --load "$work/both.json" --save "$work/both.json" >"$work/stdout" 2>"$work/stderr"
same "what another chat saved stays" "$work/theirs.json" "$work/both.json"
check "which is told" grep -q 'something that another one wrote meanwhile' "$work/stderr"
check "and all is saved elsewhere" grep -q '"content": "five".*"content": "seven"' "$work/seven.json"
# Two save at once: the first looks, and puts its file there a second later; meanwhile the other looks.
cp "$work/greedy.json" "$work/both.json"
printf 'eight\n' | SHEAF_FAULT=rename:1:slow "$faulty" chat --model "$bytes" --max-new 8 --greedy --load "$work/both.json" --save "$work/both.json" >"$work/eight" 2>&1 & first=$!
waits bash -c 'ls "$0"/both.json.*partial*' "$work" >"$work/stdout"
export nine=0 eight=0
printf 'nine\n' | "$sheaf" chat --model "$bytes" --max-new 8 --greedy --load "$work/both.json" --save "$work/both.json" >"$work/stdout" 2>"$work/stderr" || nine=$?
wait $first || eight=$?
check "what was saved at the same time is there, or its chat ends with an error" bash -c 'for n in eight nine; do grep -q $n "$0" || test ${!n} = 3 || exit 1; done' "$work/both.json"
printf '{"messages": [{"role": "assistant", "content": "x"}]}' >"$work/bad.json"
chat "commands" 1 '/system \[TEXT\].*/save \[FILE\].*/load FILE.*something there already.*message 1: role' "/help\n/load $work/greedy.json\nmore\n/save $work/new.json\nmore\n/save $work/talk.json\n/load $work/bad.json\n" --json
check "saved at once, and after each answer" test "$(grep -o '"user"' "$work/new.json" | wc -l)" -eq 5
chat "a conversation that is none" 3 'load: .*bad.json: message 1: role.*user or system' 'one\n' --load "$work/bad.json"
chat "no file" 3 'load: .*nothing.json' 'one\n' --load "$work/nothing.json"
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >"$work/other.json"
chat "another file" 0 'kept.json stays as it is; /save goes on in .*other.json' "one\n/load $work/other.json\ntwo\n" --save "$work/kept.json"
check "begins another conversation" sh -c "grep -q one '$work/kept.json' && ! grep -qE 'one|two' '$work/other.json'"
chat "/save" 0 . 'c\n/save\nd\n' --load "$work/other.json"
check "goes on where it was loaded from" grep -q '"content": "a".*"content": "c".*"content": "d"' "$work/other.json"
chat "/help" 0 . '/help\n'
check "is a line each" test "$(grep -cE '^/(system|reset|save|load|help|quit)' "$work/stderr")" = 6
chat "/save needs a name" 1 "/save.*a file.s name" 'one\n/save\n'

# ---- a model of text with its own tokenizer and chat template, beside transformers (tests/data/talk/make_talk.py) ----
data=$SHEAF_SOURCE_ROOT/tests/data/talk
text=$work/text
runs "a model of text" 0 . init "$data/config.json" "$text" --seed 7
cp "$data"/tokenizer*.json "$text"
sed '4s/"text":" /"text":"/' "$data/recorded.txt" >"$work/recorded" # of a conversation blanks around are no text
for how in "" "--batch 2 --tp 3"; do
    # shellcheck disable=SC2086
    runs "prompts and conversations $how" 0 . generate --model "$text" --prompts "$data/prompts.jsonl" --max-new 24 --json $how
    grep -oE '"tokens":\[[0-9,]*\],"text":"([^"\\]|\\.)*"' "$work/stdout" >"$work/got"
    same "are answered as by transformers $how" "$work/recorded" "$work/got"
done
"$sheaf" generate --model "$text" --prompts "$data/prompts.jsonl" --max-new 24 2>/dev/null | sed -n 1p >"$work/printed"
"$sheaf" generate --model "$text" --raw --prompt "hello world, how are you" --max-new 24 2>/dev/null >"$work/streamed"
same "what is printed as it comes is the same" "$work/printed" "$work/streamed"
runs "pieces for programs" 0 . generate --model "$text" --raw --prompt "hello world, how are you" --max-new 24 --stop 'at)' --json --stream
check "joined are the answer" test "$(sed -n 's/^{"piece":"\(.*\)"}$/\1/p' "$work/stdout" | tr -d '\n')" = "$(tail -n 1 "$work/stdout" | grep -oE '"text":"([^"\\]|\\.)*"' | sed 's/^"text":"//; s/"$//')"
check "several" test "$(grep -c '^{"piece"' "$work/stdout")" -gt 5
runs "for programs only" 2 'stream.*--json' generate --model "$text" --prompt a --stream
runs "a text is a question where a template is stored" 0 'texts are questions, laid out by the template qwen2' generate --model "$text" --prompt one --max-new 4 --json
printf '{"messages": [{"role": "user", "content": "one"}]}\n' >"$work/asked.jsonl"
tokens() { grep -oE '"tokens":\[[0-9,]*\]' "$work/stdout"; }
tokens >"$work/got"
runs "as a conversation asks it" 0 . generate --model "$text" --data "$work/asked.jsonl" --max-new 4 --json
tokens >"$work/wanted"
same "with its answer" "$work/wanted" "$work/got"
runs "continued as it stands" 0 '"tokens"' generate --model "$text" --prompt one --raw --max-new 4 --json
check "which is another answer" test "$(tokens)" != "$(cat "$work/got")"
runs "not both" 2 '--raw.*no --template beside it' generate --model "$text" --prompt one --raw --template chatml
runs "a text across tokens ends it" 0 '"end":"text"' generate --model "$text" --raw --prompt "hello world, how are you" --max-new 24 --stop 'at)' --json --tp 2
check "before it" grep -qF 'V\"h","end"' "$work/stdout"
runs "a system message" 0 '"tokens"' generate --model "$text" --template chatml --system "Be brief." --prompt "three" --max-new 4 --json
bytes=$text
chat "a conversation" 0 'prompt template qwen2, which the model.s tokenizer stores' 'one\ntwo\nthree\n' --json --logprobs 1 --greedy --save "$work/text.json" --system "Be brief."
tail -n 1 "$work/stdout" | grep -o '"logprobs":.*\]' | sed 's/,"prompt.*//' >"$work/kept"
sed -E 's/(.*"content": "three"\}), .*/\1]}/' "$work/text.json" >"$work/third.jsonl"
runs "as one prompt" 0 . generate --model "$text" --prompts "$work/third.jsonl" --max-new 8 --greedy --logprobs 1 --json
grep -o '"logprobs":.*\]' "$work/stdout" | sed 's/,"prompt.*//;s/\]}$//' | head -c "$(wc -c <"$work/kept")" >"$work/alone"
same "what was kept of it changes nothing" "$work/kept" "$work/alone"
printf '{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "chat_template": "{%% for m in messages %%}[{{ m.content }}]{%% endfor %%}"}' >"$text/tokenizer_config.json"
chat "a template that has no name" 0 'prompt template stored' 'one\n'
chat "one without a place for a system message" 3 'system: message 1.*template gemma: line 3: no system message' 'one\n' --template gemma --system "Be brief."
chat "another by name" 0 '"tokens"' 'one\n' --template zephyr --json
printf '{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>"}' >"$text/tokenizer_config.json"
chat "no template" 2 'a chat template.*stores none.*--template [a-z0-9]+, which suits this tokenizer, or another of llama2' 'one\n'
printf '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}\n%.0s' 1 2 >"$work/two.jsonl"
runs "nor for records, which are not bad" 2 "two.jsonl: line 1: a conversation \('messages'\) +expected: a chat template +found: +none: the model's tokenizer stores none +try: +--template [a-z0-9]+, which suits this tokenizer, or another of llama2.* plain \$" \
    eval --model "$text" --data "$work/two.jsonl"
check "and the names are listed once" test "$(grep -c llama3.1 "$work/stderr")" -eq 1
# ---- a template that a run names is part of what it writes ----
for n in 1 2 3 4; do printf '{"messages": [{"role": "user", "content": "say %s"}, {"role": "assistant", "content": "yes"}]}\n' $n; done >"$work/chats.jsonl"
taught() { # taught NAME FLAG...
    local name=$1
    shift
    runs "a base without a template learns $name" 0 . train "$text" "$work/chats.jsonl" --out "$work/$name" --template zephyr --steps 1 "$@"
}
carries() { # carries FOLDER: the template, and what ends its answers
    check "${1##*/work} has it" cmp "$SHEAF_SOURCE_ROOT/src/inputs/chat/templates/zephyr.jinja" "$1/chat_template.jinja"
    check "and its end" grep -q '"eos_token_id"' "$1/generation_config.json"
}
taught lora-chat
taught full-chat --method full
carries "$work/lora-chat/adapter"
carries "$work/full-chat/model"
runs "merged" 0 . merge "$text" "$work/lora-chat/adapter" "$work/merged-chat"
carries "$work/merged-chat"
cp -r "$work/lora-chat/adapter" "$work/moved-chat"
for from in "$work/merged-chat" "$work/full-chat/model"; do bytes=$from chat "asked without a name" 0 'prompt template zephyr, which the model.s tokenizer stores' 'one\n'; done
chat "with the adapter alone" 0 'prompt template zephyr, which' 'one\n' --adapter "$work/moved-chat"
served_as() { # served_as NAME ARGUMENT...: what serve calls it
    local name=$1
    shift
    : >"$work/served" # not the one before's
    timeout -s INT 20 "$sheaf" serve "$@" --port 0 >"$work/served" 2>&1 &
    local server=$!
    for _ in $(seq 150); do grep -q ' serves ' "$work/served" && break; sleep 0.1; done
    kill -INT $server 2>/dev/null
    wait $server
    grep -qE " serves $name\$" "$work/served" || { cat "$work/served"; return 1; }
}
check "a run's model is served by the run's name" served_as full-chat "$work/full-chat/model"
check "and its adapter" served_as "text, lora-chat" "$text" --adapter "$work/lora-chat/adapter"
check "any other by its folder's" served_as "text, moved-chat" --model "$text" --adapter "$work/moved-chat"
mkdir "$work/ollama"
runs "for llama.cpp" 0 . convert "$work/merged-chat" "$work/ollama/m.gguf" --to gguf --modelfile
check "the file has it" grep -qa 'tokenizer.chat_template' "$work/ollama/m.gguf"
printf 'TEMPLATE """{{ if .System }}<|system|>\n{{ .System }}<|endoftext|>\n{{ end }}{{ if .Prompt }}<|user|>\n{{ .Prompt }}<|endoftext|>\n<|assistant|>\n{{ end }}{{ .Response }}<|endoftext|>\n"""\n' >"$work/turn"
sed -n '/^TEMPLATE/,/"""$/p' "$work/ollama/Modelfile" >"$work/got"
same "and Ollama a turn of it" "$work/turn" "$work/got"
check "with its end once" test "$(grep -c '^PARAMETER stop "<|endoftext|>"' "$work/ollama/Modelfile")" = 1
runs "one that the tokenizer stores" 0 . train "$work/merged-chat" "$work/chats.jsonl" --out "$work/same-chat" --template zephyr --steps 1
check "is not written twice" test ! -e "$work/same-chat/adapter/chat_template.jinja"

sed 's/"vocab_size": *324/"vocab_size": 300/; s/"eos_token_id": *[0-9]*/"eos_token_id": 1/' "$data/config.json" >"$work/small.json"
runs "a smaller one" 0 . init "$work/small.json" "$work/small"
cp "$data"/tokenizer*.json "$work/small"
runs "a tokenizer with more tokens than the model" 3 'the model.s tokenizer is not used: .*at most 300 tokens' generate --model "$work/small" --prompt a
runs "that is given" 3 'at most 300 tokens, the model.s vocabulary.*found: +320' generate --model "$work/small" --tokenizer "$data/tokenizer.json" --prompt a
finish
