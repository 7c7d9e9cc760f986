#!/usr/bin/env bash
# Texts as people have them, from raw data to an adapter: forms and packed files give the same bytes, packed rows and rows
# by length at any number of ranks and threads, a cache is found again; what is wrong is named before the first step.
. "$(dirname "$0")/lib.sh"

text_model 128
for i in $(seq 24); do # some long, some short
    q=$(printf 'why %.0s' $(seq $((i * 7 % 11 + 1)))) a="fox $i"
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$q\"}, {\"role\": \"assistant\", \"content\": \"$a\"}]}" >>"$work/talk.jsonl"
    echo "{\"from\": 1, \"conversations\": [{\"from\": \"human\", \"value\": \"$q\"}, {\"from\": \"gpt\", \"value\": \"$a\"}]}" >>"$work/share.jsonl"
done
{ echo '['; sed '$!s/$/,/' "$work/talk.jsonl"; echo ']'; } >"$work/talk.json"
gzip -c "$work/talk.jsonl" >"$work/packed"
mkdir "$work/parts"
head -n 9 "$work/talk.jsonl" >"$work/parts/a.jsonl"
tail -n +10 "$work/talk.jsonl" | gzip -c >"$work/parts/b.jsonl.gz"

train() { # train NAME PATTERN OUT FLAG...
    local name=$1 pattern=$2 out=$3
    shift 3
    runs "$name" 0 "$pattern" train --model "$work/model" --out "$work/$out" --steps 3 --lr 1e-2 "$@"
}
like() { same "$1" "$work/$2/checkpoints" "$work/$3/checkpoints"; }

train "messages, in the template that the tokenizer stores" . talk --data "$work/talk.jsonl"
check "the run names it" grep -qx 'template: chatml' "$work/talk/settings"
check "what is not asked for is not stored" bash -c "! grep -qE 'pack|length|loss-on|on-long|specials' '$work/talk/settings'"
train "ShareGPT" "field 'from' is not used" share --data "$work/share.jsonl"
like "is the same data" talk share
train "an array, on 2 ranks" . array --data "$work/talk.json" --tp 2
like "is the same data, too" talk array
train "a packed file, into a cache" "24 records are tokenised, in $work/caches" gzip --data "$work/packed" --data-cache "$work/caches"
like "is the same data, packed" talk gzip
train "which is found again" "24 records were tokenised before" again --data "$work/packed" --data-cache "$work/caches" --threads 1
like "with the same rows" talk again
train "a folder of files" . folder --data "$work/parts"
like "is the same data, in parts" talk folder
check "and all of it is read" bash -c "! grep -q 'not read' '$work/stderr'"
for other in c.jsonl.xz C.JSONL more; do
    mkdir "$work/parts/$other"
    train "what else lies there is told" "warning: $work/parts: 1 of its entries is not read, '$other': texts are files" "folder_$other" --data "$work/parts"
    rmdir "$work/parts/$other"
    like "and not read" talk "folder_$other"
done
touch "$work/parts/.index" "$work/parts/README.md" "$work/parts/c.csv"
train "or counted" "2 of its entries are not read, '(README.md|c.csv)' and others" folder_two --data "$work/parts"
# ---- names of other programs, and records that are bad ----
sed 's/"messages"/"dialog"/; s/"role"/"speaker"/g; s/"content"/"said"/g' "$work/talk.jsonl" >"$work/named.jsonl"
names=dialog=messages,speaker=role,said=content
train "fields by other names" . named --data "$work/named.jsonl" --fields $names
same "are the same data" "$work/talk/adapter" "$work/named/adapter"
runs "also where they are judged" 0 '"loss"' eval --model "$work/named" --data "$work/named.jsonl" --fields $names --json
runs "and asked" 0 . generate --model "$work/model" --data "$work/named.jsonl" --fields $names --max-new 1
runs "a name that is none of a record's" 2 '--fields.*expected: THEIRS=OURS.*found: +a=prompts' train --model "$work/model" --out "$work/none" --steps 1 --data "$work/talk.jsonl" --fields a=prompts
runs "names behind blanks" 0 '"loss"' eval --model "$work/named" --data "$work/named.jsonl" --fields "${names//,/, }" --json
runs "one name for two" 2 '--fields.*found: +dialog=text' train --model "$work/model" --out "$work/none" --steps 1 --data "$work/talk.jsonl" --fields dialog=messages,dialog=text
{ echo 'no record'; head -n 5 "$work/talk.jsonl"; echo '{"messages": []}'; tail -n +6 "$work/talk.jsonl"; } >"$work/some.jsonl"
runs "bad records" 3 'some.jsonl: line 1: not a record' train --model "$work/model" --out "$work/none" --steps 1 --data "$work/some.jsonl"
train "that are left out" 'warning: .*/some.jsonl: 2 of 26 records are bad and left out .--on-bad skip.: line 1: .*; line 7: ' some --data "$work/some.jsonl" --on-bad skip
same "leave the same data" "$work/talk/adapter" "$work/some/adapter"
train "into a cache" '2 of 26 records are bad and left out' some_cached --data "$work/some.jsonl" --on-bad skip --data-cache "$work/caches"
train "which says so again" '2 of 26 records are bad and left out.*tokenised before|tokenised before.*2 of 26 records are bad and left out' some_again --data "$work/some.jsonl" --on-bad skip --data-cache "$work/caches"
same "with the same rows" "$work/talk/adapter" "$work/some_again/adapter"
runs "or answered" 0 '2 of 26 records are bad and left out' generate --model "$work/model" --data "$work/some.jsonl" --max-new 1 --on-bad skip
runs "and compared" 0 '2 of 26 records are bad and left out' eval --model "$work/model" --data "$work/some.jsonl" --match --max-new 1 --on-bad skip
{ yes no | head -n 66000; head -n 3 "$work/talk.jsonl"; } >"$work/late.jsonl"
train "however many come first" '66000 of 66003 records are bad and left out' late --data "$work/late.jsonl" --on-bad skip --threads 1
printf 'no record\nnor this\n' >"$work/nothing.jsonl"
runs "none but bad ones" 3 "2 of 2 records are bad +found" train --model "$work/model" --out "$work/none" --steps 1 --data "$work/nothing.jsonl" --on-bad skip
printf '\357\273\277why?\n\nwhat "else"?\r\n' >"$work/plain.txt"
printf '"why?"\n"what \\"else\\"?"\n' >"$work/plain.jsonl"
runs "prompts as plain lines" 0 . generate --model "$work/model" --data "$work/plain.txt" --max-new 3
cp "$work/stdout" "$work/plain"
runs "are those of JSON" 0 . generate --model "$work/model" --prompts "$work/plain.jsonl" --max-new 3
same "the same answers" "$work/stdout" "$work/plain"
printf '{"prompt": "why?"}\n{"prompt": "what \\"else\\"?"}\n' >"$work/objects.txt"
runs "JSON by another name" 0 . generate --model "$work/model" --data "$work/objects.txt" --max-new 3
same "is JSON" "$work/stdout" "$work/plain"
echo '<img>a.png</img>what?' >"$work/spelled.txt"
runs "a picture that a line spells out" 0 "warning: .*/spelled.txt: line 1: '<img>...</img>' in a question is read as text" generate --model "$work/model" --data "$work/spelled.txt" --max-new 1

# ---- pictures, which this model does not read ----
asks='{"role": "assistant", "content": "a"}]'
echo '{"extra": 1, "messages": [{"role": "user", "content": "q"}, '"$asks}" >"$work/seen.jsonl"
echo '{"image": "a.png", "messages": [{"role": "user", "content": "<image>q"}, '"$asks}" >>"$work/seen.jsonl"
echo '{"messages": [{"role": "user", "content": [{"type": "text", "text": "<img>a.png</img>q"}]}, '"$asks, \"images\": []}" >>"$work/seen.jsonl"
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<img>a.png</img>"}]}' >"$work/written.jsonl"
train "a text model's records with pictures" "line 1: field 'extra' is not used.*line 2: field 'image' is not used: llama has no pictures" lost --data "$work/seen.jsonl"
tail -n 1 "$work/seen.jsonl" >"$work/spelled.jsonl"
train "or with one that is spelled out" "line 1: '<img>...</img>' in a question is read as text" spelled --data "$work/spelled.jsonl"
runs "so it is where they are asked" 0 "line 1: '<img>...</img>' in a question is read as text" generate --model "$work/model" --data "$work/spelled.jsonl" --max-new 2
train "an answer may write one" . written --data "$work/written.jsonl"
check "without a word" bash -c "! grep -q 'in a question' '$work/stderr'"

# ---- the program that is stored is run, whatever its text; settings keep the name of one that writes much the same ----
cp -r "$work/model" "$work/stored"
cp "$SHEAF_SOURCE_ROOT/tests/data/templates/chatml.jinja" "$work/stored/chat_template.jinja"
printf "%s" "{% if 'zebra' in messages[-1].content %}zoo{% endif %}" >>"$work/stored/chat_template.jinja"
sed 's/fox 3/zebra/' "$work/talk.jsonl" >"$work/zebra.jsonl"
runs "a run by the stored program" 0 . train --model "$work/stored" --data "$work/talk.jsonl" --out "$work/held" --steps 1
check "names the template" grep -qx 'template: chatml' "$work/held/settings"
runs "it is judged by the program" 0 . eval --model "$work/held" --data "$work/zebra.jsonl" --loss-on all --json
cp "$work/stdout" "$work/by_program"
runs "or by a template that is named" 0 . eval --model "$work/held" --data "$work/zebra.jsonl" --loss-on all --json --template chatml
check "which writes another text" bash -c "! cmp -s '$work/by_program' '$work/stdout'"
printf '{%% for m in messages %%}### {{ m.role|title }}: {{ m.content }}\n{%% endfor %%}{%% if add_generation_prompt %%}### Assistant:{%% endif %%}' >"$work/stored/chat_template.jinja"
runs "any program will do" 0 'prompt template stored; .*### Assistant:>>> ?[a-z].*<<<' train --model "$work/stored" --data "$work/talk.jsonl" --out "$work/simple" --steps 1
check "its name is that it is stored" grep -qx 'template: stored' "$work/simple/settings"
runs "a run of it is asked by it" 0 . generate --model "$work/simple" --prompt hello --max-new 1
runs "and goes on" 0 . train --model "$work/stored" --data "$work/talk.jsonl" --out "$work/simple" --resume --steps 2
# ---- tools: their descriptions, calls and results are the program's ----
printf '%s' "{% if tools %}<tools>{{ tools|tojson }}</tools>{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function|tojson }}</call>{% endfor %}{% endif %}{{ m.content or '' }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}" >"$work/stored/chat_template.jinja"
sed -i 's/128/512/' "$work/stored/config.json"
cat >"$work/calls.jsonl" <<'END'
{"tools": [{"type": "function", "function": {"name": "add"}}], "messages": [{"role": "user", "content": "1+2?"}, {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]}, {"role": "tool", "content": "3"}, {"role": "assistant", "content": "fox 3"}]}
END
runs "calls are learnt and results are read" 0 '<tools>.*<user>1.2.</user><assistant>>>><call>[{]"name": "add", "arguments": [{]"a": 1, "b": 2[}][}]</call></assistant><<<<tool>3</tool><assistant>>>>fox 3</assistant><<<' \
    train --model "$work/stored" --data "$work/calls.jsonl" --out "$work/called" --steps 1
runs "a template without tools refuses them" 3 "line 1: message 2: 'tool_calls' +expected: +no calls of tools +found: +some, which the chat template chatml does not write" \
    train --model "$work/stored" --data "$work/calls.jsonl" --out "$work/not_called" --steps 1 --template chatml
cp "$SHEAF_SOURCE_ROOT/tests/data/templates/qwen3.jinja" "$work/stored/chat_template.jinja"
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>b</think>c"}, {"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]}\n' >"$work/cut.jsonl"
runs "an answer whose thoughts are cut later is not learnt without them" 3 'line 1: message 2 +expected: +an answer that follows the prompt for it in the text' \
    train --model "$work/stored" --data "$work/cut.jsonl" --out "$work/cut" --steps 1
runs "the last one is" 0 . train --model "$work/stored" --data "$work/cut.jsonl" --out "$work/last" --steps 1 --loss-on last
# ---- a template that takes long for every record ----
cp "$SHEAF_SOURCE_ROOT/tests/data/templates/chatml.jinja" "$work/stored/chat_template.jinja"
printf "%s" "{% if 'zebra' in messages[0].content %}{% for i in range(9000) %}{% if [1.1, 2.2]|tojson %}{% endif %}{% endfor %}{% endif %}" >>"$work/stored/chat_template.jinja"
for i in $(seq 9000); do echo '{"messages": [{"role": "user", "content": "zebra"}, {"role": "assistant", "content": "a"}]}'; done >"$work/long.jsonl"
timeout -k 30 -s TERM 1 "$sheaf" train --model "$work/stored" --data "$work/long.jsonl" --out "$work/long" --steps 1 >/dev/null 2>"$work/stderr" && code=0 || code=$?
check "ends at a signal, before its records are read" test "$code" = 124
check "and says so" grep -q 'a request to stop while its records were read' "$work/stderr"
# ---- the same tokenizer.json beside another config.json may be another tokenizer: Qwen2's composes accents ----
mkdir "$work/words"
cp "$work"/model/tokenizer*.json "$work/words/"
for i in $(seq 9); do printf '{"prompt": "cafe\u0301 %s", "completion": " fox"}\n' "$i"; done >"$work/accents.jsonl"
for kind in llama qwen2; do
    echo "{\"model_type\": \"$kind\"}" >"$work/words/config.json"
    train "texts for the tokenizer of $kind" . "accents_$kind" --data "$work/accents.jsonl" --tokenizer "$work/words"
    train "are not taken from another's cache" "9 records are tokenised, in $work/accents/" "kept_$kind" --data "$work/accents.jsonl" --tokenizer "$work/words" --data-cache "$work/accents"
    like "so that they are the same data" "accents_$kind" "kept_$kind"
    train "but from their own" '9 records were tokenised before' "found_$kind" --data "$work/accents.jsonl" --tokenizer "$work/words" --data-cache "$work/accents"
done
check "which is not the same data" bash -c "! diff -r '$work/kept_llama/checkpoints' '$work/kept_qwen2/checkpoints' >/dev/null"
# ---- fields that are null are none ----
sed 's/^{/{"text": null, "conversations": null, "image": null, "note": null, "prompt": null, /; s/}$/, "tools": null}/' "$work/talk.jsonl" >"$work/nulls.jsonl"
train "empty columns of a table" . nulls --data "$work/nulls.jsonl"
like "are no data" talk nulls
check "and not told as unread" bash -c "! grep -q 'not used' '$work/stderr'"
both() { # both NAME COMMAND FLAG...: the same of both files
    local name=$1
    shift
    runs "$name" 0 . "$@" --data "$work/talk.jsonl"
    cp "$work/stdout" "$work/without"
    runs "$name, with nulls" 0 . "$@" --data "$work/nulls.jsonl"
    same "$name: the same" "$work/without" "$work/stdout"
}
both "a loss" eval --model "$work/talk" --json
both "answers compared" eval --model "$work/talk" --match --max-new 2 --json
both "answers" generate --model "$work/talk" --max-new 2 --greedy --json
"$sheaf" render --tokenizer "$work/model" "$work/talk.jsonl" >"$work/without" 2>/dev/null
runs "texts of the template, with nulls" 0 . render --tokenizer "$work/model" "$work/nulls.jsonl"
same "texts of the template: the same" "$work/without" "$work/stdout"
printf '{"text": null}\n{"messages": null, "completion": "b"}\n{"text": "c", "prompt": null}\n' >"$work/void.jsonl"
runs "a record of nulls has no form, in training" 3 "line 1: field 'prompt': expected a record has .*found no such field.*line 2: field 'prompt'" train --model "$work/model" --data "$work/void.jsonl" --out "$work/none" --steps 1
runs "nor in eval" 3 "line 1: field 'prompt': expected a record has .*found no such field.*line 2: field 'prompt'" eval --model "$work/model" --data "$work/void.jsonl"
runs "nor in generate" 3 "3 of 3.*line 1: record: expected .*\"prompt\".*line 2: record.*line 3: record" generate --model "$work/model" --data "$work/void.jsonl" --max-new 1
# ---- a template that writes a date ----
mkdir "$work/dated"
cp "$work"/model/* "$work/dated/"
sed 's/128/512/' "$work/config.json" >"$work/dated/config.json"
cp "$SHEAF_SOURCE_ROOT/tests/data/templates/smollm3.jinja" "$work/dated/chat_template.jinja"
dated() { # dated NAME CODE PATTERN COMMAND FLAG...
    local name=$1 code=$2 pattern=$3 command=$4
    shift 4
    runs "$name" "$code" "$pattern" "$command" --data "$work/two.jsonl" "$@"
}
sed -n 2,3p "$work/talk.jsonl" | sed 's/\[/[{"role": "system", "content": "x \/no_think"}, /' >"$work/two.jsonl"
dated "no run learns today's date unasked" 2 'chat template smollm3.*--date 2024-07-26' train --model "$work/dated" --out "$work/none" --steps 1
dated "it learns one that is given" 0 . train --model "$work/dated" --out "$work/day" --steps 1 --date 2026-11-02
check "and stores it" grep -qx 'date: 2026-11-02' "$work/day/settings"
dated "eval of the run takes it" 0 . eval --model "$work/day" --json
loss=$(json_number "$work/stdout" loss)
dated "as if it were given" 0 . eval --model "$work/dated" --adapter "$work/day/adapter" --date 2026-11-02 --json
check "with the same loss" test "$(json_number "$work/stdout" loss)" = "$loss"
dated "another day is another loss" 0 . eval --model "$work/day" --date 2026-05-01 --json
check "as it says" test "$(json_number "$work/stdout" loss)" != "$loss"
runs "it cannot change" 2 'date cannot change' train --resume --out "$work/day" --steps 2 --date 2026-11-03
runs "an answer has the run's" 0 . generate --model "$work/day" --template smollm3 --system /no_think --prompt hi --max-new 1
check "and says nothing of today" bash -c "! grep -q today '$work/stderr'"
runs "or today's where there is none" 0 "chat template smollm3 writes a date: today's, $(LC_ALL=C date '+%d %B %Y')" \
    generate --model "$work/dated" --template smollm3 --system /no_think --prompt hi --max-new 1
# ---- a run is judged as it was trained, in every setting that decides the loss ----
sed 's/fox/fox <|im_end|> on/' "$work/talk.jsonl" >"$work/marked.jsonl"
train "all is learned, marks are tokens, long ones are cut" 'are longer than 40 tokens and cut there' judged --data "$work/talk.jsonl" --loss-on all --specials --on-long cut \
    --seq 40 --eval-data "$work/marked.jsonl" --eval-every 1
loss=$(tail -n 1 "$work/judged/metrics.jsonl" | sed 's/.*"eval_loss": //; s/,.*//')
for from in judged judged/checkpoints/step-00000003; do
    runs "eval of $from" 0 'longer than 40 tokens and cut there' eval --model "$work/$from" --data "$work/marked.jsonl" --json
    check "says what its evaluation said" near "$(json_number "$work/stdout" loss)" "$loss" 1e-14
done
for flags in '--loss-on answers' --no-specials '--on-long skip' '--seq 30'; do
    runs "eval with $flags" 0 . eval --model "$work/judged" --data "$work/marked.jsonl" $flags --json
    other=$(json_number "$work/stdout" loss)
    if near "$other" "$loss" 1e-6; then other=the same; fi
    check "is of something else" test "$other" != "the same"
done
runs "eval reads them by the run's words" 0 '"tokens":[1-9]' eval --model "$work/talk" --data "$work/talk.jsonl" --json

train "packed rows by length" '24 records are packed into [1-9] rows of at most 128 tokens' pack --data "$work/talk.jsonl" --pack --seq 128 --group-by-length --micro-batch 2
train "and on 3 ranks with checkpointing" . pack3 --data "$work/talk.jsonl" --pack --seq 128 --group-by-length --micro-batch 2 --tp 3 --checkpointing
like "have the same bytes" pack pack3
check "both are stored" bash -c "grep -qx 'pack: true' '$work/pack/settings' && grep -qx 'group-by-length: true' '$work/pack/settings'"
runs "neither can change" 2 'pack cannot change' train --resume --out "$work/pack" --no-pack --steps 4

fails() { # fails NAME CODE PATTERN DATA FLAG...
    local name=$1 code=$2 pattern=$3 data=$4
    shift 4
    runs "$name" "$code" "$pattern" train --model "$work/model" --data "$data" --out "$work/none" --steps 1 "$@"
    absent "$name: nothing is left" "$work/none"
}
{ head -n 3 "$work/talk.jsonl"; echo '{"messages": [{"role": "user", "content": "q"}]}'; printf '{"messages": "\xff"}\n'; } >"$work/bad.jsonl"
fails "bad records are all named" 3 "2 of 5 records are bad.*line 4: field 'messages': expected an answer at the end.*line 5: not a record: expected UTF-8" "$work/bad.jsonl" \
    --data-cache "$work/none/cache"
ln -s "$work" "$work/here"
for place in none none/tokens none/cache/of/these none/adapter here/none/x parts/../none; do
    fails "a cache in $place, where a run begins" 2 "data-cache $work/$place.*outside --out, or $work/none/cache.*found: *$work/none" "$work/talk.jsonl" --data-cache "$work/$place"
done
train "a cache of the run's own" '24 records are tokenised, in' own --data "$work/talk.jsonl" --data-cache "$work/here/own/cache/"
like "is no other data" talk own
fails "long ones are counted" 3 '[0-9]+ lines are longer than --seq.*--on-long cut' "$work/talk.jsonl" --seq 20
fails "if all are, nothing is left" 3 'nothing is left of it' "$work/talk.jsonl" --seq 5 --on-long skip
sed 's/400/300/' "$work/config.json" >"$work/small.json"
runs "a smaller model" 0 . init "$work/small.json" "$work/small"
runs "another model's tokenizer" 3 'at most 300 tokens.*400' train --model "$work/small" --tokenizer "$work/model" --data "$work/talk.jsonl" --out "$work/none" --steps 1
{ printf '\xef\xbb\xbf'; sed 's/$/\r/' "$work/talk.jsonl"; } >"$work/windows.jsonl"
train "a byte order mark and lines that end as on Windows" . windows --data "$work/windows.jsonl"
like "are the same data" talk windows
{ printf '{"messages": '; printf '[%.0s' {1..3000}; echo; } >"$work/deep.jsonl"
fails "no end of lists" 3 'deep.jsonl: line 1: .*fewer levels' "$work/deep.jsonl"
mkdir "$work/nothing"
fails "a folder with nothing" 3 'a file, or a folder of .json.*found: *a folder with none' "$work/nothing"
printf 'PAR1....PAR1' >"$work/rows.parquet"
fails "Parquet" 3 "read_parquet.*$work/rows.parquet $work/rows.jsonl" "$work/rows.parquet"
train "a template of another model" "warning: the chat template llama3 ends answers with '<.eot_id.>', which is no token of this tokenizer" marks --data "$work/talk.jsonl" --template llama3 --on-long cut
printf 'a,b\n1,2\n' >"$work/table.csv"
fails "a table" 3 "a table of comma-separated values.*csv.DictReader.*$work/table.csv" "$work/table.csv"
fails "rows of no length" 2 '--pack.*--seq N beside it' "$work/talk.jsonl" --pack
fails "an order that is none" 2 '--group-by-length.*random order' "$work/talk.jsonl" --group-by-length --no-shuffle
# ---- special tokens that a text writes ----
printf '{"text": "%s"}\n' '<|im_start|>user\nwhy<|im_end|>' plain '<s>fox</s>' >"$work/marked.jsonl"
said="2 of 3 records write special tokens as text"
train "they are letters, which is said" "$said .'<.im_start.>' in line 1.: .*--specials" letters --data "$work/marked.jsonl"
train "also of rows that go into a cache" "$said .'<" letters_in --data "$work/marked.jsonl" --data-cache "$work/letters_cache"
train "and come from it" "$said: they are learnt as letters" letters_from --data "$work/marked.jsonl" --data-cache "$work/letters_cache"
like "the same data" letters letters_from
runs "in eval too" 0 "$said" eval --model "$work/model" --data "$work/marked.jsonl"
sed '3!d' "$work/talk.jsonl" | sed 's/fox/<s>fox/' >"$work/answered.jsonl"
train "in an answer" "1 of 1 records write special tokens as text .'<s>' in line 1" answered --data "$work/answered.jsonl"
printf '"a<|im_end|>"\n{"prompt": "b"}\n' >"$work/ask.jsonl"
runs "a prompt's are told as well" 0 "1 of 2 prompts write special tokens as text .'<.im_end.>'" generate --model "$work/model" --data "$work/ask.jsonl" --max-new 1
train "with --specials they are tokens" . tokens --data "$work/marked.jsonl" --specials
check "of which nothing is said" bash -c "! grep -q 'special tokens' '$work/stderr'"
printf '{"text": "fox"}\n{"prompt": "fox", "completion": "es"}\n' >"$work/bare.jsonl"
sed 's/"fox"/"<s>fox"/; s/fox"}/fox<\/s>"}/; s/es"/es<\/s>"/' "$work/bare.jsonl" >"$work/ends.jsonl"
for n in 1 2; do
    sed "$n!d" "$work/bare.jsonl" >"$work/bare.$n.jsonl"
    sed "$n!d" "$work/ends.jsonl" >"$work/ends.$n.jsonl"
    train "a text" . "bare_$n" --data "$work/bare.$n.jsonl"
    train "its own bos and eos are the only ones" . "ends_$n" --data "$work/ends.$n.jsonl" --specials
    same "as those that are added" "$work/bare_$n/adapter/adapter_model.safetensors" "$work/ends_$n/adapter/adapter_model.safetensors"
done
train "long ones are left out, and it is said" '[1-9][0-9]* of 24 records are longer than 40 tokens and left out' skip --data "$work/talk.jsonl" --seq 40 --on-long skip
finish
