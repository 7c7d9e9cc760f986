#!/usr/bin/env bash
# Every family of tests/data/families from end to end: LoRA at two ranks, exported, merged, turned into sheaf's slices and
# back, and what it answers; plan knows the memory that a training has. Adds: the family's name before each case.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"
families=$SHEAF_SOURCE_ROOT/tests/data/families

# answer FILE FLAG...: the tokens of a greedy answer.
answer() {
    local to=$1
    shift
    "$sheaf" generate --dtype float32 --tokens 5,9,3,11 --max-new 12 --greedy --json "$@" 2>>"$work/stderr" | grep -oE '"tokens": ?\[[^]]*\]' >"$to"
}
answers() { # answers NAME WANT FLAG...: the same tokens as in the file WANT
    local name=$1 want=$2
    shift 2
    answer "$work/answer" "$@"
    same "$name" "$want" "$work/answer"
}
one_family() {
    local f=$1 hf=$families/$1/hf at=$work/$1 targets
    # What the recorded adapter has; all-linear where that is not a list of plain names.
    targets=$(tr -d '\n ' <"$families/$f/lora/adapter_init/adapter_config.json" | sed -E 's/.*"target_modules":\[([^]]*)\].*/\1/; s/"//g')
    runs "$f: LoRA at two ranks" 0 'saved' train --model "$hf" --data "$families/$f/fwd_inputs.safetensors" --out "$at.run" --steps 3 --lr 5e-2 \
        --tp 2 --lora-rank 3 --lora-targets "$targets" --micro-batch 1 --dtype float32
    runs "$f: as an adapter" 0 . convert "$at.run" "$at.peft" --to peft
    same "$f: which is the run's" "$at.run/adapter/adapter_model.safetensors" "$at.peft/adapter_model.safetensors"
    runs "$f: merged" 0 . merge "$hf" "$at.run/adapter" "$at.merged" --dtype float32
    runs "$f: is another model" 1 . diff "$hf" "$at.merged"
    runs "$f: in slices" 0 . convert "$at.merged" "$at.slices" --to sheaf --slices 4
    runs "$f: which are sound" 0 'sound' verify "$at.slices"
    runs "$f: in others" 0 . convert "$at.slices" "$at.slices16" --to sheaf --slices 16
    runs "$f: and back" 0 . convert "$at.slices16" "$at.back" --to hf
    same "$f: every byte of the weights" "$at.merged/model.safetensors" "$at.back/model.safetensors"
    same "$f: and of the config" "$at.merged/config.json" "$at.back/config.json"
    answer "$at.tokens" --model "$at.merged"
    check "$f: it answers" grep -q '[0-9],' "$at.tokens"
    answers "$f: the same at three ranks" "$at.tokens" --model "$at.merged" --tp 3
    answers "$f: and from what came back" "$at.tokens" --model "$at.back" --tp 2
    answers "$f: and with the adapter beside the base" "$at.tokens" --model "$hf" --adapter "$at.run/adapter" --tp 5
}
# A model of this family that is large enough to be measured.
middle() {
    local f=$1
    tr -d '\n' <"$families/$f/hf/config.json" | sed -E -e 's/^\{/{"sheaf_tokenizer":"bytes",/' -e 's/"hidden_size": ?[0-9]+/"hidden_size": 384/' -e 's/"intermediate_size": ?[0-9]+/"intermediate_size": 700/' \
        -e 's/"vocab_size": ?[0-9]+/"vocab_size": 1000/' -e 's/"max_position_embeddings": ?64/"max_position_embeddings": 512/' \
        -e 's/"head_dim": ?[0-9]+/"head_dim": 64/' -e 's/"bos_token_id": ?1/"bos_token_id": 256/' -e 's/"eos_token_id": ?2/"eos_token_id": 257/' \
        -e 's/"pad_token_id": ?0/"pad_token_id": 258/' >"$work/$f.json"
    [ "$f" != phi3 ] || sed -i -E -e 's/"num_attention_heads": ?[0-9]+/"num_attention_heads": 48/' -e 's/"num_key_value_heads": ?[0-9]+/"num_key_value_heads": 16/' "$work/$f.json"
    "$sheaf" init "$work/$f.json" "$work/$f.middle" --seed 1 >/dev/null 2>&1
}
make_tokens "$work/tokens.jsonl" 4 120
base=$(peak_of --version)
# shellcheck disable=SC2034 # named by $how
lora="lora --lora-targets all-linear --lora-rank 8" few="lora --lora-targets q_proj,v_proj" full=full
while read -r f hows; do
    one_family "$f"
    check "$f: a model to measure" middle "$f"
    for how in $hows; do
        # shellcheck disable=SC2086 # a method with its flags
        steps=1 check "$f: plan knows what $how needs" predicted "$work/$f.middle" "$work/tokens.jsonl" --seq 128 --micro-batch 4 --threads 2 --tp 2 \
            --dtype float32 --method ${!how}
    done
    rm -rf "$work/$f".*
done <<'END'
qwen3 lora
smollm3 full
olmo2 lora
phi3 lora
mixtral few full
gemma2 lora
gemma3 full
END
# Prompts of a batch that grow past the length their rotary factors were made for, the shorter one first.
printf '{"tokens": [1, 5, 6]}\n{"tokens": [1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 9]}\n{"tokens": [1, 9, 4, 9, 20]}\n' >"$work/growing.jsonl"
for batch in 1 2 3; do
    runs "phi3: answers that are read again, $batch at once" 0 . generate --model "$families/phi3/hf" --prompts "$work/growing.jsonl" --max-new 20 --greedy --batch $batch
    cp "$work/stdout" "$work/growing$batch"
done
same "phi3: are the same" "$work/growing1" "$work/growing2"
same "phi3: in any batch" "$work/growing1" "$work/growing3"
finish
