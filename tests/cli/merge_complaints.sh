#!/usr/bin/env bash
# What users of MiniCPM-V's fine-tuning reported of adapters, one case each: saved modules missing,
# a merged model equal to its base, one that is not base + adapter, two adapters that both hold
# whole modules, a table that its class does not give, advice on types, and remote code left behind.
. "$(dirname "$0")/lib.sh"

lora=$golden/omnilmm/lora
base=$work/base
mkdir "$base" "$work/bf16" "$work/fp16"
cp "$lora/base_llama/config.json" "$base"
cp "$lora/base_llama/model_fp32.safetensors" "$base/model.safetensors"
for half in bf16 fp16; do
    cp "$base/config.json" "$work/$half"
    cp "$lora/base_llama/model_$half.safetensors" "$work/$half/model.safetensors"
done
edited() { # edited NAME CASE SCRIPT: a case's adapter under another name, its config changed by sed
    mkdir "$work/$1"
    cp "$lora/$2/adapter_model.safetensors" "$work/$1"
    sed "$3" "$lora/$2/adapter_config.json" >"$work/$1/adapter_config.json"
}

# MiniCPM-V#243, #272: ZeRO saved A and B, and not the modules that were trained whole.
edited lacking plain_all_linear 's/"modules_to_save": null/"modules_to_save": ["embed_tokens"]/'
runs "a saved module that is missing is named, with where it may be" 3 "base_model.model.model.embed_tokens.weight'.*expected: this tensor in the adapter.*ZeRO-3.*sheaf info PATH.*modules_to_save" merge "$base" "$work/lacking" "$work/no"
runs "also on the way to another form" 3 "base_model.model.model.embed_tokens.weight" merge "$base" "$work/lacking" "$work/no" --as-peft
absent "nothing was written" "$work/no"

# The adapter is never taken for the folder to write.
runs "a DST that was forgotten" 2 'sheaf merge +expected: DST behind the adapters +found: +the adapter .*plain_all_linear as the last word' merge "$base" "$lora/plain_all_linear"
runs "behind several adapters too" 2 'expected: DST behind the adapters' merge "$base" "$lora/plain_all_linear" "$work/lacking"

# #559: merged, and the same as before.
edited nothing plain_all_linear 's/"lora_alpha": [0-9.]*/"lora_alpha": 1e-30/'
runs "a merge that changes nothing says so" 0 'warning: the adapter changes nothing: its B is zero' merge "$base" "$work/nothing" "$work/same"
runs "and is the base indeed" 0 'equal' diff "$base" "$work/same"
runs "of an adapter that changes something, not a word" 0 'changed 14' merge "$base" "$lora/plain_all_linear" "$work/changed"
check "there is none" bash -c '! grep -q "changes nothing\|keep their bits" "$1"/std*' . "$work"
runs "which is not the base" 1 '14 of 21 tensors differ' diff "$base" "$work/changed"

# #502: right in float16, not in bfloat16: what lr 1e-6 leaves is below bfloat16's rounding.
edited small plain_all_linear 's/"lora_alpha": [0-9.]*/"lora_alpha": 0.02/'
share() { # share BASE: how many of the adapted elements a merge of the small change leaves as they are
    rm -rf "$work/small_$1"
    "$sheaf" merge "$work/$1" "$work/small" "$work/small_$1" --json 2>"$work/stderr_$1" |
        sed -E 's/.*"elements_adapted": ([0-9]+), "elements_kept": ([0-9]+).*/\2 * 1000 \/ \1/' | { read -r e; echo $((e)); }
}
bf16=$(share bf16) fp16=$(share fp16) fp32=$(share base)
check "bfloat16 loses most of a small change ($bf16 of 1000)" [ "$bf16" -gt 500 ]
check "float16 less ($fp16)" [ "$fp16" -lt "$bf16" ]
check "float32 nearly nothing ($fp32)" [ "$fp32" -lt 5 ]
check "and the user is told, with what keeps it" grep -qE 'warning: [5-9][0-9] % of the adapted weights keep their bits.*--dtype float32.*--adapter' "$work/stderr_bf16"
check "in float32 there is nothing to tell" bash -c '! grep -q "keep their bits" "$1"' . "$work/stderr_base"
runs "which does" 0 'read back' merge "$work/bf16" "$work/small" "$work/wide" --dtype float32
check "without the warning" bash -c '! grep -q "warning: .*keep their bits" "$1"' . "$work/stderr"

# #809: two adapters that both hold a whole module have no right order: refused, by name.
runs "two adapters with the same whole module" 3 "expected: one adapter that changes '[a-z_.]*' before it is replaced.*merge one adapter and then the other" merge "$base" "$lora/modules_to_save" "$lora/modules_to_save" "$work/no"
runs "nor are they combined" 3 'trained as a whole.*without --combine' merge "$base" "$lora/modules_to_save" "$lora/modules_to_save" "$work/no" --combine cat
absent "nothing was written" "$work/no"
runs "one of them and plain LoRA are merged in turn" 0 'adapted 14, replaced' merge "$base" "$lora/modules_to_save" "$lora/plain_all_linear" "$work/both"

# #168: PEFT asks a model's class for its table, and that of MiniCPM-V gives none, or another name.
seen=$work/seen
runs "a small MiniCPM-V" 0 'parameters' init minicpmv-tiny "$seen" --seed 3
printf '{"prompt": "What is this?", "completion": "A tree."}\n' >"$work/text.jsonl"
learn=(train --model "$seen" --data "$work/text.jsonl" --lr 1e-2 --schedule constant --lora-rank 2 --threads 1)
answers() { "$sheaf" eval --data "$work/text.jsonl" --json "$@" 2>/dev/null | grep -o '"loss": *[0-9.]*' | grep -o '[0-9.]*$'; }
runs "factors on its table" 0 'result' "${learn[@]}" --lora-targets 'llm\..*(embed_tokens|q_proj)' --neftune-alpha 5 --steps 3 --out "$work/table"
runs "have PEFT's names" 0 'base_model.model.llm.model.embed_tokens.lora_embedding_A .*base_model.model.llm.model.embed_tokens.lora_embedding_B' info "$work/table/adapter" --tensors
runs "the table itself" 0 'full copies of embed_tokens' "${learn[@]}" --lora-targets 'llm\..*q_proj' --modules-to-save embed_tokens --steps 3 --out "$work/whole"
runs "has its name" 0 'base_model.model.llm.model.embed_tokens.weight' info "$work/whole/adapter" --tensors
for how in table whole; do
    runs "$how: merged" 0 'read back' merge "$seen" "$work/$how/adapter" "$work/$how-merged"
    "$sheaf" diff "$seen" "$work/$how-merged" >"$work/stdout" 2>/dev/null
    check "$how: the table changed" grep -q '^llm.model.embed_tokens.weight' "$work/stdout"
    check "$how: is base + adapter" near "$(answers --model "$work/$how-merged")" "$(answers --model "$seen" --adapter "$work/$how/adapter")" 1e-5
    check "$how: is not the base" bash -c '[ "$1" != "$2" ]' . "$(answers --model "$work/$how-merged")" "$(answers --model "$seen")"
done

# #346: told to set bf16 false and fp16 true for a V100, users lost their losses: upstream has no scale without DeepSpeed.
plain=$(answers --model "$work/table-merged")
for type in float16 bfloat16; do
    scale=()
    [ $type = bfloat16 ] || scale=(--loss-scale-init 1024)
    runs "trained in $type" 0 'result' "${learn[@]}" --lora-targets 'llm\..*(embed_tokens|q_proj)' --neftune-alpha 5 --dtype $type "${scale[@]}" --steps 3 --out "$work/$type"
    runs "its factors are float32" 0 'F32 .*lora_embedding_A' info "$work/$type/adapter" --tensors
    check "not in 16 bits" bash -c '! grep -qE "^ *(BF16|F16) " "$1"' . "$work/stdout"
    check "they learned what float32 did" near "$(answers --model "$seen" --adapter "$work/$type/adapter")" "$plain" 0.05
done
check "float16 scales its loss" [ "$(grep -c '"loss_scale": 1024' "$work/float16/metrics.jsonl")" = 3 ]
check "bfloat16 needs no scale" bash -c '! grep -q loss_scale "$1"' . "$work/bfloat16/metrics.jsonl"
runs "a scale that overflows" 0 'skipped, loss scale 1.67772e.07' "${learn[@]}" --lora-targets 'llm\..*q_proj' --dtype float16 --loss-scale-init 16777216 --steps 1 --out "$work/over"
check "changes nothing: $plain" near "$(answers --model "$seen" --adapter "$work/over/adapter")" "$(answers --model "$seen" --dtype float16)" 0

# What the config asks for and the file lacks, and what the file has beside: one answer of all commands.
edited rows plain_all_linear 's/"trainable_token_indices": null/"trainable_token_indices": [1, 2]/'
edited biases plain_all_linear 's/"lora_bias": false/"lora_bias": true/'
edited magnitudes plain_all_linear 's/"use_dora": false/"use_dora": true/'
edited unnamed plain_all_linear 's/"q_proj",*/"x_proj",/'
edited switch plain_all_linear 's/"use_rslora"/"use_new_lora": true, "use_rslora"/'
edited thing plain_all_linear 's/"use_rslora"/"new_thing": {"a": 1}, "use_rslora"/'
edited number plain_all_linear 's/"use_rslora"/"new_number": 3, "use_rslora"/'
edited beside plain_all_linear ''
echo x >"$work/beside/non_lora_trainables.bin"
echo '{"prompt": "a", "completion": "b"}' >"$work/data.jsonl"
for row in "rows|trainable_tokens_delta|token rows" "biases|lora_B.bias|a bias on B" "magnitudes|lora_magnitude_vector|lora_magnitude_vector" \
    "unnamed|q_proj.lora_A.weight|q_proj.lora_A.weight" "switch|use_new_lora|use_new_lora" "thing|new_thing|new_thing" \
    "beside|non_lora_trainables.bin|non_lora_trainables.bin"; do
    IFS='|' read -r name merged run <<<"$row"
    runs "$name: merge" 3 "$merged" merge "$base" "$work/$name" "$work/no"
    runs "$name: verify" 1 "$merged.*not sound" verify "$work/$name"
    runs "$name: generate" 3 "$run" generate --model "$base" --adapter "$work/$name" --tokens 1,2 --max-new 1
    runs "$name: eval" 3 "$run" eval --model "$base" --adapter "$work/$name" --data "$work/data.jsonl"
    runs "$name: train" 3 "$run" train --model "$base" --adapter "$work/$name" --data "$work/data.jsonl" --steps 1 --out "$work/no"
done
absent "nothing was written" "$work/no"
keys='keys that sheaf does not know: new_number'
runs "a number is said: merge" 0 "$keys" merge "$base" "$work/number" "$work/numbered"
runs "verify" 0 "$keys" verify "$work/number"
runs "generate" 0 "$keys" generate --model "$base" --adapter "$work/number" --tokens 1,2 --max-new 1

# Without a base a target that has no factors is missing, and one that a layer lacks beside others of
# its place; with one the base decides.
edited more plain_all_linear 's/"q_proj"/"q_proj", "conv_1"/'
runs "a target without factors" 1 "missing: .*more: 'conv_1'.*not sound: 1 defect" verify "$work/more"
runs "which the base does not have either" 0 "sound.*sound" verify "$base" "$work/more"
edited second plain_all_linear 's/"layers_to_transform": null/"layers_to_transform": [0]/'
runs "factors of another layer than the config says" 1 "foreign: .*layers.1.*not sound" verify "$work/second"

# New tokens are in the tokenizer that lies beside the adapter.
cp -r "$lora/base_llama" "$work/spoken"
mv "$work/spoken/model_fp32.safetensors" "$work/spoken/model.safetensors"
rm "$work/spoken"/model_*
edited known trainable_tokens ''
edited usual plain_all_linear ''
edited tables modules_to_save ''
for file in tokenizer.json tokenizer.model special_tokens_map.json generation_config.json; do echo '{"of": "base"}' >"$work/spoken/$file"; done
for file in tokenizer.json tokenizer_config.json generation_config.json; do echo '{"of": "adapter"}' | tee "$work/known/$file" "$work/tables/$file" >"$work/usual/$file"; done
runs "trained rows of tokens" 0 'the tokenizer is that of .*known' merge "$work/spoken" "$work/known" "$work/speaks"
same "the adapter's tokenizer" "$work/known/tokenizer.json" "$work/speaks/tokenizer.json"
same "all of it" "$work/known/tokenizer_config.json" "$work/speaks/tokenizer_config.json"
absent "not the base's beside it" "$work/speaks/tokenizer.model"
absent "nor what it has of special tokens" "$work/speaks/special_tokens_map.json"
same "what is no tokenizer's is the base's" "$work/spoken/generation_config.json" "$work/speaks/generation_config.json"
runs "rows as they were" 0 'read back' merge "$work/spoken" "$work/usual" "$work/silent"
same "the base's tokenizer" "$work/spoken/tokenizer.json" "$work/silent/tokenizer.json"
for name in known tables; do
    runs "of two adapters that of $name" 0 "the tokenizer is that of .*$name, " merge "$work/spoken" "$work/$name" "$work/usual" "$work/two-$name"
done
rm "$work/known"/tokenizer*
runs "no tokenizer beside the adapter" 0 'read back' merge "$work/spoken" "$work/known" "$work/unspoken"
same "the base's" "$work/spoken/tokenizer.json" "$work/unspoken/tokenizer.json"

# A folder with remote code stays one that transformers loads with trust_remote_code.
sed '0,/{/s//{"auto_map": {"AutoModel": "modeling_minicpmv.MiniCPMV"},/' "$base/config.json" >"$work/config.json"
mv "$work/config.json" "$base/config.json"
echo 'from .resampler import Resampler' >"$base/modeling_minicpmv.py"
echo 'class Resampler: pass' >"$base/resampler.py"
echo '{"image_size": 448}' >"$base/preprocessor_config.json"
runs "a model with remote code" 0 'read back' merge "$base" "$lora/plain_all_linear" "$work/code"
for file in modeling_minicpmv.py resampler.py preprocessor_config.json; do
    same "$file is there" "$base/$file" "$work/code/$file"
done
check "auto_map too" grep -q '"auto_map": {"AutoModel": "modeling_minicpmv.MiniCPMV"}' "$work/code/config.json"
echo 'print(1)' >"$work/bf16/make.py"
runs "scripts that no config speaks of" 0 'read back' merge "$work/bf16" "$lora/plain_all_linear" "$work/plain"
absent "stay where they are" "$work/plain/make.py"

# The recorded training of OmniLMM, where the full collection is there: as PEFT merges it.
if [ -d "$golden/omnilmm/lora_qkvo" ]; then
    for half in fp32 bf16 fp16; do
        long=float32
        [ $half = bf16 ] && long=bfloat16
        [ $half = fp16 ] && long=float16
        runs "lora_qkvo, $half: merged" 0 'replaced [1-9][0-9]*, changed' merge "$golden/omnilmm" "$golden/omnilmm/lora_qkvo/adapter_end" "$work/qkvo_$half" --dtype $long --as-peft
        mkdir "$work/wanted"
        cp "$golden/omnilmm/lora_qkvo/merged_$half.safetensors" "$work/wanted/model.safetensors"
        "$sheaf" diff "$work/qkvo_$half" "$work/wanted" --json >"$work/stdout" 2>/dev/null
        check "lora_qkvo, $half: every tensor that PEFT changed is PEFT's" grep -qE '"different": ([0-9]+), "shapes": 0, "alone": \1,' "$work/stdout"
        rm -rf "$work/wanted"
    done
fi
finish
