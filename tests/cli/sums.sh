#!/usr/bin/env bash
# --sums: both orders of bfloat16 sums run with every kernel and at any number of ranks with equal bytes; the order
# is stored with a run, kept by --resume and by whatever uses its checkpoints.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf data=$llama/tiny_llama/fwd_inputs.safetensors
here=$("$sheaf" info --machine --json | grep -oE '"sums": "(pairs|tiles)"' | cut -d'"' -f4)
check "the machine names an order" test -n "$here"
train() { # train NAME OUT FLAG...
    local name=$1 out=$2
    shift 2
    runs "$name" 0 . train --model "$model" --data "$data" --out "$work/$out" --steps 3 --micro-batch 2 --lr 1e-2 --lora-targets all-linear --save-every 1 \
        --dtype bfloat16 "$@"
}

train "pairs" pairs --sums pairs --tp 1
train "tiles" tiles --sums tiles --tp 1
train "tiles, by the reference on 3 ranks" tiles.ref --sums tiles --tp 3 --isa ref
train "tiles, by AVX2 on 2 ranks" tiles.avx2 --sums tiles --tp 2 --isa avx2
train "pairs, by the reference" pairs.ref --sums pairs --tp 8 --isa ref
train "no order named" unnamed
for other in tiles.ref tiles.avx2; do same "the same checkpoints: $other" "$work/tiles/checkpoints" "$work/$other/checkpoints"; done
same "the same checkpoints: pairs.ref" "$work/pairs/checkpoints" "$work/pairs.ref/checkpoints"
same "the same as the order that the machine names" "$work/$here/checkpoints" "$work/unnamed/checkpoints"
check "the orders differ" bash -c "! cmp -s '$work/pairs/adapter/adapter_model.safetensors' '$work/tiles/adapter/adapter_model.safetensors'"
for isa in avx512 avx512bf16 amx; do
    grep -q avx512f /proc/cpuinfo || break
    "$sheaf" eval --model "$model" --data "$data" --dtype bfloat16 --isa $isa >/dev/null 2>&1 || continue # not on this machine
    train "tiles, $isa" tiles.$isa --sums tiles --tp 2 --isa $isa
    same "the same checkpoints: tiles.$isa" "$work/tiles/checkpoints" "$work/tiles.$isa/checkpoints"
    train "pairs, $isa" pairs.$isa --sums pairs --isa $isa
    same "the same checkpoints: pairs.$isa" "$work/pairs/checkpoints" "$work/pairs.$isa/checkpoints"
done

# ---- what is stored ----
check "settings name it" grep -qx 'sums: tiles' "$work/tiles/settings"
runs "float32 has no order" 0 '^\{[^}]*\}' train --model "$model" --data "$data" --out "$work/f32" --steps 1 --micro-batch 2 --json
check "and names none" bash -c "! grep -q ^sums '$work/f32/settings' && ! grep -q '\"sums\"' '$work/stdout'"
for dtype in float32 float16; do
    order="--sums tiles has no effect: $dtype has one order"
    runs "in $dtype none has an effect" 0 "$order" train --model "$model" --data "$data" --out "$work/none-$dtype" --steps 1 --dtype $dtype --sums tiles
    check "nor is it stored" bash -c "! grep -q ^sums '$work/none-$dtype/settings'"
    runs "in plan" 0 "$order" plan --config "$model/config.json" --dtype $dtype --sums tiles --seq 64
    runs "in eval" 0 "$order" eval --model "$model" --data "$data" --dtype $dtype --sums tiles
    runs "in generate" 0 "$order" generate --model "$model" --tokens 5 --dtype $dtype --sums tiles
done
runs "nor with the type of a run" 0 '--sums pairs has no effect: float32' eval --model "$work/f32" --data "$data" --sums pairs
echo 'sums: tiles' >"$work/order.recipe"
runs "a recipe may name one for another type" 0 . train --model "$model" --data "$data" --out "$work/recipe" --recipe "$work/order.recipe" --steps 1 --micro-batch 2
check "which is not stored" bash -c "! grep -q ^sums '$work/recipe/settings'"
same "and changes nothing" "$work/f32/checkpoints/step-00000001" "$work/recipe/checkpoints/step-00000001"

# ---- going on ----
rm -r "$work/tiles.ref/checkpoints/step-00000003" "$work/tiles.ref/checkpoints/step-00000002" "$work/tiles.ref/adapter"
runs "another order is refused" 2 'sums cannot change.*expected: tiles.*found: +pairs' train --resume --out "$work/tiles.ref" --sums pairs
runs "a run goes on in its order" 0 '"sums":"tiles"' train --resume --out "$work/tiles.ref" --json
same "and ends with the same bytes" "$work/tiles/checkpoints/step-00000003" "$work/tiles.ref/checkpoints/step-00000003"

# The order is a checkpoint's own, whatever settings say that were changed beside it; --resume refuses these.
cp -r "$work/tiles" "$work/changed"
for change in '/^sums/d' '$asums: pairs'; do
    sed -i "$change" "$work/changed/settings"
    for of in changed changed/checkpoints/step-00000002; do
        runs "$of is read as tiles, in its own type" 0 '"sums":"tiles".*activations in bfloat16, as in the run' eval --model "$work/$of" --data "$data" --json
    done
done
runs "which no run goes on with" 2 '--resume: the settings.*sums: tiles.*found: +others: sums: pairs' train --resume --out "$work/changed" --steps 4

# ---- what uses a run ----
losses() { "$sheaf" eval --model "$1" --data "$data" --dtype bfloat16 --save-logits "$work/logits.$2" "${@:3}" --json 2>/dev/null; }
for order in pairs tiles; do
    losses "$work/$order/checkpoints/step-00000003" own >"$work/own"
    losses "$work/$order/checkpoints/step-00000003" asked --sums $order --tp 2 >"$work/asked"
    check "a checkpoint of $order is evaluated so" grep -q "\"sums\":\"$order\"" "$work/own"
    same "$order: the same logits as asked for" "$work/logits.own" "$work/logits.asked"
    rm -f "$work"/logits.*
done
for order in pairs tiles; do
    runs "generate: $order" 0 "\"sums\":\"$order\"" generate --model "$work/tiles" --tokens 5,9,2 --max-new 4 --dtype bfloat16 --sums $order --json
done
runs "generate takes the run's" 0 '"sums":"tiles"' generate --model "$work/tiles" --tokens 5,9,2 --max-new 4 --json
runs "unless it is told another type" 0 '"tokens"' generate --model "$work/tiles" --tokens 5,9,2 --max-new 4 --dtype float32 --json
check "in which there is no order" bash -c "! grep -q '\"sums\"' '$work/stdout'"
runs "a model of bytes" 0 . init tiny-bytes "$work/bytes" --seed 5
for order in pairs tiles; do
    echo hi | "$sheaf" chat --model "$work/bytes" --max-new 2 --dtype bfloat16 --sums $order --json >"$work/stdout" 2>"$work/stderr"
    check "chat: $order" grep -q "^{.*\"sums\": *\"$order\"" "$work/stdout"
done
echo hi | "$sheaf" chat --model "$work/bytes" --max-new 2 --json >"$work/stdout" 2>"$work/stderr"
check "and in float32 none" bash -c "grep -q '\"tokens\"' '$work/stdout' && ! grep -q '\"sums\"' '$work/stdout'"
runs "an order that there is not" 2 'sums.*pairs, tiles, mma8 or mma16' generate --model "$model" --tokens 5 --sums squares
runs "plan knows it" 0 '"peak"' plan --config "$model/config.json" --dtype bfloat16 --sums tiles --seq 64 --json
runs "what computes them here" 0 '"sums": "(pairs|tiles)"' info --machine --json
runs "kernels of the processor and of GPUs" 0 '"kernels": "[a-z0-9]+".*"gpu_kernels": \{"' info --machine --json

# ---- what is fixed ----
train "a run of one slice" alone --slices 1
runs "a recipe's order of another type is no change" 0 'going on after step 1' train --resume --out "$work/recipe" --recipe "$work/order.recipe" --steps 2
runs "nor is a flag's" 0 'sums pairs has no effect.*going on after step 2' train --resume --out "$work/recipe" --sums pairs --steps 3

# Evaluation adds as the run did.
losses "$work/pairs/checkpoints/step-00000003" once >/dev/null
losses "$work/pairs/checkpoints/step-00000003" once.ranks --tp 3 >/dev/null
same "a run on one rank and on three" "$work/logits.once" "$work/logits.once.ranks"
losses "$model" bare --adapter "$work/pairs/adapter" --sums pairs >/dev/null
same "and its adapter alone" "$work/logits.once" "$work/logits.bare"
finish
