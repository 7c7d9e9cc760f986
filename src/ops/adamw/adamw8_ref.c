/* adamw8_ref.c - one step of AdamW whose moments are held in 8 bits, block by block: they become
 * float32, make the step, and are quantised again. The step takes them before that.
 *
 * Source: bitsandbytes 0.50, AdamW8bit on a processor (its bytes: parity/adamw8). */
#include "ops/columns.h"

#include "ops/adamw/adamw.h"
#include "ops/quant/quantise.h"

enum { BLOCK = SHEAF__ADAMW8_BLOCK };

void sheaf__adamw8_ref(float *p, const sheaf__moments8 *to, const float *g, int64_t n,
                       const sheaf__adamw *how)
{
    const sheaf__adamw_constants k = sheaf__adamw_prepare(how);
    float m[BLOCK], v[BLOCK];
    for (int64_t at = 0, b = 0; at < n; at += BLOCK, b++) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        sheaf__values8_ref(m, to->m + at, count, to->m_absmax[b], to->map[0].value);
        sheaf__values8_ref(v, to->v + at, count, to->v_absmax[b], to->map[1].value);
        for (int64_t i = 0; i < count; i++)
            sheaf__adamw8_one(&p[at + i], &m[i], &v[i], g[at + i], &k);
        to->m_absmax[b] = sheaf__codes8_ref(to->m + at, m, count, to->map[0].code);
        to->v_absmax[b] = sheaf__codes8_ref(to->v + at, v, count, to->map[1].code);
    }
}
