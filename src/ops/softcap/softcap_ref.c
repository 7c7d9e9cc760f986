/* softcap_ref.c - x = round(cap * tanh(x / cap)), in place; x is float32, rounded to dtype
 *
 * Source: Gemma 2 report 2024, section 2, "logit soft-capping". The gradient is worked out from the
 * capped y: dx = round(dx * (1 - t * t)), t = y / cap. */
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/math/round.h"

void sheaf__softcap_ref(float *x, float cap, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sheaf__one_nan(sheaf__rounded(cap * sheaf__tanh(x[i] / cap), dtype));
}

void sheaf__softcap_back_ref(void *dx, const float *y, float cap, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float t = y[i] / cap;
        sheaf__store(dx, i, sheaf__load(dx, i, dtype) * (1.0f - t * t), dtype);
    }
}
