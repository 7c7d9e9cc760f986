#!/usr/bin/env bash
# installed.sh - `meson install` gives a package that programs of others build with.
#
#   installed.sh SOURCE_ROOT BUILD_ROOT [-- EXAMPLE ARGUMENT...]...
#
# Installs the build into a temporary folder, then compiles each example as C and as C++ with nothing
# but what pkg-config says of that folder, against the shared library and, the first one, against the
# static one; each, in an empty folder, prints what its .expected file says.
. "$(dirname "$0")/check.sh"
source=$1 build=$2
shift 2

check "meson install" env DESTDIR="$work/at" meson install -C "$build" --no-rebuild --quiet
pc=$(find "$work/at" -name sheaf.pc)
[ -n "$pc" ] || { echo "not ok - no sheaf.pc was installed"; exit 1; }
export PKG_CONFIG_PATH=${pc%/*}
lib=${pc%/pkgconfig/*}
prefix=$(pkg-config --variable=prefix sheaf)
version=$("$build/src/cli/sheaf" --version)
export LD_LIBRARY_PATH=$lib

# ---- what lies where ----
lies() { # lies NAME FILE...
    local file missing=
    for file in "${@:2}"; do [ -s "$file" ] || missing+=" ${file#"$work/at"}"; done
    check "$1" test -z "$missing" || true
    [ -z "$missing" ] || printf '# not there:%s\n' "$missing"
}
lies "every public header" "$source"/include/sheaf/*.h $(cd "$source/include" && ls sheaf/*.h | sed "s|^|$prefix/include/|")
lies "both libraries" "$lib/libsheaf.a" "$lib/libsheaf.so" "$lib/libsheaf.so.0"
check "the shared library has a version in its name" \
    grep -qE 'SONAME.*\[libsheaf\.so\.[0-9]+\]' <(readelf -d "$lib/libsheaf.so")
check "the version of the package is the command's" test "sheaf $(pkg-config --modversion sheaf)" = "$version"
check "the installed command runs" test "$("$prefix/bin/sheaf" --version)" = "$version"
check "it does not need the shared library" bash -c '! ldd "$1" | grep -q libsheaf' - "$prefix/bin/sheaf"
modules=$(cd "$build/src/cli" && ls sheaf-*.so 2>/dev/null | grep -v '^sheaf-cuda')
if [ -e "$build/src/cli/sheaf-cuda.so" ]; then
    for program in "$build/src/cli/sheaf $build/src/cli" "$prefix/bin/sheaf $lib/sheaf"; do
        check "kernels for GPUs are found by ${program%% *}" bash -c '"$1" info --machine --json | grep -E "\"kinds\": \"sm_" |
            grep -oE "\"module\": \"[^\"]*" | sed "s/.*\"//" | xargs realpath | grep -x "$2/sheaf-cuda.so"' - \
            "${program%% *}" "$(realpath "${program#* }")"
    done
fi
lies "the modules of MPIs that are here" $(for module in $modules; do echo "$lib/sheaf/$module"; done)
for module in $modules; do
    name=${module#sheaf-}
    check "$module is found by the command installed with it" env PATH=/nowhere /bin/sh -c '"$0" train --model m --data d --out o --steps 1 --tp 2 --transport mpi --mpi "$1" 2>&1 | /bin/grep "expected: mpirun of "' "$prefix/bin/sheaf" "${name%.so}"
done
lies "a man page for each command" $("$prefix/bin/sheaf" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' |
    grep -v '^help$' | sed "s|.*|$prefix/share/man/man1/sheaf-&.1|") "$prefix/share/man/man1/sheaf.1"
lies "completion for three shells" "$prefix/share/bash-completion/completions/sheaf.bash" \
    "$prefix/share/zsh/site-functions/_sheaf" "$prefix/share/fish/vendor_completions.d/sheaf.fish"
check "it finds the recipes installed with it" \
    bash -c '"$1" train --recipe no-such 2>&1 | grep -q cogvlm-lora' - "$prefix/bin/sheaf"

# ---- only the public functions ----
# Hidden names in the archive would clash with a program's own as much as visible ones.
defined() { nm "$@" 2>/dev/null | awk 'NF >= 3 && $2 ~ /^[A-Z]$/ && $2 != "U" { sub(/@.*/, "", $3); print $3 }' | sort -u; }
defined -D --defined-only "$lib/libsheaf.so" | grep -v '^SHEAF_' >"$work/shared.txt"
defined -g --defined-only "$lib/libsheaf.a" >"$work/static.txt"
check "the shared library exports functions" grep -qx sheaf_status_print "$work/shared.txt"
check "nothing but public names in the shared library" bash -c '! grep -vE "^sheaf_[a-z]" "$1" && ! grep "^sheaf__" "$1"' - "$work/shared.txt"
check "the static library has the same names" diff "$work/shared.txt" "$work/static.txt"

# ---- programs of others ----
# compiles NAME COMPILER HOW SOURCE: $work/NAME, with warnings as errors.
compiles() {
    local name=$1 compiler=$2 how=$3 file=$4 static=
    [ "$how" = shared ] || static=--static
    local flags libraries
    flags=$(pkg-config --cflags $static sheaf) && libraries=$(pkg-config --libs $static sheaf) || return 1
    [ "$how" = shared ] || libraries=${libraries/-lsheaf /-l:libsheaf.a }
    # shellcheck disable=SC2086
    $compiler -Wall -Wextra -Wpedantic -Werror $flags -o "$work/$name" "$file" -x none $libraries
}
example() {
    local name=$1 way compiler how
    shift
    for way in "${ways[@]}"; do
        read -r how compiler <<<"$way"
        local program=$name-$how-${compiler%% *}
        check "$name compiles: $way" compiles "$program" "$compiler" "$how" "$source/examples/$name.c"
        [ -x "$work/$program" ] &&
            check "$name prints what is expected: $way" diff <(mkdir "$work/$program.run" && cd "$work/$program.run" && "../$program" "$@" 2>&1) "$source/examples/$name.expected"
    done
}
ways=("shared cc -std=c11" "shared c++ -std=c++17 -x c++" "static cc -std=c11" "static c++ -std=c++17 -x c++")
count=0
[ $# -eq 0 ] || shift
while [ $# -gt 0 ]; do
    words=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1"); shift; done
    [ $# -eq 0 ] || shift
    example "${words[@]}"
    ways=("${ways[@]:0:2}")
    count=$((count + 1))
done
for file in "$source"/examples/[0-9][0-9]_*.c; do # those that run beside the command
    name=$(basename "$file" .c)
    [ ! -e "$source/examples/$name.expected" ] || continue
    for way in "${ways[@]}"; do
        read -r how compiler <<<"$way"
        check "$name compiles: $way" compiles "$name-$how-${compiler%% *}" "$compiler" "$how" "$file"
    done
    count=$((count + 1))
done
check "every example was built" test "$count" -eq "$(ls "$source"/examples/[0-9][0-9]_*.c | wc -l)"
exit $((failures > 0))
