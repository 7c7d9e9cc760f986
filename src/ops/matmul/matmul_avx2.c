/* matmul_avx2.c - register tiles of 6 x 16 float32, for outer products too. */
#include "ops/matmul/matmul_vec256.h"

#define NAME(x) x##_avx2
#define ROWS 6
#define STRIDE MM_STRIDE_F32
/* clang-format off */
#define TILES                                                                                      \
    WIDE(1, 8) WIDE(2, 4) TALL(3) TALL(4) TALL(5) TALL(6)                                           \
    DIRECT(1) DIRECT(2) DIRECT(3) DIRECT(4) DIRECT(5) DIRECT(6) PAIRS(1, 8) PAIRS(2, 4)             \
    static const tile_row tiles[ROWS] = {                                                           \
        DIRECT_ROW(1, tile_1_w, 8, PAIRS_ROW(1, 8)), DIRECT_ROW(2, tile_2_w, 4, PAIRS_ROW(2, 4)),   \
        DIRECT_ROW(3, tile_3_2, 2, NO_PAIRS), DIRECT_ROW(4, tile_4_2, 2, NO_PAIRS),                 \
        DIRECT_ROW(5, tile_5_2, 2, NO_PAIRS), DIRECT_ROW(6, tile_6_2, 2, NO_PAIRS) };
/* clang-format on */

#define TAKEN(f) f(1) f(2) f(3) f(4)

#include "ops/matmul/matmul_kernel.h"

#define OUTER_ROWS 6
/* clang-format off */
#define OUTER_TILES \
    OUTER(1, 4) OUTER(2, 4) OUTER(3, 4) OUTER(4, 2) OUTER(5, 2) OUTER(6, 2) \
    static const outer_row outer_tiles[OUTER_ROWS] = { \
        OUTER_ROW(1, 4), OUTER_ROW(2, 4), OUTER_ROW(3, 4), \
        OUTER_ROW(4, 2), OUTER_ROW(5, 2), OUTER_ROW(6, 2) };
/* clang-format on */

#include "ops/matmul/matmul_outer.h"
