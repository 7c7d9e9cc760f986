#!/usr/bin/env bash
# Base tensors trained beside LoRA, at rates of their own, by SAT's schedule; recipes by name.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
# A norm, a layer without factors, a layer with them; the norm does not move at all.
run=(--model "$model" --data "$data" --method lora --lora-rank 4 --lora-targets q_proj,up_proj --micro-batch 1 --accumulate 2 --lr 1e-2
     --train 'model.norm.weight,*.{0}.mlp.down_proj.weight,*.{0}.mlp.up_proj.weight' --lr-scale 'model.norm.*=0,*down_proj*=0.5'
     --schedule sat-linear --warmup-ratio 0.25 --save-every 2 --seed 7)

runs "train on one rank" 0 . train "${run[@]}" --steps 6 --out "$work/t1" --tp 1
runs "train on three ranks" 0 . train "${run[@]}" --steps 6 --out "$work/t3" --tp 3
same "three ranks give the adapter of one" "$work/t1/adapter" "$work/t3/adapter"
runs "stop after four of them" 0 . train "${run[@]}" --steps 4 --out "$work/part" --tp 2
# The schedule depends on --steps, so the unbroken run is one that stops in the same place.
runs "go on to six on five ranks" 0 'step 4' train --resume --out "$work/part" --steps 6 --tp 5
runs "and on one" 0 . train "${run[@]}" --steps 4 --out "$work/other"
runs "from the same place" 0 'step 4' train --resume --out "$work/other" --steps 6 --tp 1
same "gives the same adapter" "$work/other/adapter" "$work/part/adapter"

rates=$(grep -oE '"lr": *[0-9.e-]+' "$work/t1/metrics.jsonl" | sed 's/.*: *//' | tr '\n' ' ')
check "SAT's rates: the first hundred steps are held at a twentieth" test "$(printf '%.6f ' $rates)" = \
    "0.000500 0.000500 0.000500 0.000500 0.000500 0.000500 "

runs "merge takes the trained tensors and the factors" 0 . merge "$model" "$work/t1/adapter" "$work/merged"
runs "diff names them" 1 'layers.0.mlp.up_proj' diff "$model" "$work/merged"
check "also the layer without factors" grep -q 'layers.0.mlp.down_proj' "$work/stdout"
check "not the one whose rate is 0" bash -c '! grep -q model.norm.weight "$1"' - "$work/stdout"
check "nor the same layer further up" bash -c '! grep -q layers.1.mlp.down_proj "$1"' - "$work/stdout"
runs "eval with the adapter" 0 . eval --model "$model" --adapter "$work/t1/adapter" --data "$data" --json
adapted=$(json_number "$work/stdout" loss)
runs "eval of the merged model" 0 . eval --model "$work/merged" --data "$data" --json
check "gives the same loss" near "$(json_number "$work/stdout" loss)" "$adapted" 1e-4
runs "training goes on from the adapter" 0 . train --model "$model" --data "$data" --adapter "$work/t1/adapter" --steps 1 --out "$work/again"
check "with all of its tensors" grep -q 'layers.0.mlp.up_proj.weight' "$work/again/adapter/adapter_config.json"

export SHEAF_RECIPES=$SHEAF_SOURCE_ROOT/recipes
runs "a recipe is found by its name" 2 "'mixins.lm.lm_head.weight'.*a pattern that some tensor" \
    train --recipe cogagent-head-only --tp 1 --model "$model" --data "$data" --out "$work/wrong"
check "a run that cannot start leaves no folder" test ! -e "$work/wrong"
runs "a name that is none is refused with the nearest" 3 'did you mean cogvlm-lora' train --recipe cogvlm-lara --out "$work/wrong"
grep -v '^\(out\|steps\):' "$work/t1/settings" >"$work/again.recipe"
runs "the settings of a run are a recipe" 0 . train --recipe "$work/again.recipe" --steps 6 --out "$work/copy"
same "of the same run" "$work/t1/adapter" "$work/copy/adapter"
finish
