/* trained.c - AdamW on float32 masters (ops/adamw/adamw.h). */
#include "ops/devices/cuda/kernels/trained.h"
#include "ops/devices/cuda/kernels/vectors.h"

KERNEL(adamw, adamw_arguments, 256)
{
    const int64_t i = own_index() * 4, n = a->n;
    if (i >= n)
        return;
    float p[4], m[4], v[4], g[4];
    load_some(p, a->master, i, n, SHEAF_F32, 4);
    load_some(m, a->moment1, i, n, SHEAF_F32, 4);
    load_some(v, a->moment2, i, n, SHEAF_F32, 4);
    load_some(g, a->grad, i, n, SHEAF_F32, 4);
    UNROLL
    for (int e = 0; e < 4; e++)
        sheaf__adamw_one(&p[e], &m[e], &v[e], g[e], &a->how);
    store_some(a->master, i, n, p, SHEAF_F32, 4);
    store_some(a->moment1, i, n, m, SHEAF_F32, 4);
    store_some(a->moment2, i, n, v, SHEAF_F32, 4);
}
