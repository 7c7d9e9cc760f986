#!/usr/bin/env bash
# mutants.sh [NAME...] - does a test notice each of these small mistakes?
#
# Mistakes that no rule of mutate.py makes: another formula, another order, another design. A patch of tests/mutants holds
# one; its first line is "TESTS kills: MISTAKE", with the tests as `meson test` names them. The tree is copied to a
# temporary folder; there the tests must pass as the tree is, and then, with one patch at a time, fail. A mistake that no
# test notices, a patch that does not apply any more, one that does not compile and one whose test fails anyway are
# failures. NAME runs only the patches whose names begin with it. Ends with the counts.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
chosen=()
for patch in tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -gt 0 ] || chosen+=("$name")
    for begin in "$@"; do
        [[ $name != "$begin"* ]] || { chosen+=("$name"); break; }
    done
done
[ ${#chosen[@]} -gt 0 ] || { echo "mutants.sh: no patch of tests/mutants is called so: $*" >&2; exit 2; }

tree=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-mutants.XXXXXX") || exit 3
trap 'rm -rf "$tree"' EXIT
trap 'exit 130' INT TERM
tar -c --exclude='./build*' --exclude=./.git . | tar -x -C "$tree" || exit 3
CC=${CC:-gcc} meson setup "$tree/build" "$tree" >"$tree/setup.log" 2>&1 || { tail -n 5 "$tree/setup.log"; exit 3; }

tests_of() { sed -n '1s/ kills: .*//p' "tests/mutants/$1.patch"; }
mistake_of() { sed -n '1s/.* kills: //p' "tests/mutants/$1.patch"; }
applies() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$(dirname "$tree") git apply "$@"); }

# try TEST...: passed, failed or broken (it does not compile), in $result.
try() {
    rm -f "$tree/build/meson-logs/testlog.txt"
    if meson test -C "$tree/build" -t 0.5 --maxfail 1 "$@" >"$tree/test.log" 2>&1 </dev/null; then
        result=passed
    elif [ -e "$tree/build/meson-logs/testlog.txt" ]; then
        result=failed
    else
        result=broken
    fi
}

mapfile -t all < <(for name in "${chosen[@]}"; do tests_of "$name" | tr ' ' '\n'; done | sort -u)
try "${all[@]}"
bad=" "
if [ $result != passed ]; then
    for one in "${all[@]}"; do
        try "$one"
        [ $result = passed ] || { echo "not ok - $one fails without a mistake"; bad="$bad$one "; }
    done
fi

killed=0 survived=0 stale=0 broken=0 unjudged=0
for name in "${chosen[@]}"; do
    read -ra tests <<<"$(tests_of "$name")"
    patch=$PWD/tests/mutants/$name.patch
    if [ ${#tests[@]} -eq 0 ] || ! applies "$patch" 2>"$tree/test.log"; then
        echo "not ok - $name does not apply: $(mistake_of "$name")"
        sed 's/^/# /' "$tree/test.log" | head -n 4
        stale=$((stale + 1))
        continue
    fi
    try "${tests[@]}"
    for one in "${tests[@]}"; do
        [[ $bad != *" $one "* ]] || result=unjudged
    done
    case $result in
        unjudged) echo "not ok - $name: ${tests[*]} fails without it too"; unjudged=$((unjudged + 1)) ;;
        failed) echo "ok - $name is killed by ${tests[*]}: $(mistake_of "$name")"; killed=$((killed + 1)) ;;
        passed) echo "not ok - $name survives ${tests[*]}: $(mistake_of "$name")"; survived=$((survived + 1)) ;;
        *) echo "not ok - $name does not compile: $(mistake_of "$name")"; broken=$((broken + 1)) ;;
    esac
    applies -R "$patch" || exit 3
done
echo "$killed killed, $survived survived, $stale do not apply, $broken do not compile, $unjudged cannot be judged"
[ $((survived + stale + broken + unjudged)) -eq 0 ]
