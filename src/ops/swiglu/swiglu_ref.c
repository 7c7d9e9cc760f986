/* swiglu_ref.c - h = round(f(g) * u), f(g) = g / (1 + e^-z): silu with z = g, and for GeGLU gelu by
 * tanh with z = g * (a + b * g^2)
 *
 * Source: Shazeer 2020, section 2 (Swish with beta 1), with the approximation of Hendrycks and
 * Gimpel 2016, section 2, 0.5 g (1 + tanh(z / 2)), which is the same function: a = 2 sqrt(2 / pi),
 * b = 0.044715 a. With p = 1 / (1 + e^-z):
 *     dup = dh * (g * p),   dgate = dh * u * slope,
 *     slope = p * (1 + g * (1 - p)), of gelu p + (g * p) * (1 - p) * (a + 3 b * g^2).
 * Everything between the loads and the one rounding is float32. */
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/math/round.h"

static const float A = 0x1.988454p+0f, B = 0x1.2444f2p-4f, B3 = 0x1.b6676cp-3f;

static float one_and_exp(float g, bool gelu)
{
    return 1.0f + sheaf__exp(gelu ? -(g * (A + B * (g * g))) : -g);
}

void sheaf__swiglu_ref(void *h, const void *gate, const void *up, int64_t n, bool gelu,
                       sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sheaf__load(gate, i, dtype), u = sheaf__load(up, i, dtype);
        sheaf__store(h, i, g / one_and_exp(g, gelu) * u, dtype);
    }
}

void sheaf__swiglu_back_ref(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                            const void *up, int64_t n, bool gelu, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = sheaf__load(dh, i, dtype);
        const float g = sheaf__load(gate, i, dtype), u = sheaf__load(up, i, dtype);
        const float sum = one_and_exp(g, gelu), p = 1.0f / sum;
        const float slope =
            gelu ? p + g * p * (1.0f - p) * (A + B3 * (g * g)) : p * (1.0f + g * (1.0f - p));
        if (h != NULL)
            sheaf__store(h, i, g / sum * u, dtype);
        sheaf__store(dup, i, d * (g * p), dtype);
        sheaf__store(dgate, i, d * u * slope, dtype);
    }
}
