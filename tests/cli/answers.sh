#!/usr/bin/env bash
# Answers: where one ends, what its text is and when two are equal is the same for eval --match, generate and chat, whatever
# template taught it. Small models that learn two answers by heart, so that accuracy 1 and exact match 1 go together.
. "$(dirname "$0")/lib.sh"

text_model 256
sed 's/^{/{"sheaf_tokenizer": "bytes", /' "$work/config.json" >"$work/bytes.json"
runs "one of bytes" 0 . init "$work/bytes.json" "$work/of_bytes" --seed 3
talk() { printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$@"; }
talk one two three four >"$work/talk.jsonl"

# learns NAME MODEL DATA FLAG...: a run that knows its records by heart.
learns() {
    local name=$1 model=$2 data=$3
    shift 3
    runs "$name: is learnt" 0 . train --model "$model" --data "$data" --out "$work/$name" --method full --steps 60 --lr 1e-2 --warmup 0 --micro-batch 2 "$@"
}
# agree NAME END TEXT FLAG...: all three commands say so of the first record; with its data in $data.
agree() {
    local name=$1 end=$2 text=$3 model=$4
    shift 4
    runs "$name: eval" 0 '"accuracy":1.0,"exact_match":1.0,"exact_match_nocase":1.0' eval --model "$model" --data "$data" --match --max-new 48 --json "$@"
    runs "$name: generate" 0 "\"text\":\"$text\",\"end\":\"$end\".*\"match\":true.*\"exact_match\":1.0" generate --model "$model" --data "$data" --greedy --max-new 48 --json "$@"
}
says() { # says NAME TEXT MODEL FLAG...
    local name=$1 text=$2
    shift 2
    echo one | "$sheaf" chat --model "$@" --greedy --max-new 48 >"$work/stdout" 2>"$work/stderr"
    check "$name: chat" test "$(cat "$work/stdout")" = "$text"
}
data=$work/talk.jsonl
# the template's end is no eos of the config; it may be no token at all, or one that is not special
for t in chatml qwen3 qwen3-thoughts gemma phi3 zephyr vicuna mistral-nemo llama2; do
    learns "$t" "$work/model" "$data" --template "$t"
    case $t in gemma | phi3) end=text ;; *) end=token ;; esac
    agree "$t" $end two "$work/$t"
    says "$t" two "$work/$t"
done
learns bytes "$work/of_bytes" "$data" --template chatml
shown='prompt template chatml; the first record as the model sees it, with what is learnt between >>> and <<<: '
check "a run says its template" grep -qF "$shown" "$work/stderr"
check "and what it learns" grep -qF "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n>>>two<|im_end|><<<\n" "$work/stderr"
runs "one that goes on has said so" 0 . train --resume --out "$work/bytes" --steps 61
check "and does not again" bash -c "! grep -q 'first record' '$work/stderr'"
agree "bytes, whose template's end is text" text two "$work/bytes"
sed 's/"vocab_size": 400/"vocab_size": 640/' "$work/config.json" >"$work/pieces.json"
runs "one whose tokenizer writes a blank in front of a text" 0 . init "$work/pieces.json" "$work/of_pieces" --seed 3
cp "$SHEAF_SOURCE_ROOT/tests/data/tokenizers/llama2.json" "$work/of_pieces/tokenizer.json"
echo '{"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}' >"$work/of_pieces/tokenizer_config.json"
learns pieces "$work/of_pieces" "$data" --template llama2
check "blanks of an answer are shown" grep -qF "<<<: <s> [INST] one [/INST]>>> two </s><<<" "$work/stderr"
agree "Llama 2's pieces" token two "$work/pieces"
says "Llama 2's pieces" two "$work/pieces"
talk one 'two~~three' three 'four~~one' >"$work/bytes.jsonl"
learns waves "$work/of_pieces" "$work/bytes.jsonl" --template llama2
runs "a byte that waits for others ends an answer too" 0 '"tokens":\[[0-9,]*[0-9],129\],"text":"two","end":"text".*,129\],"text":"four"' generate --model "$work/waves" --data "$work/bytes.jsonl" --greedy --max-new 48 --json --stop '~'

# ---- the model's own folder, whose tokenizer stores the template: no flag names it ----
copy_with() { # copy_with NAME: the model as $work/NAME
    cp -r "$work/model" "$work/$1"
}
copy_with blanks
cp "$SHEAF_SOURCE_ROOT/tests/data/templates/llama2.jinja" "$work/blanks/chat_template.jinja"
learns llama2-stored "$work/blanks" "$data"
agree "Llama 2's template, stored, which puts blanks around" token two "$work/llama2-stored/model"
runs "the prompt is not said again" 0 "^two four" generate --model "$work/llama2-stored/model" --data "$data" --greedy --max-new 48
copy_with plain_end
sed -i 's/"id":3,\([^}]*\)"special":true/"id":3,\1"special":false/' "$work/plain_end/tokenizer.json"
learns letters "$work/plain_end" "$data"
agree "an end that is no special token" token two "$work/letters/model"
says "an end that is no special token" two "$work/letters/model"

# ---- turns that end in blanks alone: eos, which the tokenizer has, is learnt as the end of each answer ----
copy_with open
printf '%s' "{% for m in messages %}### {{ m.role }}:{{ '\n' + m.content + '\n\n' }}{% endfor %}{% if add_generation_prompt %}### assistant:{{ '\n' }}{% endif %}" >"$work/open/chat_template.jinja"
printf '{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "five"}, {"role": "assistant", "content": "six"}]}\n' >"$work/turns.jsonl"
talk three four >>"$work/turns.jsonl"
data=$work/turns.jsonl
learns open-end "$work/open" "$data"
check "it says so" grep -q 'template stored writes no mark behind an answer: its end is learned as </s>, the end of text' "$work/stderr"
check "it shows so" grep -qF '### user:\none\n\n### assistant:\n>>>two<<<>>></s><<<\n\n### user:\nfive\n\n### assistant:\n>>>six<<<>>></s><<<\n\n' "$work/stderr"
agree "turns that end in blanks" token six "$work/open-end/model"
says "turns that end in blanks" two "$work/open-end/model"
runs "the last alone" 0 '\n>>>six<<<>>></s><<<' train --model "$work/open" --data "$data" --out "$work/open-last" --steps 1 --loss-on last
check "and not the one before" grep -qF 'assistant:\ntwo\n\n### user' "$work/stderr"
runs "all of it" 0 '>>>.*### user:.nfive.*six.n.n</s><<<' train --model "$work/open" --data "$data" --out "$work/open-all" --steps 1 --loss-on all

# ---- thoughts: none are no text of an answer, some are, however they are set off ----
talk one '<think>why</think>two' three '<think>\n\n</think>\n\nfour' >"$work/thoughts.jsonl"
data=$work/thoughts.jsonl
learns thoughts "$work/model" "$data" --template qwen3
agree "thoughts" token '<think>.nwhy.n</think>.n.ntwo' "$work/thoughts"
runs "pieces of an answer without any" 0 '^\{"piece":"t"\} \{"piece":"wo"\} \{"tokens":.*"text":"two"' generate --model "$work/qwen3" --prompt one --greedy --max-new 48 --stream --json
runs "of one with some" 0 '^\{"piece":"<think>.n' generate --model "$work/thoughts" --prompt one --greedy --max-new 48 --stream --json

# ---- texts without a template ----
printf '{"prompt": "%s", "completion": " %s"}\n' one two three four >"$work/pairs.jsonl"
data=$work/pairs.jsonl
learns pairs "$work/model" "$data"
shown=${shown/prompt template chatml/no prompt template}
check "it says it of texts" grep -qF "$shown<s>one>>> two</s><<<" "$work/stderr"
printf '{"text": "%s"}\n' "$(printf 'word%d ' {1..90})" >"$work/long.jsonl"
runs "of a long one both ends" 0 ': <s>>>>word1 word2 .* \.\.\. .*word90 </s><<<' train --model "$work/model" --data "$work/long.jsonl" --out "$work/long" --steps 1 --on-long cut --seq 2000
agree "a completion that begins with a blank" token ' two' "$work/pairs"
copy_with other_eos
sed -i 's/"eos_token_id": 1/"eos_token_id": 4/' "$work/other_eos/config.json"
learns other-eos "$work/other_eos" "$data"
agree "the tokenizer's eos is learnt, the config's is another" token ' two' "$work/other-eos"

# ---- what a run with --specials learnt is asked so ----
talk '<|endoftext|>one' two 'three' four >"$work/marks.jsonl"
printf '{"prompt": "<s>one<|im_start|>%s", "completion": "%s"}\n' x 't<|im_end|>wo</s>' y four >"$work/texts.jsonl"
for data in "$work/marks.jsonl" "$work/texts.jsonl"; do
    of=specials-$(basename "$data" .jsonl)
    learns "$of" "$work/model" "$data" --specials
    agree "$of" token two "$work/$of"
    check "$of: nothing is spelled out" bash -c "! grep -q 'as text' '$work/stderr'"
    runs "$of: by the flag" 0 '"exact_match":1.0' generate --model "$work/$of/model" --data "$data" --specials --greedy --max-new 9 --json $([[ $data = *texts* ]] || echo --template chatml)
done

# ---- records that are bad, or have a field that is not read, are named once, and left out of both ----
{ cat "$work/talk.jsonl"; talk five '' | sed 's/^{/{"extra": 1, /'; echo '{bad'; talk '<s>' four; } >"$work/some.jsonl"
runs "bad records are left out of what is answered" 0 '"exact_match":0.66[0-9]*,"exact_match_nocase":0.66[0-9]*,"answers":3' eval --model "$work/chatml" --data "$work/some.jsonl" --match --on-bad skip --json
check "and named once" test "$(grep -cE '^warning: .*(left out|write special tokens)' "$work/stderr")" = 2

# ---- rows of tokens: their labels say how the answer ends ----
row() { # row END: <s> P a b END P, of which a b END P is learnt
    tokens_file "$work/rows.safetensors" 2 7 "0 40 41 42 $1 60 61  0 50 51 52 $1 60 61" "-100 -100 41 42 $1 60 -100  -100 -100 51 52 $1 60 -100"
}
data=$work/rows.safetensors
row 3
learns rows "$work/model" "$data"
agree "the end of the stored template" token '[^"]*' "$work/rows"
tokens_file "$data" 2 5 "0 40 3 60 61  0 50 51 3 61" "-100 -100 3 -100 -100  -100 -100 51 3 -100"
learns nothing-said "$work/model" "$data"
agree "an answer that is empty" token '' "$work/nothing-said"
check "is compared too" grep -q '"match":true.*"match":true' "$work/stdout"
copy_with second_eos
sed -i '/chat_template/d; s/PreTrainedTokenizerFast",/PreTrainedTokenizerFast"/' "$work/second_eos/tokenizer_config.json"
row 60
echo '{"eos_token_id": [1, 60]}' >"$work/second_eos/generation_config.json"
learns second "$work/second_eos" "$data"
check "of rows of tokens too" grep -q 'between >>> and <<<: <s>.*>>>.*<<<' "$work/stderr"
agree "a second eos in generation_config.json alone" token '[^"]*' "$work/second"
check "which goes with what is exported" cmp "$work/second_eos/generation_config.json" "$work/second/model/generation_config.json"
# ---- how long an answer may be: as generate has it ----
runs "answers that had not ended are counted" 0 "warning: 2 of 2 answers that are not equal had not ended after 2 tokens" eval --model "$work/qwen3" --data "$work/talk.jsonl" --match --max-new 2
echo '{"max_new_tokens": 3}' >"$work/qwen3/model/generation_config.json"
data=$work/talk.jsonl
runs "generation_config.json says how long in eval too" 0 'had not ended after 3 tokens' eval --model "$work/qwen3/model" --template qwen3 --data "$data" --match
runs "as in generate" 0 '"tokens":\[[0-9]+,[0-9]+,[0-9]+\]' generate --model "$work/qwen3/model" --template qwen3 --data "$data" --json
echo '{"repetition_penalty": 1000000}' >"$work/qwen3/model/generation_config.json"
for command in "eval --match" "generate --greedy"; do
    runs "and its penalty is one of both ($command)" 0 '"exact_match":0.0.*repetition_penalty 1e\+06' $command --model "$work/qwen3/model" --template qwen3 --data "$data" --json
done
finish
