/* matmul_avx512tiles.c - the order `tiles` by float32 fma: register tiles of 7 x 32 sums, two
 * chains each. */
#define CHAINS
#include "ops/matmul/matmul_vec512.h"

#define NAME(x) x##_avx512tiles
#define ROWS 7
#define STRIDE MM_STRIDE_F32
/* clang-format off */
#define TILES                                                                                      \
    WIDE(1, 8) WIDE(2, 4) WIDE(3, 4) TALL(4) TALL(5) TALL(6) TALL(7)                                \
    PAIRS(1, 8) PAIRS(2, 4) PAIRS(3, 4)                                                             \
    static const tile_row tiles[ROWS] = {                                                           \
        WIDE_ROW(1, 8, PAIRS_ROW(1, 8)), WIDE_ROW(2, 4, PAIRS_ROW(2, 4)),                           \
        WIDE_ROW(3, 4, PAIRS_ROW(3, 4)),                                                            \
        TALL_ROW(4), TALL_ROW(5), TALL_ROW(6), TALL_ROW(7) };
/* clang-format on */
#define STEP(acc, a, b) _mm512_fmadd_ps(a, b, acc)
#define CODES(f) f(1) f(2) f(3)
#define TAKEN(f) f(1) f(2) f(3)

#include "ops/matmul/matmul_kernel.h"
