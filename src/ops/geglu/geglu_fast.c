/* geglu_fast.c - geglu_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/vec.h"

/* a + by * g^2 */
SHEAF__INLINE vec bent(vec g, float by)
{
    return v_add(v_set(0x1.988454p+0f), v_mul(v_set(by), v_mul(g, g)));
}

/* 1 + e^-z of `many` vectors; each body works on as many, and only a single one may
 * have a count below 16. */
SHEAF__INLINE void one_and_exp(vec *sum, const vec *g, const int many)
{
    for (int k = 0; k < many; k++)
        sum[k] = v_negate(v_mul(g[k], bent(g[k], 0x1.2444f2p-4f)));
    v_exp(sum, sum, many);
    for (int k = 0; k < many; k++)
        sum[k] = v_add(v_set(1), sum[k]);
}

SHEAF__INLINE void ahead(void *h, const void *gate, const void *up, int64_t i, const int many,
                         int64_t count, sheaf_dtype dtype)
{
    vec g[SHEAF__MANY], sum[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        g[k] = v_read(gate, i + 16 * k, count, dtype);
    one_and_exp(sum, g, many);
    for (int k = 0; k < many; k++)
        g[k] = v_div(g[k], sum[k]);
    for (int k = 0; k < many; k++)
        v_write(h, i + 16 * k, v_mul(g[k], v_read(up, i + 16 * k, count, dtype)), count, dtype);
}

SHEAF__INLINE void geglu(void *h, const void *gate, const void *up, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        ahead(h, gate, up, i, SHEAF__MANY, 16, dtype);
    for (; i + 16 <= n; i += 16)
        ahead(h, gate, up, i, 1, 16, dtype);
    if (i < n)
        ahead(h, gate, up, i, 1, n - i, dtype);
}

void SHEAF__FAST(geglu)(void *h, const void *gate, const void *up, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        geglu(h, gate, up, n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        geglu(h, gate, up, n, SHEAF_F16);
    else
        geglu(h, gate, up, n, SHEAF_F32);
}

SHEAF__INLINE void back(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                        const void *up, int64_t i, const int many, int64_t count, sheaf_dtype dtype)
{
    const vec one = v_set(1);
    vec g[SHEAF__MANY], sum[SHEAF__MANY], p[SHEAF__MANY], slope[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        g[k] = v_read(gate, i + 16 * k, count, dtype);
    one_and_exp(sum, g, many);
    for (int k = 0; k < many; k++)
        p[k] = v_div(one, sum[k]);
    for (int k = 0; k < many; k++)
        slope[k] = v_add(
            p[k], v_mul(v_mul(v_mul(g[k], p[k]), v_sub(one, p[k])), bent(g[k], 0x1.b6676cp-3f)));
    for (int k = 0; k < many; k++) {
        const vec d = v_read(dh, i + 16 * k, count, dtype),
                  u = v_read(up, i + 16 * k, count, dtype);
        if (h != NULL)
            v_write(h, i + 16 * k, v_mul(v_div(g[k], sum[k]), u), count, dtype);
        v_write(dup, i + 16 * k, v_mul(d, v_mul(g[k], p[k])), count, dtype);
        v_write(dgate, i + 16 * k, v_mul(v_mul(d, u), slope[k]), count, dtype);
    }
}

SHEAF__INLINE void geglu_back(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                              const void *up, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 * SHEAF__MANY <= n; i += 16 * SHEAF__MANY)
        back(dgate, dup, h, dh, gate, up, i, SHEAF__MANY, 16, dtype);
    for (; i + 16 <= n; i += 16)
        back(dgate, dup, h, dh, gate, up, i, 1, 16, dtype);
    if (i < n)
        back(dgate, dup, h, dh, gate, up, i, 1, n - i, dtype);
}

void SHEAF__FAST(geglu_back)(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                             const void *up, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        geglu_back(dgate, dup, h, dh, gate, up, n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        geglu_back(dgate, dup, h, dh, gate, up, n, SHEAF_F16);
    else
        geglu_back(dgate, dup, h, dh, gate, up, n, SHEAF_F32);
}
