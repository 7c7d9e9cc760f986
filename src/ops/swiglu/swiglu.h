/* swiglu.h - h = round(f(g) * u), f(g) = g / (1 + e^-z): silu with z = g, and for GeGLU gelu by
 * tanh with z = g * (a + b * g^2)
 *
 * Source: Shazeer 2020, section 2 (Swish with beta 1), with the approximation of Hendrycks and
 * Gimpel 2016, section 2, 0.5 g (1 + tanh(z / 2)), which is the same function: a = 2 sqrt(2 / pi),
 * b = 0.044715 a. With p = 1 / (1 + e^-z):
 *     dup = dh * (g * p),   dgate = dh * u * slope,
 *     slope = p * (1 + g * (1 - p)), of gelu p + (g * p) * (1 - p) * (a + 3 b * g^2).
 * Everything between the loads and the one rounding is float32. */
#pragma once

#include <stdbool.h>

#include "ops/math/elementary.h"

SHEAF__SHARED_FN float sheaf__gate_sum(float g, bool gelu)
{
    const float z = gelu ? g * (0x1.988454p+0f + 0x1.2444f2p-4f * (g * g)) : g;
    return 1.0f + sheaf__exp_of(-z);
}

SHEAF__SHARED_FN float sheaf__swiglu_of(float g, float u, bool gelu)
{
    return g / sheaf__gate_sum(g, gelu) * u;
}

/* From dh = d: h again, dgate, dup. */
SHEAF__SHARED_FN void sheaf__swiglu_back_of(float *h, float *dgate, float *dup, float d, float g,
                                            float u, bool gelu)
{
    const float sum = sheaf__gate_sum(g, gelu), p = 1.0f / sum;
    const float slope = gelu ? p + g * p * (1.0f - p) * (0x1.988454p+0f + 0x1.b6676cp-3f * (g * g))
                             : p * (1.0f + g * (1.0f - p));
    *h = g / sum * u;
    *dup = d * (g * p);
    *dgate = d * u * slope;
}
