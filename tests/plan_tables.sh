#!/usr/bin/env bash
# plan_tables.sh - docs/plan_tables.md, made by `sheaf plan`:
#
#   tests/plan_tables.sh SHEAF >docs/plan_tables.md
#
# The released CogVLM and CogAgent at every number of ranks, and the recipes that come with sheaf.
set -euo pipefail
sheaf=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
configs=$here/tests/data/configs

# card CONFIG GIB QUANTIZE: the fewest GPUs of so much memory that train an adapter, and what they keep: "2 c".
card() {
    local fits
    fits=$("$sheaf" plan --config "$configs/$1.json" --lora-rank 16 --lora-targets all-linear --dtype bfloat16 --sums mma16 --seq 2048 \
        --quantize "$3" --device "$2G" --quiet --json 2>/dev/null) || { printf -- '-'; return; }
    awk -v fits="$fits" 'BEGIN {
        match(fits, /"gpus":[0-9]+/); n = substr(fits, RSTART + 7, RLENGTH - 7)
        printf "%d%s%s", n, fits ~ /"checkpointing":true,"seq"/ ? " c" : fits ~ /"keep_activations":"attention"/ ? " a" : "",
            fits ~ /"offload"/ ? " o" : "" }'
}

cat <<'END'
# What fits

Made by `tests/plan_tables.sh`, from `sheaf plan`. **Dry run, not yet checked on a GPU.**

## Which card

LoRA of rank 16 on all linear layers, bfloat16, one row of 2,048 tokens (models with pictures: one picture and text) a
step: the fewest GPUs of so many GiB. `a`: with `--keep-activations attention`; `c`: with `--checkpointing`; `o`: with
`--offload`; `-`: not on 8. NF4: with `--quantize nf4`. A line of it for any model and card:

    sheaf plan MODEL --lora-rank 16 --lora-targets all-linear --dtype bfloat16 --seq 2048 --device 24G

| model | base | 8 | 12 | 16 | 24 | 48 | 80 |
|---|---|---|---|---|---|---|---|
END
while read -r config title; do
    for base in none nf4; do
        printf '| %s | %s |' "$title" "${base/none/as it is}"
        for gib in 8 12 16 24 48 80; do printf ' %s |' "$(card "$config" $gib $base)"; done
        printf '\n'
    done
done <<'END'
gemma-2-2b Gemma 2 2B
smollm3-3b SmolLM3 3B
mistral-7b Mistral 7B
qwen3-8b Qwen3 8B
llama-3-8b Llama 3 8B
phi-4 Phi-4 (14B)
llama-2-13b Llama 2 13B
llama-2-70b Llama 2 70B
qwen2.5-vl-7b Qwen2.5-VL 7B
minicpmv-2.6 MiniCPM-V 2.6
omnilmm-12b OmniLMM 12B
cogvlm-224 CogVLM 17B
cogagent-1120 CogAgent 18B
END

cat <<'END'

## CogVLM and CogAgent at every number of ranks

GiB of the fullest rank, 8 slices, bfloat16, one row a step, 8 compute threads in all, sums of bfloat16 by tiles (by
pairs the same); 1 GiB is 1.07 GB, so that a card of 24 GB has 22.3. Of 5 to 7 ranks the fullest holds two of 8 slices,
as of 4. "again" is with `--checkpointing`.

    sheaf plan --config tests/data/configs/MODEL.json --lora-rank 16 --lora-targets all-linear \
               --dtype bfloat16 --sums tiles --threads 8 --table methods
END
while read -r config title; do
    printf '\n## %s\n\n' "$title"
    "$sheaf" plan --config "$configs/$config.json" --lora-rank 16 --lora-targets all-linear --dtype bfloat16 --sums tiles --threads 8 --table methods |
        sed '/^| [567] /d; s/ checkpointing |/ again |/g; s/ trained |/ |/g'
done <<'END'
cogvlm-224 CogVLM 224: rows of 514 tokens, 258 of them the image
cogvlm-490 CogVLM 490: rows of 1483 tokens, 1227 of them the image
cogagent-1120 CogAgent 1120: rows of 514 tokens, 258 of them the image
END
printf '\n## The recipes\n\nAs they are (`--tp 8`, their own rows a step and row length); `fits` is the first setting for cards of 24 GB: fewest\nranks, then `--checkpointing`.\n\n'
printf '    sheaf plan --recipe NAME --config tests/data/configs/MODEL.json --sums tiles --threads 8 --tp 8\n'
printf '    sheaf plan --recipe NAME --config tests/data/configs/MODEL.json --sums tiles --threads 8 --tp 1 \\\n               --no-checkpointing --transport mpi --memory 22888\n\n'
printf '| recipe | model | GiB a rank | fits |\n|---|---|---|---|\n'
while read -r recipe config; do
    asked=(plan --recipe "$here/recipes/$recipe.recipe" --config "$configs/$config.json" --sums tiles --threads 8)
    most=$("$sheaf" "${asked[@]}" --tp 8 --json | grep -oE '"largest_rank":[0-9]+' | cut -d: -f2)
    fits=$("$sheaf" "${asked[@]}" --tp 1 --no-checkpointing --transport mpi --memory 22888 2>&1 >/dev/null | tail -n 1 || true)
    case $fits in fits:*) fits=${fits#fits: } fits="\`${fits% (*}\`" ;; *) fits="not on 8 such cards" ;; esac
    awk -v name="$recipe" -v config="$config" -v most="$most" -v fits="$fits" 'BEGIN { printf "| `%s` | %s | %.1f | %s |\n", name, config, most / 1073741824, fits }'
done <<'END'
cogvlm-lora cogvlm-490
cogvlm-lora-clean cogvlm-490
cogagent-lora cogagent-1120
cogagent-text-lora cogagent-1120
cogagent-cross-attention cogagent-1120
cogagent-head-only cogagent-1120
END
