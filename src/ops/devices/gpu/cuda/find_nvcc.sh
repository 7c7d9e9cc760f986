#!/bin/sh
# find_nvcc.sh [KIND...]: an nvcc, and those of the KINDs of GPUs (without any: of all) that it compiles kernels for, in one
# line; status 1 where there is none. On stderr stands why nvcc, or a KIND, is left out. An nvcc without the fence that
# kernels/products_wide.c needs (before 12.3), or without sm_90a (before 12.0), compiles sm_90 in its place, which leaves
# these kernels out. NVCC names an nvcc; else PATH and /usr/local/cuda/bin are looked through.
[ $# -gt 0 ] || set -- sm_80 sm_86 sm_89 sm_90a sm_100 sm_120
nvcc=$(command -v "${NVCC:-nvcc}" || { [ -z "$NVCC" ] && ls /usr/local/cuda/bin/nvcc 2>/dev/null; }) || {
    echo "no nvcc${NVCC:+: $NVCC}" >&2
    exit 1
}
release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 * 100 + \2/p')
if [ $((${release:-0})) -lt 1108 ]; then
    echo "$nvcc is older than CUDA 11.8, the least" >&2
    exit 1
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
echo 'extern "C" __global__ void k(int *x) { *x = 1; }' >"$work/plain.cu"
echo 'extern "C" __global__ void k(int *x) { asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(x) : "memory"); }' >"$work/wide.cu"
# compiles KIND SOURCE: else the first line of what nvcc says is in the file KIND.
compiles() {
    "$nvcc" -std=c++17 -arch="$1" -cubin -o "$work/$1.cubin" "$work/$2.cu" >"$work/$1" 2>&1
}
for kind; do
    {
        if [ "$kind" = sm_90a ] && compiles sm_90a wide; then
            echo sm_90a
        elif compiles "${kind%a}" plain; then
            echo "${kind%a}"
        fi >"$work/is.$kind"
    } &
done
wait
kinds=
for kind; do
    is=$(cat "$work/is.$kind")
    kinds=$kinds${is:+ $is}
    [ "$is" = "$kind" ] || echo "$nvcc compiles ${is:-nothing} for $kind: $(head -n 1 "$work/$kind")" >&2
done
[ -n "$kinds" ] || exit 1
echo "$nvcc$kinds"
