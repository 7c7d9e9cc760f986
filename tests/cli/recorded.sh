#!/usr/bin/env bash
# Files of token ids and pictures as the original programs recorded them, through the command as they stand: OmniLMM's with
# marked images, MiniCPM-V's with bounds. Loss and logits as recorded, those of padding too; the same bytes at any number of
# ranks, on stages and in any micro-batch, of answers and of what is trained; memory as planned.
. "$(dirname "$0")/lib.sh"

# logits DIR FILE FLAG...: saved to $work/NAME, NAME the last argument.
logits() {
    local dir=$1 file=$2 out=$work/${*: -1}
    rm -f "$out"
    runs "${file#"$golden"/} ${*:3:$#-3}" 0 '"loss":' eval --model "$dir" --data "$file" "${@:3:$#-3}" --save-logits "$out" --json
}
# measured FILE, planned FILE RANKS: bytes of each rank, of a run and of a plan.
measured() { grep -o '"memory":[0-9]*' "$1" | cut -d: -f2; }
planned() { grep -o '"peak":[0-9]*' "$1" | cut -d: -f2 | head -n "$2"; }
# as_planned MEASURED PLANNED: peaks by rank, in whole pages of 2 MiB. A plan counts with the rows
# of the head that the fullest rows of the data would give together (sheaf_data_read_most), a run has those of its steps; so a rank
# may end a page below its plan. None may end above, or further below.
as_planned() {
    paste <(echo "$1") <(echo "$2") | awk 'NF != 2 || $1 > $2 || $2 - $1 > 2097152 { bad = 1 } END { exit bad || NR == 0 }'
}

recorded=0
for file in "$golden"/*/*.safetensors "$golden"/*/*/*.safetensors; do
    dir=${file%/*}
    [ -f "$dir/model.safetensors" ] && [ -f "$dir/config.json" ] || continue
    names=$(head -c 20000 "$file" | tr -d '\0')
    grep -q '"input_ids"' <<<"$names" && grep -qE '"image_bounds?"|"images"' <<<"$names" || continue
    [ ! -f "${file%.safetensors}_config.json" ] || continue # computed otherwise than the model's own config says
    place="--place 2"
    ! grep -q '"num_hidden_layers": 1,' "$dir/config.json" || place="--tp 2" # one layer is one stage
    recorded=$((recorded + 1))
    logits "$dir" "$file" one
    runs "as recorded" '[01]' 'logits: ([0-9]+ of [0-9]+ elements differ|equal)' diff "$work/one" "$file"
    difference=$(sed -n 's/^logits: .*by at most \([0-9.e+-]*\),.*/\1/p' "$work/stdout")
    ! grep -q '^logits: equal' "$work/stdout" || difference=0
    check "but for rounding: $difference" awk -v x="$difference" 'BEGIN { exit !(x ~ /^[0-9]/ && x < 2e-5) }'
    for how in "--tp 2" "--tp 3 --threads 3" "$place" "--micro-batch 2 --threads 2" "--dp 2"; do
        # shellcheck disable=SC2086
        logits "$dir" "$file" $how other
        same "the same logits" "$work/one" "$work/other"
    done
    for how in "--tp 1" "--tp 3" "$place" "--batch 2"; do
        # shellcheck disable=SC2086
        runs "answers $how" 0 '"tokens":\[' generate --model "$dir" --data "$file" --greedy --max-new 4 --json $how
        grep -o '"tokens":\[[0-9,]*\]' "$work/stdout" >"$work/tokens"
        [ -e "$work/first" ] || mv "$work/tokens" "$work/first"
        [ ! -e "$work/tokens" ] || same "the same tokens" "$work/first" "$work/tokens"
    done
    rm "$work/first"
    flags=(--model "$dir" --data "$file" --steps 2 --accumulate 2 --lora-targets all-linear --lora-dropout 0.2 --threads 1)
    for how in "--tp 1" "--tp 3" "--dp 2" "--checkpointing"; do
        # shellcheck disable=SC2086
        runs "trained $how" 0 '"memory":' train "${flags[@]}" $how --out "$work/run" --json
        mv "$work/stdout" "$work/measured"
        [ -e "$work/adapter" ] || cp -r "$work/run/adapter" "$work/adapter"
        same "the same adapter" "$work/adapter" "$work/run/adapter"
        # shellcheck disable=SC2086
        runs "planned $how" 0 '"peak":' plan "${flags[@]}" $how --json
        bytes=$(measured "$work/measured")
        check "as planned: ${bytes//$'\n'/ }" as_planned "$bytes" "$(planned "$work/stdout" "$(wc -l <<<"$bytes")")"
        rm -r "$work/run"
    done
    rm -r "$work/adapter"
done
least=3 # one of each MiniCPM-V, which every clone has
[ -z "${SHEAF_GOLDEN:-}" ] || least=5
check "recordings with pictures: $recorded" test $recorded -ge $least
finish
