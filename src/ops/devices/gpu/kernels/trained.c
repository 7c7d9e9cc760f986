/* trained.c - AdamW on float32 masters (ops/adamw/adamw.h). */
#include "ops/devices/gpu/kernels/trained.h"
#include "ops/devices/gpu/kernels/lanes.h"

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

/* Of a block of elements: the largest size, of which each thread has one; most [ADAMW8_WARPS]. */
DEVICE float adamw8_largest(int32_t *most, float x)
{
    const int32_t size = most_of_block((int32_t)(sheaf__bits(x) & 0x7fffffff), most);
    return sheaf__one_nan(sheaf__float((uint32_t)size));
}

DEVICE uint8_t adamw8_code(const float *map, float x, float absmax)
{
    return absmax == 0 ? 0 : sheaf__map8_at(map, sheaf__map8_place(x * (1.0f / absmax)));
}

/* Moments in 8 bits (ops/adamw/adamw8_ref.c): a block of threads for each block of elements. */
KERNEL(adamw8, adamw8_arguments, SHEAF__ADAMW8_BLOCK)
{
    float *map1 = (float *)shared_memory, *map2 = map1 + 256;
    int32_t *most = (int32_t *)(map2 + 256);
    const int32_t own = (int32_t)threadIdx.x;
    const int64_t block = blockIdx.x, i = block * SHEAF__ADAMW8_BLOCK + own;
    float m = 0, v = 0;
    map1[own] = a->map[0][own];
    map2[own] = a->map[1][own];
    sync_threads();
    if (i < a->n) {
        m = sheaf__one_nan(map1[a->moment1[i]] * a->absmax1[block]);
        v = sheaf__one_nan(map2[a->moment2[i]] * a->absmax2[block]);
        sheaf__adamw8_one(&a->master[i], &m, &v, a->grad[i], &a->how);
    }
    const float largest1 = adamw8_largest(most, m),
                largest2 = adamw8_largest(most + ADAMW8_WARPS, v);
    if (own == 0) {
        a->absmax1[block] = largest1;
        a->absmax2[block] = largest2;
    }
    if (i < a->n) {
        a->moment1[i] = adamw8_code(map1, m, largest1);
        a->moment2[i] = adamw8_code(map2, v, largest2);
    }
}
