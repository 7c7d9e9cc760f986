#!/usr/bin/env bash
# check_headers.sh - each public header compiles alone, as C and as C++, without a warning.
#
#   check_headers.sh SOURCE_ROOT CC CXX
#
# The C functions of a header must keep their names in C++ (extern "C"), and sheaf.h must include every
# header that it does not leave out on purpose.
set -uo pipefail
root=$1 cc=$2 cxx=$3 bad=0 count=0
apart=' cut owner schema ' # how tensors fall into slices: examples/00_who_owns_what.c

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
warn='-Wall -Wextra -Wpedantic -Wshadow -Werror'
for header in "$root"/include/sheaf/*.h; do
    name=$(basename "$header" .h)
    count=$((count + 1))
    printf '#include <sheaf/%s.h>\n#include <sheaf/%s.h>\n' "$name" "$name" >"$temp/alone.c"
    cp "$temp/alone.c" "$temp/alone.cc"
    for way in "$cc -std=c11 -Wstrict-prototypes $warn -c $temp/alone.c" "$cxx -std=c++11 $warn -c $temp/alone.cc"; do
        if ! said=$($way -I"$root/include" -o "$temp/alone.o" 2>&1); then
            printf 'not ok - %s.h does not compile alone: %s\n' "$name" "${way%% *}"
            printf '%s\n' "$said" | head -n 5 | sed 's/^/# /'
            bad=1
        fi
    done
    if grep -q SHEAF_API "$header" && ! grep -q '^extern "C" {' "$header"; then
        printf 'not ok - %s.h declares functions of C without extern "C"\n' "$name"
        bad=1
    fi
    if [ "$name" != sheaf ] && [[ "$apart" != *" $name "* ]] && ! grep -q "\"sheaf/$name.h\"" "$root/include/sheaf/sheaf.h"; then
        printf 'not ok - sheaf.h leaves out %s.h\n' "$name"
        bad=1
    fi
done
[ $count -ge 10 ] || { printf 'not ok - found only %d headers\n' $count; bad=1; }
[ $bad -ne 0 ] || printf 'ok - %d public headers compile alone as C and as C++\n' $count
exit $bad
