#!/usr/bin/env bash
# Everything a run leaves is the same at any number of ranks and threads: 36 runs of
# 12 steps that cover every pair of (ranks, threads, dtype, method, model).
# `./run soak` runs all 288, of 50 steps.
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
ln -s "$llama/tiny_llama/hf" "$work/tiny"
odd_model "$work/odd" || fail "init of the odd model"

# RANKS:THREADS of the three runs of each setting, found by a small search.
settings=("tiny float32 lora 1:2 7:1 3:2" "tiny float32 head 1:1 8:2 3:5" "tiny float32 full 1:2 5:1 4:1"
          "tiny bfloat16 lora 1:2 8:1 2:2" "tiny bfloat16 head 1:5 8:5 7:5" "tiny bfloat16 full 1:1 6:2 2:5"
          "odd float32 lora 1:5 2:5 6:1" "odd float32 head 1:1 5:2 6:5" "odd float32 full 1:1 7:2 8:2"
          "odd bfloat16 lora 1:1 4:2 5:5" "odd bfloat16 head 1:5 4:1 2:1" "odd bfloat16 full 1:1 3:1 4:5")

declare -A seen
for setting in "${settings[@]}"; do
    read -r model dtype method runs <<<"$setting"
    flags=(--model "$work/$model" --data "$data" --method "$method" --dtype "$dtype" --micro-batch 1 --accumulate 2 --steps 12
           --save-every 6 --lr 3e-3 --seed 11)
    [ "$method" != lora ] || flags+=(--lora-rank 5 --lora-alpha 10 --lora-targets all-linear --lora-dropout 0.1)
    [ "$method $model" != "lora odd" ] || flags+=(--lora-dora)
    want=""
    for run in $runs; do
        ranks=${run%:*}
        threads=${run#*:}
        for other in "$threads" "$method" "$dtype" "$model"; do
            seen["$ranks ranks, $other"]=1 seen["$threads threads, $other"]=1
        done
        name="$model, $dtype, $method, $ranks ranks, $threads threads"
        rm -rf "$work/run"
        if ! "$sheaf" train "${flags[@]}" --out "$work/run" --tp "$ranks" --threads "$threads" >"$work/log" 2>&1 </dev/null; then
            fail "$name" "$(tail -n 5 "$work/log")"
            continue
        fi
        got=$(digest "$work/run")
        want=${want:-$got}
        if [ "$got" = "$want" ]; then pass "$name"; else fail "$name" "other bytes than on 1 rank"; fi
    done
done

missing=""
for other in lora head full float32 bfloat16 tiny odd; do
    for first in "1 ranks" "2 ranks" "3 ranks" "4 ranks" "5 ranks" "6 ranks" "7 ranks" "8 ranks" "1 threads" "2 threads" "5 threads"; do
        [ -n "${seen["$first, $other"]:-}" ] || missing="$missing ($first, $other)"
    done
done
for ranks in 1 2 3 4 5 6 7 8; do
    for threads in 1 2 5; do
        [ -n "${seen["$ranks ranks, $threads"]:-}" ] || missing="$missing ($ranks ranks, $threads threads)"
    done
done
if [ -z "$missing" ]; then pass "every pair was met"; else fail "every pair was met" "missing:$missing"; fi

for ranks in 1 3; do # a factor of the head, of which the last rank has the last rows
    runs "LoRA on the head, $ranks ranks" 0 . train --model "$work/odd" --data "$data" --lora-rank 3 --lora-targets q_proj,lm_head --lr 1e-2 --steps 4 \
        --dtype bfloat16 --out "$work/head.$ranks" --tp $ranks
done
same "the same bytes" "$work/head.1/adapter" "$work/head.3/adapter"
finish
