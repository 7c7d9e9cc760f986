#!/usr/bin/env bash
# Every reader bears its seeds, cut and changed in small ways. usage: replay.sh PROGRAM
set -uo pipefail
replay=$1
. "$(dirname "${BASH_SOURCE[0]}")/seeds.sh"
golden=${SHEAF_GOLDEN:-${SHEAF_TEST_DATA:-$fuzz_dir/../data}}
SHEAF_FUZZ_DIR=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-replay.XXXXXX") || exit 3
export SHEAF_FUZZ_DIR
trap 'rm -rf "$SHEAF_FUZZ_DIR"' EXIT
failures=0
for reader in $("$replay"); do
    mapfile -t files < <(small_seeds "$reader" "$golden")
    if [ ${#files[@]} -gt 0 ] && output=$("$replay" "$reader" "${files[@]}" 2>&1); then
        printf 'ok - %s: %d seeds\n' "$reader" ${#files[@]}
    else
        printf 'not ok - %s: %d seeds\n' "$reader" ${#files[@]}
        printf '%s\n' "${output:-}" | head -n 40 | sed 's/^/# /'
        failures=1
    fi
done
exit $failures
