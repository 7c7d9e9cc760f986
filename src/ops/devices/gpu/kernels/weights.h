/* weights.h - arguments of kernels on weights. */
#pragma once

#include <stdint.h>

/* A weight's rows from its masters. */
typedef struct sheaf__weight_rows {
    void *to;
    const float *from;
    int64_t n;
} sheaf__weight_rows;
