/* values.h - what one code stands for; kernels for GPUs use these, too.
 *
 * Nothing here depends on the flags for denormals but the last product of each value. */
#pragma once

#include <math.h>

#include "base/shared_fn.h"
#include "ops/math/round.h"
#include "ops/quant/quant.h"

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
        return sheaf__code_numbers(codes)[code & 15];
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
