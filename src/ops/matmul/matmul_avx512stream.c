/* matmul_avx512stream.c - the register tiles of matmul_avx512.c, but that few rows go through one
 * panel after the other: for processors that read one stream faster than several side by side. */
#define ONE_PANEL 1
#include "ops/matmul/matmul_vec512.h"

#define NAME(x) x##_avx512stream
#define STRIDE MM_STRIDE_F32
#define TILES_OF_PAIRS
#define PAIRS_OF(rows, wide) NO_PAIRS
#undef ODD /* float32 has no pairs */
#define STEP(acc, a, b) _mm512_fmadd_ps(a, b, acc)

#include "ops/matmul/matmul_kernel.h"
