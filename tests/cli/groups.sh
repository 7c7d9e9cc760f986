#!/usr/bin/env bash
# Groups that share the micro-batches of a step (--dp) leave what one group leaves: adapter, checkpoints with
# the optimizer's state, metrics. Runs go on at any other number of groups and ranks; a rank that fails in one
# group ends all. Each setting of a family begins a run that the next one resumes; `./run soak` runs all pairs.
. "$(dirname "$0")/lib.sh"

tiny=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors

# train OUT FLAG...
train() {
    local out=$1
    shift
    "$sheaf" train --out "$out" "$@" >"$work/log" 2>&1 </dev/null
}
# grid T:D
grid() { printf -- '--tp %s --dp %s' "${1%:*}" "${1#*:}"; }

# family NAME "T:D T:D..." FLAG...: four steps at 1:1, and two at one setting, two at the next.
family() {
    local name=$1 from="" to want got
    local -a grids
    read -r -a grids <<<"$2"
    shift 2
    rm -rf "$work/one"
    train "$work/one" "$@" --steps 4 --save-every 2 || { fail "$name" "$(tail -n 4 "$work/log")"; return; }
    want=$(digest "$work/one")
    from=${grids[-1]}
    for to in "${grids[@]}"; do
        rm -rf "$work/run"
        # shellcheck disable=SC2046
        if train "$work/run" "$@" --steps 2 --save-every 2 $(grid "$from") --threads $((RANDOM % 3 + 1)) &&
            train "$work/run" --resume --steps 4 $(grid "$to"); then
            got=$(digest "$work/run")
            if [ "$got" = "$want" ]; then pass "$name, $from then $to"; else fail "$name, $from then $to" "other bytes than on one rank"; fi
        else
            fail "$name, $from then $to" "$(tail -n 4 "$work/log")"
        fi
        from=$to
    done
}

small=(--data "$data" --micro-batch 1 --lr 3e-3 --schedule constant --seed 11)
lora=(--lora-rank 5 --lora-targets all-linear --lora-dropout 0.1)
odd_model "$work/odd" || fail "init of the odd model"
family "lora" "1:1 2:2 1:4 8:1 3:2" --model "$tiny" "${small[@]}" "${lora[@]}" --accumulate 5 --neftune-alpha 5 --label-smoothing 0.1
family "lora, fewer micro-batches than groups" "1:4 4:2 2:1" --model "$work/odd" "${small[@]}" "${lora[@]}" --accumulate 3 --checkpointing
family "lora in 16 groups of lanes" "2:16 1:1" --model "$tiny" "${small[@]}" "${lora[@]}" --accumulate 16 --accumulators 16
family "head" "2:2 5:1 1:2" --model "$work/odd" "${small[@]}" --method head --accumulate 4 --dtype bfloat16
family "full" "2:4 8:1 1:4 4:2 1:1" --model "$work/odd" "${small[@]}" --method full --accumulate 4 --accumulators 4
family "full in bfloat16" "2:2 7:1" --model "$tiny" "${small[@]}" --method full --accumulate 3 --accumulators 2 --dtype bfloat16
family "full in float16, whose scale overflows" "2:2 1:1" --model "$tiny" "${small[@]}" --method full --accumulate 4 --accumulators 2 --dtype float16 --loss-scale-init 16777216
tied=$llama/tiny_llama3rope/hf
family "full with a tied table" "2:2 1:1" --model "$tied" --data "$llama/tiny_llama3rope/fwd_inputs.safetensors" --micro-batch 1 --lr 3e-3 --schedule constant --seed 3 --method full --accumulate 2 --accumulators 2

family "evaluations while it trains" "2:2 1:4" --model "$tiny" "${small[@]}" "${lora[@]}" --accumulate 4 --eval-data "$data" --eval-every 1 --use-best

# ---- evaluations and answers: rows and prompts are shared, results come in their order ----
for n in 5,6,7 8 9,10 11,12,13,14 15,16 17 18,19; do echo "{\"tokens\": [$n], \"completion\": \"$n\"}"; done >"$work/prompts.jsonl"
ids=$(for i in $(seq 77); do echo $(((i * 37) % 500 + 3)); done | tr '\n' ' ')
tokens_file "$work/rows.safetensors" 7 11 "$ids" "$ids"
for to in 1:1 2:3 1:8; do
    # shellcheck disable=SC2046
    for batch in 1 2 3; do
        runs "seven rows at $to, $batch at a time" 0 . eval --model "$tiny" --data "$work/rows.safetensors" $(grid $to) --micro-batch $batch --json
        cp "$work/stdout" "$work/eval-$batch.$to"
        same "give the same numbers" "$work/eval-$batch.1:1" "$work/eval-$batch.$to"
    done
    # shellcheck disable=SC2046
    runs "seven prompts at $to" 0 '"tokens"' generate --model "$tiny" --data "$work/prompts.jsonl" --max-new 9 --batch 2 --temperature 0.9 --seed 5 --logprobs 2 --json $(grid $to)
    cp "$work/stdout" "$work/generate.$to"
    same "give the same answers" "$work/generate.1:1" "$work/generate.$to"
done
check "seven of them" test "$(grep -o '"logprobs"' "$work/generate.1:8" | wc -l)" -eq 7
runs "one prompt is answered by each group" 0 '^[0-9]+,' generate --model "$tiny" --tokens 5,6 --max-new 3 --greedy --dp 3
for to in 1:1 2:3 1:8; do # groups write their rows' logits side by side
    # shellcheck disable=SC2046
    runs "logits of seven rows at $to" 0 . eval --model "$tiny" --data "$work/rows.safetensors" $(grid $to) --micro-batch 2 --save-logits "$work/logits.$to"
    same "are the same" "$work/logits.1:1" "$work/logits.$to"
done
runs "more groups than there can be ranks" 2 'at most 64 ranks' eval --model "$tiny" --data "$data" --dp 33 --tp 2

# ---- pictures ----
if [ -d "$golden/cogvlm/mp1" ]; then
    vision=$golden/cogvlm/mp1
    words=(--tokenizer "$golden/cogvlm/tiny_tokenizer.model")
else
    vision=$work/cogvlm
    words=()
    runs "a model that sees" 0 . init cogvlm-tiny "$vision" --seed 4
fi
pictures=$SHEAF_SOURCE_ROOT/tests/data/images
mkdir -p "$work/caps"
for p in rgb8.png turned6.jpg lossy.webp cmyk.jpg grey16.png; do cp "$pictures/$p" "$work/caps/${#p}${p##*.}.${p##*.}"; done
see=(--model "$vision" "${words[@]}" --data "$work/caps" --micro-batch 2 --accumulate 4 --lr 1e-3 --schedule constant --seed 3)
family "pictures" "2:2 1:4" "${see[@]}" --lora-rank 2 --lora-targets all-linear
family "pictures, full" "1:2 2:1" "${see[@]}" --method full --accumulators 2
for to in 1:1 2:2; do
    # shellcheck disable=SC2046
    runs "pictures are judged and answered at $to" 0 '"exact_match"' eval --model "$vision" "${words[@]}" --data "$work/caps" --match --max-new 3 --micro-batch 2 --json $(grid $to)
    cp "$work/stdout" "$work/judged.$to"
    same "the same way" "$work/judged.1:1" "$work/judged.$to"
done

# ---- what cannot be ----
runs "groups that do not divide the accumulators" 2 'expected: a divisor of 1, the --accumulators of this method.*found: *2.*--accumulators 2 from the start' \
    train --model "$tiny" "${small[@]}" --method full --steps 1 --dp 2 --out "$work/none"
runs "a number that is no power of two" 2 'a divisor of 4.*a power of two, up to 16' train --model "$tiny" "${small[@]}" --steps 1 --dp 3 --out "$work/none"
runs "accumulators likewise" 2 'accumulators.*a power of two' train --model "$tiny" "${small[@]}" --steps 1 --accumulators 6 --out "$work/none"
runs "more ranks than can be" 2 'at most 64 ranks in all' train --model "$tiny" "${small[@]}" --slices 64 --accumulators 16 --tp 8 --dp 16 --steps 1 --out "$work/none"
absent "nothing was begun" "$work/none"
runs "a run" 0 . train --model "$tiny" "${small[@]}" "${lora[@]}" --steps 1 --dp 2 --out "$work/kept"
runs "goes on with the accumulators that it has" 0 . train --resume --out "$work/kept" --steps 2 --dp 4
runs "not with others" 2 'accumulators' train --resume --out "$work/kept" --steps 3 --accumulators 8

# ---- failures ----
# The first failure of a rank in whichever group is what all say, and what one rank alone says.
for bad in "--method full --accumulators 4 --weight-decay 1e30" "--lora-targets all-linear --weight-decay 1e30" "--method head --dtype float16 --weight-decay 1e9"; do
    for to in 1:1 2:2 1:4 3:2; do
        rm -rf "$work/nan"
        # shellcheck disable=SC2046,SC2086
        timeout 120 "$sheaf" train --model "$tiny" "${small[@]}" --accumulate 4 --steps 9 $bad --clip 0 $(grid $to) --out "$work/nan" >/dev/null 2>"$work/log.$to"
        [ $? -eq 3 ] || fail "a number that is not finite, $to" "$(tail -n 4 "$work/log.$to")"
        grep -A 3 '^sheaf: step' "$work/log.$to" >"$work/said.$to"
        check "a number that is not finite is told alike, $to: $bad" cmp "$work/said.1:1" "$work/said.$to"
    done
done
check "and told" grep -q 'expected: a finite number' "$work/said.1:1"

rm -rf "$work/one"
train "$work/one" --model "$tiny" "${small[@]}" --method full --accumulators 4 --accumulate 4 --steps 3 --save-every 1 --keep 0 || fail "an undisturbed run" "$(tail -n 4 "$work/log")"
for n in 2 13 31 60; do
    rm -rf "$work/run"
    SHEAF_FAULT=write:$n:enospc timeout 120 "$faulty" train --model "$tiny" "${small[@]}" --method full --accumulators 4 --accumulate 4 --steps 3 --save-every 1 --keep 0 \
        --tp 2 --dp 4 --out "$work/run" >"$work/log" 2>&1 </dev/null
    [ $? -eq 3 ] || fail "a disk that is full at write $n" "$(tail -n 4 "$work/log")"
    if [ -e "$work/run/checkpoints" ]; then
        check "goes on after a full disk at write $n" "$sheaf" train --resume --out "$work/run" --tp 2 --dp 2
        check "to the bytes of the undisturbed run, $n" diff -r "$work/one/checkpoints" "$work/run/checkpoints"
    fi
done
finish
