/* shrink.h - numbers in 8 bits, in blocks that share a power of two.
 *
 * x' = q 2^e for the integers q, |q| <= 127, of up to 32 numbers; e is the largest for which that
 * of greatest size, m, is at least 64 2^e. So |x - x'| <= 2^e / 2 <= m / 128, but less than 2^e
 * where 128 would be nearest. A power of two needs one byte, and leaves q 2^e exact in bfloat16; by
 * m / 127, for a scale of four bytes, the error would be two thirds of it. Numbers below 2^-125
 * become zero. A block that holds NaN or infinity comes back as NaN, so that a step which is
 * not finite stays one. */
#pragma once

#include "ops/math/round.h"

enum { SHEAF__SHRINK_BLOCK = 32, SHEAF__SHRINK_NOT_FINITE = 255 };

/* e + 127, of the greatest size in a block, as bits. At least 3: then what is denormal is zero
 * whether or not arithmetic keeps it. */
SHEAF__SHARED_FN uint8_t sheaf__shrink_scale(uint32_t largest)
{
    const uint32_t exponent = largest >> 23;
    if (exponent == 255)
        return SHEAF__SHRINK_NOT_FINITE;
    return (uint8_t)(exponent < 9 ? 3 : exponent - 6);
}

/* 2^-e of a block that is finite. */
SHEAF__SHARED_FN float sheaf__shrink_factor(uint8_t scale)
{
    return sheaf__float((uint32_t)(254 - scale) << 23);
}

/* Sums of this size have no bits below one: to nearest, ties to even. */
SHEAF__SHARED_FN int8_t sheaf__shrink_code(float x, float factor)
{
    const float whole = x * factor + 0x1.8p23f;
    const int32_t q = (int32_t)(sheaf__bits(whole) - sheaf__bits(0x1.8p23f));
    return (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
}

/* 2^e, or NaN. */
SHEAF__SHARED_FN float sheaf__expand_factor(uint8_t scale)
{
    return sheaf__float(scale == SHEAF__SHRINK_NOT_FINITE ? SHEAF__NAN_BITS
                                                          : (uint32_t)scale << 23);
}
