#!/usr/bin/env bash
# The planner: every shape of the published Llama sizes at every T from the config alone, and
# what it predicts against what a run really uses (a sample; ./run soak has thirty-seven). SHEAF_SOAK=1: some more settings.
. "$(dirname "$0")/lib.sh"

configs=$SHEAF_SOURCE_ROOT/tests/data/configs
turn=0
for model in llama-2-7b llama-2-13b llama-2-70b llama-3-8b; do
    turn=$((turn + 1))
    for tp in 1 2 3 4 5 6 7 8; do # every T with some model; plan/plan has more, and all in the long form
        [ $(((tp + turn) % 3)) -eq 0 ] || [ $tp -eq 8 ] || continue
        runs "$model at T = $tp" 0 '"ranks":\[\{.*"peak":[1-9]' plan --config "$configs/$model.json" --lora-rank 16 \
            --lora-targets all-linear --dtype bfloat16 --seq 2048 --tp $tp --json
    done
    runs "$model in full" 0 '"trained":[1-9][0-9]{9}' plan --config "$configs/$model.json" --method full --dtype bfloat16 --seq 512 --tp 8 --json
done
for model in qwen3-8b smollm3-3b olmo-2-7b phi-4 mixtral-8x7b; do
    for tp in 1 3 8; do
        runs "$model at T = $tp" 0 '"ranks":\[\{.*"peak":[1-9]' plan --config "$configs/$model.json" --lora-rank 16 \
            --lora-targets all-linear --dtype bfloat16 --seq 2048 --tp $tp --json
    done
    runs "$model in full" 0 '"trained":[1-9][0-9]{8}' plan --config "$configs/$model.json" --method full --dtype bfloat16 --seq 512 --tp 8 --json
done
for gib in ${SHEAF_SOAK:+24} 80; do # a card that does not hold it without offloading, and one that does
    runs "a mixture of 128 experts for $gib GiB" 0 'fits: --tp' plan --config "$configs/qwen3-30b-a3b.json" --lora-rank 16 --dtype bfloat16 --seq 2048 --memory ${gib}G
    runs "and Gemma" 0 'fits: --tp' plan --config "$configs/gemma-2b.json" --lora-rank 16 --dtype bfloat16 --seq 2048 --memory ${gib}G
done
runs "on GPUs ranks have a memory each" 0 "of a GPU's memory at most [0-9.]+ MiB for a rank; beside the ranks [0-9.]+ MiB of the host's" plan --config "$configs/llama-3-8b.json" --lora-rank 16 --dtype bfloat16 --seq 512 --tp 2 --device cuda
card=(plan --config "$configs/llama-3-8b.json" --lora-rank 16 --lora-targets all-linear --dtype bfloat16 --sums mma16 --seq 2048)
runs "several GPUs are told, and what one needs" 0 'fits: --tp 3 --keep-activations attention \(7\.[0-9]+ GiB on each of 3 GPUs\).*with --quantize nf4 --checkpointing on one GPU: 6\.[0-9]+ GiB, which fits' "${card[@]}" --device 8G
runs "no more ranks than GPUs that are named" 0 'fits: --tp 1 --offload weights .*of one GPU.*with --quantize nf4 --keep-activations attention: [0-9.]+ GiB, which fits' "${card[@]}" --device cuda:0 --memory 10G
runs "as many as are named" 0 'fits: --tp 2 [^(]*\([0-9.]+ GiB on each of 2 GPUs' "${card[@]}" --device cuda:3,1 --memory 12G
runs "ranks that share a GPU are added up" 0 'fits: --tp 2 [^(]*\([2-9][0-9]\.[0-9]+ GiB of one GPU' "${card[@]}" --tp 2 --device cuda:0 --memory 80G
runs "each host has those that are named" 0 'fits: --tp 4 \([5-7][0-9.]* GiB on each of 4 GPUs' "${card[@]}" --tp 4 --transport mpi --hosts a:2,b:2 --device cuda:0,1 --memory 24G
runs "also where each rank has a host" 0 'fits: --tp 4 \([5-7][0-9.]* GiB on each of 4 GPUs' "${card[@]}" --tp 4 --transport mpi --device cuda:0 --memory 24G
runs "a GPU's memory needs its unit" 2 '--device.*expected: .*24G.*found: *24.*try: *--device 24G' "${card[@]}" --device 24
host_of() { # host_of TRANSPORT: bytes beside two ranks on GPUs
    "$sheaf" plan --config "$configs/mini.json" --seq 64 --tp 2 --device cuda --transport "$1" --json >"$work/found" && json_number "$work/found" host
}
check "processes on GPUs pin a ring and operands of sums" test $(($(host_of mpi) - $(host_of threads))) = $((2 * ((8 << 20) + 2 * 65552 * 4)))
# Threads share the machine's memory, so more of them need no less; processes have that of their host.
threads=(plan --config "$configs/llama-3-8b.json" --lora-rank 16 --dtype bfloat16 --sums pairs --seq 2048)
machine_as_peak() { # machine_as_peak MEMORY: what is proposed for a machine needs no more, all ranks together
    "$sheaf" "${threads[@]}" --tp 2 --memory "$1" --json >"$work/found" 2>/dev/null || return 1
    grep -q '"memory_of":"machine"' "$work/found" && test "$(json_number "$work/found" tp)" -eq 2 &&
        test "$(sed 's/.*,"peak":\([0-9]*\),"host.*/\1/' "$work/found")" -le "$(json_number "$work/found" memory)"
}
check "thread ranks fit one machine together" machine_as_peak 24G
runs "8 GiB hold 16 of weights that are offloaded, or quantised" 0 'fits: --tp 1 --keep-activations attention --offload weights \([3-5][0-9.]* GiB of one machine\) with --quantize nf4 --keep-activations attention: 7.[0-9]* GiB, which fits' "${threads[@]}" --memory 7600M
runs "1 GiB is too little for that" 1 'no setting fits 1 GiB of one machine; the smallest misses by [0-9.]+ MiB .*with --transport mpi and a host for each rank of all --slices: [0-9.]+ MiB, which fits' "${threads[@]}" --memory 1G
runs "also for two ranks" 1 'no setting fits 1 GiB of one machine' "${threads[@]}" --tp 2 --memory 1G
runs "that are processes of two hosts" 0 'fits: --tp 2 --checkpointing \(7[.0-9]* GiB of one rank\)' "${threads[@]}" --transport mpi --memory 8G
runs "two on each of them" 0 'fits: --tp 5[^(]*\([5-8][.0-9]* GiB of one host\)' "${threads[@]}" --transport mpi --hosts a:2,b:2,c:1 --memory 7G
mini=(plan --config "$configs/mini.json" --seq 64)
as_planned() { # as_planned FLAG...: what is said to be needed is what the plan of these ranks counts
    "$sheaf" "${mini[@]}" --memory 8G "$@" >"$work/found" 2>"$work/said" || return 1
    awk -v of="$(sed -n 's/.*(\([0-9.]*\) MiB of one machine.*/\1/p' "$work/said")" \
        -v all="$(sed -n 's/.*in one process: \([0-9.]*\) MiB.*/\1/p' "$work/found")" \
        'BEGIN { exit !(of > 0 && of - all < 0.1 && all - of < 0.1) }'
}
for ranks in "--tp 1" "--tp 8" "--tp 2 --dp 2"; do
    # shellcheck disable=SC2086
    check "as planned with $ranks" as_planned $ranks
done
runs "fewer threads would fit" 1 'no setting fits 40 MiB of one machine.* with --tp 1: 31[.0-9]* MiB, which fits' "${mini[@]}" --tp 8 --memory 40M
runs "a host has the ranks of its slots" 0 'fits: --tp 2 \(103[.0-9]* MiB of one host\)' "${mini[@]}" --tp 2 --dp 2 --transport mpi --hosts a:1,b:3 --memory 8G
runs "also one that stands there twice" 0 'fits: --tp 2 \(103[.0-9]* MiB of one host\)' "${mini[@]}" --tp 2 --dp 2 --transport mpi --hosts a,b:2,b --memory 8G
runs "its share of ranks that have no slots" 0 'fits: --tp 2 \(71[0-9.]* MiB of one host\)' "${mini[@]}" --tp 2 --dp 2 --transport mpi --hosts a,b --memory 8G
runs "no more ranks than slots are tried" 1 'no setting up to 4 ranks fits 10 MiB of one host' "${mini[@]}" --transport mpi --hosts a:2,b:2 --memory 10M
runs "more ranks, less memory a rank" 0 'fits: --tp [2-8]' plan --config "$configs/llama-3-8b.json" --lora-rank 16 --dtype bfloat16 --sums pairs --seq 2048 --transport mpi --memory 12000
runs "what fits nowhere is said, and by how much" 1 'no setting up to 8 ranks fits 300 MiB of one rank; the smallest misses by [0-9.]+ MiB' plan --config "$configs/llama-2-70b.json" --lora-rank 16 --dtype bfloat16 --sums pairs --seq 2048 --transport mpi --memory 300
runs "and what would help" 1 'with --dtype bfloat16: 80\.[0-9]+ GiB, which does not fit either with --method lora: [0-9.]+ MiB, which fits' plan --config "$configs/llama-2-70b.json" --dtype float32 --method full --seq 512 --transport mpi --memory 24G
runs "which may suffice" 1 'with twice the --slices and --tp: [0-9.]+ MiB, which fits' plan --config "$configs/mini.json" --method full --seq 64 --accumulate 4 --transport mpi --memory 31M

# proposed MEMORY: the proposal for an 8B model, asked for by itself, needs what was said and no more than MEMORY.
proposed() {
    local model=(--config "$configs/llama-3-8b.json" --dtype bfloat16 --lora-rank 16) p=$work/found again=()
    "$sheaf" plan "${model[@]}" --transport mpi --memory "$1" --json --seq 2048 --micro-batch 6 --accumulate 2 >"$p" 2>&1 || return 1
    grep -q '"proposal":{[^}]*"checkpointing":true' "$p" && again=(--checkpointing)
    grep -q '"proposal":{[^}]*"keep_activations":"attention"' "$p" && again=(--keep-activations attention)
    grep -q '"proposal":{[^}]*"offload":"weights"' "$p" && again+=(--offload weights)
    "$sheaf" plan "${model[@]}" --tp "$(json_number "$p" tp)" --micro-batch "$(json_number "$p" micro_batch)" \
        --seq "$(json_number "$p" seq)" "${again[@]}" --accumulate "$((12 / $(json_number "$p" micro_batch)))" --json >"$work/again" 2>&1 || return 1
    echo "found $(json_number "$p" largest_rank), alone $(json_number "$work/again" largest_rank), of $(json_number "$p" memory)"
    test "$(json_number "$work/again" largest_rank)" = "$(json_number "$p" largest_rank)" &&
        test "$(json_number "$p" largest_rank)" -le "$(json_number "$p" memory)"
}
for memory in 24G 6G 4G; do
    check "what is proposed for $memory fits" proposed $memory
done
# least_found CONFIG FLAG...: with the memory of the number of ranks that needs least, the search finds it, and nothing elsewhere.
least_found() {
    local model=(--config "$configs/$1.json" --dtype bfloat16 --transport mpi "${@:2}") tp need least=0 with=0
    for tp in 1 2 3 4 5 6 7 8; do
        "$sheaf" plan "${model[@]}" --tp $tp --checkpointing --json >"$work/one" 2>/dev/null || return 1
        need=$(($(json_number "$work/one" largest_rank) + $(json_number "$work/one" host) / tp))
        [ $least -ne 0 ] && [ "$need" -ge $least ] || { least=$need with=$tp; }
    done
    "$sheaf" plan "${model[@]}" --memory $(((least + 1048575) >> 20)) --json >"$work/found" 2>&1
    echo "$with ranks need $least: $(grep -o '"proposal":{[^}]*}' "$work/found")"
    grep -q "\"fits\":true,\"proposal\":{\"tp\":$with,.*\"checkpointing\":true" "$work/found" && ! grep -q '"offload":"' "$work/found"
}
for of in "llama-3-8b --seq 2048 --lora-rank 16" "qwen3-8b --seq 512 --method full" "gemma-2b --seq 2048 --lora-rank 8"; do
    # shellcheck disable=SC2086
    check "what needs least is found: $of" least_found $of
done
runs "by tiles frozen weights are held once" 0 'fits: --tp 1 --checkpointing' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --sums tiles --seq 2048 --accumulate 16 --transport mpi --memory 16GiB
runs "by pairs too" 0 'fits: --tp 1 --checkpointing' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --sums pairs --seq 2048 --accumulate 16 --transport mpi --memory 16GiB
runs "smaller micro-batches before shorter rows" 0 'fits: --tp 8 --keep-activations attention --micro-batch 1 --accumulate 12' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --seq 2048 --micro-batch 6 --accumulate 2 --lora-rank 16 --sums pairs --transport mpi --memory 2600M
runs "shorter rows, for programs" 0 '"fits":true,"proposal":\{"tp":8,"dp":1,"micro_batch":1,"accumulate":12,"checkpointing":true,"seq":1408,"offload":"weights,moments,activations"\}' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --seq 2048 --micro-batch 6 --accumulate 2 --lora-rank 16 --sums pairs --transport mpi --memory 340M --json
runs "activations elsewhere before those" 0 '"checkpointing":false,"seq":2048,"offload":"weights,activations"\}' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --seq 2048 --micro-batch 6 --accumulate 2 --lora-rank 16 --sums pairs --transport mpi --memory 420M --json
runs "more rows at once that fit too" 0 'fits: --tp 1 --checkpointing; --micro-batch 2 --accumulate 8 fits too' plan --config "$configs/llama-3-8b.json" --dtype bfloat16 --sums pairs --seq 2048 --accumulate 16 --transport mpi --memory 16GiB
for size in abc 24X -1G 0 24Gx ''; do
    runs "a memory of '$size' is refused" 2 'a size such as 24G' plan --config "$configs/llama-3-8b.json" --memory "$size"
done
runs "what each part of CogAgent holds" 0 '"tower":\{"weights":[1-9]' plan --config "$configs/cogagent-1120.json" --method head --dtype bfloat16 --tp 8 --json
runs "parts of CogVLM by rank" 0 'experts +[1-9]' plan --config "$configs/cogvlm-224.json" --method head --dtype bfloat16 --tp 2 --by component
runs "an image leaves no room in a row" 2 'an image takes 1227' plan --config "$configs/cogvlm-490.json" --method head --seq 512
runs "a table of ranks" 0 '\| 8 \| [0-9.]+ \| [0-9.]+ \|' plan --config "$configs/cogvlm-224.json" --method head --dtype bfloat16 --table ranks
check "in GiB" grep -qx 'GiB of the fullest rank' "$work/stderr"
mkdir "$work/sat_config"
cp "$SHEAF_SOURCE_ROOT/tests/data/configs/cogvlm-224.json" "$work/sat_config/model_config.json"
runs "a folder with SAT's config and nothing else is planned" 0 '17637\.95 million parameters' plan --model "$work/sat_config" --method head --tp 8
runs "a table of a small model is in MiB" 0 '\| 1 \| [1-9][0-9]*\.[0-9] \|.*MiB of the fullest rank' plan --config "$llama/tiny_llama/hf/config.json" --seq 64 --table ranks
for also in "--by component" "--memory 100"; do
    runs "a table with $also is refused" 2 "--table without ${also% *}:" plan --config "$llama/tiny_llama/hf/config.json" --table ranks $also
done
runs "a table of methods, for programs" 0 '"method":"full","checkpointing":true,"largest_rank":[1-9]' plan --config "$configs/llama-2-7b.json" --dtype bfloat16 --seq 64 --table methods --json
runs "generation on two stages" 0 '"stage":1,"first_layer":10,"layers":22' plan --config "$configs/cogagent-1120.json" --dtype bfloat16 --place 2 --tp 2 --json
runs "on stages of given layers" 0 'stage 1, ranks 1 to 1: layers 11 to 31' plan --config "$configs/cogvlm-224.json" --dtype bfloat16 --place 0-10,11-31
runs "the first stages of ranks that fit" 0 'fits: --tp [2-8]' plan --config "$configs/cogvlm-224.json" --dtype bfloat16 --place 2 --transport mpi --memory 10000
runs "stages that cannot be" 2 "--place: 'x'.*number of stages.*try: +2, for two stages" plan --config "$configs/cogvlm-224.json" --place x
runs "plan without a model" 2 '--model DIR or --config FILE +found: +neither +try: +--config' plan

# predicted MODEL DATA FLAGS...: prints plan, measured peak and their ratio; fails where they are further apart than plan_peak.sh says.
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"
base=$(peak_of --version)
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$work/mini" --seed 1 >/dev/null 2>&1 || fail "init of the model to measure"
make_tokens "$work/tokens.jsonl" 16 120
while read -r flags; do # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$work/mini" "$work/tokens.jsonl" $flags
done <<END
--method lora --lora-rank 8 --lora-targets all-linear --micro-batch 8 --dtype float32 --threads 2
--method lora --lora-rank 8 --lora-targets all-linear --micro-batch 8 --dtype bfloat16 --threads 2 --tp 3
--method full --micro-batch 4 --dtype float32 --threads 2 --tp 2
--method full --micro-batch 2 --accumulate 4 --accumulators 4 --dtype bfloat16 --threads 2 --dp 4${SHEAF_SOAK:+
--method lora --lora-rank 8 --lora-targets all-linear --micro-batch 4 --dtype bfloat16 --sums pairs --threads 2
--method lora --lora-rank 8 --lora-targets all-linear --micro-batch 8 --dtype float16 --threads 2 --tp 2
--method full --micro-batch 2 --accumulate 4 --accumulators 2 --dtype float32 --threads 2 --dp 2 --tp 2
--method lora --lora-rank 8 --lora-targets all-linear --micro-batch 4 --accumulate 4 --dtype bfloat16 --threads 2 --dp 2}
END
make_deep "$work/deep" || fail "init of a deep model"
for how in "--lora-targets all-linear --tp 4" ${SHEAF_SOAK:+"--method head --tp 8"}; do # shellcheck disable=SC2086
    steps=1 check "planned and measured: 32 layers, $how" predicted "$work/deep" "$work/tokens.jsonl" --micro-batch 2 --threads 2 $how
done
groups=(plan --model "$work/mini" --method full --micro-batch 1 --accumulate 4 --seq 64)
runs "groups, with what they send" 0 '2 groups of 2 ranks.*MiB by rank +0 +1 +2 +3 .*MiB sent.*  sums .*  gradients .*  weights' "${groups[@]}" --accumulators 2 --dp 2 --tp 2
runs "groups, for programs" 0 '"group":1,"sent_sums":[0-9.]*,"sent_gradients":[1-9][0-9.]*,"sent_weights":[1-9]' "${groups[@]}" --accumulators 2 --dp 2 --tp 2 --json
runs "groups share masters and moments" 0 'fits: --tp 8 --dp [24]' "${groups[@]}" --accumulators 4 --transport mpi --memory 48M
runs "in the answer for programs too" 0 '"proposal":\{"tp":8,"dp":[24],' "${groups[@]}" --accumulators 4 --transport mpi --memory 48M --json
runs "what more accumulators would help" 1 'accumulators 4 --dp 4' "${groups[@]}" --transport mpi --memory 31M
runs "LoRA is not divided, but sums are" 0 '  weights +0.0 +0.0' plan --model "$work/mini" --lora-targets all-linear --accumulate 4 --dp 2
runs "no more than 64 ranks" 2 'at most 64' "${groups[@]}" --accumulators 16 --slices 16 --tp 8 --dp 16
"$sheaf" init cogvlm-tiny "$work/cogvlm" --seed 1 >/dev/null 2>&1 || fail "init of a model with images"
make_pictures "$work/caps"
# rows of 10 and one of 400: the fullest micro-batch is the one that has it
{ make_tokens "$work/short.jsonl" 11 8; make_tokens "$work/long.jsonl" 1 398; cat "$work/short.jsonl" "$work/long.jsonl" >"$work/uneven.jsonl"; }
steps=3 check "planned and measured: one long row" predicted "$work/mini" "$work/uneven.jsonl" --lora-targets all-linear --micro-batch 4 --threads 2
# short answers behind long prompts: of the last layer a run touches little more than the rows of answers
awk 'BEGIN { for (i = 0; i < 12; i++) { s = ""; for (j = 0; j < 380; j++) s = s sprintf("%c", 97 + (i * 7 + j * j) % 26); printf "{\"prompt\": \"%s\", \"completion\": \"yes\"}\n", s } }' >"$work/asked.jsonl"
steps=1 check "planned and measured: short answers" predicted "$work/mini" "$work/asked.jsonl" --lora-targets all-linear --micro-batch 4 --threads 2
# two layers with wide MLPs, so that the last one is most of what is kept; a third of each row has labels
sed -e 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' -e 's/"intermediate_size": [0-9]*/"intermediate_size": 5120/' \
    "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/wide.json"
"$sheaf" init "$work/wide.json" "$work/wide" --seed 1 >/dev/null 2>&1 || fail "init of a wide model"
awk 'BEGIN { for (i = 0; i < 12; i++) { s = ""; for (j = 0; j < 600; j++) s = s sprintf("%c", 97 + (i * 7 + j * j) % 26); printf "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", s, substr(s, 1, 300) } }' >"$work/third.jsonl"
for dtype in ${SHEAF_SOAK:+float32} bfloat16; do
    steps=1 check "planned and measured: labels on a third, $dtype" predicted "$work/wide" "$work/third.jsonl" --lora-targets all-linear --micro-batch 2 --threads 1 --dtype $dtype
done
# PiSSA's weights and vectors, while it loads, are more than what a step of few tokens takes
steps=1 check "planned and measured: factors made of weights" predicted "$work/wide" "$work/tokens.jsonl" --lora-targets down_proj --lora-layers 1 --init pissa --lora-rank 16 --micro-batch 1 --threads 2 --tp 2
# of 32 experts each row takes 4; memory is for these, not for all rows in each
sed -E -e 's/^\{/{"sheaf_tokenizer":"bytes",/' -e 's/("hidden_size": )[0-9]+/\1256/' -e 's/("num_experts": )[0-9]+/\132/' -e 's/("num_experts_per_tok": )[0-9]+/\14/' \
    -e 's/("num_hidden_layers": )[0-9]+/\14/' -e 's/("moe_intermediate_size": )[0-9]+/\1384/' -e 's/("num_attention_heads": )[0-9]+/\18/' -e 's/("head_dim": )[0-9]+/\132/' \
    -e 's/("vocab_size": )[0-9]+/\1259/' -e 's/("bos_token_id": )[0-9]+/\1256/' -e 's/("eos_token_id": )[0-9]+/\1257/' "$configs/qwen3-30b-a3b.json" >"$work/experts.json"
"$sheaf" init "$work/experts.json" "$work/experts" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a mixture"
for how in "--lora-targets q_proj,v_proj" ${SHEAF_SOAK:+"--lora-targets all-linear --tp 3"}; do
    # shellcheck disable=SC2086
    steps=1 check "planned and measured: 32 experts, $how" predicted "$work/experts" "$work/third.jsonl" --micro-batch 2 --threads 3 $how
done
rm -r "$work/experts"
runs "and how much is padding" 0 '4 x 400 tokens in the longest micro-batch, 69.[0-9] % of all positions padding' plan --model "$work/mini" --data "$work/uneven.jsonl" --micro-batch 4
runs "for programs" 0 '"padding":0\.69' plan --model "$work/mini" --data "$work/uneven.jsonl" --micro-batch 4 --json
runs "of rows alone none" 0 '"padding":0\.0,' plan --model "$work/mini" --data "$work/uneven.jsonl" --json
runs "what the data mean" 0 'data: 12 rows, 510 tokens, 498 of them labels; an epoch is 3 steps; 6 steps read 1020 tokens' plan --model "$work/mini" --data "$work/uneven.jsonl" --micro-batch 4 --steps 6
runs "and how long that takes" 0 'trial: 2 steps in [0-9.]+ s, [0-9]+ tokens/s; the run would take [0-9.e-]+ seconds' plan --model "$work/mini" --data "$work/uneven.jsonl" --micro-batch 4 --steps 3 --trial --threads 2 --tp 2
runs "for programs" 0 '"rows":11,"epoch_tokens":110,.*"trial":\{"steps":2,.*"hours":' plan --model "$work/mini" --data "$work/short.jsonl" --micro-batch 4 --steps 3 --trial --json
runs "a trial without data" 2 '--model and --data' plan --model "$work/mini" --trial
# ---- how long a step takes: never how long, only that it is told and adds up ----
timed=(plan --config "$llama/tiny_llama/hf/config.json" --lora-targets q_proj --micro-batch 2 --time)
rows=(--seq 8 --threads 1)
runs "the time of a step, and where it goes" 0 'time: [0-9.]+ ms a step, [0-9.e+]+ tokens/s +products +[0-9.]+ ms' "${timed[@]}" "${rows[@]}"
runs "for programs" 0 '"time":\{"step":[0-9.e-]+,"tokens":16\.0,"tokens_per_s":[0-9.]+,"seconds":\{"products":[0-9.e-]+,"attention":[0-9.e-]+,"head":[0-9.e-]+,"elements":[0-9.e-]+,"optimizer":[0-9.e-]+,"beside":[0-9.e-]+,"waiting":0\.0\}' "${timed[@]}" "${rows[@]}" --json
cp "$work/stdout" "$work/priced"
adds_up() { # what one file says: its parts are the whole
    awk -v all="$(json_number "$1" step)" -v sum="$(tr ',{' '\n\n' <"$1" | awk -F: '/"time"/ { on = 1 } on && $1 ~ /^"(products|attention|head|elements|optimizer|beside|waiting)"$/ { s += $2 } END { printf "%.17g", s }')" \
        'BEGIN { d = all - sum; exit !(all > 0 && d < 1e-12 && -d < 1e-12) }'
}
check "its parts are the whole" adds_up "$work/priced"
runs "what takes some seconds says so" 0 '^\{.*\} *measuring a model of 3 layers' "${timed[@]}" "${rows[@]}" --json
runs "the time of a run over data" 0 '[1-9][0-9.e+]* tokens/s.* 3 steps would take [0-9.e-]+ seconds' plan --model "$work/mini" --data "$work/short.jsonl" --lora-targets q_proj --micro-batch 2 --steps 3 --threads 1 --time
runs "packed rows, whose attention only they know" 0 'time: .* attention +[0-9.]+ ms' plan --model "$work/mini" --data "$work/short.jsonl" --pack --seq 32 --lora-targets q_proj --micro-batch 1 --threads 1 --time
runs "in float16, whose first steps may be skipped" 0 'float16.* optimizer +[0-9.]+ ms' plan --config "$llama/tiny_llama/hf/config.json" --method full --dtype float16 --seq 8 --threads 1 --time
runs "ranks wait for each other" 0 '  waiting +[0-9.]+ ms' "${timed[@]}" --seq 8 --tp 2 --threads 2
runs "groups, and LoRA on a layer that the short model lacks" 0 '"optimizer":[0-9.e-]+' plan --model "$work/mini" --lora-layers 3 --lora-targets q_proj --micro-batch 1 --accumulate 4 --dp 2 --seq 8 --threads 2 --time --json
cp "$work/stdout" "$work/priced"
check "whose parts are the whole, too" adds_up "$work/priced"
runs "a model with images" 0 'time: [0-9.]+ ms a step' plan --model "$work/cogvlm" --lora-targets all-linear --seq 24 --threads 1 --time
runs "ranks of other hosts are threads here, which is said" 0 'threads of one process; between hosts they wait longer' "${timed[@]}" "${rows[@]}" --tp 2 --transport mpi
# ---- and of generation ----
answers=("${timed[@]}" --place 1 --seq 12 --max-new 4)
runs "the time of prompts and tokens" 0 'time: 2 prompts of 8 tokens in [0-9.e-]+ ms, [0-9.e+]+ tokens/s +products .*a token of each: [0-9.e-]+ ms, [0-9.e+]+ tokens/s; 4 of them after a prompt: [0-9.e-]+ s +products ' "${answers[@]}" --threads 1
runs "for programs" 0 '"time":\{"prompt":[0-9.e-]+,"prompt_tokens":16\.0,"prompt_tokens_per_s":[0-9.e+]+,"token":[0-9.e-]+,"tokens_per_s":[0-9.e+]+,"batch":2,"max_new":4,"all":[0-9.e-]+,"prompt_seconds":\{.*"seconds":\{' "${answers[@]}" --threads 2 --tp 2 --json
runs "of pictures, too" 0 'time: 1 prompt of 36 tokens in ' plan --model "$work/cogvlm" --place 1 --seq 40 --max-new 4 --threads 1 --time
runs "which a prompt must have room for" 2 'expected: a prompt of at least 19.*found: +16: 20 less 4.*try: +--seq of 23 or more, or a smaller --max-new' plan --model "$work/cogvlm" --place 1 --seq 20 --max-new 4
runs "and a text at least one token" 2 'expected: a prompt of at least 1 .*found: +0: 12 less 12' "${timed[@]}" --place 1 --seq 12 --max-new 12
runs "layers on stages" 2 '--time: .*expected: layers on one stage.*found: +2.*try: +--place 1' "${timed[@]}" --place 2 --seq 12
mkdir "$work/factors"
echo '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}' >"$work/factors/adapter_config.json"
runs "an adapter that is not merged" 2 '--time: .*expected: a model without an adapter.*found: .*factors.*try: +the model alone' plan --model "$work/mini" --adapter "$work/factors" --place 1 --seq 12 --time
runs "an answer without a prompt" 2 'sheaf: --max-new +expected: --place beside it +found: +none +try: +--place 1' "${timed[@]}" --max-new 4 --seq 12
runs "a plan of generation says so" 0 '"tp":1,.*--dp 2 has no effect with --place' "${answers[@]}" --dp 2 --threads 1 --json
check "planned and measured, with pictures" predicted "$work/cogvlm" "$work/caps" --lora-rank 8 --lora-targets all-linear --micro-batch 2 --threads 2

# ---- what the data hold of images ----
lora=(--lora-rank 8 --lora-targets all-linear --micro-batch 4 --threads 2)
for ((i = 0; i < 9; i++)); do printf '{"prompt": "what is number %d?", "completion": "one that needs a few more words, of which there are %d"}\n' $i $((i * 7)); done >"$work/texts.jsonl"
{ cat "$work/texts.jsonl"; echo '{"image": "caps/1234.png", "prompt": "which digits?", "completion": "1234"}'; } >"$work/mixed.jsonl"
echo '{"prompt": "a", "completion": "b"}' >"$work/short.jsonl"
images() { runs "$1" 0 "$2" plan --model "$work/cogvlm" "${@:3}" "${lora[@]}"; }
images "without data images are assumed, which is said" '4 x 274 tokens \(18 of each an image\).*without --data every row is taken to have an image'
check "once" test "$(grep -c 'every row is taken' "$work/stderr")" -eq 1
images "with data nothing is assumed" '\(18 of each an image\)' --data "$work/caps"
check "nor said" bash -c '! grep -q "every row is taken" "$1"' . "$work/stderr"
runs "a text model knows none" 0 '"image":0,"images":0' plan --model "$work/mini" "${lora[@]}" --json
check "nor assumes any" bash -c '! grep -q "every row is taken" "$1"' . "$work/stderr"
images "texts alone" '\(no images\)' --data "$work/texts.jsonl"
images "for programs" '"image":0,"images":0,' --data "$work/texts.jsonl" --json
images "one picture, at most twice in four rows" '"image":18,"images":2,' --data "$work/mixed.jsonl" --json
images "rows that no image would fit into" '4 x [0-9] tokens \(no images\)|4 x 1[0-7] tokens \(no images\)' --data "$work/short.jsonl"
images "answers to texts alone" '"image":0,"images":0,' --data "$work/texts.jsonl" --place 2 --json
check "planned and measured, texts alone" predicted "$work/cogvlm" "$work/texts.jsonl" "${lora[@]}"
steps=3 check "planned and measured, texts with a picture among them" predicted "$work/cogvlm" "$work/mixed.jsonl" "${lora[@]}" # of every order the fullest: a run need not meet it
peak_planned() { # peak_planned FLAGS...: into $peak, what one rank then holds of activations into $held
    local seq=140
    [[ $* = *--data* ]] || seq=$longest # as long as the rows of the data are
    runs "plan $*" 0 . plan --model "$work/cogvlm" --seq $seq --threads 2 --json "$@"
    peak=$(json_number "$work/stdout" largest_rank)
    held=$(json_number "$work/stdout" activations)
}
{ cat "$work/texts.jsonl" "$work/texts.jsonl"; for ((i = 0; i < 18; i++)); do tail -n 1 "$work/mixed.jsonl"; done; } >"$work/half.jsonl"
peak_planned --micro-batch 1 --method head --data "$work/texts.jsonl"; texts=$held longest=$(json_number "$work/stdout" seq)
peak_planned --micro-batch 1 --method head
check "the head alone: a text needs more" test "$texts" -gt "$held"
peak_planned --micro-batch 1 --method head --data "$work/half.jsonl"
check "and is among the others" test "$held" -eq "$texts"
peak_planned --micro-batch 16 --lora-rank 2 --data "$work/mixed.jsonl"; few=$peak
peak_planned --micro-batch 16 --lora-rank 2
check "LoRA of the text: few pictures need more" test "$few" -gt "$peak"
peak_planned --micro-batch 16 --lora-rank 2 --data "$work/half.jsonl"
check "and are among the many" test "$peak" -ge "$few"
peak_planned --micro-batch 2 --lora-rank 2 --data "$work/texts.jsonl"; texts=$held
peak_planned --micro-batch 2 --lora-rank 2; pictures=$held
peak_planned --micro-batch 2 --lora-rank 2 --data "$work/half.jsonl"
check "of two at most, one needs more than none and than two" test "$held" -gt "$texts" -a "$held" -gt "$pictures"
peak_planned --micro-batch 16 "${lora[@]:0:4}"; pictures=$peak
peak_planned --micro-batch 16 "${lora[@]:0:4}" --data "$work/texts.jsonl"
check "LoRA of all: texts need less" test "$peak" -lt "$pictures"

# ---- what would help where nothing fits: with the data that are asked about ----
runs "no more than 64 ranks are proposed" 1 'no setting up to 32 ranks fits 1 MiB of one rank.*with --dtype bfloat16: [0-9.]+ MiB' plan --config "$configs/mini.json" --slices 32 --dp 2 --seq 64 --transport mpi --memory 1
check "nor twice as many" bash -c '! grep -q slices "$1"' . "$work/stderr"
runs "each group keeps a micro-batch" 0 'fits: --tp 1; --micro-batch 2 --accumulate 2 fits too' plan --config "$configs/mini.json" --seq 64 --accumulate 4 --dp 2 --transport mpi --memory 1G
helps_as_planned() { # helps_as_planned MODEL DATA: what bfloat16 is said to need is what a plan of it says
    "$sheaf" plan --model "$1" --data "$2" --transport mpi --memory 2 --json >"$work/helps" 2>"$work/said"
    test $? -eq 1 || { cat "$work/said"; return 1; }
    "$sheaf" plan --model "$1" --data "$2" --tp 8 --checkpointing --offload weights,moments,activations --dtype bfloat16 --json >"$work/alone" 2>&1 || return 1
    sed 's/.*"flags":"--dtype bfloat16",//' "$work/helps" >"$work/helped"
    local planned=$(($(json_number "$work/alone" largest_rank) + $(json_number "$work/alone" host) / 8))
    echo "said $(json_number "$work/helped" largest_rank), planned $planned"
    test "$(json_number "$work/helped" largest_rank)" = "$planned"
}
for ((i = 0; i < 3; i++)); do echo '{"prompt": "a", "completion": "b"}'; done >"$work/brief.jsonl"
check "of texts too short for a picture" helps_as_planned "$work/cogvlm" "$work/brief.jsonl"
"$sheaf" init minicpmv-tiny "$work/minicpmv" --seed 1 >/dev/null 2>&1 || fail "init of a model with several images"
pictures='' marks=''
for ((i = 0; i < 40; i++)); do pictures+=', "caps/98.jpg"' marks+='<image>'; done
printf '{"images": [%s], "messages": [{"role": "user", "content": "%swhich?"}, {"role": "assistant", "content": "none"}]}\n' "${pictures:2}" "$marks" >"$work/several.jsonl"
check "of rows with several pictures" helps_as_planned "$work/minicpmv" "$work/several.jsonl"

# Flags that do not go together: what was found, and what to do instead.
config=(plan --config "$configs/mini.json" --seq 64)
runs "no time of a table" 2 'expected: --time without --table +found: +--table beside it +try: +two plans' "${config[@]}" --time --table ranks
runs "nor of pictures by number" 2 'expected: --time without --images.*found: +--images beside it +try: +--time --data FILE' "${config[@]}" --time --images 2:28x28
runs "a trial takes steps" 2 'expected: --trial without --place +found: +--place beside it +try: +--time' "${config[@]}" --trial --place 1
runs "of one setting" 2 'expected: --trial without --table +found: +--table beside it +try: +two plans' "${config[@]}" --trial --table ranks
runs "over data" 2 'plan --trial +expected: --model and --data +found: +no --data +try: +--model DIR --data FILE, or --time' plan --model "$work/mini" --trial
runs "of weights" 2 'expected: --model and --data +found: +neither +try: ' "${config[@]}" --trial
runs "that are there" 2 'expected: --model and --data +found: +no --model +try: ' "${config[@]}" --trial --data "$work/short.jsonl"
runs "a table is of training" 2 'expected: --place or --table, not both +found: +both +try: +--table' "${config[@]}" --table ranks --place 1
runs "it needs no memory" 2 'expected: --table without --memory.*found: +--memory beside it +try: +--memory alone' "${config[@]}" --table ranks --memory 1G
runs "and has no kinds" 2 'expected: --table without --by.*found: +--by beside it +try: +--by alone' "${config[@]}" --table ranks --by component

# Bytes by kind, and with data those of the first step to the byte.
runs "what is exchanged, by kind, and the buffers it takes" 0 '"exchange_buffers":[1-9][0-9]*,.*"exchange":\{"forward":\{"calls":[0-9]+,"exchanges":[0-9]+,"sent":[0-9]+' plan --config "$configs/mini.json" --seq 64 --tp 2 --json
finish
