#!/usr/bin/env bash
# reward.sh - a small model that has half learnt sums goes on by reward alone: it answers, a program says right or wrong.
#
#   reward.sh [WORK]    the folder for its files, build/demo-reward by default
# SHEAF names the command; default build/sheaf.
set -euo pipefail
cd "$(dirname "$0")/.."
sheaf=${SHEAF:-build/sheaf}
work=${1:-build/demo-reward}
rm -rf "$work"
mkdir -p "$work"

# every sum of two digits from 0 to 5, in an order that mixes them
for ((i = 0; i < 36; i++)); do
    n=$(((i * 23 + 5) % 36))
    printf '{"prompt": "%d+%d=", "completion": "%d"}\n' $((n / 6)) $((n % 6)) $((n / 6 + n % 6))
done >"$work/sums.jsonl"
right() { # right MODEL: the share of sums that its most probable answers have right
    "$sheaf" eval "$1" "$work/sums.jsonl" --match --max-new 3 --json 2>/dev/null |
        awk 'match($0, /"exact_match": *[0-9.eE+-]+/) { v = substr($0, RSTART, RLENGTH); sub(/.*: */, "", v); printf "   right: %.0f %% of the sums\n", 100 * v; exit }'
}
"$sheaf" init demo/model.json "$work/base" --seed 1 >/dev/null
how=(--method full --warmup 0 --schedule constant --seed 1)

echo "1. Supervised, too short to learn the sums:"
"$sheaf" train "$work/base" "$work/sums.jsonl" -o "$work/start" "${how[@]}" --lr 2e-3 --micro-batch 12 --steps 120 2>&1 | tail -n 3
right "$work/start/model"

echo "2. By reward alone: 1 for a right answer, 0 for a wrong one; nobody shows it the answer"
"$sheaf" train "$work/start/model" "$work/sums.jsonl" -o "$work/learnt" "${how[@]}" --objective grpo --reward exact \
    --generations 8 --max-new 3 --micro-batch 32 --accumulate 4 --lr 3e-4 --steps 50 2>&1 | tail -n 3
sed -n 's/^{"step": \([0-9]*\),.*"reward": \([0-9.]*\),.*/step \1: reward \2/p' "$work/learnt/metrics.jsonl" | sed -n '1p;0~10p'
right "$work/learnt/model"
echo "What it answered, and what each was worth: $work/learnt/rollouts.jsonl"
