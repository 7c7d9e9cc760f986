#!/usr/bin/env bash
# vlm.sh - `./run demo-vlm [--agent | --minicpm] [--json]`: a small CogVLM (or CogAgent) learns to read pictures of numbers, about
# five minutes of processor time. See docs/demo-vlm.md.
#
# It learns in full from one style of pictures; an adapter, trained on two ranks, then teaches it another. What comes
# out goes the way of SAT's users: a checkpoint of two parts, verified, merged into one part, asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case " $* " in *" --minicpm "*) exec bash demo/minicpm.sh "$@" ;; esac
. demo/vlm_lib.sh
model=cogvlm
recipe=demo/captcha.recipe
for word in "$@"; do
    case $word in
        --agent) model=cogagent recipe=demo/captcha-agent.recipe ;;
        --json) json=true ;;
        *) usage ;;
    esac
done
full_steps=${SHEAF_DEMO_STEPS:-2000}
lora_steps=${SHEAF_DEMO_LORA_STEPS:-600}
work_in build/demo-$model

draw

headline "a new model with random weights, trained in full on the style night"
show $sheaf init demo/$model.json "$work/new" --seed 1
show $sheaf train --model "$work/new" --data "$work/night/train" --out "$work/full" --method full --steps "$full_steps" \
    --micro-batch 32 --lr 1e-3 --warmup 100 --schedule cosine --threads 2
base=$work/full/model
night=$(score night "$work/night/heldout" --model "$base")
off=$(score off "$work/day/heldout" --model "$base")
echo "   held-out pictures read: $night % in its own style, $off % in the other"

headline "an adapter for the style day, trained as SAT's demo does it, on 2 ranks"
show $sheaf train --model "$base" --data "$work/day/train" --out "$work/lora" --recipe $recipe --steps "$lora_steps" --tp 2
adapter=$work/lora/adapter
on=$(score on "$work/day/heldout" --model "$base" --adapter "$adapter" --tp 2)
echo "   with the adapter: $on %"

headline "both as a SAT checkpoint of two parts, verified, merged into one part"
show $sheaf convert "$base" "$work/sat-mp2" --to sat --tp 2 --adapter "$adapter"
show $sheaf verify "$work/sat-mp2" || stop "the checkpoint is not sound"
show $sheaf convert "$work/sat-mp2" "$work/sat-mp1" --to sat --tp 1
show $sheaf verify "$work/sat-mp1" || stop "the merged checkpoint is not sound"
merged=$(score merged "$work/day/heldout" --model "$work/sat-mp1")
echo "   merged: $merged %"
ask_some "$work/sat-mp1" CAPTCHA:
judge "$off" "$on" "$merged"

printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "a small model of class $model made and trained in full: $night % of unseen numbers" "$base" \
    "the other style without the adapter: $off % exact" "$work/off.json" \
    "with the adapter, LoRA trained and run on 2 ranks: $on % exact" "$work/on.json" \
    "as a SAT checkpoint of 2 parts, sound" "$work/sat-mp2" \
    "merged into one part: $merged % exact" "$work/sat-mp1" \
    "asked about ten pictures: $right read" "$work/ten.jsonl"
now_you $sheaf generate --model "$work/sat-mp1" --image "$(find "$work/day/heldout" -type f | sort | head -n 1)" --prompt 'CAPTCHA:' --greedy --max-new 8
results $model
