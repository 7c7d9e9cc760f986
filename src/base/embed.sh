#!/bin/sh
# embed.sh - a program of the build: the C source that has the bytes of files, for embedded.h.
#
#   embed.sh OUT.c LIST FILE...
set -eu
out=$1 list=$2
shift 2
{
    echo '/* Written by embed.sh. */'
    echo '#include "base/embedded.h"'
    n=0
    for file in "$@"; do
        echo "static const unsigned char data_$n[] = {"
        od -An -v -tu1 "$file" | sed 's/  */,/g; s/^,//; s/$/,/'
        echo '0 };'
        n=$((n + 1))
    done
    echo "extern const sheaf__embedded ${list}[];"
    echo "const sheaf__embedded ${list}[] = {"
    n=0
    for file in "$@"; do
        echo "    { \"${file##*/}\", (const char *)data_$n, sizeof data_$n - 1 },"
        n=$((n + 1))
    done
    echo '    { 0 },'
    echo '};'
} >"$out.new"
mv "$out.new" "$out"
