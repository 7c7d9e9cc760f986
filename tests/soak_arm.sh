# soak_arm.sh - a section of soak.sh, which sources it, and the whole of `./run test-arm`: AArch64's command under qemu-user
# ($SHEAF_ARM) against this machine's, byte for byte: every family, method, dtype and order of soak_devices.sh, and runs that
# change the processor midway. ARM_FAMILIES="llama qwen3" takes other families than these.
asked=${SOAK_FAMILIES:-}
SHEAF_DEVICES=arm SOAK_FAMILIES=${ARM_FAMILIES:-llama odd qwen3 mixtral gemma3 cogvlm-tiny minicpmv-tiny}
. tests/soak_devices.sh
unset SHEAF_DEVICES
SOAK_FAMILIES=$asked
for order in "float32" "bfloat16 --sums pairs" "bfloat16 --sums tiles" "float16 --sums mma16"; do
    run=(train "$golden/llama/tiny_llama/hf" "$golden/llama/tiny_llama/fwd_inputs.safetensors" --lora-rank 3 --lr 1e-2 --save-every 2 --keep 1)
    rm -rf "$work/moved" "$work/stayed"
    # shellcheck disable=SC2086
    check "a run begun here goes on on AArch64 and back, $order" eval '"$sheaf" "${run[@]}" -o "$work/moved" --steps 2 --dtype $order &&
        $SHEAF_ARM train --resume -o "$work/moved" --steps 4 --tp 3 && "$sheaf" train --resume -o "$work/moved" --steps 6 --tp 2 &&
        "$sheaf" "${run[@]}" -o "$work/stayed" --steps 6 --dtype $order && cmp "$work/moved/adapter/adapter_model.safetensors" "$work/stayed/adapter/adapter_model.safetensors"'
done
for quantised in nf4 int8; do
    rm -rf "$work/here" "$work/there"
    check "an adapter on a base in $quantised" eval '"$sheaf" "${run[@]}" -o "$work/here" --steps 2 --dtype bfloat16 --sums pairs --quantize $quantised &&
        $SHEAF_ARM "${run[@]}" -o "$work/there" --steps 2 --dtype bfloat16 --sums pairs --quantize $quantised --tp 2 &&
        cmp "$work/here/adapter/adapter_model.safetensors" "$work/there/adapter/adapter_model.safetensors"'
done
