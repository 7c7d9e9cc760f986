/* swiglu_ref.c - h = round(silu(g) * u), silu(g) = g / (1 + e^-g)
 *
 * Source: Shazeer 2020, section 2 (Swish with beta 1). With p = 1 / (1 + e^-g):
 *     dup = dh * (g * p),   dgate = dh * u * (p * (1 + g * (1 - p))).
 * Everything between the loads and the one rounding is float32. */
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/math/round.h"

void sheaf__swiglu_ref(void *h, const void *gate, const void *up, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sheaf__load(gate, i, dtype), u = sheaf__load(up, i, dtype);
        const float silu = g / (1.0f + sheaf__exp(-g));
        sheaf__store(h, i, silu * u, dtype);
    }
}

void sheaf__swiglu_back_ref(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                            const void *up, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = sheaf__load(dh, i, dtype);
        const float g = sheaf__load(gate, i, dtype), u = sheaf__load(up, i, dtype);
        const float sum = 1.0f + sheaf__exp(-g), p = 1.0f / sum;
        const float slope = p * (1.0f + g * (1.0f - p));
        if (h != NULL)
            sheaf__store(h, i, g / sum * u, dtype);
        sheaf__store(dup, i, d * (g * p), dtype);
        sheaf__store(dgate, i, d * u * slope, dtype);
    }
}
