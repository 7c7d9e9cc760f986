/* sums.h - arguments of kernels that give the host numbers: sums of squares, finite or not. */
#pragma once

#include "ops/tensor/finite.h"

/* A block has an array. */
enum { SQUARES_MAKERS = 256, SQUARES_THREADS = SQUARES_MAKERS + 32 };
enum { SQUARES_CHUNK = 8 * SQUARES_MAKERS }; /* elements; in shared memory twice */

typedef struct squares_item {
    const float *x;
    int64_t n;
} squares_item;

typedef struct squares_arguments {
    const squares_item *item; /* [blocks] */
    double *sum;              /* [blocks] */
} squares_arguments;

/* found[block]: whether one of its elements is not finite */
typedef struct finite_arguments {
    sheaf__look of;
    int32_t *found;
} finite_arguments;
