#!/usr/bin/env bash
# What a run says of each rank and step, on the processor and on an emulated GPU: the bytes that it sends to each rank, and
# its memory by kind, are those of the plan; time of products, attention and transfers; which GPU each rank has.
. "$(dirname "$0")/lib.sh"
devices=$SHEAF_BUILD_ROOT/tests/sheaf_devices
flags=(--model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --steps 2 --micro-batch 2 --dtype bfloat16 --sums mma16 --threads 2)
# each FILE KEY: by rank, what stands behind KEY.
each() { head -n 1 "$1" | tr -d ' ' | grep -oE "\"$2\":\[[0-9,]*\]" | cut -d: -f2; }
# kinds FILE: by rank, memory by kind but that of exchanges, of which a plan does not know the rows.
kinds() { head -n 1 "$1" | tr -d ' ' | grep -oE '"weights":[0-9]+,"trained":[0-9]+,"gradients":[0-9]+,"optimizer":[0-9]+,"activations":[0-9]+,"cache":[0-9]+,"scratch":[0-9]+,"exchange(_buffers)?":[0-9]+,"inputs":[0-9]+' | sed -E 's/"exchange(_buffers)?":[0-9]+,//'; }
alike() { [ -s "$1" ] && diff "$1" "$2"; }
measured() { # measured DEVICE FILE: every rank of every step has its times, and on a GPU transfers
    awk -v gpu="$1" '{ n += gsub(/"products": [0-9.e-]*[1-9]/, "&"); a += gsub(/"attention": [0-9.e-]*[1-9]/, "&"); t += gsub(/"transfers": [0-9.e-]*[1-9]/, "&"); r += gsub(/"compute"/, "&") }
        END { print n, a, t, r; exit !(r > 0 && n == r && a == r && (gpu == "cpu" ? t == 0 : t == r)) }' "$2"
}
for device in cpu cuda; do
    for ranks in "--tp 2" "--tp 2 --dp 2 --accumulate 2" "--tp 3 --checkpointing"; do
        of="$device, $ranks"
        rm -rf "$work/run"
        # shellcheck disable=SC2086
        "$devices" train "${flags[@]}" $ranks --device $device --out "$work/run" --json >"$work/said" 2>"$work/notes" || fail "$of" "$(tail -n 4 "$work/notes")"
        # shellcheck disable=SC2086
        "$devices" plan "${flags[@]}" $ranks --device $device --json >"$work/plan" 2>"$work/stderr"
        metrics=$work/run/metrics.jsonl
        each "$metrics" sent_to >"$work/is"
        each "$work/plan" sent_to_first_step >"$work/planned"
        check "$of: bytes to each rank are those of the plan" alike "$work/is" "$work/planned"
        kinds "$metrics" >"$work/is"
        kinds "$work/plan" >"$work/planned"
        check "$of: memory by kind is that of the plan" alike "$work/is" "$work/planned"
        check "$of: times" measured $device "$metrics"
        check "$of: bandwidth" grep -qE '"bytes_per_s": \[0, [1-9]' "$metrics"
        check "$of: of the whole run" grep -qE '"products":[0-9.e-]+,"attention":[0-9.e-]+,"transfers":[0-9.e-]+,"timed":2,' "$work/said"
        check "$of: progress" grep -qE '^step 2/2 .*MiB  products [0-9]+%(  [a-z]+ [0-9]+%)*$' "$work/notes"
    done
done
check "each rank has its GPU" grep -qx 'rank 1: GPU 1 (Emulated GPU, 80.0 GiB), sums in the order mma16' "$work/notes"
rm -rf "$work/run"
SHEAF_EMULATED_GPU=9.0:0.55 "$devices" train "${flags[@]}" --device cuda --out "$work/run" >"$work/said" 2>&1
check "what does not fit a GPU is not begun" grep -q 'memory of GPU 0 for this run' "$work/said"
check "and a part of its memory named" grep -qE 'found: +[0-9.]+ MiB needed, most of it scratch' "$work/said"
absent "nothing is written" "$work/run"
SHEAF_EMULATED_GPU=9.0:0.6 "$devices" train "${flags[@]}" --tp 2 --device cuda --out "$work/run" >"$work/said" 2>&1
check "nor do two ranks on it" grep -q 'memory of GPU 0 for this run' "$work/said"
runs "plan says to whom ranks send" 0 'MiB sent [ 0-9.]+   to rank 0 +0.0 .*   to rank 2 .* 0.0 +all' plan "${flags[@]}" --tp 3
runs "plan of a GPU's memory" 0 'fits: --tp 1 \(58[0-9.]* MiB of one GPU\)' plan "${flags[@]}" --device 1G
runs "is that of cuda with --memory" 0 'fits: --tp 1 \(58[0-9.]* MiB of one GPU\)' plan "${flags[@]}" --device cuda --memory 1G
runs "more GPUs" 0 'fits: --tp 2 ' plan --config "$SHEAF_SOURCE_ROOT/tests/data/configs/llama-3-8b.json" --lora-rank 16 --dtype bfloat16 --seq 2048 --device 12G
runs "what fits none" 1 'no setting.* fits 600 MiB of one GPU; the smallest misses by' plan --config "$SHEAF_SOURCE_ROOT/tests/data/configs/llama-3-8b.json" --lora-rank 16 --dtype bfloat16 --seq 512 --device 600M
runs "both" 2 'device 24G +expected: the memory of each GPU once +found: +--memory 8G' plan "${flags[@]}" --device 24G --memory 8G
runs "no size" 2 'device +expected: a size such as 24G' plan "${flags[@]}" --device 24X
finish
