/* trained.h - arguments of operations of the optimizer, see tensor.h. */
#pragma once

#include <stdint.h>

#include "ops/kernels.h"

/* n floats at x, of which the sum of squares is wanted. */
typedef struct sheaf__squares {
    const float *x;
    int64_t n;
    double sum; /* out */
} sheaf__squares;

typedef struct sheaf__squares_of {
    sheaf__squares *each; /* the host's, with addresses of the device's */
    int64_t count;
} sheaf__squares_of;

typedef struct sheaf__update {
    float *master, *moment1, *moment2;
    const float *grad;
    int64_t n;
    sheaf__adamw how;
} sheaf__update;
