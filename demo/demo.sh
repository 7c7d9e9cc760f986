#!/usr/bin/env bash
# demo.sh - `./run demo`: the whole path on made-up words, in one to three minutes on two cores.
#
# A small Llama learns in full to repeat a word; an adapter then teaches it Pig
# Latin. The adapter's training is killed on 2 ranks and goes on with 3; an
# undisturbed run on 1 rank gives the same file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sheaf=build/sheaf
work=build/demo
begin=$SECONDS
full_steps=300
recipe=demo/pig-latin.recipe
kill_after=130

rm -rf "$work"
mkdir -p "$work"

headline() { printf '\n== [%3d s] %s\n' $((SECONDS - begin)) "$*"; }
stop() { printf 'demo: %s\n' "$*" >&2; exit 1; }
. demo/now_you.sh
# Shows a command as a reader would type it, then runs it.
show() { printf '   $ %s\n' "$*"; "$@"; }
# exact_match JSON: the share of held-out prompts answered exactly, in percent.
exact_match() { awk 'match($0, /"exact_match": *[0-9.eE+-]+/) { v = substr($0, RSTART, RLENGTH); sub(/.*: */, "", v); printf "%.1f\n", 100 * v; exit }' "$1"; }
score() { # score NAME TASK ARGUMENT...
    local name=$1 task=$2
    shift 2
    "$sheaf" generate "$@" --data "$work/$task-heldout.jsonl" --max-new 16 --greedy --json >"$work/$name.json" 2>"$work/$name.log" ||
        { cat "$work/$name.log" >&2; stop "generate failed"; }
    exact_match "$work/$name.json"
}
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }

headline "examples: 20000 words to learn from, 600 others held out"
awk -v out="$work" -v train=20000 -v held=600 -f demo/make_words.awk
head -n 1 "$work/say-train.jsonl" "$work/pig-train.jsonl" | grep prompt
prompts=$(wc -l <"$work/pig-heldout.jsonl")
seen=$(cut -d'"' -f4 "$work/pig-heldout.jsonl" | grep -c -x -F -f <(cut -d'"' -f4 "$work/pig-train.jsonl" "$work/say-train.jsonl") || true)
answers=$(cut -d'"' -f8 "$work/pig-heldout.jsonl" | sort -u | wc -l)
most=$(cut -d'"' -f8 "$work/pig-heldout.jsonl" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $1 }')
[ "$prompts" -ge 500 ] && [ "$seen" -eq 0 ] && [ "$answers" -ge 200 ] && [ $((most * 20)) -le "$prompts" ] ||
    stop "the held-out set is not fair: $prompts prompts, $seen in training, $answers answers, the commonest $most times"

headline "a new model with random weights, trained in full to repeat a word"
show $sheaf init demo/model.json $work/new --seed 1
show $sheaf train --model $work/new --data $work/say-train.jsonl --out $work/full --method full --steps $full_steps \
    --micro-batch 32 --lr 2e-3 --warmup 30 --schedule linear --threads 2
base=$work/full/model
say=$(score say-base say --model "$base")
off=$(score pig-off pig --model "$base")
echo "   held-out words repeated: $say %; in Pig Latin without an adapter: $off %"

headline "an adapter for Pig Latin on 2 ranks, killed after step $kill_after"
echo "   $ $sheaf train --recipe $recipe --out $work/lora --tp 2 &"
"$sheaf" train --recipe $recipe --out "$work/lora" --tp 2 2>"$work/killed.log" &
victim=$!
until [ "$(cat "$work/lora/metrics.jsonl" 2>/dev/null | wc -l)" -ge $kill_after ]; do
    kill -0 $victim 2>/dev/null || { cat "$work/killed.log" >&2; stop "the run ended before it could be killed"; }
    sleep 0.05
done
kill -KILL $victim
wait $victim 2>/dev/null || true
echo "   killed with SIGKILL; $(wc -l <"$work/lora/metrics.jsonl") steps were done, no adapter yet"
[ ! -e "$work/lora/adapter" ] || stop "there should be no adapter yet"

headline "it goes on from its newest checkpoint, on 3 ranks"
show $sheaf train --recipe $recipe --out $work/lora --tp 3 --resume

headline "the same run on 1 rank, undisturbed"
show $sheaf train --recipe $recipe --out $work/undisturbed --tp 1
for file in adapter_model.safetensors adapter_config.json; do
    show cmp "$work/lora/adapter/$file" "$work/undisturbed/adapter/$file" || stop "the adapters differ in $file"
done
echo "   equal byte for byte: $(sha256sum <"$work/lora/adapter/adapter_model.safetensors" | cut -c1-16)..."

headline "merged, and asked about words it has not seen"
show $sheaf merge "$base" "$work/lora/adapter" "$work/merged"
on=$(score pig-on pig --model "$base" --adapter "$work/lora/adapter" --tp 3)
merged=$(score pig-merged pig --model "$work/merged")
head -n 3 "$work/pig-heldout.jsonl" | cut -d'"' -f4 | while read -r prompt; do
    prompt="$prompt "
    printf '   %s\n' "$($sheaf generate --model "$work/merged" --prompt "$prompt" --max-new 16 --greedy 2>/dev/null)"
done

at_least 19.9 "$off" || stop "without the adapter the accuracy is $off %, it should be below 20 %"
at_least "$on" 80.1 || stop "with the adapter the accuracy is $on %, it should be above 80 %"
at_least "$merged" 80.1 || stop "of the merged model the accuracy is $merged %, it should be above 80 %"

printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "a model made and trained in full: $say % of unseen words repeated" "$base" \
    "Pig Latin without the adapter: $off % exact" "$work/pig-off.json" \
    "with the adapter, on 3 ranks: $on % exact" "$work/pig-on.json" \
    "merged into the model: $merged % exact" "$work/merged" \
    "asked: $prompts words that no training file has, $answers different answers" "$work/pig-heldout.jsonl" \
    "killed on 2 ranks, resumed on 3: the adapter is, byte for byte," "$work/lora/adapter" \
    "that of an undisturbed run on 1 rank" "$work/undisturbed/adapter"
now_you $sheaf generate --model "$work/merged" --prompt "$(head -n 1 "$work/pig-heldout.jsonl" | cut -d'"' -f4)" --max-new 16 --greedy
