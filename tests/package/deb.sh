#!/usr/bin/env bash
# deb.sh - packages for Debian: made twice they are the same bytes; unpacked, a program builds against them and the
# command runs.
#
#   deb.sh SOURCE_ROOT BUILD_ROOT
. "$(dirname "$0")/check.sh"
source=$1 build=$2
export DEBEMAIL=sheaf@debian.org # lintian wants one that could be reached
export DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1 # the best takes ten seconds for each set
check "packages are made" bash "$source/packaging/deb.sh" "$build" "$work/one"
[ $failures -eq 0 ] || exit 1
check "and again" bash "$source/packaging/deb.sh" "$build" "$work/two"
check "of the same bytes" diff -r "$work/one" "$work/two"
mkdir "$work/failing"
for tool in dpkg-shlibdeps dpkg-query; do
    mkdir "$work/failing/$tool"
    # the first of its needs, and what is only asked for later
    printf '#!/bin/sh\ncase "$* " in *pkgconfig* | -O*) exit 2 ;; esac\nexec %s "$@"\n' "$(command -v $tool)" >"$work/failing/$tool/$tool" && chmod +x "$work/failing/$tool/$tool"
    check "none is made where what they need is not known ($tool)" bash -c '! PATH=$1:$PATH bash "$2" "$3" "$4" && ! ls "$4"/*.deb 2>/dev/null' - "$work/failing/$tool" "$source/packaging/deb.sh" "$build" "$work/without"
done
field() { dpkg-deb -f "$work"/one/"$1"_*.deb "$2"; }
check "three of them" test "$(cd "$work/one" && ls | sed 's/_.*//' | paste -sd' ')" = "libsheaf-dev libsheaf0 sheaf"
check "the library says what it needs" grep -q 'libc6 (>= 2.34).*libjansson4' <<<"$(field libsheaf0 Depends)"
check "so does the command" grep -q 'libjansson4' <<<"$(field sheaf Depends)"
check "headers are those of the library" grep -q "^libsheaf0 (= $(field libsheaf0 Version)), .*libjansson-dev" <<<"$(field libsheaf-dev Depends)"
for package in libsheaf0 libsheaf-dev sheaf; do
    check "$package unpacks" dpkg-deb -x "$work"/one/${package}_*.deb "$work/root"
    check "$package: its sums are true" bash -c 'cd "$1" && dpkg-deb --info "$2" md5sums | md5sum --quiet -c -' - "$work/root" "$(echo "$work"/one/${package}_*.deb)"
    check "$package: all of it is root's" bash -c '! dpkg-deb -c "$1" | grep -v " root/root "' - "$(echo "$work"/one/${package}_*.deb)"
done
lib=$(dirname "$(find "$work/root" -name 'libsheaf.so.0' -print -quit)")
check "the command runs" "$work/root/usr/bin/sheaf" --version
check "and finds the recipes" bash -c '"$1" train --recipe no-such 2>&1 | grep -q cogvlm-lora' - "$work/root/usr/bin/sheaf"
check "a man page for it" test -s "$work/root/usr/share/man/man1/sheaf-train.1.gz"
export PKG_CONFIG_PATH=$lib/pkgconfig
program() { # program STATIC: the numbered example that needs no model
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Werror $(pkg-config --cflags sheaf) -o "$work/tree" "$source/examples/01_the_tree.c" $(pkg-config --libs sheaf) &&
        LD_LIBRARY_PATH=$lib "$work/tree" | diff - "$source/examples/01_the_tree.expected"
}
check "a program builds against them" program
check "every function has the version that it came with" test "$(dpkg-deb --info "$work"/one/libsheaf0_*.deb symbols | grep -c 'sheaf_.*@SHEAF_0 ')" -ge 100
if command -v lintian >/dev/null; then
    check "lintian finds nothing" bash -c 'said=$(lintian --allow-root --no-cfg --fail-on error,warning "$@" 2>&1) || { echo "$said"; false; }' - "$work"/one/*.deb
fi
exit $((failures > 0))
