/* norm.h - arguments of RMSNorm and LayerNorm, see tensor.h; what one row's sums become. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/math/round.h"
#include "sheaf/dtype.h"

/* RMSNorm of dense rows (kernels.h), which may be the heads of a layer's rows. */
typedef struct sheaf__rmsnorm {
    void *y; /* backward: its gradient */
    float *rstd;
    const void *x;
    const float *weight;
    int64_t rows, width, heads; /* heads: of a row of the layer; `rows` counts them all */
    float eps;
    bool once;
    sheaf_dtype dtype;
} sheaf__rmsnorm;

typedef struct sheaf__rms_call {
    sheaf__rmsnorm of;
    void *dx;
    bool add, again;
} sheaf__rms_call;

/* dw[cols] += sums over rows of dy * n, db[cols] += those of dy, as in layernorm_dw */
typedef struct sheaf__norm_weight {
    float *dw, *db; /* db may be NULL, */
    const void *dy, *x;
    const float *mean, *rstd; /* and mean, of an RMSNorm */
    int64_t ld, rows, cols;
    sheaf_dtype dtype;
} sheaf__norm_weight;

/* part[slice] = the sum of dy * n over the heads in the slice's columns: head after head, rows
 * ascending in blocks of 256 */
typedef struct sheaf__heads_weight {
    float *part; /* [slices][width] */
    const void *dy, *x;
    const float *rstd;       /* [heads][rows] */
    int64_t ld, rows, width; /* ld: all heads here */
    int slices;
    const int64_t *begin, *extent; /* the host's; [slices] columns */
    sheaf_dtype dtype;
} sheaf__heads_weight;

/* LayerNorm of dense rows (kernels.h), of whose `width` columns `cols` are here: all, or (cut)
 * those of slices. With `plain` the mean is zero. A width that is cut takes its statistics from
 * sums over slices, in four operations: sums of x, means, sums of squares, 1 / deviations; backward
 * it takes the sums of BACK. */
typedef struct sheaf__layer_norm {
    void *y; /* backward: its gradient */
    float *mean, *rstd;
    const void *x, *residual; /* residual: NULL: none */
    const float *weight, *bias;
    int64_t rows, cols, width;
    bool cut;
    int slices;
    const int64_t *begin, *extent; /* the host's; [slices] columns */
    float eps;
    bool plain;
    sheaf_dtype dtype;
} sheaf__layer_norm;

typedef enum sheaf__norm_sums {
    SHEAF__SUMS_X,
    SHEAF__SUMS_SQUARES, /* of (x - mean)^2 */
    SHEAF__SUMS_BACK     /* of a, then of a * n */
} sheaf__norm_sums;

typedef struct sheaf__layer_call {
    sheaf__layer_norm of;
    float *sum; /* of rows, or of slices and rows, two a row backward; whole: NULL */
    void *dx;
    sheaf__norm_sums which;
    bool add;
} sheaf__layer_call;

/* ---- from the sums of a row ---- */

SHEAF__SHARED_FN float sheaf__norm_mean(float sum, int64_t width)
{
    return sheaf__one_nan(sum / (float)width);
}

/* 1 / deviation, from the sum of squares */
SHEAF__SHARED_FN float sheaf__norm_rstd(float sum, int64_t width, float eps)
{
    return sheaf__one_nan(1.0f / sqrtf(sum / (float)width + eps));
}
