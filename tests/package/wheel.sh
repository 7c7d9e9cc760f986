#!/usr/bin/env bash
# wheel.sh - the wheel for pip: made twice it is the same bytes; unpacked, with Python and nothing else, its module passes
# python/tests and its command runs.
#
#   wheel.sh SOURCE_ROOT BUILD_ROOT
. "$(dirname "$0")/check.sh"
source=$1 build=$2
export SHEAF_SOURCE_ROOT=$source PYTHONDONTWRITEBYTECODE=1
make_wheel() { python3 "$source/packaging/wheel.py" "$source" "$build" "$work/$1"; }
check "a wheel is made" make_wheel one
[ $failures -eq 0 ] || exit 1
check "and again" make_wheel two
check "of the same bytes" diff -r "$work/one" "$work/two"
check "with the tag that its symbols allow" test -e "$work"/one/sheaf-*-py3-none-manylinux_2_34_x86_64.whl
mkdir "$work/site"
check "it is a zip archive" python3 -m zipfile -e "$work"/one/*.whl "$work/site"
chmod 755 "$work"/site/sheaf/native/sheaf # as pip does, by the entry's mode

# ---- RECORD names every file with its hash ----
check "its RECORD is true" python3 - "$work/site" <<'PYTHON'
import base64, csv, hashlib, pathlib, sys
site = pathlib.Path(sys.argv[1])
(record,) = site.glob("*.dist-info/RECORD")
rows = {name: (digest, size) for name, digest, size in csv.reader(record.open())}
there = {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()}
assert set(rows) == there, set(rows) ^ there
for name, (digest, size) in rows.items():
    data = (site / name).read_bytes()
    mine = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert name == record.relative_to(site).as_posix() or (digest, size) == (mine, str(len(data))), name
PYTHON
check "it has the licences of what it brings along" test "$(find "$work"/site/*.dist-info/licenses -size +0 | wc -l)" -ge 8
foreign() { # what a program loads from elsewhere is glibc's
    ! ldd "$1" | awk '{ print $1 }' | grep -vE "^($work/site/.*|linux-vdso.so.1|lib(c|m|dl|rt|pthread)\.so\.[0-9]+|/lib64/ld-linux-x86-64.so.2)$" |
        grep -vFf <(cd "$work/site/sheaf/native" && ls)
}
check "its library needs nothing but glibc and itself" foreign "$work/site/sheaf/native/libsheaf.so.0"
check "so its command" foreign "$work/site/sheaf/native/sheaf"

# ---- as a user has it: no library and no file of the build ----
check "its command runs" env PYTHONPATH="$work/site" python3 -m sheaf --version
check "and finds the recipes" bash -c 'PYTHONPATH=$1 python3 -m sheaf train --recipe no-such 2>&1 | grep -q cogvlm-lora' - "$work/site"
printf 'model_name_or_path: a\nfinetuning_type: full\n' >"$work/factory.yaml"
check "it translates settings of others" bash -c 'PYTHONPATH=$1 python3 -m sheaf translate "$2" | grep -x "method: full"' - "$work/site" "$work/factory.yaml"
mkdir "$work/temporary"
cd "$work/temporary" || exit 1
PYTHONPATH=$work/site TMPDIR=$work/temporary timeout 300 python3 -m unittest discover -v -s "$source/python/tests" >"$work/said" 2>&1
status=$?
# One case for each test: "test_name (module.Class.test_name) ... ok", after a line of documentation for some.
sed -nE 's/^(test_[a-z0-9_]+) .*/\1/; T; s/_/ /g; s/^test //; p' "$work/said" >"$work/names"
while read -r name; do [ $status -ne 0 ] || printf 'ok - %s\n' "$name"; done <"$work/names"
[ $status -eq 0 ] && [ "$(wc -l <"$work/names")" -ge 15 ] || {
    printf 'not ok - the tests of the module\n'
    tail -n 60 "$work/said" | sed 's/^/# /'
    failures=$((failures + 1))
}
exit $((failures > 0))
