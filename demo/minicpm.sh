#!/usr/bin/env bash
# minicpm.sh - `./run demo-vlm --minicpm [--json]`: a small MiniCPM-V 2.6 learns to read pictures of numbers, about ten
# minutes of processor time. See docs/demo-vlm.md.
#
# It learns in full from one style of pictures; an adapter as MiniCPM-V's script makes it (LoRA, with resampler and tower
# in full), trained on two ranks, then teaches it another, is merged, and the merged model is asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sheaf=build/sheaf
captcha=build/examples/captcha
json=false
for word in "$@"; do
    case $word in
        --minicpm) ;;
        --json) json=true ;;
        *) printf 'usage: ./run demo-vlm [--agent | --minicpm] [--json]\n' >&2; exit 2 ;;
    esac
done
work=build/demo-minicpm
full_steps=${SHEAF_DEMO_STEPS:-2400}
lora_steps=${SHEAF_DEMO_LORA_STEPS:-700}
held=300
begin=$SECONDS
rm -rf "$work"
mkdir -p "$work"
exec 3>&1
[ $json = false ] || exec 1>&2

. demo/vlm_lib.sh

# conversations STYLE PART: a question and its answer about every picture, beside the pictures.
conversations() { (cd "$work" && find "$1/$2" -type f | sort | awk -v ask='Number?' -f ../../demo/pairs.awk >"$1-$2.json"); }

headline "pictures of numbers in two styles; the numbers of the held-out ones are in no training picture"
for style in night day; do
    show $captcha $style "$work/$style" 6000 $held
    conversations $style train
    conversations $style heldout
done
[ -z "$(comm -12 <(labels "$work"/*/train) <(labels "$work"/*/heldout))" ] || stop "a held-out number is in a training picture"
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

picture=$(find "$work/day/heldout" -type f | sort | head -n 1)
headline "asked about one picture"
echo "   $ $sheaf generate --model $work/merged --image $picture --prompt Number? --greedy --max-new 8"
answer=$($sheaf generate --model "$work/merged" --image "$picture" --prompt 'Number?' --greedy --max-new 8 2>"$work/last.log") ||
    { cat "$work/last.log" >&2; stop "generate failed"; }
answer=$(printf '%s' "$answer" | tr -cd '[:alnum:] ')
number=$(basename "$picture" | cut -d. -f1)
echo "   $answer (the file's name says $number)"

at_least 19.9 "$off" || stop "without the adapter $off % are read, it should be below 20 %"
at_least "$on" 40 || stop "with the adapter $on % are read, it should be at least 40 %"
at_least "$merged" 40 || stop "merged, $merged % are read, it should be at least 40 %"

printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "a small MiniCPM-V 2.6 made and trained in full: $night % of unseen numbers" "$base" \
    "the other style without the adapter: $off % exact" "$work/off.json" \
    "with the adapter, trained and run on 2 ranks: $on % exact" "$work/on.json" \
    "merged: $merged % exact" "$work/merged" \
    "asked about one picture: $answer, it shows $number" "$picture"
[ $json = false ] || printf '{"model": "minicpmv", "seconds": %d, "own_style": %s, "adapter_off": %s, "adapter_on": %s, "merged": %s, "picture": "%s", "answer": "%s", "expected": "%s"}\n' \
    $((SECONDS - begin)) "$night" "$off" "$on" "$merged" "$picture" "$answer" "$number" >&3
