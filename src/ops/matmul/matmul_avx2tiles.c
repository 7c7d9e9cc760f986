/* matmul_avx2tiles.c - the order `tiles`: register tiles of 3 x 16 sums, two chains each. */
#define CHAINS
#include "ops/matmul/matmul_vec256.h"

#define NAME(x) x##_avx2tiles
#define ROWS 3
#define STRIDE MM_STRIDE_F32
/* clang-format off */
#define TILES                                                                                      \
    WIDE(1, 4) WIDE(2, 2) TALL(3) PAIRS(1, 4) PAIRS(2, 2)                                           \
    static const tile_row tiles[ROWS] = {                                                           \
        WIDE_ROW(1, 4, PAIRS_ROW(1, 4)), WIDE_ROW(2, 2, PAIRS_ROW(2, 2)), TALL_ROW(3) };
/* clang-format on */

#define TAKEN(f) f(1) f(2)

#include "ops/matmul/matmul_kernel.h"
