/* softcap.h - x = round(cap * tanh(x / cap)), in place; x is float32, rounded to dtype
 *
 * Source: Gemma 2 report 2024, section 2, "logit soft-capping". The gradient is worked out from the
 * capped y: dx = round(dx * (1 - t * t)), t = y / cap. */
#pragma once

#include "ops/math/elementary.h"

SHEAF__SHARED_FN float sheaf__softcap_of(float x, float cap, sheaf_dtype dtype)
{
    return sheaf__one_nan(sheaf__rounded(cap * sheaf__tanh_of(x / cap), dtype));
}

/* Not rounded. */
SHEAF__SHARED_FN float sheaf__softcap_back_of(float dx, float y, float cap)
{
    const float t = y / cap;
    return dx * (1.0f - t * t);
}
