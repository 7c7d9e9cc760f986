#!/usr/bin/env bash
# Adapters with whole tables that their configs do not name, as PEFT saves them (save_embedding_layers,
# a vocabulary that was resized): used, also where the base has fewer rows; to be merged before more is
# trained.
. "$(dirname "$0")/lib.sh"

small=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
how=(--tokens 5,7,9,11,3 --greedy --max-new 12)
training=(--data "$data" --micro-batch 2 --lr 3e-2)
lora=(--lora-targets q_proj,v_proj --lora-rank 4 --modules-to-save embed_tokens,lm_head --seed 5)
unasked() { # unasked ADAPTER: its config names no module to save
    sed -i -e '/"modules_to_save": \[/,/\]/c\  "modules_to_save": null,' "$1/adapter_config.json" && grep -q '"modules_to_save": null' "$1/adapter_config.json"
}
used="its 'base_model\.model\.model\.embed_tokens\.weight' is used in place of the base's"

runs "an adapter with both tables" 0 'result' train --model "$small" "${training[@]}" "${lora[@]}" --steps 4 --out "$work/same"
runs "its loss" 0 '"loss"' eval --model "$small" --adapter "$work/same/adapter" --data "$data" --json
cp "$work/stdout" "$work/loss"
check "that its config does not name" unasked "$work/same/adapter"
answer=5,23,87,107,231,381,381,88,93,87,5,87 # PEFT's: bench/record_tables.py
for tp in 1 2; do
    runs "PEFT's answer on $tp" 0 "^$answer .*$used" generate --model "$small" --adapter "$work/same/adapter" "${how[@]}" --tp $tp
done
runs "is not the base's" 0 '^173,' generate --model "$small" "${how[@]}"
runs "eval uses them" 0 "$used" eval --model "$small" --adapter "$work/same/adapter" --data "$data" --json
same "the loss is that of the same adapter whose config names them" "$work/stdout" "$work/loss"
runs "chat too, before it wants a tokenizer" 3 "$used.* tokenizer" chat --model "$small" --adapter "$work/same/adapter"
runs "train refuses" 3 "'base_model\.model\.[a-z_.]*' .*a copy that PEFT saved unasked .*sheaf merge BASE ADAPTER MERGED" train --model "$small" --adapter "$work/same/adapter" "${training[@]}" --steps 1 --out "$work/out"
absent "nothing is begun" "$work/out/checkpoints"

# The same of a vocabulary that grew.
sed 's/"vocab_size": 511/"vocab_size": 519/' "$small/config.json" >"$work/config.json"
runs "a larger base" 0 . init "$work/config.json" "$work/large" --seed 3
runs "its adapter" 0 'result' train --model "$work/large" "${training[@]}" "${lora[@]}" --steps 1 --out "$work/grown"
check "as PEFT saves it" unasked "$work/grown/adapter"
runs "which knows no fingerprint of the base" 0 . convert "$work/grown/adapter" "$work/resized" --to peft
grown=(--model "$small" --adapter "$work/resized")
larger="tables of 519 rows, where those of the base have 511.*$used"
runs "generate takes its rows" 0 "$larger" generate "${grown[@]}" "${how[@]}"
cp "$work/stdout" "$work/answer"
runs "eval" 0 "$larger" eval "${grown[@]}" --data "$data" --tp 3
runs "chat, before it wants a tokenizer" 3 "$larger.* tokenizer" chat "${grown[@]}"
runs "train refuses" 3 "a copy that PEFT saved unasked" train "${grown[@]}" "${training[@]}" --steps 1 --out "$work/out"
runs "merged" 0 'read back' merge "$small" "$work/resized" "$work/merged"
runs "it answers" 0 '^[0-9]+,' generate --model "$work/merged" "${how[@]}"
same "as before" "$work/stdout" "$work/answer"
runs "and is trained" 0 'result' train --model "$work/merged" "${training[@]}" --steps 1 --out "$work/more"
finish
