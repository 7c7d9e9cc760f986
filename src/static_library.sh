#!/bin/sh
# static_library.sh OBJECTS.a LIBRARY.a - one object of all, in which only the public functions have a
# name: a program that links it may call its own functions as it likes. The groups of C++ templates
# are resolved first, since their names become local too.
set -eu
object=$2.o
ld -r --force-group-allocation --whole-archive "$1" -o "$object"
objcopy --localize-hidden "$object"
objcopy --wildcard --keep-global-symbol='sheaf_*' "$object"
rm -f "$2"
ar rcs "$2" "$object"
rm -f "$object"
