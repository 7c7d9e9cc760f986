#!/usr/bin/env bash
# check_example.sh EXPECTED COMMAND... - an example prints what its .expected file says.
set -uo pipefail
expected=$1
shift
if difference=$(diff <("$@" 2>&1) "$expected"); then
    echo "ok - $(basename "$1") prints what is expected"
else
    echo "not ok - $(basename "$1") prints something else"
    printf '%s\n' "$difference" | sed 's/^/# /'
    exit 1
fi
