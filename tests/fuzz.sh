#!/usr/bin/env bash
# fuzz.sh - `./run fuzz [READER...]`: hostile bytes against every reader, FUZZ_SECONDS (60) each,
# or FUZZ_RUNS inputs each (0: until stopped).
#
# libFuzzer with address and undefined-behaviour sanitizers, begun from valid and
# invalid files of tests/data. What it learned stays in build-fuzz/corpus, a
# crashing input in build-fuzz/crash-READER-*. Ends with "N passed, N failed".
#
# The reader `folders` is whole checkpoints with changed files (tests/fuzz/folders): FUZZ_FOLDERS of them from number FUZZ_FROM
# (0) on, else as many as FUZZ_SECONDS let; those with a fault are lines in build-fuzz/fuzz-folders.log, to be put into
# tests/fuzz/folders/seeds.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
limit=(-max_total_time="${FUZZ_SECONDS:-60}")
[ -z "${FUZZ_RUNS:-}" ] || limit=(-runs="$((FUZZ_RUNS > 0 ? FUZZ_RUNS : -1))")
golden=${SHEAF_GOLDEN:-$PWD/tests/data}
build=build-fuzz
# No reader computes, but for blocks of GGUF files (ops/quant): instrumented, the kernels alone take longer to compile than
# all else. Patterns of this list are regular expressions, where * stands for any characters.
mkdir -p $build
printf 'src:*/src/%s*\n' 'ops/[^q]' lora/delta >$build/left-alone
flags="-fsanitize=fuzzer-no-link,address,undefined"
for list in sanitize-ignorelist sanitize-coverage-ignorelist; do flags+=" -f$list=$PWD/$build/left-alone"; done

if [ ! -f $build/build.ninja ]; then
    CC=clang meson setup $build -Dbuildtype=debugoptimized -Db_lundef=false "-Dc_args=$flags" "-Dc_link_args=$flags" >/dev/null || exit 3
fi
ninja -C $build libsheaf_objects.a src/cli/libcli.a >$build/compile.log 2>&1 || { tail -n 20 $build/compile.log; exit 3; }

. tests/fuzz/seeds.sh
clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc -I. \
    tests/fuzz/fuzz.c tests/fuzz/readers.c $build/src/cli/libcli.a $build/libsheaf_objects.a $(pkg-config --libs jansson libxxhash libpcre2-8 libutf8proc zlib libzstd libjpeg libpng libwebp libwebpdemux) -lm -lpthread -o $build/fuzz || exit 3
readers="$($build/fuzz) folders" || exit 3
readers=${*:-$readers}
clang -g -O1 -D_GNU_SOURCE -fsanitize=address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc -I. tests/fuzz/folders/*.c $build/libsheaf_objects.a \
    $(pkg-config --libs jansson libxxhash libpcre2-8 libutf8proc zlib libzstd libjpeg libpng libwebp libwebpdemux) -lm -lpthread -o $build/folders || exit 3

# Batches of 2000, so that leaks are told and a crash costs no more than its batch.
folders() {
    local at=${FUZZ_FROM:-0} end=$((SECONDS + ${FUZZ_SECONDS:-60})) done=0 bad=0 batch=2000
    : >$build/fuzz-folders.log
    while [ "$done" -lt "${FUZZ_FOLDERS:-1000000000}" ] && { [ -n "${FUZZ_FOLDERS:-}" ] || [ "$SECONDS" -lt "$end" ]; }; do
        SHEAF_GOLDEN=$golden ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=1024 $build/folders --from "$at" --count $batch >>$build/fuzz-folders.log 2>&1 ||
            { bad=$((bad + 1)); sed 's/^/after this: /' "$SHEAF_FUZZ_DIR/current" >>$build/fuzz-folders.log; }
        at=$((at + batch)) done=$((done + batch))
    done
    if [ $bad -eq 0 ]; then echo "ok - folders: $done of them"; else
        echo "not ok - folders: $bad batches with a fault, see $build/fuzz-folders.log"
        grep -m 25 -A 4 -E '^FAULT|ERROR: |runtime error' $build/fuzz-folders.log | sed 's/^/# /'
        return 1
    fi
}

SHEAF_FUZZ_DIR=$(mktemp -d -p "$([ -d /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")") || exit 3
export SHEAF_FUZZ_DIR
trap 'rm -rf "$SHEAF_FUZZ_DIR"' EXIT
passed=0
failed=0
for name in $readers; do
    if [ "$name" = folders ]; then
        if folders; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
        continue
    fi
    ln -sfn fuzz "$build/fuzz-$name" # the name says which reader
    mkdir -p "$build/corpus/$name" "$build/seeds/$name"
    n=0
    while IFS= read -r file; do
        n=$((n + 1))
        cp "$file" "$build/seeds/$name/$n"
    done < <(small_seeds "$name" "$golden")
    if [ $n -eq 0 ]; then
        echo "not ok - $name: no seed to begin with"
        failed=$((failed + 1))
        continue
    fi
    if "$build/fuzz-$name" "${limit[@]}" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" "$build/seeds/$name" >"$build/fuzz-$name.log" 2>&1; then
        # The last input that reached a new edge: lines "#N NEW cov: C ..." whose C grew.
        last=$(awk '/^#[0-9]+.*cov: / { match($0, /cov: [0-9]+/); c = substr($0, RSTART + 5, RLENGTH - 5) + 0; if (c > most) { most = c; at = substr($1, 2) } } END { print at + 0 }' "$build/fuzz-$name.log")
        echo "ok - $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz-$name.log") inputs, the last new edge at input $last"
        passed=$((passed + 1))
    else
        echo "not ok - $name: see $build/fuzz-$name.log"
        tail -n 25 "$build/fuzz-$name.log" | sed 's/^/# /'
        failed=$((failed + 1))
    fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
