# plan_peak.sh - compares what `sheaf plan` predicts with the peak a run has; to be sourced after
# lib.sh. Needs $base: the peak of a process that does nothing.

# peak_of ARGUMENT...: the most memory the command with these arguments had, in bytes.
peak_of() { "$SHEAF_BUILD_ROOT/tests/peak" "$sheaf" "$@"; }
make_tokens() { # make_tokens FILE RECORDS BYTES: text for a byte vocabulary
    awk -v n="$2" -v bytes="$3" 'BEGIN { for (i = 0; i < n; i++) { s = ""; for (j = 0; j < bytes; j++) s = s sprintf("%c", 97 + (i * 7 + j * j) % 26); printf "{\"text\": \"%s\"}\n", s } }' >"$1"
}
predicted() { # predicted MODEL DATA FLAGS...
    local model=$1 data=$2 plan peak out
    shift 2
    out=$(mktemp -d "$work/peak.XXXXXX")
    plan=$("$sheaf" plan --model "$model" --data "$data" "$@" --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2)
    peak=$(peak_of train --model "$model" --data "$data" --out "$out/run" --steps 3 "$@") || { echo "the run failed"; return 1; }
    rm -rf "$out"
    awk -v plan="$plan" -v peak="$peak" -v base="$base" 'BEGIN { used = peak - base; r = plan / used; printf "planned %.1f MB, measured %.1f MB, ratio %.4f\n", plan / 1e6, used / 1e6, r; exit !(r >= 1 && r <= 1.05) }'
}
