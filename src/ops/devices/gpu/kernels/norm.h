/* norm.h - arguments of kernels of norms. An RMSNorm is a LayerNorm without means, whose rows are
 * rounded before they meet the weight. */
#pragma once

#include "ops/devices/gpu/kernels/lanes_shape.h"
#include "ops/tensor/norm.h"
#include "sheaf/cut.h"

/* y, and with `sums` the statistics, otherwise given. */
typedef struct norm_arguments {
    sheaf__layer_norm of;
    lanes_shape shape;
    bool sums, once; /* once: of an RMSNorm, which always makes its sums */
} norm_arguments;

/* dx. total: the sums of a and of a * n, [2][rows], which become means; NULL: they are made. */
typedef struct norm_back_arguments {
    sheaf__layer_norm of;
    lanes_shape shape;
    void *dx;
    float *total;
    bool add;
} norm_back_arguments;

/* The sums of slices' columns: blocks in y are slices. */
typedef struct norm_sums_arguments {
    sheaf__layer_norm of;
    lanes_shape shape;
    float *sum;
    sheaf__norm_sums which;
    int64_t begin[SHEAF_MAX_SLICES], extent[SHEAF_MAX_SLICES];
} norm_sums_arguments;
