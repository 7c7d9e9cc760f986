#!/usr/bin/env bash
# abi.sh - what a program compiled against this library counts on: the functions it exports with their
# parameters, and the sizes, offsets and values in its public headers, against tests/abi.
#
#   abi.sh SOURCE_ROOT LIBSHEAF.SO [--update]
#
# The headers are read by gcc: prototypes from -aux-info, the rest from debug information.
set -uo pipefail
library=$(realpath "$2") update=${3:-}
cd "$1" || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-abi.XXXXXX")
trap 'rm -rf "$work"' EXIT
bad=0
ok() { printf 'ok - %s\n' "$1"; }
not_ok() { # not_ok NAME TEXT
    printf 'not ok - %s\n' "$1"
    printf '%s\n' "$2" | sed 's/^/# /'
    bad=1
}

for header in include/sheaf/*.h; do printf '#include "sheaf/%s"\n' "${header##*/}"; done >"$work/all.c"
gcc -std=c11 -Iinclude -gdwarf-4 -gstrict-dwarf -fno-eliminate-unused-debug-types -aux-info "$work/aux" -c "$work/all.c" -o "$work/all.o" ||
    { echo "not ok - the public headers compile together"; exit 1; }
sed -n 's|^/\* include/sheaf/[^*]*\*/ extern \(.*\);.*|\1|p' "$work/aux" | LC_ALL=C sort -u >"$work/functions.txt"
# Structs and unions with the offsets of their members, enumerations with their values; sorted by name.
readelf --debug-dump=info "$work/all.o" 2>/dev/null | awk '
    function name_of(line) { sub(/.*: /, "", line); sub(/[ \t]+$/, "", line); return line }
    /^ *<[0-9a-f]+><[0-9a-f]+>: Abbrev Number/ {
        leave()
        tag = $0; sub(/.*\(DW_TAG_/, "", tag); sub(/\).*/, "", tag)
        name = ""; size = ""; at = "0"; value = ""
        next
    }
    /DW_AT_name/ { name = name_of($0) }
    /DW_AT_byte_size/ { size = name_of($0) }
    /DW_AT_data_member_location/ { at = name_of($0) }
    /DW_AT_const_value/ { value = name_of($0) }
    function leave() {
        if (tag == "structure_type" || tag == "union_type" || tag == "enumeration_type") {
            kind = tag; sub(/_type$/, "", kind)
            whole = name ~ /^sheaf_/ && size != "" ? name : ""
            if (whole != "") print whole, 0, kind, whole, size
            n = 0
        } else if (tag == "member" && whole != "")
            print whole, ++n, "    " name, at
        else if (tag == "enumerator" && whole != "")
            print whole, ++n, "    " name, value
        else if (tag != "")
            whole = tag == "subrange_type" ? whole : ""
    }
    END { leave() }' | LC_ALL=C sort -k1,1 -k2,2n | uniq | cut -d' ' -f3- >"$work/types.txt"
[ "$(wc -l <"$work/functions.txt")" -ge 30 ] && [ "$(wc -l <"$work/types.txt")" -ge 30 ] ||
    not_ok "the headers were read" "$(wc -l "$work/functions.txt" "$work/types.txt")"

# ---- what the library exports is what the headers declare ----
sed -E 's/^[^(]*[ *](sheaf_[a-z0-9_]+) \(.*/\1/' "$work/functions.txt" | LC_ALL=C sort >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort >"$work/exported"
if difference=$(diff "$work/declared" "$work/exported"); then
    ok "$(wc -l <"$work/exported") functions: declared in the headers and exported, no other"
else
    not_ok "exported is what the headers declare" "< declared and not exported (SHEAF_API?), > exported and in no header
$difference"
fi

# ---- nothing changed unnoticed ----
if [ "$update" = --update ]; then
    cp "$work/functions.txt" "$work/types.txt" tests/abi/
fi
for what in functions types; do
    if difference=$(diff "tests/abi/$what.txt" "$work/$what.txt"); then
        ok "the $what are those of tests/abi/$what.txt"
    else
        not_ok "the $what are those of tests/abi/$what.txt" "$difference
If this change is meant: bash tests/package/abi.sh . $library --update
Lines that only came (>) need no more. Where one went or changed (<), programs that were compiled
before break: raise the number in the library's name (soversion in meson.build), unless no release
has it."
    fi
done
exit $bad
