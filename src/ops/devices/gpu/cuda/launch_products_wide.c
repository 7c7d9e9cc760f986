/* launch_products_wide.c - which products take a kernel of kernels/products_wide.c, and the maps of
 * their operands. */
#include "ops/devices/gpu/cuda/tensor_map.h"
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/products.h"
#include "ops/devices/gpu/launch_products.h"

/* Of a block: stages of 64 of k, 16-bit numbers; a room for each of 8 warps; mbarriers. */
#define SHARED(cols, stages, room) ((size_t)(128 + (cols)) * 128 * (stages) + 32 * (room) + 128)

enum { CHAINS, TREES };

/* Elements of k for each sum that waits. */
#define SELDOM 2048

#define KERNELS_OF(type)                                                                           \
    {                                                                                              \
        { "products_wide_256_" type, 256, 256, 384, SHARED(256, 4, 16 * 68), 1, 0, 2 },            \
            { "products_wide_128_" type, 256, 128, 384, SHARED(128, 5, 2048), 1, 2, 2 },           \
    }

static const sheaf__products_kernel kernels[2][2] = { KERNELS_OF("bf16"), KERNELS_OF("f16") };

const sheaf__products_kernel *sheaf__products_wide_kernel(int which, sheaf_dtype dtype)
{
    return &kernels[dtype == SHEAF_F16][which];
}

/* Sums that seldom wait may do so in memory. */
static int best_for(const sheaf__products_part *part, int parts)
{
    int64_t k = 0, waits = 0;
    for (int p = 0; p < parts; p++) {
        k += part[p].k;
        waits += part[p].ends && part[p].out < 0;
    }
    return k >= waits * SELDOM ? CHAINS : TREES;
}

static bool are_even(const sheaf__product *job, const sheaf__products_part *part, int parts)
{
    for (int p = 0; p < parts; p++)
        if (part[p].k > 0 &&
            (!part[p].a_even || !part[p].b_even || part[p].b_type != (uint8_t)job->dtype))
            return false;
    return true;
}

/* That with the smaller tile also where the other one's are too few. */
const sheaf__products_kernel *sheaf__products_by_wide(const sheaf__products_call *call,
                                                      const sheaf__product *job,
                                                      const sheaf__products_part *part, int parts)
{
    if (!call->wide || !are_even(job, part, parts))
        return NULL;
    for (int i = best_for(part, parts); i <= TREES; i++) {
        const sheaf__products_kernel *kernel = sheaf__products_wide_kernel(i, job->dtype);
        if (!sheaf__products_thin(job, kernel) &&
            sheaf__products_tiles(call, kernel) * 8 >= (int64_t)call->processors * 3)
            return kernel;
    }
    return NULL;
}

bool sheaf__cuda_has_maps(const sheaf__gpu *gpu)
{
    return gpu->major == 9 && gpu->minor == 0 && gpu->driver->tensor_map != NULL &&
           !gpu->wide_differs;
}

/* Of [rows, k], or [k, rows] if `across`: boxes of 64 k and `box` rows, or of 64 rows and 64 k. */
static bool make_map(sheaf__gpu *gpu, sheaf__tensor_map *map, const void *at, int64_t ld,
                     int64_t rows, int64_t k, bool across, int box)
{
    const uint64_t size[2] = { (uint64_t)(across ? rows : k), (uint64_t)(across ? k : rows) },
                   stride[1] = { (uint64_t)ld * 2 };
    const uint32_t boxes[2] = { 64, across ? 64 : (uint32_t)box }, each[2] = { 1, 1 };
    return gpu->driver->tensor_map(map, SHEAF__GPU_MAP_BF16, 2, (uintptr_t)at, size, stride, boxes,
                                   each, 0, SHEAF__GPU_MAP_SWIZZLE_128, SHEAF__GPU_MAP_FETCH_256,
                                   0) == 0;
}

bool sheaf__products_maps(sheaf__gpu *gpu, sheaf__tensor_map *map, const sheaf__product *job,
                          const sheaf__products_kernel *kernel, const sheaf__products_part *part,
                          int parts)
{
    for (int i = 0; i < parts; i++, map += 2) {
        const sheaf__products_part *p = &part[i];
        if (p->k > 0 &&
            (!make_map(gpu, map, p->a, p->lda, job->m, p->k, p->a_km, kernel->rows / 2) ||
             !make_map(gpu, map + 1, p->b, p->ldb, job->n, p->k, p->b_kn, kernel->cols / 2)))
            return false;
    }
    return true;
}
