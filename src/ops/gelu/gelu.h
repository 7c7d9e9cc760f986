/* gelu.h - y = round((0.5 * x) * (1 + erf(x * r))), r = sqrt(1/2), or its approximation by tanh
 *
 * Source: Hendrycks and Gimpel 2016, section 2. The slope of the first is
 * Phi(x) + x phi(x), distribution and density of the normal numbers:
 *     p = 0.5 * (1 + erf(x * r)),   d = exp((x * x) * -0.5) * (1 / sqrt(2 pi)),
 *     g = dy * (p + x * d).
 * In the left tail 1 + erf cancels, as in torch: y is off by up to 6e-8 * |x|, absolutely;
 * minus infinity gives NaN. The approximation is 0.5 x (1 + tanh(z / 2)) = x p,
 * p = 1 / (1 + e^-z), z = x (a + b x^2), a = 2 sqrt(2 / pi), b = 0.044715 a; in this form the left
 * tail does not cancel. Its slope is p + x p (1 - p) (a + 3 b x^2).
 * Everything between the loads and the one rounding is float32. */
#pragma once

#include <stdbool.h>

#include "ops/math/elementary.h"

SHEAF__SHARED_FN float sheaf__one_and_erf(float x)
{
    return 1.0f + sheaf__erf_of(x * 0x1.6a09e6p-1f);
}

SHEAF__SHARED_FN float sheaf__gelu_logistic(float x)
{
    return 1.0f / (1.0f + sheaf__exp_of(-(x * (0x1.988454p+0f + 0x1.2444f2p-4f * (x * x)))));
}

SHEAF__SHARED_FN float sheaf__gelu_slope(float x, bool tanh)
{
    if (!tanh) {
        const float p = 0.5f * sheaf__one_and_erf(x),
                    d = sheaf__exp_of(x * x * -0.5f) * 0x1.988454p-2f;
        return p + x * d;
    }
    const float p = sheaf__gelu_logistic(x);
    return p + x * p * (1.0f - p) * (0x1.988454p+0f + 0x1.b6676cp-3f * (x * x));
}

SHEAF__SHARED_FN float sheaf__gelu_of(float x, bool tanh)
{
    return tanh ? x * sheaf__gelu_logistic(x) : 0.5f * x * sheaf__one_and_erf(x);
}
