/* linear.h - arguments of what layers do beside their products, see tensor.h. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "ops/kernels.h"
#include "ops/math/round.h"

/* y = round(round(by * (alpha * sum) + bias) + residual) */
typedef struct sheaf__finishing {
    void *y;
    const float *sum, *by, *bias;
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

/* Of DoRA: with n = sqrt(squares), by = magnitude / n and inverse = 1 / n */
typedef struct sheaf__magnitudes {
    float *by, *inverse;
    const float *magnitude, *squares;
    int64_t n;
} sheaf__magnitudes;

SHEAF__SHARED_FN void sheaf__magnitude(const sheaf__magnitudes *m, int64_t i)
{
    const float norm = sqrtf(m->squares[i]);
    m->by[i] = sheaf__one_nan(m->magnitude[i] / norm);
    m->inverse[i] = sheaf__one_nan(1 / norm);
}
