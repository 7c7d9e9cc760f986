#!/usr/bin/env bash
# How much of an "adapter" is full copies of the base's tensors: told before training, by plan and
# train, and what the file then holds.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
flags=(--model "$model" --lora-targets q_proj,v_proj --lora-rank 4 --seq 64)
of() { grep -o "\"$1\": *[0-9]*" "$2" | head -n 1 | grep -o '[0-9]*$'; } # of KEY FILE: a number of a JSON object

runs "plan tells what is copied" 0 "the adapter's file takes [0-9.]+ MiB: [0-9.]+ MiB of LoRA, and full copies of (embed_tokens|lm_head) \([0-9]+\) and (embed_tokens|lm_head) \([0-9]+\), which are 9[0-9.]+ % of it; in training the copies take [0-9.]+ MiB of masters, [0-9.]+ of gradients and [0-9.]+ of moments" \
    plan "${flags[@]}" --modules-to-save embed_tokens,lm_head
runs "for programs" 0 '"adapter":\{"factors":[1-9].*"modules":\[\{"module":"[a-z_]+","parameters":[1-9]' plan "${flags[@]}" --modules-to-save embed_tokens,lm_head --tp 2 --accumulate 4 --json
cp "$work/stdout" "$work/plan"
copies=$(of copies "$work/plan")
check "masters of the copies are theirs once, whatever the ranks" [ "$(of copies_trained "$work/plan")" = $((4 * copies)) ]
check "moments are twice that" [ "$(of copies_optimizer "$work/plan")" = $((8 * copies)) ]
check "gradients of several accumulators are several sums" [ "$(of copies_gradients "$work/plan")" -gt $((4 * copies)) ]
runs "of which one will do" 0 . plan "${flags[@]}" --modules-to-save embed_tokens,lm_head --tp 2 --accumulate 4 --accumulators 1 --json
check "and is one sum" [ "$(of copies_gradients "$work/stdout")" = $((4 * copies)) ]

data=$llama/tiny_llama/fwd_inputs.safetensors
runs "train says it before the first step" 0 "the adapter's file takes .* full copies of" train "${flags[@]:0:6}" --modules-to-save embed_tokens,lm_head --data "$data" --out "$work/out" --steps 1 --micro-batch 1 --lr 1e-3
runs "the file" 0 '"kind": "adapter"' info "$work/out/adapter" --json
check "holds as many bytes as plan told" [ "$(of bytes "$work/stdout")" = "$(of bytes "$work/plan")" ]

runs "without copies there is nothing to tell" 0 'all ranks in one process' plan "${flags[@]}"
check "not a word" bash -c '! grep -q "full copies" "$1"' . "$work/stdout"
runs "but its size is there for programs" 0 '"copies":0,"bytes":[1-9]' plan "${flags[@]}" --json
runs "training all is no adapter" 0 '"parameters"' plan --model "$model" --method full --seq 64 --json
check "so none is told" bash -c '! grep -q "copies_bytes" "$1"' . "$work/stdout"

# Of a resampler the table of positions is in the file, and stays as it is: 16 queries of width 128.
runs "a small OmniLMM" 0 . init omnilmm-tiny "$work/omnilmm"
runs "its resampler and tower" 0 '"adapter"' plan --model "$work/omnilmm" --lora-targets '.*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)' --modules-to-save embed_tokens,resampler,vision_tower --seq 64 --json
check "have a table that is not trained" [ $((4 * $(of copies "$work/stdout") - $(of copies_trained "$work/stdout"))) = $((4 * 16 * 128)) ]
check "are what was named" grep -q '"module":"vision_tower".*"module":"resampler".*"module":"embed_tokens"' "$work/stdout"

# The published models, as their script trains them: what docs/adapter-size.md has.
configs=$SHEAF_SOURCE_ROOT/tests/data/configs
runs "MiniCPM-V 2.6" 0 '3\.93 GiB: 154\.0 MiB of LoRA, and full copies of embed_tokens \(543\.6 million\), vpm \(402\.6 million\) and resampler \(68\.6 million\), which are 96\.2 %' \
    plan --recipe "$SHEAF_SOURCE_ROOT/recipes/minicpmv-lora.recipe" --config "$configs/minicpmv-2.6.json" --tp 4
for row in 'minicpmv-lora minicpmv-2.0 2 9.3' 'minicpmv-lora minicpmv-2.5 8 5.0' 'minicpmv-lora minicpmv-2.6 4 8.3' 'minicpmv-full minicpmv-2.6 8 19.1' 'omnilmm-lora omnilmm-12b 8 4.1'; do
    read -r recipe config tp gib <<<"$row"
    runs "$recipe of $config on $tp ranks" 0 '"largest_rank"' plan --recipe "$SHEAF_SOURCE_ROOT/recipes/$recipe.recipe" --config "$configs/$config.json" --tp "$tp" --sums tiles --threads 8 --json
    check "takes what the page says, $gib GiB" awk -v n="$(of largest_rank "$work/stdout")" -v gib="$gib" 'BEGIN { exit !(sprintf("%.1f", n / 1073741824) == gib) }'
done
finish
