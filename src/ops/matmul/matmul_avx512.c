/* matmul_avx512.c - register tiles of 14 x 32 float32. */
#include "ops/matmul/matmul_vec512.h"

#define NAME(x) x##_avx512
#define STRIDE MM_STRIDE_F32
#define STEP(acc, a, b) _mm512_fmadd_ps(a, b, acc)

#include "ops/matmul/matmul_kernel.h"
