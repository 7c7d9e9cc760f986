#!/usr/bin/env bash
# How long commands show how far they are: --quiet, --progress, NO_COLOR, dumb and narrow terminals.
. "$(dirname "$0")/lib.sh"
command -v script >/dev/null || fail "script(1), of util-linux, is needed"
command -v python3 >/dev/null || fail "python3 is needed"
unset COLUMNS NO_COLOR
export TERM=xterm

# Data large enough for every command to have progress: 96 MiB of one tensor, and a model that reads texts.
mkdir "$work/large"
header='{"w":{"dtype":"F32","shape":[24576,1024],"data_offsets":[0,100663296]}}'
while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
{ int32_bytes ${#header} 0; printf '%s' "$header"; head -c 100663296 /dev/zero; } >"$work/large/model.safetensors"
runs "a model" 0 . init tiny-bytes "$work/model" --seed 3
for i in 1 2 3 4 5 6; do printf '{"prompt": "question %s", "completion": "answer"}\n' "$i"; done >"$work/data.jsonl"

# shown NAME COLUMNS ARGUMENT...: what a terminal of so many columns shows of a command, in $work/screen.
shown() {
    local name=$1 columns=$2 words
    shift 2
    words=$(printf '%q ' "$@")
    script -qec "stty cols $columns; '$sheaf' $words" /dev/null </dev/null >"$work/screen" ||
        fail "$name" "$(cat -v "$work/screen")"
}
plain() { ! LC_ALL=C grep -qaP '\x1b' "$work/screen"; }

commands=("verify $work/large" "diff $work/large $work/large" "convert $work/large $work/out --to hf"
    "eval $work/model $work/data.jsonl" "generate $work/model --data $work/data.jsonl --max-new 2"
    "train $work/model $work/data.jsonl -o $work/out --steps 4")
for command in "${commands[@]}"; do
    of=${command%% *}
    for columns in 80 20; do
        [ $columns = 20 ] || [[ "verify train" = *$of* ]] || continue
        rm -rf "$work/out"
        # shellcheck disable=SC2086
        shown "$of on $columns columns" "$columns" $command
        tr '\r' '\n' <"$work/screen" >"$work/lines"
        if [ "$of" = train ]; then # numbers come before the bar
            check "$of shows steps on $columns columns" grep -q 'step 4/4' "$work/lines"
        else
            check "$of shows a bar on $columns columns" grep -qE '100% \[=+\] *($|  )' "$work/lines"
        fi
        [ "$columns" = 80 ] || check "$of: it fits in $columns" bash -c 'grep -E "\[=* *\]|^step" "$1" | awk -v most="$2" "length > most { bad = 1 } END { exit bad }"' - "$work/lines" "$columns"
        check "$of: without an escape sequence ($columns)" plain
    done
    for how in "TERM=dumb" "TERM="; do
        [ $how = TERM=dumb ] || [ "$of" = verify ] || continue
        rm -rf "$work/out"
        script -qec "env $how '$sheaf' $command" /dev/null </dev/null >"$work/screen"
        check "$of: a terminal with $how gets lines" bash -c '! grep -q "\[=*\]" "$1" && ! LC_ALL=C grep -qaP "\\r[^\\n\\r]|\\x1b" "$1"' - "$work/screen"
    done
    rm -rf "$work/out"
    # shellcheck disable=SC2086
    "$sheaf" $command >"$work/stdout" 2>"$work/stderr" </dev/null
    check "$of: a pipe gets lines" bash -c 'grep -qE "100%|4/4" "$1" && ! LC_ALL=C grep -qP "[\\x00-\\x09\\x0b-\\x1f]" "$1"' - "$work/stderr"
    rm -rf "$work/out"
    # shellcheck disable=SC2086
    "$sheaf" $command --quiet >"$work/quiet" 2>"$work/stderr" </dev/null
    check "$of --quiet has nothing to say but warnings" bash -c '! grep -v "^warning: " "$1"' - "$work/stderr"
    check "$of --quiet has the same results" diff <(sed 's/[0-9.]* s\b//g; s/[0-9.]* GB\/s//; s/([^)]*)//; s/[0-9.]* [kM]* *tokens\/s//' "$work/stdout") <(sed 's/[0-9.]* s\b//g; s/[0-9.]* GB\/s//; s/([^)]*)//; s/[0-9.]* [kM]* *tokens\/s//' "$work/quiet")
    rm -rf "$work/out"
    # shellcheck disable=SC2086
    "$sheaf" $command --progress json >/dev/null 2>"$work/stderr" </dev/null
    mv "$work/stderr" "$work/$of.json"
    rm -rf "$work/out"
    # shellcheck disable=SC2086
    "$sheaf" $command --progress=bar >/dev/null 2>"$work/stderr" </dev/null
    check "$of --progress bar, in a file" grep -q $'\r' "$work/stderr"
    rm -rf "$work/out"
    script -qec "'$sheaf' $command --progress plain" /dev/null </dev/null >"$work/screen"
    check "$of --progress plain, on a terminal" bash -c '! LC_ALL=C grep -qaP "\\r[^\\n\\r]" "$1"' - "$work/screen"
done

check "--progress json: each line is an object, the last of progress is complete" python3 - "$work"/*.json <<'PYTHON'
import json, sys
from pathlib import Path
assert len(sys.argv) == 7, sys.argv
for path in map(Path, sys.argv[1:]):
    lines = [json.loads(line) for line in path.open()]
    assert all(line["command"] == path.stem for line in lines), lines
    seen = [line for line in lines if "done" in line]
    assert seen and seen[-1]["done"] == seen[-1]["total"] and seen[-1]["eta_s"] == 0, lines
    for line in seen:
        assert {"what", "unit", "rate", "eta_s", "elapsed_s"} <= set(line) and " " not in line["unit"], line
    assert all("done" in line or "note" in line or "warning" in line or "eval_loss" in line for line in lines), lines
PYTHON

# A failure begins a line of its own below the bar; what is not asked for stays.
runs "both" 2 'sheaf: --quiet.*expected: no --progress beside it.*found: +both' verify "$work/large" --quiet --progress json
runs "another style" 2 'expected: .*plain.*bar.*json' verify "$work/large" --progress fancy
runs "twice" 2 'it stands twice' verify "$work/large" --quiet --quiet
runs "warnings stay" 0 'warning: .*no config' convert "$work/large" "$work/out2" --to hf --quiet
runs "and errors" 3 'sheaf: .*no-such' verify "$work/no-such" --quiet
runs "and errors of --progress json are text" 3 'sheaf: .*no-such' verify "$work/no-such" --progress json
echo "quiet: true" >"$work/quiet.recipe"
runs "no key of a recipe" 2 'quiet' train --recipe "$work/quiet.recipe"
check "help has them" bash -c '"$1" verify --help | grep -q -e "--progress plain|bar|json" && "$1" train --help | grep -q -e --quiet' - "$sheaf"
printf 'what\n' | "$sheaf" chat "$work/model" --max-new 1 --quiet >/dev/null 2>"$work/stderr"
check "chat --quiet" bash -c '! grep -q /help "$1"' - "$work/stderr"

# sheaf watch draws anew with escape sequences, and not where NO_COLOR or a dumb terminal is.
"$sheaf" train "$work/model" "$work/data.jsonl" -o "$work/long" --steps 1000000 --threads 1 --quiet >/dev/null 2>&1 &
process=$!
check "a run goes on" waits grep -q '"step": 2,' "$work/long/metrics.jsonl"
kill -STOP $process # it is watched as well
watched() { script -qec "env $1 timeout 3 '$sheaf' watch '$work/long'" /dev/null </dev/null >"$work/screen"; } # timeout: it has no end of its own
watched TERM=xterm
check "watch draws anew" bash -c '[ "$(LC_ALL=C grep -caP "\x1b" "$1")" -ge 1 ]' - "$work/screen"
for how in "NO_COLOR=1" "TERM=dumb"; do
    watched "$how"
    check "watch with $how" bash -c 'grep -q "|" "$1" && ! LC_ALL=C grep -qaP "\x1b" "$1"' - "$work/screen"
done
kill -KILL $process
wait $process 2>/dev/null
finish
