#!/usr/bin/env bash
# captcha_check.sh CAPTCHA - pictures of both styles, the same again from the same seed, and nothing held out among
# what is learned from.
set -uo pipefail
captcha=$1
dir=$(mktemp -d) || exit 3
trap 'rm -rf "$dir"' EXIT
failed=0

check() { # check NAME COMMAND...
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        failed=1
    fi
}
labels() { find "$@" -type f -name '*.*.*' -printf '%f\n' | cut -d. -f1 | sort -u; }
kind() { [ "$(head -c 4 "$1" | od -An -tx1 | tr -d ' ')" = "$2" ]; }
count() { [ "$(find "$1" -type f | wc -l)" -eq "$2" ]; }
apart() { [ -z "$(comm -12 <(labels "$dir"/*/train) <(labels "$dir/night/heldout"))" ] && labels "$dir/night/heldout" | cmp - <(labels "$dir/day/heldout"); }
refused() { "$@"; [ $? -eq 2 ]; }

check "night is drawn" "$captcha" night "$dir/night" 60 9 5
check "day is drawn" "$captcha" day "$dir/day" 40 9 5
check "as many as were asked for" count "$dir/night/train" 60
check "and as many held out" count "$dir/day/heldout" 9
check "night is PNG" kind "$(find "$dir/night/train" -type f | head -n 1)" 89504e47
check "day is JPEG" kind "$(find "$dir/day/heldout" -type f | head -n 1)" ffd8ffe0
check "held-out numbers are in no training set" apart
check "the same arguments" "$captcha" night "$dir/again" 60 9 5
check "give the same pictures" diff -r "$dir/night" "$dir/again"
check "another seed" "$captcha" night "$dir/other" 60 9 6
check "gives others" eval '! diff -rq "$dir/night" "$dir/other"'
check "a style that is none is refused" refused "$captcha" dusk "$dir/dusk" 1 1
check "no number is refused" refused "$captcha" day "$dir/none" 1x 1
exit $failed
