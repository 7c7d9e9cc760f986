/* adamw8_fast.c - adamw8_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/adamw/adamw.h"
#include "ops/each.h"
#include "ops/quant/quantise.h"

enum { BLOCK = SHEAF__ADAMW8_BLOCK };

SHEAF__INLINE void step(float *p, float *m, float *v, const float *g, int64_t count,
                        const sheaf__adamw_constants *k)
{
    const vec grad = v_mul(v_load(g, count), v_set(k->scale));
    const vec m1 = v_fma(grad, v_set(k->toward), v_mul(v_load(m, count), v_set(k->beta1)));
    const vec v1 =
        v_fma(v_mul(v_set(k->rest2), grad), grad, v_mul(v_load(v, count), v_set(k->beta2)));
    const vec denominator = v_add(v_div(v_sqrt(v1), v_set(k->bias2_sqrt)), v_set(k->eps));
    const vec change = v_div(v_mul(v_set(k->step), m1), denominator);
    const vec decayed = v_mul(v_load(p, count), v_set(k->decay));
    v_store(m, v_one_nan(m1), count);
    v_store(v, v_one_nan(v1), count);
    v_store(p, v_one_nan(v_add(decayed, change)), count);
}

void SHEAF__FAST(adamw8)(float *p, const sheaf__moments8 *to, const float *g, int64_t n,
                         const sheaf__adamw *how)
{
    const sheaf__adamw_constants k = sheaf__adamw_prepare(how);
    float m[BLOCK], v[BLOCK];
    for (int64_t at = 0, b = 0; at < n; at += BLOCK, b++) {
        const int64_t many = n - at < BLOCK ? n - at : BLOCK;
        SHEAF__FAST(values8)(m, to->m + at, many, to->m_absmax[b], to->map[0].value);
        SHEAF__FAST(values8)(v, to->v + at, many, to->v_absmax[b], to->map[1].value);
        V_EACH(i, many, step(p + at + i, m + i, v + i, g + at + i, count, &k));
        to->m_absmax[b] = SHEAF__FAST(codes8)(to->m + at, m, many, to->map[0].code);
        to->v_absmax[b] = SHEAF__FAST(codes8)(to->v + at, v, many, to->map[1].code);
    }
}
