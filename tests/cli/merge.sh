#!/usr/bin/env bash
# sheaf merge from outside: several adapters, combinations, what is refused, and a signal
# in the middle, after which nothing is left.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
adapter=$llama/tiny_llama/lora/adapter_final
variant=$llama/tiny_llama/lora_variants/rslora/adapter

runs "two adapters in turn" 0 'products with random vectors' merge "$model" "$adapter" "$variant" "$work/both"
runs "the first alone" 0 'of the changed weights [0-9.]+ \(0*[.]?0*[1-9][0-9.e-]* %\).*read back' merge "$model" "$adapter" "$work/first"
runs "and the second into it" 0 'read back' merge "$work/first" "$variant" "$work/second" --as-peft
runs "with PEFT's rounding one after the other is both at once" 0 . merge "$model" "$adapter" "$variant" "$work/peft" --as-peft
same "the same bytes" "$work/second" "$work/peft"
runs "facts as JSON" 0 '"worst_product": [0-9.e-]+, "worst_tensor": "model' merge "$model" "$adapter" "$work/json" --json

runs "whose PEFT is told with its bits" 0 'read back' merge "$model" "$adapter" "$work/amd" --as-peft --peft-cpu amd
runs "and without them is nothing" 2 'peft-cpu.*as-peft' merge "$model" "$adapter" "$work/no" --peft-cpu amd
runs "the flag's line speaks of tied tables" 0 'merge_and_unload\(\); tied tables' merge --help

runs "a combination" 0 'read back' merge "$model" "$adapter" "$variant" "$work/cat" --combine cat --weights=0.7,-0.4
runs "the combined adapter alone" 0 '2 adapters combined' merge --adapter-only --combine cat --weights 0.7,-0.4 "$adapter" "$variant" "$work/cat-adapter"
runs "merging that is merging the combination" 0 . merge "$model" "$work/cat-adapter" "$work/cat2"
same "the same bytes again" "$work/cat" "$work/cat2"
runs "weights without a combination" 2 'combine' merge "$model" "$adapter" "$work/no" --weights 1
runs "too few weights" 2 '2 numbers' merge "$model" "$adapter" "$variant" "$work/no" --combine cat --weights 1
runs "a weight that is no number" 2 '1 numbers' merge "$model" "$adapter" "$work/no" --combine cat --weights nan
runs "nor in hexadecimal, which other numbers are not either" 2 '1 numbers' merge "$model" "$adapter" "$work/no" --combine cat --weights 0x1
runs "a combination sheaf does not do" 3 'ties.*linear or cat.*add_weighted_adapter' merge "$model" "$adapter" "$variant" "$work/no" --combine ties
runs "an adapter alone without a combination" 2 'adapter-only' merge "$adapter" "$variant" "$work/no" --adapter-only
absent "nothing of the refused" "$work/no"

# A base of another program, and LoRA that lies in the checkpoint itself.
runs "a base in slices" 0 'hf to sheaf' convert "$model" "$work/slices" --to sheaf
runs "is a base like any other" 0 'read back' merge "$work/slices" "$adapter" "$work/from-slices"
runs "and gives the same model" 0 'equal' diff "$work/from-slices" "$work/first"
runs "a model without LoRA of its own" 2 'no LoRA in it.*adapter.s folder' merge "$model" "$work/own"
runs "PEFT's bits need an adapter" 2 'at least one ADAPTER' merge "$model" "$work/own" --as-peft
ln -s "$model" "$work/base-link"
runs "not into the base" 2 'outside.*which is read' merge "$model" "$adapter" "$work/base-link/own"
runs "nor into an adapter" 2 'outside.*which is read' merge "$model" "$adapter" "$adapter/own"
runs "nor is an adapter put into another" 2 'outside.*which is read' merge --adapter-only --combine cat "$adapter" "$adapter" "$adapter/own"
absent "nothing of these" "$work/own"
for save in "$golden"/*/lora_mp1; do
    [ -f "$save/latest" ] || continue
    set=$(basename "${save%/lora_mp1}")
    runs "$set: LoRA of SAT, in place" 0 'LoRA merged into [1-9]' merge "$save" "$work/$set-own"
    [ ! -d "${save}_merged" ] || runs "$set: as SAT merges it" 0 'equal' diff "$work/$set-own" "${save}_merged"
    runs "$set: as an adapter" 0 'sat to peft' convert "$save" "$work/$set-adapter" --to peft
    runs "$set: merged into the plain model" 0 'read back' merge "${save%/lora_mp1}/mp1" "$work/$set-adapter" "$work/$set-peft"
    runs "$set: is the same model" 0 'equal|tensors differ' diff "$work/$set-own" "$work/$set-peft" --atol 1e-6
    for tp in 1 2; do
        runs "$set: merged, then divided into $tp" 0 'hf to sat' convert "$work/$set-peft" "$work/$set-two" --to sat --tp $tp
        runs "$set: both in one pass" 0 'rows read back and recomputed: equal' merge "${save%/lora_mp1}/mp1" "$work/$set-adapter" "$work/$set-one" --to sat --tp $tp
        same "$set: are the same files" "$work/$set-two" "$work/$set-one"
        rm -rf "$work/$set-two" "$work/$set-one"
    done
    runs "$set: SAT's own into another number of parts" 0 'in 2 parts, LoRA merged' merge "$save" "$work/$set-own2" --to sat --tp 2
    runs "$set: is the same model" 0 'equal' diff "$work/$set-own" "$work/$set-own2"
    runs "$set: own LoRA is not left out" 3 'LoRA that is not merged' merge "$save" "$work/$set-adapter" "$work/own"
done

runs "SAT's form is for SAT's models" 3 'CogVLM or CogAgent.*family llama' merge "$model" "$adapter" "$work/no" --to sat
runs "parts are SAT's" 2 'tp.*--to sat beside it' merge "$model" "$adapter" "$work/no" --tp 2
runs "an adapter alone has one form" 2 'to.*PEFT.s form' merge --adapter-only --combine cat "$adapter" "$work/no" --to sat
absent "nothing of them" "$work/no"

# An adapter in the base's place: the line that was meant. A base without a config is merged, with a word.
runs "adapter and model in the wrong order" 3 "base model first, then its adapters.*a PEFT adapter +try: +sheaf merge $model $adapter $work/no *\$" merge "$adapter" "$model" "$work/no"
runs "an adapter alone" 3 "try: +sheaf merge BASE $adapter $work/no *\$" merge "$adapter" "$work/no"
mkdir "$work/bare"
cp "$model/model.safetensors" "$work/bare"
runs "a base without config.json" 0 "warning: $work/bare: no config.json.*gets none either" merge "$work/bare" "$adapter" "$work/from-bare"
runs "with the config given there is no word" 0 'read back' merge "$work/bare" "$adapter" "$work/from-config" --config "$model/config.json"
check "not one" bash -c '! grep -q "no config.json" "$1"' . "$work/stderr"

# Where shapes differ no number says by how much.
runs "models of other shapes" 1 ' 36 of 36 tensors differ, 21 in shape, 15 in one of the two alone; [0-9]+ config keys' diff "$model" "$llama/tiny_qwen2/hf"
check "is the last line, alone in saying so" bash -c '[ "$(tail -n 1 "$1" | grep -c "by at most")" = 0 ]' . "$work/stdout"
runs "counts as JSON" 1 '"different": 36, "shapes": 21, "alone": 15' diff "$model" "$llama/tiny_qwen2/hf" --json

# A model large enough to be in the middle of it: 256 MB that are not even on disk.
u64() { printf "$(printf '\\x%02x\\x%02x\\x00\\x00\\x00\\x00\\x00\\x00' $(($1 & 255)) $(($1 >> 8)))"; }
hollow() { # hollow FILE BYTES HEADER: a .safetensors file of zeros
    { u64 ${#3}; printf '%s' "$3"; } >"$1"
    truncate -s $((8 + ${#3} + $2)) "$1"
}
mkdir "$work/big" "$work/small"
hollow "$work/big/model.safetensors" 268435456 '{"x.weight":{"dtype":"BF16","shape":[65536,2048],"data_offsets":[0,268435456]}}'
hollow "$work/small/adapter_model.safetensors" 270336 '{"base_model.model.x.lora_A.weight":{"dtype":"F32","shape":[1,2048],"data_offsets":[0,8192]},"base_model.model.x.lora_B.weight":{"dtype":"F32","shape":[65536,1],"data_offsets":[8192,270336]}}'
echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["x"]}' >"$work/small/adapter_config.json"
# A quantized base is called what it is, by its config or by its tensors.
mkdir "$work/gptq"
hollow "$work/gptq/model.safetensors" 400 '{"x.qweight":{"dtype":"I32","shape":[10,10],"data_offsets":[0,400]}}'
runs "GPTQ, by its tensors" 3 "'x.qweight' of the base.*quantized weights \(GPTQ or AWQ\).*16 or 32 bits, as BASE" merge "$work/gptq" "$work/small" "$work/no"
hollow "$work/gptq/model.safetensors" 400 '{"x.W_q":{"dtype":"I32","shape":[10,10],"data_offsets":[0,400]}}'
echo '{"model_type": "x", "quantization_config": {"quant_method": "hqq"}}' >"$work/gptq/config.json"
runs "HQQ, by its config" 3 'quantized weights \(HQQ\)' merge "$work/gptq" "$work/small" "$work/no"
hollow "$work/gptq/model.safetensors" 100 '{"x.weight":{"dtype":"U8","shape":[100,1],"data_offsets":[0,100]}}'
echo '{"model_type": "x", "quantization_config": {"load_in_4bit": true}}' >"$work/gptq/config.json"
runs "bitsandbytes without its scales" 3 "'x.weight': missing.*scales, and for 4 bits a quant_state" merge "$work/gptq" "$work/small" "$work/no"
absent "nothing of these either" "$work/no"
# Bases in 4 bits: plain weights come out, or 4 bits again, and what that changed.
quant=$SHEAF_SOURCE_ROOT/tests/data/quant/tiny_llama
mkdir "$work/q"
hollow "$work/q/adapter_model.safetensors" 2048 '{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":{"dtype":"F32","shape":[4,64],"data_offsets":[0,1024]},"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":{"dtype":"F32","shape":[64,4],"data_offsets":[1024,2048]}}'
echo '{"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": "model.layers.0.self_attn.q_proj"}' >"$work/q/adapter_config.json"
runs "a base in 4 bits" 0 '14 weights of the base are in 4 or 8 bits: they were dequantised' merge "$quant/bnb_nf4_double" "$work/q" "$work/plain"
check "its config is that of plain weights" sh -c '! grep -q quantization_config "$1"' . "$work/plain/config.json"
runs "quantised again" 0 '1 of 14 weights of the base in 4 or 8 bits were changed and quantised again: .* on average, at most .*layers.0.self_attn.q_proj' merge "$quant/bnb_nf4_double" "$work/q" "$work/again" --requantize
check "and its config says so" grep -q '"bnb_4bit_use_double_quant"' "$work/again/config.json"
runs "which is sound" 0 sound verify "$work/again"
rm -r "$work/again"
runs "in JSON" 0 '"base_quantized": 14, "requantized": 1, "requantize_worst": [0-9.e-]+, "requantize_tensor": "model.layers.0.self_attn.q_proj.weight", "requantize_mean": [0-9.e-]+' merge "$quant/bnb_nf4_double" "$work/q" "$work/again" --requantize --json
runs "a plain base is not quantised again" 2 "expected: +a base with weights in 4 or 8 bits" merge "$quant/base_bf16" "$work/q" "$work/no" --requantize
runs "nor for SAT" 2 "expected: +a base, and --to hf" merge "$quant/bnb_nf4_double" "$work/q" "$work/no" --requantize --to sat
absent "nothing of these" "$work/no"
rm -r "$work/plain" "$work/again"
# --requantize says when it undoes the adapter.
runs "a model in 4 bits" 0 . init tiny-bytes "$work/f" --seed 3 --quantize nf4
printf '{"text": "hello there"}\n{"text": "how are you"}\n' >"$work/d.jsonl"
runs "and a small change" 0 . train --model "$work/f" --data "$work/d.jsonl" --out "$work/runf" --steps 1
runs "is lost in its codes" 0 'warning: quantising again moved the changed weights by .* without --requantize it is' merge "$work/runf" "$work/mf" --requantize
# A base that training quantised while it was loaded is the one that the run is merged into, unless the plain one is asked for.
runs "a plain model" 0 . init tiny-bytes "$work/p" --seed 1
runs "a config of a quantised one" 0 . init "$work/f" "$work/g"
check "makes plain weights and says so" sh -c '! grep -q quantization_config "$1"' . "$work/g/config.json"
runs "and itself in 4 bits" 0 . convert "$work/p" "$work/p4" --to hf --quantize nf4
runs "LoRA on what is quantised while it is loaded" 0 . train --model "$work/p" --quantize nf4 --data "$work/d.jsonl" --out "$work/run4" --steps 1
runs "its run" 0 '28 weights of the base are in 4 or 8 bits' merge "$work/run4" "$work/m1"
runs "onto the plain model" 0 '28 weights of the base are in 4 or 8 bits' merge "$work/p" "$work/run4" "$work/m2"
runs "its adapter onto the plain model" 0 '28 weights' merge "$work/p" "$work/run4/adapter" "$work/m3"
runs "which a flag may say" 0 '28 weights' merge "$work/p" "$work/run4/adapter" "$work/m31" --quantize nf4
runs "its adapter, as the run" 0 '28 weights' merge "$work/run4/adapter" "$work/m32"
runs "onto the folder in 4 bits" 0 '28 weights' merge "$work/p4" "$work/run4/adapter" "$work/m4"
for m in m2 m3 m31 m32 m4; do same "all are one model" "$work/m1/model.safetensors" "$work/$m/model.safetensors"; done
cp -r "$work/run4/adapter" "$work/alone"
runs "away from its run the plain model is another base" 3 'its base.*try: +.*--quantize.*--plain-base' merge "$work/p" "$work/alone" "$work/no"
runs "in another form too" 3 'its base' merge "$work/p" "$work/run4/adapter" "$work/no" --quantize int8
runs "which can be chosen" 0 'base is used as it is' merge "$work/p" "$work/run4/adapter" "$work/m5" --plain-base
check "and gives another model" sh -c '! cmp -s "$1" "$2"' . "$work/m1/model.safetensors" "$work/m5/model.safetensors"
runs "not both" 2 'plain-base' merge "$work/p" "$work/run4/adapter" "$work/no" --plain-base --quantize nf4
runs "a quantised base is not plain" 2 'plain-base.*expected: +a base of plain weights' merge "$work/p4" "$work/run4/adapter" "$work/no" --plain-base
runs "nor for a run" 2 'plain-base.*expected: +a base of plain weights' merge "$work/p4" "$work/run4" "$work/no" --plain-base
runs "the run onto the folder of its codes" 0 '28 weights' merge "$work/p4" "$work/run4" "$work/m6"
same "the same" "$work/m3/model.safetensors" "$work/m6/model.safetensors"
runs "which are quantised again" 0 '28 weights of the base in 4 or 8 bits were changed' merge "$work/p4" "$work/run4" "$work/m7" --requantize
runs "converted on it" 0 . convert "$work/run4" "$work/m8" --base "$work/p4" --to hf
same "the same" "$work/m3/model.safetensors" "$work/m8/model.safetensors"
runs "evaluated on it" 0 'loss' eval "$work/p4" "$work/d.jsonl" --adapter "$work/run4"
runs "a run knows how its base was quantised" 2 'run4: --quantize.*expected: +nf4.*found: +int8' merge "$work/p" "$work/run4" "$work/no" --quantize int8
runs "itself in 8 bits" 0 . convert "$work/p" "$work/p8" --to hf --quantize int8
runs "a run in 8 bits" 0 . train --model "$work/p" --quantize int8 --data "$work/d.jsonl" --out "$work/run8" --steps 1
runs "two runs met two bases" 2 'run8: --quantize.*expected: +int8.*found: +nf4' merge "$work/p" "$work/run4" "$work/run8" "$work/no"
runs "the codes of another form" 3 'base of the run: weights' merge "$work/p8" "$work/run4" "$work/no"
runs "nothing is quantised twice" 3 'quantised already' merge "$work/p4" "$work/run4/adapter" "$work/no" --quantize nf4
runs "only what is stored is quantised again" 2 'a base that is stored in 4 or 8 bits' merge "$work/run4" "$work/no" --requantize
absent "nothing of these" "$work/no"
# --dtype rounds what is beside quantized weights and not what they are read with.
runs "convert says what keeps its type" 0 'quantized weights keep their types, and so do 42 tensors' convert "$quant/bnb_nf4_double" "$work/rounded" --to hf --dtype float16
check "scales keep their type, other weights do not" bash -c 'grep -aoE "\"(model.layers.0.self_attn.q_proj.weight.nested_absmax|model.norm.weight)\": ?\{\"dtype\": ?\"[A-Z0-9]+\"" "$1" | tr -d " \n" | grep -q "absmax.*F32.*norm.weight.*F16"' . "$work/rounded/model.safetensors"
# Weights in floats are not quantized, whatever a config that came with another form of them says.
m=$(copy_model tiny_llama)
for config in '"quantization_config": {"load_in_4bit": true}, ' '"text_config": {"a": 1, "quantization_config": {"quant_method": "gptq", "bits": 4}}, '; do
    sed "s/^{/{$config/" "$llama/tiny_llama/hf/config.json" >"$m/config.json"
    runs "a stale quantization_config is left out" 0 'warning: .*weights in floats: quantization_config \((bitsandbytes|GPTQ), 4 bits\)' merge "$m" "$llama/tiny_llama/lora/adapter_final" "$work/plain"
    check "of the config too" sh -c '! grep -q quantization_config "$1"' . "$work/plain/config.json"
    runs "verify says so" 0 'conflict: .*weights in floats' verify "$m"
    runs "convert leaves it out as well" 0 . convert "$m" "$work/plain2" --to hf
    check "of its config too" sh -c '! grep -q quantization_config "$1"' . "$work/plain2/config.json"
    rm -rf "$work/plain" "$work/plain2"
done
interrupt() { # interrupt SIGNAL: sends it while the partial folder stands
    local code=0 pid
    mkdir -p "$work/hit"
    "$sheaf" merge "$work/big" "$work/small" "$work/hit/out" >"$work/stdout" 2>"$work/stderr" &
    pid=$!
    until compgen -G "$work/hit/out.partial-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
    kill -s "$1" $pid 2>/dev/null
    wait $pid || code=$?
    [ $code -eq 3 ] && grep -q "$1: merge" "$work/stderr" && grep -q "nothing was left" "$work/stderr" && [ -z "$(ls -A "$work/hit")" ]
}
check "SIGTERM leaves nothing" interrupt SIGTERM
check "SIGINT leaves nothing" interrupt SIGINT
runs "without a signal it comes through" 0 'read back' merge "$work/big" "$work/small" "$work/hit/out"
finish
