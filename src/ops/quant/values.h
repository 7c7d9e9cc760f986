/* values.h - what one code stands for; kernels for GPUs use these, too.
 *
 * Nothing here depends on the flags for denormals but the last product of each value. */
#pragma once

#include <math.h>

#include "base/shared_fn.h"
#include "ops/math/round.h"
#include "ops/quant/quant.h"

/* The numbers of codes of 4 bits, as bits, in the order of sheaf__codes. FP4's are 0, 1/192, 2/3,
 * 1, 1/3, 1/2, 1/6, 1/4 and the same negated, but for the zero, which has no sign; INT4's -8 to 7;
 * E2M1's 0, 1/2, 1, 3/2, 2, 3, 4, 6 and the same negated; UINT4's 0 to 15. */
SHEAF__SHARED_FN const uint32_t *sheaf__code_numbers(sheaf__codes codes)
{
    static const uint32_t bits[SHEAF__CODES][16] = {
        { 0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0,
          0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3,
          0x3f800000 },
        { 0, 0x3baaaaab, 0x3f2aaaab, 0x3f800000, 0x3eaaaaab, 0x3f000000, 0x3e2aaaab, 0x3e800000, 0,
          0xbbaaaaab, 0xbf2aaaab, 0xbf800000, 0xbeaaaaab, 0xbf000000, 0xbe2aaaab, 0xbe800000 },
        { 0xc1000000, 0xc0e00000, 0xc0c00000, 0xc0a00000, 0xc0800000, 0xc0400000, 0xc0000000,
          0xbf800000, 0, 0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000,
          0x40e00000 },
        { 0 }, /* 8 bits */
        { 0 },
        { 0, 0x3f000000, 0x3f800000, 0x3fc00000, 0x40000000, 0x40400000, 0x40800000, 0x40c00000,
          0x80000000, 0xbf000000, 0xbf800000, 0xbfc00000, 0xc0000000, 0xc0400000, 0xc0800000,
          0xc0c00000 },
        { 0, 0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000, 0x40e00000,
          0x41000000, 0x41100000, 0x41200000, 0x41300000, 0x41400000, 0x41500000, 0x41600000,
          0x41700000 },
    };
    return bits[codes];
}

/* Sign, 4 bits of exponent (bias 7), 3 of significand; no infinity, and one NaN of each sign. */
SHEAF__SHARED_FN float sheaf__f8_value(uint32_t code)
{
    const uint32_t sign = (code & 0x80) << 24, size = code & 0x7f;
    if (size == 0x7f)
        return sheaf__float(SHEAF__NAN_BITS);
    if (size < 8) /* eighths of 2^-6 */
        return sheaf__float(sign | sheaf__bits((float)size * 0x1p-9f));
    return sheaf__float(sign | ((size << 20) + 0x3c000000));
}

SHEAF__SHARED_FN float sheaf__code_value(sheaf__codes codes, uint32_t code)
{
    if (sheaf__code_bits(codes) == 4)
        return sheaf__float(sheaf__code_numbers(codes)[code & 15]);
    return codes == SHEAF__INT8 ? (float)((int32_t)code - ((int32_t)(code & 0x80) << 1))
                                : sheaf__f8_value(code);
}

/* A scale that is stored as an exponent of two, 127 for 1; 255 is no number. */
SHEAF__SHARED_FN float sheaf__exponent_scale(uint32_t exponent)
{
    return sheaf__float(exponent == 0     ? 0x00400000
                        : exponent == 255 ? SHEAF__NAN_BITS
                                          : exponent << 23);
}

/* A group's scale, of doubled scales: `value` is the signed map's of its code. */
SHEAF__SHARED_FN float sheaf__doubled_scale(float value, float nested, float offset)
{
    const float product = value * nested;
    return product + offset;
}

/* The scale of a row of bitsandbytes' int8 in training, from its SCB. */
SHEAF__SHARED_FN float sheaf__int8_scale(float scb)
{
    return scb * 0x1.020408p-7f; /* 1/127 */
}

/* ---- 8 bits by blocks, as a processor's bitsandbytes searches: in a table of 65,536 places ----
 */

/* The place of y in [-1, 1], to the nearest; what is beyond is at an end, NaN at the lower one. */
SHEAF__SHARED_FN int32_t sheaf__map8_place(float y)
{
    const float place = fmaf((y + 1.0f) * 0.5f, 65535.0f, 0.5f);
    return place >= 65535.0f ? 65535 : place > 0.0f ? (int32_t)place : 0;
}

/* What the table has there: how many middles of neighbours in the map lie below the place. */
SHEAF__SHARED_FN uint8_t sheaf__map8_at(const float *map, int32_t place)
{
    const float y = -1.0f + 2.0f * (float)place / 65535.0f;
    int32_t code = 0;
    for (int32_t half = 128; half > 0; half /= 2)
        if (0.5f * (map[code + half - 1] + map[code + half]) < y)
            code += half;
    return (uint8_t)code;
}
