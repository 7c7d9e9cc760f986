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

# takes FAMILY: is $family the one that takes a way, which with SHEAF_SOAK=1 both take?
takes() { [ -n "${SHEAF_SOAK:-}" ] || [ "$family" = "$1" ]; }

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
    memory=$(copied "$published" "$family-memory" "$to_memory") bare=$(copied "$published" "$family-bare" "$to_bare")
    takes qwen2_5_vl && every_writer "$family as published" "$(copied "$published" "$family-same")" "$published" "$adapter" "$data"
    takes qwen2_5_vl && every_writer "$family as in memory" "$memory" "$published" "$adapter" "$data"
    takes qwen3_vl && every_writer "$family without model." "$bare" "$published" "$adapter" "$data"

    # Saved by the model without a head, whose table is tied: the head is the table.
    tied=$(copied "$published" "$family-tied")
    without_tensor "$tied/model.safetensors" lm_head.weight
    respelled "$tied/config.json" 's/("tie_word_embeddings": *)false/\1true/'
    headless=$(copied "$tied" "$family-headless" "$to_bare")
    takes qwen2_5_vl && every_writer "$family without a head" "$headless" "$tied" "$adapter" "$data"
    runs "$family without a head: the loss" 0 . eval --model "$tied" --data "$data" --json
    loss=$(json_number "$work/stdout" loss)
    runs "$family without a head is run" 0 . eval --model "$headless" --data "$data" --json
    check "$family without a head: the same loss" test "$loss" = "$(json_number "$work/stdout" loss)"
    # Untied it lacks the head, which is said by its name.
    respelled "$headless/config.json" 's/("tie_word_embeddings": *)true/\1false/'
    runs "$family untied" 1 'missing.*lm_head.weight' verify "$headless"
    for command in "eval --data $data --model" "train --steps 1 --data $data --out $work/no --model"; do
        # shellcheck disable=SC2086
        runs "$family untied: no ${command%% *}" 3 "'lm_head.weight': missing" $command "$headless"
    done
    runs "$family untied: no merge" 3 'lm_head.weight' merge "$headless" "$adapter" "$work/no"
    runs "$family untied: no convert" 3 'lm_head.weight' convert "$headless" "$work/no" --to hf
done

# Text models that are saved without their head.
text=$llama/tiny_qwen2/hf
bare=$(copied "$text" text-bare 's/"model\.(layers|embed_tokens|norm)\./"\1./g')
every_writer "Qwen2 without model." "$bare" "$text" "$llama/tiny_qwen2/lora/adapter_final" "$llama/tiny_qwen2/fwd_inputs.safetensors"

# ---- adapters ----

# loss_of FLAG...: what eval gives; NAN where it fails.
loss_of() { "$sheaf" eval "$@" --json --quiet 2>"$work/stderr" >"$work/stdout" && json_number "$work/stdout" loss || { cat "$work/stderr" >&2; echo NAN; }; }
# alike WHAT BASE ADAPTER LIKE DATA: every command takes ADAPTER as it takes LIKE, the same with the base's names.
alike() {
    local what=$1 base=$2 adapter=$3 like=$4 data=$5 loss
    rm -rf "$work/alike"*
    loss=$(loss_of --model "$base" --adapter "$like" --data "$data")
    check "$what: eval" test "$loss" = "$(loss_of --model "$base" --adapter "$adapter" --data "$data")"
    check "$what: which is not the base's" test "$loss" != "$(loss_of --model "$base" --data "$data")"
    runs "$what: generate" 0 . generate --model "$base" --adapter "$like" --tokens 5,6,7 --max-new 4 --json
    cp "$work/stdout" "$work/alike-tokens"
    runs "$what: too" 0 . generate --model "$base" --adapter "$adapter" --tokens 5,6,7 --max-new 4 --json
    same "$what: the same answer" "$work/alike-tokens" "$work/stdout"
    runs "$what: merge" 0 . merge "$base" "$like" "$work/alike-merged"
    runs "$what: and it" 0 'its names' merge "$base" "$adapter" "$work/alike-merged2"
    same "$what: the same model" "$work/alike-merged/model.safetensors" "$work/alike-merged2/model.safetensors"
    for a in "$like" "$adapter"; do
        runs "$what: train --adapter" 0 . train --model "$base" --adapter "$a" --data "$data" --steps 1 --out "$work/alike-${a##*/}" --quiet
    done
    same "$what: the same adapter" "$work/alike-${like##*/}/adapter/adapter_model.safetensors" "$work/alike-${adapter##*/}/adapter/adapter_model.safetensors"
    runs "$what: which is read" 0 . eval --model "$base" --adapter "$work/alike-${adapter##*/}/adapter" --data "$data"
    check "$what: by the base's names" test "$(grep -c 'its names' "$work/stderr")" = 0
    runs "$what: resumed" 0 . train --resume --out "$work/alike-${adapter##*/}" --steps 2 --quiet
    runs "$what: verify" 0 'sound' verify "$base" "$adapter"
    runs "$what: plan" 0 . plan --model "$base" --adapter "$adapter" --data "$data"
}
older='s/base_model\.model\.model\.language_model\./base_model.model.model./g; s/base_model\.model\.model\.visual\./base_model.model.visual./g'
inner='s/base_model\.model\.model\.(language_model|visual)\./base_model.model.\1./g'
for family in qwen2_5_vl qwen3_vl; do
    base=$successors/$family/hf
    like=$successors/$family/lora/adapter_final
    data=$successors/$family/inputs.safetensors
    old=$(copied "$like" "$family-older" "$older" adapter_model.safetensors)
    takes qwen3_vl && alike "$family of transformers before 4.52" "$base" "$old" "$like" "$data"
    takes qwen2_5_vl && alike "$family on the names in memory" "$work/$family-memory" "$old" "$like" "$data"
    takes qwen3_vl && alike "$family of the model without its head" "$work/$family-bare" "$(copied "$like" "$family-inner" "$inner" adapter_model.safetensors)" "$like" "$data"

    # What the config says, by whole paths: targets of a part, and a rank and an alpha of their own.
    runs "$family: of a part" 0 . train --model "$base" --data "$data" --steps 2 --lr 1e-2 --lora-rank 2 --lora-targets 'model\.language_model\..*\.(q_proj|down_proj)|model\.visual\..*\.qkv' \
        --lora-rank-pattern 'model.language_model.layers.0.self_attn.q_proj=3' --lora-alpha-pattern 'model.visual.blocks.0.attn.qkv=5' --modules-to-save model.language_model.norm --out "$work/$family-part"
    like=$work/$family-part/adapter
    part=$(copied "$like" "$family-part-older" "$older" adapter_model.safetensors)
    respelled "$part/adapter_config.json" 's/model(\\*\.)language_model\\*\./model\1/g; s/model\\*\.visual/visual/g'
    check "$family: its config has older names" bash -c "! grep -qE 'language_model|model.{1,2}visual' '$part/adapter_config.json'"
    takes qwen2_5_vl && alike "$family by paths of older names" "$base" "$part" "$like" "$data"
    # One that its config names is missing.
    without_tensor "$part/adapter_model.safetensors" base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight
    without_tensor "$part/adapter_model.safetensors" base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight
    for command in eval merge; do
        [ $command = merge ] && set -- "$base" "$part" "$work/no" || set -- --model "$base" --adapter "$part" --data "$data"
        runs "$family: a factor that is missing is said by $command" 3 'layers.1.self_attn.q_proj.lora_A.weight.*expected: +this tensor in the adapter' $command "$@"
    done

    # Of the text model by itself: the tower stays as it is, though targets name modules of it.
    runs "$family: of the text" 0 . train --model "$base" --data "$data" --steps 2 --lr 1e-2 --lora-targets 'model\.language_model\..*\.(q_proj|gate_proj|o_proj)' --out "$work/$family-text"
    like=$work/$family-text/adapter
    text=$(copied "$like" "$family-of-text" "$older" adapter_model.safetensors)
    respelled "$text/adapter_config.json" 's/("target_modules": *)("[^"]*"|\[[^]]*\])/\1["q_proj", "gate_proj", "o_proj"]/'
    takes qwen3_vl && alike "$family with the text model's" "$base" "$text" "$like" "$data"
done

# A vision-language model's adapter of the text alone, on the text model; that of the text model without its head.
like=$llama/tiny_qwen2/lora/adapter_final
for how in model.language_model. ""; do
    mkdir "$work/of-$how" "$work/as-$how"
    other=$(copied "$like" "of-$how/lora" "s/base_model\.model\.model\./base_model.model.$how/g" adapter_model.safetensors)
    alike "Qwen2 by names with '$how'" "$llama/tiny_qwen2/hf" "$other" "$like" "$llama/tiny_qwen2/fwd_inputs.safetensors"
    for a in "$other" "$(copied "$like" "as-$how/lora")"; do
        runs "Qwen2 by names with '$how': to gguf-lora" 0 . convert "$a" "$a.gguf" --to gguf-lora --base "$llama/tiny_qwen2/hf"
    done
    same "Qwen2 by names with '$how': the same file" "$other.gguf" "$work/as-$how/lora.gguf"
done

# Of another model, as every command says.
stranger=$successors/qwen2_5_vl/lora/adapter_final
for command in eval train generate plan; do
    case $command in
    eval) set -- --data "$llama/tiny_llama/fwd_inputs.safetensors" ;;
    train) set -- --data "$llama/tiny_llama/fwd_inputs.safetensors" --steps 1 --out "$work/no" ;;
    generate) set -- --tokens 1,2 --max-new 1 ;;
    plan) set -- --seq 16 ;;
    esac
    runs "another family's is said by $command" 3 "an adapter for another model.*expected: +factors of this model's layers, those of Llama, 'model.layers.0.self_attn.q_proj' for one.*found: +[0-9]+ for modules that it has by none of its namings, 'model.visual.blocks.0.attn.*try: +the base model this adapter was made for" \
        $command --model "$llama/tiny_llama/hf" --adapter "$stranger" "$@"
done
part=$(copied "$llama/tiny_llama/lora/adapter_final" partly 's/layers\.0\.mlp\.down_proj/layers.0.mlp.fc2/g' adapter_model.safetensors)
runs "so is one with some of its modules" 3 "an adapter for another model.*found: +1 for modules .*'model.layers.0.mlp.fc2' for one" eval --model "$llama/tiny_llama/hf" --adapter "$part" --data "$llama/tiny_llama/fwd_inputs.safetensors"
finish
