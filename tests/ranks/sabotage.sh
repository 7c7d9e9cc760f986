#!/usr/bin/env bash
# Can the test of rank equality fail? Each sabotage changes one line of a copy of the sources,
# builds the test with it, and the test must go red. A change that does not apply is a failure:
# then the line has moved and this file must follow.
#   sabotage.sh SOURCE_ROOT LIBRARY FLAGS...   (FLAGS: how to compile and link against LIBRARY)
set -uo pipefail
source=$1 library=$2
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-sabotage.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
report() { printf '%s - %s\n' "$1" "$2"; [ "$1" = ok ] || failures=$((failures + 1)); }

flags=(-std=c11 -D_GNU_SOURCE -O1 -ffp-contract=off -I"$source" -I"$source/include" -I"$source/src")
(cd "$work" && cc "${flags[@]}" -c "$source/tests/ranks/spike_test.c" "$source/tests/ranks/synthetic.c") || exit 1

# built NAME FILE: the test with this source in place of the library's.
built() {
    cc "${flags[@]}" -o "$work/$1" "$2" "$work/spike_test.o" "$work/synthetic.o" "${libraries[@]}" 2>"$work/log" || { cat "$work/log"; return 1; }
}
libraries=("$library" "$@")

# sabotage NAME FILE SED: FILE with SED applied must make the test fail.
sabotage() {
    local name=$1 file=$2 script=$3 copy=$work/${2##*/}
    sed -E "$script" "$source/$file" >"$copy"
    if cmp -s "$copy" "$source/$file"; then report "not ok" "$name: the line to sabotage was not found in $file"; return; fi
    if ! built test "$copy"; then report "not ok" "$name: does not compile"; return; fi
    if "$work/test" odd >"$work/out" 2>&1; then report "not ok" "$name: the test did not notice"; else report ok "$name: the test goes red"; fi
}

if built sound "$source/src/tape/linear.c" && "$work/sound" odd >"$work/out" 2>&1; then
    report ok "the sources as they are: the test is green"
else
    report "not ok" "the sources as they are: the test is green"
    tail -n 5 "$work/out"
fi
sabotage "slices summed in rank order" src/layout/owner.c \
    's/^    visit\(&w, 0, tree->slices\);$/    for (int i = 1; i < tree->nroots; i++) add[w.count++] = (sheaf_tree_add){ 0, i };/'
sabotage "dA without the sum over slices" src/tape/rows.c \
    's/return c->ranks == 1 \? NULL : sheaf__sum_among\(c, c->comm, tree, root, rows, cols, NULL\);/return NULL;/'
sabotage "dropout from a stream of random numbers" src/tape/linear.c 's/\.seed = info->seed,/.seed = (uint64_t)rand(),/'
exit $((failures > 0))
