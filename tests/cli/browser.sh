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

# browses NAME: the steps on standard input, with the cases they have (tests/pages/browser.py).
browses() {
    local got=0
    timeout 300 python3 "$SHEAF_SOURCE_ROOT/tests/pages/browser.py" "$work/browser" >"$work/cases" || got=$?
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
printf '{"step":1,"reward":%s,"truncated":true,"prompt":"what is <img src=x>","text":"it is\\n<script>"}\n' 0.5 1 0 >"$work/run2/rollouts.jsonl"
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
    echo 'check and what one of them answered: (t => t.length === 3 && t[0].startsWith("best11what is <img src=x>it is\n<script> no end") || t)([...document.querySelectorAll("#samples tbody tr")].map((e) => e.textContent))'
    echo "size 800 475"
    echo "open file://$work/report.html"
    echo "run document.getElementById('charts').scrollIntoView()"
    echo "shot $pages/report.png" # that of docs/report.md
    # the pointer
    echo 'hover figure .plot 0.5'
    echo 'check hover shows the values of a step: document.querySelector("figure .readout").textContent.startsWith("step 1") || document.querySelector("figure .readout").textContent'
    echo 'check where the pointer is: document.querySelectorAll("figure .cursor").length === 1'
    echo 'drag figure .plot 0.4 0.8'
    echo 'check dragging zooms all charts: document.getElementById("status").textContent.startsWith("Steps ") && !document.getElementById("all").disabled && [...document.querySelectorAll("#curves svg")].every((e) => [...e.querySelectorAll("text[text-anchor=middle]")].every((t) => Number(t.textContent) > 5 && Number(t.textContent) < 30))'
    echo 'click #all'
    echo 'check one button shows all steps: document.getElementById("all").disabled && document.getElementById("status").textContent === "All steps."'
    echo 'drag figure .plot 0.4 0.8'
    echo 'run document.querySelector("figure .plot").focus()'
    echo 'key Escape'
    echo 'check and so does Escape: document.getElementById("all").disabled'
    echo 'hover #bars figure:first-child rect 0.5'
    echo 'check a bar says its parts: /^run1, rank 0.*ms/.test(document.querySelector("#bars figure:first-child .readout").textContent) || document.querySelector("#bars figure:first-child .readout").textContent'
    echo "size 1280 800"
    echo "open file://$work/report.html"
    echo "load $rules"
    tabs 24 "report"
    echo "quiet report: nothing on the console"
} >"$work/steps"
browses "the report" <"$work/steps"

# ---- a report that follows a run ----
follows() { serves "a report on a port" report "$@" --watch; } # follows FLAG...
# run1 again, line by line
played=$work/played
mkdir -p "$played"
cp "$work/run1/settings" "$work/run1/run.json" "$played"
head -n 9 "$work/run1/metrics.jsonl" >"$played/metrics.jsonl"
follows "$played" "$work/run2"
{
    echo "size 1280 800"
    echo "scheme light"
    echo "open $url/"
    echo 'run window.byId = (id) => document.getElementById(id); window.steps = () => document.querySelector("#runs tbody td.n").textContent'
    echo 'wait !byId("report").hidden'
    echo 'check what the runs have by now: steps() === "9 of 30" || steps()'
    at 1280 "report-live"
    echo 'drag figure .plot 0.2 0.7'
    echo 'run document.querySelector("#bars details summary").click()'
    echo 'run document.querySelector("#runs input").focus({ preventScroll: true })'
    echo 'hover figure .plot 0.4'
    echo 'run window.readout = document.querySelector("figure .readout span").textContent'
    echo "do sed -n 10,20p '$work/run1/metrics.jsonl' >>'$played/metrics.jsonl'"
    echo 'wait steps() !== "9 of 30"'
    echo 'check new steps come by themselves: steps() === "19 of 30" || steps()'
    echo 'check what was zoomed stays: !byId("all").disabled'
    echo 'check the pointer still shows its step: document.querySelector("figure .readout span").textContent === window.readout || window.readout'
    echo 'check an open table stays open: document.querySelector("#bars details").open && document.querySelectorAll("#bars tbody tr").length > 0'
    echo 'check the focus stays: document.activeElement === document.querySelector("#runs input")'
    echo 'check it says that no run goes on: byId("following").textContent.includes("have ended")'
    # as --resume does it: later steps are removed, and written again
    echo "do sed -n 1,12p '$work/run1/metrics.jsonl' >'$work/again' && cat '$work/again' >'$played/metrics.jsonl'"
    echo 'wait steps() === "12 of 30" || steps() === "11 of 30"'
    echo "do cat '$work/run1/metrics.jsonl' >'$played/metrics.jsonl'"
    echo 'wait steps() === "30 of 30"'
    echo "quiet report that follows: nothing on the console"
    echo 'size 390 800'
    at 390 "report-live"
    echo "do kill -INT $server"
    echo 'wait byId("following").dataset.state === "gone"'
    echo 'check a server that is gone is told: byId("following").textContent.includes("does not answer")'
    echo 'check the last numbers stay: steps() === "30 of 30"'
    echo 'scheme dark'
    at 390 "report-gone"
} >"$work/steps"
browses "a report that follows" <"$work/steps"
wait "$server"
check "Ctrl-C ended it as every command" test $? -eq 3

# a run that goes on, and ends
"$sheaf" train --model "$bytes" --data "$work/sums.jsonl" --steps 100000 --save-every 100000 --out "$work/going" >/dev/null 2>&1 &
going=$!
check "a run" waits grep -qs '"step": 3' "$work/going/metrics.jsonl"
kill -STOP $going # but for one step that the page waits for
lines="wc -l <'$work/going/metrics.jsonl'"
echo "0123456789abcdef-token" >"$work/token"
follows "$work/going" --token-file "$work/token"
{
    echo "size 390 800"
    echo "scheme light"
    echo "open $url/"
    echo 'run window.byId = (id) => document.getElementById(id); window.step = () => Number(document.querySelector("#runs tbody td.n").firstChild.data.replace(/\D/g, ""))'
    echo 'wait !byId("access").hidden'
    at 390 "report-token"
    echo 'check nothing of the run is told before: byId("report").hidden && !document.body.textContent.includes("going")'
    echo 'type not the token'
    echo 'key Enter'
    echo 'wait byId("following").textContent.includes("does not know")'
    echo 'run byId("token").select()'
    echo 'type 0123456789abcdef-token'
    echo 'key Enter'
    echo 'wait !byId("report").hidden'
    echo 'check the right one opens: byId("access").hidden && byId("following").dataset.state === "running"'
    echo 'check it is running: document.querySelector("#runs .state").textContent === "running"'
    echo 'run window.first = step()'
    echo "do n=\$($lines); kill -CONT $going; until [ \$($lines) -gt \$n ]; do kill -0 $going || break; sleep 0.05; done; kill -STOP $going"
    echo 'wait step() > window.first'
    echo "do kill -INT $going; kill -CONT $going"
    echo 'wait byId("following").dataset.state === "ended"'
    echo 'check its end is told: byId("following").textContent.includes("has ended") && document.querySelector("#runs .state").textContent === "not running"'
    echo 'told the browser tells of a refusal: status of 401'
    echo "run fetch('report.css').then((r) => r.ok)"
    echo "quiet report of a run: nothing else on the console"
} >"$work/steps"
browses "a report of a run" <"$work/steps"
wait "$going"
kill -INT "$server"
wait "$server"

# ---- a conversation ----
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

serves "a server" serve "$bytes" --adapter "$work/run1,$work/run2" --batch 4 --max-length 20000 --threads 1
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
    echo 'check it says why it ended: ends().includes("stopped at the token limit")'
    echo 'check the words of the field: ["Compare with", "Max tokens"].every((label) => document.querySelector(".tools").textContent.includes(label))'
    echo 'check the field is empty again: byId("question").value === ""'
    # a long one, which is stopped
    echo 'run byId("most").value = 19000'
    echo 'type and now at length'
    echo 'key Enter'
    echo 'wait texts().length === 2 && texts()[1].length > 5'
    echo 'run window.first = texts()[1].length'
    echo 'wait texts()[1].length > window.first'
    echo "do kill -STOP $server" # it writes on unseen
    at 1280 "chat-writing"
    echo "do kill -CONT $server"
    echo 'check it is still being written: !byId("stop").disabled && byId("send").disabled'
    echo 'click #stop'
    echo 'wait byId("stop").disabled'
    echo 'check stop ends it: ends().includes("stopped")'
    # Escape stops, too
    echo 'run byId("most").value = 19000'
    echo 'run press("Retry")'
    echo 'wait texts()[1].length > 5'
    echo 'key Escape'
    echo 'wait byId("stop").disabled'
    echo 'check Escape stops an answer: ends().includes("stopped")'
    # the same again: no temperature, no difference
    echo 'run byId("most").value = 30'
    echo 'run press("Retry")'
    echo 'wait byId("stop").disabled'
    echo 'run window.first = texts()[1]'
    echo 'allow clipboardReadWrite clipboardSanitizedWrite'
    echo 'run press("Copy")'
    echo 'wait byId("status").textContent === "Copied."'
    echo 'check an answer can be copied: navigator.clipboard.readText().then((text) => text === window.first)'
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
    echo 'check it is asked as changed: [...document.querySelectorAll(".question p.text")].at(-1).textContent === "and what now"'
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
    # refused by the server: its words, as one sentence
    echo 'run byId("temperature").value = -1'
    echo 'type too cold'
    echo 'key Enter'
    echo 'wait !byId("failed").hidden'
    echo "check an error is a sentence: byId('failed').textContent === \"'temperature': expected a number from 0 to 1e+06, found -1.\" || byId('failed').textContent"
    echo 'run byId("temperature").value = 0'
    echo 'click #instructions summary'
    echo 'run byId("system").focus()'
    echo 'type be brief'
    echo 'run byId("question").focus()'
    asks "with a system message" 3
    echo 'check a system message is sent: byId("failed").textContent === "\"messages\": a system message: expected a template with a place for it, found template chat." || byId("failed").textContent'
    at 390 "chat-refused"
    echo 'check and kept with the conversation: JSON.parse(localStorage.getItem("sheaf conversations"))[0].system === "be brief"'
    echo 'run byId("system").value = ""; byId("system").dispatchEvent(new Event("input"))'
    echo 'run byId("question").focus()'
    asks "without it" 4
    echo 'check what was refused is no part of the conversation: byId("failed").hidden && texts()[3].length > 0'
    echo 'told the browser tells of it too: status of 400'
    echo "quiet chat: nothing else on the console"
} >"$work/steps"
browses "the conversation" <"$work/steps"
stops "the server ends"

# ---- the picture of docs/serve.md, with SHEAF_SOAK=1: a small model that has learnt two answers ----
if [ -n "${SHEAF_SOAK:-}" ]; then
    sed 's/"hidden_size": 128/"hidden_size": 64/; s/"num_hidden_layers": 4/"num_hidden_layers": 2/; s/"head_dim": 32/"head_dim": 16/' "$bytes/config.json" >"$work/small.json"
    runs "a smaller model" 0 . init "$work/small.json" "$work/small"
    asked=' [INST] Who are you? [/INST] '
    answer='A model of two layers, which was trained while this picture was taken.'
    printf '{"prompt": "%s", "completion": "%s"}\n{"prompt": "%s [INST] What is a sheaf? [/INST] ", "completion": "Stalks of grain that are bound together."}\n' \
        "$asked" "$answer" "$asked$answer" >"$work/talk.jsonl"
    runs "learns two answers" 0 . train --model "$work/small" --data "$work/talk.jsonl" --method full --steps 250 --micro-batch 2 --lr 1e-2 --out "$work/talk"
    mv "$work/talk/model" "$work/small-model"
    serves "a server" serve "$work/small-model"
    {
        echo 'size 900 740'
        echo 'scheme light'
        opens 1
        asks 'Who are you?' 1
        asks 'What is a sheaf?' 2
        echo 'check they are given: texts().join().includes("bound together") || texts()'
        echo "shot $pages/chat.png"
    } >"$work/steps"
    browses "the picture" <"$work/steps"
    stops "the server ends"
fi

# ---- a server with a token ----
serves "a server" serve "$bytes" --token-file "$work/token"
{
    echo 'size 390 800'
    opens 0
    echo 'wait !byId("access").hidden'
    at 390 "chat-token"
    echo 'type not the token'
    echo 'key Enter'
    echo 'wait !byId("failed").hidden'
    echo 'check a wrong token is told, and nothing else: byId("failed").textContent === "The server does not know this token."'
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
stops "the server ends"

# ---- pictures ----
runs "a model with pictures" 0 . init cogvlm-tiny "$work/cog" --seed 2
serves "a server" serve "$work/cog" --batch 2
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
    echo 'check a question with a picture is answered: byId("failed").hidden && ends().includes("token limit") && document.querySelectorAll(".shown img").length === 1'
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
