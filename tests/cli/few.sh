#!/usr/bin/env bash
# few.sh - few prompts at a time, for which weights are held in fewer bits, answer as many together:
# every kind of model, in two of four types and orders of sums; SHEAF_SOAK=1: in all. A batch of five holds all 16 bits.
source "$(dirname "$0")/lib.sh"
cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$work/"
for i in 1 2 3 4 5; do
    printf '{"prompt": "%s and what?"}\n' "$i" >>"$work/texts.jsonl"
    printf '{"id": "%s", "image": "rgb8.png", "conversations": [{"from": "human", "value": "<image>\\n%s, and what?"}, {"from": "gpt", "value": "that"}]}\n' \
        "$i" "$i" >>"$work/lines"
done
{ echo "["; sed '$!s/$/,/' "$work/lines"; echo "]"; } >"$work/talks.json"

# answers FILE FLAG...: tokens and how probable they are, a line each.
answers() {
    local file=$1
    shift
    "$sheaf" generate --max-new 6 --greedy --logprobs 2 --json "$@" 2>"$work/stderr" | grep -oE '"(tokens|logprobs|top_logprobs)":[^"]*' >"$file"
    [ -s "$file" ] || { cat "$work/stderr"; return 1; }
}

turn=0 # each model in two of four types and orders, each of which half of the models have
specs=$("$sheaf" init --help | grep -oE '^ +[a-z0-9.-]+-(tiny|bytes)\b|minicpmv-[0-9.]+-tiny')
check "there are models of every kind" test "$(echo "$specs" | wc -l)" -ge 8
for spec in $specs; do
    prompts=(--data "$work/talks.json")
    [[ $spec != *-bytes ]] || prompts=(--prompts "$work/texts.jsonl")
    runs "$spec" 0 . init "$spec" "$work/$spec" --dtype bfloat16 --seed 3
    turn=$((1 - turn))
    hows=("float32" "bfloat16 --sums tiles" "bfloat16 --sums pairs" "float16")
    [ -n "${SHEAF_SOAK:-}" ] || hows=("${hows[@]:turn * 2:2}")
    for how in "${hows[@]}"; do
        # shellcheck disable=SC2206
        asked=(--model "$work/$spec" "${prompts[@]}" --dtype $how)
        check "$spec, $how: five together" answers "$work/five" "${asked[@]}" --batch 5
        for few in 1 3; do
            check "$spec, $how: $few at a time" answers "$work/few" "${asked[@]}" --batch $few
            same "$spec, $how: $few at a time say the same" "$work/five" "$work/few"
        done
    done
    check "$spec: one at a time on three ranks" answers "$work/few" --model "$work/$spec" "${prompts[@]}" --dtype bfloat16 --sums tiles --batch 1 --tp 3
    check "$spec: five on two" answers "$work/five" --model "$work/$spec" "${prompts[@]}" --dtype bfloat16 --sums tiles --batch 5 --tp 2
    same "$spec: the same" "$work/five" "$work/few"
done
finish
