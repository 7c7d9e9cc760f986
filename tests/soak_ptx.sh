# soak_ptx.sh - a section of soak.sh, which sources it: nvcc's code of the kernels on ptxrun ($SHEAF_PTXRUN, ptx.sh), for
# hours: in every order, with blocks that meet in global memory reported; all families; bench/gpu.sh but for its times; and
# the loss of each barrier, wait and fence, one at a time (SOAK_SABOTAGES of them, 60).
#
# Uses $golden, $work, $sheaf, cases(), pass() and fail().
ptxrun=$SHEAF_BUILD_ROOT/ptxrun
twins=()
for test in "$SHEAF_BUILD_ROOT"/ops_tensor_*_test "$SHEAF_BUILD_ROOT"/ops_{matmul_far,matmul_weight,attention_far}_test; do
    [ -x "$test" ] && twins+=("$test")
done
for kind in sm_80 sm_90a both; do
    for how in PTXRUN_ORDER=late PTXRUN_ORDER=early PTXRUN_ORDER=reverse PTXRUN_GLOBAL=1; do
        programs=("${twins[@]}")
        [ $kind != both ] || programs=("$SHEAF_BUILD_ROOT"/ops_{cuda_products,cuda_codes,attention_cuda}_test)
        cases "ptx $kind, $how" '^ok - generates\|^ok - attention_cuda' env SHEAF_SOAK=1 "$how" bash tests/ptx.sh $kind "${programs[@]}"
    done
done

(
    export LD_LIBRARY_PATH=$ptxrun SHEAF_GPU=real SHEAF_PLUGINS=$SHEAF_BUILD_ROOT/src/cli PTXRUN_PTX=$SHEAF_BUILD_ROOT/src/ops/devices/gpu/cuda
    for gpu in 9.0 8.0; do
        export PTXRUN_GPUS=$gpu:2,$gpu:2 SHEAF_EMULATED_GPU=$gpu SHEAF_DEVICES=cuda
        . tests/soak_devices.sh
    done
    echo "$passed $failed" >"$work/ptx-families"
)
read -r passed failed <"$work/ptx-families"

rm -rf "$work/gpu" build-gpu/carry build-gpu/carry.tar.xz # of another build
cases "bench/gpu.sh" ' points done' env LD_LIBRARY_PATH="$ptxrun" PTXRUN_GPUS=9.0:4,9.0:4 PTXRUN_PTX="$PWD/build-gpu/src/ops/devices/gpu/cuda" \
    GPU_POINTS="load twins runs" GPU_PATIENCE=60 bash bench/gpu.sh "$work/gpu"
if grep -v '"result": "done"' "$work/gpu/gpu.jsonl"; then fail "points of bench/gpu.sh"; else pass "points of bench/gpu.sh"; fi

# Shapes in which every loop turns three times: 200 tokens, of 256 channels; with copies that come late, and at once, which
# overwrite what wgmma still reads.
"$sheaf" init small-bytes "$work/sabotaged" --seed 1 >/dev/null 2>&1
awk 'BEGIN { for (i = 0; i < 8; i++) { printf "{\"prompt\": \"%d:\", \"completion\": \"", i; for (k = 0; k < 190; k++) printf "%c", 97 + (i * k) % 26; print "\"}" } }' >"$work/sabotaged.jsonl"
for kind in sm_80 sm_90a; do
    case $kind in sm_90a) gpu=9.0:2 own=mma16 ;; *) gpu=8.0:2 own=mma8 ;; esac
    run="$sheaf train --model $work/sabotaged --data $work/sabotaged.jsonl --dtype bfloat16 --sums $own --lora-targets all-linear --lora-rank 8 --steps 1 --micro-batch 1 --seq 256"
    # shellcheck disable=SC2086
    $run --out "$work/sabotaged.cpu" >/dev/null 2>&1 || fail "the run of $kind that is sabotaged"
    cases "sabotage of $kind" '^ok - ' env LD_LIBRARY_PATH="$ptxrun" SHEAF_GPU=real SHEAF_PLUGINS="$SHEAF_BUILD_ROOT/src/cli" PTXRUN_GPUS=$gpu \
        python3 -B tests/ptx_sabotage.py $kind "$SHEAF_BUILD_ROOT/src/ops/devices/gpu/cuda" --sample "${SOAK_SABOTAGES:-60}" --seed $RANDOM -- \
        bash -c "for order in late early; do rm -rf $work/sabotaged.gpu; PTXRUN_ORDER=\$order $run --device cuda --out $work/sabotaged.gpu && cmp $work/sabotaged.cpu/adapter/adapter_model.safetensors $work/sabotaged.gpu/adapter/adapter_model.safetensors || exit; done"
    rm -rf "$work/sabotaged.cpu" "$work/sabotaged.gpu"
done
# wgmma's ring of stages turns in every loop, of each way that operands lie: all of its waits, fences and arrivals
cases "sabotage of wgmma" '^ok - ' env LD_LIBRARY_PATH="$ptxrun" SHEAF_GPU=real SHEAF_PLUGINS="$SHEAF_BUILD_ROOT/src/cli" PTXRUN_GPUS=8.0:4,9.0:4 PTXRUN_ORDER=early \
    SHEAF_TESTS='*rings*' python3 -B tests/ptx_sabotage.py sm_90a "$SHEAF_BUILD_ROOT/src/ops/devices/gpu/cuda" --only '^products_wide_.* (wgmma|mbarrier)' -- \
    "$SHEAF_BUILD_ROOT/ops_cuda_products_test"

# What NVIDIA's assemblers make of it (needs a network once): the oldest ones take all kernels of sm_80 (and spill some
# registers of attention_fma); in wgmma's loops a wait is for the step before, not for an HGMMA of no use behind the last one.
for package in cuda-nvcc-cu11==11.8.89 cuda-nvcc-cu12==12.0.140 cuda-nvdisasm; do
    [ -d "build/nvidia/$package" ] || { python3 -m pip install --quiet --no-deps --target "build/nvidia/$package" "nvidia-$package" && chmod +x "build/nvidia/$package"/nvidia/*/bin/*; }
done
takes() { # PTXAS VERSION FILE
    sed "s/^\.version .*/.version $2/" "$3" >"$work/old.ptx" && "$1" -arch=sm_80 --fmad false -o "$work/old.cubin" "$work/old.ptx" >"$work/old.log" 2>&1
}
for ptx in "$SHEAF_BUILD_ROOT"/src/ops/devices/gpu/cuda/*.sm_80.ptx; do
    for release in cu11==11.8.89,7.8 cu12==12.0.140,8.0; do
        name="ptxas ${release%,*} takes ${ptx##*/}"
        if takes build/nvidia/cuda-nvcc-"${release%,*}"/nvidia/cuda_nvcc/bin/ptxas "${release#*,}" "$ptx"; then pass "$name"; else fail "$name" "$(head -n 3 "$work/old.log")"; fi
    done
done
build/nvidia/cuda-nvdisasm/nvidia/*/bin/nvdisasm -c "$SHEAF_BUILD_ROOT/src/ops/devices/gpu/cuda/products_wide.sm_90a.cubin" >"$work/wide.sass"
if grep -q 'HGMMA\.64x128x16' "$work/wide.sass" && ! grep -q 'HGMMA\.64x8x16' "$work/wide.sass"; then pass "wgmma's waits are for steps"; else fail "wgmma's waits are for steps"; fi
