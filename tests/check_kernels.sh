#!/usr/bin/env bash
# check_kernels.sh - what nvcc makes of the kernels is what their bytes and speed rest on.
#
#   check_kernels.sh SOURCE_ROOT BUILD_ROOT [FILE.c...]
#
# For sm_80 and sm_90a (for sm_90a alone what includes ops/devices/cuda/hopper.h): no stack, no spilled
# register; float32 arithmetic is rounded to nearest with denormals as zero, double's to nearest;
# nothing is approximate, no minimum or maximum of floats, no float is added atomically; a product and
# a sum are fused only where fmaf() stands; tensor cores are used where they are meant, and no wgmma
# waits for the one before. What passed is not compiled again until a source changes (kernels_checked
# of the build). $NVCC names the compiler.
set -uo pipefail
cd "$1" || exit 1
build=$2
shift 2
flags=(-x cu -std=c++17 -O3 -ftz=true -fmad=false -Isrc -Iinclude)
for nvcc in "${NVCC:-}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc /usr/lib/nvidia-cuda-toolkit/bin/nvcc ''; do
    [ -z "$nvcc" ] || [ ! -x "$nvcc" ] || break
done

# complaints PTX: what is wrong with the arithmetic of a file.
complaints() {
    awk '
        { sub(/^[ \t]*(@!?%p[0-9]+[ \t]+)?/, "") }
        /\.entry / { match($0, /entry [A-Za-z0-9_]+/); kernel = substr($0, RSTART + 6, RLENGTH - 6) }
        function complain(what) { if (!((kernel, what, $1) in told)) print kernel ": " what ": " $1; told[kernel, what, $1] = 1 }
        $1 ~ /^(add|sub|mul|div|fma|sqrt|rcp)\..*f32$/ && $1 !~ /\.rn\.ftz\.f32$/ { complain("not .rn.ftz") }
        $1 ~ /^(add|sub|mul|div|fma|sqrt|rcp)\..*f64$/ && $1 !~ /\.rn\.f64$/ { complain("not .rn") }
        $1 ~ /^setp\..*f32$/ && $1 !~ /\.ftz\.f32$/ { complain("not .ftz") }
        /^[a-z0-9]+\.approx|^(ex2|lg2|sin|cos|tanh|rsqrt)\./ { complain("approximate") }
        $1 ~ /^(min|max)\..*f(32|64)$/ { complain("zeros and NaN as the compiler likes") }
        /^(atom|red)\..*f(16|32|64)|^(atom|red)\..*bf16/ { complain("sums in no order") }' "$1"
}
# unwritten PTX: an fma without the mark of tests/written_fma.h.
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
    for way in 'mma_(bf16|f16)\(:mma\.sync' 'wide_(bf16|f16)\(:wgmma\.mma_async'; do
        if grep -qE "${way%%:*}" "$1" && ! grep -q "${way##*:}" "$2"; then echo "no ${way##*:}"; fi
    done
}

# check FILE ARCH: prints what is wrong.
check() {
    local file=$1 arch=$2 key place told marked=sm_80
    if grep -q 'cuda/hopper\.h' "$file"; then marked=sm_90a; fi
    key=$({ cat "$0" tests/written_fma.h; "$nvcc" --version; gcc -MM -x c -D__CUDACC__ -Isrc -Iinclude "$file" |
        tr -d '\\' | sed 's/^[^:]*://' | xargs cat; } | sha256sum | cut -c1-24)
    place=$build/kernels_checked/$(basename "$file" .c).$arch
    if [ "$(cat "$place/passed" 2>/dev/null)" = "$key" ]; then return; fi
    rm -rf "$place"
    mkdir -p "$place"
    if ! "$nvcc" "${flags[@]}" -arch="$arch" -cubin -Xptxas -v -keep -keep-dir "$place" -o "$place/kernels.cubin" "$file" >"$place/log" 2>&1 ||
        { [ "$arch" = $marked ] && ! "$nvcc" "${flags[@]}" -arch="$arch" -ptx -include tests/written_fma.h -o "$place/written.ptx" "$file" >>"$place/log" 2>&1; }; then
        grep -m3 -E 'error' "$place/log" || echo "is not compiled"
        return
    fi
    told=$(wasteful "$place/log"; complaints "$place/$(basename "$file" .c).ptx"; [ "$arch" != $marked ] || unwritten "$place/written.ptx"
        tensorless "$file" "$place/$(basename "$file" .c).ptx")
    if [ -z "$told" ]; then echo "$key" >"$place/passed"; else printf '%s\n' "$told"; fi
}
# Called by itself for one file and architecture, two at a time.
if [ "${CHECK_ONE:-}" ]; then
    told=$(check "$1" "$2")
    name="$(basename "$1") for $2 has no stack, no spills and the arithmetic that is written"
    if [ -z "$told" ]; then echo "ok - $name"; exit 0; fi
    printf '%s\n' "$(printf 'not ok - %s\n' "$name"; head -n 8 <<<"$told" | sed 's/^/# /')" # at once: others print, too
    exit 1
fi

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

if [ -z "$nvcc" ]; then
    echo "ok - not applicable: nvcc is not found, so no kernel is compiled (apt install nvidia-cuda-toolkit of Debian's non-free, or developer.nvidia.com/cuda-downloads)"
    exit $bad
fi
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(find src/ops/devices/cuda/kernels src/ops/devices/cuda/emulation_wide_cases.c -name '*.c' | LC_ALL=C sort)
for file in "${files[@]}"; do
    grep -q 'cuda/hopper\.h' "$file" || echo "$file sm_80"
    echo "$file sm_90a"
done |
    CHECK_ONE=1 NVCC=$nvcc xargs -r -P 2 -L 1 bash "$0" "$PWD" "$build" || bad=1
exit $bad
