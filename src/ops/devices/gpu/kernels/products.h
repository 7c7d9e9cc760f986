/* products.h - products as kernels get them: a table of jobs and parts (launch_products.c).
 *
 * A tile of a job's results goes through the job's parts in order. A part is a term of one slice,
 * or some of its k; a kernel keeps one value for each result of the tile, `sum`, and subtrees that
 * wait, the youngest on top:
 *
 *     sum = nothing yet
 *     for each part:
 *         go on in `sum` with its elements, in the order of sums of the kernel
 *         if (part.ends) {
 *             part.adds times: sum = (what waits on top, taken away) + sum
 *             if (part.out < 0) sum waits on top
 *             else if (job.roots) root[job.root + part.out][row * root_ld + column] = sum
 *             else finish(sum)
 *             sum = nothing yet
 *         }
 *
 * Of the orders mma8 and mma16 a part ends where a chain ends, so it has 4096 elements at most, and
 * what a slice's chains gave so far waits like a subtree; of all others it ends with its slice, and
 * blocks of 256 start at its first element, which are added to the sum of those before (also of
 * parts before that do not end). A part of no elements stands for a slice that has none: +0. Parts
 * of no elements that do not end are not listed.
 * Parts of codes in groups are blocks, whatever their length: sum = fma(scale, block, sum), then,
 * where something is added to scaled codes, sum = fma(that, sum of A's elements, sum).
 * Weights are matrices like others: row-major [n, k], so that B_AHEAD is [n, k] and B_BACK [k, n].
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"

enum { PRODUCTS_CHAIN = 4096 }; /* elements of a chain of mma8 and mma16 */

typedef struct sheaf__products_part {
    const void *a; /* [m, k] row stride lda; or [k, m] if a_km */
    const void *b; /* [n, k] row stride ldb; or [k, n] if b_kn */
    int64_t lda, ldb;
    int32_t k;
    int16_t out; /* see above; of a part that does not end -1 */
    uint8_t ends;
    uint8_t adds;
    uint8_t a_km, b_kn;
    uint8_t a_even, b_even; /* all rows begin at multiples of 16 bytes */
    uint8_t b_type;         /* sheaf_dtype of b: the job's, but of weights that are widened */
    uint8_t coded;  /* b is codes: the table's number ldb of them; in products_codes.c alone */
    uint16_t chain; /* of coded: elements of its rows before, in PRODUCTS_CHAINs */
    /* b is numbers of codes in groups, a block of one: the table's matrix of codes, counted from 1,
     * and W's column where the part begins. Its sum meets the group's scale. 0: neither. */
    int32_t scaled, col;
} sheaf__products_part; /* 56 bytes */

typedef struct sheaf__products_job {
    int32_t m, n;
    int32_t first, parts; /* among those of the table */
    int32_t tile0;        /* of a launch: tiles of the jobs before */
    int32_t rows, cols;   /* tiles along m, along n */
    uint8_t dtype;        /* sheaf_dtype of A */
    uint8_t roots;
    uint8_t out, round_to, add; /* of sheaf__product */
    uint8_t unused[3];
    int32_t root;    /* its first one in the table */
    int32_t root_ld; /* floats from a row of a root to the next one */
    float alpha;
    const float *bias;    /* [n] or NULL */
    const void *residual; /* in `out`, row stride ldr, or NULL */
    void *y;
    int64_t ldy, ldr;
} sheaf__products_job;

/* The argument of every kernel of products: those jobs of a call that it runs. Blocks take tiles
 * blockIdx.x, blockIdx.x + gridDim.x, ... of `tiles`. */
typedef struct sheaf__products_table {
    const sheaf__products_job *job; /* ascending by tile0 */
    const sheaf__products_part *part;
    float *const *root;
    /* [blocks][waits][results of a tile]: room for what waits; how a kernel lays it out is its own
     * affair. NULL if no part of these jobs waits. */
    float *waiting;
    /* Of each part's A and B, for the kernels of products_wide.c; else NULL. */
    const struct sheaf__tensor_map *map;
    const struct sheaf__codes_matrix *codes; /* of coded and scaled parts */
    int32_t jobs, tiles;
    int32_t waits; /* subtrees that wait at once, at most */
} sheaf__products_table;
