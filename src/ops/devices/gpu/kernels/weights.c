/* weights.c - kernels on weights, which lie row by row (ops/matmul/matmul.h). */
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/devices/gpu/kernels/weights.h"
#include "ops/matmul/matmul_round.h"

/* A thread rounds eight elements. */
KERNELS(weight_refresh, sheaf__weight_rows, 256)
{
    const int64_t i = own_index() * MOST;
    union {
        float word[MOST];
        uint16_t half[MOST];
        quad whole[2];
    } to;
    float x[MOST];
    load_some(x, a->from, i, a->n, SHEAF_F32, 4);
    load_some(x + 4, a->from, i + 4, a->n, SHEAF_F32, 4);
    UNROLL
    for (int e = 0; e < MOST; e++)
        mm_put(&to, e, x[e], dtype);
    if (in_quads(a->to, i, a->n, dtype, MOST)) {
        store_quad(element_at(a->to, i, dtype), to.whole[0]);
        if (dtype == SHEAF_F32)
            store_quad((char *)element_at(a->to, i, dtype) + 16, to.whole[1]);
        return;
    }
    UNROLL
    for (int e = 0; e < MOST; e++)
        if (i + e < a->n)
            mm_put(a->to, i + e, x[e], dtype);
}
