#!/usr/bin/env bash
# The config of one model beside the weights of another is refused, by each command that opens a model, with both names; and of
# one family the number of the config that a tensor contradicts. SHEAF_SOAK=1: every config with the weights of every other.
. "$(dirname "$0")/lib.sh"

data=$SHEAF_SOURCE_ROOT/tests/data
texts="Llama, Mistral, SmolLM3 or Gemma" # which have tensors of the same names
said=() is=() folder=() # of each model: its name by its config, by its weights, and where it lies
# model SAID IS CONFIG [RECORDED]: made from CONFIG, or as it was recorded.
model() {
    local dir=$work/models/${#said[@]} recorded=${SHEAF_RECORDINGS:-/nowhere}/successors/${4:-none}
    if [ -f "$recorded/config.json" ]; then
        dir=$recorded
    elif [ -d "$3" ]; then
        dir=$3
    else
        "$sheaf" init "$3" "$dir" --seed 1 >/dev/null 2>"$work/stderr" || fail "a model is made: $1" "$(cat "$work/stderr")"
    fi
    said+=("$1") is+=("$2") folder+=("$dir")
}
mkdir "$work/models"
edited() { # edited NAME FILE SED-SCRIPT: a config
    sed -E "$3" "$2" >"$work/$1.json"
    printf %s "$work/$1.json"
}
glm() { # glm NAME CLASS
    printf '{"architectures": ["%s"], "model_type": "%s", "vocab_size": 41, "hidden_size": 24, "intermediate_size": 34, "num_hidden_layers": 2,
"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "attention_bias": true, "tie_word_embeddings": false, "max_position_embeddings": 64,
"eos_token_id": 2, "pad_token_id": 3, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}' "$2" "$1" >"$work/$1.json"
    printf %s "$work/$1.json"
}
for spec in minicpmv minicpmv-2.5 cogagent; do "$sheaf" init "$spec-tiny" "$work/$spec" --seed 1 >/dev/null 2>&1; done
"$sheaf" convert "$work/cogagent" "$work/parts" --to sat --tp 1 >/dev/null 2>&1
"$sheaf" convert "$work/parts" "$work/agent-hub" --to hf >/dev/null 2>&1

model Llama "$texts" "$llama/tiny_llama/hf"
model Mistral "$texts" "$llama/tiny_mistral/hf/config.json"
model SmolLM3 "$texts" "$data/families/smollm3/hf"
model Gemma "$texts" "$data/successors/gemma/hf/config.json" gemma/hf
model Qwen2 Qwen2 "$llama/tiny_qwen2/hf"
model Qwen3 Qwen3 "$data/families/qwen3/hf"
model Qwen3-MoE Qwen3-MoE "$data/successors/qwen3_moe/hf/config.json" qwen3_moe/hf
model "OLMo 2" "OLMo 2" "$data/families/olmo2/hf"
model Phi-3 Phi-3 "$data/families/phi3/hf"
model Mixtral Mixtral "$data/families/mixtral/hf"
model "Gemma 2" "Gemma 2" "$data/families/gemma2/hf"
model "Gemma 3" "Gemma 3" "$data/families/gemma3/hf"
model GLM-4-9B GLM-4-9B "$(glm glm GlmForCausalLM)"
model GLM-4 GLM-4 "$(glm glm4 Glm4ForCausalLM)" glm4/hf
model "ChatGLM's GLM-4" "ChatGLM's GLM-4" "$(edited chatglm "$data/successors/glm4v_9b/model/config.json" 's/"vision_config":\{[^}]*\},//; s/,"boi_token_id":[0-9]*,"eoi_token_id":[0-9]*//')"
model GLM-4V GLM-4V "$data/successors/glm4v_9b/model/config.json" glm4v_9b/model
model CogVLM CogVLM cogvlm-tiny
model CogAgent CogAgent "$work/cogagent"
model "CogVLM (Hugging Face)" "CogVLM (Hugging Face)" "$data/successors/cogvlm_hf/model/config.json" cogvlm_hf/model
model "CogAgent (Hugging Face)" "CogAgent (Hugging Face)" "$work/agent-hub" cogagent_hf/model
model CogVLM2 CogVLM2 "$data/successors/cogvlm2/model/config.json" cogvlm2/model
model OmniLMM OmniLMM "$data/omnilmm/made/config.json"
model "MiniCPM-V 2.0" "MiniCPM-V 2.0" minicpmv-2.0-tiny
model "MiniCPM-V 2.5" "MiniCPM-V 2.5 or 4.0" "$work/minicpmv-2.5"
model "MiniCPM-V 2.6" "MiniCPM-V 2.6" "$work/minicpmv"
# Beside its audio, which init does not make, o has the names of 2.6.
o="MiniCPM-V 2.6"
[ ! -d "${SHEAF_RECORDINGS:-/nowhere}/successors/minicpmo2_6/hf" ] || o="MiniCPM-o 2.6"
model "MiniCPM-o 2.6" "$o" "$(edited omni "$work/minicpmv/config.json" 's/"minicpmv"/"minicpmo"/; s/"MiniCPMV"/"MiniCPMO"/; s/"hidden_size": 128/"hidden_size": 64/')" minicpmo2_6/hf
model "MiniCPM-V 4.0" "MiniCPM-V 2.5 or 4.0" "$(edited v40 "$work/minicpmv-2.5/config.json" 's/"version": *"?2.5"?/"version": "4.0"/; s/"hidden_size": 128/"hidden_size": 64/')" minicpmv4_0/hf
model "MiniCPM-V 4.5" "MiniCPM-V 4.5" minicpmv-4.5-tiny minicpmv4_5/hf
model Qwen2.5-VL Qwen2.5-VL "$data/successors/qwen2_5_vl/hf/config.json" qwen2_5_vl/hf
model Qwen3-VL Qwen3-VL "$data/successors/qwen3_vl/hf/config.json" qwen3_vl/hf

# cross A B: $work/cross has A's config and B's weights.
cross() {
    rm -rf "$work/cross"
    mkdir "$work/cross"
    ln -s "${folder[$1]}/config.json" "${folder[$2]}"/model*.safetensors* "$work/cross/"
}
# refused CODE A B COMMAND...: within a minute, with both names.
refused() {
    local code=$1 a=$2 b=$3 got=0 output
    shift 3
    output=$(timeout 60 "$sheaf" "$@" 2>&1 </dev/null) || got=$?
    output=${output//$'\n'/ }
    [ "$got" = "$code" ] && [[ $output == *"${said[a]}"* && $output == *"${is[b]}"* ]] && return
    printf '%s\n' "${said[a]} with weights of ${said[b]}: sheaf $* ($got)" "$output" >>"$work/bad"
    return 1
}

none_bad() { cat "$work/bad"; [ ! -s "$work/bad" ]; }

# ---- every config with other weights, of which each model's are beside others ----
tokens_file "$work/rows.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
for a in "${!said[@]}"; do
    : >"$work/bad"
    for step in 1 6 17 $([ -z "${SHEAF_SOAK:-}" ] || seq $((${#said[@]} - 1))); do
        b=$(((a + step) % ${#said[@]}))
        cross "$a" "$b"
        refused 3 "$a" "$b" generate --model "$work/cross" --tokens 3 --max-new 1
        [ $step = 1 ] && [ $((a % 3)) = 0 -o -n "${SHEAF_SOAK:-}" ] || continue # every command
        refused 1 "$a" "$b" verify "$work/cross"
        refused 0 "$a" "$b" info "$work/cross" # which tells what is there
        refused 3 "$a" "$b" eval --model "$work/cross" --data "$work/rows.safetensors"
        refused 3 "$a" "$b" train --model "$work/cross" --data "$work/rows.safetensors" --steps 1 --out "$work/out"
        refused 3 "$a" "$b" chat --model "$work/cross"
        refused 3 "$a" "$b" merge "$work/cross" "$llama/tiny_llama/lora/adapter_final" "$work/out"
        refused 3 "$a" "$b" convert "$work/cross" "$work/out" --to hf
        [ "${is[b]}" != "$texts" ] || continue # names alone do not say it, and these look at nothing else
        [[ ${said[a]} != MiniCPM* ]] || [ "${is[b]}" != "${is[a]}" ] || continue
        refused 3 "$a" "$b" plan --model "$work/cross"
        refused 3 "$a" "$b" plan --model "${folder[b]}" --config "${folder[a]}/config.json"
        refused 3 "$a" "$b" diff "$work/cross" "${folder[b]}"
        refused 3 "$a" "$b" diff "${folder[b]}" "$work/cross"
    done
    check "a config of ${said[a]} with the weights of another model" none_bad
done
absent "nothing is begun" "$work/out"

# ---- names and sizes alike ----
# Nothing in the files says that these are not what the config says: numbers of the config alone make the difference.
for class in MistralForCausalLM:mistral GemmaForCausalLM:gemma SmolLM3ForCausalLM:smollm3; do
    same=$(copy_model tiny_llama)
    sed -i "s/LlamaForCausalLM/${class%:*}/; s/\"model_type\": \"llama\"/\"model_type\": \"${class#*:}\"/" "$same/config.json"
    runs "${class#*:}: cannot be told from Llama" 0 '"tokens"' generate --model "$same" --tokens 3 --max-new 1 --greedy --json
done

# One that has all tensors of another, and more: the weights are that other's, not incomplete, also to what reads no sizes.
lacking=$(copy_model tiny_llama)
sed -i 's/LlamaForCausalLM/Qwen2ForCausalLM/; s/"model_type": "llama"/"model_type": "qwen2"/; /"attention_bias"/d; /"mlp_bias"/d' "$lacking/config.json"
few="tensors of Qwen2, as it says.*tensors of $texts; Qwen2 has 9 more: model.layers.0.self_attn.q_proj.bias"
runs "Llama's weights for Qwen2" 3 "$few" generate --model "$lacking" --tokens 3 --max-new 1
runs "of which a plan says so, too" 3 "$few" plan --model "$lacking"
mv "$lacking/model.safetensors" "$work/elsewhere"
runs "which without weights needs none" 0 peak plan --model "$lacking"

# ---- numbers of one model ----
# wrong NAME FOLDER SED-SCRIPT PATTERN: a config whose number contradicts a tensor
wrong() {
    rm -rf "$work/wrong"
    mkdir "$work/wrong"
    ln -s "$2"/model*.safetensors* "$work/wrong/"
    sed -E "$3" "$2/config.json" >"$work/wrong/config.json"
    if cmp -s "$2/config.json" "$work/wrong/config.json"; then fail "$1: the config is changed"; fi
    runs "$1" 3 "$4" generate --model "$work/wrong" --tokens 3 --max-new 1
    runs "$1: verify" 1 "$4" verify "$work/wrong"
}
at() { # at NAME: number of a model
    local i
    for i in "${!said[@]}"; do [ "${said[i]}" != "$1" ] || printf %s "${folder[i]}"; done
}
q=$(at Qwen2)
wrong "layers" "$(at Llama)" 's/("num_hidden_layers": *)3/\14/' "try: +.*num_hidden_layers 3, where it says 4 .by model.layers.3"
wrong "fewer layers" "$(at Llama)" 's/("num_hidden_layers": *)3/\12/' "try: +.*num_hidden_layers 3, where it says 2 .by model.layers.2"
wrong "a width" "$(at Llama)" 's/("hidden_size": *)64/\172/' "try: +.*hidden_size 64, where it says 72 .by model.embed_tokens.weight"
wrong "heads of keys" "$q" 's/("num_key_value_heads": *)[0-9]+/\11/' "try: +.*num_key_value_heads [0-9]+, where it says 1 .by model.layers.0.self_attn.k_proj.weight"
wrong "an MLP" "$(at 'Gemma 2')" 's/("intermediate_size": *)([0-9]+)/\11\2/' "try: +.*intermediate_size [0-9]+, where it says 1[0-9]+ .by model.layers.0.mlp.gate_proj.weight"
wrong "a head of its own" "$q" 's/("tie_word_embeddings": *)true/\1false/' "tie_word_embeddings"
wrong "experts" "$(at Qwen3-MoE)" 's/("num_local_experts": *)([0-9]+)/\11\2/' "try: +.*num_local_experts [0-9]+, where it says 1[0-9]+ .by model.layers.[0-9].mlp"
# The config is right, and not what is advised to be another.
lacks=$work/lacks moe=$(at Qwen3-MoE)
cp -r "$moe" "$lacks"
LC_ALL=C sed 's/mlp\.experts\.1\.up_proj/mlp.experts.1.zz_proj/g' "$moe/model.safetensors" >"$lacks/model.safetensors"
runs "a matrix of an expert is missing" 3 "'model.layers.0.mlp.experts.1.up_proj.weight': missing" generate --model "$lacks" --tokens 3 --max-new 1
runs "verify names it" 1 "missing.*experts.1.up_proj" verify "$lacks"
check "and wants no other config" bash -c '! grep -q "config of these weights" "$1"' . "$work/stdout"
wrong "groups of keys" "$(at GLM-4V)" 's/("multi_query_group_num": *)2/\13/' "try: +.*multi_query_group_num 2, where it says 3 .by transformer.encoder.layers.0.self_attention.query_key_value"
wrong "blocks of a tower" "$(at Qwen3-VL)" 's/("depth": *)([0-9]+)/\11\2/' "try: +.*vision_config.depth [0-9]+, where it says 1[0-9]+ .by model.visual.blocks"
wrong "a tower" "$(at 'MiniCPM-V 4.5')" '/"vision_config"/,/\}/s/("intermediate_size": *)([0-9]+)/\11\2/' "try: +.*vision_config.intermediate_size [0-9]+, where it says 1[0-9]+ .by vpm.encoder.layers.0.mlp.fc1"
wrong "CogVLM2" "$(at CogVLM2)" 's/("num_multi_query_heads": *)([0-9]+)/\11/' "try: +.*num_multi_query_heads [0-9]+, where it says 1"
finish
