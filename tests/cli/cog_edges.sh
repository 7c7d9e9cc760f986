#!/usr/bin/env bash
# CogVLM and CogAgent: input that cannot be right is explained, sizes that serve badly work, and no way of running
# changes a byte. Every recorded model is taken; of a class that has no recording one is made.
. "$(dirname "$0")/lib.sh"

agent="" vlm=""
for d in "$golden"/*/; do
    d=${d%/}
    [ -f "$d/inputs.safetensors" ] && [ -f "$d/mp1/model_config.json" ] || continue
    if grep -q '"CogAgentModel"' "$d/mp1/model_config.json"; then agent=$d; else vlm=$d; fi
done
[ -n "$agent" ] || { fail "a recorded CogAgent in $golden"; finish; }
made() { # made NAME CONFIG: a model with random weights, as SAT saves one, at $work/NAME/mp1
    mkdir -p "$work/$1"
    "$sheaf" init "$2" "$work/$1/hf" --seed 4 >/dev/null 2>&1 && "$sheaf" convert "$work/$1/hf" "$work/$1/mp1" --to sat >/dev/null 2>&1
}
if [ -z "$vlm" ]; then
    vlm=$work/vlm
    cat >"$work/vlm.json" <<'JSON'
{"model_class": "CogVLMModel", "num_layers": 2, "hidden_size": 48, "num_attention_heads": 8, "vocab_size": 1000, "layernorm_order": "pre",
 "model_parallel_size": 1, "max_sequence_length": 128, "use_bias": false, "inner_hidden_size": 96, "image_length": 16,
 "eva_args": {"model_class": "EVA2CLIPModel", "num_layers": 3, "hidden_size": 32, "num_attention_heads": 8, "vocab_size": 1,
  "layernorm_order": "post", "model_parallel_size": 1, "max_sequence_length": 17, "inner_hidden_size": 64, "use_final_layernorm": false,
  "layernorm_epsilon": 1e-06, "row_parallel_linear_final_bias": false, "image_size": [56, 56], "pre_len": 1, "post_len": 0, "in_channels": 3,
  "patch_size": 14}, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
JSON
    check "a CogVLM is made" made vlm "$work/vlm.json"
    cp "$golden/cogvlm/inputs.safetensors" "$vlm/"
fi
copy() { rm -rf "${work:?}/$2"; cp -rL "$1" "$work/$2"; chmod -R u+w "$work/$2"; } # copy DIR NAME
class() { sed -i "s/\"model_class\": *\"\(FineTune[A-Za-z]*\)\{0,1\}Cog[A-Za-z]*Model\"/\"model_class\": \"$2\"/" "$work/$1/model_config.json"; }
floats() { tail -c +"$((9 + $(od -An -tu8 -N8 "$1")))" "$1" | od -An -v -w4 -tf4; } # of a .safetensors file with float32 only
# floats_near A B TOLERANCE: as many numbers, and none further apart.
floats_near() {
    paste <(floats "$1") <(floats "$2") | awk -v t="$3" 'NF != 2 || $1 != $1 + 0 { bad = "lengths"; exit }
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= t)) { bad = $0; exit } n++ } END { if (bad != "" || n == 0) { print bad; exit 1 } }'
}
refused() { # refused NAME CODE PATTERN DIR DATA: by eval, generate and train, which leaves nothing
    runs "$1: eval" "$2" "$3" eval --model "$4" --data "$5"
    runs "$1: generate" "$2" "$3" generate --model "$4" --tokens 1,2,3 --max-new 1
    runs "$1: train" "$2" "$3" train --model "$4" --data "$5" --steps 1 --out "$work/refused"
    absent "$1: nothing is left" "$work/refused"
}

# ---- the class ----
copy "$agent/mp1" agent_as_vlm; class agent_as_vlm CogVLMModel
refused "a CogAgent that says CogVLM" 3 'lost .*tower.*try: .*--model-class CogAgentModel' "$work/agent_as_vlm" "$agent/inputs.safetensors"
runs "its cure" 0 . convert "$work/agent_as_vlm" "$work/cured" --to sat --model-class CogAgentModel
runs "gives the model back" 0 . diff "$agent/mp1" "$work/cured"
copy "$vlm/mp1" vlm_as_agent; class vlm_as_agent CogAgentModel
refused "a CogVLM that says CogAgent" 3 "CogAgent's high-resolution tower.*these are CogVLM's.*try: .*--model-class CogVLMModel" "$work/vlm_as_agent" "$vlm/inputs.safetensors"

# ---- the tower ----
# A CogVLM with cross-attention is what a merge of CogAgent as CogVLM leaves.
"$sheaf" convert "$agent/mp1" "$work/agent_said" --to sat >/dev/null 2>&1 # whose config has the tower's sizes
sed 's/"CogAgentModel"/"CogVLMModel"/; s/^ *"encoder_override".*//' "$work/agent_said/model_config.json" >"$work/lost.json"
check "a model without its tower" "$sheaf" init "$work/lost.json" "$work/lost"
refused "a CogVLM with cross-attention" 3 'tower.*cross-attention.*try: .*the parts from before' "$work/lost" "$vlm/inputs.safetensors"
cp "$work/agent_said/model_config.json" "$work/lost/config.json"
refused "a CogAgent without a tower" 3 'expected: its [0-9]+ tensors, mixins.encoder.*none of them.*try: .*the parts from before' "$work/lost" "$agent/inputs.safetensors"
runs "verify names its tensors" 1 "missing: .*mixins.encoder.pos_embed" verify "$work/lost"

# ---- LoRA that is not merged ----
short=(--steps 2 --micro-batch 1 --accumulate 2 --lr 1e-2 --threads 2 --seed 5)
for m in "$vlm" "$agent"; do
    name=$(basename "$m")
    runs "$name: train without --lora-targets" 0 'LoRA on sat, the default for cog' train --model "$m/mp1" --data "$m/inputs.safetensors" "${short[@]}" --lora-alpha 4 --out "$work/$name-t1"
    runs "$name: to SAT with LoRA" 0 . convert "$m/mp1" "$work/$name-lora" --adapter "$work/$name-t1/adapter" --to sat --tp 2
    runs "$name: an adapter among the sources is refused" 2 'adapter.*try: .*--adapter' convert "$m/mp1" "$work/$name-t1/adapter" "$work/refused-$name" --to sat
    runs "$name: train refuses it as a base" 3 'whose LoRA is merged.*LoRA factors.*try: +sheaf merge [^ ]*-lora ' train --model "$work/$name-lora" \
        --data "$m/inputs.safetensors" --steps 1 --out "$work/refused"
    runs "$name: its cure" 0 . merge "$work/$name-lora" "$work/$name-cured"
    runs "$name: is a base" 0 . train --model "$work/$name-cured" --data "$m/inputs.safetensors" --steps 1 --out "$work/$name-again"
    runs "$name: eval merges it" 0 'its LoRA is merged' eval --model "$work/$name-lora" --data "$m/inputs.safetensors" --tp 3 --save-logits "$work/$name-lora.logits"
    runs "$name: generate too" 0 'its LoRA is merged' generate --model "$work/$name-lora" --data "$m/inputs.safetensors" --max-new 2
    runs "$name: eval with the adapter" 0 . eval --model "$m/mp1" --adapter "$work/$name-t1/adapter" --data "$m/inputs.safetensors" --save-logits "$work/$name-adapter.logits"
    runs "$name: merge" 0 'equal' merge "$m/mp1" "$work/$name-t1/adapter" "$work/$name-merged"
    runs "$name: the merged model is sound" 0 'sound' verify "$work/$name-merged"
    runs "$name: and runs" 0 . eval --model "$work/$name-merged" --data "$m/inputs.safetensors" --tp 2 --save-logits "$work/$name-merged.logits"
    runs "$name: and becomes SAT's" 0 . convert "$work/$name-merged" "$work/$name-sat4" --to sat --tp 4
    runs "$name: merged and converted are one model" 0 . diff "$work/$name-merged" "$work/$name-sat4"
    for form in merged lora; do
        check "$name: logits of the $form model are those with the adapter" floats_near "$work/$name-adapter.logits" "$work/$name-$form.logits" 5e-5
    done
done

for save in "$agent"/lora_mp[0-9] "$vlm"/lora_mp[0-9]; do # SAT's own, with the logits it computed
    [ -f "$save/latest" ] || continue
    m=${save%/*} name=$(basename "${save%/*}")-$(basename "$save")
    runs "$name: merge of the parts" 0 . merge "$save" "$work/$name"
    [ ! -d "$m/lora_mp1_merged" ] || runs "$name: is SAT's merge" 0 . diff "$m/lora_mp1_merged" "$work/$name"
    runs "$name: eval" 0 . eval --model "$work/$name" --data "$m/inputs.safetensors" --tp 3 --save-logits "$work/$name.logits"
    "$sheaf" eval --model "$m/lora_mp1" --data "$m/inputs.safetensors" --save-logits "$work/$name.want" >/dev/null 2>&1
    check "$name: the logits of one part" floats_near "$work/$name.logits" "$work/$name.want" 5e-5
done

copy "$work/$(basename "$agent")-lora" part_lost
rm "$work"/part_lost/[0-9]*/mp_rank_01_model_states.pt
for form in sat peft; do
    runs "LoRA without a part of its files, to $form" 3 'missing.*no mp_rank_01.*try' convert "$work/part_lost" "$work/none" --to $form
    absent "nothing is left of it" "$work/none"
done

# ---- adapters that do not fit ----
adapter=$work/$(basename "$agent")-t1/adapter
data=$agent/inputs.safetensors
runs "a target of Llama" 2 "target 'q_proj'.*for example" train --model "$vlm/mp1" --data "$vlm/inputs.safetensors" --steps 1 --lora-targets q_proj,v_proj --out "$work/none"
runs "an adapter of Llama" 3 'another model.*factors of this model.*try' eval --model "$agent/mp1" --adapter "$llama/tiny_llama/lora/adapter_final" --data "$data"
runs "and for training" 3 'another model.*factors of this model.*try' train --model "$agent/mp1" --adapter "$llama/tiny_llama/lora/adapter_final" --data "$data" --steps 1 --out "$work/none"
runs "an adapter of CogAgent on Llama" '2|3' 'no layer is adapted|another model' eval --model "$llama/tiny_llama/hf" --adapter "$adapter" --data "$llama/tiny_llama/fwd_inputs.safetensors"
for more in "--lora-bias all" "--modules-to-save ffn_ln,norm1" "--modules-to-save mixins.encoder"; do # the tower's last block never runs
    rm -rf "$work/more" "$work/more_merged"
    # shellcheck disable=SC2086
    runs "train $more" 0 . train --model "$agent/mp1" --data "$data" "${short[@]}" $more --out "$work/more"
    runs "merge it" 0 'replaced +[1-9].*equal' merge "$agent/mp1" "$work/more/adapter" "$work/more_merged"
done
sed 's/"bias": *"none"/"bias": "all"/' "$adapter/adapter_config.json" >"$work/biases.json"
cp -r "$adapter" "$work/no_biases"
cp "$work/biases.json" "$work/no_biases/adapter_config.json"
runs "biases that are not in the adapter" 3 'expected: this tensor in the adapter' merge "$agent/mp1" "$work/no_biases" "$work/none"
runs "factors of one layer" 0 . train --model "$agent/mp1" --data "$data" --steps 1 --lora-layers 0 --out "$work/layer0"
cp -r "$work/layer0/adapter" "$work/lacking"
cp "$adapter/adapter_config.json" "$work/lacking/"
runs "an adapter that lacks factors" 3 "layers.1.*expected: this tensor.*nothing of that name" eval --model "$agent/mp1" --adapter "$work/lacking" --data "$data"
runs "is not trained further" 3 "layers.1.*expected: this tensor" train --model "$agent/mp1" --adapter "$work/lacking" --data "$data" --steps 1 --out "$work/none"
# Rows of q meet only q's factors: a number elsewhere makes the layer dense.
cp -r "$adapter" "$work/dense"
header=$((8 + $(od -An -tu8 -N8 "$adapter/adapter_model.safetensors")))
at=$(head -c "$header" "$adapter/adapter_model.safetensors" | grep -aoE '"[^"]*query_key_value\.lora_B\.weight": *\{[^}]*"data_offsets": *\[[0-9]+' | head -n 1 | grep -oE '[0-9]+$')
rank=$(sed -n 's/^lora-rank: //p' "$work/$(basename "$agent")-t1/settings")
printf '\000\000\200\077' | dd of="$work/dense/adapter_model.safetensors" bs=1 seek=$((header + at + 4 * rank)) conv=notrunc status=none
runs "a dense adapter runs" 0 . eval --model "$agent/mp1" --adapter "$work/dense" --data "$data"
runs "and is not trained further" 3 'expected.*found' train --model "$agent/mp1" --adapter "$work/dense" --data "$data" --steps 1 --out "$work/none"
absent "nothing of these is left" "$work/none"

# ---- lengths, ids, templates ----
for m in "$vlm" "$agent"; do
    name=$(basename "$m")
    for seq in 4 19; do
        runs "$name: --seq $seq, train" 3 'at most .* tokens, the value of --seq.*try' train --model "$m/mp1" --data "$m/inputs.safetensors" --seq $seq --steps 1 --out "$work/none"
        runs "$name: --seq $seq, eval" 3 'at most .* tokens, the value of --seq.*try' eval --model "$m/mp1" --data "$m/inputs.safetensors" --seq $seq
    done
    runs "$name: --seq 4, plan" 2 'an image takes [0-9]+' plan --model "$m/mp1" --seq 4
    copy "$m/mp1" padded
    vocabulary=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$m/mp1/model_config.json" | sort -n | tail -n 1)
    sed -i "s/\"pad_token_id\": *[0-9]*/\"pad_token_id\": $vocabulary, \"text_processor_version\": \"chat\"/" "$work/padded/model_config.json"
    runs "$name: a pad id outside the table" 0 . eval --model "$work/padded" --data "$m/inputs.safetensors" --json
    loss=$(json_number "$work/stdout" loss)
    runs "$name: and inside" 0 . eval --model "$m/mp1" --data "$m/inputs.safetensors" --json
    check "$name: give one loss" test "$loss" = "$(json_number "$work/stdout" loss)"
    runs "$name: merge keeps the template and the class" 0 . merge "$work/padded" "$work/$name-t1/adapter" "$work/kept"
    check "$name: in the config" grep -qE '"text_processor_version": *"chat"' "$work/kept/config.json"
    runs "$name: from there to SAT" 0 . convert "$work/kept" "$work/kept_sat" --to sat --tp 2
    check "$name: too" grep -qE '"text_processor_version": *"chat"' "$work/kept_sat/model_config.json"
    check "$name: with the class" grep -qE "\"model_class\": *\"$(sed -n 's/.*"model_class": *"\(Cog[A-Za-z]*\)".*/\1/p' "$m/mp1/model_config.json")\"" "$work/kept_sat/model_config.json"
    runs "$name: a model of two parts runs and trains on three ranks" 0 . train --model "$work/kept_sat" --data "$m/inputs.safetensors" --steps 1 --tp 3 --out "$work/of_two"
    rm -rf "$work/kept" "$work/kept_sat" "$work/of_two"
done

# ---- sizes that the heads cannot serve well ----
# Six heads, three of the ViT, two of the tower: at 3 and 8 ranks some idle. Its images are those of the committed data.
cat >"$work/uneven.json" <<'JSON'
{"model_class": "CogAgentModel", "num_layers": 2, "hidden_size": 36, "num_attention_heads": 6, "vocab_size": 1000, "layernorm_order": "pre",
 "model_parallel_size": 1, "max_sequence_length": 128, "is_decoder": [true, false], "cross_attn_hidden_size": 32, "use_bias": false,
 "inner_hidden_size": 75, "cross_hidden_size_per_attention_head": 5, "image_length": 16, "cross_image_pix": 112,
 "encoder_override": {"embed_dim": 12, "layers": 3, "width": 32, "head_width": 16, "mlp_ratio": 2.6667},
 "eva_args": {"model_class": "EVA2CLIPModel", "num_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "vocab_size": 1,
  "layernorm_order": "post", "model_parallel_size": 1, "max_sequence_length": 17, "inner_hidden_size": 41, "use_final_layernorm": false,
  "layernorm_epsilon": 1e-06, "row_parallel_linear_final_bias": false, "image_size": [56, 56], "pre_len": 1, "post_len": 0, "in_channels": 3,
  "patch_size": 14}, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
JSON
pictures=$SHEAF_SOURCE_ROOT/tests/data/cogagent/inputs.safetensors
check "an uneven model" "$sheaf" init "$work/uneven.json" "$work/uneven" --seed 9
many=(--model "$work/uneven" --data "$pictures" --steps 2 --micro-batch 1 --accumulate 2 --lr 1e-2 --threads 2 --lora-targets all-linear --train 'mixins.encoder.*,mixins.eva.pos_embed' --lr-scale '*encoder*=0.1')
runs "train on one rank" 0 . train "${many[@]}" --out "$work/u1"
check "says nothing of heads" bash -c '! grep -q uneven "$1"' - "$work/stderr"
"$sheaf" eval --model "$work/uneven" --adapter "$work/u1/adapter" --data "$pictures" --save-logits "$work/u1.logits" --json >"$work/u1.json" 2>/dev/null
"$sheaf" generate --model "$work/uneven" --adapter "$work/u1/adapter" --data "$pictures" --max-new 4 >"$work/u1.tokens" 2>/dev/null
for t in 3 8; do
    told="--tp $t is uneven, .*heads of attention.*heads of cross-attention.*none of the 3 heads of the ViT.*none of the 2 heads of the tower.*evenly"
    [ $t != 3 ] || told="--tp 3 is uneven, .*ranks have 1 to 3 of the 6 heads of attention"
    runs "train on $t ranks, and the note" 0 "$told" train "${many[@]}" --tp $t --out "$work/u$t"
    check "gives the bytes of one" test "$(digest "$work/u$t")" = "$(digest "$work/u1")"
    runs "eval on $t ranks, and the note" 0 "$told" eval --model "$work/uneven" --adapter "$work/u$t/adapter" --data "$pictures" --tp $t --save-logits "$work/u$t.logits" --json
    same "gives the answer of one" "$work/u1.json" "$work/stdout"
    same "and its logits" "$work/u1.logits" "$work/u$t.logits"
    runs "generate on $t ranks, and the note" 0 "$told" generate --model "$work/uneven" --adapter "$work/u$t/adapter" --data "$pictures" --tp $t --max-new 4
    same "gives the tokens of one" "$work/u1.tokens" "$work/stdout"
    runs "plan on $t ranks, and the note" 0 "$told" plan --model "$work/uneven" --tp $t
done

# Its cross-attention has heads of 5 channels.
for t in 1 3; do
    runs "odd heads in bfloat16, $t ranks" 0 'step 2/2 +loss [1-9]' train "${many[@]}" --dtype bfloat16 --tp $t --out "$work/odd$t"
done
check "the bytes of one" test "$(digest "$work/odd3")" = "$(digest "$work/odd1")"

# No layer looks at the tower.
sed 's/\[true, false\]/false/' "$work/uneven.json" >"$work/unread.json"
check "a CogAgent without cross-attention" "$sheaf" init "$work/unread.json" "$work/unread" --seed 9
for t in 1 3; do
    runs "is trained in full, $t ranks" 0 'step 1/1 +loss [1-9]' train --model "$work/unread" --data "$pictures" --method full --steps 1 --tp $t --out "$work/unread$t"
done
check "the bytes of one" test "$(digest "$work/unread3")" = "$(digest "$work/unread1")"

# ---- no way of running changes a byte ----
# ways NAME FLAG... -- WAY...: a run, and the same run in other ways (words of a WAY are joined by blanks)
ways() {
    local name=$1 want="" way flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    for way in "" "$@"; do
        rm -rf "$work/way"
        # shellcheck disable=SC2086
        runs "$name${way:+, $way}" 0 . train --model "$agent/mp1" --data "$data" --steps 2 --lr 1e-2 --accumulate 2 --seed 3 "${flags[@]}" $way --out "$work/way"
        want=${want:-$(digest "$work/way")}
        check "$name${way:+, $way}: the same bytes" test "$(digest "$work/way")" = "$want"
    done
}
beside=(--train '*encoder*,*cross_attention*' --lr-scale '*encoder*=0.1')
ways "LoRA in bfloat16" --dtype bfloat16 --lora-targets sat-vit "${beside[@]}" -- "--tp 2 --threads 3" "--tp 3 --checkpointing" "--tp 8 --isa avx2"
ways "LoRA in float32 with dropout" --lora-targets all-linear --micro-batch 2 --lora-dropout 0.1 -- "--checkpointing --threads 1" "--tp 2 --isa avx2"
ways "four slices" --slices 4 "${beside[@]}" -- "--tp 4"
ways "sixteen slices" --slices 16 --dtype bfloat16 -- "--tp 5 --checkpointing"
ways "head" --method head -- "--tp 3 --isa ref"
ways "full" --method full -- "--tp 3 --checkpointing"
runs "what is trained in full is a model" 0 'sound' verify "$work/way/model"
runs "that runs" 0 . eval --model "$work/way/model" --data "$data" --tp 2
runs "and becomes SAT's" 0 . convert "$work/way/model" "$work/full_sat" --to sat --tp 2
runs "the same model" 0 . diff "$work/way/model" "$work/full_sat"

# ---- going on elsewhere ----
go=(--model "$agent/mp1" --data "$data" --lr 1e-2 --accumulate 2 --save-every 2 --seed 3 --schedule constant "${beside[@]}")
runs "six steps on one rank" 0 . train "${go[@]}" --steps 6 --out "$work/whole"
runs "four on two" 0 . train "${go[@]}" --steps 4 --tp 2 --out "$work/parts"
rm -rf "$work/parts/adapter" "$work/parts/checkpoints/step-00000004" # as if killed between two saves
runs "go on after two, on three" 0 'going on after step 2' train --resume --out "$work/parts" --steps 6 --tp 3
same "the adapter of six steps on one" "$work/whole/adapter" "$work/parts/adapter"
same "and its state" "$work/whole/checkpoints/step-00000006" "$work/parts/checkpoints/step-00000006"
runs "another rate is refused" 2 'lr-scale' train --resume --out "$work/parts" --steps 8 --lr-scale '*encoder*=0.2'

# ---- tables that can be computed ----
tables() { head -c 200000 "$1" | grep -aoE '"[^"]*(freqs_cos|freqs_sin|inv_freq)"' | tr -d '"' | sort -u; }
check "a model with all its tables" "$sheaf" init "$work/agent_said/model_config.json" "$work/tables" --seed 4
cp -r "$work/tables" "$work/untabled"
for name in $(tables "$work/tables/model.safetensors"); do
    check "without $name" without_tensor "$work/untabled/model.safetensors" "$name"
done
check "more than four are lacking" test "$(tables "$work/tables/model.safetensors" | wc -l)" -gt 4 -a -z "$(tables "$work/untabled/model.safetensors")"
runs "info lacks nothing" 0 '"parameters"' info "$work/untabled" --json
for m in tables untabled; do
    runs "$m: eval" 0 '"loss"' eval --model "$work/$m" --data "$agent/inputs.safetensors" --json
    grep -o '"loss":[^,}]*' "$work/stdout" >"$work/$m.loss"
    runs "$m: train" 0 . train --model "$work/$m" --data "$agent/inputs.safetensors" --steps 1 --micro-batch 1 --seed 5 --lora-targets all-linear --out "$work/$m-t"
    runs "$m: merge" 0 . merge "$work/$m" "$work/$m-t/adapter" "$work/$m-merged"
done
same "the same loss without them" "$work/tables.loss" "$work/untabled.loss"
same "the same adapter" "$work/tables-t/adapter/adapter_model.safetensors" "$work/untabled-t/adapter/adapter_model.safetensors"
runs "and the same merged model, whole" 0 'all bytes agree' diff "$work/tables-merged" "$work/untabled-merged"
finish
