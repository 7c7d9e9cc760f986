/* mma_product.h - products of a few rows in the orders mma8 and mma16, for attention.
 *
 * c [rows][panels of 16 columns] over elements in pairs, the two of a step in one word: the first
 * in the lower half. Where `on` is set c is what the chain is so far, and becomes what it is then;
 * else c = scale * (a chain from +0 on). Words of a: (row, step) at a + row * a_row + step * a_step
 * bytes; of b: panels [steps][16], b_panel words apart. */
#pragma once

#include "ops/device.h"

typedef struct sheaf__mma_product {
    float *c;
    int64_t c_row, c_panel; /* floats between rows, and between panels */
    const char *a;
    int64_t a_row, a_step;
    const uint32_t *b;
    int64_t b_panel;
    int64_t rows, panels, steps;
    sheaf_sums sums;
    sheaf_dtype dtype;
    bool on;
    float scale;
} sheaf__mma_product;

void sheaf__mma_product_avx2mma(const sheaf__mma_product *p);
void sheaf__mma_product_avx512mma(const sheaf__mma_product *p);
