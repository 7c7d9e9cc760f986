#!/usr/bin/env bash
# Models whose files have one of several namings, and adapters that have another: every command reads them, and what
# writes a model has the names of its source's files. Namings are those of transformers 4.51 and 5.24, whose saves and
# loads were compared (docs/families/qwen-vl.md).
. "$(dirname "$0")/lib.sh"
successors=$SHEAF_SOURCE_ROOT/tests/data/successors

# respelled FILE SED: the names in a .safetensors file, or in JSON, are changed by it.
respelled() {
    local file=$1 size header
    if [[ $file == *.json ]]; then
        sed -E -i "$2" "$file"
        return
    fi
    size=$(($(od -An -tu8 -N8 "$file")))
    header=$(head -c $((8 + size)) "$file" | tail -c "$size" | sed -E "$2")
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    { int32_bytes "${#header}" 0; printf '%s' "$header"; tail -c +$((9 + size)) "$file"; } >"$file.new" && mv "$file.new" "$file"
}
# names FOLDER: of all tensors in its files, sorted.
names() {
    local file
    for file in "$1"/*.safetensors; do
        head -c $((8 + $(od -An -tu8 -N8 "$file"))) "$file" | tail -c +9 | grep -oE '"[a-z][^"]*": *\{ *"dtype"' | cut -d'"' -f2
    done | sort
}
# writes_names NAME SOURCE OUTPUT: both have the same names.
writes_names() { check "$1" diff <(names "$2") <(names "$3"); }
# copied FROM NAME [SED]: a writable copy, with other names; prints the path.
copied() {
    cp -r "$1" "$work/$2" && chmod -R u+w "$work/$2"
    [ $# -lt 3 ] || respelled "$work/$2/${4:-model.safetensors}" "$3"
    printf '%s' "$work/$2"
}

to_memory='s/"visual\./"model.visual./g; s/"model\.(layers|embed_tokens|norm)\./"model.language_model.\1./g'
to_bare='s/"model\.language_model\./"language_model./g; s/"model\.visual\./"visual./g; s/"model\.(layers|embed_tokens|norm)\./"language_model.\1./g'

# every_writer WHAT MODEL LIKE ADAPTER DATA: all that writes a model, and the values are those of LIKE.
every_writer() {
    local what=$1 model=$2 like=$3 adapter=$4 data=$5 out=$work/out
    rm -rf "$out"* "$work/like"*
    runs "$what: sound" 0 'sound' verify "$model"
    runs "$what: the same model" 0 'equal' diff "$model" "$like"
    runs "$what: convert" 0 . convert "$model" "$out-convert" --to hf --dtype bfloat16
    writes_names "$what: convert keeps the names" "$model" "$out-convert"
    runs "$what: in shards" 0 . convert "$model" "$out-shards" --to hf --shard-mb 1
    writes_names "$what: in shards, too" "$model" "$out-shards"
    runs "$what: shards read" 0 'equal' diff "$out-shards" "$like"
    runs "$what: merge" 0 . merge "$model" "$adapter" "$out-merged"
    writes_names "$what: merge keeps the names" "$model" "$out-merged"
    runs "$what: what the other gives" 0 . merge "$like" "$adapter" "$work/like-merged"
    runs "$what: the same values" 0 'equal' diff "$out-merged" "$work/like-merged"
    runs "$what: merge as PEFT does" 0 . merge "$out-shards" "$adapter" "$out-peft" --as-peft
    writes_names "$what: merge of shards" "$model" "$out-peft"
    runs "$what: quantised" 0 . convert "$model" "$out-nf4" --to hf --quantize nf4
    runs "$what: merged and quantised again" 0 . merge "$out-nf4" "$adapter" "$out-again" --requantize
    writes_names "$what: with the names of the codes" "$out-nf4" "$out-again"
    runs "$what: plain again" 0 . convert "$out-nf4" "$out-plain" --to hf --dequantize
    writes_names "$what: with the names" "$model" "$out-plain"
    runs "$what: trained in full" 0 . train --model "$model" --data "$data" --method full --steps 1 --out "$out" --quiet
    writes_names "$what: training keeps the names" "$model" "$out/model"
    runs "$what: a checkpoint of the run" 0 . convert "$out" "$out-run" --to hf
    same "$what: gives the same" "$out/model/model.safetensors" "$out-run/model.safetensors"
    runs "$what: trained from the other" 0 . train --model "$like" --data "$data" --method full --steps 1 --out "$work/like" --quiet
    runs "$what: the same bytes" 0 'equal' diff "$out/model" "$work/like/model"
}

for family in qwen2_5_vl qwen3_vl; do
    at=$successors/$family
    data=$at/inputs.safetensors
    adapter=$at/lora/adapter_final
    published=$at/hf
    every_writer "$family as published" "$(copied "$published" "$family-same")" "$published" "$adapter" "$data"
    [ $family = qwen3_vl ] || every_writer "$family as in memory" "$(copied "$published" "$family-memory" "$to_memory")" "$published" "$adapter" "$data"
    every_writer "$family without model." "$(copied "$published" "$family-bare" "$to_bare")" "$published" "$adapter" "$data"

    # Saved by the model without a head, whose table is tied: the head is the table.
    tied=$(copied "$published" "$family-tied")
    without_tensor "$tied/model.safetensors" lm_head.weight
    respelled "$tied/config.json" 's/("tie_word_embeddings": *)false/\1true/'
    headless=$(copied "$tied" "$family-headless" "$to_bare")
    every_writer "$family without a head" "$headless" "$tied" "$adapter" "$data"
    runs "$family without a head: the loss" 0 . eval --model "$tied" --data "$data" --json
    loss=$(json_number "$work/stdout" loss)
    runs "$family without a head is run" 0 . eval --model "$headless" --data "$data" --json
    check "$family without a head: the same loss" test "$loss" = "$(json_number "$work/stdout" loss)"
    # Untied it lacks the head, which is said by its name.
    respelled "$headless/config.json" 's/("tie_word_embeddings": *)true/\1false/'
    runs "$family untied" 1 'missing.*lm_head.weight' verify "$headless"
    for command in "eval --data $data --model" "train --steps 1 --data $data --out $work/no --model"; do
        # shellcheck disable=SC2086
        runs "$family untied: no ${command%% *}" 3 '1 missing: lm_head.weight' $command "$headless"
    done
    runs "$family untied: no merge" 3 'lm_head.weight' merge "$headless" "$adapter" "$work/no"
    runs "$family untied: no convert" 3 'lm_head.weight' convert "$headless" "$work/no" --to hf
done

# Text models that are saved without their head.
text=$llama/tiny_qwen2/hf
bare=$(copied "$text" text-bare 's/"model\.(layers|embed_tokens|norm)\./"\1./g')
every_writer "Qwen2 without model." "$bare" "$text" "$llama/tiny_qwen2/lora/adapter_final" "$llama/tiny_qwen2/fwd_inputs.safetensors"
finish
