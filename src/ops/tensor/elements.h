/* elements.h - arguments of operations on n elements, see tensor.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"

typedef struct sheaf__pair {
    void *dst;
    const void *src;
    sheaf_dtype to, from;
    bool one;  /* of REFRESH: plus 1 */
    int64_t n; /* of both */
} sheaf__pair;

/* One of several sums, done in their order: dst += src, float32. */
typedef struct sheaf__addition {
    float *dst;
    const float *src;
} sheaf__addition;

enum { SHEAF__ADDITIONS = 64 };

typedef struct sheaf__additions {
    int64_t n; /* of each */
    int32_t count;
    sheaf__addition each[SHEAF__ADDITIONS];
} sheaf__additions;

/* One of several conversions of the same types. */
typedef struct sheaf__conversion {
    void *dst;
    const void *src;
    int64_t n;
} sheaf__conversion;

enum { SHEAF__CONVERSIONS = 64 };

typedef struct sheaf__conversions {
    sheaf_dtype to, from;
    int32_t count;
    sheaf__conversion each[SHEAF__CONVERSIONS];
} sheaf__conversions;

typedef struct sheaf__widening {
    float *wide; /* n of `dtype` at its end */
    int64_t n;
    sheaf_dtype dtype;
} sheaf__widening;
