#!/usr/bin/env bash
# check_plain.sh - a build with -Disa=ref has nothing of x86 in it.
#
#   check_plain.sh BUILD_ROOT LIBSHEAF.A
set -uo pipefail
build=$1 library=$2 bad=0
report() { # report NAME WHAT-WAS-FOUND
    if [ -z "$2" ]; then printf 'ok - %s\n' "$1"; else printf 'not ok - %s\n# %s\n' "$1" "$(printf '%s' "$2" | head -n 3)"; bad=1; fi
}
# Tests may include what they like; the hash library, inlined, takes SSE2 where there is no more.
included=$(ninja -C "$build" -t deps | awk '/^[^ ]/ { mine = $1 !~ /_test\.p\// } mine')
[ "$(grep -c '^ ' <<<"$included")" -gt 1000 ] || report "the dependencies of the objects are known" "hardly any"
# The headers of instructions; those of other processors have other names.
report "no header of x86 instructions was included" "$(grep -E '/(cpuid|[a-z0-9]*mmintrin|x86[a-z]*intrin|avx[a-z0-9]*intrin|amx[a-z0-9]*intrin)\.h$' <<<"$included" | sort -u)"
report "the processor is not asked what it has" "$(nm -A "$library" 2>/dev/null | grep -E '__cpu_(model|features|indicator_init)')"
report "nothing is compiled for more than the least processor" "$(objdump -d --no-show-raw-insn "$library" | grep -E '\s(cpuid|xgetbv|rdtsc|vfmadd|vmovups|tdpbf16ps|pclmul)' | sort -u)"
exit $bad
