# vlm_lib.sh - what the demos of models with vision share; to be sourced in the folder of the sources.
sheaf=build/sheaf captcha=build/examples/captcha
json=false held=300 begin=$SECONDS
headline() { printf '\n== [%3d s] %s\n' $((SECONDS - begin)) "$*"; }
stop() { printf 'demo-vlm: %s\n' "$*" >&2; exit 1; }
usage() { printf 'usage: ./run demo-vlm [--agent | --minicpm] [--json]\n' >&2; exit 2; }
. demo/now_you.sh
# Shows a command as a reader would type it, then runs it.
show() { printf '   $ %s\n' "$*"; "$@"; }
# Keeps what a command says for the case that it fails.
quiet() { "$@" >"$work/last.out" 2>"$work/last.log" || { cat "$work/last.out" "$work/last.log" >&2; stop "failed: $*"; }; }
value() { awk -v key="\"$1\":" '(i = index($0, key)) { v = substr($0, i + length(key)); sub(/[,}].*/, "", v); print v + 0; exit }' "$2"; }
# score NAME DATA ARGUMENT...: the share of held-out pictures answered exactly, in percent.
score() {
    local name=$1 data=$2
    shift 2
    quiet "$sheaf" eval "$@" --data "$data" --match --max-new 8 --json
    cp "$work/last.out" "$work/$name.json"
    awk -v x="$(value exact_match "$work/$name.json")" 'BEGIN { printf "%.1f\n", 100 * x }'
}
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }
labels() { find "$@" -type f -printf '%f\n' | cut -d. -f1 | sort -u; }

# work_in DIR: everything goes there, anew; with --json what is shown goes to stderr, the results to fd 3.
work_in() {
    work=$1
    rm -rf "$work"
    mkdir -p "$work"
    exec 3>&1
    [ $json = false ] || exec 1>&2
}
# draw: pictures of both styles, at the same time.
draw() {
    local other failed=
    headline "pictures of numbers in two styles; the numbers of the held-out ones are in no training picture"
    show $captcha night "$work/night" 6000 $held &
    other=$!
    show $captcha day "$work/day" 6000 $held || failed=day
    wait $other || failed=${failed:+$failed and }night
    [ -z "$failed" ] || stop "no pictures of $failed"
    [ -z "$(comm -12 <(labels "$work"/*/train) <(labels "$work"/*/heldout))" ] || stop "a held-out number is in a training picture"
}
# ask_some MODEL QUESTION: about ten held-out pictures of the style day, every thirtieth by name; `right` of them are read.
ask_some() {
    (cd "$work" && find day/heldout -type f | sort) | awk -v ask="$2" 'NR % 30 == 1 { label = $0; sub(/.*\//, "", label); sub(/\..*/, "", label)
        printf "{\"image\": \"%s\", \"prompt\": \"%s\", \"completion\": \"%s\"}\n", $0, ask, label }' >"$work/ten.jsonl"
    headline "asked about ten pictures, whose names say what they show"
    printf '   $ %s\n' "$sheaf generate --model $1 --data $work/ten.jsonl --greedy --max-new 8"
    quiet "$sheaf" generate --model "$1" --data "$work/ten.jsonl" --greedy --max-new 8
    sed 's/^/   /' "$work/last.out"
    right=$(sed -n 's/^exact match: \([0-9]*\) of 10 .*/\1/p' "$work/last.out")
    [ -n "$right" ] || stop "generate does not say how many of the ten are right"
    [ "$right" -gt 0 ] || stop "of the ten none is read"
}
# judge OFF ON MERGED: is the new style read with the adapter, and merged, and not without?
judge() {
    at_least 19.9 "$1" || stop "without the adapter $1 % are read, it should be below 20 %"
    at_least "$2" 60 || stop "with the adapter $2 % are read, it should be at least 60 %"
    at_least "$3" 60 || stop "merged, $3 % are read, it should be at least 60 %"
}
# results MODEL: as one JSON object, where that was asked for.
results() {
    [ $json = false ] || printf '{"model": "%s", "seconds": %d, "own_style": %s, "adapter_off": %s, "adapter_on": %s, "merged": %s, "asked": 10, "right": %d}\n' \
        "$1" $((SECONDS - begin)) "$night" "$off" "$on" "$merged" "$right" >&3
}
