#!/usr/bin/env bash
# Judging a model while it trains: epochs, evaluations, the best step, an end before the last step, an end by the clock;
# the same bytes on any number of ranks and over stops.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
ids=""
for i in $(seq 0 69); do ids="$ids $((3 + (i * i * 7 + i) % 90))"; done
tokens_file "$work/ten.safetensors" 10 7 "$ids" "$ids"
other=""
for i in $(seq 0 20); do other="$other $((200 + (i * 5) % 60))"; done
tokens_file "$work/other.safetensors" 3 7 "$other" "$other"
flags=(train --model "$model" --data "$work/ten.safetensors" --lora-rank 2 --micro-batch 2 --threads 1 --schedule constant)
lines() { grep -c "$2" "$1/metrics.jsonl"; }

# ---- epochs ----
runs "epochs become steps" 0 '"step":7.*2.5 epochs of 10 rows are 7 steps' "${flags[@]}" --epochs 2.5 --accumulate 2 --out "$work/epochs" --json
check "and are what the settings say" grep -q '^epochs: 2.5$' "$work/epochs/settings"
check "alone" sh -c "! grep -q '^steps' '$work/epochs/settings'"
runs "that go on by them" 0 'going on after step 7' train --resume --out "$work/epochs" --epochs 3
runs "or by steps" 0 'all 8 steps were done before' train --resume --out "$work/epochs" --steps 8
runs "and are above 0" 2 "--epochs.*above 0" "${flags[@]}" --epochs 0 --out "$work/both"
runs "not both" 2 '--steps and --epochs.*one of the two' "${flags[@]}" --steps 1 --epochs 1 --out "$work/both"
runs "and one of them" 2 '--steps is missing' "${flags[@]}" --out "$work/both"

# ---- evaluations, on any number of ranks and over a stop ----
judged=(--lr 2e-2 --eval-split 0.25 --eval-every 2 --keep 1 --use-best --seed 3)
for tp in 1 3; do
    runs "judged on $tp ranks" 0 '"best_step":8.*3 of 10 rows are held out.*evaluation loss' "${flags[@]}" "${judged[@]}" --steps 8 --tp $tp --out "$work/split$tp" --json
done
cp "$work/stdout" "$work/answer"
check "the same bytes" test "$(digest "$work/split1")" = "$(digest "$work/split3")"
check "a line a step" test "$(lines "$work/split1" '"loss"')" -eq 8
check "and one an evaluation" test "$(lines "$work/split1" '"step": [2468], "eval_loss": [0-9.]*, "eval_accuracy": [0-9.]*, "eval_tokens": 18')" -eq 4
check "the last of which is the answer's" near "$(json_number "$work/answer" eval_loss)" "$(tail -n 1 "$work/split1/metrics.jsonl" | sed 's/.*"eval_loss": //; s/,.*//')" 1e-14
runs "judged for 5 steps" 0 . "${flags[@]}" "${judged[@]}" --steps 5 --out "$work/part"
check "the last one too" test "$(lines "$work/part" '"step": 5, "eval_loss"')" -eq 1
runs "then for 8 on two ranks" 0 'going on after step 5' "${flags[@]}" "${judged[@]}" --steps 8 --tp 2 --out "$work/part" --resume
check "give the bytes of 8 at once" test "$(digest "$work/part")" = "$(digest "$work/split1")"

# ---- the best step ----
over=(--lr 0.4 --eval-data "$work/other.safetensors" --eval-every 1 --keep 1 --save-every 1)
runs "worse and worse" 0 '"stopped_early":true.*2 evaluations without a better loss: it ends after step [3-9] of 40' "${flags[@]}" "${over[@]}" --patience 2 --use-best --steps 40 --out "$work/early" --json
best=$(json_number "$work/stdout" best_step) last=$(json_number "$work/stdout" step)
check "ends two after the best" test "$last" -eq $((best + 2))
check "which is kept beside the newest" test "$(ls "$work/early/checkpoints" | tr '\n' ' ')" = "lock step-0000000$best step-0000000$last "
check "and named" test "$(json_number "$work/early/best.json" step)" -eq "$best"
runs "info names it" 0 "evaluated_at +$last  +eval_loss +[0-9.]+ .*best_step +$best  +best_loss +[0-9.]+ " info "$work/early"
runs "without an evaluation there is none" 0 . "${flags[@]}" "${over[@]:0:4}" --save-every 1 --eval-every 2 --steps 2 --out "$work/before"
runs "info of a step before the first one" 0 '"progress": ' info --json "$work/before/checkpoints/step-00000001"
check "names no best one" bash -c '! grep -q "\"best\"" "$1"' . "$work/stdout"
runs "behind it" 0 '"best": 2' info --json "$work/before/checkpoints/step-00000002"
runs "its loss is that of eval" 0 . eval --model "$work/early/checkpoints/step-0000000$best" --data "$work/other.safetensors" --json
check "to the last digit" near "$(json_number "$work/stdout" loss)" "$(json_number "$work/early/best.json" eval_loss)" 1e-14
runs "its adapter" 0 . convert "$work/early/checkpoints/step-0000000$best" "$work/of_best" --to peft
same "is the result" "$work/of_best" "$work/early/adapter"
cp -r "$work/early" "$work/again"
runs "it stays ended" 0 'all [0-9] steps were done before' train --resume --out "$work/early" --tp 2
check "with the same bytes" test "$(digest "$work/again")" = "$(digest "$work/early")"
for lost in slice_000.safetensors manifest.json .; do # and if it is lost
    rm -rf "$work/lost"
    cp -r "$work/early" "$work/lost"
    [ $lost = . ] || rm "$work/lost/checkpoints/step-0000000$best/$lost"
    [ $lost != . ] || rm -rf "$work/lost/checkpoints/step-0000000$best"
    runs "$lost of the best is lost: is told, and what helps" 3 "--use-best: .*step-0000000$best.*try: .*train --resume --out $work/lost --no-use-best" train --resume --out "$work/lost"
    runs "$lost of the best is lost: it does" 0 'all [0-9] steps were done before' train --resume --out "$work/lost" --no-use-best
done
runs "more patience goes on" 0 "going on after step $last.*it ends after step $((last + 1))" train --resume --out "$work/early" --patience 3 --no-use-best
runs "min-delta asks for more" 0 'it ends after step 2 of 40' "${flags[@]}" "${over[@]}" --patience 1 --min-delta 9 --steps 40 --out "$work/delta"
runs "other data of evaluations are refused" 2 '--resume: the data of evaluations.*expected: the one this run began with' train --resume --out "$work/early" --eval-data "$work/ten.safetensors" --patience 4
runs "and none that come later" 2 '--resume: the data of evaluations.*expected: none' train --resume --out "$work/epochs" --eval-data "$work/ten.safetensors" --steps 9

# ---- slices: those of the run, which its sums depend on ----
data=$llama/tiny_llama/fwd_inputs.safetensors
for method in lora full; do
    runs "$method in two slices" 0 '"eval_loss"' train --model "$model" --data "$data" --method $method --dtype bfloat16 --sums pairs --slices 2 --steps 3 --lr 1e-2 --eval-data "$data" --out "$work/slices.$method" --json
    loss=$(json_number "$work/stdout" eval_loss)
    for of in slices.$method slices.$method/checkpoints/step-00000003; do
        runs "$of is judged in two" 0 '2 slices, as in the run' eval --model "$work/$of" --data "$data" --json
        check "and has the run's loss" near "$(json_number "$work/stdout" loss)" "$loss" 1e-14
        runs "$of in one, where that is asked" 0 '"loss"' eval --model "$work/$of" --data "$data" --slices 1 --json
        check "has another" test "$(json_number "$work/stdout" loss)" != "$loss"
    done
done
runs "answers too" 0 '2 slices, as in the run' generate --model "$work/slices.lora" --tokens 5,9,2 --max-new 4 --logprobs 2 --json
cp "$work/stdout" "$work/answer"
runs "as they are asked for" 0 '"tokens"' generate --model "$model" --adapter "$work/slices.lora" --slices 2 --tp 2 --tokens 5,9,2 --max-new 4 --logprobs 2 --json
same "the same" "$work/stdout" "$work/answer"
for of in "eval --data $data" "generate --tokens 5,9" chat; do
    # shellcheck disable=SC2086
    runs "${of%% *} on more ranks than the run has slices" 2 '--tp .*expected: at most 2, the slices of the run .*found: +3 .*try: +fewer ranks; --slices 4 ' $of --model "$work/slices.lora" --tp 3
done
runs "which more slices take" 0 '"loss"' eval --model "$work/slices.lora" --data "$data" --tp 3 --slices 4 --json

# ---- rows of several records: as transformers 5.23 has them, which leaves them together beside a mask ----
ids="" labels="" positions="0 1 2 3 4 0 1 2 3 4 5 6 0 1 2 0 1 2 3 0 1 2 3 4"
for at in $positions; do
    ids="$ids $(((${#labels} > 0 ? n : 3) % 511))"
    labels="$labels $([ "$at" -eq 0 ] && echo -100 || echo "$((${n:-3} % 511))")"
    n=$((${n:-3} + 7))
done
tokens_file "$work/joined.safetensors" 2 12 "$ids" "$labels" "$positions"
tokens_file "$work/masked.safetensors" 2 12 "$ids" "$labels" "$positions" "$(printf '1 %.0s' $(seq 24))"
joined=(--model "$llama/tiny_llama/hf" --data "$work/joined.safetensors")
runs "records of a row do not see each other" 0 . eval "${joined[@]}" --json
check "as in transformers" near "$(json_number "$work/stdout" loss)" 6.248016834 1e-5
runs "nor in training" 0 'step 1/2  loss 6\.2480 ' train "${joined[@]}" --out "$work/joined" --steps 2 --micro-batch 2 --tp 2
runs "a mask beside it is refused" 3 'position_ids.*row 1, position 6.*leave attention_mask out' eval --model "$llama/tiny_llama/hf" --data "$work/masked.safetensors"
runs "and which of them is to be answered is not known" 3 'position_ids.*one record in each row' generate "${joined[@]}" --max-new 2

# ---- rows that teach nothing ----
tokens_file "$work/mute.safetensors" 3 4 "5 6 7 8 9 10 11 12 13 14 15 16" "-100 6 7 8 9 -100 -100 -100 -100 -100 -100 -100" "0 1 2 3 0 1 2 3 0 1 2 3" "1 1 1 1 1 1 1 1 0 0 0 0"
mute=(--model "$llama/tiny_llama/hf" --data "$work/mute.safetensors")
runs "rows without a label" 0 'warning: .*mute.safetensors: 2 of 3 rows teach nothing, row 2 the first.*step 1/3  loss [0-9.]+ .*step 3/3  no label' \
    train "${mute[@]}" --no-shuffle --steps 3 --out "$work/mute" --json
check "have no loss" test "$(grep -c '"loss": null' "$work/mute/metrics.jsonl")" -eq 2
check "nor has the run theirs" near "$(json_number "$work/stdout" loss)" "$(json_number "$work/mute/metrics.jsonl" loss)" 1e-12
tokens_file "$work/late.safetensors" 2 4 "5 6 7 8 9 10 11 12" "-100 -100 -100 -100 9 10 11 12" "0 1 2 3 0 1 2 3" "1 1 1 1 1 1 1 1"
runs "a run none of whose steps has one" 0 'nothing was trained' train --model "$llama/tiny_llama/hf" --data "$work/late.safetensors" --no-shuffle --steps 1 --out "$work/late" --json
check "has none, either" grep -q '"loss":null' "$work/stdout"
runs "eval says so, too" 0 '2 of 3 rows teach nothing' eval "${mute[@]}" --json

# ---- the planner ----
rows=""
for i in $(seq 0 959); do rows="$rows $((3 + (i * i * 7 + i) % 90))"; done
tokens_file "$work/long.safetensors" 8 120 "$rows" "$rows"
short=(--model "$model" --data "$work/ten.safetensors" --lora-rank 2 --micro-batch 8 --threads 2 --tp 2 --steps 2)
runs "what a step needs" 0 . plan "${short[@]}" --json
step=$(json_number "$work/stdout" activations) # the sum is in huge pages
runs "what it needs with evaluations of longer rows" 0 . plan "${short[@]}" --eval-data "$work/long.safetensors" --json
need=$(json_number "$work/stdout" largest_rank)
check "is more" test "$(json_number "$work/stdout" activations)" -gt "$step"
runs "and what they take" 0 "step 2/2 .* $((need / 1048576))\\.0* MiB" train "${short[@]}" --eval-data "$work/long.safetensors" --eval-every 1 --out "$work/long"

# ---- the clock ----
runs "an end by the clock" 3 '--max-time is over after step 1.*go on with: sheaf train --resume' "${flags[@]}" "${judged[@]}" --steps 8 --max-time 0.000001 --out "$work/clock"
runs "goes on" 0 'going on after step 1' train --resume --out "$work/clock" --max-time 2h30m
check "to the same bytes" test "$(digest "$work/clock")" = "$(digest "$work/split1")"
check "with the time in its settings" grep -q '^max-time: 9000$' "$work/clock/settings"

# ---- smoothed labels and noise ----
step=(train --model "$model" --data "$llama/tiny_llama/fwd_inputs.safetensors" --method full --no-shuffle --steps 1 --threads 1)
while read -r name loss norm; do
    case $name in smoothed) how=(--label-smoothing 0.1) ;; noisy) how=(--neftune-alpha 5) ;; both) how=(--label-smoothing 0.3 --neftune-alpha 15) ;; *) how=() ;; esac
    runs "$name" 0 . "${step[@]}" "${how[@]}" --micro-batch 1 --accumulate 2 --out "$work/$name"
    check "$name: transformers' loss" near "$(json_number "$work/$name/metrics.jsonl" loss)" "$loss" 1e-5
    check "$name: and gradient norm" near "$(json_number "$work/$name/metrics.jsonl" grad_norm)" "$norm" 1e-4
done <"$SHEAF_SOURCE_ROOT/tests/data/regularize/steps"
runs "in one padded micro-batch" 0 . "${step[@]}" "${how[@]}" --micro-batch 2 --out "$work/padded"
check "the same noise" near "$(json_number "$work/padded/metrics.jsonl" loss)" "$(json_number "$work/both/metrics.jsonl" loss)" 1e-13
both=("${flags[@]}" --label-smoothing 0.2 --neftune-alpha 10 --lora-dropout 0.1 --lr 2e-2 --eval-split 0.2 --eval-every 2 --keep 1)
runs "smoothed and noisy on one rank" 0 . "${both[@]}" --steps 4 --out "$work/both1"
runs "on three, recomputed" 0 . "${both[@]}" --steps 4 --tp 3 --checkpointing --out "$work/both3"
check "the same bytes" test "$(digest "$work/both1")" = "$(digest "$work/both3")"
runs "stopped after 3" 0 . "${both[@]}" --steps 3 --tp 2 --out "$work/both2"
runs "and gone on" 0 'going on after step 3' "${both[@]}" --steps 4 --out "$work/both2" --resume
check "the same bytes again" test "$(digest "$work/both1")" = "$(digest "$work/both2")"

# ---- DoRA: begun as its base, judged as it is merged, the same on any number of ranks and over a stop ----
dora=("${flags[@]}" --lora-targets all-linear --lora-dora --lr 2e-2 --accumulate 2 --keep 1)
biased=$llama/tiny_qwen2/hf
judge=(eval --model "$model" --data "$work/other.safetensors" --json)
for how in "float32" "bfloat16 --sums pairs" "float32 --quantize nf4" "bfloat16 --quantize int8"; do
    # shellcheck disable=SC2086
    runs "$how: begun" 0 . train --model "$biased" --data "$work/ten.safetensors" --lora-targets all-linear --lora-dora --dtype $how --steps 1 --lr 1e-30 --out "$work/fresh"
    for with in "" "--adapter $work/fresh/adapter --tp 2"; do
        # shellcheck disable=SC2086
        runs "$how: judged $with" 0 . eval --model "$biased" --data "$work/other.safetensors" --dtype $how --save-logits "$work/logits${with:+.fresh}" $with
    done
    same "$how: the base's logits" "$work/logits" "$work/logits.fresh"
    rm -rf "$work/fresh" "$work/logits"*
done
# ---- a start that is taken from the base, which stays as it is ----
for how in "float32 --lora-dora --init pissa" "float32 --quantize nf4 --init olora" "float32 --init orthogonal --lora-rslora" "bfloat16 --init gaussian"; do
    kept=("${flags[@]}" --lora-targets all-linear --weight-decay 0.3 --accumulate 2 --keep 1 --dtype)
    # shellcheck disable=SC2086
    runs "$how: on one rank" 0 . "${kept[@]}" $how --lr 2e-2 --steps 4 --out "$work/kept1"
    # shellcheck disable=SC2086
    runs "$how: stopped after 1" 0 . "${kept[@]}" $how --lr 2e-2 --steps 1 --tp 4 --dp 2 --out "$work/kept8"
    # shellcheck disable=SC2086
    runs "$how: and gone on" 0 'going on after step 1' "${kept[@]}" $how --lr 2e-2 --steps 4 --tp 3 --out "$work/kept8" --resume
    check "$how: the same bytes" test "$(digest "$work/kept1")" = "$(digest "$work/kept8")"
    # shellcheck disable=SC2086
    runs "$how: begun" 0 . "${kept[@]}" $how --steps 1 --lr 1e-30 --out "$work/fresh"
    # shellcheck disable=SC2086
    runs "$how: judged as begun" 0 . "${judge[@]}" --dtype ${how%%--[il]*} --adapter "$work/fresh/adapter"
    cp "$work/stdout" "$work/answer"
    # shellcheck disable=SC2086
    runs "$how: the base" 0 . "${judge[@]}" --dtype ${how%%--[il]*}
    check "$how: begins as the base" near "$(json_number "$work/stdout" loss)" "$(json_number "$work/answer" loss)" 2e-6
    rm -rf "$work/kept1" "$work/kept8" "$work/fresh"
done
ranked=(train --model "$model" --data "$work/ten.safetensors" --lora-rank RANK)
for init in pissa:4 olora:4 orthogonal:2 pissa_niter_16:4; do
    runs "$init: its rank" 0 . "${flags[@]}" --init "${init%:*}" --steps 1 --out "$work/kept8"
    check "$init: as the file has it" grep -q "\"r\": ${init#*:}," "$work/kept8/adapter/adapter_config.json"
    [ $init != pissa:4 ] || runs "its half that is kept" 0 . "${ranked[@]/RANK/4}" --init pissa --adapter "$work/kept8/adapter" --steps 1 --out "$work/kept1"
    rm -rf "$work/kept8"
done
runs "another beginning" 2 '--init: beginning of an adapter.*pissa_niter_N or olora.*found: +eva.*--adapter DIR' "${flags[@]}" --init eva --steps 1 --out "$work/none"
for how in "--method full --init pissa" "--method head --init nonsense"; do
    # shellcheck disable=SC2086
    runs "$how" 2 '--init +expected: --method lora beside it' train --model "$model" --data "$work/ten.safetensors" $how --steps 1 --out "$work/none"
done
runs "ranks that W has not" 2 "rank of '.*k_proj'.*at most [0-9]+, as W has no more.*found: +60000" "${ranked[@]/RANK/60000}" --lora-targets k_proj --init pissa --steps 1 --out "$work/none"
runs "half a rank" 2 "rank of .*an even number.*found: +3" "${ranked[@]/RANK/3}" --init orthogonal --steps 1 --out "$work/none"
runs "a table" 3 "embed_tokens' with --init.*the table of embeddings.*leave it out" "${flags[@]}" --lora-targets embed_tokens --init olora --steps 1 --out "$work/none"
runs "an adapter that is there" 2 '--init beside --adapter.*pissa or olora' "${ranked[@]/RANK/4}" --init gaussian --adapter "$work/kept1/adapter" --steps 1 --out "$work/none"
# ---- all experts of a layer as PEFT has them, a parameter each ----
moe=${SHEAF_RECORDINGS:-$SHEAF_SOURCE_ROOT/tests/data}/successors/qwen3_moe/hf
experts=(train --model "$moe" --data "$work/ten.safetensors" --lora-rank 2 --micro-batch 2 --accumulate 2 --steps 3 --threads 1 --lr 2e-2 --lora-targets experts)
runs "experts" 0 . "${experts[@]}" --out "$work/experts1"
runs "experts on more ranks" 0 . "${experts[@]}" --tp 3 --dp 2 --out "$work/experts6"
check "the same bytes" test "$(digest "$work/experts1")" = "$(digest "$work/experts6")"
check "in PEFT's names" grep -q 'mlp.experts.base_layer.lora_A.weight' "$work/experts1/adapter/adapter_model.safetensors"
runs "merged" 0 . merge "$moe" "$work/experts1/adapter" "$work/merged.experts"
runs "judged merged" 0 . eval --model "$work/merged.experts" --data "$work/other.safetensors" --json
cp "$work/stdout" "$work/answer"
runs "judged with its adapter" 0 . eval --model "$moe" --adapter "$work/experts1/adapter" --data "$work/other.safetensors" --json
check "the same" near "$(json_number "$work/stdout" loss)" "$(json_number "$work/answer" loss)" 2e-6
runs "experts of one layer" 2 'found: +--lora-layers.*whole paths' "${experts[@]}" --lora-layers 0 --out "$work/none"
rm -rf "$work"/*experts*
runs "DoRA on one rank" 0 . "${dora[@]}" --steps 4 --out "$work/dora1"
runs "stopped after 1" 0 . "${dora[@]}" --steps 1 --tp 4 --dp 2 --out "$work/dora8"
runs "and gone on" 0 'going on after step 1' "${dora[@]}" --steps 4 --tp 3 --out "$work/dora8" --resume
check "the same bytes" test "$(digest "$work/dora1")" = "$(digest "$work/dora8")"
runs "merged" 0 . merge "$model" "$work/dora1/adapter" "$work/merged.dora"
runs "judged merged" 0 . eval --model "$work/merged.dora" --data "$work/other.safetensors" --json
cp "$work/stdout" "$work/answer"
runs "judged with its adapter" 0 . "${judge[@]}" --adapter "$work/dora1/adapter"
check "the same" near "$(json_number "$work/stdout" loss)" "$(json_number "$work/answer" loss)" 2e-6
runs "gone on with" 0 . "${dora[@]}" --adapter "$work/dora1/adapter" --steps 1 --out "$work/dora.more"
runs "a table with magnitudes" 3 "embed_tokens' with DoRA.*the table of embeddings.*leave it out" "${flags[@]}" --lora-targets embed_tokens,q_proj --lora-dora --steps 1 --out "$work/none"
runs "a weight that is trained" 3 "q_proj.weight' trained with DoRA.*frozen" "${flags[@]}" --lora-targets q_proj --lora-dora --train '*layers.0.*q_proj*' --steps 1 --out "$work/none"
rm -rf "$work/none"
for n in 60 100 140; do # reads of one rank: the others do not wait for its norms
    check "a rank that cannot load, $n" eval 'SHEAF_FAULT=read:$n:fail timeout -k 1 60 "$faulty" "${dora[@]}" --steps 1 --tp 3 --out "$work/none" 2>"$work/stderr"; [ $? -eq 3 ] && grep -q "Input/output error" "$work/stderr"'
    rm -rf "$work/none"
done
for how in "--tp 2" "--tp 2 --dp 2" "--tp 2 --place 2"; do
    for n in 6 14 22; do # of the table of embeddings, which others may have read: nobody waits for its rows
        check "a rank that cannot read a table, $how, $n" eval 'SHEAF_FAULT=read:$n:fail timeout -k 1 60 "$faulty" "${judge[@]}" $how 2>"$work/stderr"; [ $? -eq 3 ] && grep -q "Input/output error" "$work/stderr"'
    done
done
check "and trains" eval 'SHEAF_FAULT=read:14:fail timeout -k 1 60 "$faulty" "${flags[@]}" --steps 1 --tp 2 --out "$work/none" 2>"$work/stderr"; [ $? -eq 3 ] && grep -q "Input/output error" "$work/stderr"'
rm -rf "$work/none"
for n in 700 850; do # calls for memory while one rank makes its model: the others do not wait for its norms
    check "a rank without memory, $n" eval 'SHEAF_FAULT=malloc:$n:fail timeout -k 1 60 "$faulty" "${dora[@]}" --steps 1 --tp 2 --out "$work/none" 2>"$work/stderr"; [ $? -eq 3 ]'
    rm -rf "$work/none"
done

# ---- what cannot be ----
runs "two sets to judge by" 2 'one of the two' "${flags[@]}" --steps 1 --eval-split 0.1 --eval-data "$work/other.safetensors" --out "$work/none"
runs "no set" 2 '--eval-every.*--eval-data or --eval-split' "${flags[@]}" --steps 1 --eval-every 1 --out "$work/none"
runs "no set to be best by" 2 '--use-best.*--eval-data or --eval-split' "${flags[@]}" --steps 1 --use-best --out "$work/none"
runs "patience with nothing" 2 '--patience.*--eval-every' "${flags[@]}" --steps 1 --patience 1 --eval-split 0.1 --out "$work/none"
runs "all of the data held out" 3 '--eval-split.*no row is left' "${flags[@]}" --steps 1 --eval-split 0.99 --out "$work/none"
runs "labels smoothed away" 2 '--label-smoothing.*below 1' "${flags[@]}" --steps 1 --label-smoothing 1 --out "$work/none"
runs "no time" 2 '--max-time.*90s, 15m, 2h30m' "${flags[@]}" --steps 1 --max-time 5x --out "$work/none"
runs "data that are not there" 3 '--eval-data: ' "${flags[@]}" --steps 1 --eval-data "$work/nowhere.jsonl" --out "$work/none"
absent "nothing is left of these" "$work/none"
finish
