#!/usr/bin/env bash
# --objective: pairs of answers. The same bytes on every number of ranks and groups, with what is offloaded or recomputed, and
# across a stop; which reference; what an evaluation reports; what does not go together; memory as planned. SHEAF_SOAK=1: more peaks.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

model=$work/model
sed 's/_size": 192/_size": 48/; s/_size": 500/_size": 125/; s/_layers": 4/_layers": 2/' "$SHEAF_SOURCE_ROOT/demo/model.json" >"$work/model.json"
"$sheaf" init "$work/model.json" "$model" --seed 1 >/dev/null 2>&1 || fail "init of a model"
for ((i = 0; i < 24; i++)); do # answers of different lengths; each sixth pair has its longer answer rejected
    good="yes, $i" bad="no, never, not $((i * i)) of them"
    [ $((i % 6)) -ne 0 ] || { good="yes, all $((i * 31)) of them"; bad=no; }
    printf '{"prompt": "row %d %0*d is", "chosen": " %s.", "rejected": " %s."}\n' $i $((4 + i % 7)) $i "$good" "$bad"
done >"$work/pairs.jsonl"
sed 's/"chosen"/"completion"/; s/, "rejected".*/}/' "$work/pairs.jsonl" >"$work/plain.jsonl"
data=(--model "$model" --data "$work/pairs.jsonl")
run() { # run OUT FLAG...
    local out=$work/$1
    shift
    rm -rf "$out"
    [[ " $* " == *" --method full "* ]] || set -- --lora-targets all-linear --lora-rank 4 "$@"
    [[ " $* " == *" --steps "* ]] || set -- --steps 3 --micro-batch 2 --accumulate 4 --lr 2e-2 "$@"
    "$sheaf" train "${data[@]}" --seed 3 --out "$out" "$@" >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
}

# ---- the same bytes ----
alike "dpo" --objective dpo --beta 0.5 -- "--tp 3 --threads 4 --keep-activations none" "--dp 2 --isa avx2 --keep-activations all" "--tp 2 --dp 2 --keep-activations pairs --offload none" "--tp 2 --dp 4 --offload weights,moments,activations"
check "it learns" awk -v first="$(metric one 1 loss)" -v last="$(metric one 3 loss)" 'BEGIN { exit !(first > 0.6931 && first < 0.6932 && last < 0.6) }'
alike "losses that are added, in bfloat16" --objective dpo --loss-type sigmoid,sft --loss-weights 1,0.5 --ld-alpha 0.5 --dtype bfloat16 -- "--tp 2 --dp 2 --keep-activations none" "--tp 3 --keep-activations pairs"
alike "simpo of all weights" --objective simpo --method full --accumulators 2 --cpo-alpha 0.5 -- "--tp 3" "--dp 2 --keep-activations pairs --offload moments"
check "a margin of 0" run other --objective simpo --simpo-gamma 0 --steps 1
check "which is stored" grep -qx 'simpo-gamma: 0' "$work/other/settings"
check "is none" near "$(metric other 1 loss)" 0.693 0.1
alike "rows of like length" --objective ipo --group-by-length -- "--tp 2"
alike "wpo" --objective dpo --use-weighting --f-divergence-type js_divergence -- "--tp 3 --dp 2 --keep-activations none"
alike "orpo" --objective orpo -- "--tp 2 --dp 2"
awk 'NR % 3 { sub(/"chosen"/, "\"completion\""); sub(/, "rejected".*/, ", \"label\": true}") }
    NR % 3 == 0 { sub(/"chosen": "[^"]*", "rejected"/, "\"completion\""); sub(/}$/, ", \"label\": false}") }
    { print }' "$work/pairs.jsonl" >"$work/judged.jsonl"
grep true "$work/judged.jsonl" >"$work/alike.jsonl"
data=(--model "$model" --data "$work/judged.jsonl")
alike "kto" --objective kto --undesirable-weight 2 --shuffle -- "--dp 2" "--tp 3 --dp 4 --keep-activations none"
check "its numbers have the drift" grep -q '"rewards/margins": .*"kl": ' "$work/one/metrics.jsonl"
check "kto is stopped" eval 'run half --objective kto --undesirable-weight 2 --save-every 1 --max-time 0.0001 >/dev/null || test $? = 3'
runs "and goes on" 0 'step 3/3' train --out "$work/half" --resume --max-time 0 --tp 2
check "to the bytes of one run" equal one half
runs "answers of one kind" 0 'no answer of 16 is undesirable' train "${data[@]/judged/alike}" --steps 1 --micro-batch 2 --objective kto --out "$work/kind"
runs "of micro-batches of two at least" 2 '--micro-batch.*at least 2 with kto' train "${data[@]}" --steps 1 --objective kto --out "$work/none"
data=(--model "$model" --data "$work/pairs.jsonl")
check "from pairs, chosen answers and then rejected ones" run one --objective kto --steps 1 --micro-batch 48 --no-shuffle
sed 's/"chosen"/"completion"/; s/, "rejected".*}/, "label": true}/' "$work/pairs.jsonl" >"$work/apart.jsonl"
sed 's/"chosen": "[^"]*", "rejected"/"completion"/; s/}$/, "label": false}/' "$work/pairs.jsonl" >>"$work/apart.jsonl"
data=(--model "$model" --data "$work/apart.jsonl")
check "which are these" eval 'run other --objective kto --steps 1 --micro-batch 48 --no-shuffle && equal one other'
sed 's/"prompt"/"margin": 0.5, &/' "$work/pairs.jsonl" >"$work/margins.jsonl"
data=(--model "$model" --data "$work/margins.jsonl")
alike "reward" --objective reward --center-rewards-coefficient 0.01 -- "--tp 3 --threads 4 --offload weights" "--dp 2" "--tp 2 --dp 4 --keep-activations none"
check "in bfloat16" run one --objective reward --dtype bfloat16
check "of all weights" run whole --objective reward --method full --accumulators 2
check "on ranks and groups" run other --objective reward --method full --accumulators 2 --tp 3 --dp 2
check "the same bytes" equal whole other
check "reward is stopped" eval 'run half --objective reward --method full --accumulators 2 --save-every 1 --max-time 0.0001 >/dev/null || test $? = 3'
runs "and goes on" 0 'step 3/3' train --out "$work/half" --resume --max-time 0 --tp 2
check "to the bytes of one run" equal whole half
data=(--model "$model" --data "$work/pairs.jsonl")

# ---- stopped and resumed ----
# The reference is the model as the whole run began, not as it goes on.
check "a run in one" run whole --objective dpo --beta 0.5
for way in "--save-every 1 --max-time 0.0001" "--max-time 0.0001 --dp 2"; do
    # shellcheck disable=SC2086
    check "stops: $way" eval 'run half --objective dpo --beta 0.5 $way >/dev/null || test $? = 3'
    runs "goes on after it" 0 'step 3/3' train --out "$work/half" --resume --max-time 0 --tp 2
    check "to the bytes of one run" equal whole half
    check "and its losses" test "$(metric whole 1,3 loss)" = "$(metric half 1,3 loss)"
done
# ---- the reference is kept ----
kept() { # kept NAME: a copy of a run that has stopped after its first step
    rm -rf "${work:?}/$1"
    cp -r "$work/stopped" "$work/$1"
}
damage() { # damage RUN OFFSET...: bytes of its reference
    local run=$1 at
    shift
    for at; do printf '\001' | dd of="$work/$run/reference" bs=1 seek="$at" conv=notrunc 2>/dev/null; done
}
check "a run that stops" eval 'run stopped --objective dpo --beta 0.5 --max-time 0.0001 >/dev/null || test $? = 3'
check "has its reference: a key and a number of each row" test "$(stat -c %s "$work/stopped/reference")" = $((32 + 8 * 48))
check "little endian, sums of log-probabilities" python3 -c 'import struct, sys; s = struct.unpack("<32x48d", open(sys.argv[1], "rb").read()); sys.exit(any(not -1e3 < x < -1 for x in s))' "$work/stopped/reference"
for way in 0 "$(seq -s ' ' 38 8 414)"; do # its key, or every number
    kept half
    # shellcheck disable=SC2086
    check "damaged" damage half $way
    runs "goes on" 0 'step 3/3' train --out "$work/half" --resume --max-time 0
    [ "$way" = 0 ] && check "with another one's it makes its own" equal whole half
    [ "$way" = 0 ] || check "which is read" unequal whole half
done
kept half
rm -rf "$work"/half/checkpoints/step-*
check "damaged before the first step" damage half 39
runs "is found" 3 'step 1: rewards.*expected: +0: the reference is the model as it begins' train --out "$work/half" --resume --max-time 0
kept half
rm "$work/half/reference" && mkdir "$work/half/reference"
runs "one that cannot be kept ends the run" 3 'half/reference' train --out "$work/half" --resume --max-time 0
check "as it was" test ! -e "$work/half/adapter"
kept half # as if it was killed after its sums
rm -rf "$work"/half/checkpoints/step-*
: >"$work/half/metrics.jsonl"
echo '{}' >"$work/half/rollouts.jsonl"
damage half 39
runs "one without a step begins anew" 0 'begins anew.*step 3/3' train "${data[@]}" --seed 3 --out "$work/half" --lora-targets all-linear \
    --lora-rank 4 --steps 3 --micro-batch 2 --accumulate 4 --lr 2e-2 --objective dpo --beta 0.5
check "with sums of its own" equal whole half
absent "and nothing of the other's" "$work/half/rollouts.jsonl"
shared=(--reference-cache "$work/cache/of it")
check "in a folder that runs share" run cached --objective dpo --beta 0.5 "${shared[@]}"
check "it changes nothing" equal whole cached
absent "and OUT has none" "$work/cached/reference"
cp -r "$work/cache" "$work/cache.made"
check "other steps and ranks" run other --objective dpo --loss-type hinge --steps 2 --micro-batch 4 --lr 1e-3 --tp 2 "${shared[@]}"
check "read the same file" diff -r "$work/cache" "$work/cache.made"
(cd "$work/cache/of it" && for at in $(seq 38 8 414); do printf '\001' | dd of="$(ls)" bs=1 seek="$at" conv=notrunc 2>/dev/null; done)
check "as one with other numbers shows" eval '! run cached --objective dpo "${shared[@]}" >/dev/null && grep -q "step 1: rewards" "$work/said"'
check "another dtype makes its own" eval 'run cached --objective dpo --dtype bfloat16 "${shared[@]}" && test "$(ls "$work/cache/of it" | wc -l)" = 2'
check "a folder beside where the run began" eval '(cd "$work" && run half --objective dpo --beta 0.5 --reference-cache near --max-time 0.0001) >/dev/null || test $? = 3'
check "is that of a run which goes on elsewhere" eval 'cd "$model" && "$sheaf" train --out "$work/half" --resume --max-time 0 --quiet && cd - >/dev/null && equal whole half && test -e "$work/near"'
absent "and no other one is made" "$model/near"
runs "with no other beta" 2 '--beta cannot change.*expected: +0.5' train --out "$work/half" --resume --steps 4 --beta 0.1
runs "nor objective" 2 '--objective cannot change.*expected: +dpo' train --out "$work/half" --resume --steps 4 --objective ipo

# ---- the reference ----
again=(--adapter "$work/whole/adapter" --objective dpo --beta 0.5)
fresh() { # without the flags that make an adapter
    local out=$work/$1
    shift
    rm -rf "$out"
    "$sheaf" train "${data[@]}" --steps 3 --micro-batch 2 --accumulate 4 --lr 1e-3 --out "$out" "$@" >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
}
check "from an adapter" fresh start "${again[@]}"
check "which is named" grep -q 'the reference is the model as it begins' "$work/said"
check "and is where it begins" near "$(metric start 1 loss)" 0.693147 1e-6
check "start, by name" fresh named "${again[@]}" --reference start
check "is the default" equal start named
check "or from the base" fresh base "${again[@]}" --reference base
check "which is named" grep -q 'the reference is the base model' "$work/said"
check "from which it is far already" awk -v loss="$(metric base 1 loss)" 'BEGIN { exit !(loss < 0.6) }'
check "the base, on two ranks" fresh other "${again[@]}" --reference base --tp 2
check "has the same bytes" equal base other
check "the base, stopped" eval 'fresh half "${again[@]}" --reference base --max-time 0.0001 >/dev/null || test $? = 3'
runs "goes on" 0 'step 3/3' train --out "$work/half" --resume --max-time 0
check "to the same bytes" equal base half
check "a new adapter begins at the base" run one --objective dpo --beta 0.5 --reference base
check "so that both are one" equal one whole
check "dpo's losses by their own names" eval 'run one --objective hinge && run other --objective dpo --loss-type hinge'
check "are the same" equal one other

check "another adapter" fresh other --adapter "$work/start/adapter" --objective dpo --beta 0.5 --reference "$work/whole/adapter"
check "which is named" grep -q "the reference is $work/whole/adapter" "$work/said"
check "makes another run" eval 'fresh one --adapter "$work/start/adapter" --objective dpo --beta 0.5 && unequal one other'
check "an adapter that is its own reference" fresh one "${again[@]}" --reference "$work/whole/adapter" --tp 2 --dp 2
check "is the start" equal one start
refers=(--objective dpo --beta 0.5 --reference)
check "a new adapter beside another" run one "${refers[@]}" "$work/whole/adapter"
cp -r "$work/whole/adapter" "$work/changed"
stopped() { run half "${refers[@]}" "$work/changed" --max-time 0.0001 >/dev/null || test $? = 3; }
check "stopped" stopped
rm -rf "$work"/half/checkpoints/step-*
runs "begins where new ones do" 0 'step 3/3' train --out "$work/half" --resume --max-time 0
check "when its sums are there already" equal one half
check "stopped again" stopped
rm -rf "$work"/half/checkpoints/step-* "$work/changed"
cp -r "$work/start/adapter" "$work/changed"
runs "with another one in its place" 0 'step 3/3' train --out "$work/half" --resume --max-time 0
check "it has the sums of that" eval 'run other "${refers[@]}" "$work/changed" && equal half other && unequal one other'
unlike=(train "${data[@]}" --steps 1 --out "$work/no" "${refers[@]}" "$work/whole/adapter")
runs "of another rank" 3 'whole/adapter: --reference: its modules.*rank 8, .*found: .*rank 4, .*sheaf merge' "${unlike[@]}" --lora-targets all-linear --lora-rank 8 --lora-alpha 16
runs "of another alpha" 3 'its modules.*rank 4, alpha 5, ' "${unlike[@]}" --lora-targets all-linear --lora-rank 4 --lora-alpha 5
runs "of another scale" 3 'its modules.*rank 4, .*scale 4' "${unlike[@]}" --lora-targets all-linear --lora-rank 4 --lora-rslora
runs "of more modules" 3 'expected: .*layers.1.self_attn.q_proj.*found: .*layers.0.self_attn.k_proj' "${unlike[@]}" --lora-targets q_proj --lora-rank 4
runs "where no adapter is trained" 3 'expected: +a model, as this run trains no adapter' "${unlike[@]}" --method full
check "a model of other weights" "$sheaf" init "$work/model.json" "$work/second" --seed 2 --quiet
data=(--model "$work/second" --data "$work/pairs.jsonl")
check "its adapter" run other --objective orpo --steps 1
data=(--model "$model" --data "$work/pairs.jsonl")
runs "is of another base" 3 'other/adapter: its base.*fingerprint' train "${data[@]}" --steps 1 --out "$work/no" "${refers[@]}" "$work/other/adapter" \
    --lora-targets all-linear --lora-rank 4
check "another model, whose bytes are the base's" eval 'cp -r "$model" "$work/copy" && fresh one "${again[@]}" --reference "$work/copy"'
check "is the base" equal one base
check "one of another shape" "$sheaf" init tiny-bytes "$work/mini" --seed 1 --quiet
runs "is refused" 3 'mini: .*the tensors of the model that is trained' train "${data[@]}" --steps 1 --objective dpo --reference "$work/mini" --out "$work/no"
check "one that computes otherwise" sed -i 's/"rope_theta": [0-9.]*/"rope_theta": 20000.0/' "$work/copy/config.json"
check "is another model" eval '! cmp "$model/config.json" "$work/copy/config.json"'
runs "is refused, too" 3 'copy: config.json: .rope_theta.*expected: +10000, as of the model.*found: +20000' train "${data[@]}" --steps 1 --objective dpo --reference "$work/copy" --out "$work/no"
sed -e 's/"rope_theta": 20000.0/"rope_theta": 10000.0/; s/"eos_token_id": 257/"text_processor_version": "vqa", "eos_token_id": 258/; s/"max_position_embeddings": /&9/' -i "$work/copy/config.json"
check "but for what ends a text, its template and how long one may be" eval 'fresh one "${again[@]}" --reference "$work/copy" && equal one base'
check "and leaves nothing" test ! -e "$work/no"

# ---- evaluation ----
evals() { sed -n 's/.*"eval_loss": \([0-9.e-]*\), "eval_accuracy": \([0-9.]*\), "eval_tokens": \([0-9]*\).*/\1 \2 \3/p' "$work/$1/metrics.jsonl"; }
check "with pairs held out" run seen --objective dpo --beta 0.5 --eval-split 0.25 --eval-every 1
check "their loss falls, all are right, of six" awk -v all="$(evals seen | tr '\n' ' ')" 'BEGIN { n = split(all, x, " "); exit !(n == 9 && x[7] < x[1] && x[7] < 0.6 && x[8] == 1 && x[9] == 6) }'
check "on two ranks, two groups" run other --objective dpo --beta 0.5 --eval-split 0.25 --eval-every 1 --tp 2 --dp 2
check "the same" test "$(evals seen)" = "$(evals other)"
check "from another file" run one --objective dpo --beta 0.5 --eval-data "$work/pairs.jsonl"
check "which has all" awk -v all="$(evals one)" 'BEGIN { split(all, x, " "); exit !(x[1] < 0.5 && x[2] > 0.9 && x[3] == 24) }'
check "after one step of no size, what it trained on" run one --objective dpo --loss-type sigmoid,sft --ld-alpha 0.3 --eval-data "$work/pairs.jsonl" --steps 1 --micro-batch 24 --lr 1e-30
check "has the same loss" near "$(metric one 1 loss)" "$(evals one | cut -d' ' -f1)" 2e-6
check "as with pairs that the model is not sure of" run one --objective dpo --use-weighting --eval-data "$work/pairs.jsonl" --steps 1 --micro-batch 24 --accumulate 1 --lr 1e-30
check "the same loss, too" near "$(metric one 1 loss)" "$(evals one | cut -d' ' -f1)" 2e-6
check "which is less" awk -v loss="$(metric one 1 loss)" 'BEGIN { exit !(loss > 0 && loss < 0.69) }'
check "and equal answers are not right" awk -v all="$(evals one)" 'BEGIN { split(all, x, " "); exit !(x[2] == 0) }'

check "as with prompts that are learnt" run prompted --objective orpo --eval-data "$work/pairs.jsonl" --steps 1 --micro-batch 24 --accumulate 1 --lr 1e-30
check "the same loss, too" near "$(metric prompted 1 loss)" "$(evals prompted | cut -d' ' -f1)" 2e-6
evaluated() { "$sheaf" eval "$@" 2>"$work/said" >"$work/stdout" || { cat "$work/said"; return 1; }; }
found_again() { # found_again RUN KEY...: an evaluation gave these numbers of the run's last one
    python3 - "$(tail -n 1 "$1/metrics.jsonl")" "$(cat "$work/stdout")" "${@:2}" <<'END'
import json, sys
run, found = (json.loads(text) for text in sys.argv[1:3])
sys.exit(", ".join(f"{key}: {run['eval_' + key]}, {found[key]}" for key in sys.argv[3:] if run["eval_" + key] != found[key]) or None)
END
}
# as_trained RUN DATA FLAG...: eval gives the numbers of the run's last evaluation, all of their places
as_trained() {
    local run=$work/$1 data=$2
    shift 2
    evaluated "$run" "$data" --json "$@" && found_again "$run" loss accuracy rewards/chosen rewards/rejected rewards/accuracies logps/chosen
}
for way in "" "--tp 3 --dp 2" "--place 1,1"; do
    # shellcheck disable=SC2086
    check "eval, beta of the run: $way" as_trained one "$work/pairs.jsonl" --objective dpo $way
done
# as_named RUN FLAG...: of its adapter alone, on a named model, with flags for the run's settings, eval gives its last loss
as_named() {
    local run=$1
    shift
    rm -rf "$work/alone" && cp -r "$work/$run/adapter" "$work/alone"
    evaluated --model "$model" --data "$work/pairs.jsonl" --adapter "$work/alone" --objective dpo "$@" || return 1
    grep -q "^loss $(printf %.6f "$(evals "$run" | cut -d' ' -f1)"), accuracy .* over 24 samples" "$work/stdout" || { cat "$work/stdout"; return 1; }
}
check "of its adapter, on a named model" as_named one --use-weighting
check "with other names" grep -q '^rewards/chosen .*, rewards/margins .*, logps/rejected [-0-9.]*$' "$work/stdout"
check "of all weights" run other --objective dpo --method full --eval-data "$work/pairs.jsonl"
check "whose reference is their base" as_trained other "$work/pairs.jsonl" --objective dpo
check "of an adapter that goes on" fresh other "${again[@]}" --eval-data "$work/pairs.jsonl"
check "whose reference is where it began" as_trained other "$work/pairs.jsonl" --objective dpo --tp 2
check "or the base, by name" eval '! as_trained other "$work/pairs.jsonl" --objective dpo --reference base >/dev/null'
sure=(--use-weighting --f-divergence-type alpha_divergence --f-alpha-divergence-coef 0.3)
check "of pairs that count by how sure the model is, by another divergence" run other --objective dpo "${sure[@]}" --eval-data "$work/pairs.jsonl"
for way in "" "--tp 3 --dp 2"; do
    # shellcheck disable=SC2086
    check "as the run had it: $way" as_trained other "$work/pairs.jsonl" --objective dpo $way
done
check "as flags have it" as_named other "${sure[@]}" --tp 2
check "without weights they are others" eval '! as_named other "${sure[@]:1}" >/dev/null'
check "so with another coefficient" eval '! as_named other "${sure[@]:0:4}" 0.6 >/dev/null'
check "beside another adapter" fresh other --adapter "$work/start/adapter" --objective dpo --beta 0.5 --reference "$work/whole/adapter" --eval-data "$work/pairs.jsonl"
for way in "" "--tp 3 --dp 2"; do
    # shellcheck disable=SC2086
    check "which the run had: $way" as_trained other "$work/pairs.jsonl" --objective dpo $way
done
check "which a flag names" as_named other --beta 0.5 --reference "$work/whole/adapter"
check "without it they are others" eval '! as_named other --beta 0.5 >/dev/null'
check "another model" "$sheaf" merge "$model" "$work/start/adapter" "$work/joined" --quiet
check "beside which" fresh other "${again[@]}" --reference "$work/joined" --eval-data "$work/pairs.jsonl"
check "which the run had" as_trained other "$work/pairs.jsonl" --objective dpo
check "which a flag names" as_named other --beta 0.5 --reference "$work/joined"
runs "of another shape" 3 'the reference: .*mini: .*the tensors of the model' eval "$work/one" "$work/pairs.jsonl" --objective dpo --reference "$work/mini"
runs "without an objective, weights" 2 '--use-weighting .*expected: none with --objective sft' eval "$work/one" "$work/pairs.jsonl" --use-weighting
runs "a divergence" 2 '--f-divergence-type .*expected: none with --objective sft' eval "$work/one" "$work/pairs.jsonl" --f-divergence-type forward_kl
runs "and a reference" 2 '--reference .*expected: none with --objective sft' eval "$work/one" "$work/pairs.jsonl" --reference base
data=(--model "$model" --data "$work/judged.jsonl")
check "of kto, whose micro-batches drift" run other --objective kto --eval-data "$work/judged.jsonl"
data=(--model "$model" --data "$work/pairs.jsonl")
check "of judged answers" as_trained other "$work/judged.jsonl" --objective kto
check "orpo needs no reference" evaluated --model "$model" --data "$work/pairs.jsonl" --objective orpo
runs "dpo does" 2 '--objective dpo .*expected: the folder of a run, or an adapter.*found: +a model alone' eval --model "$model" --data "$work/pairs.jsonl" --objective dpo
runs "beta alone" 2 '--beta .*expected: none with --objective sft' eval --model "$model" --data "$work/pairs.jsonl" --beta 0.1
runs "logits are of tokens" 2 '--save-logits .*expected: none with --objective orpo' eval --model "$model" --data "$work/pairs.jsonl" --objective orpo --save-logits "$work/logits.safetensors"

# ---- pictures ----
for name in adam7_rgb8.png 420.jpg rgb8.png; do cp "$SHEAF_SOURCE_ROOT/tests/data/images/$name" "$work/"; done
cat >"$work/shown.jsonl" <<'END'
{"images": ["420.jpg"], "prompt": [{"role": "user", "content": "<image>What?"}], "chosen": [{"role": "assistant", "content": "Noise."}], "rejected": [{"role": "assistant", "content": "Nothing at all, I think."}]}
{"image": "rgb8.png", "conversations": [{"from": "human", "value": "Is it?"}], "chosen": {"from": "gpt", "value": "Yes, it is."}, "rejected": {"from": "gpt", "value": "No."}}
{"images": ["adam7_rgb8.png"], "rejected_images": ["adam7_rgb8.png"], "messages": [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": "So."}], "rejected_response": "Not so."}
{"prompt": [{"role": "user", "content": "Without one?"}], "chosen": [{"role": "assistant", "content": "Yes."}], "rejected": [{"role": "assistant", "content": "No."}]}
END
# Judged answers of one text, so that a prompt with another one's answer is the prompt with its own.
cat >"$work/seen.jsonl" <<'END'
{"images": ["420.jpg"], "prompt": [{"role": "user", "content": "<image>What?"}], "completion": [{"role": "assistant", "content": "Noise."}], "label": true}
{"image": "rgb8.png", "conversations": [{"from": "human", "value": "Which of these?"}, {"from": "gpt", "value": "Noise."}], "kto_tag": true}
{"messages": [{"role": "user", "content": "And?"}, {"role": "assistant", "content": "Noise."}], "label": true}
END
sed -E -e '1s/\{/{"sheaf_tokenizer": "bytes",/' -e 's/"vocab_size": *[0-9]+/"vocab_size": 350/' -e 's/"max_position_embeddings": *[0-9]+/"max_position_embeddings": 2048/' \
    -e 's/"((vision_start|vision_end|image|video)_token_id": *)/"\13/' "$SHEAF_SOURCE_ROOT/tests/data/successors/qwen2_5_vl/hf/config.json" >"$work/qwen2_5_vl-tiny"
declare -A recipe=([cogvlm-tiny]=cogvlm-lora-clean [minicpmv-tiny]=minicpmv-lora [qwen2_5_vl-tiny]=qwenvl-lora)
for spec in "${!recipe[@]}"; do
    of=$spec
    [ ! -e "$work/$spec" ] || of=$work/$spec
    check "$spec" "$sheaf" init "$of" "$work/$spec.model" --seed 1 --quiet
    data=(--model "$work/$spec.model" --data "$work/shown.jsonl")
    alike "$spec: pairs with pictures" --objective dpo --steps 3 --micro-batch 2 --accumulate 2 --lr 1e-2 -- "--tp 3 --dp 2 --keep-activations none" "--tp 2 --keep-activations pairs"
    SHEAF_RECIPES=$SHEAF_SOURCE_ROOT/recipes runs "$spec: by a recipe for answers" 0 'all ranks in one process' plan "${data[@]}" --recipe "${recipe[$spec]}" --objective dpo --seq 512
    data=(--model "$work/$spec.model" --data "$work/seen.jsonl")
    alike "$spec: judged ones" --objective kto --beta 1 --steps 3 --micro-batch 3 --accumulate 2 --lr 1e-2 -- "--tp 3 --dp 2"
    check "$spec: the drift of one answer is the reward" near "$(metric one 3 kl)" "$(metric one 3 rewards/chosen)" 1e-12
    check "$spec: which is above 0" awk -v kl="$(metric one 3 kl)" 'BEGIN { exit !(kl > 0.1) }'
    data=(--model "$work/$spec.model" --data "$work/shown.jsonl")
    check "$spec: pairs as judged answers" run one --objective kto --steps 1 --micro-batch 8 --lr 1e-2
    check "$spec: all of both kinds" grep -q '"rewards/accuracies": 0,' "$work/one/metrics.jsonl"
done
tiny=(train --model "$work/cogvlm-tiny.model" --steps 1 --micro-batch 2 --out "$work/no")
sed 's/"rejected_images": \["adam7_rgb8/"rejected_images": ["no/' "$work/shown.jsonl" >"$work/other.jsonl"
runs "pictures that differ" 3 'line 3: field .rejected_images.*the pictures of' "${tiny[@]}" --data "$work/other.jsonl" --objective dpo
runs "are left out as a pair" 0 'step 1/1' "${tiny[@]}" --data "$work/other.jsonl" --objective dpo --on-bad skip
rm -rf "$work/no"
sed 's/"completion": \[/&{"role": "assistant", "content": "Hm."}, {"role": "user", "content": "Well?"}, /; s/"completion"/"rejected": [{"role": "assistant", "content": "No."}], "chosen"/' "$work/seen.jsonl" | head -1 >"$work/turns.jsonl"
runs "answers that CogVLM does not learn" 3 'line 1: .*one answer behind the prompt' "${tiny[@]}" --data "$work/turns.jsonl" --objective dpo
runs "a folder of pictures" 3 'a file of records that name their picture' "${tiny[@]}" --data "$SHEAF_SOURCE_ROOT/tests/data/images" --objective dpo
python3 - "$work/ids.safetensors" <<'END'
import json, struct, sys
head = json.dumps({"%s.%s" % (s, t): {"dtype": "I32", "shape": [1, 2], "data_offsets": [8 * i, 8 * i + 8]} for i, (s, t) in enumerate((s, t) for s in ("chosen", "rejected") for t in ("input_ids", "labels"))})
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head.encode() + struct.pack("<8i", *[1] * 8))
END
for objective in dpo kto; do
    runs "pairs of ids with a model that sees, $objective" 3 'JSON records of pairs' "${tiny[@]}" --data "$work/ids.safetensors" --objective $objective
done
data=(--model "$model" --data "$work/pairs.jsonl")

# ---- what a pair's answers are ----
cat >"$work/turns.jsonl" <<'END'
{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}], "rejected": [{"role": "assistant", "content": "e"}]}
END
chat=(train --model "$model" --data "$work/turns.jsonl" --steps 1 --objective dpo --template chatml)
runs "the answers" 0 '>>>b<\|im_end\|><<<.n<\|im_start\|>user.nc.*>>>d<\|im_end\|><<<.n' "${chat[@]}" --out "$work/behind"
rm -rf "$work/behind"
runs "or all behind the prompt, as TRL" 0 'assistant.n>>>b<\|im_end\|>.n<\|im_start\|>user.nc.*d<\|im_end\|>.n<<<' "${chat[@]}" --loss-on all-behind-prompt --out "$work/behind"

# ---- reward models ----
check "a reward model" run one --objective reward --eval-data "$work/pairs.jsonl"
check "its file is PEFT's" grep -qa '"base_model.model.score.weight"' "$work/one/adapter/adapter_model.safetensors"
check "of its task" grep -q '"task_type": "SEQ_CLS"' "$work/one/adapter/adapter_config.json"
check "whole" run other --objective reward --method full --eval-data "$work/pairs.jsonl"
check "is transformers' class" grep -q 'LlamaForSequenceClassification' "$work/other/model/config.json"
check "with one label" grep -q '"0": "LABEL_0"' "$work/other/model/config.json"
scored() { # scored RUN FLAG...: eval of pairs gives the loss and rewards of the run's last evaluation
    evaluated --objective reward --json "${@:2}" && found_again "$work/$1" loss accuracy min_reward mean_reward max_reward margin
}
for way in "" "--tp 3 --dp 2" "--place 1,1"; do
    # shellcheck disable=SC2086
    check "read again: $way" scored one "$work/one" "$work/pairs.jsonl" $way
done
check "as an adapter" scored one --model "$model" --data "$work/pairs.jsonl" --adapter "$work/one/adapter"
check "as a step" scored one "$work/one/checkpoints/step-00000003" "$work/pairs.jsonl"
check "as a model" scored other "$work/other/model" "$work/pairs.jsonl"
check "as a step of all weights" scored other "$work/other/checkpoints/step-00000003" "$work/pairs.jsonl"
check "merged" "$sheaf" merge "$model" "$work/one/adapter" "$work/merged"
check "into transformers' class" grep -q 'LlamaForSequenceClassification' "$work/merged/config.json"
runs "sound, so without the head of the base" 0 sound verify "$work/merged"
runs "it has no form in GGUF" 3 'a text model that llama.cpp has.*found: +a reward model of .*--to hf' convert "$work/merged" "$work/merged.gguf" --to gguf
absent "and none is written" "$work/merged.gguf"
runs "it gives no logits" 2 'save-logits.*a reward model' eval --model "$work/merged" --data "$work/pairs.jsonl" --save-logits "$work/zeros"
check "it scores" evaluated "$work/merged" "$work/pairs.jsonl" --objective reward
check "as base and adapter do" near "$(sed -n 's/^loss \([0-9.]*\),.*/\1/p' "$work/stdout")" "$(evals one | cut -d' ' -f1)" 2e-6
check "scores of records" evaluated "$work/one" "$work/plain.jsonl"
check "one a line" test "$(grep -c '^-\?[0-9]*\.[0-9]\{6\}$' "$work/stdout")" = 24
cp "$work/stdout" "$work/scores"
check "on ranks" evaluated "$work/one" "$work/plain.jsonl" --tp 2 --dp 2 --micro-batch 7
same "the same" "$work/scores" "$work/stdout"
check "as JSON" evaluated "$work/one" "$work/plain.jsonl" --json
check "with their mean" python3 -c 'import json, sys; x = json.load(open(sys.argv[1])); s = x["scores"]; sys.exit(len(s) != 24 or abs(sum(s) / 24 - x["mean_reward"]) > 1e-9 or x["max_reward"] != max(s))' "$work/stdout"
check "it goes on" fresh half --adapter "$work/one/adapter" --objective reward
data=(--model "$work/other/model" --data "$work/pairs.jsonl")
check "whole too" fresh half --objective reward --method full
data=(--model "$model" --data "$work/pairs.jsonl")
SHEAF_RECIPES=$SHEAF_SOURCE_ROOT/recipes runs "by a recipe for answers, whose packing yields" 0 'result: ' train "${data[@]}" --recipe qwen2-lora --objective reward --lr 1e-4 --epochs 1 --dtype float32 --out "$work/by"
runs "it writes nothing" 3 'expected: a model that writes.*found: +a reward model.*sheaf eval' generate --model "$work/other" --prompt a
runs "it is no model for dpo" 2 '--objective dpo.*expected: reward, of a reward model' eval "$work/one" "$work/pairs.jsonl" --objective dpo
runs "nor for answers" 2 '--objective +expected: reward, of a reward model' train --model "$work/other/model" --data "$work/plain.jsonl" --steps 1 --out "$work/none"
runs "another model scores nothing" 2 '--objective reward +expected: a reward model' eval "$model" "$work/pairs.jsonl" --objective reward
runs "an adapter of answers is no beginning" 2 'expected: an adapter of a reward model .task_type SEQ_CLS.*sheaf merge' train "${data[@]}" --adapter "$work/start/adapter" --objective reward --steps 1 --out "$work/none"

# ---- what does not go together ----
no=(train "${data[@]}" --steps 1 --out "$work/no")
runs "packed rows" 2 '--pack .*expected: none with --objective dpo .*found: +a pair.s loss needs both answers whole' "${no[@]}" --objective dpo --pack
runs "noise" 2 '--neftune-alpha .*expected: none with --objective dpo' "${no[@]}" --objective dpo --neftune-alpha 5
runs "pairs kept of one answer" 2 '--keep-activations pairs .*expected: none with --objective kto .*it is for pairs' "${no[@]}" --objective kto --micro-batch 2 --keep-activations pairs
runs "or of none" 2 '--keep-activations pairs .*expected: none with --objective sft' train --model "$model" --data "$work/plain.jsonl" --steps 1 --out "$work/no" --keep-activations pairs
runs "or away" 2 '--keep-activations pairs .*without .*--offload' "${no[@]}" --objective dpo --keep-activations pairs --offload activations
runs "last answers" 2 '--loss-on last .*expected: none with --objective dpo' "${no[@]}" --objective dpo --loss-on last
runs "prompts that are learnt" 2 '--loss-on all .*expected: none with --objective dpo' "${no[@]}" --objective dpo --loss-on all
runs "records without a pair" 3 'line 1: field .chosen.* .*expected: two answers' train --model "$model" --data "$work/plain.jsonl" --steps 1 --out "$work/no" --objective dpo
runs "pairs without an objective" 3 'field .rejected.*--objective dpo learns from pairs' "${no[@]}"
runs "beta alone" 2 '--beta .*expected: none with --objective sft' "${no[@]}" --beta 0.1
runs "a reference that simpo has not" 2 '--reference .*expected: none with --objective simpo' "${no[@]}" --objective simpo --reference base
runs "nor a cache of one" 2 '--reference-cache .*expected: none with --objective simpo' "${no[@]}" --objective simpo --reference-cache "$work/cache"
runs "an unknown objective" 2 '--objective .*expected: sft, dpo' "${no[@]}" --objective dqo
runs "an unknown loss" 2 '--loss-type .*expected: sigmoid, hinge.*found: +.aot' "${no[@]}" --objective dpo --loss-type aot
runs "an unknown divergence" 2 '--f-divergence-type .*expected: reverse_kl, forward_kl' "${no[@]}" --objective dpo --f-divergence-type kl
runs "beta 0" 2 '--beta +expected: above 0 +found: +0' "${no[@]}" --objective cpo --beta 0
for flag in delta top-p epsilon-high reward-time; do
    runs "--$flag 0 is not its default" 2 "--$flag .*above 0" "${no[@]}" --objective grpo --$flag 0
done
runs "a coefficient that nothing reads" 2 '--f-alpha-divergence-coef .*expected: none' "${no[@]}" --objective dpo --f-alpha-divergence-coef 0.3
runs "weights of pairs and tokens" 2 '--loss-type .*no sft with --use-weighting' "${no[@]}" --objective dpo --loss-type sigmoid,sft --use-weighting
runs "an unknown reference" 2 '--reference .*expected: start or base, or the folder' "${no[@]}" --objective dpo --reference adapter
runs "robust without a share" 2 '--label-smoothing .*expected: above 0 for the loss .exo_pair' "${no[@]}" --objective dpo --loss-type exo_pair
runs "a plan says so, too" 2 '--pack .*expected: none with --objective dpo' plan "${data[@]}" --objective dpo --pack
absent "nothing is written" "$work/no"

# ---- memory ----
base=$(peak_of version)
"$sheaf" init "$SHEAF_SOURCE_ROOT/demo/model.json" "$work/larger" --seed 1 >/dev/null 2>&1 || fail "init of a model to measure"
for ((i = 0; i < 24; i++)); do # rows long enough for activations to count
    printf '{"prompt": "%060d", "chosen": " yes %0*d", "rejected": " no."}\n' $i $((10 + i)) $i
done >"$work/long.jsonl"
for flags in "--objective dpo --tp 3" "--objective dpo --method full --dtype bfloat16" "--objective dpo --keep-activations none" "--objective kto" \
    "--objective reward --method full --tp 2" "--objective dpo --keep-activations all" ${SHEAF_SOAK:+"--objective dpo" "--objective reward" "--objective cpo --dp 2 --accumulate 2" "--objective orpo"
    "--objective simpo --dtype bfloat16" "--objective dpo --use-weighting" "--objective cpo --tp 2 --keep-activations pairs" "--objective dpo --eval-split 0.25 --eval-every 1"}; do
    # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$work/larger" "$work/long.jsonl" --micro-batch 4 $flags
done
kept() { # kept FLAG...: bytes of activations of a step
    rm -rf "$work/other"
    "$sheaf" train "$model" "$work/long.jsonl" --objective dpo --micro-batch 4 --steps 1 --out "$work/other" "$@" >"$work/said" 2>&1
    sed -n 's/.*"activations": \([0-9]*\).*/\1/p' "$work/other/metrics.jsonl" | tail -n 1
}
by_itself=$(kept)
check "a run that keeps both answers says so" grep -q 'activations of both answers are kept' "$work/said"
all=$(kept --keep-activations all)
check "both answers are kept where they fit" test "$by_itself" = "$(kept --keep-activations pairs)" -a "$by_itself" -gt "$all"
echo 'keep-activations: all' >"$work/recipe"
check "or all, of a recipe" test "$(kept --recipe "$work/recipe")" = "$all"
cp "$work/other/settings" "$work/recipe"
check "which the settings of a run do not have" test "$(kept --recipe "$work/recipe")" = "$by_itself"
proposes=(plan --model "$model" --data "$work/long.jsonl" --objective dpo --micro-batch 4 --memory 1G)
runs "which is proposed" 0 'fits: --tp 1 --keep-activations pairs' "${proposes[@]}"
runs "unless another way is asked for" 0 'fits: --tp 1 \(' "${proposes[@]}" --keep-activations all
finish
