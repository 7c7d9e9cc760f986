#!/usr/bin/env bash
# One way through the commands on a golden model: train on several ranks, stop,
# resume, evaluate, generate, merge, compare.
. "$(dirname "$0")/lib.sh"

model=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
lora=(--model "$model" --data "$data" --method lora --lora-rank 4 --lora-alpha 8 --lora-targets all-linear
      --micro-batch 1 --accumulate 2 --lr 1e-2 --schedule constant --save-every 2 --seed 7)

runs "train on one rank" 0 . train "${lora[@]}" --steps 6 --out "$work/t1" --tp 1 --threads 1
runs "train on three ranks" 0 . train "${lora[@]}" --steps 6 --out "$work/t3" --tp 3 --threads 2
runs "train on eight ranks" 0 . train "${lora[@]}" --steps 6 --out "$work/t8" --tp 8 --threads 5
same "three ranks give the adapter of one" "$work/t1/adapter" "$work/t3/adapter"
same "eight ranks too" "$work/t1/adapter" "$work/t8/adapter"
check "metrics have a line a step" test "$(wc -l <"$work/t1/metrics.jsonl")" -eq 6
check "and the promised keys" grep -qE '"step": *1,.*"loss".*"grad_norm".*"lr".*"tokens".*"tokens_per_s"' "$work/t1/metrics.jsonl"

runs "train for four steps of six on two ranks" 0 . train "${lora[@]}" --steps 4 --out "$work/part" --tp 2
runs "resume to six on five ranks" 0 'step 4' train "${lora[@]}" --steps 6 --out "$work/part" --tp 5 --resume
runs "the same unbroken" 0 . train "${lora[@]}" --steps 6 --out "$work/whole" --tp 1
same "resuming elsewhere gives the unbroken run's adapter" "$work/whole/adapter" "$work/part/adapter"
check "metrics go on without a gap" test "$(grep -oE '"step": *[0-9]+' "$work/part/metrics.jsonl" | tr -dc '0-9\n' | tr '\n' ' ')" = "1 2 3 4 5 6 "
runs "a flag that differs on resume is refused" 2 'weight-decay' train "${lora[@]}" --steps 6 --out "$work/part" --resume --weight-decay 0.5

runs "a run that fails before it begins" 2 'instruction set' train "${lora[@]}" --steps 1 --out "$work/none" --isa none --tp 2
absent "leaves no folder" "$work/none"
mkdir "$work/empty"
runs "in a folder that was there" 2 'instruction set' train "${lora[@]}" --steps 1 --out "$work/empty" --isa none
check "the folder stays, empty" rmdir "$work/empty"
cp -r "$work/part" "$work/kept"
runs "resumed it fails too" 2 'instruction set' train "${lora[@]}" --steps 7 --out "$work/part" --isa none --resume
same "and nothing of the run is gone" "$work/kept/checkpoints" "$work/part/checkpoints"

runs "every linear layer of one block" 0 . train --model "$model" --data "$data" --out "$work/block" --steps 1 --lora-targets all-linear --lora-layers 1
check "is seven modules" test "$(grep -oaE '"[^"]*lora_A.weight"' "$work/block/adapter/adapter_model.safetensors" | grep -c 'layers\.1\.')" -eq 7
check "and no other" test "$(grep -oaE '"[^"]*lora_A.weight"' "$work/block/adapter/adapter_model.safetensors" | wc -l)" -eq 7
runs "which can be merged" 0 'adapted 7' merge "$model" "$work/block/adapter" "$work/block-merged"

# The last step's loss is a number, what its update made is not.
for tp in 1 3; do
    rm -rf "$work"/infinite*
    runs "weights that are not finite are not saved, --tp $tp" 3 "step 1: '[^']*lora_A.weight'.*not, after the update.*nothing was saved; begin anew" train "${lora[@]/1e-2/1e38}" \
        --steps 1 --out "$work/infinite" --tp "$tp"
    runs "nor what has moments that are not, --tp $tp" 3 "step 1: '[^']*lora_B.weight'.*not, after the update.*nothing was saved" train $(sed 's/--lora-alpha 8/--lora-alpha 1e24/' <<<"${lora[*]}") \
        --clip 0 --steps 1 --out "$work/infinite.moments" --tp "$tp"
    check "nor left as a result" test -z "$(ls -d "$work"/infinite*/adapter "$work"/infinite*/checkpoints/step-* 2>/dev/null)"
done

words=(--template chat --query "What?")
both='--template chat has no effect.*--query has no effect'
runs "words that tokens have no place for are said" 0 "$both" train "${lora[@]}" --steps 1 --out "$work/words" "${words[@]}"
runs "by plan" 0 "$both" plan --model "$model" --data "$data" "${words[@]}"
runs "by eval" 0 "$both" eval --model "$model" --data "$data" "${words[@]}"
runs "and by generate" 0 '--query has no effect' generate --model "$model" --tokens 5,6 --max-new 1 --greedy --query "What?"
runs "others are not" 0 . eval --model "$work/t1" --data "$data"
check "spoken of" sh -c "! grep -q 'no effect' '$work/stderr'"

runs "eval gives the golden loss" 0 '"loss"' eval --model "$model" --data "$data" --tp 1 --json
check "within its tolerance" near "$(json_number "$work/stdout" loss)" "$(json_number "$llama/tiny_llama/info.json" loss)" 1e-5
runs "eval on three ranks writes logits" 0 . eval --model "$model" --data "$data" --tp 3 --save-logits "$work/l3.safetensors" --json
runs "eval on one rank too" 0 . eval --model "$model" --data "$data" --tp 1 --save-logits "$work/l1.safetensors" --json
same "the same ones" "$work/l1.safetensors" "$work/l3.safetensors"

runs "merge the adapter" 0 . merge "$model" "$work/t1/adapter" "$work/merged"
runs "diff sees what changed and says no" 1 'q_proj' diff "$model" "$work/merged"
runs "diff of a model with itself says yes" 0 . diff "$model" "$model"
runs "diff of a model with its shards says yes" 0 . diff "$model" "$llama/tiny_llama/hf_sharded"
runs "eval with the adapter" 0 . eval --model "$model" --adapter "$work/t1/adapter" --data "$data" --json
adapted=$(json_number "$work/stdout" loss)
runs "eval of the merged model" 0 . eval --model "$work/merged" --data "$data" --json
check "gives the same loss" near "$(json_number "$work/stdout" loss)" "$adapted" 1e-4

# Flags beside an adapter say what it is, or are refused.
from=(--model "$model" --data "$data" --adapter "$work/t1/adapter" --micro-batch 1)
while read -r name pattern flags; do
    # shellcheck disable=SC2086
    runs "$name beside an adapter that has another" 2 "sheaf: --$name .*expected: ${pattern//_/ } the config of --adapter.*try: +without --$name" train "${from[@]}" --steps 1 $flags --out "$work/none"
done <<'END'
lora-rank 4,_as --lora-rank 2
lora-alpha 8,_as --lora-alpha 99
lora-targets the_value_in --lora-targets k_proj
lora-exclude the_value_in --lora-exclude k_proj
lora-layers the_value_in --lora-layers 0
lora-dropout 0,_as --lora-dropout 0.5
lora-rslora false,_as --lora-rslora
lora-bias none,_as --lora-bias all
lora-rank-pattern the_value_in --lora-rank-pattern q_proj=2
lora-alpha-pattern the_value_in --lora-alpha-pattern q_proj=2
modules-to-save the_value_in --modules-to-save lm_head
END
printf 'lora-rank: 2\n' >"$work/rank.recipe"
absent "nothing is left of these" "$work/none"
runs "a recipe's line is passed over" 0 'of the recipe lora-rank: the config of --adapter decides' train "${from[@]}" --steps 1 --recipe "$work/rank.recipe" --out "$work/wins"
runs "and goes on with it" 0 'going on after step 1' train "${from[@]}" --steps 2 --recipe "$work/rank.recipe" --out "$work/wins" --resume
runs "none" 0 . train "${from[@]}" --steps 1 --out "$work/plain"
check "gives settings the adapter's" bash -c "grep -qx 'lora-rank: 4' '$work/plain/settings' && grep -qx 'lora-alpha: 8' '$work/plain/settings' && ! grep -q lora-targets '$work/plain/settings'"
alike=(--lora-rank 4 --lora-targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --lora-rank-pattern q_proj=4)
runs "those that mean the same" 0 . train "${from[@]}" --steps 1 "${alike[@]}" --out "$work/alike"
runs "which goes on" 0 'going on after step 1' train --resume --steps 2 --out "$work/plain"
same "as with the recipe" "$work/plain/adapter" "$work/wins/adapter"
runs "and go on" 0 'going on after step 1' train "${from[@]}" --steps 2 "${alike[@]}" --out "$work/alike" --resume
same "to the same" "$work/plain/adapter" "$work/alike/adapter"

runs "two ranks, as often the one as the other" 0 . train --model "$model" --data "$data" --micro-batch 1 --steps 1 --lora-rank 4 --lora-targets q_proj,v_proj --lora-rank-pattern v_proj=8 --out "$work/ranks"
from=(--model "$model" --data "$data" --adapter "$work/ranks/adapter" --micro-batch 1 --steps 1 --out "$work/one")
runs "of which the first is the adapter's" 2 'sheaf: --lora-rank .*expected: 4, as the config of --adapter' train "${from[@]}" --lora-rank 8
runs "when it is said" 0 . train "${from[@]}" --lora-rank 4

runs "generate with the adapter on one rank" 0 '"tokens"' generate --model "$model" --adapter "$work/t1/adapter" --tokens 1,5,9 --max-new 8 --greedy --tp 1 --json
cp "$work/stdout" "$work/g1"
runs "and on three" 0 '"tokens"' generate --model "$model" --adapter "$work/t1/adapter" --tokens 1,5,9 --max-new 8 --greedy --tp 3 --json
same "gives the same tokens" "$work/g1" "$work/stdout"
runs "info knows a model" 0 'llama' info "$model"
runs "info knows an adapter" 0 'adapter.*rank' info "$work/t1/adapter"
runs "plan answers with bytes per rank" 0 '"ranks".*"peak"' plan --model "$model" --method lora --tp 2 --json
finish
