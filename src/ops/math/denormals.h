/* denormals.h - float32 arithmetic that keeps denormals, whatever the thread or the kernel does
 * with them elsewhere: the values of quantised weights are defined by it (ops/quant/quant.h). */
#pragma once

#include <math.h>

#include "ops/math/round.h"

#ifdef __CUDACC__
SHEAF__SHARED_FN float sheaf__kept_product(float a, float b)
{
    float x;
    asm("mul.rn.f32 %0, %1, %2; // denormals kept" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
SHEAF__SHARED_FN float sheaf__kept_sum(float a, float b)
{
    float x;
    asm("add.rn.f32 %0, %1, %2; // denormals kept" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
#else
/* By way of double, in which denormals of float32 are none. */
static inline double sheaf__in_double(float x)
{
    const uint32_t bits = sheaf__bits(x), size = bits & 0x7fffffff;
    if (size >= 0x800000)
        return x;
    return (bits >> 31 ? -0x1p-149 : 0x1p-149) * (double)size;
}
static inline float sheaf__from_double(double x)
{
    if (!(fabs(x) < 0x1p-126))
        return (float)x;
    return sheaf__float((uint32_t)nearbyint(fabs(x) * 0x1p149) | (signbit(x) ? 0x80000000u : 0));
}
static inline float sheaf__kept_product(float a, float b)
{
    return sheaf__from_double(sheaf__in_double(a) * sheaf__in_double(b));
}
static inline float sheaf__kept_sum(float a, float b)
{
    return sheaf__from_double(sheaf__in_double(a) + sheaf__in_double(b));
}
#endif
