#!/usr/bin/env bash
# soak_plan.sh - `sheaf plan` against the measured peak over thirty-seven settings, most of them above
# 500 MB, and over twenty-four that it proposes for a memory: never below, at most 5 % above. Part of ./run soak; prints a case a setting.
. "$(dirname "$0")/cli/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"
base=$(peak_of --version)
make_tokens "$work/short.jsonl" 24 126
make_tokens "$work/long.jsonl" 12 1022
sed -e 's/"hidden_size": 512/"hidden_size": 1536/' -e 's/"intermediate_size": 1408/"intermediate_size": 4096/' \
    -e 's/"num_attention_heads": 8/"num_attention_heads": 12/' -e 's/"vocab_size": 259/"vocab_size": 8192/' \
    "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/middle.json"
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$work/mini" --seed 1 >/dev/null 2>&1 || fail "init mini"
"$sheaf" init "$work/middle.json" "$work/middle" --seed 1 >/dev/null 2>&1 || fail "init middle"
make_deep "$work/deep" || fail "init deep"
make_pictures "$work/caps.jsonl" # a folder
make_middle cogvlm "$work/cogvlm" || fail "init cogvlm"
make_middle cogagent "$work/cogagent" || fail "init cogagent"
above=0
total=0
while read -r model data flags; do
    check "$model, $data rows, $flags" predicted "$work/$model" "$work/$data.jsonl" $flags
    plan=$("$sheaf" plan --model "$work/$model" --data "$work/$data.jsonl" $flags --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2)
    total=$((total + 1))
    [ "$plan" -lt 500000000 ] || above=$((above + 1))
done <<'END'
mini short --lora-rank 8 --lora-targets all-linear --micro-batch 8 --dtype float32 --threads 2
mini short --lora-rank 8 --lora-targets q_proj,v_proj --micro-batch 4 --dtype bfloat16 --threads 1
mini short --lora-rank 16 --lora-targets all-linear --micro-batch 8 --dtype bfloat16 --threads 2 --tp 3
mini short --lora-rank 16 --lora-targets all-linear --micro-batch 2 --dtype float32 --threads 2 --tp 8 --checkpointing
mini long --lora-rank 16 --lora-targets all-linear --micro-batch 1 --dtype float32 --threads 2
mini long --lora-rank 16 --lora-targets all-linear --micro-batch 1 --dtype bfloat16 --threads 5 --tp 2 --accumulate 4
mini short --method full --micro-batch 4 --dtype float32 --threads 2
mini short --method full --micro-batch 4 --dtype bfloat16 --threads 2 --tp 5
mini short --method head --micro-batch 8 --dtype float32 --threads 2
mini long --method head --micro-batch 1 --dtype bfloat16 --threads 1 --tp 4
mini long --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype float32 --threads 2
mini long --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype float32 --threads 2 --tp 4
mini long --method full --micro-batch 4 --dtype float32 --threads 2 --tp 2
middle short --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype float32 --threads 2
middle short --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype float32 --threads 2 --tp 2
middle short --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype float32 --threads 2 --tp 8
middle short --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --threads 2
middle short --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --threads 2 --tp 3
middle short --lora-rank 64 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --threads 1 --tp 5 --accumulate 3
middle short --lora-rank 8 --lora-targets q_proj,k_proj,v_proj,o_proj --micro-batch 16 --dtype float32 --threads 2
middle short --lora-rank 8 --lora-targets all-linear --lora-dropout 0.1 --micro-batch 8 --dtype float32 --threads 2 --tp 2
middle short --lora-rank 8 --lora-targets all-linear --modules-to-save lm_head --micro-batch 4 --dtype bfloat16 --threads 2
middle long --lora-rank 16 --lora-targets all-linear --micro-batch 2 --dtype float32 --threads 2
middle long --lora-rank 16 --lora-targets all-linear --micro-batch 2 --dtype float32 --threads 2 --checkpointing
middle long --lora-rank 16 --lora-targets all-linear --micro-batch 2 --dtype bfloat16 --threads 2 --tp 2
middle long --lora-rank 16 --lora-targets all-linear --micro-batch 1 --dtype bfloat16 --threads 2 --tp 7 --checkpointing
middle short --method full --micro-batch 2 --dtype float32 --threads 2
middle short --method full --micro-batch 2 --dtype bfloat16 --threads 2 --tp 2
middle short --method head --micro-batch 16 --dtype float32 --threads 2 --tp 3
middle long --method head --micro-batch 2 --dtype bfloat16 --threads 2
deep short --lora-rank 8 --lora-targets all-linear --micro-batch 2 --dtype float32 --threads 2 --tp 8
cogvlm caps --lora-rank 16 --lora-targets all-linear --micro-batch 4 --threads 2
cogvlm caps --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --threads 2 --tp 2
cogvlm caps --method full --micro-batch 2 --threads 2 --tp 2 --checkpointing
cogagent caps --lora-rank 16 --lora-targets all-linear --micro-batch 2 --threads 2
cogagent caps --lora-rank 16 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --threads 2 --tp 3 --checkpointing
cogagent caps --method full --micro-batch 2 --dtype bfloat16 --threads 2 --tp 2
END
check "thirty-seven settings, twenty or more above 500 MB ($above of $total)" test "$total" -eq 37 -a "$above" -ge 20
# One row of 131,072 tokens, whose rows are divided over ranks and whose logits are never all there.
sed -e 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' -e 's/"hidden_size": [0-9]*/"hidden_size": 128/' \
    -e 's/"intermediate_size": [0-9]*/"intermediate_size": 352/' -e 's/"num_\(attention\|key_value\)_heads": [0-9]*/"num_\1_heads": 2/' \
    -e 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 131072/' "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/far.json"
"$sheaf" init "$work/far.json" "$work/far" --seed 1 >/dev/null 2>&1 || fail "init far"
make_tokens "$work/far.jsonl" 1 131070
for flags in "" "--tp 2" "--tp 2 --checkpointing"; do
    # shellcheck disable=SC2086
    steps=1 check "131,072 tokens, $flags" predicted "$work/far" "$work/far.jsonl" --dtype bfloat16 --lora-rank 8 --lora-targets all-linear --threads 1 $flags
done
# What fits: model, data, memory, flags.
while read -r model data memory flags; do
    # shellcheck disable=SC2086
    check "$model, $data rows, in $memory, $flags" fitted "$work/$model" "$work/$data.jsonl" "$memory" --threads 2 $flags
done <<'END'
mini short 60M --dtype bfloat16 --micro-batch 8
mini short 46M --dtype bfloat16 --lora-rank 16
mini short 38M --dtype bfloat16 --lora-rank 16
mini short 70M --dtype float32 --lora-targets all-linear --micro-batch 4
mini short 230M --dtype float32 --method full
mini short 205M --dtype float32 --method full
mini short 60M --dtype bfloat16 --quantize nf4 --micro-batch 8
mini short 30M --dtype bfloat16 --quantize nf4
mini long 90M --dtype bfloat16 --micro-batch 2
mini long 60M --dtype bfloat16 --quantize int8
middle short 1G --dtype float32 --lora-targets all-linear --micro-batch 16
middle short 500M --dtype float32 --lora-targets all-linear --micro-batch 16
middle short 250M --dtype float32 --lora-targets all-linear
middle short 300M --dtype bfloat16 --lora-targets all-linear --micro-batch 8
middle short 160M --dtype bfloat16 --lora-targets all-linear --micro-batch 4
middle short 2500M --dtype bfloat16 --method full
middle short 1800M --dtype bfloat16 --method full
middle short 900M --dtype bfloat16 --method head
middle long 300M --dtype bfloat16 --lora-targets all-linear --quantize nf4-double
middle long 180M --dtype bfloat16 --lora-targets all-linear --quantize nf4
cogvlm caps 900M --dtype bfloat16 --lora-targets all-linear --micro-batch 2
cogvlm caps 500M --dtype bfloat16 --lora-targets all-linear
cogagent caps 800M --dtype bfloat16 --lora-targets all-linear --micro-batch 2
cogagent caps 500M --dtype bfloat16 --lora-targets all-linear
END
finish
