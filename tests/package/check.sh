# check.sh - cases for the tests of packages; to be sourced.
#
# A case prints "ok - NAME" or "not ok - NAME" with the end of its output, which is what ./run test counts. `work` is an
# empty folder, removed at the end. End a test with `exit $((failures > 0))`.
set -uo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
check() { # check NAME COMMAND...
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        printf 'ok - %s\n' "$name"
    else
        printf 'not ok - %s\n' "$name"
        printf '%s\n' "$output" | tail -n 12 | sed 's/^/# /'
        failures=$((failures + 1))
    fi
}
