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
    runs "run $seed" 0 . train --model "$bytes" --data "$work/sums.jsonl" --eval-data "$work/sums.jsonl" --eval-every 10 --steps 30 --micro-batch 2 --lr 0.0${seed} \
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
    echo "size 800 475"
    echo "open file://$work/report.html"
    echo "run document.getElementById('charts').scrollIntoView()"
    echo "shot $pages/report.png" # that of docs/report.md
    echo "size 1280 800"
    echo "open file://$work/report.html"
    echo "load $rules"
    tabs 24 "report"
    echo "quiet report: nothing on the console"
} >"$work/steps"
browses "the report" <"$work/steps"

# ---- a conversation ----
# serves FLAG...: a server in the background, at $url; its process is $server.
serves() {
    rm -f "$work/serving"
    "$sheaf" serve "$@" --port 0 --json >"$work/serving" 2>"$work/notes" &
    server=$!
    check "a server" waits test -s "$work/serving"
    url=$(grep -o 'http://[^"]*' "$work/serving")
}
stops() {
    kill -INT "$server"
    wait "$server"
    check "the server ends" test $? -eq 0
}
# asks TEXT ANSWERS: it is typed and sent; then there are as many answers, all whole.
asks() {
    echo "type $1"
    echo "key Enter"
    echo "wait texts().length === $2 && byId('stop').disabled"
}
helpers='window.byId = (id) => document.getElementById(id); window.texts = () => [...document.querySelectorAll("#turns article .text")].map((e) => e.textContent); window.press = (name) => [...document.querySelectorAll("#turns button")].filter((e) => e.textContent === name).at(-1).click(); window.ends = () => [...document.querySelectorAll("#turns article .doing")].at(-1).textContent'
opens() { # opens MODELS
    echo "open $url/"
    echo "run $helpers"
    [ "$1" = 0 ] || echo "wait byId('model').options.length === $1"
}

serves "$bytes" --adapter "$work/run1,$work/run2" --batch 4 --max-length 20000
{
    echo "size 1280 800"
    echo "scheme light"
    opens 3
    at 1280 "chat-empty"
    echo 'check the question has the focus: document.activeElement.id === "question"'
    echo 'check no pictures for a model that takes none: byId("pick").hidden'
    echo 'run byId("most").value = 40'
    asks "what is 7 and 7" 1
    echo 'check an answer is there: texts()[0].length > 5'
    echo 'check it says why it ended: ends().includes("most tokens")'
    echo 'check the field is empty again: byId("question").value === ""'
    # a long one, which is stopped
    echo 'run byId("most").value = 19000'
    echo 'type and now at length'
    echo 'key Enter'
    echo 'wait texts().length === 2 && texts()[1].length > 5'
    echo 'run window.first = texts()[1].length'
    echo 'wait texts()[1].length > window.first'
    at 1280 "chat-writing"
    echo 'check it is still being written: !byId("stop").disabled && byId("send").disabled'
    echo 'click #stop'
    echo 'wait byId("stop").disabled'
    echo 'check stop ends it: ends().includes("stopped")'
    # the same again: no temperature, no difference
    echo 'run byId("most").value = 30'
    echo 'run press("Retry")'
    echo 'wait byId("stop").disabled'
    echo 'run window.first = texts()[1]'
    echo 'run press("Retry")'
    echo 'wait byId("stop").disabled'
    echo 'check retry gives another answer in its place: texts().length === 2'
    echo 'check without temperature the same: texts()[1] === window.first'
    echo 'run byId("temperature").value = 2'
    echo 'run press("Retry")'
    echo 'wait byId("stop").disabled'
    echo 'check with temperature another: texts()[1] !== window.first'
    echo 'run byId("temperature").value = 0'
    # a question changed, and two adapters beside each other
    echo 'run press("Edit")'
    echo 'check a question to edit leaves the conversation: texts().length === 1 && byId("question").value === "and now at length"'
    echo 'run byId("question").select()'
    echo 'run byId("model").value = "run1"'
    echo 'run byId("beside").value = "run2"'
    asks "and what now" 3
    echo 'check it is asked as changed: [...document.querySelectorAll(".asked p.text")].at(-1).textContent === "and what now"'
    echo 'check both adapters answer: [...document.querySelectorAll("#turns article h2")].slice(1).map((e) => e.textContent).join() === "run1,run2"'
    echo 'check each its own: texts()[2].length > 5 && texts()[1] !== texts()[2]'
    at 1280 "chat"
    tabs 24 "chat"
    echo 'size 390 800'
    at 390 "chat"
    echo 'scheme dark'
    at 390 "chat-dark"
    # history
    opens 3
    echo 'check a page opened again begins anew: texts().length === 0'
    echo 'click #history li:nth-child(2) button'
    echo 'check what was said is kept: texts().length === 3 && texts()[1] !== texts()[2]'
    echo 'check and no server has it: localStorage.length === 1'
    echo 'click #new'
    echo 'check there is one new conversation: texts().length === 0 && byId("history").children.length === 2'
    echo 'click #history li:nth-child(2) button:last-child'
    echo 'check it can be deleted: byId("history").children.length === 1 && !localStorage.getItem("sheaf conversations").includes("what")'
    echo "quiet chat: nothing on the console"
    # what a person types is text
    echo 'run byId("most").value = 5'
    asks '<img src=x onerror=alert(1)><b>x</b>' 1
    echo 'check what looks like HTML is text: document.querySelectorAll("#turns img, #turns b").length === 0'
    # refused by the server: its words
    echo 'run byId("temperature").value = -1'
    echo 'type too cold'
    echo 'key Enter'
    echo 'wait !byId("failed").hidden'
    echo 'check an error is the server'"'"'s own words: byId("failed").textContent.includes("expected") || byId("failed").textContent'
    at 390 "chat-refused"
    echo 'told the browser tells of it too: status of 400'
    echo "quiet chat: nothing else on the console"
} >"$work/steps"
browses "the conversation" <"$work/steps"
stops

# ---- a server with a token ----
echo "0123456789abcdef-token" >"$work/token"
serves "$bytes" --token-file "$work/token"
{
    echo 'size 390 800'
    opens 0
    echo 'wait !byId("access").hidden'
    at 390 "chat-token"
    echo 'type not the token'
    echo 'key Enter'
    echo 'wait !byId("failed").hidden'
    echo 'check a wrong token is told: byId("failed").textContent.includes("token")'
    echo 'run byId("token").select()'
    echo 'type 0123456789abcdef-token'
    echo 'key Enter'
    echo 'wait byId("model").options.length === 1'
    echo 'check the right one opens: byId("access").hidden && byId("failed").hidden'
    echo 'run byId("most").value = 5'
    asks "hello" 1
    echo 'told the browser tells of a refusal: status of 401'
    echo "run fetch('health').then((r) => r.ok)"
    echo "quiet token: nothing else on the console"
} >"$work/steps"
browses "a token" <"$work/steps"
stops

# ---- pictures ----
runs "a model with pictures" 0 . init cogvlm-tiny "$work/cog" --seed 2
serves "$work/cog" --batch 2
{
    echo 'size 1280 800'
    opens 1
    echo 'check pictures for a model that takes them: !byId("pick").hidden'
    echo 'run byId("most").value = 20'
    echo "file #file $SHEAF_SOURCE_ROOT/tests/data/images/420.jpg"
    echo 'wait document.querySelectorAll("#pictures img").length === 1'
    at 1280 "chat-picture"
    echo 'click #pictures button'
    echo 'check a picture can be taken away: document.querySelectorAll("#pictures img").length === 0'
    echo "file #file $SHEAF_SOURCE_ROOT/tests/data/images/420.jpg"
    echo 'wait document.querySelectorAll("#pictures img").length === 1'
    # one that is dropped, and one that is pasted
    echo 'run new Promise((done) => document.createElement("canvas").toBlob((blob) => { window.held = new DataTransfer(); held.items.add(new File([blob], "a.png", { type: "image/png" })); done(); }))'
    echo 'run document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }))'
    echo 'wait document.querySelectorAll("#pictures img").length === 2'
    echo 'run byId("question").dispatchEvent(new ClipboardEvent("paste", { clipboardData: held, bubbles: true, cancelable: true }))'
    echo 'wait document.querySelectorAll("#pictures img").length === 3'
    echo 'check pictures are dropped and pasted: [...document.querySelectorAll("#pictures img")].slice(1).every((e) => e.src.startsWith("data:image/png"))'
    for _ in 1 2; do echo 'run document.querySelector("#pictures li:last-child button").click()'; done
    echo 'run byId("question").focus()'
    asks "what is this" 1
    echo 'check a question with a picture is answered: byId("failed").hidden && ends().includes("tokens") && document.querySelectorAll(".shown img").length === 1'
    at 1280 "chat-pictured"
    echo "quiet pictures: nothing on the console"
    tabs 16 "pictures"
    echo 'run byId("question").focus()'
    # the server goes away
    echo "run fetch('health').then((r) => r.ok)"
    echo "do kill -INT $server"
    echo "wait fetch('health').then(() => false, () => true)"
    asks "are you there" 2
    echo 'check a server that is gone is told: byId("failed").textContent.includes("does not answer")'
    at 1280 "chat-gone"
} >"$work/steps"
browses "pictures" <"$work/steps"
wait "$server"
check "the server ended" test $? -eq 0
finish
