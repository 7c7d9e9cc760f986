/* quantise_ref.c - numbers to codes and back, of a block or a group at a time: bitsandbytes' rules
 * on the processor. What does not concern one block stands in quantise.c. */
#include "ops/columns.h"

#include <math.h>

#include "ops/quant/codes.h"
#include "ops/quant/values.h"

float sheaf__largest_ref(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = sheaf__bits(x[i]) & 0x7fffffff;
        largest = size > largest ? size : largest;
    }
    return sheaf__one_nan(sheaf__float(largest));
}

void sheaf__codes4_ref(uint8_t *codes, const float *x, int64_t n, float by, bool divide,
                       sheaf__codes kind)
{
    const float *threshold = kind == SHEAF__NF4 ? sheaf__nf4_thresholds : sheaf__fp4_thresholds;
    for (int64_t i = 0; i < n; i++) {
        const float y = divide ? x[i] / by : x[i] * by;
        int index = 0;
        while (index < 15 && !(y <= threshold[index])) /* a tie goes down, a NaN up */
            index++;
        codes[i] = kind == SHEAF__NF4 ? (uint8_t)index : sheaf__fp4_order[index];
    }
}

float sheaf__codes8_ref(uint8_t *codes, const float *x, int64_t n, const uint8_t *search)
{
    const float largest = sheaf__largest_ref(x, n), by = 1.0f / largest;
    for (int64_t i = 0; i < n; i++)
        codes[i] = search[sheaf__map8_place(x[i] * by)];
    if (largest == 0)
        memset(codes, 0, (size_t)n);
    return largest;
}

void sheaf__codes_int8_ref(uint8_t *codes, const float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) {
        const float y = rintf(x[i] * by);
        codes[i] = y == y ? (uint8_t)(int8_t)y : 0; /* a row of zeros */
    }
}

void sheaf__values_ref(float *y, const uint8_t *codes, int64_t n, sheaf__codes kind, float scale,
                       int zero)
{
    for (int64_t i = 0; i < n; i++) {
        const float value =
            kind == SHEAF__INT4 ? (float)(codes[i] - zero) : sheaf__code_value(kind, codes[i]);
        y[i] = sheaf__one_nan(value * scale);
    }
}

void sheaf__values8_ref(float *y, const uint8_t *codes, int64_t n, float absmax,
                        const float map[256])
{
    for (int64_t i = 0; i < n; i++)
        y[i] = sheaf__one_nan(map[codes[i]] * absmax);
}
