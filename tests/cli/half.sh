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

# The files hold more than the config says: nothing of it is lost.
look "as it is" "$model" float32
mkdir "$work/more" && cp "$model/model.safetensors" "$work/more/" && cp "$work/bf16/config.json" "$work/more/"
look "said to be bfloat16" "$work/more" float32 --tp 2
same "float32 that is said to be bfloat16" "$work/as it is" "$work/said to be bfloat16"

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

# ---- training: torch's losses and scales ----
model=$llama/tiny_llama/hf data=$llama/tiny_llama/fwd_inputs.safetensors recorded=$SHEAF_SOURCE_ROOT/tests/data/float16/torch.json
full=(--model "$model" --data "$data" --micro-batch 2 --method full --lr 1e-3 --no-shuffle --schedule constant --dtype float16 --save-every 1 --keep 0)
overflows=(--loss-scale-init 4194304 --loss-scale-window 3)
# column FILE KEY PART: the numbers of KEY in metrics, or in the recorded list PART.
column() { sed -n "/\"$3\": \[/,/\]/p" "$1" | grep -oE "\"$2\": ?[^,}]+" | sed 's/.*: *//'; }
# near PART KEY TOLERANCE: metrics against the recording. Between two programs a loss differs by some units of float16's last
# place (2^-11, relative) in logits, and more from step to step.
near() {
    paste <(grep -oE "\"$2\": ?[^,}]+" "$work/$1/metrics.jsonl" | sed 's/.*: *//') <(column "$recorded" "$2" "$1") |
        awk -v by="$3" 'NF != 2 || ($1 == "null") != ($2 == "null") || ($1 - $2) ^ 2 > by * by { print "step", NR, $0; bad = 1 } END { exit bad || NR != 10 }'
}
runs "full training" 0 '"skipped": ?0, ?"loss_scale": ?65536' train "${full[@]}" --out "$work/steps" --steps 10 --json
check "losses of torch" near steps loss 0.001
check "gradient norms of torch" near steps grad_norm 0.02
runs "full training that overflows" 0 '"skipped": ?5, ?"loss_scale": ?262144' train "${full[@]}" "${overflows[@]}" --out "$work/overflows" --steps 10 --json
check "losses of torch, where it overflows" near overflows loss 0.001
check "gradient norms of torch, where it overflows" near overflows grad_norm 0.02
check "the scales of torch" diff <(grep -oE '"loss_scale": ?[0-9]+' "$work/overflows/metrics.jsonl" | grep -oE '[0-9]+') <(column "$recorded" scale overflows | sed 's/\.0//')
check "the steps that torch leaves out" test "$(grep -c '"skipped": true' "$work/overflows/metrics.jsonl")" = "$(column "$recorded" skipped overflows | grep -c true)"

# ---- the same bytes at any T and over a stop, in the middle of overflows ----
for other in "--tp 3" "--isa ref --tp 2" "--isa avx2"; do
    runs "overflows, $other" 0 . train "${full[@]}" "${overflows[@]}" --out "$work/other" --steps 10 $other
    same "the same checkpoints, $other" "$work/overflows/checkpoints" "$work/other/checkpoints"
    rm -rf "$work/other"
done
runs "stopped after 4" 0 . train "${full[@]}" "${overflows[@]}" --out "$work/stopped" --steps 4
runs "and resumed on 2 ranks" 0 . train --resume --out "$work/stopped" --steps 10 --tp 2
same "the same model" "$work/overflows/model" "$work/stopped/model"
same "the same checkpoint" "$work/overflows/checkpoints/step-00000010" "$work/stopped/checkpoints/step-00000010"
runs "lora, with dropout" 0 . train --model "$work/bf16" --data "$llama/tiny_llama3rope/fwd_inputs.safetensors" --out "$work/lora" --steps 4 --micro-batch 1 --accumulate 2 \
    --lora-targets all-linear --lora-dropout 0.1 --dtype float16 --loss-scale-init 16777216 --warmup 2
runs "on 3 ranks" 0 . train --model "$work/bf16" --data "$llama/tiny_llama3rope/fwd_inputs.safetensors" --out "$work/lora.3" --steps 4 --micro-batch 1 --accumulate 2 \
    --lora-targets all-linear --lora-dropout 0.1 --dtype float16 --loss-scale-init 16777216 --warmup 2 --tp 3 --checkpointing
same "the same adapter" "$work/lora/adapter" "$work/lora.3/adapter"
check "the schedule waits while steps are left out" bash -c "grep skipped '$work/lora/metrics.jsonl' | grep -vq '\"lr\": 0,' && exit 1; grep -q skipped '$work/lora/metrics.jsonl'"

# ---- a number that is not finite, at its source ----
few=(--data "$data" --steps 4 --micro-batch 1 --accumulate 2 --schedule constant --lora-targets all-linear)
put_nan() { # put_nan TENSOR ELEMENT [BYTES]: in a copy of the model
    local weights=$work/nan/model.safetensors header begins
    rm -rf "$work/nan"
    mkdir "$work/nan"
    cp "$model"/* "$work/nan" && chmod u+w "$work/nan"/*
    header=$(od -An -tu8 -N8 "$weights" | tr -d ' ')
    begins=$(head -c $((8 + header)) "$weights" | grep -aoE "\"$1\":\{[^}]*" | grep -oE 'data_offsets":\[[0-9]+' | grep -oE '[0-9]+$')
    printf "${3:-\x00\x00\xc0\x7f}" | dd of="$weights" bs=1 seek=$((8 + header + begins + 4 * $2)) conv=notrunc 2>/dev/null
}
nan_in() { # nan_in TENSOR ELEMENT: training tells of it
    local tp
    put_nan "$1" "$2"
    for tp in 1 3; do
        runs "NaN in $1, $tp ranks" 3 "step 1: loss .* nan in micro-batch 1 of 2 \(row [0-9] of the data, .* in layer 1, '$1'.* the weight '$1' holds .* sheaf verify" \
            train --model "$work/nan" "${few[@]}" --out "$work/bad.$1.$tp" --tp $tp
        sed '/parameters are trained/d' "$work/stderr" >"$work/nan.$tp"
    done
    same "the same words on 1 and 3 ranks" "$work/nan.1" "$work/nan.3"
}
# in one of its last columns, and in one of its last rows, which the last rank has
nan_in model.layers.1.mlp.down_proj.weight 170
tensor=model.layers.1.mlp.up_proj.weight
nan_in $tensor $((170 * 64))
runs "evaluation says so, too" 0 "the loss of rows 0, 1 .* in layer 1, '$tensor'" eval --model "$work/nan" --data "$data" --tp 2 --json
check "and goes on" grep -q '"loss":null' "$work/stdout"
# One row of the head gives one logit: no answer is one that the other logits would have given.
put_nan lm_head.weight $((200 * 64 + 7))
for how in "" "--greedy" "--top-k 5 --temperature 0.7 --seed 3"; do
    # shellcheck disable=SC2086
    runs "and so does an answer ($how)" 3 "prompt 1, token 1.*logits that are numbers.*nan for id 200.*the weight 'lm_head.weight' holds" generate --model "$work/nan" --tokens 1,2,3 --max-new 4 $how --tp 2
done
runs "the head's row is named, not what it multiplies" 3 "is 'logits', of the op 'lm_head.weight'; the weight 'lm_head.weight' holds" train --model "$work/nan" "${few[@]}" --out "$work/bad.head" --tp 3
runs "in evaluation too" 0 "is 'logits', of the op 'lm_head.weight'" eval --model "$work/nan" --data "$data" --tp 2
for sign in 7 f; do # either sign may come of it: neither is a choice
    put_nan lm_head.weight $((5 * 64 + 7)) "\\x00\\x00\\x80\\x${sign}f"
    for how in "" "--tp 3 --logprobs 1 --json" "--top-k 5 --temperature 0.7 --batch 2"; do
        # shellcheck disable=SC2086
        runs "an infinite one is no choice (sign $sign$how)" 3 "prompt 1, token 1.*inf for id 5.*the weight 'lm_head.weight' holds" generate --model "$work/nan" --tokens 1,2,3 --max-new 4 $how
    done
done
for sign in 7 f; do # Gemma 2 caps its logits: infinity would become a number (its weights are bfloat16)
    model=$SHEAF_SOURCE_ROOT/tests/data/families/gemma2/hf put_nan model.embed_tokens.weight $((5 * 18 + 7)) "\\x00\\x00\\x80\\x${sign}f"
    runs "nor is one that is capped (sign $sign)" 3 "prompt 1, token 1.*nan for id 10.*the weight 'model.embed_tokens.weight' holds" generate --model "$work/nan" --tokens 1,2,3 --max-new 4 --tp 2
done
put_nan model.embed_tokens.weight $((2 * 64 + 7))
runs "the weight that is meant is named" 3 "prompt 1, token 1.*nan for id 0.*the weight 'model.embed_tokens.weight' holds" generate --model "$work/nan" --tokens 1,2,3 --max-new 4 --dp 2
put_nan $tensor $((170 * 64))
runs "of layers over stages too" 3 "prompt 1, token 1.*nan for id 0.*the weight '$tensor' holds" generate --model "$work/nan" --tokens 1,2,3 --max-new 4 --place 2 --tp 2
runs "in evaluation" 0 "the loss of rows 0, 1 .*is not finite: the weight '$tensor' holds" eval --model "$work/nan" --data "$data" --place 2
runs "a learning rate without measure" 3 "step 2: loss .* the weight '[^']*lora_[AB].weight' holds .* training made it so" train --model "$model" "${few[@]}" --lr 1e38 --out "$work/bad.lr"
runs "one of magnitudes alone" 3 "step 2: loss .* the weight '[^']*lora_magnitude_vector[^']*' holds .* training made it so" train --model "$model" "${few[@]}" --lora-dora --lr-scale '*lora_A*=0,*lora_B*=0' --lr 1e38 --out "$work/bad.m" --tp 3
runs "a scale that stays and overflows" 3 "step 1: gradient norm .* the first value that is not finite is .gradient of the head.* --loss-scale dynamic" \
    train --model "$model" "${few[@]}" --dtype float16 --loss-scale 1073741824 --out "$work/bad.scale" --tp 2
runs "overflow on the way back" 3 "step 1: gradient norm .* the first gradient that is not finite is in layer [0-9], '" \
    train "${full[@]}" --loss-scale 262144 --steps 2 --out "$work/bad.back" --tp 2
runs "the least scale overflows" 3 "step 2: gradient norm .*loss scale is 5.36871e\+08 .*--loss-scale-min" \
    train --model "$model" "${few[@]}" --dtype float16 --loss-scale-init 1073741824 --loss-scale-min 536870912 --out "$work/bad.least"
finish
