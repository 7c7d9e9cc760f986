#!/usr/bin/env bash
# minicpm.sh - `./run demo-vlm --minicpm [--json]`: a small MiniCPM-V 2.6 learns to read pictures of numbers. See docs/demo-vlm.md.
#
# It learns in full from one style of pictures; an adapter as MiniCPM-V's script makes it (LoRA, with resampler and tower
# in full), trained on two ranks, then teaches it another, is merged, and the merged model is asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. demo/vlm_lib.sh
for word in "$@"; do
    case $word in
        --minicpm) ;;
        --json) json=true ;;
        *) usage ;;
    esac
done
full_steps=${SHEAF_DEMO_STEPS:-3600}
lora_steps=${SHEAF_DEMO_LORA_STEPS:-1000}
work_in build/demo-minicpm

draw
# A question and its answer about every picture, beside the pictures.
for part in night/train night/heldout day/train day/heldout; do
    (cd "$work" && find $part -type f | sort | awk -v ask='Number?' -f ../../demo/pairs.awk >"${part/\//-}.json")
done
echo "   as MiniCPM-V's fine-tuning reads them: $(sed -n 2p "$work/night-train.json" | sed 's/,$//')"

headline "a new model with random weights, trained in full on the style night"
show $sheaf init demo/minicpmv.json "$work/new" --seed 1
show $sheaf train --model "$work/new" --data "$work/night-train.json" --out "$work/full" --method full --steps "$full_steps" \
    --micro-batch 16 --lr 1e-3 --warmup 100 --schedule cosine --threads 2
base=$work/full/model
night=$(score night "$work/night-heldout.json" --model "$base")
off=$(score off "$work/day-heldout.json" --model "$base")
echo "   held-out pictures read: $night % in its own style, $off % in the other"

headline "an adapter for the style day: LoRA, and resampler and tower in full, on 2 ranks"
show $sheaf plan --model "$base" --recipe demo/minicpm.recipe --seq 64 --tp 2
show $sheaf train --model "$base" --data "$work/day-train.json" --out "$work/lora" --recipe demo/minicpm.recipe --steps "$lora_steps" --tp 2
adapter=$work/lora/adapter
on=$(score on "$work/day-heldout.json" --model "$base" --adapter "$adapter" --tp 2)
echo "   with the adapter: $on %"

headline "merged: every saved module in its place"
show $sheaf merge "$base" "$adapter" "$work/merged"
merged=$(score merged "$work/day-heldout.json" --model "$work/merged")
echo "   merged: $merged %"
ask_some "$work/merged" 'Number?'
judge "$off" "$on" "$merged"

printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "a small MiniCPM-V 2.6 made and trained in full: $night % of unseen numbers" "$base" \
    "the other style without the adapter: $off % exact" "$work/off.json" \
    "with the adapter, trained and run on 2 ranks: $on % exact" "$work/on.json" \
    "merged: $merged % exact" "$work/merged" \
    "asked about ten pictures: $right read" "$work/ten.jsonl"
now_you $sheaf generate --model "$work/merged" --image "$(find "$work/day/heldout" -type f | sort | head -n 1)" --prompt 'Number?' --greedy --max-new 8
results minicpmv
