#!/usr/bin/env bash
# Talking to models of text: prompts that run together.
. "$(dirname "$0")/lib.sh"

# ---- rows padded on the left, as transformers' generate() takes them: recorded batches ----
padded_rows() { # padded_rows FILE ROWS LENGTH IDS MASK: no labels
    local file=$1 rows=$2 length=$3 size header
    size=$((rows * length * 4))
    header="{\"input_ids\":{\"dtype\":\"I32\",\"shape\":[$rows,$length],\"data_offsets\":[0,$size]},\"attention_mask\":{\"dtype\":\"I32\",\"shape\":[$rows,$length],\"data_offsets\":[$size,$((2 * size))]}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    # shellcheck disable=SC2086,SC2046
    { int32_bytes ${#header} 0; printf '%s' "$header"; int32_bytes $4; int32_bytes $5; } >"$file"
}
for model in tiny_llama tiny_llama3rope tiny_mistral tiny_qwen2; do
    last=$(tr -d ' \n' <"$llama/$model/generation.json" | grep -o '"batch_prompts":.*')
    mapfile -t rows < <(grep -o '"sequences":.*' <<<"$last" | grep -oE '[0-9]+(,[0-9]+)+' | tr ',' ' ')
    length=$(grep -oE '"left_padded_to":[0-9]+' <<<"$last" | grep -oE '[0-9]+')
    read -ra short <<<"$(grep -oE '^"batch_prompts":\[\[[0-9,]+' <<<"$last" | grep -oE '[0-9,]+$' | tr ',' ' ')"
    pads=$((length - ${#short[@]})) ids="" mask="" want=""
    for i in 0 1; do
        read -ra row <<<"${rows[i]}"
        ids="$ids ${row[*]:0:length}"
        for ((j = 0; j < length; j++)); do mask="$mask $((i > 0 || j >= pads))"; done
        want="$want\"tokens\":[$(tr ' ' ',' <<<"${row[*]:length}")]"
    done
    padded_rows "$work/$model.safetensors" 2 "$length" "$ids" "$mask"
    for how in "--batch 2" "--batch 1 --tp 3"; do
        # shellcheck disable=SC2086
        runs "$model: rows padded on the left, $how" 0 . generate --model "$llama/$model/hf" --data "$work/$model.safetensors" --max-new 16 --greedy --json $how
        check "are as recorded" test "$(grep -oE '"tokens":\[[0-9,]*\]' "$work/stdout" | tr -d '\n')" = "$want"
    done
done
padded_rows "$work/hole.safetensors" 1 5 "5 6 7 8 9" "0 1 0 1 1"
runs "padding between tokens is refused" 3 'row 1: attention_mask.*no padding between the tokens of the prompt.*0 at position 3' generate --model "$llama/tiny_llama/hf" --data "$work/hole.safetensors" --max-new 2
finish
