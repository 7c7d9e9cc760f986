#!/usr/bin/env bash
# The commands of pages, as they stand there, on a small model in the place of a real one. Where a
# page leaves flags out ("sheaf train ...") or counts in thousands, smaller ones are put in.
. "$(dirname "$0")/lib.sh"

docs=$SHEAF_SOURCE_ROOT/docs
module_of_sources
mkdir "$work/bin" "$work/base"
ln -s "$sheaf" "$work/bin/sheaf"
cat >"$work/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "mlp_bias": false, "bos_token_id": 0, "eos_token_id": 1,
 "hidden_act": "silu", "rms_norm_eps": 1e-05, "max_position_embeddings": 2048, "initializer_range": 0.1, "rope_theta": 10000.0, "dtype": "float32",
 "head_dim": 8, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 1,
 "vocab_size": 400, "tie_word_embeddings": false}
END
runs "a small model" 0 . init "$work/config.json" "$work/base/BASE" --seed 3
cp "$SHEAF_SOURCE_ROOT"/tests/data/text/tokenizer*.json "$work/base/BASE/"
mkdir "$work/base/models"
for name in Llama-3.2-1B-Instruct models/llama-3 models/llama3; do ln -s "$work/base/BASE" "$work/base/$name"; done
for i in $(seq 24); do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"why fox $i\"}, {\"role\": \"assistant\", \"content\": \"fox $((i * i))\"}]}"; done >"$work/base/chats.jsonl"
for name in held-out held_out conversations; do cp "$work/base/chats.jsonl" "$work/base/$name.jsonl"; done
echo 'why, fox?' >"$work/base/notes.txt"
printf 'model_name_or_path: Llama-3.2-1B-Instruct\nfinetuning_type: lora\nlora_target: all\ndataset: conversations.jsonl\ntemplate: qwen\noutput_dir: run2\nnum_train_epochs: 1\n' \
    >"$work/base/llama3_lora_sft.yaml"

# commands PAGE: those of its code, a line each, without what stands beside them.
commands() {
    awk '/^    (sheaf|echo|python3 -m sheaf) / || on { sub(/^ +/, ""); on = sub(/ *\\$/, " "); printf on ? "%s" : "%s\n", $0 }' "$docs/$1.md" | grep -E '^(sheaf|echo|python3 -m sheaf) ' |
        sed -E 's/ +# .*//; s/ {4,}.*//; s/ {6,}one array.*//; s/\[791, 4062\]/[91, 62]/'
}
for page in tokenizers templates float16 evaluation coming-from; do
    cp -r "$work/base" "$work/$page"
    count=0
    while read -r command; do
        count=$((count + 1))
        [ $page = templates ] && [[ $command == *\ - ]] && command="head -n 1 conversations.jsonl | $command"
        # the template of the small model is ChatML
        [ $page = templates ] && command=${command/--template llama3/--template chatml}
        command=${command/train .../train --model BASE --data chats.jsonl --micro-batch 4 --out out$count}
        command=${command/--steps 5000/--steps 20}
        command=$(sed -E 's/--eval-every (100|250)/--eval-every 5/' <<<"$command")
        check "docs/$page.md: $command" bash -c 'cd "$1" && PATH=$2:$PATH && eval "$3" </dev/null' . "$work/$page" "$work/bin" "$command"
    done < <(commands $page)
    check "docs/$page.md has commands" test $count -ge 2
done

# The pages of models with pictures: their JSON and the block after it.
fenced() { awk -v kind="\`\`\`$1" '$0 == kind { on = 1; next } /^```/ { on = 0 } on' "$2"; }
for page in minicpmv:minicpmv-tiny:MiniCPM-V-2_6 omnilmm:omnilmm-tiny:OmniLMM-12B vision:cogvlm-tiny:CogVLM; do
    IFS=: read -r page spec name <<<"$page"
    mkdir "$work/$page"
    runs "$spec" 0 . init "$spec" "$work/$page/$name"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/420.jpg" "$work/$page/a.jpg"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/grey.jpg" "$work/$page/b.jpg"
    fenced json "$docs/$page.md" >"$work/$page/talks.json"
    fenced sh "$docs/$page.md" >"$work/$page/block"
    check "docs/$page.md has a block" test "$(grep -c '^sheaf' "$work/$page/block")" = 5
    while read -r command; do
        check "docs/$page.md: $command" bash -c 'cd "$1" && PATH=$2:$PATH && eval "$3" <<<"What?"' . "$work/$page" "$work/bin" "${command/#sheaf chat/sheaf chat --max-new 8}"
    done <"$work/$page/block"
done

# The README's example, with fewer steps, on a small model in the published one's place; it ends with a server.
mkdir "$work/readme"
ln -s "$SHEAF_SOURCE_ROOT/demo" "$work/readme/demo"
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/talk/config.json" "$work/readme/talk" --seed 7 >/dev/null 2>&1
cp "$SHEAF_SOURCE_ROOT"/tests/data/talk/tokenizer*.json "$work/readme/talk"
runs "README.md: its model" 0 . convert "$work/readme/talk" "$work/readme/smollm2.gguf" --to gguf
fenced sh "$docs/../README.md" | grep -v '^export PATH' | sed -E 's/--steps [0-9]+/--steps 2/; s/^sheaf serve ([^ ]*).*/timeout -s INT 10 sheaf serve --port 0 \1 || test $? -eq 124/' >"$work/readme/block"
check "README.md has an example" test "$(grep -c '^sheaf' "$work/readme/block")" -ge 7
runs_block() { (cd "$work/readme" && PATH=$work/bin:$PATH bash -e block >log 2>&1 </dev/null) || { tail -n 5 "$work/readme/log"; return 1; }; }
check "README.md: the example" runs_block

# Each form of record that docs/data.md shows, as it stands there.
while read -r form record; do
    echo "$record" >"$work/$form.jsonl"
    runs "docs/data.md: a record of form $form" 0 'tokens' eval --model "$work/base/BASE" --template chatml --data "$work/$form.jsonl" --json
done < <(sed -z 's/:\n  `/: `/g' "$docs/data.md" | sed -nE 's/^- \*\*(messages|ShareGPT|Alpaca|prompt|text)\*\*: `(.*)`$/\1 \2/p')
check "it shows five" test "$(ls "$work"/*.jsonl | wc -l)" -eq 5
finish
