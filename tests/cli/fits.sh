#!/usr/bin/env bash
# What needs more memory than there is is refused before it is begun; a run that was killed in its first step is no obstacle.
. "$(dirname "$0")/lib.sh"

mini=$work/mini
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$mini" --seed 1 >/dev/null 2>&1 || fail "init of a model"
for ((i = 0; i < 40; i++)); do printf '{"text": "row %d %0300d"}\n' $i $i; done >"$work/rows.jsonl"
refused='expected: +at most [0-9.]+ [MG]iB, the (available memory of this machine|limit of its control group).*found: +[0-9.]+ [GT]iB needed, [0-9.]+ [GT]iB of it'
how=(--model "$mini" --data "$work/rows.jsonl" --steps 1)

runs "a micro-batch of a million rows" 3 "memory for this run.*$refused activations.*--force" train "${how[@]}" --out "$work/none" --micro-batch 1000000
absent "leaves nothing" "$work/none"
runs "as JSON" 3 '"code": "memory"' train "${how[@]}" --out "$work/none" --micro-batch 1000000 --json
runs "of a length that no row has" 0 . train "${how[@]}" --out "$work/seq" --seq 100000000
check "planned at once, in little time and memory" bash -o pipefail -c 'ulimit -t 10 -v 1000000; "$@" --json | grep -E "\"peak\":[0-9]{12}"' . "$sheaf" plan --model "$mini" --micro-batch 100000 --accumulate 1000000 --seq 400 --tp 3
runs "evaluation likewise" 3 "memory for this evaluation.*$refused" eval --model "$mini" --data "$work/rows.jsonl" --seq 100000000 --save-logits "$work/logits"
absent "leaves no logits" "$work/logits"
runs "answers of millions of tokens" 3 "memory for these answers.*$refused cache" generate --model "$mini" --prompt a --max-new 10000000
runs "in a chat" 3 "memory for these answers.*$refused activations" chat --model "$mini" --max-new 10000000 --max-length 10000000

# ---- how many parameters are trained: rank 8 on q (512 to 512) and v (512 to 256) of four layers, by hand ----
count='"parameters":12066304,"trained":57344,"trained_share":0.004729[0-9]*,"trained_bytes":229376'
told='"trained": 57344, "trained_bytes": 229376, "parameters": 12066304, "trained_share": 0.004729'
runs "train says it" 0 "57344 of 12123648 parameters are trained \(0.473 %\), 0.2188 MiB in float32" train "${how[@]}" --out "$work/counted"
runs "for programs" 0 "$count" train "${how[@]}" --out "$work/counted2" --json
runs "plan" 0 "$count" plan --model "$mini" --data "$work/rows.jsonl" --json
for path in counted counted/adapter counted/checkpoints/step-00000001; do
    runs "info $path" 0 "$told" info "$work/$path" --json
    runs "info $path in lines" 0 'trained  .*57344.*trained_share  .*0.00472' info "$work/$path"
done
mv "$mini" "$work/elsewhere"
runs "without the base" 0 '"trained": 57344, "trained_bytes": 229376[^"]*"(progress|tensors)"' info "$work/counted/checkpoints/step-00000001" --json
mv "$work/elsewhere" "$mini"
runs "the head alone" 0 '132608 of 12066304 parameters are trained' train "${how[@]}" --method head --out "$work/head"
runs "info of it" 0 '"trained": 132608, "trained_bytes": 530432, "parameters": 12066304, "trained_share": 0.01098' info "$work/head" --json

# ---- killed in its first step ----
slow=("${how[@]}" --out "$work/killed" --micro-batch 40 --accumulate 50 --threads 1)
"$sheaf" train "${slow[@]}" >/dev/null 2>&1 &
process=$!
check "a run is in its first step" waits test -e "$work/killed/run.json"
kill -STOP $process
check "which is not done" test ! -s "$work/killed/metrics.jsonl"
runs "another one cannot begin beside it" 2 'another process holds this lock' train "${how[@]}" --out "$work/killed" --lr 0.1
check "nor change anything" grep -qx 'micro-batch: 40' "$work/killed/settings"
runs "info says that it runs" 0 'state +running  +last_step +0  +steps +1 ' info "$work/killed"
runs "info of its metrics" 0 'metrics of a run +last_step +0 ' info "$work/killed/metrics.jsonl"
kill -KILL $process
wait $process 2>/dev/null
runs "or not" 0 '"state": "not running", "last_step": 0, "steps": 1, "settings"' info --json "$work/killed"
runs "killed, it is no obstacle" 0 'killed: a run was ended here before its first step was done; this one begins anew' train "${how[@]}" --out "$work/killed" --micro-batch 2
runs "info says that it is done" 0 'state +done  +last_step +1  +steps +1  +loss +[0-9.]+  +speed +[0-9.]+ k? ?tokens/s ' info "$work/killed"
check "and shows no JSON" bash -c '! grep -q "[{]" "$1"' . "$work/stdout"
runs "of the metrics alone" 0 '"kind": "metrics", "last_step": 1, "loss": [0-9.]+, "tokens_per_s": [0-9.]+[}]' info --json "$work/killed/metrics.jsonl"
cp -r "$work/killed" "$work/copied"
echo damaged >>"$work/copied/metrics.jsonl"
runs "and what is odd about it" 0 '"last_step": 1, .*"odd": .".*metrics.jsonl: the last line' info --json "$work/copied/metrics.jsonl"
for of in copied copied/metrics.jsonl; do
    runs "info $of says what stands before a damaged line" 0 'last_step +1 .*loss +[0-9.]+ .*odd +[^ ]*metrics.jsonl: the last line' info "$work/$of"
done
runs "and is as if it had never been" 0 . train "${how[@]}" --out "$work/fresh" --micro-batch 2
check "the same" test "$(digest "$work/killed")" = "$(digest "$work/fresh")"
runs "a run that came to something stays" 2 'a folder with files in it' train "${how[@]}" --out "$work/killed" --micro-batch 2
mkdir -p "$work/steps" "$work/own"
cp "$work/fresh/settings" "$work/fresh/metrics.jsonl" "$work/steps"
runs "one that did a step too" 2 'a folder with files in it' train "${how[@]}" --out "$work/steps" --micro-batch 2
echo "notes" >"$work/own/settings"
echo "more" >"$work/own/zettel"
runs "so does a folder with something else" 2 'a folder with files in it' train "${how[@]}" --out "$work/own"
check "untouched" test "$(cat "$work/own/settings" "$work/own/zettel")" = "notes
more"
finish
