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

cat <<'END'
# CogVLM and CogAgent: what fits

Made by `tests/plan_tables.sh`, from `sheaf plan`. **Dry run, not yet checked on a GPU.** GiB of the fullest rank, 8
slices, bfloat16, one row a step, 8 compute threads in all, sums of bfloat16 by tiles (by pairs the same); 1 GiB is 1.07
GB, so that a card of 24 GB has 22.3. Of 5 to 7 ranks the fullest holds two of 8 slices, as of 4. "again" is with
`--checkpointing`.

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
