#!/bin/sh
# find_nvcc.sh: an nvcc that compiles kernels, and the kinds of GPUs that it knows, in one line; nothing and status 1 where
# there is none, with the reason on stderr. NVCC names one; else PATH and /usr/local/cuda/bin are looked through.
nvcc=$(command -v "${NVCC:-nvcc}" || { [ -z "$NVCC" ] && ls /usr/local/cuda/bin/nvcc 2>/dev/null; }) || {
    echo "no nvcc${NVCC:+: $NVCC}" >&2
    exit 1
}
known=$("$nvcc" --list-gpu-code 2>/dev/null) || { echo "$nvcc does not say for which GPUs it compiles: CUDA 11.8 is the least" >&2; exit 1; }
kinds=
for number in 80 86 89 90 100 120; do
    case $known in *sm_$number*) [ $number = 90 ] && number=90a; kinds="$kinds sm_$number" ;; esac
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
echo 'extern "C" __global__ void k(int *x) { *x = 1; }' >"$work/k.cu"
"$nvcc" -std=c++17 -arch=${kinds##* } -cubin -o "$work/k.cubin" "$work/k.cu" >"$work/why" 2>&1 || { echo "$nvcc compiles nothing: $(head -n 1 "$work/why")" >&2; exit 1; }
echo "$nvcc$kinds"
