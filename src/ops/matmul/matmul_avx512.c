/* matmul_avx512.c - register tiles of 14 x 32 float32. */
#include "ops/matmul/matmul_vec512.h"

#define NAME(x) x##_avx512
#define STRIDE MM_STRIDE_F32
#define TILES_OF_PAIRS PAIRS(1, 8) PAIRS(2, 8) PAIRS(3, 4) PAIRS(4, 4)
#define PAIRS_1 PAIRS_ROW(1, 8)
#define PAIRS_2 PAIRS_ROW(2, 8)
#define PAIRS_3 PAIRS_ROW(3, 4)
#define PAIRS_4 PAIRS_ROW(4, 4)
#define STEP(acc, a, b) _mm512_fmadd_ps(a, b, acc)

#include "ops/matmul/matmul_kernel.h"
