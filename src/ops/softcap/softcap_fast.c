/* softcap_fast.c - softcap_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/vec.h"

SHEAF__INLINE void ahead(float *x, vec cap, int64_t count, sheaf_dtype dtype)
{
    vec t = v_div(v_load(x, count), cap);
    v_tanh(&t, &t, 1);
    v_store(x, v_one_nan(v_rounded(v_mul(cap, t), dtype)), count);
}

SHEAF__INLINE void softcap(float *x, vec cap, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        ahead(x + i, cap, 16, dtype);
    if (i < n)
        ahead(x + i, cap, n - i, dtype);
}

void SHEAF__FAST(softcap)(float *x, float cap, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        softcap(x, v_set(cap), n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        softcap(x, v_set(cap), n, SHEAF_F16);
    else
        softcap(x, v_set(cap), n, SHEAF_F32);
}

SHEAF__INLINE void back(void *dx, const float *y, vec cap, int64_t i, int64_t count,
                        sheaf_dtype dtype)
{
    const vec t = v_div(v_load(y + i, count), cap);
    const vec slope = v_sub(v_set(1), v_mul(t, t));
    v_write(dx, i, v_mul(v_read(dx, i, count, dtype), slope), count, dtype);
}

SHEAF__INLINE void softcap_back(void *dx, const float *y, vec cap, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        back(dx, y, cap, i, 16, dtype);
    if (i < n)
        back(dx, y, cap, i, n - i, dtype);
}

void SHEAF__FAST(softcap_back)(void *dx, const float *y, float cap, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        softcap_back(dx, y, v_set(cap), n, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        softcap_back(dx, y, v_set(cap), n, SHEAF_F16);
    else
        softcap_back(dx, y, v_set(cap), n, SHEAF_F32);
}
