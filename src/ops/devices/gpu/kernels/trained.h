/* trained.h - arguments of kernels of the optimizer. */
#pragma once

#include "ops/adamw/adamw.h"
#include "ops/quant/values.h"

typedef struct adamw_arguments {
    float *master, *moment1, *moment2;
    const float *grad;
    int64_t n;
    sheaf__adamw_constants how;
} adamw_arguments;

typedef struct adamw8_arguments {
    float *master;
    uint8_t *moment1, *moment2;
    float *absmax1, *absmax2;
    const float *grad;
    int64_t n;
    sheaf__adamw_constants how;
    float map[2][256];
} adamw8_arguments;

/* Dynamic shared memory of a block: both maps, and what each warp found. */
enum { ADAMW8_WARPS = SHEAF__ADAMW8_BLOCK / 32, ADAMW8_SHARED = (2 * 256 + 2 * ADAMW8_WARPS) * 4 };
