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

enum { SHEAF__SQUARES = 512 }; /* arrays of a call, at most */

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

/* The same with moments of 8 bits; n from the first element of a slice on. */
typedef struct sheaf__update8 {
    float *master;
    uint8_t *moment1, *moment2;
    float *absmax1, *absmax2; /* of each 256 elements */
    const float *grad;
    int64_t n;
    const struct sheaf__map8 *map; /* [2], the host's: of both signs; from 0 up */
    sheaf__adamw how;
} sheaf__update8;
