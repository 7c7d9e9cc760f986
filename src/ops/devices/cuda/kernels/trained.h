/* trained.h - arguments of kernels of the optimizer. */
#pragma once

#include "ops/adamw/adamw.h"

typedef struct adamw_arguments {
    float *master, *moment1, *moment2;
    const float *grad;
    int64_t n;
    sheaf__adamw_constants how;
} adamw_arguments;
