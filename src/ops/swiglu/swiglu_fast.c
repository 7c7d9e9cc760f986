/* swiglu_fast.c - swiglu_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"

/* a + by * g^2 */
SHEAF__INLINE vec bent(vec g, float by)
{
    return v_add(v_set(0x1.988454p+0f), v_mul(v_set(by), v_mul(g, g)));
}

/* 1 + e^-z of `many` vectors; each body works on as many, and only a single one may
 * have a count below 16. */
SHEAF__INLINE void one_and_exp(vec *sum, const vec *g, const int many, const bool gelu)
{
    for (int k = 0; k < many; k++)
        sum[k] = v_negate(gelu ? v_mul(g[k], bent(g[k], 0x1.2444f2p-4f)) : g[k]);
    v_exp(sum, sum, many);
    for (int k = 0; k < many; k++)
        sum[k] = v_add(v_set(1), sum[k]);
}

SHEAF__INLINE void ahead(void *h, const void *gate, const void *up, int64_t i, const int many,
                         int64_t count, const bool gelu, sheaf_dtype dtype)
{
    vec g[SHEAF__MANY], sum[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        g[k] = v_read(gate, i + 16 * k, count, dtype);
    one_and_exp(sum, g, many, gelu);
    for (int k = 0; k < many; k++)
        g[k] = v_div(g[k], sum[k]);
    for (int k = 0; k < many; k++)
        v_write(h, i + 16 * k, v_mul(g[k], v_read(up, i + 16 * k, count, dtype)), count, dtype);
}

void SHEAF__FAST(swiglu)(void *h, const void *gate, const void *up, int64_t n, bool gelu,
                         sheaf_dtype dtype)
{
    if (gelu)
        V_BY_TYPE(dtype, V_WALK(i, n, ahead(h, gate, up, i, many, count, true, of)));
    else
        V_BY_TYPE(dtype, V_WALK(i, n, ahead(h, gate, up, i, many, count, false, of)));
}

SHEAF__INLINE vec slope_of(vec g, vec p, const bool gelu)
{
    const vec one = v_set(1);
    if (gelu)
        return v_add(p, v_mul(v_mul(v_mul(g, p), v_sub(one, p)), bent(g, 0x1.b6676cp-3f)));
    return v_mul(p, v_add(one, v_mul(g, v_sub(one, p))));
}

SHEAF__INLINE void back(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                        const void *up, int64_t i, const int many, int64_t count, const bool gelu,
                        sheaf_dtype dtype)
{
    vec g[SHEAF__MANY], sum[SHEAF__MANY], p[SHEAF__MANY], slope[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        g[k] = v_read(gate, i + 16 * k, count, dtype);
    one_and_exp(sum, g, many, gelu);
    for (int k = 0; k < many; k++)
        p[k] = v_div(v_set(1), sum[k]);
    for (int k = 0; k < many; k++)
        slope[k] = slope_of(g[k], p[k], gelu);
    for (int k = 0; k < many; k++) {
        const vec d = v_read(dh, i + 16 * k, count, dtype),
                  u = v_read(up, i + 16 * k, count, dtype);
        if (h != NULL)
            v_write(h, i + 16 * k, v_mul(v_div(g[k], sum[k]), u), count, dtype);
        v_write(dup, i + 16 * k, v_mul(d, v_mul(g[k], p[k])), count, dtype);
        v_write(dgate, i + 16 * k, v_mul(v_mul(d, u), slope[k]), count, dtype);
    }
}

void SHEAF__FAST(swiglu_back)(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                              const void *up, int64_t n, bool gelu, sheaf_dtype dtype)
{
    if (gelu)
        V_BY_TYPE(dtype, V_WALK(i, n, back(dgate, dup, h, dh, gate, up, i, many, count, true, of)));
    else
        V_BY_TYPE(dtype,
                  V_WALK(i, n, back(dgate, dup, h, dh, gate, up, i, many, count, false, of)));
}
