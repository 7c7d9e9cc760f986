#!/usr/bin/env bash
# gpu.sh [FOLDER] - what an NVIDIA GPU answers before there is device code for it; writes FOLDER/gpu.txt (default build/bench).
#
# Whether its tensor cores follow the rule (gpu/probe.cu), what memory, copies and launches cost, and what products
# reach beside cuBLAS (gpu/product.cu; sm_90 alone). Needs nvcc and a card; takes half a minute after compiling.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/bench}
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "gpu.sh: no nvcc; install Debian's nvidia-cuda-toolkit or NVIDIA's" >&2; exit 3; }
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .) ||
    { echo "gpu.sh: nvidia-smi finds no GPU here" >&2; exit 3; }
[ "$arch" = 90 ] && arch=90a
mkdir -p "$out"
for program in probe product; do
    [ $program = product ] && [ "$arch" != 90a ] && continue
    "$nvcc" -O3 -std=c++17 -gencode "arch=compute_$arch,code=sm_$arch" -ftz=true -fmad=false \
        -o "$out/gpu-$program" bench/gpu/$program.cu -lcublas -lcuda
done
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    timeout 120 "$out/gpu-probe"
    [ "$arch" != 90a ] || timeout 120 "$out/gpu-product"
} 2>&1 | tee "$out/gpu.txt"
