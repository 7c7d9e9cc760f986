/* linear.h - arguments of what layers do beside their products, see tensor.h. */
#pragma once

#include <stdint.h>

#include "ops/kernels.h"

/* y = round(round(alpha * sum + bias) + residual) */
typedef struct sheaf__finishing {
    void *y;
    const float *sum, *bias;
    const void *residual;
    int64_t ldy, lds, ldr, rows, cols;
    float alpha;
    sheaf_dtype dtype;
} sheaf__finishing;

typedef struct sheaf__dropping {
    void *y;
    const void *x;
    sheaf__dropout how;
    int64_t rows, cols;
    sheaf_dtype dtype;
} sheaf__dropping;

typedef struct sheaf__noisy {
    void *x;
    int64_t rows, cols;
    sheaf__noise how;
    sheaf_dtype dtype;
} sheaf__noisy;
