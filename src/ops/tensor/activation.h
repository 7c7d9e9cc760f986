/* activation.h - arguments of activations and of rows times a number, see tensor.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"

/* Of n elements, all of one type; what an operation has no use for is NULL. */
typedef struct sheaf__activation {
    void *y, *dx, *dup;      /* made */
    const void *x, *up, *dy; /* up: of SCALED what the product is added to */
    sheaf_dtype dtype;
    bool gelu, tanh, add, divide; /* gelu: gates by gelu; tanh: by tanh, not erf */
    float by;
    int64_t n;
} sheaf__activation;
