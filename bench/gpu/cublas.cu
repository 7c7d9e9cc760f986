/* cublas.cu - products of bfloat16 by cuBLAS at the large shapes of speed.c, beside which a GPU's
 * are to be judged: a line of JSON each. */
#include <cublas_v2.h>

#include "common.cuh"

/* As speed.c has them: what is alike in all bits takes less power, and so less time. */
__global__ void fill(uint16_t *x, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t u = (uint32_t)(i * 2654435761u) ^ (uint32_t)(i * 40503u >> 7);
        x[i] = (uint16_t)(0x3c00 + (u >> 8) % 0x300 + (u >> 31 << 15));
    }
}

static uint16_t *filled(size_t n)
{
    uint16_t *x;
    CHECK(cudaMalloc(&x, n * sizeof *x));
    fill<<<1024, 256>>>(x, n);
    return x;
}

/* y [m, n] = x [m, k] w [n, k]^T, or (back) x w of w [k, n]. */
static void product(cublasHandle_t handle, const char *name, int m, int n, int k, bool back)
{
    const float one = 1, zero = 0;
    uint16_t *x = filled((size_t)m * k), *w = filled((size_t)n * k), *y = filled((size_t)m * n);
    const float ms = milliseconds(
        [&] {
            cublasGemmEx(handle, back ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w,
                         CUDA_R_16BF, back ? n : k, x, CUDA_R_16BF, k, &zero, y, CUDA_R_16BF, n,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        },
        10);
    printf(
        "{\"cublas\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"us\": %.1f, \"tflops\": %.1f}\n",
        name, m, n, k, ms * 1e3, 2e-9 * m * n * k / ms);
    CHECK(cudaFree(x));
    CHECK(cudaFree(w));
    CHECK(cudaFree(y));
}

int main()
{
    cublasHandle_t handle;
    CHECK(cudaFree(0));
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        return 2;
    product(handle, "q, 4096 tokens", 4096, 4096, 4096, false);
    product(handle, "gate", 4096, 14336, 4096, false);
    product(handle, "down", 4096, 4096, 14336, false);
    product(handle, "dx of gate", 4096, 4096, 14336, true);
    product(handle, "dx of down", 4096, 14336, 4096, true);
    product(handle, "head, 512 tokens", 512, 128256, 4096, false);
    return 0;
}
