#!/usr/bin/env bash
# Conversations as the text that a model reads.
. "$(dirname "$0")/lib.sh"

mkdir "$work/t"
cat >"$work/t/tokenizer_config.json" <<'END'
{"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}}
END
cat >"$work/good.jsonl" <<'END'
{"messages": [{"role": "user", "content": "é?"}, {"role": "assistant", "content": "4"}]}
{"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}], "id": 7}
END
runs "a line of JSON a record" 0 '^[{]"text": "<s>.INST. é. ./INST. 4 </s>", "template": "llama2", "spans": \[[{]"message": 1, "begin": 21, "end": 28, "begin_character": 20, "end_character": 27[}]\], "content": \[[{]"message": 0, "begin": 10, "end": 13, .*[}] [{]"text": ' \
    render --tokenizer "$work/t" --template llama2 "$work/good.jsonl"
check "two lines" test "$(wc -l <"$work/stdout")" = 2
"$sheaf" render --tokenizer "$work/t/tokenizer_config.json" --template llama2 - <"$work/good.jsonl" >"$work/piped"
same "standard input, and a file of the folder" "$work/stdout" "$work/piped"
cat "$work/good.jsonl" | "$sheaf" render --tokenizer "$work/t" --template llama2 - >"$work/piped"
same "and a pipe" "$work/stdout" "$work/piped"
{ echo '['; sed '1s/$/,/' "$work/good.jsonl"; echo ']'; } >"$work/array.json"
"$sheaf" render --tokenizer "$work/t" --template llama2 "$work/array.json" >"$work/piped"
same "one JSON array" "$work/stdout" "$work/piped"
echo '{"messages": [{"role": "user", "content": "a"}]}' >"$work/question.jsonl"
runs "the generation prompt" 0 '"text": "<.im_start.>user.na<.im_end.>.n<.im_start.>assistant.n"' \
    render --tokenizer "$work/t" --template chatml --generation-prompt "$work/question.jsonl"

cat >"$work/pairs.jsonl" <<'END'
{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "old"}, {"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]}
{"prompt": "p is", "completion": " z", "label": false}
END
runs "both answers of a pair, of which the prompt's is not learnt" 0 \
    '^[{]"side": "chosen", .*na.*old.*yes<.im_end.>.n", "template": "chatml", "spans": \[[{]"message": 3, "begin": 116, "end": 129, [^{]*[}]\].*[{]"side": "rejected", .*no<.*"spans": \[[{]"message": 3, "begin": 116, "end": 128, [^{]*[}]\].*[{]"side": "undesirable", "text": "p is z", .*"begin": 4, "end": 6,' \
    render --tokenizer "$work/t" --template chatml "$work/pairs.jsonl"
check "three lines" test "$(wc -l <"$work/stdout")" = 3
for side in chosen rejected; do # of each the one whose roles do not alternate
    sed "1s/\"$side\": \[/&{\"role\": \"assistant\", \"content\": \"Hm.\"}, /" "$work/pairs.jsonl" >"$work/half.jsonl"
    runs "a pair whose $side answer cannot be rendered" 3 'line 1: message 5: .*roles must alternate' render --tokenizer "$work/t" --template llama2 "$work/half.jsonl"
    check "is not printed, the other record is" test "$(cut -c1-24 "$work/stdout")" = '{"side": "undesirable", '
done

cat >"$work/bad.jsonl" <<'END'
{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}, {"role": "tool", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"messages": [{"role": "user", "content": "a", "content": "b"}]}
{"text": "a"}
END
runs "bad records are named, the others are printed" 3 \
    '"text": "<s>\[INST\] a \[/INST\] b </s>".*4 of 5 records are bad.*line 1: message 3: .*roles must alternate.*line 2: message 2: .*line 4: .*line 5: field .messages.' \
    render --tokenizer "$work/t" --template llama2 "$work/bad.jsonl"
echo '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >"$work/system.jsonl"
runs "a message that the published template drops is said" 0 'warning: 1 record with a message that chat template mistral-v3 leaves out' \
    render --tokenizer "$work/t" --template mistral-v3 "$work/system.jsonl"
runs "an unknown name" 2 'chat template +expected: llama2, llama3, .* or plain +found: +.lama3. +try: +llama3 $' \
    render --tokenizer "$work/t" --template lama3 "$work/good.jsonl"
# What the tokenizer stores: a program, a file of its own, a list of named ones.
templates=$SHEAF_SOURCE_ROOT/tests/data/templates
stores() { # stores DIR JSON: tokenizer_config.json with this chat_template
    mkdir -p "$work/$1"
    printf '{"bos_token": "<s>", "eos_token": "</s>", "chat_template": %s}\n' "$2" >"$work/$1/tokenizer_config.json"
}
chatml="\"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\\\n' + m.content + '<|im_end|>\\\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}\""
stores one "$chatml"
runs "a stored program is recognised" 0 '"template": "chatml"' render --tokenizer "$work/one" "$work/good.jsonl"
stores several "[{\"name\": \"rag\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": $chatml}]"
runs "of several the one called default" 0 '"template": "chatml"' render --tokenizer "$work/several" "$work/good.jsonl"
stores unnamed '[{"name": "rag", "template": "x"}]'
runs "several without a default" 2 '^sheaf: --template .*found: +none, and the tokenizer stores several' render --tokenizer "$work/unnamed" "$work/good.jsonl"
runs "a name helps" 0 '"template": "zephyr"' render --tokenizer "$work/unnamed" --template zephyr "$work/good.jsonl"
cp "$templates/llama3.jinja" "$work/one/chat_template.jinja"
runs "chat_template.jinja counts before tokenizer_config.json" 0 '"template": "llama3"' render --tokenizer "$work/one" "$work/good.jsonl"
stores zebra "${chatml/m.content/(m.content + (\'s\' if \'zebra\' in m.content else \'\'))}"
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "zebra"}]}' >"$work/zebra.jsonl"
runs "the stored program is what is run" 0 'assistant.nzebras<.im_end' render --tokenizer "$work/zebra" "$work/zebra.jsonl"
runs "but where a template is named" 0 'assistant.nzebra<.im_end' render --tokenizer "$work/zebra" --template chatml "$work/zebra.jsonl"
stores other '"{% for m in messages %}{{ m.content }}|{% endfor %}"'
runs "any program will do" 0 '"text": "é[?]\|4\|", "template": "stored", "spans": \[[{]"message": 1, "begin": 4, "end": 6,' render --tokenizer "$work/other" "$work/good.jsonl"
stores cannot '"{% for m in messages %}\n{% include m.content %}{% endfor %}"'
runs "what cannot be run is named with its line" 3 'tokenizer_config.json: line 2: the statement include +try: +another template, .*llama2, llama3, .* or plain' \
    render --tokenizer "$work/cannot" "$work/good.jsonl"
mkdir "$work/map"
printf '{"bos_token": "<s>", "eos_token": "</s>"}' >"$work/map/tokenizer_config.json"
printf '{"eos_token": "<end>"}' >"$work/map/special_tokens_map.json"
runs "special_tokens_map.json counts" 0 ' 4 <end>"' render --tokenizer "$work/map" --template llama2 "$work/good.jsonl"
printf '{"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": {}}' >"$work/map/tokenizer_config.json"
runs "but where added_tokens_decoder is" 0 ' 4 </s>"' render --tokenizer "$work/map" --template llama2 "$work/good.jsonl"
stores broken '"{% for m in messages %}"'
runs "a broken one with its line" 3 'tokenizer_config.json: line 1: chat template +expected: +else' render --tokenizer "$work/broken" "$work/good.jsonl"
stores long "${chatml%\"}{% set a = range(100000)|list %}{% for i in range(90000) %}{% if a|sum %}{% endif %}{% endfor %}\""
runs "one that would work for hours is refused" 3 'tokenizer_config.json: line 1: more than [0-9]+ steps' render --tokenizer "$work/long" "$work/good.jsonl"
stores dated "\"{{ strftime_now('%H:%M') }}\""
runs "one that changes with the hour is not run" 3 'strftime_now' render --tokenizer "$work/dated" "$work/good.jsonl"
cp "$templates/llama3.2.jinja" "$work/dated/chat_template.jinja"
runs "one that writes a date has today's, and says so" 0 "Today Date: $(LC_ALL=C date '+%d %b %Y')|chat template llama3.2 writes a date: today's" \
    render --tokenizer "$work/dated" "$work/good.jsonl"
runs "or one that is given" 0 'Today Date: 26 Jul 2024.*"template": "llama3.2", "date": "26 Jul 2024"' \
    render --tokenizer "$work/dated" --date 2024-07-26 "$work/good.jsonl"
runs "a day that there is not" 2 "^sheaf: --date +expected: a day as YYYY-MM-DD, or .*found: +'2023-02-29'" \
    render --tokenizer "$work/dated" --date 2023-02-29 "$work/good.jsonl"
for day in today Now; do
    runs "a day that is another one tomorrow" 2 "found: +'$day' +try: +--date ..date \+%F., the day itself" \
        render --tokenizer "$work/dated" --date $day "$work/good.jsonl"
done
runs "a date for a template that writes none" 2 '^sheaf: --date 2024-07-26 +expected: .*llama3.2 or smollm3 +found: +zephyr' \
    render --tokenizer "$work/dated" --template zephyr --date 2024-07-26 "$work/good.jsonl"
stores number 5
runs "a number is no template" 3 "tokenizer_config.json: 'chat_template' +expected: a template" render --tokenizer "$work/number" "$work/good.jsonl"

# Names that no file says are those of the tokenizer's class.
mkdir "$work/class"
echo '{"tokenizer_class": "LlamaTokenizer"}' >"$work/class/tokenizer_config.json"
cat >"$work/class/tokenizer.json" <<'END'
{"version": "1.0", "added_tokens": [{"id": 0, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
 {"id": 1, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
 "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
 "model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2, "<unk>": 3}, "merges": []}}
END
runs "bos and eos of the tokenizer's class" 0 '"text": "<s>.INST. 2.2. ./INST. 4 </s>"' render --tokenizer "$work/class" --template llama2 "$work/good.jsonl"

mkdir "$work/none"
runs "no template at all" 2 '^sheaf: --template +expected: llama2, .* +found: +none, and the tokenizer stores none' render --tokenizer "$work/none" "$work/good.jsonl"
runs "a tokenizer without eos" 2 'chat template zephyr +expected: a tokenizer with an eos token' \
    render --tokenizer "$work/none" --template zephyr "$work/good.jsonl"
runs "no file" 3 'nothing.jsonl' render --tokenizer "$work/t" --template zephyr "$work/nothing.jsonl"

# ---- an output that takes nothing is nobody's record ----
for _ in $(seq 100); do cat "$work/good.jsonl"; done >"$work/many.jsonl"
code=0
"$sheaf" render --tokenizer "$work/t" --template llama2 "$work/many.jsonl" >/dev/full 2>"$work/stderr" || code=$?
check "a full disk ends it" test $code -eq 3
printf 'sheaf: standard output\n  found:    No space left on device\n' >"$work/want"
same "and is told once, of no record" "$work/want" "$work/stderr"
finish
