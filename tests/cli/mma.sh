#!/usr/bin/env bash
# --sums mma8 and mma16, the orders of tensor cores: in bfloat16 and float16, at any number of ranks, slices on them,
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf data=$llama/tiny_llama/fwd_inputs.safetensors
train() { # train NAME OUT FLAG...
    local name=$1 out=$2
    shift 2
    runs "$name" 0 . train --model "$model" --data "$data" --out "$work/$out" --steps 3 --micro-batch 2 --lr 1e-2 --save-every 1 "$@"
}
alike() { # alike NAME OUT OF FLAG...: the same checkpoints as another run
    local name=$1 out=$2 of=$3
    shift 3
    train "$name" "$out" "$@"
    same "$name: the same bytes" "$work/$of/checkpoints" "$work/$out/checkpoints"
}

for dtype in bfloat16 float16; do
    for order in mma8 mma16; do
        how=(--lora-targets all-linear --dtype $dtype --sums $order)
        of=$dtype.$order
        train "$of" $of "${how[@]}" --tp 1 --threads 1
        check "$of says how slow it is" grep -q "$order: tensor cores compute this order.*GFLOP/s" "$work/stderr"
        check "$of is named" grep -qx "sums: $order" "$work/$of/settings"
        alike "$of on two ranks" $of.2 $of "${how[@]}" --tp 2 --threads 3
        alike "$of on three ranks" $of.3 $of "${how[@]}" --tp 3 --threads 3
        alike "$of by three threads, checkpointing" $of.threads $of "${how[@]}" --threads 3 --checkpointing
        case $of in bfloat16.mma8 | float16.mma16) alike "$of by the reference" $of.ref $of "${how[@]}" --tp 8 --isa ref ;; esac
    done
    check "$dtype: the orders differ" bash -c "! cmp -s '$work/$dtype.mma8/adapter/adapter_model.safetensors' '$work/$dtype.mma16/adapter/adapter_model.safetensors'"
done
for other in pairs tiles; do
    train "$other" $other --lora-targets all-linear --dtype bfloat16 --sums $other
    check "$other is another order" bash -c "! cmp -s '$work/$other/adapter/adapter_model.safetensors' '$work/bfloat16.mma16/adapter/adapter_model.safetensors'"
done
train "float16 without an order" float16 --lora-targets all-linear --dtype float16
check "is widened" bash -c "! grep -q ^sums '$work/float16/settings' && ! cmp -s '$work/float16/adapter/adapter_model.safetensors' '$work/float16.mma16/adapter/adapter_model.safetensors'"
runs "float32 has no such order" 0 'mma16 has no effect: float32' eval --model "$model" --data "$data" --dtype float32 --sums mma16

# ---- full training and the output head, and packed rows ----
full=(--method full --dtype bfloat16 --sums mma16)
train "in full" full "${full[@]}"
alike "in full on three ranks" full.3 full "${full[@]}" --tp 3 --threads 2
train "packed" packed --dtype float16 --sums mma8 --pack --seq 64
alike "packed on two ranks" packed.2 packed --dtype float16 --sums mma8 --pack --seq 64 --tp 2

# ---- going on ----
for of in bfloat16.mma16 float16.mma8; do
    rm -r "$work/$of.3/checkpoints/step-00000003" "$work/$of.3/checkpoints/step-00000002" "$work/$of.3/adapter"
    for other in pairs mma8 mma16; do
        [ "$other" = "${of#*.}" ] || runs "$of: not by $other" 2 "sums cannot change.*expected: ${of#*.}.*found: +$other" train --resume --out "$work/$of.3" --sums $other
    done
    runs "$of goes on" 0 "\"sums\":\"${of#*.}\"" train --resume --out "$work/$of.3" --tp 2 --json
    same "$of: and ends with the same bytes" "$work/$of/checkpoints/step-00000003" "$work/$of.3/checkpoints/step-00000003"
done
runs "a run that widens float16 does not begin to multiply it so" 2 'sums cannot change.*expected: pairs.*found: +mma16' train --resume --out "$work/float16" --sums mma16 --steps 4
runs "an order without effect changes nothing" 0 'pairs has no effect: float16.*going on after step 3' train --resume --out "$work/float16" --sums pairs --steps 4

# ---- what uses a run ----
for of in bfloat16.mma16 float16.mma8; do
    for tp in 1 3; do
        runs "$of is evaluated so" 0 "\"sums\":\"${of#*.}\"" eval --model "$work/$of" --data "$data" --tp $tp --save-logits "$work/logits.$of.$tp" --json
    done
    same "$of: on one rank and on three" "$work/logits.$of.1" "$work/logits.$of.3"
    runs "$of generates so" 0 "\"sums\":\"${of#*.}\"" generate --model "$work/$of" --tokens 5,9,2 --max-new 6 --greedy --json
    grep -o '"tokens":[^]]*' "$work/stdout" >"$work/tokens"
    runs "$of on two ranks" 0 . generate --model "$work/$of" --tokens 5,9,2 --max-new 6 --greedy --json --tp 2
    check "the same tokens" diff "$work/tokens" <(grep -o '"tokens":[^]]*' "$work/stdout")
done
runs "plan knows it" 0 '"sums":"mma16"' plan --config "$model/config.json" --dtype float16 --sums mma16 --seq 64 --json
finish
