#!/usr/bin/env bash
# check_kernels.sh - what nvcc makes of the kernels is what their bytes and speed rest on.
#
#   check_kernels.sh SOURCE_ROOT BUILD_ROOT [KIND...]
#
# For each file and kind of GPU that the build compiled (src/ops/devices/gpu/cuda/compile.sh): no stack, no spilled
# register; float32 arithmetic is rounded to nearest with denormals as zero, but where a line says that they are kept
# (src/ops/math/denormals.h), double's to nearest;
# nothing is approximate, no minimum or maximum of floats, no float is added atomically; a product and
# a sum are fused only where fmaf() stands (src/ops/devices/gpu/cuda/written_fma.h); tensor cores are used where they are meant, and no wgmma
# waits for the one before.
set -uo pipefail
cd "$1" || exit 1
build=$2
shift 2

# complaints PTX: what is wrong with the arithmetic of a file.
complaints() {
    awk '
        { sub(/^[ \t]*(@!?%p[0-9]+[ \t]+)?/, "") }
        /\.entry / { match($0, /entry [A-Za-z0-9_]+/); kernel = substr($0, RSTART + 6, RLENGTH - 6) }
        function complain(what) { if (!((kernel, what, $1) in told)) print kernel ": " what ": " $1; told[kernel, what, $1] = 1 }
        $1 ~ /^(add|sub|mul|div|fma|sqrt|rcp)\..*f32$/ && $1 !~ /\.rn\.ftz\.f32$/ && !($1 ~ /\.rn\.f32$/ && /\/\/ denormals kept$/) { complain("not .rn.ftz") }
        $1 ~ /^(add|sub|mul|div|fma|sqrt|rcp)\..*f64$/ && $1 !~ /\.rn\.f64$/ { complain("not .rn") }
        $1 ~ /^setp\..*f32$/ && $1 !~ /\.ftz\.f32$/ { complain("not .ftz") }
        /^[a-z0-9]+\.approx|^(ex2|lg2|sin|cos|tanh|rsqrt)\./ { complain("approximate") }
        $1 ~ /^(min|max)\..*f(32|64)$/ { complain("zeros and NaN as the compiler likes") }
        /^(atom|red)\..*f(16|32|64)|^(atom|red)\..*bf16/ { complain("sums in no order") }' "$1"
}
# unwritten PTX: an fma without the mark of src/ops/devices/gpu/cuda/written_fma.h.
unwritten() { awk '/(^|[ \t])fma\./ && !/\/\/ written/ { print "an fma that is not written: " $1; exit }' "$1"; }
# wasteful LOG: kernels with a stack or spilled registers.
wasteful() {
    awk '/Compiling entry function|Function properties for/ { kernel = $NF == "" ? kernel : $0; sub(/.*(function .|for )/, "", kernel); sub(/. for .*/, "", kernel) }
        /bytes stack frame/ { seen++; if ($0 !~ /^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/) print kernel ":" $0 }
        /wgmma.mma_async instructions are serialized/ { print }
        END { if (!seen) print "no kernel was compiled" }' "$1"
}
# tensorless SOURCE PTX: tensor cores are meant and not there.
tensorless() {
    for way in 'mma_(bf16|f16)\(:mma\.sync' 'wide_(bf16|f16)_[0-9]+\(:wgmma\.mma_async'; do
        if grep -qE "${way%%:*}" "$1" && ! grep -q "${way##*:}" "$2"; then echo "no ${way##*:}"; fi
    done
}

# check FILE KIND: prints what is wrong.
check() {
    local kept folder=src/ops/devices/gpu/cuda
    [ "${1%/*}" != tests/gpu ] || folder=tests/gpu
    kept=$build/$folder/$(basename "$1" .c).$2
    if ! [ -s "$kept.ptx" ] || ! [ -s "$kept.log" ]; then
        echo "is not compiled: ninja -C $build"
        return
    fi
    wasteful "$kept.log"
    complaints "$kept.ptx"
    unwritten "$kept.ptx"
    tensorless "$1" "$kept.ptx"
}
# held FILE KIND
held() {
    local told name
    told=$(check "$1" "$2")
    name="$(basename "$1") for $2 has no stack, no spills and the arithmetic that is written"
    if [ -z "$told" ]; then echo "ok - $name"; return; fi
    echo "not ok - $name"
    head -n 8 <<<"$told" | sed 's/^/# /'
    bad=1
}

# The rules themselves, on lines that break them.
bad=0
rule() { # rule NAME TEXT COMMAND...
    local name=$1 text=$2
    shift 2
    if [ -n "$("$@" <(printf '%s\n' "$text") 2>&1)" ]; then return; fi
    echo "not ok - $name is not noticed"
    bad=1
}
for line in 'add.f32 %f1, %f2, %f3;' 'mul.rn.f32 %f1;' '@%p1 fma.rn.f32 %f1;' 'add.f64 %fd1;' 'setp.lt.f32 %p1;' 'div.full.ftz.f32 %f1;' \
    'ex2.approx.ftz.f32 %f1;' 'sqrt.approx.ftz.f32 %f1;' 'max.ftz.f32 %f1;' 'atom.global.add.f32 %f1;' 'red.global.add.noftz.bf16 [%r1];'; do
    rule "$line" "$line" complaints
done
rule 'a contraction' '	fma.rn.ftz.f32 %f1, %f2, %f3, %f4;' unwritten
rule 'a spill' '    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads' wasteful
rule 'a stack' '    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' wasteful
[ $bad -ne 0 ] || echo "ok - the rules notice what breaks them"

if grep -rn __CUDA_ARCH src; then # whose PTX is the same, too: src/ops/devices/gpu/cuda/compile.sh
    echo "not ok - the kernels are the same for every kind of GPU"
    bad=1
fi

if [ $# -eq 0 ]; then
    echo "ok - not applicable: this build compiles no kernels for GPUs (nvcc: nvidia-cuda-toolkit of Debian's non-free, or developer.nvidia.com/cuda-downloads; -Dcuda, -Dgpu_kinds)"
    exit $bad
fi
mapfile -t files < <(find src/ops/devices/gpu -path '*kernels/*.c' | LC_ALL=C sort)
[ ${#files[@]} -ge 20 ] || { echo "not ok - found only ${#files[@]} files of kernels"; bad=1; }
for kind; do
    for file in "${files[@]}"; do
        if [ "$kind" = sm_90a ] || ! grep -q 'cuda/hopper\.h' "$file"; then held "$file" "$kind"; fi
    done
done
exit $bad
