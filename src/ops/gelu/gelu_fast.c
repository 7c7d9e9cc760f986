/* gelu_fast.c - gelu_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"

/* a + by * x^2 */
SHEAF__INLINE vec bent(vec x, float by)
{
    return v_add(v_set(0x1.988454p+0f), v_mul(v_set(by), v_mul(x, x)));
}

/* 1 + erf(x sqrt(1/2)) of `many` vectors, by tanh 1 / (1 + e^-z); each body works on as many, and
 * only a single one may have a count below 16. */
SHEAF__INLINE void weights(vec *p, const vec *x, const int many, const bool tanh)
{
    for (int k = 0; k < many; k++)
        p[k] = tanh ? v_negate(v_mul(x[k], bent(x[k], 0x1.2444f2p-4f)))
                    : v_mul(x[k], v_set(0x1.6a09e6p-1f));
    if (tanh)
        v_exp(p, p, many);
    else
        v_erf(p, p, many);
    for (int k = 0; k < many; k++) {
        p[k] = v_add(v_set(1), p[k]);
        p[k] = tanh ? v_div(v_set(1), p[k]) : p[k];
    }
}

SHEAF__INLINE void ahead(void *y, const void *x, int64_t i, const int many, int64_t count,
                         const bool tanh, sheaf_dtype dtype)
{
    vec v[SHEAF__MANY], p[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    weights(p, v, many, tanh);
    for (int k = 0; k < many; k++)
        v_write(y, i + 16 * k, v_mul(tanh ? v[k] : v_mul(v_set(0.5f), v[k]), p[k]), count, dtype);
}

void SHEAF__FAST(gelu)(void *y, const void *x, int64_t n, bool tanh, sheaf_dtype dtype)
{
    if (tanh)
        V_BY_TYPE(dtype, V_WALK(i, n, ahead(y, x, i, many, count, true, of)));
    else
        V_BY_TYPE(dtype, V_WALK(i, n, ahead(y, x, i, many, count, false, of)));
}

/* By erf p x half and x times the density, by tanh from p alone. */
SHEAF__INLINE void slopes(vec *slope, const vec *v, const int many, const bool tanh)
{
    const vec one = v_set(1);
    vec p[SHEAF__MANY], d[SHEAF__MANY];
    weights(p, v, many, tanh);
    for (int k = 0; k < many && tanh; k++)
        slope[k] = v_add(
            p[k], v_mul(v_mul(v_mul(v[k], p[k]), v_sub(one, p[k])), bent(v[k], 0x1.b6676cp-3f)));
    if (tanh)
        return;
    for (int k = 0; k < many; k++)
        d[k] = v_mul(v_mul(v[k], v[k]), v_set(-0.5f));
    v_exp(d, d, many);
    for (int k = 0; k < many; k++)
        slope[k] = v_add(v_mul(v_set(0.5f), p[k]), v_mul(v[k], v_mul(d[k], v_set(0x1.988454p-2f))));
}

SHEAF__INLINE void back(void *dx, const void *dy, const void *x, int64_t i, const int many,
                        int64_t count, bool add, const bool tanh, sheaf_dtype dtype)
{
    vec v[SHEAF__MANY], slope[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    slopes(slope, v, many, tanh);
    for (int k = 0; k < many; k++) {
        vec g = v_mul(v_read(dy, i + 16 * k, count, dtype), slope[k]);
        if (add)
            g = v_add(v_read(dx, i + 16 * k, count, dtype), g);
        v_write(dx, i + 16 * k, g, count, dtype);
    }
}

void SHEAF__FAST(gelu_back)(void *dx, const void *dy, const void *x, int64_t n, bool add, bool tanh,
                            sheaf_dtype dtype)
{
    if (tanh)
        V_BY_TYPE(dtype, V_WALK(i, n, back(dx, dy, x, i, many, count, add, true, of)));
    else
        V_BY_TYPE(dtype, V_WALK(i, n, back(dx, dy, x, i, many, count, add, false, of)));
}
