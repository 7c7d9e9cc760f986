#!/usr/bin/env bash
# fuzz.sh - `./run fuzz`: hostile bytes against every reader, FUZZ_SECONDS (60) each.
#
# libFuzzer with address and undefined-behaviour sanitizers, begun from valid and
# invalid files of tests/data. What it learned stays in build-fuzz/corpus, a
# crashing input in build-fuzz/crash-READER-*. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
seconds=${FUZZ_SECONDS:-60}
golden=${SHEAF_GOLDEN:-$PWD/tests/data}
build=build-fuzz
flags=-fsanitize=fuzzer-no-link,address,undefined

if [ ! -f $build/build.ninja ]; then
    CC=clang meson setup $build -Dbuildtype=debugoptimized -Db_lundef=false "-Dc_args=$flags" "-Dc_link_args=$flags" >/dev/null || exit 3
fi
ninja -C $build libsheaf.a >$build/compile.log 2>&1 || { tail -n 20 $build/compile.log; exit 3; }

names=(- safetensors config adapter-config json-lines tokens index)
seeds() {
    case $1 in
        1) find "$golden/llama/safetensors_edge" -name '*.safetensors' ;;
        2) find "$golden/llama" -name 'config*.json' ;;
        3) find "$golden" -name adapter_config.json ;;
        4) find tests/fuzz/json-lines -type f ;;
        5) find "$golden/llama" -name 'fwd_inputs.safetensors' ;;
        6) find "$golden/llama" -name 'model.safetensors.index.json' ;;
    esac
}

passed=0
failed=0
for reader in 1 2 3 4 5 6; do
    name=${names[$reader]}
    clang -g -O1 -D_GNU_SOURCE -DREADER=$reader -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc \
        tests/fuzz/readers.c $build/libsheaf.a $(pkg-config --libs jansson libxxhash libpcre2-8) -lm -lpthread -o "$build/fuzz-$name" || exit 3
    mkdir -p "$build/corpus/$name" "$build/seeds/$name"
    n=0
    while IFS= read -r file; do
        n=$((n + 1))
        cp "$file" "$build/seeds/$name/$n"
    done < <(seeds $reader)
    if [ $n -eq 0 ]; then
        echo "not ok - $name: no seed to begin with"
        failed=$((failed + 1))
        continue
    fi
    if "$build/fuzz-$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" "$build/seeds/$name" >"$build/fuzz-$name.log" 2>&1; then
        echo "ok - $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz-$name.log") inputs"
        passed=$((passed + 1))
    else
        echo "not ok - $name: see $build/fuzz-$name.log"
        tail -n 25 "$build/fuzz-$name.log" | sed 's/^/# /'
        failed=$((failed + 1))
    fi
    rm -rf /dev/shm/sheaf-fuzz-*
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
