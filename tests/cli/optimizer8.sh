#!/usr/bin/env bash
# Moments in 8 bits (--optimizer adamw8bit): the same bytes on every number of ranks and groups, a run that goes on at
# another, what a checkpoint holds, what plan counts, and what cannot be done with such moments.
. "$(dirname "$0")/lib.sh"

tiny=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
eight=(--optimizer adamw8bit --data "$data" --micro-batch 1 --accumulate 2 --lr 3e-3 --schedule constant --seed 11)

# family NAME "T:D T:D..." FLAG...: four steps at 1:1; two at one setting and two at the next
family() {
    local name=$1 want from=1:1 to
    local -a grids
    read -r -a grids <<<"$2"
    shift 2
    rm -rf "$work/one"
    runs "$name" 0 . train --out "$work/one" "$@" --steps 4 --save-every 2
    want=$(digest "$work/one")
    for to in "${grids[@]}"; do
        rm -rf "$work/run"
        # shellcheck disable=SC2086
        runs "$name, $from" 0 . train --out "$work/run" "$@" --steps 2 --save-every 2 --tp ${from%:*} --dp ${from#*:} --threads $((RANDOM % 3 + 1))
        # shellcheck disable=SC2086
        runs "$name, then $to" 0 . train --out "$work/run" --resume --steps 4 --tp ${to%:*} --dp ${to#*:}
        check "$name, $from then $to: the same bytes" [ "$(digest "$work/run")" = "$want" ]
        from=$to
    done
}
family "full, of uneven slices" "2:1 3:1 8:1 1:2 2:2" --model "$work/odd" "${eight[@]}" --method full --accumulators 2
odd_digest=$(digest "$work/one")
family "full in bfloat16" "8:1 2:1" --model "$tiny" "${eight[@]}" --method full --dtype bfloat16
cp -r "$work/one" "$work/full"
family "lora" "3:1 2:1" --model "$tiny" "${eight[@]}" --lora-rank 64 --lora-targets all-linear
cp -r "$work/one" "$work/lora"

# ---- what is saved ----
step=$work/lora/checkpoints/step-00000004
tensor() { grep -o "\"$1/$2\": {\"dtype\": \"[A-Z0-9]*\", \"shape\": \[[0-9, ]*\]" "$3/manifest.json" | head -n 1; }
a=layers.0.self_attn.q_proj.lora_A
name=$(grep -o '"exp_avg/[^"]*' "$step/manifest.json" | sed 's|"exp_avg/||' | grep "q_proj" | head -n 1)
check "codes in the shape of the weight" bash -c 'case "$1" in *U8*) ;; *) exit 1 ;; esac' . "$(tensor exp_avg "$name" "$step")"
check "a scale for each 256 of a slice" bash -c 'case "$1" in *F32*) ;; *) exit 1 ;; esac' . "$(tensor exp_avg_sq_absmax "$name" "$step")"
check "masters stay float32" bash -c 'case "$1" in *F32*) ;; *) exit 1 ;; esac' . "$(tensor master "$name" "$step")"
check "small tensors have float32 moments" grep -q '"exp_avg/[^"]*norm[^"]*": {"dtype": "F32"' "$work/full/checkpoints/step-00000004/manifest.json"
runs "verify reads all of it" 0 . verify "$work/full"
runs "diff of a run with itself" 0 'equal|all bytes agree' diff "$step" "$step"
runs "two steps differ" 1 . diff "$work/lora/checkpoints/step-00000002" "$step"

# ---- the setting is the run's ----
runs "a run keeps its optimizer" 2 'expected: +adamw8bit.*found: +adamw ' train --out "$work/lora" --resume --steps 5 --optimizer adamw
runs "and one of float32 its own" 0 . train --out "$work/float" --model "$tiny" "${eight[@]:2}" --lora-rank 64 --lora-targets all-linear --steps 1
runs "is not resumed with another" 2 'expected: +adamw, as.*found: +adamw8bit' train --out "$work/float" --resume --steps 2 --optimizer adamw8bit
runs "it goes on without naming it" 0 . train --out "$work/lora" --resume --steps 5
check "bytes differ from those of float32 moments" bash -c '! cmp -s "$1/adapter/adapter_model.safetensors" "$2/adapter/adapter_model.safetensors"' . "$work/lora" "$work/float"
for first in moments none; do
    rm -rf "$work/away"
    then=$([ $first = none ] && echo moments || echo none)
    runs "moments that lie in a file, or not: $first" 0 . train --out "$work/away" --model "$tiny" "${eight[@]}" --method full --dtype bfloat16 --steps 2 --save-every 2 --offload $first --tp 3
    runs "and then: $then" 0 . train --out "$work/away" --resume --steps 4 --offload $then
    check "have the same bytes" [ "$(digest "$work/away")" = "$(digest "$work/full")" ]
done
rm -rf "$work/away"
runs "of uneven slices, in groups" 0 'GB written at' train --out "$work/away" --model "$work/odd" "${eight[@]}" --method full --accumulators 2 --steps 4 --save-every 2 --offload moments --tp 2 --dp 2
check "likewise" [ "$(digest "$work/away")" = "$odd_digest" ]
runs "codes are no numbers for others" 3 'codes of 8 bits.*without --optimizer' convert "$work/full/checkpoints/step-00000004" "$work/hf" --to sheaf --optimizer
absent "and nothing is written" "$work/hf"
runs "an unknown one" 2 'adamw.*adamw8bit' train --out "$work/none" --model "$tiny" "${eight[@]:2}" --optimizer sgd --steps 1

# ---- memory ----
memory() { grep -o '"optimizer": *[0-9]*' "$1" | head -n 1 | grep -o '[0-9]*$'; }
big=(--config "$SHEAF_SOURCE_ROOT/tests/data/configs/minicpmv-2.6.json" --method full --seq 128 --dtype bfloat16 --json)
runs "plan with float32 moments" 0 '"optimizer"' plan "${big[@]}"
cp "$work/stdout" "$work/plan32"
runs "plan with 8 bits" 0 '"optimizer"' plan "${big[@]}" --optimizer adamw8bit
check "moments are counted" bash -c '[ "$1" -gt 0 ]' . "$(memory "$work/stdout")"
check "which is 2.03 bytes for 8" awk -v a="$(memory "$work/plan32")" -v b="$(memory "$work/stdout")" 'BEGIN { r = b / a; exit !(r > 0.2539 && r < 0.2545) }'
cp "$work/stdout" "$work/plan8"
runs "plan with two groups" 0 '"optimizer"' plan "${big[@]}" --optimizer adamw8bit --dp 2 --accumulate 2 --accumulators 2
check "of which each keeps about half" awk -v a="$(memory "$work/plan8")" -v b="$(memory "$work/stdout")" 'BEGIN { exit !(b < 0.55 * a && b > 0.4 * a) }'
finish
