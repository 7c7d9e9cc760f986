#!/usr/bin/env bash
# A run goes on, and its checkpoints are used, with the base it began from and with no other; how it is told to go on.
. "$(dirname "$0")/lib.sh"

pictures=$SHEAF_SOURCE_ROOT/tests/data/images
mkdir -p "$work/caps"
cp "$pictures/rgb8.png" "$work/caps/1234.png"
cp "$pictures/turned6.jpg" "$work/caps/98.jpg"

# zero_rows FILE BYTE BYTES: that many bytes become zero.
zero_rows() { dd if=/dev/zero of="$1" bs=1 seek="$2" count="$3" conv=notrunc 2>/dev/null; }
# place FILE TENSOR: where its data begin and end in the file.
place() {
    local header
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + header)) "$1" | tail -c +9 | grep -oE "\"$2\": ?\{[^}]*\}" | grep -oE '\[[0-9]+, ?[0-9]+\]\}' | tr -d '[]}' | tr ',' ' ' |
        { read -r begin end; echo $((8 + header + begin)) $((8 + header + end)); }
}

# refused NAME PATTERN MODEL DATA STEP OUT: whatever uses the run says so.
refused() {
    local name=$1 pattern=$2 model=$3 data=$4 step=$5 out=$6
    runs "$name: resume" 2 "--resume: the base model: $pattern" train --resume --out "$out" --steps 3
    runs "$name: eval" 3 "the base of the run: $pattern" eval --model "$step" --data "$data"
    runs "$name: generate" 3 "the base of the run: $pattern" generate --model "$step" "${ask[@]}" --max-new 2
    runs "$name: chat" 3 "the base of the run: $pattern" chat --model "$step" --max-new 2
    runs "$name: the base given" 3 "the base of the run: $pattern" eval --model "$model" --adapter "$step" --data "$data"
    [ "$step" != "$out" ] && [ -d "$out/adapter" ] || return 0 # a whole model stands alone
    runs "$name: the result" 3 "the base of the run: $pattern" generate --model "$out" "${ask[@]}" --max-new 2
}

# ---- Llama: adapter and whole tensors ----
ask=(--tokens 5,9,2)
data=$llama/tiny_llama/fwd_inputs.safetensors
for method in lora head full; do
    model=$(copy_model tiny_llama)
    out=$work/$method
    runs "$method" 0 . train --model "$model" --data "$data" --out "$out" --method $method --steps 2 --save-every 1 --micro-batch 1 --tp 3
    step=$out/checkpoints/step-00000001
    sed -i.was 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 2e-05/' "$model/config.json"
    refused "$method, rms_norm_eps" 'config, rms_norm_eps .*expected: 1e-05.*found: +2e-05' "$model" "$data" "$step" "$out"
    [ $method != lora ] || refused "result, rms_norm_eps" 'config, rms_norm_eps ' "$model" "$data" "$out" "$out"
    mv "$model/config.json.was" "$model/config.json"
    read -r begin end < <(place "$model/model.safetensors" model.layers.1.mlp.down_proj.weight)
    cp "$model/model.safetensors" "$work/weights"
    zero_rows "$model/model.safetensors" $((begin + 172 * 4)) $((end - begin - 2 * 172 * 4)) # all rows but the first and the last
    refused "$method, rows" "weights, tensor 'model.layers.1.mlp.down_proj.weight' " "$model" "$data" "$step" "$out"
    cp "$work/weights" "$model/model.safetensors"
    runs "$method: the base of old" 0 '"loss"' eval --model "$step" --data "$data" --json
    runs "$method: in shards" 0 '"loss"' eval --model "$llama/tiny_llama/hf_sharded" --adapter "$step" --data "$data" --json
    runs "$method: and goes on" 0 'going on after step 2' train --resume --out "$out" --steps 3 --tp 2
done

# ---- CogVLM ----
ask=(--image "$work/caps/98.jpg" --prompt "Which?")
runs "a CogVLM" 0 . init cogvlm-tiny "$work/vlm" --seed 3 --dtype bfloat16
runs "is trained" 0 . train --model "$work/vlm" --data "$work/caps" --out "$work/cog" --steps 1 --micro-batch 1
step=$work/cog/checkpoints/step-00000001
cp "$work/vlm/config.json" "$work/config.json"
for change in '1s/{/{ "layernorm_epsilon": 1e-06,/:config, layernorm_epsilon ' 's/"layernorm_epsilon": 1e-06/"layernorm_epsilon": 1e-07/:config, eva_args.layernorm_epsilon '; do
    sed "${change%%:config*}" "$work/config.json" >"$work/vlm/config.json"
    cmp -s "$work/config.json" "$work/vlm/config.json" && fail "$change" "nothing changed: $(cat "$work/config.json")"
    refused "${change##*:}" "${change##*:}" "$work/vlm" "$work/caps" "$step" "$work/cog"
done
cp "$work/config.json" "$work/vlm/config.json"
runs "as SAT saves it in two" 0 '' convert "$work/vlm" "$work/sat" --to sat --tp 2
runs "the same base in another dialect" 0 '"loss"' eval --model "$work/sat" --adapter "$step" --data "$work/caps" --json
runs "goes on with it" 0 . train --resume --out "$work/cog" --model "$work/sat" --steps 2
finish
