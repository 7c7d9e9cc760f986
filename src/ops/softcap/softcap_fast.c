/* softcap_fast.c - softcap_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"

SHEAF__INLINE void ahead(float *x, vec cap, int64_t count, sheaf_dtype dtype)
{
    vec t = v_div(v_load(x, count), cap);
    v_tanh(&t, &t, 1);
    v_store(x, v_one_nan(v_rounded(v_mul(cap, t), dtype)), count);
}

void SHEAF__FAST(softcap)(float *x, float cap, int64_t n, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, V_EACH(i, n, ahead(x + i, v_set(cap), count, of)));
}

SHEAF__INLINE void back(void *dx, const float *y, vec cap, int64_t i, int64_t count,
                        sheaf_dtype dtype)
{
    const vec t = v_div(v_load(y + i, count), cap);
    const vec slope = v_sub(v_set(1), v_mul(t, t));
    v_write(dx, i, v_mul(v_read(dx, i, count, dtype), slope), count, dtype);
}

void SHEAF__FAST(softcap_back)(void *dx, const float *y, float cap, int64_t n, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, V_EACH(i, n, back(dx, y, v_set(cap), i, count, of)));
}
