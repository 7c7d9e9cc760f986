/* delta.c - see delta.h: the definition of the product, and its panels. */
#include "lora/delta.h"

#include <math.h>
#include <string.h>

enum { PANEL = 16 };

static float chain(const float *b, const float *a, int64_t apart, int64_t begin, int64_t end)
{
    float sum = 0;
    for (int64_t k = begin; k < end; k++)
        sum = fmaf(b[k], a[k * apart], sum);
    return sum;
}

float sheaf__lora_element(const float *b, const float *a, int64_t apart, int64_t rank,
                          int64_t block)
{
    const int64_t width = block > 0 && block < rank ? block : rank;
    float sum = chain(b, a, apart, 0, width);
    for (int64_t k = width; k < rank; k += width)
        sum += chain(b, a, apart, k, k + width < rank ? k + width : rank);
    return sum;
}

int64_t sheaf__lora_packed_floats(int64_t rank, int64_t cols)
{
    return (cols + PANEL - 1) / PANEL * PANEL * rank;
}

void sheaf__lora_pack_row(float *packed, const float *row, int64_t k, int64_t rank, int64_t cols)
{
    packed += k * PANEL;
    for (int64_t j = 0; j < cols; j += PANEL, packed += PANEL * rank)
        memcpy(packed, row + j, (size_t)(cols - j < PANEL ? cols - j : PANEL) * sizeof *row);
}
