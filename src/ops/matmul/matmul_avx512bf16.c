/* matmul_avx512bf16.c - register tiles of 14 x 32 sums of bfloat16 pairs, by the
 * instruction that multiplies and adds a pair, odd element first. */
#define ONE_PANEL 1 /* Zen 4 reads one stream at 32 GB/s, four side by side at 21 to 26 */
#include "ops/matmul/matmul_vec512.h"

#undef ODD /* pairs are what this instruction takes */
#define NAME(x) x##_avx512bf16
#define STRIDE MM_STRIDE_PAIRS
#define TILES_OF_PAIRS
#define PAIRS_OF(rows, wide) NO_PAIRS
#define STEP(acc, a, b) _mm512_dpbf16_ps(acc, (__m512bh)(a), (__m512bh)(b))
#define CODES(f) f(1) f(2) f(3) f(4)
#define TAKEN(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)

#include "ops/matmul/matmul_kernel.h"
