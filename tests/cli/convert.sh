#!/usr/bin/env bash
# sheaf convert: forms into each other, parts into wholes, and nothing half-written.
. "$(dirname "$0")/lib.sh"
shopt -s nullglob

model=$llama/tiny_llama/hf
runs "a model in slices" 0 'hf to sheaf, 30 tensors' convert "$model" "$work/slices" --to sheaf
runs "is sound" 0 'sound' verify "$work/slices"
runs "and the same model" 0 'equal' diff "$model" "$work/slices"
runs "in another number of slices" 0 . convert "$work/slices" "$work/slices3" --to sheaf --slices 4
runs "and back" 0 'sheaf to hf' convert "$work/slices3" "$work/back" --to hf --threads 3
same "every byte of the weights is as before" "$model/model.safetensors" "$work/back/model.safetensors"
same "and of the config" "$model/config.json" "$work/back/config.json"
sed -E 's/"vocab_size": *[0-9]+/"vocab_size": 20000/' "$SHEAF_SOURCE_ROOT/tests/data/successors/qwen2_5_vl/hf/config.json" >"$work/published.json"
check "a model whose published files have other names" "$sheaf" init "$work/published.json" "$work/published"
runs "in shards, with an index by those names" 0 . convert "$work/published" "$work/published-shards" --to hf --shard-mb 1
check "of the text" grep -q '"model.layers.0.input_layernorm.weight"' "$work/published-shards/model.safetensors.index.json"
runs "is read" 0 'equal' diff "$work/published-shards" "$work/published"
runs "one file again" 0 . convert "$llama/tiny_llama/hf_sharded" "$work/single" --to hf
same "is the file that was divided" "$model/model.safetensors" "$work/single/model.safetensors"
runs "the same twice is the same bytes" 0 . convert "$llama/tiny_llama/hf_sharded" "$work/slices_again" --to sheaf
same "whatever it came from" "$work/slices/manifest.json" "$work/slices_again/manifest.json"

runs "what is there is not overwritten" 2 'not empty' convert "$model" "$work/back" --to hf
for flag in --tp --slices --shard-mb; do
    for value in 0 -2; do
        runs "$flag $value is refused" 2 "$flag .*at least 1.*found: +$value" convert "$model" "$work/x" --to sheaf "$flag" "$value"
    done
done
runs "an unknown form" 2 'hf, sat, peft, sheaf, gguf, gguf-lora or gguf-mmproj' convert "$model" "$work/x" --to onnx
runs "no form" 2 '--to' convert "$model" "$work/x"
runs "SAT has only its own models" 3 'CogVLM or CogAgent' convert "$model" "$work/x" --to sat
runs "parts are SAT's" 2 '--to sat' convert "$model" "$work/x" --to hf --tp 2
absent "nothing is left of what was refused" "$work/x"
ln -s "$model" "$work/link"
runs "not into what is read" 2 'outside.*which is read' convert "$model" "$model/new" --to hf
runs "nor through a link" 2 'outside.*which is read' convert "$model" "$work/link/new" --to hf
runs "nor into a further source" 2 'outside.*which is read' convert "$llama/tiny_qwen2/hf" "$work/link" "$model/new" --to hf
absent "nothing is left there" "$model/new"
runs "a folder that is given twice" 3 'hf: duplicate.*each part.*once.*given twice.*try: +name it once' convert "$model" "$model" "$work/x" --to hf
runs "or once through a link" 3 'link: duplicate.*given already, with [^ ]*/hf' convert "$model" "$work/link" "$work/x" --to hf
runs "or once as its file" 3 'model.safetensors: duplicate.*given already, with [^ ]*/hf' convert "$model" "$model/model.safetensors" "$work/x" --to hf
runs "another model is no part" 3 'tiny_qwen2/hf: foreign.*parts lie in one folder.*no part of .*/tiny_llama/hf, which lacks nothing: another model' convert "$model" "$llama/tiny_qwen2/hf" "$work/x" --to hf
for d in "$llama"/colossalai_*/*broken*; do
    runs "${d#"$golden"/}: a half beside itself is no whole" 3 'duplicate.*given twice' convert "$d" "$d" "$work/x" --to hf
done
absent "nothing is left of two models" "$work/x"

runs "bfloat16" 0 . convert "$llama/tiny_llama3rope/hf" "$work/bf16" --to hf --dtype bfloat16
runs "as torch rounds it" 0 'equal' diff "$work/bf16/model.safetensors" "$llama/half_precision/tiny_llama3rope_bf16.safetensors"
check "and the config says so" grep -q '"dtype": "bfloat16"' "$work/bf16/config.json"
runs "facts are one object" 0 '^\{"out": ".*", "from": "hf", "to": "sheaf", "tensors": 30,.*"bytes": 807168' convert --json "$model" "$work/j" --to sheaf

# moments FOLDER LAST: a copy of the model with two moments of a norm, LAST the bits of the last number.
moments() {
    local header='{"exp_avg.model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[0,256]},"exp_avg_sq.model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[256,512]}}'
    cp -r "$model" "$1"
    { int32_bytes ${#header} 0; printf '%s' "$header"; head -c 508 /dev/zero; int32_bytes "$2"; } >"$1/optimizer.safetensors"
}
moments "$work/moments" $((0x3f800000))
moments "$work/moments2" $((0x40000000))
runs "moments come along" 0 '32 tensors.*2 of them moments' convert "$work/moments" "$work/moments-own" --to sheaf --optimizer
runs "are compared with those of another form" 0 'equal: 32 tensors, all bytes agree; 2 of the tensors are moments' diff "$work/moments-own" "$work/moments"
runs "and of the same" 1 'exp_avg_sq.model.norm.weight: 1 of 64 elements differ, by at most 1, first at 63' diff "$work/moments" "$work/moments2"
runs "in both orders" 1 '1 of 32 tensors differ, by at most 1; 0 config keys; 2 of the tensors are moments' diff "$work/moments2" "$work/moments-own"
runs "a model without an optimizer is the same model" 0 'equal: 30 tensors, all bytes agree; not compared: 2 moments of an optimizer, only in B' diff "$model" "$work/moments"
runs "which programs are told too" 0 '"same": true, "tensors": 30,.*"moments": 0, "moments_only_a": 2, "moments_only_b": 0' diff "$work/moments" "$model" --json
runs "in sheaf's own form moments are tensors" 1 'exp_avg.model.norm.weight: only in A.*2 of 32 tensors differ, 2 in one' diff "$work/moments-own" "$model"

m=$(copy_model tiny_llama)
truncate -s -100 "$m/model.safetensors"
runs "a model cut short is refused" 3 'damaged.*try:' convert "$m" "$work/cut" --to hf
absent "and nothing is left" "$work/cut"

# No space: a limit on the size of files, its signal ignored, makes write() fail.
( trap '' XFSZ; ulimit -f 200; "$sheaf" convert "$model" "$work/full" --to hf >"$work/stdout" 2>"$work/stderr" </dev/null ); got=$?
check "no space: exit code 3" test $got -eq 3
absent "no space: nothing is left" "$work/full"
check "nor anything unfinished" test -z "$(echo "$work"/full*)"

# Killed at any call: the output is whole or not there.
for n in 1 2 3 5 8 13 21 34 55 89; do
    rm -rf "$work"/k "$work"/k.*
    SHEAF_FAULT=any:$n:kill "$faulty" convert "$model" "$work/k" --to sheaf >/dev/null 2>&1 </dev/null
    [ ! -e "$work/k" ] || "$sheaf" verify "$work/k" >/dev/null 2>&1 || fail "killed at call $n" "half an output"
done
pass "killed at ten places: whole or nothing"

# What the original programs wrote, as far as it is there. Tensors are held against each other; a config may come to
# say what its own program has in its code (the sizes of CogAgent's tower).
for set in cogvlm cogagent; do
    g=$golden/$set
    [ -d "$g/mp1" ] || continue
    whole=$g/mp1
    for d in "$g"/mp[248]; do
        runs "$set/${d##*/} in one part" 0 . convert "$d" "$work/$set-${d##*/}" --to sat
        runs "is mp1" 0 equal diff "$work/$set-${d##*/}" "$whole"
        ways=${d##*mp}
        runs "mp1 in $ways parts" 0 . convert "$whole" "$work/$set-to-$ways" --to sat --tp "$ways"
        runs "is ${d##*/}" 0 equal diff "$work/$set-to-$ways" "$d"
    done
    runs "$set as Hugging Face" 0 . convert "$whole" "$work/$set-hf" --to hf
    runs "is sound" 0 "model +$set.*sound" verify "$work/$set-hf"
    runs "and the same" 0 'equal' diff "$work/$set-hf" "$whole"
    for d in "$g"/lora_mp[0-9]; do
        runs "$set/${d##*/} as an adapter" 0 'sat to peft' convert "$d" "$work/$set-${d##*/}-adapter" --to peft
        runs "that is whole" 0 'sound' verify "$work/$set-${d##*/}-adapter"
    done
    [ ! -d "$g/lora_mp1_merged" ] || {
        runs "$set: LoRA is merged on the way" 0 'merged into the weights' convert "$g/lora_mp1" "$work/$set-merged" --to sat
        runs "as SAT merges it" 0 'equal' diff "$work/$set-merged" "$g/lora_mp1_merged"
    }
done
# A model is trained and evaluated from the files of any program.
"$sheaf" eval --model "$model" --data "$llama/tiny_llama/fwd_inputs.safetensors" --json >"$work/loss" 2>/dev/null </dev/null
for d in "$llama"/colossalai_tiny_llama/*pp*model "$llama"/megatron/*tiny_llama; do
    runs "eval of ${d#"$llama"/}" 0 'loss' eval --model "$d" --config "$model/config.json" --data "$llama/tiny_llama/fwd_inputs.safetensors" --json
    same "gives the loss of the model it was made of" "$work/loss" "$work/stdout"
done
for d in "$golden"/cogagent/broken*; do
    parts=("$d"/*)
    runs "${d##*/}: parts in two folders are joined" 0 . convert "${parts[@]}" "$work/joined" --to sat --tp 1
    runs "bit for bit" 0 equal diff "$work/joined" "$golden/cogagent/mp1_bf16"
done
for d in "$llama"/colossalai_*/*broken*; do
    base=$(dirname "$d")
    rest=("$base"/*local*/tp_rank_*)
    good=("$base"/*good*)
    runs "${d##*/} alone is refused" 3 "rank 0's part" convert "$d" "$work/lost" --to hf
    runs "with the other part" 0 . convert "$d" "${rest[@]:1}" "$work/found" --to hf
    runs "it is the good one" 0 'equal' diff "$work/found" "${good[0]}"
done
# In 4 bits: what transformers with bitsandbytes writes, byte for byte in the C tests; there and back.
quant=$SHEAF_SOURCE_ROOT/tests/data/quant/tiny_llama
runs "in 4 bits" 0 'hf to hf, 21 tensors, .*, 14 weights quantised' convert "$quant/base_bf16" "$work/four" --to hf --quantize nf4-double
runs "is sound" 0 sound verify "$work/four"
runs "what bitsandbytes made of it" 0 equal diff "$work/four" "$quant/bnb_nf4_double"
runs "not twice" 3 "four: --quantize.*expected: +weights in float32.*quantised already.*--dequantize" convert "$work/four" "$work/never" --to hf --quantize nf4
runs "nor in a form that holds none" 2 '--quantize.*--to hf' convert "$quant/base_bf16" "$work/never" --to sheaf --quantize nf4
runs "which takes plain weights alone" 2 '--to sheaf.*plain weights.*--dequantize' convert "$work/four" "$work/never" --to sheaf
runs "plain weights cannot become plain" 2 '--dequantize.*weights in 4 or 8 bits' convert "$quant/base_bf16" "$work/never" --to hf --dequantize
runs "an unknown kind" 2 'none, nf4, nf4-double, int8, gptq, gptq-8 or awq' convert "$quant/base_bf16" "$work/never" --to hf --quantize q4_k
cp -r "$work/four" "$work/lost"
sed -i 's/layers.0.self_attn.q_proj.weight.absmax/layers.0.self_attn.q_proj.weight.absmaX/' "$work/lost/model.safetensors"
runs "nor is one copied that lacks scales" 3 'q_proj.weight.*missing.*expected: +[a-z0-9_.]*q_proj.weight.absmax' convert "$work/lost" "$work/never" --to hf
absent "nothing is left of them" "$work/never"
runs "a copy in several files" 0 'hf to hf, 91 tensors' convert "$work/four" "$work/copied" --to hf --shard-mb 1
runs "plain again" 0 . convert "$work/copied" "$work/plain4" --to hf --dequantize
check "its config, too" sh -c '! grep -q quantization_config "$1"' . "$work/plain4/config.json"
runs "the same values" 0 . diff "$work/plain4" "$work/four"
runs "in JSON" 0 '"quantized": 28' init tiny-bytes "$work/made4" --quantize int8 --json
# a limit on the size of files is a failed write, not the end
limited() (ulimit -f 100; "$sheaf" convert "$model" "$work/limited" --to hf)
limited >/dev/null 2>"$work/stderr" </dev/null
check "ulimit -f is told" grep -q 'File too large' "$work/stderr"
check "and leaves nothing" test -z "$(compgen -G "$work/limited*")"
runs "the nearest form is offered" 2 'try: +hf' convert "$model" "$work/never" --to hff
finish
