/* adamw_fast.c - adamw_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/adamw/adamw.h"
#include "ops/each.h"

SHEAF__INLINE void step(float *p, float *m, float *v, const float *g, int64_t count,
                        const sheaf__adamw_constants *k, bool near)
{
    const vec grad = v_mul(v_load(g, count), v_set(k->scale)), before = v_load(m, count);
    const vec toward = v_sub(grad, before);
    const vec m1 = near ? v_add(before, v_mul(v_set(k->toward), toward))
                        : v_sub(grad, v_mul(toward, v_set(k->stay)));
    const vec v1 =
        v_add(v_mul(v_load(v, count), v_set(k->beta2)), v_mul(v_mul(v_set(k->rest2), grad), grad));
    const vec denominator = v_add(v_div(v_sqrt(v1), v_set(k->bias2_sqrt)), v_set(k->eps));
    const vec change = v_div(v_mul(v_set(k->step), m1), denominator);
    const vec decayed = v_mul(v_load(p, count), v_set(k->decay));
    v_store(m, v_one_nan(m1), count);
    v_store(v, v_one_nan(v1), count);
    v_store(p, v_one_nan(v_add(decayed, change)), count);
}

SHEAF__INLINE void steps(float *p, float *m, float *v, const float *g, int64_t n,
                         const sheaf__adamw_constants *k, bool near)
{
    V_EACH(i, n, step(p + i, m + i, v + i, g + i, count, k, near));
}

void SHEAF__FAST(adamw)(float *p, float *m, float *v, const float *g, int64_t n,
                        const sheaf__adamw *how)
{
    const sheaf__adamw_constants k = sheaf__adamw_prepare(how);
    if (k.toward < 0.5f)
        steps(p, m, v, g, n, &k, true);
    else
        steps(p, m, v, g, n, &k, false);
}
