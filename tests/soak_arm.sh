# soak_arm.sh - a section of soak.sh, which sources it, and the second half of `./run test-arm`: AArch64's command under qemu-user
# ($SHEAF_ARM) against this machine's, byte for byte. Every family trains a step here, one there and one here, each on another
# number of ranks, and leaves what three steps here leave: all checkpoints, losses, the result; those of texts in every type and
# order of sums, those with pictures, slow under qemu, in float32 and two others by turns. Methods and options go round. Then what
# no family has of its own, and answers. Models are small: what depends on sizes is the unit tests' matter.
# ARM_FAMILIES="llama qwen3" takes these families alone.
orders=("float32" "bfloat16 --sums pairs" "bfloat16 --sums tiles" "bfloat16 --sums mma8" "bfloat16 --sums mma16"
    "float16 --sums pairs" "float16 --sums mma8" "float16 --sums mma16")
methods=("--lora-rank 3 --lora-dropout 0.2" "--method full" "--method head")
extras=("" "--checkpointing" "--neftune-alpha 5" "--label-smoothing 0.1 --accumulate 3" "--optimizer adamw8bit")

# crosses NAME FLAG...: a run that changes its processor twice.
crosses() {
    local name=$1
    shift
    run=("$@" --threads 2 --lr 1e-2 --schedule constant --warmup 0 --save-every 1 --keep 0)
    rm -rf "$work/stayed" "$work/moved"
    check "$name" eval 'train "$work/stayed" "${run[@]}" --steps 3 && train "$work/moved" "${run[@]}" --steps 1 --tp 2 &&
        $SHEAF_ARM train --resume --out "$work/moved" --steps 2 --tp 3 && "$sheaf" train --resume --out "$work/moved" --steps 3 &&
        [ "$(digest "$work/stayed")" = "$(digest "$work/moved")" ] || { diff -rq "$work/stayed" "$work/moved"; tail -n 3 "$work"/*d.log; false; }'
}
# says NAME ARGUMENT...: any other command has the same output.
says() {
    local name=$1
    shift
    arguments=("$@")
    check "$name" eval '"$sheaf" "${arguments[@]}" >"$work/here" && [ -s "$work/here" ] && $SHEAF_ARM "${arguments[@]}" >"$work/there" &&
        diff <(sed -E "s/\"[a-z_]*second[a-z_]*\":[^,}]*//g" "$work/here") <(sed -E "s/\"[a-z_]*second[a-z_]*\":[^,}]*//g" "$work/there")'
}
# family NAME SPEC DATA [TARGETS]: a model that init makes of SPEC.
turn=0
family() {
    local name=$1 model=$work/$1.model data=$3 targets=${4:-all-linear} rows=2 order method these=("${orders[@]}") prompt=(--tokens 3,4,5,6)
    [[ -z ${ARM_FAMILIES:-} || " $ARM_FAMILIES " == *" $name "* ]] || return 0
    check "$name, init" "$sheaf" init "$2" "$model" --seed 1
    [[ $data != *talks.json ]] || { rows=1; these=("${orders[0]}" "${orders[1 + turn % 7]}" "${orders[1 + (turn + 4) % 7]}"); prompt=(--prompt "Which?" --image "$work/rgb8.png"); }
    for order in "${these[@]}"; do
        method=${methods[turn % 3]}
        [[ $method != *lora* ]] || method+=" --lora-targets $targets"
        # shellcheck disable=SC2086
        crosses "$name, --dtype $order $method ${extras[turn % 5]}" --model "$model" --data "$data" --micro-batch $rows --dtype $order $method ${extras[turn % 5]}
        turn=$((turn + 1))
    done
    # shellcheck disable=SC2086
    says "$name, answers, --dtype ${orders[turn % 8]}" generate --model "$model" "${prompt[@]}" --max-new 6 --seed 4 --logprobs 2 --tp 2 --dtype ${orders[turn % 8]} --json
    turn=$((turn + 1)) # the next family begins with another method
}

data=$SHEAF_SOURCE_ROOT/tests/data
ids="$(seq -s ' ' 26) $(seq -s ' ' 22)"
tokens_file "$work/tokens.safetensors" 4 12 "$ids" "$ids"
for f in llama/tiny_llama llama/tiny_mistral llama/tiny_qwen2 families/{qwen3,smollm3,olmo2,phi3,mixtral,gemma2,gemma3} successors/{gemma,qwen3_moe}; do
    case $f in *tiny_llama) targets=embed_tokens,q_proj,up_proj,lm_head ;; *mixtral) targets=q_proj,v_proj ;; *) targets=all-linear ;; esac
    family "${f##*/}" "$data/$f/hf/config.json" "$work/tokens.safetensors" $targets
done
odd_model "$work/odd" && family odd "$work/odd/config.json" "$work/tokens.safetensors"
for f in glm glm4; do
    printf '{"architectures": ["%sForCausalLM"], "model_type": "%s", "vocab_size": 41, "hidden_size": 24, "intermediate_size": 34, "num_hidden_layers": 2,
"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "attention_bias": true, "tie_word_embeddings": false, "max_position_embeddings": 64,
"eos_token_id": 2, "pad_token_id": 3, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}' ${f^} $f >"$work/$f.json"
    family $f "$work/$f.json" "$work/tokens.safetensors"
done
for name in adam7_rgb8.png rgb8.png 420.jpg; do cp "$data/images/$name" "$work/"; done
cat >"$work/talks.json" <<'END'
[{"image": "rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhat?"}, {"role": "assistant", "content": "Noise."}]},
 {"image": "adam7_rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhich?"}, {"role": "assistant", "content": "Two of them."}]},
 {"image": "420.jpg", "conversations": [{"role": "user", "content": "<image>\nAnd?"}, {"role": "assistant", "content": "No."}]}]
END
for f in qwen2_5_vl qwen3_vl; do family $f "$data/successors/$f/hf/config.json" "$data/successors/$f/inputs.safetensors"; done
for f in cogvlm cogagent cogvlm2 glm4v omnilmm minicpmv-2.0 minicpmv-2.5 minicpmv minicpmv-4.5; do family $f $f-tiny "$work/talks.json"; done
[ -z "${ARM_FAMILIES:-}" ] || return 0

# What no family has of its own.
"$sheaf" init tiny-bytes "$work/bytes.model" --seed 2 >/dev/null 2>&1 || fail "init tiny-bytes"
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"prompt\": \"${i}23\", \"completion\": \"$i$i$i\"}" >&3
    echo "{\"prompt\": \"${i}23\", \"chosen\": \"$i$i\", \"rejected\": \"no\"}" >&4
done 3>"$work/lines.jsonl" 4>"$work/pairs.jsonl"
while read -r model data flags; do
    # shellcheck disable=SC2086
    crosses "$model, $data, $flags" --model "$work/$model.model" --data "$work/$data" $flags
done <<'END'
bytes lines.jsonl --dtype bfloat16 --sums pairs --pack --seq 64 --lora-rank 3
bytes lines.jsonl --dtype bfloat16 --sums pairs --quantize nf4 --lora-rank 3
bytes lines.jsonl --dtype float32 --quantize nf4-double --lora-rank 3 --lora-dora
bytes lines.jsonl --dtype bfloat16 --sums mma16 --quantize int8 --lora-rank 3
bytes lines.jsonl --dtype bfloat16 --sums mma8 --lora-rank 3 --lora-dora
bytes lines.jsonl --dtype float32 --lora-rank 3 --init pissa
bytes lines.jsonl --dtype bfloat16 --sums tiles --lora-rank 3 --init olora
bytes lines.jsonl --dtype float32 --lora-rank 3 --keep-activations int8
bytes lines.jsonl --dtype float16 --sums mma16 --lora-rank 3 --dp 2 --accumulate 4 --accumulators 2
bytes pairs.jsonl --dtype bfloat16 --sums pairs --objective dpo --lora-rank 3
bytes pairs.jsonl --dtype float32 --objective orpo --method full
bytes pairs.jsonl --dtype bfloat16 --sums tiles --objective reward --lora-rank 3
mixtral tokens.safetensors --dtype bfloat16 --sums pairs --lora-rank 3 --lora-targets q_proj,experts
bytes lines.jsonl --dtype float32 --objective grpo --reward exact --generations 4 --max-new 4 --accumulate 4 --lora-rank 3
END
check "merged" eval '"$sheaf" merge "$work/bytes.model" "$work/stayed/adapter" "$work/here.merged" &&
    $SHEAF_ARM merge "$work/bytes.model" "$work/stayed/adapter" "$work/there.merged" && diff -r "$work/here.merged" "$work/there.merged"'
