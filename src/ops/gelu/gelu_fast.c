/* gelu_fast.c - gelu_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/vec.h"

/* 1 + erf(x sqrt(1/2)) of `many` vectors; each body works on as many, and only a single
 * one may have a count below 16. */
SHEAF__INLINE void one_and_erf(vec *sum, const vec *x, const int many)
{
    for (int k = 0; k < many; k++)
        sum[k] = v_mul(x[k], v_set(0x1.6a09e6p-1f));
    v_erf(sum, sum, many);
    for (int k = 0; k < many; k++)
        sum[k] = v_add(v_set(1), sum[k]);
}

SHEAF__INLINE void ahead(void *y, const void *x, int64_t i, const int many, int64_t count,
                         sheaf_dtype dtype)
{
    vec v[SHEAF__MANY], sum[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    one_and_erf(sum, v, many);
    for (int k = 0; k < many; k++)
        v_write(y, i + 16 * k, v_mul(v_mul(v_set(0.5f), v[k]), sum[k]), count, dtype);
}

SHEAF__INLINE void gelu(void *y, const void *x, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        ahead(y, x, i, SHEAF__MANY, 16, dtype);
    for (; i + 16 <= n; i += 16)
        ahead(y, x, i, 1, 16, dtype);
    if (i < n)
        ahead(y, x, i, 1, n - i, dtype);
}

void SHEAF__FAST(gelu)(void *y, const void *x, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        gelu(y, x, n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        gelu(y, x, n, SHEAF_F16);
    else
        gelu(y, x, n, SHEAF_F32);
}

SHEAF__INLINE void back(void *dx, const void *dy, const void *x, int64_t i, const int many,
                        int64_t count, bool add, sheaf_dtype dtype)
{
    vec v[SHEAF__MANY], p[SHEAF__MANY], d[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    one_and_erf(p, v, many);
    for (int k = 0; k < many; k++)
        d[k] = v_mul(v_mul(v[k], v[k]), v_set(-0.5f));
    v_exp(d, d, many);
    for (int k = 0; k < many; k++) {
        const vec density = v_mul(d[k], v_set(0x1.988454p-2f));
        const vec slope = v_add(v_mul(v_set(0.5f), p[k]), v_mul(v[k], density));
        vec g = v_mul(v_read(dy, i + 16 * k, count, dtype), slope);
        if (add)
            g = v_add(v_read(dx, i + 16 * k, count, dtype), g);
        v_write(dx, i + 16 * k, g, count, dtype);
    }
}

SHEAF__INLINE void gelu_back(void *dx, const void *dy, const void *x, int64_t n, bool add,
                             sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        back(dx, dy, x, i, SHEAF__MANY, 16, add, dtype);
    for (; i + 16 <= n; i += 16)
        back(dx, dy, x, i, 1, 16, add, dtype);
    if (i < n)
        back(dx, dy, x, i, 1, n - i, add, dtype);
}

void SHEAF__FAST(gelu_back)(void *dx, const void *dy, const void *x, int64_t n, bool add,
                            sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        gelu_back(dx, dy, x, n, add, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        gelu_back(dx, dy, x, n, add, SHEAF_F16);
    else
        gelu_back(dx, dy, x, n, add, SHEAF_F32);
}

/* ---- by tanh ---- */

/* a + by * x^2 */
SHEAF__INLINE vec bent(vec x, float by)
{
    return v_add(v_set(0x1.988454p+0f), v_mul(v_set(by), v_mul(x, x)));
}

SHEAF__INLINE void logistic(vec *p, const vec *x, const int many)
{
    for (int k = 0; k < many; k++)
        p[k] = v_negate(v_mul(x[k], bent(x[k], 0x1.2444f2p-4f)));
    v_exp(p, p, many);
    for (int k = 0; k < many; k++)
        p[k] = v_div(v_set(1), v_add(v_set(1), p[k]));
}

SHEAF__INLINE void tanh_ahead(void *y, const void *x, int64_t i, const int many, int64_t count,
                              sheaf_dtype dtype)
{
    vec v[SHEAF__MANY], p[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    logistic(p, v, many);
    for (int k = 0; k < many; k++)
        v_write(y, i + 16 * k, v_mul(v[k], p[k]), count, dtype);
}

SHEAF__INLINE void gelu_tanh(void *y, const void *x, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        tanh_ahead(y, x, i, SHEAF__MANY, 16, dtype);
    for (; i + 16 <= n; i += 16)
        tanh_ahead(y, x, i, 1, 16, dtype);
    if (i < n)
        tanh_ahead(y, x, i, 1, n - i, dtype);
}

void SHEAF__FAST(gelu_tanh)(void *y, const void *x, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        gelu_tanh(y, x, n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        gelu_tanh(y, x, n, SHEAF_F16);
    else
        gelu_tanh(y, x, n, SHEAF_F32);
}

SHEAF__INLINE void tanh_back(void *dx, const void *dy, const void *x, int64_t i, const int many,
                             int64_t count, bool add, sheaf_dtype dtype)
{
    const vec one = v_set(1);
    vec v[SHEAF__MANY], p[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        v[k] = v_read(x, i + 16 * k, count, dtype);
    logistic(p, v, many);
    for (int k = 0; k < many; k++) {
        const vec slope = v_add(
            p[k], v_mul(v_mul(v_mul(v[k], p[k]), v_sub(one, p[k])), bent(v[k], 0x1.b6676cp-3f)));
        vec g = v_mul(v_read(dy, i + 16 * k, count, dtype), slope);
        if (add)
            g = v_add(v_read(dx, i + 16 * k, count, dtype), g);
        v_write(dx, i + 16 * k, g, count, dtype);
    }
}

SHEAF__INLINE void gelu_tanh_back(void *dx, const void *dy, const void *x, int64_t n, bool add,
                                  sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        tanh_back(dx, dy, x, i, SHEAF__MANY, 16, add, dtype);
    for (; i + 16 <= n; i += 16)
        tanh_back(dx, dy, x, i, 1, 16, add, dtype);
    if (i < n)
        tanh_back(dx, dy, x, i, 1, n - i, add, dtype);
}

void SHEAF__FAST(gelu_tanh_back)(void *dx, const void *dy, const void *x, int64_t n, bool add,
                                 sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        gelu_tanh_back(dx, dy, x, n, add, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        gelu_tanh_back(dx, dy, x, n, add, SHEAF_F16);
    else
        gelu_tanh_back(dx, dy, x, n, add, SHEAF_F32);
}
