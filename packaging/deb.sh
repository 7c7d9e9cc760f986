#!/usr/bin/env bash
# deb.sh - packages for Debian: libsheaf0, libsheaf-dev and sheaf, by dpkg's own tools.
#
#   deb.sh BUILD_ROOT OUT
#
# What `meson install` of the build gives, below /usr. dpkg-shlibdeps finds what the programs need; dpkg-gensymbols notes
# which version of the library has which function. Equal inputs give equal bytes; times are SOURCE_DATE_EPOCH's, else 1980.
set -euo pipefail
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}
case $(od -An -j18 -N2 -tu2 "$build/libsheaf.so.0" | tr -d ' ') in # as ELF numbers machines
    62) architecture=amd64 ;;
    183) architecture=arm64 ;;
    *) printf 'deb.sh: %s/libsheaf.so.0 is neither for amd64 nor for arm64\n' "$build" >&2; exit 3 ;;
esac
eval "$(dpkg-architecture -f -a"$architecture" -s 2>/dev/null)" # perhaps not this machine's
version=$(meson introspect --projectinfo "$build" | sed 's/.*"version": "\([^"]*\)".*/\1/')
maintainer="${DEBFULLNAME:-The sheaf authors} <${DEBEMAIL:-sheaf@localhost}>" # as Debian's own tools are told
work=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022

# ---- what is installed, moved below /usr: nothing in it names its folder ----
meson install -C "$build" --no-rebuild --quiet --strip --destdir "$work/all" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 3; }
prefix=$(find "$work/all" -type d -path '*/include/sheaf' -print -quit)
from=${prefix%/include/sheaf}
lib=usr/lib/$DEB_HOST_MULTIARCH
libdir=$(cd "$from" && find . -name libsheaf.so -printf '%h\n' -quit)
libdir=$from/${libdir#./}
take() { # take PACKAGE FOLDER FILE...
    local folder=$work/$1/$2
    mkdir -p "$folder"
    shift 2
    cp -a "$@" "$folder/"
}
take libsheaf0 "$lib" "$libdir"/libsheaf.so.*
take libsheaf-dev "$lib" "$libdir/libsheaf.so" "$libdir/libsheaf.a"
take libsheaf-dev "$lib/pkgconfig" "$libdir/pkgconfig/sheaf.pc"
take libsheaf-dev usr/include "$from/include/sheaf"
take sheaf usr/bin "$from/bin/sheaf"
take sheaf usr/share "$from/share/sheaf"
take sheaf usr/share/man "$from/share/man/man1"
for folder in bash-completion/completions zsh/site-functions fish/vendor_completions.d; do
    take sheaf "usr/share/${folder%/*}" "$from/share/$folder"
done
mv "$work/sheaf/usr/share/bash-completion/completions/sheaf.bash" "$work/sheaf/usr/share/bash-completion/completions/sheaf"
mv "$work/sheaf/usr/share/zsh/site-functions" "$work/sheaf/usr/share/zsh/vendor-completions"
# Kernels of GPUs, and the transport of the MPI that Debian has by default.
for module in sheaf-cuda sheaf-openmpi; do
    [ ! -e "$libdir/sheaf/$module.so" ] || take sheaf "$lib/sheaf" "$libdir/sheaf/$module.so"
done
# Kernels are data: the module calls nobody.
if [ -e "$work/sheaf/$lib/sheaf/sheaf-cuda.so" ]; then
    printf 'sheaf: shared-library-lacks-prerequisites [%s/sheaf/sheaf-cuda.so]\n' "$lib" >"$work/overrides"
    mkdir -p "$work/sheaf/usr/share/lintian/overrides"
    mv "$work/overrides" "$work/sheaf/usr/share/lintian/overrides/sheaf"
fi

# ---- what Debian wants beside it ----
mkdir -p "$work/debian"
cat >"$work/debian/changelog" <<END
sheaf ($version) unstable; urgency=medium

  * What is new is in CHANGELOG.md of the sources.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
printf 'Source: sheaf\nSection: science\nPriority: optional\nMaintainer: %s\n\nPackage: libsheaf0\nArchitecture: any\nDescription: x\n' \
    "$maintainer" >"$work/debian/control" # for dpkg's tools, which read the names there
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sheaf\n\n'
    printf 'Files: *\nCopyright: 2026 The sheaf authors\nLicense: Apache-2.0\n On Debian systems the text of this license is in\n /usr/share/common-licenses/Apache-2.0.\n'
} >"$work/copyright"
for package in libsheaf0 libsheaf-dev sheaf; do
    take $package usr/share/doc/$package "$work/copyright"
    gzip -9nc "$work/debian/changelog" >"$work/$package/usr/share/doc/$package/changelog.gz"
    mkdir -p "$work/$package/DEBIAN"
done
find "$work/sheaf/usr/share/man" -name '*.1' -exec gzip -9n {} +
printf 'libsheaf 0 libsheaf0 (>= %s)\n' "$version" >"$work/libsheaf0/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$work/libsheaf0/DEBIAN/triggers"

# needs PACKAGE PROGRAM...: what dpkg-shlibdeps says that they need.
needs() {
    local package=$1
    shift
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -e"${1#"$work/"}" "${@:2}" 2>"$work/shlibs.log") | sed -n 's/^shlibs:Depends=//p' ||
        { cat "$work/shlibs.log" >&2; exit 3; }
}
(cd "$work" && dpkg-gensymbols -q -plibsheaf0 -v"$version" -Plibsheaf0 -Olibsheaf0/DEBIAN/symbols)
# control PACKAGE SECTION DEPENDS TITLE TEXT: its description, and the file list with sums.
control() {
    local package=$1 size
    size=$(du -k -s --apparent-size "$work/$package/usr" | cut -f1)
    {
        printf 'Package: %s\nSource: sheaf\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %s\n' \
            "$package" "$version" "$architecture" "$maintainer" "$size"
        printf 'Depends: %s\nSection: %s\nPriority: optional\n' "$3" "$2"
        [ "$package" = sheaf ] || printf 'Multi-Arch: same\n'
        [ "$package" != sheaf ] || printf 'Recommends: libmicrohttpd12\nSuggests: openmpi-bin\n'
        printf 'Description: %s\n' "$4"
        fold -s -w 78 <<<"$5" | sed 's/ *$//; s/^/ /'
    } >"$work/$package/DEBIAN/control"
    (cd "$work/$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$work/$package/DEBIAN/md5sums"
    chmod -R u+rwX,go+rX,go-w "$work/$package"
    find "$work/$package" -type f \( -path '*/bin/*' \) -exec chmod 755 {} +
    find "$work/$package/$lib" -type f -exec chmod 644 {} + 2>/dev/null || true
    dpkg-deb --root-owner-group -Z"${DPKG_DEB_COMPRESSOR_TYPE:-xz}" --build "$work/$package" "$out/${package}_${version}_$architecture.deb" >/dev/null
    printf '%s\n' "$out/${package}_${version}_$architecture.deb"
}
about="Fine-tunes, stores, repairs, merges and runs language and vision-language models that are divided over devices, with the same bytes on any number of them."
# What they need is known before the first is made: as an argument, or in a loop, a failure would be lost.
library=$(needs libsheaf0 "$work/libsheaf0/$lib"/libsheaf.so.0.*)
mapfile -t files < <(sed -n 's/^Requires.private: *//p' "$libdir/pkgconfig/sheaf.pc" | tr ',' '\n' | awk -v of="$DEB_HOST_MULTIARCH" '{ print "*/" of "/pkgconfig/" $1 ".pc" }')
static=$(dpkg-query -S "${files[@]}" | sed 's/:.*//' | LC_ALL=C sort -u | paste -sd, | sed 's/,/, /g')
modules=()
for module in "$work/sheaf/$lib/sheaf"/*.so; do [ ! -e "$module" ] || [[ $module == *openmpi* ]] || modules+=("$module"); done
command=$(needs sheaf "$work/sheaf/usr/bin/sheaf" "${modules[@]}")
control libsheaf0 libs "$library" "fine-tuning of divided language models, library" "$about This is the shared library."
control libsheaf-dev libdevel "libsheaf0 (= $version), libc6-dev, $static" "fine-tuning of divided language models, headers" "$about These are the headers, the static library and the file for pkg-config."
control sheaf science "$command" "fine-tuning of divided language models, command" "$about This is the command with its manual, its recipes and completion for three shells."
