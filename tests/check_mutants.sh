#!/usr/bin/env bash
# check_mutants.sh - each mistake of tests/mutants is one that mutants.sh could try: its first line is "TESTS kills: MISTAKE",
# the tests are there, and the patch applies without fuzz. That a test notices it, only mutants.sh tells.
#
#   check_mutants.sh SOURCE_ROOT BUILD_ROOT
set -uo pipefail
cd "$1" || exit 1
names=$(<"$2/meson-info/intro-tests.json") || exit 1
bad=0 count=0
complain() { printf 'not ok - %s: %s\n' "$patch" "$1"; bad=1; }

# patch and not git: it reads no repository, so that a folder inside of another's checkout makes no difference.
patch --version >/dev/null 2>&1 || { echo "not ok - needs patch"; exit 1; }
for patch in tests/mutants/*.patch; do
    count=$((count + 1))
    read -r title <"$patch"
    [[ $title == ?*" kills: "?* ]] || { complain 'its first line is not "TESTS kills: MISTAKE"'; title=; }
    for one in ${title%% kills: *}; do
        [[ $names == *"\"name\": \"$one\""* ]] || complain "there is no test $one"
    done
    told=$(patch --dry-run --force --fuzz=0 --strip=1 --input="$patch" 2>&1) || complain "does not apply: $(tr '\n' ' ' <<<"$told")"
done
[ $count -ge 100 ] || { echo "not ok - found only $count patches"; bad=1; }
[ $bad -ne 0 ] || echo "ok - $count mistakes apply and name tests that there are"
exit $bad
