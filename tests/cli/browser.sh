#!/usr/bin/env bash
# The pages in a real browser, at the width of a phone and of a desktop: the report of a run and the conversation of a
# server. Pictures of them are kept in the build folder's pages/.
. "$(dirname "$0")/lib.sh"

pages=$SHEAF_BUILD_ROOT/pages
rules=$SHEAF_SOURCE_ROOT/tests/pages/rules.js
mkdir -p "$pages" "$work/browser"
if ! command -v chromium >/dev/null; then
    fail "a browser" "expected: chromium in PATH" "try: apt-get install chromium"
    finish
fi

# browses NAME: the steps on standard input, with the cases they have (tests/pages/browser.c).
browses() {
    local got=0
    timeout 300 "$SHEAF_BUILD_ROOT/tests/browser" "$work/browser" >"$work/cases" || got=$?
    cat "$work/cases"
    failures=$((failures + $(grep -c '^not ok' "$work/cases")))
    if [ $got -gt 1 ] || ! grep -q '^ok' "$work/cases"; then fail "$1" "exit code $got" "$(tail -n 5 "$work/browser/chromium.log")"; fi
}
# at WIDTH NAME: what every page must keep, whatever is on it now, and its picture.
at() {
    echo "load $rules"
    echo "check $2, $1 wide, can be used by everybody: rules.page()"
    echo "shot $pages/$2-$1.png"
}
# tabs COUNT NAME: the focus is seen wherever Tab leads.
tabs() {
    for _ in $(seq "$1"); do echo "key Tab"; echo "run rules.tab()"; done
    echo "check $2, the focus is seen everywhere: rules.wrong"
    echo "check $2, Tab leads on: rules.passed > $1 / 2"
}

# ---- the report of a run ----
bytes=$work/bytes
runs "a model of bytes" 0 . init tiny-bytes "$bytes"
for i in $(seq 40); do echo "{\"prompt\": \"what is $i and $i\", \"completion\": \" it is $((i + i))\"}"; done >"$work/sums.jsonl"
for seed in 1 2; do
    runs "run $seed" 0 . train --model "$bytes" --data "$work/sums.jsonl" --eval-data "$work/sums.jsonl" --eval-every 10 --steps 30 --micro-batch 2 --lr 0.00${seed} \
        --seed $seed --tp 2 --out "$work/run$seed"
done
runs "their page" 0 . report "$work/run1" "$work/run2" -o "$work/report.html"
{
    for width in 1280 390; do
        echo "size $width 800"
        for scheme in dark light; do
            echo "scheme $scheme"
            echo "open file://$work/report.html"
            at $width "report-$scheme"
        done
    done
    echo "check both runs are on the page: document.querySelectorAll('#runs tbody tr').length === 2"
    echo "check and their curves: document.querySelectorAll('#curves svg path').length > 8"
    echo "size 1280 800"
    echo "open file://$work/report.html"
    echo "load $rules"
    tabs 24 "report"
    echo "quiet report: nothing on the console"
} >"$work/steps"
browses "the report" <"$work/steps"

# ---- a conversation ----
"$sheaf" serve "$bytes" --adapter "$work/run1,$work/run2" --batch 4 --max-length 20000 --port 0 --json >"$work/serving" 2>"$work/notes" &
server=$!
check "a server" waits test -s "$work/serving"
url=$(grep -o 'http://[^"]*' "$work/serving")
answered='document.querySelectorAll("#turns article").length > 0 && document.getElementById("stop").disabled'
{
    echo "size 1280 800"
    echo "scheme light"
    echo "open $url/"
    echo 'wait document.getElementById("model").options.length === 3'
    at 1280 "chat-empty"
    echo 'check the question has the focus: document.activeElement.id === "question"'
    # a question, and its answer as it is written
    echo 'run document.getElementById("most").value = 40'
    echo 'click #question'
    echo 'type what is 7 and 7'
    echo 'key Enter'
    echo "wait $answered"
    echo 'check an answer is there: document.querySelector("#turns article .text").textContent.length > 5'
    echo 'check the field is empty again: document.getElementById("question").value === ""'
    # a long one, which is stopped
    echo 'run document.getElementById("most").value = 19000'
    echo 'type and now at length'
    echo 'key Enter'
    echo 'wait document.querySelectorAll("#turns article").length === 2 && [...document.querySelectorAll("#turns article .text")].at(-1).textContent.length > 5'
    echo 'run window.first = [...document.querySelectorAll("#turns article .text")].at(-1).textContent.length'
    echo 'wait [...document.querySelectorAll("#turns article .text")].at(-1).textContent.length > window.first'
    at 1280 "chat-writing"
    echo 'check it is still being written: !document.getElementById("stop").disabled'
    echo 'click #stop'
    echo "wait $answered"
    echo 'check stop ends it: [...document.querySelectorAll("#turns .doing")].at(-1).textContent.includes("stopped")'
    echo "quiet chat: nothing on the console"
    at 1280 "chat"
    tabs 24 "chat"
    echo 'size 390 800'
    at 390 "chat"
} >"$work/steps"
browses "the conversation" <"$work/steps"
kill -INT "$server"
wait "$server"
check "the server ends" test $? -eq 0
finish
