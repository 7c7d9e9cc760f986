#!/usr/bin/env bash
# chat.sh - `./run demo-chat`: a chat model with a real tokenizer, from raw conversations to answers, in about two minutes.
#
# A small Qwen2 with a byte-level BPE tokenizer and the ChatML template learns to
# write numbers in words, in the language of the question; an adapter, trained on
# two ranks, then makes it answer English questions in German. All numbers it is asked in the end are new to it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sheaf=build/sheaf
work=build/demo-chat
begin=$SECONDS

rm -rf "$work"
mkdir -p "$work"

headline() { printf '\n== [%3d s] %s\n' $((SECONDS - begin)) "$*"; }
stop() { printf 'demo: %s\n' "$*" >&2; exit 1; }
. demo/now_you.sh
show() { printf '   $ %s\n' "$*"; "$@"; }
# score NAME SET ARGUMENT...: the share of held-out numbers written exactly, in percent.
score() {
    local name=$1 set=$2
    shift 2
    "$sheaf" generate "$@" --data "$work/$set-heldout.jsonl" --max-new 40 --greedy --json >"$work/$name.json" 2>"$work/$name.log" ||
        { cat "$work/$name.log" >&2; stop "generate failed"; }
    awk 'match($0, /"exact_match": *[0-9.eE+-]+/) { v = substr($0, RSTART, RLENGTH); sub(/.*: */, "", v); printf "%.1f\n", 100 * v; exit }' "$work/$name.json"
}
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }

headline "conversations about numbers up to 999, of which 150 are held out"
awk -v out="$work" -v train=6000 -v held=150 -f demo/numbers/make_numbers.awk
head -n 1 "$work/base-train.jsonl" "$work/adapter-train.jsonl" | grep messages

headline "a new Qwen2 with a tokenizer of its own"
show $sheaf init demo/numbers/model.json $work/new --seed 1
cp demo/numbers/tokenizer.json demo/numbers/tokenizer_config.json "$work/new"
echo "   $ echo -n 'Write 47 in words.' | $sheaf tokenize --tokenizer $work/new -"
printf 'Write 47 in words.' | $sheaf tokenize --tokenizer "$work/new" -

headline "trained in full: several conversations packed in each row, only answers learned"
# the order of sums is named: the same model on every processor
common=(--pack --seq 192 --warmup 20 --schedule cosine --eval-split 0.02 --eval-every 200 --threads 2 --dtype bfloat16 --sums tiles)
show $sheaf train --model $work/new --data $work/base-train.jsonl --out $work/full --method full --steps 650 \
    --micro-batch 10 --lr 2e-3 "${common[@]}"
base=$work/full/model
english=$(score english base --model "$base")
before=$(score before adapter --model "$base")
echo "   held-out numbers: $english % right in English, $before % in German"

headline "an adapter that answers in German, on 2 ranks"
show $sheaf train --model $base --data $work/adapter-train.jsonl --out $work/lora --method lora --lora-rank 16 --lora-alpha 32 \
    --lora-targets all-linear --steps 160 --micro-batch 10 --lr 3e-3 --tp 2 "${common[@]}"
german=$(score german adapter --model "$base" --adapter "$work/lora/adapter")

headline "a conversation, without and with the adapter"
printf 'Write 64 in words.\nAnd 712?\n' >"$work/questions"
echo "   $ $sheaf chat --model $base --greedy"
$sheaf chat --model "$base" --greedy --max-new 40 <"$work/questions" 2>/dev/null
echo "   $ $sheaf chat --model $base --adapter $work/lora/adapter --greedy"
$sheaf chat --model "$base" --adapter "$work/lora/adapter" --greedy --max-new 40 <"$work/questions" 2>/dev/null

at_least "$english" 95 || stop "English is right in $english %, it should be at least 95 %"
at_least 5 "$before" || stop "without the adapter German is right in $before %, it should be below 5 %"
at_least "$german" 95 || stop "with the adapter German is right in $german %, it should be at least 95 %"

printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "numbers that no training file has, in English: $english % exact" "$work/english.json" \
    "in German without the adapter: $before % exact" "$work/before.json" \
    "in German with it: $german % exact" "$work/german.json" \
    "losses and evaluations of each step" "$work/full/metrics.jsonl"
now_you $sheaf chat --model "$base" --adapter "$work/lora/adapter" --greedy
