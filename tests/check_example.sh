#!/usr/bin/env bash
# check_example.sh EXPECTED COMMAND... - an example, run in an empty folder, prints what its .expected
# file says.
set -uo pipefail
expected=$(realpath "$1") program=$(realpath "$2")
shift 2
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if difference=$(diff <(cd "$temp" && "$program" "$@" 2>&1) "$expected"); then
    echo "ok - $(basename "$program") prints what is expected"
else
    echo "not ok - $(basename "$program") prints something else"
    printf '%s\n' "$difference" | sed 's/^/# /'
    exit 1
fi
