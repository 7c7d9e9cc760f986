/* matmul_weight.h - arguments of the operations on packed weights (matmul_weight.c). */
#pragma once

#include "ops/matmul/matmul.h"
#include "ops/tensor/tensor.h"

/* WEIGHT_LOAD, WEIGHT_REFRESH */
typedef struct mm_load {
    sheaf__packed w;
    const void *src; /* rows [first, first + count) of the host's; of a refresh the device's */
    sheaf_dtype from;
    int64_t ld, first, count;
} mm_load;

/* WEIGHT_CODES: rows [first, first + count) of the host's. */
typedef struct mm_load_codes {
    sheaf__packed w;
    sheaf__quant_parts parts;
    int64_t first, count;
} mm_load_codes;

/* WEIGHT_WHOLE: the host's, from the box's first column and its first nested scale on, or NULL. */
typedef struct mm_load_whole {
    sheaf__packed w;
    const uint16_t *index;
    const float *nested;
} mm_load_whole;

/* PACKED_ROWS: rows by token. */
typedef struct mm_lookup {
    sheaf__pieces pieces; /* of them `begin` */
    sheaf__packed w[SHEAF_MAX_SLICES];
    sheaf__tokens tokens;
    void *x;
    sheaf_dtype dtype;
} mm_lookup;
