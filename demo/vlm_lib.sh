# vlm_lib.sh - what the demos of models with vision share; to be sourced. `work` and `begin` are the caller's.
headline() { printf '\n== [%3d s] %s\n' $((SECONDS - begin)) "$*"; }
stop() { printf 'demo-vlm: %s\n' "$*" >&2; exit 1; }
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
