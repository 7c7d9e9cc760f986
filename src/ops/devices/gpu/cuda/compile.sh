#!/bin/sh
# compile.sh NVCC SOURCE OUT.KIND.cubin DEPFILE LIKE FOLDER...: a file of kernels as machine code for one kind of GPU, with
# headers in FOLDERs. Beside it stays what tests/check_kernels.sh reads: OUT.ptx, and OUT.log with what each kernel takes.
# LIKE is the PTX of a kind for which nvcc writes the same but for the name of the kind, so that it need not do so again; or -.
nvcc=$1 source=$2 out=$3 depfile=$4 like=$5
shift 5
for folder; do
    set -- "$@" "-I$folder"
    shift
done
rest=${out%.cubin}
kind=${rest##*.}
rm -rf "$rest.kept"
mkdir "$rest.kept" || exit 1
if [ "$like" = - ]; then
    set -- -x cu -std=c++17 -include "${0%/*}/written_fma.h" -keep -keep-dir "$rest.kept" -MD -MF "$depfile" "$@" "$source"
else
    echo "$out: $source" >"$depfile"
    sed "s/^\\.target .*/.target $kind/" "$like" >"$rest.ptx" || exit 1
    set -- "$rest.ptx"
fi
if ! "$nvcc" -O3 -arch="$kind" -ftz=true -fmad=false -cubin -Xptxas -v "$@" -o "$out" >"$rest.log" 2>&1; then
    cat "$rest.log" >&2
    exit 1
fi
grep -v '^ptxas info\|bytes stack frame' "$rest.log" >&2 # warnings
[ "$like" != - ] || mv "$rest.kept/$(basename "$source" .c).ptx" "$rest.ptx" && rm -r "$rest.kept"
