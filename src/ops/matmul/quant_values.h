/* quant_values.h - what one code stands for. */
#pragma once

#include <math.h>

#include "ops/math/round.h"
#include "ops/quant/quant.h"

/* Bitsandbytes' tables as bits. FP4's are 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4 and the same
 * negated, but for the zero, which has no sign. */
#define SHEAF__NF4_BITS                                                                            \
    {                                                                                              \
        0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0,     \
            0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3,    \
            0x3f800000                                                                             \
    }
#define SHEAF__FP4_BITS                                                                            \
    {                                                                                              \
        0, 0x3baaaaab, 0x3f2aaaab, 0x3f800000, 0x3eaaaaab, 0x3f000000, 0x3e2aaaab, 0x3e800000, 0,  \
            0xbbaaaaab, 0xbf2aaaab, 0xbf800000, 0xbeaaaaab, 0xbf000000, 0xbe2aaaab, 0xbe800000     \
    }

SHEAF__SHARED_FN float mm_nf4_value(uint32_t code)
{
    static const uint32_t bits[16] = SHEAF__NF4_BITS;
    return sheaf__float(bits[code & 15]);
}

SHEAF__SHARED_FN float mm_fp4_value(uint32_t code)
{
    static const uint32_t bits[16] = SHEAF__FP4_BITS;
    return sheaf__float(bits[code & 15]);
}

/* Sign, 4 bits of exponent (bias 7), 3 of significand; no infinity, and one NaN of each sign. */
SHEAF__SHARED_FN float mm_f8_value(uint32_t code)
{
    const uint32_t sign = (code & 0x80) << 24, size = code & 0x7f;
    if (size == 0x7f)
        return sheaf__float(SHEAF__NAN_BITS);
    if (size < 8) /* eighths of 2^-6 */
        return sheaf__float(sign | sheaf__bits((float)size * 0x1p-9f));
    return sheaf__float(sign | ((size << 20) + 0x3c000000));
}

SHEAF__SHARED_FN float mm_number_of_code(sheaf__codes codes, uint32_t code)
{
    if (codes == SHEAF__NF4)
        return mm_nf4_value(code);
    if (codes == SHEAF__FP4)
        return mm_fp4_value(code);
    if (codes == SHEAF__INT4)
        return (float)((int32_t)code - 8);
    return codes == SHEAF__INT8 ? (float)((int32_t)code - ((int32_t)(code & 0x80) << 1))
                                : mm_f8_value(code);
}

/* torch.linspace(0.1, 1, n)[k] in float32: from the nearer end, fused. */
SHEAF__SHARED_FN float mm_between(int64_t k, int64_t n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf((float)k, step, 0.1f) : fmaf(-(float)(n - 1 - k), step, 1.0f);
}

static inline void mm_signed_map(float map[256])
{
    static const double power[] = { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1 };
    /* The middles of 2^i equal parts of [0.1, 1], ascending with i, too. */
    float *up = map + 128, *down = map + 126;
    for (int i = 0; i < 7; i++) {
        const int64_t parts = INT64_C(1) << i;
        for (int64_t k = 0; k < parts; k++) {
            const float middle = (mm_between(k, parts + 1) + mm_between(k + 1, parts + 1)) / 2.0f;
            *up = middle * (float)power[i];
            *down-- = -*up++;
        }
    }
    map[127] = 0;
    map[255] = 1;
}
