#!/usr/bin/env bash
# check_format.sh - the tree follows .clang-format, version 14 as in Debian 12.
#
#   check_format.sh SOURCE_ROOT
#
# To mend what it finds: clang-format -i FILE...
set -uo pipefail
cd "$1" || exit 1
mapfile -t files < <(find src include tests bench examples \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) | LC_ALL=C sort)
if [ ${#files[@]} -lt 100 ]; then
    echo "not ok - found almost no source to check"
    exit 1
fi
if told=$(clang-format --dry-run -Werror "${files[@]}" 2>&1); then
    echo "ok - ${#files[@]} files follow .clang-format"
else
    echo "not ok - not as .clang-format has it (clang-format -i FILE mends it): $(sed -n 's/:[0-9]*: error:.*//p' <<<"$told" | sort -u | tr '\n' ' ')"
    head -n 5 <<<"$told" | sed 's/^/# /'
    exit 1
fi
