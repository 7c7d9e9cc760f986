/* matmul_mma.h - operands of the orders mma8 and mma16 as their kernels take them.
 *
 * An element is a float32, which has all of its bits, and a number of 8 bits beside it: its
 * exponent, as far as the rule of mma.h knows one. Elements are in groups; four pairs of them are
 * four even elements, then four odd ones, as the order inside a group does not matter. */
#pragma once

#include "ops/matmul/matmul_private.h"

#define MMA_ROWS 32
#define MMA_ELEMENTS (2 * MM_STRIDE_PAIRS) /* of a row of A: of all passes of a stretch */

/* Exponents: those of A are less by one. */
#define MMA_ZERO (-128) /* with any other, MMA_LOW is not reached */
#define MMA_RARE 127    /* an infinity, NaN, a denormal bfloat16, or what is above MMA_MOST */
#define MMA_FREE 99     /* of what fills up rows and columns: a zero that needs no care */
#define MMA_MOST 24
#define MMA_LOW (-100) /* least E that vectors take: with it all factors are normal numbers */

/* Of a group of A or B. One that is all zero does not change a sum. */
enum { MMA_NOTHING = 1, MMA_CARE = 2 };

/* Rows of A, of which the kernel takes `unit` at once: a unit's exponents are the bytes of a word,
 * 4 / unit for each of its rows. */
typedef struct mma_left {
    float value[MMA_ROWS][MMA_ELEMENTS];
    uint32_t exps[MMA_ROWS][MMA_ELEMENTS]; /* of a unit */
    uint8_t flag[MMA_ROWS][MMA_ELEMENTS / 8];
} mma_left;

/* sheaf__mma_left - all rows and passes of a band; `length` of a group. */
void sheaf__mma_left(mma_left *left, const mm_band *band, bool f16, int length, int unit);
