#!/usr/bin/env bash
# --dtype float16, and weights of 16 bits under float32 activations: the same bytes with every kernel and at any number of
# ranks, as a copy of the model in float32 gives, and in the memory that was planned.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama3rope/hf data=$llama/tiny_llama3rope/fwd_inputs.safetensors
mkdir -p "$work/bf16"
cp "$llama/half_precision/tiny_llama3rope_bf16.safetensors" "$work/bf16/model.safetensors"
sed 's/"dtype": "float32"/"dtype": "bfloat16"/' "$model/config.json" >"$work/bf16/config.json"
check "a model in bfloat16" grep -q '"dtype": "bfloat16"' "$work/bf16/config.json"
runs "and a copy of it in float32" 0 . convert --to hf --dtype float32 "$work/bf16" "$work/f32"

look() { # look NAME MODEL DTYPE FLAG...
    local name=$1 from=$2 dtype=$3
    shift 3
    runs "$name" 0 '"loss": ?[0-9.]+' eval --model "$from" --data "$data" --dtype "$dtype" --save-logits "$work/$name" --json "$@"
}
look kept "$work/bf16" float32
for other in "--tp 3" "--isa ref" "--isa avx2"; do
    look "kept $other" "$work/bf16" float32 $other
    same "kept in 16 bits, $other" "$work/kept" "$work/kept $other"
done
look copied "$work/f32" float32
same "the bytes of a copy in float32" "$work/kept" "$work/copied"
sed 's/"bfloat16"/"float32"/' "$work/bf16/config.json" >"$work/f32/config.json"
cp "$work/bf16/model.safetensors" "$work/f32/model.safetensors"
look "said to be float32" "$work/f32" float32
same "the same where the config is wrong" "$work/kept" "$work/said to be float32"

look half "$work/bf16" float16
for other in "--tp 3" "--isa ref" "--isa avx2 --tp 2"; do
    look "half $other" "$work/bf16" float16 $other
    same "float16, $other" "$work/half" "$work/half $other"
done
check "float16 is a type of its own" bash -c "! cmp -s '$work/half' '$work/kept'"
for dtype in float32 float16; do
    runs "tokens in $dtype" 0 '"tokens": ?\[[0-9]' generate --model "$work/bf16" --tokens 1,17,5,200,9 --max-new 6 --greedy --dtype $dtype --json
    cp "$work/stdout" "$work/tokens.$dtype"
    runs "tokens in $dtype on 2 ranks" 0 . generate --model "$work/bf16" --tokens 1,17,5,200,9 --max-new 6 --greedy --dtype $dtype --tp 2 --json
    same "the same tokens in $dtype" "$work/tokens.$dtype" "$work/stdout"
done

# ---- memory ----
weights() { "$sheaf" plan --config "$1" --dtype "$2" --seq 64 --json | grep -oE '"weights":[0-9]+' | head -1 | grep -oE '[0-9]+'; }
check "16 bits take half" test "$(weights "$work/bf16/config.json" float32)" -lt $(($(weights "$model/config.json" float32) * 6 / 10))
check "float16 takes what bfloat16 takes" test "$(weights "$model/config.json" float16)" -le "$(weights "$model/config.json" bfloat16)"
finish
