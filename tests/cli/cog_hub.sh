#!/usr/bin/env bash
# CogVLM and CogAgent in their folders on the hub: SAT's form becomes the hub's and comes back with equal bytes, runs on
# either give the same, and adapters, merges, codes and answers are as of any other Hugging Face folder.
. "$(dirname "$0")/lib.sh"

agent=$golden/cogagent
pictures=$work/pictures
mkdir "$pictures"
cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$pictures/1234.png"
cp "$SHEAF_SOURCE_ROOT/tests/data/images/grey16.png" "$pictures/0.png"
"$sheaf" init cogvlm-tiny "$work/tiny" --seed 3 >/dev/null 2>&1
"$sheaf" convert "$work/tiny" "$work/vlm" --to sat >/dev/null 2>&1
"$sheaf" convert "$agent/mp1" "$work/agent" --to sat >/dev/null 2>&1

# ---- there and back ----
for m in vlm agent; do
    for ways in 1 2; do
        from=$work/$m
        [ $ways = 1 ] || { from=$work/$m-2 && "$sheaf" convert "$work/$m" "$from" --to sat --tp 2 >/dev/null 2>&1; }
        runs "$m in $ways parts: to the hub's form" 0 'sat to hf' convert "$from" "$work/hub" --to hf
        runs "which is sound" 0 'model +cog(vlm|agent)_hf.*sound' verify "$work/hub"
        runs "and the same model" 0 'equal' diff "$work/hub" "$from"
        runs "$m in $ways parts: and back" 0 'hf to sat' convert "$work/hub" "$work/back" --to sat --tp $ways
        same "with equal bytes" "$from" "$work/back"
        [ $ways = 2 ] || cp -r "$work/hub" "$work/$m-hub"
        rm -rf "$work/hub" "$work/back"
    done
    check "names are the hub's" grep -q 'self_attn.vision_expert_query_key_value.weight' <(head -c 40000 "$work/$m-hub/model.safetensors")
done
check "no SAT name is left" test -z "$(head -c 40000 "$work/agent-hub/model.safetensors" | tr '"' '\n' | grep -a '^mixins')"
runs "a slice form keeps the hub's names" 0 . convert "$work/agent-hub" "$work/slices" --to sheaf
runs "to Hugging Face's" 0 . convert "$work/slices" "$work/of-slices" --to hf
same "with the same bytes" "$work/agent-hub" "$work/of-slices"

# ---- sizes of the tower, which published configs do not have ----
cp -r "$work/agent-hub" "$work/untold"
sed -z -E -i 's/"encoder_override": *\{[^}]*\},?//g; s/,( *\n *)*\}( *\n *)*$/}/' "$work/untold/config.json"
check "a config without them" sh -c '! grep -q encoder_override "$1"' sh "$work/untold/config.json"
for folder in agent-hub untold; do
    runs "$folder: plan" 0 . plan --model "$work/$folder" --lora-rank 4 --seq 128 --json
    cp "$work/stdout" "$work/plan.$folder"
    runs "$folder: info" 0 'parameters +[0-9]+' info "$work/$folder"
    check "$folder: nothing is odd" sh -c '! grep -q "^ *odd" "$1"' sh "$work/stdout"
done
same "the tensors tell plan the same" "$work/plan.agent-hub" "$work/plan.untold"

# ---- the same numbers ----
logits() { rm -f "$4" && "$sheaf" eval --model "$1" --data "$2" --tp "$3" --dtype float32 --save-logits "$4" --json >"$4.json" 2>/dev/null; }
for tp in 1 3; do
    logits "$work/agent" "$agent/inputs.safetensors" $tp "$work/a" && logits "$work/agent-hub" "$agent/inputs.safetensors" $tp "$work/b"
    same "CogAgent's logits, --tp $tp" "$work/a" "$work/b"
    logits "$work/vlm" "$pictures" $tp "$work/a" && logits "$work/vlm-hub" "$pictures" $tp "$work/b"
    same "CogVLM's, of pictures" "$work/a" "$work/b"
done

# ---- adapters ----
how=(--data "$pictures" --micro-batch 2 --steps 2 --lr 1e-2 --threads 2 --seed 5)
runs "LoRA by the hub's name" 0 . train --model "$work/vlm-hub" "${how[@]}" --lora-targets vision_expert_query_key_value --lora-rank 4 --out "$work/run" --tp 2
check "its names are PEFT's" grep -q 'base_model.model.model.layers.0.self_attn.vision_expert_query_key_value.lora_A.weight' "$work/run/adapter/adapter_model.safetensors"
check "and its rank is that of the whole layer" grep -q '"r": 4' "$work/run/adapter/adapter_config.json"
runs "the same bytes at another --tp" 0 . train --model "$work/vlm-hub" "${how[@]}" --lora-targets vision_expert_query_key_value --lora-rank 4 --out "$work/run3" --tp 3
same "of the adapter" "$work/run/adapter" "$work/run3/adapter"
runs "the default target is said" 0 'LoRA on vision_expert_query_key_value, the default for cogvlm_hf' train --model "$work/vlm-hub" "${how[@]}" --out "$work/default"
runs "SAT's set is not the hub's" 2 'SAT adapts' train --model "$work/vlm-hub" "${how[@]}" --lora-targets sat --out "$work/never"
runs "merged" 0 . merge "$work/vlm-hub" "$work/run/adapter" "$work/merged"
runs "is sound" 0 'cogvlm_hf.*sound' verify "$work/merged"
logits "$work/merged" "$pictures" 1 "$work/a"
runs "with the adapter" 0 . eval --model "$work/vlm-hub" --adapter "$work/run/adapter" --data "$pictures" --dtype float32 --json
check "the loss is the merged one" bash -c "awk -F'[:,]' 'NR == FNR { a = \$2; next } { d = a - \$2; exit !(d < 1e-4 && d > -1e-4) }' '$work/a.json' '$work/stdout'"
runs "on SAT's form it is that of another base" 3 'its base.*fingerprint' eval --model "$work/vlm" --adapter "$work/run/adapter" --data "$pictures"

# crossed ADAPTER OWN OTHER FORM DATA: on the other form of its base it gives what it gives on its own.
crossed() {
    local loss
    rm -rf "$work/cross" "$work/own" "$work/cross-merged"
    runs "$1: without the fingerprint of its base" 0 . convert "$1" "$work/cross" --to peft
    runs "it is run on its own form" 0 . eval --model "$2" --adapter "$work/cross" --data "$5" --dtype float32 --json
    loss=$(json_number "$work/stdout" loss)
    runs "and on the other" 0 "its names are those of $4 form of this model" eval --model "$3" --adapter "$work/cross" --data "$5" --dtype float32 --json
    check "with the same loss" test "$loss" = "$(json_number "$work/stdout" loss)"
    runs "merged there" 0 . merge "$2" "$work/cross" "$work/own"
    runs "and into the other" 0 "its names are those of $4 form of this model" merge "$3" "$work/cross" "$work/cross-merged"
    runs "the same model" 0 'all bytes agree' diff "$work/own" "$work/cross-merged"
}
runs "LoRA as SAT has it" 0 . train --model "$work/vlm" "${how[@]}" --out "$work/of-sat"
crossed "$work/of-sat/adapter" "$work/vlm" "$work/vlm-hub" "SAT's" "$pictures"
crossed "$work/run/adapter" "$work/vlm-hub" "$work/vlm" "the hub's" "$pictures"
runs "CogAgent's, cross attention too" 0 . train --model "$work/agent-hub" --data "$agent/inputs.safetensors" --no-shuffle "${how[@]:2}" --lora-targets cross_attn.query,cross_attn.key_value,language_expert_query_key_value --out "$work/of-agent"
crossed "$work/of-agent/adapter" "$work/agent-hub" "$work/agent" "the hub's" "$agent/inputs.safetensors"

# ---- whole weights ----
runs "trained in full" 0 . train --model "$work/agent-hub" --data "$agent/inputs.safetensors" --method full --steps 1 --micro-batch 1 --lr 1e-3 --out "$work/full" --tp 2
runs "gives the hub's form" 0 'cogagent_hf.*sound' verify "$work/full/model"
runs "which SAT can have" 0 'hf to sat' convert "$work/full/model" "$work/full-sat" --to sat --tp 2

# ---- codes ----
runs "in 4 bits" 0 'weights quantised' convert "$work/vlm" "$work/four" --to hf --quantize nf4
runs "and trained" 0 . train --model "$work/four" "${how[@]}" --lora-targets all-linear --out "$work/qlora" --tp 2
runs "quantised while it is loaded" 0 . train --model "$work/vlm-hub" "${how[@]}" --lora-targets all-linear --quantize nf4 --out "$work/qlora2"

# ---- answers ----
runs "an answer about a picture" 0 . generate --model "$work/vlm-hub" --prompt 'what is it' --image "$pictures/0.png" --max-new 3 --json
cp "$work/stdout" "$work/one"
runs "at another --tp" 0 . generate --model "$work/vlm-hub" --prompt 'what is it' --image "$pictures/0.png" --max-new 3 --json --tp 3
same "is the same" "$work/one" "$work/stdout"
runs "CogVLM's chat is a question" 2 "base, chat or vqa" generate --model "$work/vlm-hub" --template chat_old --prompt q --max-new 1
runs "CogAgent needs a picture" 3 'expected: an image: the cross-attention.*found: +none.*try: .*--image' generate --model "$work/agent-hub" --tokens 1,2,3 --max-new 1
chat() { "$sheaf" chat --model "$work/vlm-hub" --image "$pictures/0.png" --max-new 2 <<<'what is it' >"$work/stdout" 2>"$work/stderr"; }
check "a conversation" chat

# ---- what is wrong ----
cp -r "$work/vlm-hub" "$work/coded"
echo 'raise SystemExit' >"$work/coded/modeling_cogvlm.py"
runs "Python files are never run" 0 'modeling_cogvlm.py.*never run' verify "$work/coded"
runs "which a run says once" 0 'modeling_cogvlm.py.*never run' eval --model "$work/coded" --data "$pictures"
check "once" test "$(grep -c 'never run' "$work/stderr")" = 1
cp -r "$work/vlm-hub" "$work/other"
cp "$work/agent-hub/config.json" "$work/other/config.json"
runs "a config of CogAgent with CogVLM's weights" 3 'cogagent|CogAgent' eval --model "$work/other" --data "$agent/inputs.safetensors"
runs "verify names both" 1 'class: .*tensors of CogVLM .Hugging Face.' verify "$work/other"
cp -r "$work/agent-hub" "$work/other2"
sed 's/CogAgentForCausalLM/CogVLMForCausalLM/' "$work/agent-hub/config.json" >"$work/other2/config.json"
runs "and the other way round" 1 'class: .*tensors of CogAgent .Hugging Face.' verify "$work/other2"
finish
