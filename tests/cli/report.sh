#!/usr/bin/env bash
# A page about runs: it has their numbers, and nothing that a run's files say becomes a part of the page itself.
. "$(dirname "$0")/lib.sh"

run=$SHEAF_SOURCE_ROOT/tests/data/runs/lora
steps=$(grep -c '"loss"' "$run/metrics.jsonl")
runs "a page of a run" 0 'page.html: 1 run' report "$run" -o "$work/page.html"
check "is whole" grep -q '</html>' "$work/page.html"
check "and needs nothing else" sh -c "! grep -oE '(src|href)=\"[^\"]*\"' '$work/page.html' | grep -vE '\"(#charts|data:,)\"'"
runs "its numbers as JSON" 0 '"points": [{]"step": \[1]' report "$run" --json
check "have each step" grep -q "\"last_step\": $steps," "$work/stdout"
runs "several runs" 0 '2 runs' report "$run" "$run" -o "$work/page.html"
runs "no page and no JSON" 2 'expected: --out FILE' report "$run"
mkdir "$work/empty"
runs "a folder for a page" 3 'expected: a file, or nothing yet.*found: +a folder' report "$run" -o "$work/empty"
runs "no run" 2 'expected: the folder of a run.*found: +a folder without metrics' report "$work/empty" -o "$work/none.html"
absent "leaves no page" "$work/none.html"

# Text is only ever a text node, in the other page too, whose server allows no script in the page itself.
check "no page writes HTML" sh -c "! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function' '$SHEAF_SOURCE_ROOT'/src/pages/*.js"
check "the page of a conversation has no script or style of its own" sh -c "! grep -nE '<style|style=|<script>| on[a-z]+=' '$SHEAF_SOURCE_ROOT/src/pages/chat.html'"

# A folder by whoever likes to: a name that would be HTML, and lines that are none of a run.
bad=$work/'<img src=x onerror=alert(1)>'
mkdir "$bad"
{
    printf '{"step": 1, "loss": 2.5, "lr": "x", "tokens": 1e308, "tokens_per_s": 1e-308, "ranks": [1, {"sent": -4, "kinds": [], "sent_to": {}}]}\n'
    printf '{"step": 2, "loss": null, "grad_norm": 1, "ranks": {}}\n{"step": 2, "loss": 1}\n[]\n\n\001\n{"eval_loss": 1}\n'
    head -c 5000000 /dev/zero | tr '\0' '['
    printf '\n{"step": 3, "eval_loss": 1.5, "eval_accuracy": null, "eval_tokens": "many"}\n{"step": 4, "loss": 1.25}\n{"step": 5, "lo'
} >"$bad/metrics.jsonl"
runs "a hostile run is shown" 0 'line 3: a step before.*line 4: neither.*line 5: no JSON.*line 8: too long: left out.*last line is cut off' report "$bad" -o "$work/page.html"

# A long run is thinned, and says by how much.
mkdir "$work/long"
awk 'BEGIN { for (i = 1; i <= 5000; i++) printf "{\"step\": %d, \"loss\": %d, \"tokens\": 10, \"tokens_per_s\": 100}\n", i, i }' >"$work/long/metrics.jsonl"
runs "a long run" 0 '"last_step": 5000, "tokens": 50000, "seconds": 500,.*"merged": 4, "points": [{]"step": \[4, 8, .*4996, 5000\], "loss": \[2.5, 6.5, .*"lowest": \[1, 5, .*"highest": \[4, 8, ' report "$work/long" --json
# The same in a terminal, or a pipe, where a picture is drawn once.
runs "watch draws a run" 0 '^long: not running, step 5000 +loss 4998 +100 tokens/s +4998 [|] +[*]+ .*[|][*]+ $' watch "$work/long"
mkdir "$work/one"
head -n 1 "$work/long/metrics.jsonl" >"$work/one/metrics.jsonl"
runs "also its only step" 0 'step 1 .*[*]' watch "$work/one"
check "within 80 columns" sh -c "! grep -qE '.{81}' '$work/stdout'"
runs "a hostile run too" 0 '[|] *[*] ' watch "$bad"
check "with plain text" sh -c "! LC_ALL=C grep -q '[^ -~]' '$work/stdout'"
runs "no run to watch" 2 'expected: the folder of a run' watch "$work/empty"
runs "watch has no JSON" 2 'try: +sheaf report RUN --json' watch "$work/long" --json

# ---- the page on a port ----
# follows FLAG...: a server in the background, at $url; its process is $server.
follows() { serves "a report on a port" report "$@" --watch; }
runs "a page and a port" 2 'one of them' report "$run" --watch -o "$work/page.html"
runs "a port without --watch" 2 '--port.*expected: --watch' report "$run" --port 1 -o "$work/page.html"
runs "no run to follow" 2 'expected: the folder of a run' report "$work/empty" --watch --port 0
runs "an address of others without a token" 2 '--token-file' report "$run" --watch --host 0.0.0.0 --port 0
cp -r "$run" "$work/growing"
chmod -R u+w "$work/growing"
follows "$work/growing" "$work/long"
replies "the page" 200 '<!doctype html>.*<script src="report.js">' "$url/"
replies "its script" 200 'use strict' "$url/report.js"
replies "its style" 200 'color-scheme' "$url/report.css"
replies "its numbers" 200 "\"last_step\": $steps,.*\"last_step\": 5000" "$url/report.json"
printf '{"step": %d, "loss": 1}\n' $((steps + 1)) $((steps + 2)) >>"$work/growing/metrics.jsonl"
grown() { curl -s --max-time 20 "$url/report.json" | grep -q "\"last_step\": $((steps + 2)),"; }
check "and those that come" waits grown
replies "no other file" 404 'report.json' "$url/chat.html"
replies "no path beside it" 404 'report.json' --path-as-is "$url/../metrics.jsonl"
mv "$work/growing" "$work/gone"
lost() { curl -s --max-time 20 "$url/report.json" | grep -q 'expected: the folder of a run'; }
check "a folder that is gone is told" waits lost
replies "also to who asks next" 500 'expected: the folder of a run' "$url/report.json"
mv "$work/gone" "$work/growing"
check "until it is back" waits grown
stops "Ctrl-C ends it" 3
echo "0123456789abcdef-token" >"$work/token"
follows "$run" --host 0.0.0.0 --token-file "$work/token"
url=http://127.0.0.1:$port
replies "the page needs no token" 200 'doctype' "$url/"
replies "its numbers do" 401 'token' "$url/report.json"
replies "and are given for it" 200 '"runs"' -H "Authorization: Bearer $(cat "$work/token")" "$url/report.json"
stops "Ctrl-C ends it" 3
finish
