#!/usr/bin/env bash
# sheaf serve: answers are those of sheaf generate, whatever else is answered beside them; who may ask, how much and how
# often; connections that are slow, broken or gone block nobody.
. "$(dirname "$0")/lib.sh"

bytes=$work/bytes
runs "a model of bytes" 0 . init tiny-bytes "$bytes" --seed 11

starts() { serves "$1" serve "${@:2}"; } # starts NAME FLAG...
ask() { # ask PATH JSON [CURL_FLAG...]
    local path=$1 body=$2
    shift 2
    curl -sS --max-time 60 -H 'Content-Type: application/json' "$@" -d "$body" "$url$path"
}
json=(-H 'Content-Type: application/json')
images=$SHEAF_SOURCE_ROOT/tests/data/images
# Texts as JSON, spelled alike.
texts() { grep -oE '"(text|content)": ?"([^"\\]|\\.)*"' "$1" | sed -E 's/^"[a-z]*": ?//; s/\\u00([0-9A-F]{2})/\\u00\L\1/g'; }
# Pieces of a stream, joined.
pieces() { texts "$1" | sed 's/^"//; s/"$//' | tr -d '\n'; }

# ---- eight at once, of other lengths, sampled, streamed or whole ----
prompts=("a" "a text of its own" "another one that is quite a bit longer than the first, and goes on" "x y z" "1 2 3 4 5 6 7 8 9 10" "what" "the quick brown fox jumps over the lazy dog, again and again and again and again" "q")
long=(24 3 40 1 17 60 9 33)
for how in "--batch 3" "--batch 8 --tp 2" "--batch 1 --threads 1"; do
    # shellcheck disable=SC2086
    starts "a server, $how" "$bytes" $how
    asked=()
    for i in 0 1 2 3 4 5 6 7; do
        stream=$((i % 2))
        ask /v1/completions "{\"model\": \"bytes\", \"prompt\": \"${prompts[i]}\", \"max_tokens\": ${long[i]}, \"temperature\": 0.9, \"seed\": $((i + 5)), \"stream\": $([ $stream = 1 ] && echo true || echo false)}" -N >"$work/got$i" 2>&1 &
        asked+=($!)
    done
    wait "${asked[@]}"
    for i in 0 1 2 3 4 5 6 7; do
        if [ "$how" = "--batch 3" ]; then
            "$sheaf" generate "$bytes" --prompt "${prompts[i]}" --max-new "${long[i]}" --temperature 0.9 --seed $((i + 5)) --json >"$work/want$i" 2>/dev/null
        fi
        check "answer $i is that of generate" test -n "$(pieces "$work/want$i")" -a "$(pieces "$work/got$i")" = "$(pieces "$work/want$i")"
    done
    check "a stream ends as OpenAI's does" grep -qx 'data: \[DONE\]' "$work/got1"
    stops "it ends, $how"
done

# ---- one server for the rest ----
starts "another" "$bytes" --batch 2 --queue 2 --max-body 1 --log
ask /v1/chat/completions '{"model": "bytes", "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "what "}, {"type": "text", "text": "now"}]}], "max_completion_tokens": 20, "temperature": 0, "logprobs": true, "top_logprobs": 2}' >"$work/chat"
echo '{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "what now"}]}' >"$work/talk.jsonl"
own() { grep -oE '"id": [0-9]+, "logprob": [-0-9.e+]+, "bytes": \[[0-9,]*\]' "$1" | sed -E 's/^"id": ([0-9]+),.*\[(.*)\]$/\1 \2/'; }
check "each token has its own byte, a part of a character or not" test "$(own "$work/chat" | awk '$1 < 256 && $1 == $2 { n += 1 + 100 * ($1 > 127) } END { print (n > 160) }')" = 1
check "and never those of U+FFFD" test "$(own "$work/chat" | awk '$1 < 256 && $1 != $2' | wc -l)" = 0
"$sheaf" generate "$bytes" --data "$work/talk.jsonl" --template chat --max-new 20 --greedy --logprobs 2 --json >"$work/want" 2>/dev/null
check "a conversation is answered as generate does" test -n "$(texts "$work/want")" -a "$(texts "$work/chat" | head -n 1)" = "$(texts "$work/want")"
ids() { grep -oE '"(id|token)": ?[0-9]+, ?"logprob": ?[-0-9.e]+' "$1" | sed -E 's/^"[a-z]*": ?//; s/, ?"logprob": ?/ /'; }
check "with the same probabilities" test "$(ids "$work/chat" | awk '{ printf "%d %.5f\n", $1, $2 }')" = "$(ids "$work/want" | awk '{ printf "%d %.5f\n", $1, $2 }')"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "what now"}], "max_tokens": 20, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}' -N >"$work/streamed"
check "streamed it is the same" test "$(pieces "$work/streamed")" = "$(texts "$work/want" | sed 's/^"//; s/"$//')"
check "with how many tokens there were" grep -q '"choices": \[\], "usage": {"prompt_tokens": [0-9]*, "completion_tokens": 20' "$work/streamed"
# Some of 300 sampled bytes are characters of two: the last offset is less than the text is long.
ask /v1/completions '{"prompt": "ab", "max_tokens": 300, "temperature": 2, "top_k": -1, "seed": 2, "logprobs": 0}' >"$work/offsets"
characters=$(texts "$work/offsets" | sed -E 's/\\(u[0-9a-f]{4}|.)/x/g' | LC_ALL=C.UTF-8 wc -m)
last=$(grep -oE '"text_offset": \[[^]]*' "$work/offsets" | grep -oE '[0-9]+$')
check "offsets count characters of the text" test "${last:-0}" -gt 0 -a "${last:-999}" -lt "$((characters - 3))"
ask /v1/completions '{"prompt": ["ab", "cd"], "n": 2, "max_tokens": 5, "temperature": 1, "seed": 3, "logprobs": 1}' >"$work/four"
check "two prompts, two answers each" test "$(grep -o '"index": [0-3]' "$work/four" | sort -u | wc -l)" = 4
printf '"ab"\n"ab"\n"cd"\n"cd"\n' >"$work/four.jsonl"
"$sheaf" generate "$bytes" --data "$work/four.jsonl" --max-new 5 --temperature 1 --seed 3 --json >"$work/want" 2>/dev/null
check "are those of generate" test "$(texts "$work/four")" = "$(texts "$work/want")"
ask /v1/completions '{"prompt": [104, 105], "max_tokens": 8, "temperature": 0}' >"$work/ids"
"$sheaf" generate "$bytes" --tokens 104,105 --max-new 8 --greedy --json >"$work/want" 2>/dev/null
check "ids are continued" test "$(texts "$work/ids")" = "$(texts "$work/want")"
stop=$("$sheaf" generate "$bytes" --prompt "abc" --max-new 40 --greedy 2>/dev/null | tail -c 12 | head -c 1)
ask /v1/completions "{\"prompt\": \"abc\", \"max_tokens\": 40, \"temperature\": 0, \"stop\": [\"$stop\"]}" >"$work/got"
"$sheaf" generate "$bytes" --prompt "abc" --max-new 40 --greedy --stop "$stop" --json >"$work/want" 2>/dev/null
check "a stop text ends an answer" test "$(texts "$work/got")" = "$(texts "$work/want")"
ask /v1/completions '{"prompt": "a", "max_tokens": 6}' >"$work/first"
seed=$(json_number "$work/first" seed)
ask /v1/completions "{\"prompt\": \"a\", \"max_tokens\": 6, \"seed\": $seed}" >"$work/second"
check "a seed that nobody gave is told, and gives the same again" test "$(texts "$work/first")" = "$(texts "$work/second")"

# ---- answers that are JSON, beside others: those of generate, at every T, whatever the batch ----
schema='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "kind": {"enum": ["a", "bc"]}, "at": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}}, "required": ["name", "at"]}'
echo "$schema" >"$work/schema.json"
for i in 1 2 3; do echo "\"$i\"" >>"$work/numbers.jsonl"; done
formed="\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", \"schema\": $schema}}"
ask /v1/completions "{\"prompt\": [\"1\", \"2\", \"3\"], \"max_tokens\": 250, \"temperature\": 1, \"seed\": 4, \"logprobs\": 1, $formed}" >"$work/formed" &
formed_pid=$!
ask /v1/completions '{"prompt": "beside", "max_tokens": 250, "temperature": 1, "seed": 4}' >/dev/null
wait "$formed_pid"
for how in "--batch 1 --tp 1" "--batch 2 --tp 2 --threads 3" "--batch 3 --dp 3"; do
    # shellcheck disable=SC2086
    "$sheaf" generate "$bytes" --data "$work/numbers.jsonl" --max-new 250 --temperature 1 --seed 4 --json-schema "$work/schema.json" --logprobs 1 --json $how >"$work/want" 2>/dev/null
    check "answers of a schema are those of generate $how" test -n "$(texts "$work/want")" -a "$(texts "$work/formed")" = "$(texts "$work/want")"
done
check "and end with it" test "$(texts "$work/formed" | grep -cE '^"\{.*"}"$|^"\{.*]([ ]|\\[nt])*\}"$') $(grep -o '"finish_reason": "stop"' "$work/formed" | wc -l)" = "3 3"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0, "response_format": {"type": "json_object"}}' >"$work/got"
check "an object that is cut" grep -q '"content": "{.*"finish_reason": "length"' "$work/got"

# A prompt longer than what is read at once, asked again with more behind it: what was read of it is used.
words=$(printf 'word %d, ' $(seq 70))
for prompt in "$words" "$words" "${words}and more" "${words:0:300}"; do
    ask /v1/completions "{\"prompt\": \"$prompt\", \"max_tokens\": 12, \"temperature\": 0.8, \"seed\": 2}" >"$work/got"
    "$sheaf" generate "$bytes" --prompt "$prompt" --max-new 12 --temperature 0.8 --seed 2 --json >"$work/want" 2>/dev/null
    check "a long prompt of ${#prompt}" test -n "$(texts "$work/want")" -a "$(texts "$work/got")" = "$(texts "$work/want")"
done

# ---- what is refused ----
bad() { # bad NAME CODE PATTERN BODY [PATH]
    replies "$1" "$2" "$3" "${json[@]}" -d "$4" "$url${5:-/v1/chat/completions}"
}
hello='"messages": [{"role": "user", "content": "hello"}]'
bad "a word of a schema that is not followed" 400 "schema #/items: 'pattern'.*\"param\": \"response_format\"" "{$hello, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"items\": {\"pattern\": \"a\"}}}}}"
bad "a picture for a model that sees none" 400 'vision|image|picture' '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}'
head -c 1100000 /dev/zero | tr '\0' ' ' >"$work/large"
check "and one without its length" test "$(status "${json[@]}" -H 'Transfer-Encoding: chunked' --data-binary "@$work/large" "$url/v1/chat/completions")" != 200

# ---- a full queue; those who leave give their places back ----
endless='{"prompt": "a", "max_tokens": 1000, "temperature": 1, "seed": 1, "n": 64}'
health() { curl -s --max-time 10 "$url/health" | grep -q "$1"; }
left=()
for i in 1 2; do
    curl -s "${json[@]}" -d "$endless" "$url/v1/completions" >/dev/null 2>&1 &
    left+=($!)
done
check "one is answered, two wait" waits health '"running": 2, "waiting": 2'
replies "no more may" 429 'queue_full.*later' "${json[@]}" -d "$endless" "$url/v1/completions"
kill "${left[@]}"
wait "${left[@]}" 2>/dev/null
check "those who leave give their places back" waits health '"running": 0, "waiting": 0'

# ---- 500 idle connections, slow and broken ones ----
ulimit -n 2048 2>/dev/null || ulimit -n "$(ulimit -Hn)"
held=()
for i in $(seq 500); do
    exec {fd}<>"/dev/tcp/127.0.0.1/$port" && held+=("$fd")
    case $((i % 4)) in
        1) printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"pro' >&"$fd" ;;
        2) printf 'GET /v1/mod' >&"$fd" ;;
        3) head -c 300 /dev/urandom >&"$fd" 2>/dev/null ;;
    esac
done
check "500 connections" test "${#held[@]}" -eq 500
ask /v1/completions '{"prompt": "abc", "max_tokens": 5, "temperature": 0}' --max-time 10 >"$work/got"
"$sheaf" generate "$bytes" --prompt "abc" --max-new 5 --greedy --json >"$work/want" 2>/dev/null
check "do not keep others from their answers" test "$(texts "$work/got")" = "$(texts "$work/want")"
for fd in "${held[@]}"; do exec {fd}>&-; done
ask /v1/completions '{"prompt": "abc", "max_tokens": 5, "temperature": 0}' >"$work/got"
check "nor when they are gone" test "$(texts "$work/got")" = "$(texts "$work/want")"

# ---- the end: what has begun is answered ----
ask /v1/completions '{"prompt": "a", "max_tokens": 400, "temperature": 0, "n": 4}' >"$work/last" 2>/dev/null &
last=$!
check "some are under way" waits health '"running": [12]'
stops "Ctrl-C ends it"
wait $last
check "after the answer that had begun" grep -q '"completion_tokens": 1600' "$work/last"
# logged NAME TEXT: a line of the log, whose beginning is the same in all.
logged() { check "its log: $1" grep -qE "^20[0-9-]{8}T[0-9:]{8}Z 127\.0\.0\.1 $2\$" "$work/notes"; }
logged "a stop text" 'POST /v1/completions 200 model=bytes .* finish=stop'
logged "a client that left" 'POST /v1/completions closed model=bytes .* finish=cancelled'
check "no text of a request is in it" test "$(grep -c 'hello\|lazy' "$work/notes")" = 0

# ---- who leaves an answer of many seconds gives the place back at once ----
starts "one with room for long answers" "$bytes" --batch 1 --max-length 20000
for stream in true false; do
    curl -sN "${json[@]}" -d "{\"prompt\": \"a\", \"max_tokens\": 19000, \"temperature\": 0, \"stream\": $stream}" "$url/v1/completions" >"$work/streaming" &
    left=$!
    check "it is under way" waits health '"running": 1'
    sleep 0.1
    kill $left
    check "and soon is not" timeout 5 bash -c "until curl -s '$url/health' | grep -q '\"running\": 0'; do sleep 0.1; done"
done
stops "it has nothing left to do"

# ---- a token, and a rate ----
runs "an address of others without a token" 2 '--token-file' serve "$bytes" --host 0.0.0.0 --port 0
echo "0123456789abcdef0123456789abcdef" >"$work/token"
starts "with a token" "$bytes" --host 0.0.0.0 --token-file "$work/token" --rate 20
url=http://127.0.0.1:$port
replies "none" 401 'invalid_api_key' "$url/v1/models"
replies "the right one" 200 'bytes' -H "Authorization: Bearer $(cat "$work/token")" "$url/v1/models"
replies "how it is, without" 200 'ok' "$url/health"
check "too many requests" test "$(curl -s -w '\n%{http_code}\n' $(printf "$url/health %.0s" {1..60}) | tail -n 1)" = 429
stops "and that ends"

# ---- whole messages, for the template of a model of text: rendered by hand, as transformers does it ----
data=$SHEAF_SOURCE_ROOT/tests/data/talk
runs "a model of text" 0 . init "$data/config.json" "$work/text" --seed 7
cp "$data/tokenizer.json" "$work/text"
printf '%s' '{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "chat_template": "{% for m in messages %}{% if m.role == '"'function'"' %}{{ raise_exception('"'no functions'"') }}{% endif %}({{ m.role }}{% if m.name %} {{ m.name }}{% endif %}{% if m.mood %} {{ m.mood }}{% endif %}{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}: {% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ m.content or '"''"' }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}){% endfor %}{% if add_generation_prompt %}(assistant: {% endif %}"}' >"$work/text/tokenizer_config.json"
starts "it is served" "$work/text" --system "be brief"
# lays_out NAME TEXT MESSAGES: the next token is that after TEXT, of as many tokens, and as probable.
lays_out() {
    ask /v1/chat/completions "{\"messages\": [$3], \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": true}" >"$work/got"
    printf '%s' "$2" | sed 's/"/\\"/g' >"$work/quoted"
    ask /v1/completions "{\"prompt\": \"$(cat "$work/quoted")\", \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": 0}" >"$work/want"
    check "$1" test "$(grep -oE '"logprob": [-0-9.e]+' "$work/got" | grep -oE '[-0-9.e]+$') $(json_number "$work/got" prompt_tokens)" = "$(grep -oE '"token_logprobs": \[[-0-9.e]+' "$work/want" | grep -oE '[-0-9.e]+$') $(json_number "$work/want" prompt_tokens)"
}
user='{"role": "user", "content": "hello"}' system='(system: be brief)'
call='"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"at\":\"home\"}"}}]'
called='{"name": "f", "arguments": {"at": "home"}}'
lays_out "a question" "$system(user: hello)(assistant: " "$user"
lays_out "a field of the template's own, an answer of nothing" "$system(user glad: hello)(assistant: )(user: hello)(assistant: " "{\"role\": \"user\", \"content\": \"hello\", \"mood\": \"glad\"}, {\"role\": \"assistant\", \"content\": null}, $user"
lays_out "calls beside a content, thoughts and what came of it" "$system(user: hello)(assistant: <hm>see$called)(tool f c1: fine)(assistant: " \
    "$user, {\"role\": \"assistant\", \"content\": \"see\", \"reasoning_content\": \"hm\", $call}, {\"role\": \"tool\", \"tool_call_id\": \"c1\", \"name\": \"f\", \"content\": [{\"type\": \"text\", \"text\": \"fi\"}, {\"type\": \"text\", \"text\": \"ne\"}]}"
lays_out "calls without a content, as a client sends them back" "$system(user: hello)(assistant: $called)(user: hello)(assistant: " \
    "$user, {\"role\": \"assistant\", \"content\": null, \"refusal\": null, \"audio\": null, \"function_call\": null, $call}, $user"
lays_out "a developer is the system, wherever it speaks" "(system: a)(user: hello)(system: b)(user: hello)(user: hello)(assistant: " \
    "{\"role\": \"developer\", \"content\": \"a\"}, $user, {\"role\": \"system\", \"content\": \"b\"}, $user, $user"
lays_out "an answer at the end is followed by another" "$system(user: hello)(assistant: yes)(assistant: " "$user, {\"role\": \"assistant\", \"content\": \"yes\"}"
tools='"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}}, "required": ["at"], "$defs": {"at": {"enum": ["home"]}}}}}]' long='"max_tokens": 200, "seed": 1'
bad "tools where the template has no place for them" 400 "'tools'" "{\"messages\": [$user], $tools}"
bad "a turn that the template does not accept" 400 'no functions' "{\"messages\": [$user, {\"role\": \"function\", \"content\": \"a\"}]}"
bad "nothing that was asked" 400 "message 1: 'content'" '{"messages": [{"role": "user", "content": null}]}'
stops "it ends"

# ---- calls of tools: the template shows them, and a call that must be is one ----
printf '%s' '{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "chat_template": "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}({{ m.role }}: {{ m.content or '"''"' }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}){% endfor %}{% if add_generation_prompt %}(assistant: {% endif %}"}' >"$work/text/tokenizer_config.json"
starts "it is served" "$work/text"
for choice in '"required"' '{"type": "function", "function": {"name": "f"}}'; do
    ask /v1/chat/completions "{\"messages\": [$user], $tools, $long, \"tool_choice\": $choice}" >"$work/got"
    check "a call, by $choice" grep -qE '"content": null.*"tool_calls": \[\{"id": "[0-9a-zA-Z]{9}", "type": "function", "function": \{"name": "f", "arguments": "\{\\"at\\": \\"home\\"\}"\}\}\].*"finish_reason": "tool_calls"' "$work/got"
done
ask /v1/chat/completions "{\"messages\": [$user], $tools, $long, \"tool_choice\": \"required\", \"stream\": true}" -N >"$work/got"
check "streamed" grep -qE '"delta": \{"role": "assistant", "content": null, "tool_calls": \[\{"index": 0, "id": .*"finish_reason": "tool_calls"' "$work/got"
check "and nothing else" test "$(grep -c '^data: {' "$work/got")" = 1
lays_out "tools stand in the prompt" "[f](user: hello)(assistant: " "$user], $tools, \"metadata\": [{}"
stops "it ends"

# ---- a model that learnt thoughts and calls from records, whose prompt begins the thoughts; a special token marks calls ----
sed -i 's/{{ m.content or/{% if m.role == "assistant" %}<think>\\n{{ m.reasoning_content }}\\n<\/think>\\n\\n{% endif %}&/; s/<tool_call>\\n/<|im_start|>/; s/\\n<\/tool_call>//; s/(assistant: {%/(assistant: <think>\\n{%/; s/"assistant"/'"'assistant'"'/' "$work/text/tokenizer_config.json"
echo "{$tools, \"messages\": [$user, {\"role\": \"assistant\", \"reasoning_content\": \"hm\", \"content\": \"see\", $call}]}" >"$work/learn.jsonl"
runs "calls are learnt" 0 . train --model "$work/text" --data "$work/learn.jsonl" --out "$work/learnt" --lora-targets all-linear --steps 100 --lr 0.01
starts "the adapter is served" "$work/text" --adapter "$work/learnt"
learnt="\"model\": \"learnt\", \"messages\": [$user], \"temperature\": 0, \"max_tokens\": 200"
ask /v1/chat/completions "{$learnt, $tools}" >"$work/got"
check "it thinks, says and calls" grep -qE '"content": "see", .*"reasoning_content": "hm", "tool_calls": \[\{"id": "[0-9a-zA-Z]{9}", "type": "function", "function": \{"name": "f", "arguments": "\{\\"at\\": ?\\"home\\"\}"\}\}\]\}.*"finish_reason": "tool_calls"' "$work/got"
ask /v1/chat/completions "{$learnt, $tools, \"stream\": true}" -N >"$work/got"
check "streamed" test "$(grep -oE '"reasoning_content": "[a-z]*"' "$work/got" | cut -d'"' -f4 | tr -d '\n') $(pieces "$work/got") $(grep -c 'tool_calls.*home.*"finish_reason": "tool_calls"' "$work/got")" = "hm see 1"
# the same by /v1/responses
items="\"model\": \"learnt\", \"input\": \"hello\", \"temperature\": 0, \"max_output_tokens\": 200, $(sed 's/"function": {"name": "f"\(.*\)}}\]$/"name": "f"\1}]/' <<<"$tools")"
ask /v1/responses "{$items}" >"$work/got"
check "a response has items" grep -qE '^\{"id": "resp_.*"status": "completed".*"output": \[\{"id": "rs_.*"reasoning_text", "text": "hm"\}\]\}, \{"id": "msg_.*"output_text", "text": "see".*\{"id": "fc_.*"call_id": "[0-9a-zA-Z]{9}", "name": "f", "arguments": "\{\\"at\\": ?\\"home\\"\}"\}\], .*"reasoning_tokens": [1-9]' "$work/got"
ask /v1/responses "{$items, \"stream\": true}" -N >"$work/got"
check "and events" test "$(grep '^event: ' "$work/got" | uniq | cut -d. -f2- | tr '\n' ' ')" = "created in_progress $(for part in reasoning_text output_text; do echo "output_item.added content_part.added $part.delta $part.done content_part.done output_item.done"; done | tr '\n' ' ')output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed "
check "numbered" test "$(grep -o '"sequence_number": [0-9]*' "$work/got" | cut -d' ' -f2 | tr '\n' ' ')" = "$(seq 0 "$(($(grep -c '^event' "$work/got") - 1))" | tr '\n' ' ')"
ask /v1/responses '{"model": "text", "input": [{"role": "user", "content": "hello"}], "max_output_tokens": 4, "temperature": 0}' >"$work/got"
check "one that is cut" grep -qE '"status": "incomplete".*"incomplete_details": \{"reason": "max_output_tokens"\}' "$work/got"
bad "what is not here" 400 '"param": "previous_response_id"' '{"input": "a", "previous_response_id": "b"}' /v1/responses
bad "another tool" 400 '"param": "tools"' '{"input": "a", "tools": [{"type": "web_search"}]}' /v1/responses
stops "it ends"

# ---- tokens with their probabilities: blanks before words, parts of characters, the same text twice ----
sed 's/324/656/; s/Qwen2ForC/LlamaForC/; s/"qwen2"/"llama"/' "$data/config.json" >"$work/words.json"
runs "a model of words" 0 . init "$work/words.json" "$work/words" --seed 7
cp "$SHEAF_SOURCE_ROOT/tests/data/tokenizers/llama2.json" "$work/words/tokenizer.json"
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}' >"$work/words/tokenizer_config.json"
# judge FILE: a line for each answer, "good" or what is wrong with it; then how many blanks its tokens begin with.
judge() {
    sed 's/{"index"/\n&/g' "$1" | grep '^{"index"' | LC_ALL=C awk '{
        text = tokens = offsets = best = $0; why = "good"; at = 0; joined = ""; blanks = 0
        sub(/.*"text": "/, "", text); sub(/", "token_ids".*/, "", text); plain = text !~ /[^ -~]/
        sub(/.*"tokens": \["/, "", tokens); sub(/"\], "token_logprobs".*/, "", tokens)
        sub(/.*"text_offset": \[/, "", offsets); sub(/\].*/, "", offsets)
        sub(/.*"top_logprobs": \[\{/, "", best); sub(/\}\], "text_offset".*/, "", best)
        n = split(tokens, token, /", "/); split(offsets, offset, ","); split(best, of, /\}, \{/)
        for (i = 1; i <= n; i++) {
            if (plain && offset[i] != at) why = "an offset"
            joined = joined token[i]; blanks += token[i] ~ /^ /
            gsub(/\\u[0-9a-f][0-9a-f][0-9a-f][0-9a-f]|\\./, "x", token[i]); at += length(token[i])
            m = split(of[i], key, /": -?[0-9.e+-]+(, )?/)
            if (m != 21) why = "fewer than 20"
            for (k = 1; k < m; k++) if (seen[NR, i, key[k]]++) why = "two of one name"
        }
        if (plain && joined != text) why = "joined tokens"
        print why, plain, blanks }'
}
starts "it is served" "$work/words"
ask /v1/completions '{"prompt": "hello", "n": 64, "max_tokens": 2, "temperature": 3, "top_k": -1, "top_p": 1, "seed": 4, "logprobs": 20}' >"$work/got"
judge "$work/got" >"$work/judged"
check "tokens joined are the text, offsets fit, and no two of the best are one" test "$(grep -vc '^good' "$work/judged") $(awk '$(NF - 1) { n++; b += $NF } END { print (n > 9 && b > 2) }' "$work/judged")" = "0 1"
stops "it ends"

# ---- several adapters on one base ----
printf '{"text": "some words to learn from"}\n{"text": "and other ones"}\n' >"$work/learn.jsonl"
declare -A kind=([one]="--lora-rank 2" [two]="--lora-rank 5 --lora-dora --lora-targets all-linear" [three]="--lora-rank 3 --init pissa")
for name in one two three; do
    # shellcheck disable=SC2086
    runs "adapter $name" 0 . train --model "$bytes" --data "$work/learn.jsonl" --out "$work/run-$name" --steps 3 --lr 0.05 --lora-alpha 64 ${kind[$name]} --json
    mv "$work/run-$name/adapter" "$work/$name"
done
for way in "--tp 1 one two three" "--tp 2 bytes one two three one two bytes"; do
    read -r -a way <<<"$way"
    starts "a base and adapters of three kinds, ${way[*]:0:2}" "$bytes" --adapter "$work/one,$work/two,$work/three" --batch 4 "${way[@]:0:2}"
    asked=()
    for name in "${way[@]:2}"; do
        ask /v1/completions "{\"model\": \"$name\", \"prompt\": \"some words to\", \"max_tokens\": 30, \"temperature\": 0.7, \"seed\": 9}" >"$work/got-$name-${way[1]}-${#asked[@]}" &
        asked+=($!)
    done
    wait "${asked[@]}"
    stops "ended"
done
for name in bytes one two three; do
    "$sheaf" generate "$bytes" $([ $name = bytes ] || echo --adapter "$work/$name") --prompt "some words to" --max-new 30 --temperature 0.7 --seed 9 --json >"$work/want-$name" 2>/dev/null
    for got in "$work/got-$name"-*; do
        check "the answer of generate: ${got##*/got-}" test -n "$(texts "$work/want-$name")" -a "$(texts "$got")" = "$(texts "$work/want-$name")"
    done
done
check "they differ" test "$(for name in bytes one two three; do texts "$work/want-$name"; done | sort -u | wc -l)" = 4

# ---- other families, with angles that follow the length, windows and experts; weights in 4 bits ----
token_ids() { grep -oE '"(tokens|token_ids)": ?\[[0-9,]+\]' "$1" | grep -oE '[0-9,]+'; }
for of in phi3 gemma3 "mixtral --tp 2 --quantize nf4" "smollm3 --tp 2 --quantize nf4"; do
    read -r family how <<<"$of"
    model=$SHEAF_SOURCE_ROOT/tests/data/families/$family/hf
    # shellcheck disable=SC2086
    starts "$of" "$model" --batch 3 $how
    asked=()
    for i in 1 2 3 4; do
        ids[i]=3
        for ((j = 1; j < i * i + 8 * (i > 2); j++)); do ids[i]="${ids[i]},$((j * 7 % 20 + 3))"; done
        ask /v1/completions "{\"prompt\": [${ids[i]}], \"max_tokens\": $((i * 8)), \"temperature\": 0.8, \"seed\": $i}" >"$work/got$i" &
        asked+=($!)
    done
    wait "${asked[@]}"
    for i in 1 2 3 4; do
        "$sheaf" generate "$model" --tokens "${ids[i]}" --max-new $((i * 8)) --temperature 0.8 --seed $i --json ${how#--tp 2} >"$work/want$i" 2>/dev/null
        check "$of: answer $i" test -n "$(token_ids "$work/want$i")" -a "$(token_ids "$work/got$i")" = "$(token_ids "$work/want$i")"
    done
    stops "$family ends"
done

# ---- pictures, of a model that looks at them in every layer and of one that places them ----
for spec in cogagent-tiny minicpmv-tiny; do
    model=$work/$spec mark=""
    runs "$spec" 0 . init $spec "$model" --seed 3
    [ $spec = cogagent-tiny ] || { sed -i 's/"scale_resolution": 84/"scale_resolution": 14/' "$model/config.json" && mark="<image>"; }
    starts "it is served" "$model" --batch 2 --tp 2
    asked=()
    for picture in 420.jpg rgb8.png grey_alpha8.png; do
        kind=${picture##*.}
        { printf '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/%s;base64,' "${kind/jpg/jpeg}"
          base64 -w0 "$images/$picture"
          printf '"}}, {"type": "text", "text": "what is it"}]}], "max_tokens": 8, "temperature": 0.8, "seed": 3}'; } >"$work/asked-$picture"
        ask /v1/chat/completions "@$work/asked-$picture" >"$work/got-$picture" &
        asked+=($!)
    done
    wait "${asked[@]}"
    for picture in 420.jpg rgb8.png grey_alpha8.png; do
        printf '{"messages": [{"role": "user", "content": "%swhat is it"}], "image": "%s"}\n' "$mark" "$images/$picture" >"$work/seen.jsonl"
        if [ $spec = cogagent-tiny ]; then what=(--prompt "what is it" --image "$images/$picture"); else what=(--data "$work/seen.jsonl"); fi
        "$sheaf" generate "$model" "${what[@]}" --max-new 8 --temperature 0.8 --seed 3 --json >"$work/want" 2>/dev/null
        check "$spec sees $picture" test -n "$(texts "$work/want")" -a "$(texts "$work/got-$picture")" = "$(texts "$work/want")"
    done
    url_of() { printf '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "%s"}}]}]}' "$1"; }
    bad "$spec: a picture by address" 400 'nothing is fetched' "$(url_of http://example.com/a.png)"
    bad "$spec: a picture by file" 400 'nothing is fetched' "$(url_of "$images/420.jpg")"
    bad "$spec: no base64" 400 'nothing is fetched' "$(url_of 'data:image/png;base64,iVBORw0*')"
    bad "$spec: a picture that is none" 400 'JPEG, PNG or WebP' "$(url_of 'data:image/png;base64,aGVsbG8gd29ybGQh')"
    stops "$spec ends"
done
# ---- pictures that are large as pixels and small as files ----
be32() { printf "\\x$(printf %02x $(($1 >> 24 & 255)))\\x$(printf %02x $(($1 >> 16 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 & 255)))"; }
# chunk TYPE: of a PNG, with the data on standard input; gzip knows the CRC.
chunk() {
    { printf '%s' "$1"; cat; } >"$work/chunk"
    be32 $(($(stat -c %s "$work/chunk") - 4))
    cat "$work/chunk"
    be32 $(($(gzip -c <"$work/chunk" | tail -c 8 | od -An -tu4 -N4)))
}
# black SIDE: a PNG of one bit a pixel.
black() {
    local n=$((($1 + 7) / 8 * $1 + $1))
    head -c "$n" /dev/zero | gzip -9n >"$work/packed"
    printf '\x89PNG\r\n\x1a\n'
    { be32 "$1"; be32 "$1"; printf '\x01\0\0\0\0'; } | chunk IHDR
    { printf '\x78\xda'; tail -c +11 "$work/packed" | head -c -8; be32 $((n % 65521 << 16 | 1)); } | chunk IDAT
    chunk IEND </dev/null
}
# shows FILE COUNT [FIELD]: a question about a picture, COUNT times.
shows() {
    local part
    part="{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,$(base64 -w0 "$1")\"}},"
    printf '{"messages": [{"role": "user", "content": ['
    for _ in $(seq "$2"); do printf '%s' "$part"; done
    printf '{"type": "text", "text": "what"}]}], "max_tokens": 4, "temperature": 0%s}' "${3:-}"
}
black 13000 >"$work/bomb.png"
black 7000 >"$work/large.png"
head -c 60 "$work/large.png" >"$work/part.png"
black 30 >"$work/small.png"
for name in bomb large part; do shows "$work/$name.png" 1 >"$work/$name.json"; done
shows "$work/small.png" 60 >"$work/many.json"
shows "$work/small.png" 1 >"$work/small.json"
starts "a model with pictures, few positions and one place" "$work/minicpmv-tiny" --batch 1 --queue 8 --max-length 1000
for i in 1 2 3 4 5 6; do ask /v1/chat/completions "@$work/bomb.json" >"$work/bomb$i" & asked[i]=$!; done
wait "${asked[@]:1:6}"
check "too many pixels are refused by their size" test "$(grep -c 'picture 1: image size.*at most 64000000 pixels.*13000 x 13000' "$work"/bomb[1-6] | grep -c ':1')" = 6
bad "a long prompt, by the sizes of its pictures" 400 'positions|max_length' "@$work/many.json"
check "of all that nothing was decoded" test "$(awk '/VmHWM/ { print $2 }' /proc/$server/status)" -lt 150000
bad "a damaged picture, when it is decoded" 400 'picture 1: PNG: image data' "@$work/part.json"
ask /v1/chat/completions "@$work/large.json" >"$work/got-large" &
large=$!
check "a large picture is decoded" waits health '"running": 0, "waiting": 1'
ask /v1/chat/completions "@$work/large.json" >/dev/null 2>&1 &
left=$!
check "another one waits" waits health '"waiting": 2'
replies "a text is answered meanwhile" 200 choices "${json[@]}" -d "{$hello}" "$url/v1/chat/completions"
replies "and a small picture" 200 choices "${json[@]}" -d "@$work/small.json" "$url/v1/chat/completions"
check "which did not wait for it" kill -0 "$large"
kill "$left"
wait "$left" 2>/dev/null
wait "$large"
check "it is answered then" grep -q '"choices"' "$work/got-large"
check "who left is not waited for" waits health '"running": 0, "waiting": 0'
check "no name of a file of this process was in a reply" test "$(grep -l /proc/ "$work"/got-* "$work"/bomb* 2>/dev/null | wc -l)" = 0
stops "that ends, too"
starts "one with few pixels" "$work/minicpmv-tiny" --max-pixels 1
bad "a picture of more" 400 'at most 1000000 pixels' "@$work/large.json"
stops "and it"

runs "an adapter twice" 2 'different names' serve "$bytes" --adapter "$work/one,$work/one/" --port 0
finish
