/* lora_product.h - the product of LoRA's factors by its definition in lora/delta.h. */
#pragma once

#include <math.h>
#include <stdint.h>

static inline float lora_chain(const float *b, const float *a, int64_t apart, int64_t begin,
                               int64_t end)
{
    float sum = 0;
    for (int64_t k = begin; k < end; k++)
        sum = fmaf(b[k], a[k * apart], sum);
    return sum;
}

/* An element of it: a row of b, and a column of a whose elements are `apart` floats apart. */
static inline float lora_element(const float *b, const float *a, int64_t apart, int64_t rank,
                                 int64_t block)
{
    const int64_t width = block > 0 && block < rank ? block : rank;
    float sum = lora_chain(b, a, apart, 0, width);
    for (int64_t k = width; k < rank; k += width)
        sum += lora_chain(b, a, apart, k, k + width < rank ? k + width : rank);
    return sum;
}

/* All of it: d [rows, cols], from b [rows, rank] and a [rank, cols]. */
static inline void lora_product(float *d, const float *b, const float *a, int64_t rows,
                                int64_t cols, int64_t rank, int64_t block)
{
    for (int64_t i = 0; i < rows * cols; i++)
        d[i] = lora_element(b + i / cols * rank, a + i % cols, cols, rank, block);
}
