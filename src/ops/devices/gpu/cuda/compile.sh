#!/bin/sh
# compile.sh NVCC SOURCE OUT.KIND.cubin DEPFILE FOLDER...: a file of kernels as machine code for one kind of GPU, with
# headers in FOLDERs. Beside it stays what tests/check_kernels.sh reads: OUT.ptx, and OUT.log with what each kernel takes.
nvcc=$1 source=$2 out=$3 depfile=$4
shift 4
for folder; do
    set -- "$@" "-I$folder"
    shift
done
rest=${out%.cubin}
kind=${rest##*.}
rm -rf "$rest.kept"
mkdir "$rest.kept" || exit 1
if ! "$nvcc" -x cu -std=c++17 -O3 -arch="$kind" -ftz=true -fmad=false -include "${0%/*}/written_fma.h" -cubin -Xptxas -v -keep -keep-dir "$rest.kept" -MD -MF "$depfile" "$@" \
        -o "$out" "$source" >"$rest.log" 2>&1; then
    cat "$rest.log" >&2
    exit 1
fi
grep -v '^ptxas info\|bytes stack frame' "$rest.log" >&2 # warnings
mv "$rest.kept/$(basename "$source" .c).ptx" "$rest.ptx" && rm -r "$rest.kept"
