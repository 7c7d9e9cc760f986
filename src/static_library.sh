#!/bin/sh
# static_library.sh LD OBJCOPY AR OBJECTS.a LIBRARY.a - one object of all, in which only the public functions have a
# name: a program that links it may call its own functions as it likes. The groups of C++ templates
# are resolved first, since their names become local too.
set -eu
ld=$1 objcopy=$2 ar=$3 objects=$4 library=$5
object=$library.o
"$ld" -r --force-group-allocation --whole-archive "$objects" -o "$object"
"$objcopy" --localize-hidden "$object"
"$objcopy" --wildcard --keep-global-symbol='sheaf_*' "$object"
rm -f "$library"
"$ar" rcs "$library" "$object"
rm -f "$object"
