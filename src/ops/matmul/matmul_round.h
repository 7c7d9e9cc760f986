/* matmul_round.h - rounding of products and weights, for the processor and for kernels of GPUs. */
#pragma once

#include "ops/math/round.h"

SHEAF__SHARED_FN float mm_quiet(float x)
{
    return x != x ? sheaf__float(0xffc00000u) : x;
}
/* To nearest even; NaN becomes the default quiet NaN. */
SHEAF__SHARED_FN uint16_t mm_to_bf16(float x)
{
    const uint32_t bits = sheaf__bits(mm_quiet(x));
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* An element of a weight, from a number as it is read or trained. */
SHEAF__SHARED_FN void mm_put(void *dst, int64_t i, float x, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        ((uint16_t *)dst)[i] = mm_to_bf16(x);
    else if (dtype == SHEAF_F16)
        ((uint16_t *)dst)[i] = sheaf__f16(x);
    else
        ((float *)dst)[i] = x;
}
