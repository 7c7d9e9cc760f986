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
    runs "$name" "$code" "$pattern" train --method lora --lora-rank 2 --steps 2 --out "$work/out" "$@"
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

tokens_file "$work/outside.safetensors" 1 4 "1 2 511 3" "1 2 511 3"
train "a token id outside the table" 3 '511.*|row' --model "$model" --data "$work/outside.safetensors"
tokens_file "$work/negative.safetensors" 1 4 "1 2 -5 3" "1 2 3 3"
train "a negative token id" 3 '-5' --model "$model" --data "$work/negative.safetensors"
tokens_file "$work/untrained.safetensors" 2 4 "1 2 3 4 5 6 7 8" "-100 -100 -100 -100 -100 -100 -100 -100"
train "data without a trainable token" 3 'label|train' --model "$model" --data "$work/untrained.safetensors"
echo '{"text": "hi"}' >"$work/words.jsonl"
train "text for a model that needs a tokenizer" 3 'tokenizer|byte' --model "$model" --data "$work/words.jsonl"

train "an adapter for another base" 3 'adapter|lora_' --model "$llama/tiny_qwen2/hf" --data "$llama/tiny_qwen2/fwd_inputs.safetensors" --adapter "$llama/tiny_llama/lora/adapter_final"
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
finish
