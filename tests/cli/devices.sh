#!/usr/bin/env bash
# The command on devices whose memory is not the host's: a small run of families of every kind, answers and conversations
# give the bytes of the processor; what moves to and from the device is what plan counts. The whole matrix:
# ../soak_devices.sh.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/devices/compare.sh"
families=$SHEAF_SOURCE_ROOT/tests/data/families
images=$SHEAF_SOURCE_ROOT/tests/data/images
lora=(--steps 2 --save-every 2 --lr 1e-2 --lora-rank 3 --threads 2)

# ---- texts ----
while read -r f targets flags; do
    # shellcheck disable=SC2086
    trains "$f" --model "$families/$f/hf" --data "$families/$f/fwd_inputs.safetensors" "${lora[@]}" --micro-batch 2 --lora-targets "$targets" $flags
done <<'END'
qwen3 all-linear --tp 2 --dtype float32 --lora-dora
smollm3 all-linear --dtype bfloat16 --sums mma16 --checkpointing --lora-dora
olmo2 q_proj,down_proj --tp 2 --dtype float16 --sums mma16
phi3 all-linear --dtype float32 --lora-dropout 0.2 --keep-activations int8 --lora-dora
mixtral q_proj,v_proj,experts --dtype bfloat16 --sums pairs --accumulate 2
gemma2 all-linear --tp 2 --dtype bfloat16 --sums mma16 --neftune-alpha 5
gemma3 all-linear --dtype float32 --label-smoothing 0.1 --init olora --weight-decay 0.2
END
# those that were recorded later
while read -r f targets flags; do
    at=$SHEAF_SOURCE_ROOT/tests/data/successors/$f
    case $f in *vl | *moe) plan=most ;; *) plan=exact ;; esac
    # shellcheck disable=SC2086
    trains "$f" --model "$at/hf" --data "$at/inputs.safetensors" "${lora[@]}" --micro-batch 2 --lora-targets "$targets" $flags
    # shellcheck disable=SC2086
    says "$f: tokens" generate --model "$at/hf" --tokens 3,4,5,6 --max-new 6 --greedy --json $flags
done <<'END'
gemma q_proj,down_proj,embed_tokens --tp 2 --dtype bfloat16 --sums mma16
qwen3_moe all-linear --tp 2 --dtype float32
qwen2_5_vl all-linear --dtype bfloat16 --sums mma16
qwen3_vl all-linear --tp 2 --dtype float32
END
plan=exact
trains llama --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" "${lora[@]}" --micro-batch 2 --lora-targets embed_tokens,q_proj,lm_head --tp 2 --dtype float32
trains full --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --steps 2 --save-every 1 --micro-batch 2 --threads 2 --method full --dtype bfloat16 --sums pairs
trains eight --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --steps 2 --save-every 1 --micro-batch 2 --threads 2 --method full --dtype float32 --tp 2 --optimizer adamw8bit
# bases quantised while they are loaded: by panels and by codes, in parts of all kinds
while read -r form flags; do
    # shellcheck disable=SC2086
    trains "$form" --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" "${lora[@]}" --micro-batch 2 --lora-targets all-linear --quantize "${form%.*}" $flags
done <<'END'
nf4.1 --dtype bfloat16 --sums mma16 --tp 2 --lora-dora
nf4-double.1 --dtype float32
int8.1 --dtype bfloat16 --sums pairs --tp 2 --lora-dora
END
quant=${SHEAF_RECORDINGS:+$SHEAF_RECORDINGS/quant}
[ -d "$quant" ] || { # int8 as recorded; of GPTQ no whole model is committed
    quant=$work/quant
    cp -r "$SHEAF_SOURCE_ROOT/tests/data/quant" "$quant"
    rm -r "$quant/tiny_llama/bnb_int8" "$quant/tiny_llama_gptq_asym_actorder"
    runs "int8" 0 . convert "$quant/tiny_llama/base_bf16" "$quant/tiny_llama/bnb_int8" --to hf --quantize int8
}
while read -r form flags; do
    [ -e "$quant/$form/config.json" ] || continue
    # shellcheck disable=SC2086
    trains "folder.${form##*/}" --model "$quant/$form" --data "$quant/tiny_llama/fwd_inputs.safetensors" "${lora[@]}" --micro-batch 2 --lora-targets all-linear $flags
    says "generate ${form##*/}" generate --model "$quant/$form" --tokens 3,4,5,6 --max-new 6 --greedy --json $flags
done <<'END'
tiny_llama/bnb_nf4_double --dtype bfloat16 --sums mma16
tiny_llama/bnb_int8 --dtype bfloat16 --sums mma16
tiny_llama_gptq_asym_actorder --dtype float16 --sums mma16
END
cp -r "$work/full.cpu" "$work/full.from_cpu"
cp -r "$work/full.$first" "$work/full.to_cpu"
resumes full --steps 3 --tp 2
# crosses FROM TO: the run that FROM began goes on on TO as it does on FROM.
crosses() {
    "$devices" train --resume --steps 3 --tp 2 --out "$work/$1" --device "$2" >"$work/crosses" 2>&1 || { tail -n 4 "$work/crosses"; return 1; }
    [ "$(digest "$work/full.cpu")" = "$(digest "$work/$1")" ] || diff -rq "$work/full.cpu" "$work/$1"
}
check "checked: stopped on cpu, resumed on $first" crosses full.from_cpu "$first"
check "checked: stopped on $first, resumed on cpu" crosses full.to_cpu cpu
# Rows enough that GPUs exchange a part while the next one is computed.
"$sheaf" init tiny-bytes "$work/bytes" --seed 2 >/dev/null 2>&1 || fail "init tiny-bytes"
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%s and so on, until it ends", "completion": "%s, as everybody knows"}\n' $i$i $i; done >"$work/lines.jsonl"
trains packed --model "$work/bytes" --data "$work/lines.jsonl" --pack --seq 256 --steps 1 --micro-batch 2 --threads 2 --lr 1e-2 --lora-rank 3 --tp 2 --dtype float32
says "eval" eval --model "$work/llama.cpu" --data "$llama/tiny_llama/fwd_inputs.safetensors" --dtype float32 --tp 2 --json
says "generate" generate --model "$families/mixtral/hf" --tokens 3,4,5,6 --max-new 6 --greedy --dtype float32 --json

if [ "$first" = cuda ]; then # float16 as processors sum it, which has no name: asked for, and of a run that began so
    half=(--model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --save-every 1 --lr 1e-2 --lora-rank 3 --micro-batch 2 --threads 2 --dtype float16)
    trains half "${half[@]}" --steps 2 --sums pairs
    cp -r "$work/half.cpu" "$work/half.on"
    rm -r "$work/half.on/adapter" "$work/half.on/checkpoints/step-00000002"
    check "checked: float16 that began on cpu goes on there" "$devices" train --resume --out "$work/half.on" --device cuda
    same "checked: with its bytes" "$work/half.cpu/adapter" "$work/half.on/adapter"
    says "float16 of such a run" generate --model "$work/half.cpu" --tokens 3,4,5,6 --max-new 6 --greedy --json
    # kinds FLAG...: two processes, each on a GPU of its own kind
    kinds() {
        # shellcheck disable=SC2016
        SHEAF_PLUGINS=$SHEAF_BUILD_ROOT/src/cli mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 sh -c \
            '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export SHEAF_EMULATED_GPU=8.6; exec "$@"' - "$devices" train "${half[@]}" --steps 1 \
            --tp 2 --transport mpi --device cuda --out "$work/kinds" "$@" >"$work/kinds.log" 2>&1
    }
    if [ -e "$SHEAF_BUILD_ROOT/src/cli/sheaf-openmpi.so" ]; then
        check "checked: GPUs of two kinds do not sum in two orders" eval '! kinds && grep "rank 1.*sums in the order mma16" "$work/kinds.log"'
        check "checked: but as processors do" kinds --sums pairs
    fi
fi

# ---- names that are no device, also that of plans ----
for device in dry CPU cuda:a; do
    while read -r command flags; do
        # shellcheck disable=SC2086
        runs "checked: $command on $device" 2 "device  *expected: cpu, cuda.*  *found: *$device" "$command" --model "$llama/tiny_llama/hf" $flags --device $device
    done <<END
train --data $llama/tiny_llama/fwd_inputs.safetensors --steps 1 --out $work/none
plan --data $llama/tiny_llama/fwd_inputs.safetensors
eval --data $llama/tiny_llama/fwd_inputs.safetensors
generate --tokens 3,4 --max-new 2
END
done
absent "checked: no run on a device that is none" "$work/none"

# ---- which there are ----
SHEAF_EMULATED_GPU=8.6:24,7.5 "$devices" train --device list >"$work/list" 2>&1
check "checked: --device list, a GPU and what its tensor cores compute" grep -q "cuda:0  *Emulated GPU, 24.0 GiB, capability 8.6, tensor cores mma8," "$work/list"
check "checked: --device list, one that is too old" grep -q "7.5; expected compute capability 8.0" "$work/list"
SHEAF_EMULATED_GPU=9.0,9.0 "$devices" info --machine --json >"$work/list" 2>&1
check "checked: info --machine, links" grep -q '"number": 1.*"usable": true, "problem": null, "links": {"0": "NVLink"}' "$work/list"

# ---- pictures: two steps, or one from a start where no factor is zero, so that both have a gradient ----
seen=(--lr 1e-2 --lora-rank 4 --lora-targets all-linear --threads 2)
for name in adam7_rgb8.png rgb8.png; do cp "$images/$name" "$work/"; done
cat >"$work/talks.json" <<'END'
[{"id": "0", "image": "rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhat?"}, {"role": "assistant", "content": "Noise."}]},
 {"id": "1", "image": "adam7_rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhich?"}, {"role": "assistant", "content": "Two."}]}]
END
while read -r f flags; do
    "$sheaf" init "$f" "$work/$f.model" --seed 1 >/dev/null 2>&1 || fail "init $f"
    case $f in cogvlm-* | cogagent-*) plan=exact ;; *) plan=most ;; esac
    # shellcheck disable=SC2086
    trains "$f" --model "$work/$f.model" --data "$work/talks.json" "${seen[@]}" ${flags/once/--steps 1 --save-every 1 --init orthogonal}
done <<'END'
cogvlm-tiny --steps 2 --save-every 2 --micro-batch 1 --tp 2 --dtype bfloat16 --sums mma16
cogagent-tiny once --micro-batch 1 --dtype float32
cogvlm2-tiny once --micro-batch 1 --tp 2 --dtype bfloat16 --sums pairs --lora-dropout 0.1
glm4v-tiny once --micro-batch 2 --tp 2 --dtype float32
omnilmm-tiny once --micro-batch 1 --tp 2 --dtype float32
minicpmv-tiny once --micro-batch 1 --dtype bfloat16 --sums pairs
minicpmv-2.0-tiny once --micro-batch 2 --tp 2 --dtype float16 --sums mma16
minicpmv-4.5-tiny once --micro-batch 1 --tp 2 --dtype bfloat16 --sums mma16
END
resumes minicpmv-tiny --steps 2 --tp 2
says "eval of pictures" eval --model "$work/minicpmv-tiny.cpu" --data "$work/talks.json" --dtype float32 --json
says "a question about a picture" generate --model "$work/cogagent-tiny.model" --prompt "Which?" --image "$work/rgb8.png" --max-new 4 --greedy --tp 2 --dtype float32 --json
says "one about two" generate --model "$work/minicpmv-tiny.cpu" --prompt "Which?" --image "$work/rgb8.png" --image "$work/adam7_rgb8.png" --max-new 4 --dtype bfloat16 --sums mma16 --json
printf 'What?\nAnd?\n/image %s\nNow <image>?\n' "$work/rgb8.png" >"$work/questions"
chats "a conversation with a picture" "$work/questions" --model "$work/omnilmm-tiny.model" --max-new 6 --greedy --dtype float32
finish
