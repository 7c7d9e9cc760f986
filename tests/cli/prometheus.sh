#!/usr/bin/env bash
# train --metrics-port: a run's numbers for Prometheus, while it goes on and no longer; whoever asks, or is slow, changes
# nothing of the run.
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
begin=(train --model "$llama/tiny_llama/hf" --data "$data" --eval-data "$data" --eval-every 2 --schedule constant)

# Breaks of the grammar and the rules of prometheus.io/docs/instrumenting/exposition_formats, one a line; nothing: it keeps them.
cat >"$work/grammar.awk" <<'END'
function wrong(what) { printf "line %d: %s: %s\n", NR, what, $0 }
# The labels of "{a="x",b="y"} 1"; what is left behind them.
function labels(text,    name) {
    text = substr(text, 2)
    while (match(text, /^[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\["\\n])*"/)) {
        name = substr(text, 1, index(text, "=") - 1)
        if (name ~ /^__/ || name in had) wrong("label")
        had[name] = 1
        text = substr(text, RLENGTH + 1)
        if (text !~ /^,/) break
        text = substr(text, 2)
    }
    for (name in had) delete had[name]
    return text ~ /^}/ ? substr(text, 2) : "no end of labels"
}
/^$/ { wrong("empty line"); next }
/^# HELP / { if ($3 in help || NF < 4) wrong("HELP"); help[$3] = 1; next }
/^# TYPE / {
    if ($3 in type || NF != 4 || $4 !~ /^(counter|gauge|histogram|summary|untyped)$/) wrong("TYPE")
    if (!($3 in help)) wrong("TYPE without HELP")
    if (($4 == "counter") != ($3 ~ /_total$/)) wrong("a counter is called _total")
    type[$3] = $4; family = $3; next
}
/^#/ { next }
!match($0, /^[a-zA-Z_:][a-zA-Z0-9_:]*/) { wrong("no name"); next }
{
    name = substr($0, 1, RLENGTH); rest = substr($0, RLENGTH + 1)
    if (name !~ /^sheaf_/) wrong("name")
    if (name != family) wrong("not below its TYPE")
    if (rest ~ /^{/) rest = labels(rest)
    key = substr($0, 1, length($0) - length(rest))
    if (key in sample) wrong("twice")
    sample[key] = 1
    if (rest !~ /^ [-+]?([0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|Inf|NaN)( -?[0-9]+)?$/) wrong("value")
    if (type[name] == "counter" && rest ~ /-|NaN/ && rest !~ /[eE]-/) wrong("counter below 0")
    samples++
}
END { if (samples == 0) print "no samples" }
END
cat >"$work/bad" <<'END'
# TYPE sheaf_a gauge
sheaf_a 1
sheaf_a 2
# HELP sheaf_b counts
# TYPE sheaf_b counter
sheaf_b{rank="0" -1

sheaf_c{rank=0} x
END
check "the checker finds each wrong line" test "$(awk -f "$work/grammar.awk" "$work/bad" | grep -oE '^line [0-9]+' | sort -u | tr -dc 0-9)" = 135678

# begins NAME OUT FLAG...: a run in the background on a free port, $port; its process is $run.
begins() {
    local name=$1 out=$work/$2
    shift 2
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 10000))
        rm -rf "$out"
        "$sheaf" "${begin[@]}" --out "$out" --metrics-port "$port" "$@" >"$work/said" 2>&1 &
        run=$!
        waits has '"step": 2,' "$out/metrics.jsonl"
        grep -q 'Address already in use' "$work/said" || break
    done
    check "$name" grep -qs '"step": 2,' "$out/metrics.jsonl"
}
has() { grep -qs -- "$1" "$2" || ! kill -0 "$run" 2>/dev/null; }
value() { awk -v name="$1" '$1 == name { print $2 }' "$work/numbers"; }
scrape() { curl -s --max-time 10 -D "$work/head" "http://127.0.0.1:$port/metrics" >"$work/numbers"; }
closed() { ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
halts() { kill -INT "$run" 2>/dev/null; wait "$run"; }

for how in "--tp 1" "--tp 3" "--tp 2 --dp 2 --accumulators 2"; do
    # shellcheck disable=SC2086
    begins "a run on a port, $how" live --steps 100000 --save-every 100000 $how
    scrape
    check "its numbers as text" grep -qi '^content-type: text/plain; version=0\.0\.4' "$work/head"
    check "as Prometheus has it" test -z "$(awk -f "$work/grammar.awk" "$work/numbers")"
    check "steps go on" test "$(value sheaf_step)" -ge 2 -a "$(value sheaf_steps)" -eq 100000
    ranks=$(grep -c '^sheaf_sent_bytes_total' "$work/numbers")
    check "of each rank" test "$ranks" -eq "$(case $how in *dp*) echo 4 ;; *) echo "${how#--tp }" ;; esac)"
    check "memory by kind" test "$(grep -c '^sheaf_memory_bytes{rank="[0-9]*",kind="[a-z]*"} [0-9]*$' "$work/numbers")" -ge $((9 * ranks))
    for name in loss learning_rate gradient_norm step_seconds tokens_per_second tokens_total evaluation_loss; do
        check "and $name" test -n "$(value "sheaf_$name")"
    done
    # a number of a step is that of metrics.jsonl
    check "the loss is that of its step" test "$(grep "\"step\": $(value sheaf_step), \"loss\"" "$work/live/metrics.jsonl" | grep -o '"loss": [^,]*' | cut -d' ' -f2)" = "$(value sheaf_loss)"
    first=$(value sheaf_step)
    check "tokens are those of all its steps" test "$(head -n $((first * 2)) "$work/live/metrics.jsonl" | awk -v last="$first" '/"loss": / { split($0, word, /[:,]/); if (word[2] + 0 <= last) { sub(/.*"tokens": /, ""); sum += $0 } } END { print sum }')" = "$(value sheaf_tokens_total)"
    halts
    check "the port closes with the run" closed
    check "it went on meanwhile" test "$(grep -c '"loss"' "$work/live/metrics.jsonl")" -ge "$first"
done

begins "another" live --steps 100000 --save-every 100000
runs "a port in use" 3 "--metrics-port: 127.0.0.1, port $port.*Address already in use" "${begin[@]}" --out "$work/second" --steps 2 --metrics-port "$port"
absent "is named before anything is done" "$work/second"
check "another path" test "$(status "http://127.0.0.1:$port/")" = 404
check "another method" test "$(status -X POST -H 'Content-Type: application/json' -d '{}' "http://127.0.0.1:$port/metrics")" = 405
# Clients that say nothing, stop within a word, or never read.
held=()
for i in $(seq 60); do
    exec {fd}<>"/dev/tcp/127.0.0.1/$port" && held+=("$fd")
    case $((i % 3)) in
        1) printf 'GET /metr' >&"$fd" ;;
        2) printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' >&"$fd" ;;
    esac
done
check "60 slow clients" test "${#held[@]}" -eq 60
scrape
check "keep nobody from the numbers" test -z "$(awk -f "$work/grammar.awk" "$work/numbers")"
first=$(value sheaf_step)
later() { scrape && [ "$(value sheaf_step)" -gt "$first" ]; }
check "nor the run from its steps" waits later
began=$SECONDS
halts
check "nor from its end" test $((SECONDS - began)) -lt 20
check "and the port is closed" closed
for fd in "${held[@]}"; do exec {fd}>&-; done

# Whoever asks as often as they can: the same bytes.
runs "a run without" 0 . "${begin[@]}" --out "$work/plain" --steps 40
begins "a run that is asked all the time" asked --steps 40
while kill -0 "$run" 2>/dev/null; do scrape; done
wait "$run"
check "ends well" test $? -eq 0
same "with the same adapter" "$work/plain/adapter" "$work/asked/adapter"
check "and the same steps" test "$(same_metrics "$work/plain/metrics.jsonl")" = "$(same_metrics "$work/asked/metrics.jsonl")"
check "what goes on keeps its port" grep -qx "metrics-port: $port" "$work/asked/settings"
finish
