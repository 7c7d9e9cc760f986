/* gelu_ref.c - y = round((0.5 * x) * (1 + erf(x * r))), r = sqrt(1/2), or its approximation by tanh
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
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/math/round.h"

static float one_and_erf(float x)
{
    return 1.0f + sheaf__erf(x * 0x1.6a09e6p-1f);
}

static float logistic(float x)
{
    return 1.0f / (1.0f + sheaf__exp(-(x * (0x1.988454p+0f + 0x1.2444f2p-4f * (x * x)))));
}

static float slope_of(float x, bool tanh)
{
    if (!tanh) {
        const float p = 0.5f * one_and_erf(x), d = sheaf__exp(x * x * -0.5f) * 0x1.988454p-2f;
        return p + x * d;
    }
    const float p = logistic(x);
    return p + x * p * (1.0f - p) * (0x1.988454p+0f + 0x1.b6676cp-3f * (x * x));
}

void sheaf__gelu_ref(void *y, const void *x, int64_t n, bool tanh, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = sheaf__load(x, i, dtype);
        sheaf__store(y, i, tanh ? v * logistic(v) : 0.5f * v * one_and_erf(v), dtype);
    }
}

void sheaf__gelu_back_ref(void *dx, const void *dy, const void *x, int64_t n, bool add, bool tanh,
                          sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sheaf__load(dy, i, dtype) * slope_of(sheaf__load(x, i, dtype), tanh);
        sheaf__store(dx, i, add ? sheaf__load(dx, i, dtype) + g : g, dtype);
    }
}
