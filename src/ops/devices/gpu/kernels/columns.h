/* columns.h - arguments of kernels that sum columns: rows ascending in blocks of 256, from 0 each;
 * the blocks' sums are added up afterwards. */
#pragma once

#include <stdint.h>

#include "sheaf/cut.h"

enum { COLUMN_ROWS = 256 };

/* Blocks in x are columns, in y blocks of rows. */
typedef struct columns_arguments {
    const void *dy, *x;       /* x: NULL, or what dy is multiplied with, normalised by */
    const float *mean, *rstd; /* [cols / head][rows]; mean may be NULL */
    int64_t ld, rows, cols, head;
    float *sum, *plain; /* [blocks][cols], of dy * n, and of dy alone; NULL: not wanted */
} columns_arguments;

/* to[cols] += each of the blocks' sums, ascending */
typedef struct columns_add_arguments {
    float *to;
    const float *sum;
    int64_t cols, blocks;
} columns_add_arguments;

/* to[slice][width] = the sums of its heads, head after head, each block after block */
typedef struct heads_add_arguments {
    float *to;
    const float *sum;
    int64_t ld, width, blocks, slices;
    int64_t begin[SHEAF_MAX_SLICES], extent[SHEAF_MAX_SLICES];
} heads_add_arguments;
