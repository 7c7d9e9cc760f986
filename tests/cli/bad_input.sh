#!/usr/bin/env bash
# Bad input is refused before anything is written, with a message that names the
# place, what was expected, what was found and (where there is one) a way on.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
train() { # train NAME CODE PATTERN FLAG...: a run that must fail and leave no result
    local name=$1 code=$2 pattern=$3
    shift 3
    rm -rf "$work/out"
    runs "$name" "$code" "$pattern" train --method lora --lora-rank "${rank:-2}" --steps 2 --out "$work/out" "$@"
    absent "$name: no result is left" "$work/out/adapter"
}
edit() { sed -i "$2" "$1/config.json"; } # edit MODEL SED-SCRIPT

train "a model folder that is not there" 3 'nowhere' --model "$work/nowhere" --data "$data"
train "a data file that is not there" 3 'nothing.safetensors' --model "$model" --data "$work/nothing.safetensors"
mkdir "$work/empty"
train "a folder without config.json" 3 'expected: a model: its config\.json.*found: .*try: .*--config' --model "$work/empty" --data "$data"

bad=$(copy_model tiny_llama)
head -c 400000 "$model/model.safetensors" >"$bad/model.safetensors"
train "a truncated weight file" 3 'model\.safetensors.*expected.*found' --model "$bad" --data "$data"
bad=$(copy_model tiny_llama)
printf '\xff\xff\xff\xff\xff\xff\xff\x7f' | dd of="$bad/model.safetensors" conv=notrunc status=none
train "a hostile header length" 3 'model\.safetensors' --model "$bad" --data "$data"
rm "$bad/model.safetensors"
train "a folder without weights" 3 'tiny_llama' --model "$bad" --data "$data"
bad=$(copy_model tiny_llama)
echo '{"architectures": [' >"$bad/config.json"
train "a config that is not JSON" 3 'config\.json' --model "$bad" --data "$data"

bad=$(copy_model tiny_llama); edit "$bad" 's/"vocab_size": 511/"vocab_size": 600/'
train "a vocabulary that contradicts the weights" 3 'embed_tokens.*expected.*600.*found.*511' --model "$bad" --data "$data"
bad=$(copy_model tiny_llama); edit "$bad" 's/"num_attention_heads": 8/"num_attention_heads": 16/; s/"head_dim": 8/"head_dim": 8/'
train "heads that contradict the weights" 3 '(q_proj|o_proj|head).*expected' --model "$bad" --data "$data"
bad=$(copy_model tiny_llama); edit "$bad" 's/"num_hidden_layers": 3/"num_hidden_layers": 4/'
train "a layer that the weights lack" 3 'layers\.3\.' --model "$bad" --data "$data"
bad=$(copy_model tiny_qwen2); edit "$bad" 's/"tie_word_embeddings": true/"tie_word_embeddings": false/'
train "an untied head that is not there" 3 'lm_head' --model "$bad" --data "$llama/tiny_qwen2/fwd_inputs.safetensors"
bad=$(copy_model tiny_llama); edit "$bad" 's/LlamaForCausalLM/LlammaForCausalLM/; s/"model_type": "llama"/"model_type": "llamma"/'
train "an unknown architecture, with the nearest offered" 3 'llamma.*try:.*llama' --model "$bad" --data "$data"
bad=$(copy_model tiny_llama3rope); edit "$bad" 's/"rope_type": "llama3"/"rope_type": "llama4"/'
train "an unknown rope type, with the nearest offered" 3 'llama4.*llama3' --model "$bad" --data "$llama/tiny_llama3rope/fwd_inputs.safetensors"
train "an unknown target module, with the nearest offered" '[23]' 'q_prj.*q_proj' --model "$model" --data "$data" --lora-targets q_prj
train "an unknown module to exclude" '[23]' "lora-exclude: module to exclude 'q_prj'.*found: +no module of that name.*try: +q_proj" --model "$model" --data "$data" --lora-exclude q_prj
train "one that has no weights" '[23]' "module to exclude 'mlp'.*found: +one around others.*an expression" --model "$model" --data "$data" --lora-targets all-linear --lora-exclude q_proj,mlp
train "an expression that matches nothing" '[23]' "lora-exclude: expression '[.][*]prj'.*no module that it matches" --model "$model" --data "$data" --lora-exclude '.*prj'
runs "plan says so too" '[23]' "module to exclude 'q_prj'" plan --model "$model" --data "$data" --lora-exclude q_prj

tokens_file "$work/outside.safetensors" 1 4 "1 2 511 3" "1 2 511 3"
train "a token id outside the table" 3 '511.*|row' --model "$model" --data "$work/outside.safetensors"
tokens_file "$work/negative.safetensors" 1 4 "1 2 -5 3" "1 2 3 3"
train "a negative token id" 3 '-5' --model "$model" --data "$work/negative.safetensors"
tokens_file "$work/untrained.safetensors" 2 4 "1 2 3 4 5 6 7 8" "-100 -100 -100 -100 -100 -100 -100 -100"
train "data without a trainable token" 3 'label|train' --model "$model" --data "$work/untrained.safetensors"
echo '{"text": "hi"}' >"$work/words.jsonl"
echo '{"prompt": "hi", "completion": "ho"}' >"$work/pairs.jsonl"
train "text for a model that needs a tokenizer" 3 'tokenizer|byte' --model "$model" --data "$work/words.jsonl"

# ---- a file that is no data set is not blamed on the tokenizer ----
printf 'id,text\n1,hello\n' >"$work/table.csv"
cp "$work/table.csv" "$work/table.txt"
head -c 64 "$model/model.safetensors" >"$work/weights.bin"
cp "$model/config.json" "$work/config-as-data.json"
no_record='line 1: not a record'
train "a table" 3 "table.csv.*a table of comma-separated values.*try: +python3" --model "$model" --data "$work/table.csv"
train "one that does not say so" 3 "table.txt: $no_record" --model "$model" --data "$work/table.txt"
train "weights" 3 'weights.bin(: '"$no_record"'|.*begins with byte)' --model "$model" --data "$work/weights.bin"
train "a config" 3 "config-as-data.json: $no_record" --model "$model" --data "$work/config-as-data.json"
"$sheaf" init cogvlm-tiny "$work/cog" --seed 1 >/dev/null 2>&1
sed -i '/sheaf_tokenizer/d' "$work/cog/config.json"
for command in train eval; do
    also=(); [ $command = train ] && also=(--steps 1 --out "$work/out")
    runs "$command: nothing there" 3 'none.jsonl: cannot open' $command --model "$work/cog" --data "$work/none.jsonl" "${also[@]}"
    runs "$command: an empty folder" 3 'expected: images' $command --model "$work/cog" --data "$work/empty" "${also[@]}"
    runs "$command: a table for images" 3 'table.txt: 2 of 2 records are bad' $command --model "$work/cog" --data "$work/table.txt" "${also[@]}"
    check "each told in a line of its own" test "$(grep -c '^            line 2: not a record' "$work/stderr")" -eq 1
done
runs "records, and no tokenizer" 3 'texts.*expected: a tokenizer.model' train --model "$work/cog" --data "$work/pairs.jsonl" --steps 1 --out "$work/out"

# ---- positions that the model was not made for ----
"$sheaf" init tiny-bytes "$work/bytes" --seed 1 >/dev/null 2>&1
most=$(grep -oE '"max_position_embeddings": *[0-9]+' "$work/bytes/config.json" | grep -oE '[0-9]+')
printf '[{"text": "short"},\n{"text": "%*d"}]' $((most + 10)) 0 >"$work/long.json"
beyond="entry 2.*expected: +at most $most tokens, the model's max_position_embeddings.*--seq $((most + 12)) is more than"
train "a longer row" 3 "$beyond" --model "$work/bytes" --data "$work/long.json"
runs "eval of a longer row" 3 "$beyond" eval --model "$work/bytes" --data "$work/long.json"
runs "a longer row that is asked for" 0 "warning: rows of up to $((most + 12)) positions, more than the model's max_position_embeddings of $most" \
    train --model "$work/bytes" --data "$work/long.json" --seq $((most + 12)) --steps 1 --out "$work/beyond"
runs "a longer prompt" 3 "the prompt.*at most $most positions, the model's max_position_embeddings.*--max-length" generate --model "$work/bytes" --prompt "$(printf '%*d' "$most" 0)" --max-new 2
runs "one that leaves no room" 3 'sheaf: the prompt +expected: fewer positions than --max-length 3 +found: +3' generate --model "$work/bytes" --tokens 97,98,99 --max-new 2 --max-length 3
runs "or just one" 0 '"tokens": ?\[[0-9]+\]' generate --model "$work/bytes" --tokens 97,98,99 --max-new 2 --max-length 4 --greedy --json
runs "a longer prompt that is asked for" 0 "warning: prompt and answer: $((most + 3)) positions are more" generate --model "$work/bytes" --prompt "$(printf '%*d' "$most" 0)" --max-new 2 --max-length $((most + 5))
runs "plan of longer rows" 0 "warning: --seq: $((most + 1)) positions are more" plan --model "$work/bytes" --seq $((most + 1))

runs "a warm-up that is longer than the run" 0 'warning: --warmup 9 is not over after --steps 4: the learning rate ends at 0.333 of --lr 0.01' \
    train --model "$work/bytes" --data "$work/pairs.jsonl" --steps 4 --warmup 9 --lr 0.01 --out "$work/warm"
check "as the metrics say" near "$(tail -n 1 "$work/warm/metrics.jsonl" | sed 's/.*"lr": //; s/,.*//')" 0.00333333 1e-7
runs "one that just ends is none" 0 . train --model "$work/bytes" --data "$work/pairs.jsonl" --steps 4 --warmup 3 --lr 0.01 --out "$work/warmer"
check "to warn of" sh -c '! grep -q warmup "$1"' . "$work/stderr"

# ---- runs that train nothing, or less than is meant ----
few=(train --model "$work/bytes" --data "$work/pairs.jsonl")
runs "a step that is all warm-up" 2 '--warmup-ratio 0.03 .*expected: a learning rate above 0.*found: +0 in the one step.*try: .*more epochs, or fewer rows a step than 16' \
    "${few[@]}" --recipe qwen2-lora --seq 64 --accumulate 16 --warmup-ratio 0.03 --out "$work/still"
absent "is not begun" "$work/still"
# a recipe that comes with sheaf gives way to little data; a file, a flag and a run that goes on do not
runs "a recipe's step shrinks" 0 'little data for this recipe, which would take 1 step: rows are not packed, steps of 1 row in place of 16, no warm-up .* 3 epochs of 1 row are 3 steps of 1 row' \
    "${few[@]}" --recipe qwen2-lora --seq 64 --out "$work/small"
check "as its settings say" test "$(grep -E '^(accumulate|pack|warmup|warmup-ratio):' "$work/small/settings" | tr '\n' ' ')" = 'accumulate: 1 warmup: 0 warmup-ratio: 0 '
runs "and goes on with the recipe" 0 'going on after step 3' train --resume --recipe qwen2-lora --seq 64 --epochs 4 --out "$work/small"
runs "but with no flag of another step" 2 'accumulate cannot change' train --resume --recipe qwen2-lora --seq 64 --accumulate 2 --epochs 5 --out "$work/small"
runs "plan says the same" 0 'steps of 1 row in place of 16, no warm-up' plan --model "$work/bytes" --data "$work/pairs.jsonl" --recipe qwen2-lora --seq 64
runs "a file of settings says what it says" 2 '--warmup-ratio 0.03 .*found: +0 in the one step' \
    "${few[@]}" --recipe "$SHEAF_SOURCE_ROOT/recipes/qwen2-lora.recipe" --seq 64 --out "$work/still"
runs "no warm-up of a recipe takes the one step" 0 'no warm-up in so few steps' "${few[@]}" --recipe qwen2-lora --seq 64 --steps 1 --out "$work/one"
runs "by steps, too" 2 '--warmup 5 .*found: +0 in the one step' "${few[@]}" --steps 1 --warmup 5 --out "$work/still"
runs "no rate at all" 2 '--lr .*found: +0' "${few[@]}" --steps 1 --lr 0 --out "$work/still"
runs "a scale of what is frozen names what is trained" 2 "--lr-scale: 'model.layers.0.self_attn.q_proj.weight' .*try: +did you mean model.layers.0.self_attn.q_proj.lora_A.weight" "${few[@]}" --steps 1 --lr-scale model.layers.0.self_attn.q_proj.weight=0.1 --out "$work/still"
runs "nor by a scale for each tensor" 2 '--lr-scale .*found: +0 for all' "${few[@]}" --steps 1 --lr-scale '*lora_A*=0,*=0' --out "$work/still"
runs "nor where B stays as it begins" 2 '--lr-scale .*found: +0 for all of them but A' "${few[@]}" --steps 1 --lr-scale '*lora_B*=0' --out "$work/still"
runs "plan refuses them too" 2 '--warmup 5 .*found: +0 in the one step' plan --model "$work/bytes" --steps 1 --warmup 5
runs "also of data" 2 '--warmup-ratio 0.03 .*found: +0 in the one step' plan --model "$work/bytes" --data "$work/pairs.jsonl" --recipe qwen2-lora --seq 64 --accumulate 16 --warmup-ratio 0.03
runs "most steps of a few" 0 'warning: 1 of 2 steps trains nothing: --warmup-ratio 0.03 begins at a rate of 0; fewer warm-up steps' "${few[@]}" --steps 2 --warmup-ratio 0.03 --out "$work/few2"
runs "a run below SAT's held steps" 0 'warning: SAT.s auto-warmup of 100 steps is not over after --steps 4: the learning rate ends at 0.05' "${few[@]}" --steps 4 --schedule sat-cosine --out "$work/held"
runs "a step of more rows than there are" 0 '1 epoch of 1 row is 1 step of 32 rows warning: .* each is read [0-9.]+ times in all, not 1;' "${few[@]}" --epochs 1 --accumulate 32 --out "$work/often"
runs "steps that float16 skips" 0 'warning: nothing was trained: all 2 steps were skipped' "${few[@]}" --steps 2 --dtype float16 --loss-scale-init 85070591730234615865843651857942052864 --out "$work/skipped"
rates() { grep -o '"lr": [0-9.e-]*' "$1/metrics.jsonl" | tr -d '\n'; }
recipe=(--recipe qwen2-lora --seq 64 --accumulate 1 --schedule constant --lr 1)
runs "a flag against a recipe's way to say the same" 0 . "${few[@]}" "${recipe[@]}" --warmup 0 --steps 3 --out "$work/flag"
check "counts" test "$(rates "$work/flag")" = '"lr": 1"lr": 1"lr": 1'
runs "also of another number" 0 . "${few[@]}" "${recipe[@]}" --warmup 2 --steps 3 --out "$work/flag2"
check "counts, too" test "$(rates "$work/flag2")" = '"lr": 0"lr": 0.5"lr": 1'
runs "and when it goes on" 0 . train --resume --out "$work/flag2" --warmup 2 --steps 4
printf 'warmup: 2\neval-split: 0.5\n' >"$work/own.recipe"
runs "the other way round" 0 . "${few[@]}" --recipe "$work/own.recipe" --eval-data "$work/pairs.jsonl" --schedule constant --lr 1 --warmup-ratio 0.25 --steps 4 --out "$work/flag3"
check "as well" test "$(rates "$work/flag3")" = '"lr": 0"lr": 1"lr": 1"lr": 1'
runs "both as flags" 2 '--warmup and --warmup-ratio' "${few[@]}" --warmup 1 --warmup-ratio 0.5 --steps 4 --out "$work/still"

rank=4 train "an adapter for another base" 3 'adapter|lora_' --model "$llama/tiny_qwen2/hf" --data "$llama/tiny_qwen2/fwd_inputs.safetensors" --adapter "$llama/tiny_llama/lora/adapter_final"
runs "merging an adapter for another base" 3 'lora_|adapter' merge "$llama/tiny_qwen2/hf" "$llama/tiny_llama/lora/adapter_final" "$work/m"
absent "leaves nothing" "$work/m"
train "more ranks than slices" 2 'slices' --model "$model" --data "$data" --tp 9
train "slices that are no power of two" 2 'power of two' --model "$model" --data "$data" --slices 6

mkdir -p "$work/taken" && echo mine >"$work/taken/file"
runs "merging into a folder that exists" 2 'taken' merge "$model" "$llama/tiny_llama/lora/adapter_final" "$work/taken"
check "leaves it alone" grep -q mine "$work/taken/file"
runs "init into a folder that exists" 2 'taken' init "$model/config.json" "$work/taken"
runs "a run into the output of another" '3|2' 'resume|exists' train --model "$model" --data "$data" --method lora --steps 1 --out "$work/taken"
runs "which is told before the data are looked at" 2 'taken.*try: +go on with that run: --resume' train --model "$model" --data "$work/nothing.safetensors" --method lora --steps 1 --out "$work/taken"
runs "nor into a file" 2 'found: +a file.*try: +another --out' train --model "$model" --data "$work/nothing.safetensors" --steps 1 --out "$work/taken/file"
echo file >"$work/plain"
runs "an output below a file" 3 'plain' train --model "$model" --data "$data" --method lora --steps 1 --out "$work/plain/out"

# No space: a limit on the size of files, its signal ignored, makes write() fail.
( trap '' XFSZ; ulimit -f 40; "$sheaf" train --model "$model" --data "$data" --method lora --steps 1 --out "$work/full" --lora-targets all-linear --lora-rank 16 \
    >"$work/stdout" 2>"$work/stderr" </dev/null ); got=$?
check "no space: exit code 3" test $got -eq 3
check "no space: the file is named" grep -q "$work/full" "$work/stderr"
absent "no space: no adapter is left" "$work/full/adapter"

# A small stack, which cannot be raised: of the first thread, and of those that are made.
adapter=$llama/tiny_llama/lora/adapter_final
small_stack() (ulimit -s 24; "$sheaf" "$@")
check "a small stack: info" small_stack info "$model"
check "a small stack: verify" small_stack verify --threads 2 "$model"
check "a small stack: merge" small_stack merge "$model" "$adapter" "$work/small-merged"
check "a small stack: train" small_stack train --model "$model" --data "$data" --method lora --steps 1 --tp 2 --threads 4 --out "$work/small-run"
check "a small stack: eval" small_stack eval --model "$model" --data "$data"
check "a small stack: generate" small_stack generate --model "$model" --tokens 1,2 --max-new 2 --tp 2
check "a small stack: plan" small_stack plan --model "$model" --seq 8

runs "a loss that is not finite stops the run" 3 'finite' train --model "$model" --data "$data" --method full --steps 50 --micro-batch 2 --lr 1e30 --clip 0 --out "$work/nan"
check "and names the step" grep -qE 'step [0-9]+' "$work/stderr"
absent "and leaves no model" "$work/nan/model"

# ---- heads that attention does not take ----
sed 's/"head_dim": *[0-9]*/"head_dim": 258/' "$model/config.json" >"$work/wide.json"
grep -q '"head_dim": 258' "$work/wide.json" || sed -i '0,/{/s//{"head_dim": 258,/' "$work/wide.json"
runs "heads that are too wide: planned" 3 'config: head_dim +expected: at most 256 elements in a head +found: +258' plan --config "$work/wide.json" --micro-batch 1 --seq 16 --method lora
runs "a model of them is made" 0 . init "$work/wide.json" "$work/wide"
runs "and evaluated" 3 'config: head_dim +expected: at most 256' eval --model "$work/wide" --data "$data"

# ---- a tokenizer that is none, or that nothing is read with ----
echo '{"version": "1.0", "model": {"type": "BPE"}}' >"$work/tokenizer.json"
"$sheaf" init tiny-bytes "$work/bytes" >/dev/null 2>&1
echo '{"prompt": "a", "completion": "b"}' >"$work/text.jsonl"
tokens_file "$work/ids.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
sound=$golden/cogvlm/tiny_tokenizer.model
for command in "train --out $work/unread --steps 1" "eval"; do
    # shellcheck disable=SC2086
    runs "${command%% *}: tokenizer.json beside token ids" 3 '/tokenizer.json: model: BPE: .vocab. +expected: an object of tokens' $command --model "$work/bytes" --data "$work/ids.safetensors" --tokenizer "$work/tokenizer.json"
done
for file in "$work/tokenizer.json" "$sound"; do
    runs "train: a tokenizer for bytes" 2 'sheaf: --tokenizer +expected: none: the vocabulary of this model is bytes, as its config says +found: +[^ ]*/[a-z_]*tokenizer.(json|model) $' train --out "$work/unread" --steps 1 --model "$work/bytes" --data "$work/text.jsonl" --tokenizer "$file"
done
absent "nothing is begun" "$work/unread"
runs "a tokenizer beside token ids is said to do nothing" 0 'tokenizer .*tiny_tokenizer.model has no effect: these data hold token ids' eval --model "$llama/tiny_llama/hf" --data "$work/ids.safetensors" --tokenizer "$sound"
finish
