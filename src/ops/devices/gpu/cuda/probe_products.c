/* probe_products.c - are products by wgmma right, with the tensor maps of this driver and operands
 * that lie as [m, k] and as [k, m]? Asked as a GPU of sm_90a is opened; where they are not, it does
 * without them (products_mma.c has the same results). */
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/products.h"
#include "ops/devices/gpu/launch_products.h"
#include "ops/devices/gpu/cuda/tensor_map.h"
#include "ops/math/round.h"
#include "ops/matmul/mma.h"

/* A tile of the kernel, and a step of k. */
enum { M = 256, N = 128, K = 64, WAYS = 2 };

/* What lies in the GPU's first memory. */
typedef struct asked {
    sheaf__tensor_map map[WAYS * 2];
    sheaf__products_job job[WAYS];
    sheaf__products_part part[WAYS];
    _Alignas(16) uint16_t a[M * K], b[N * K];
    float y[WAYS][M * N];
} asked;

static void fill(uint16_t *x, int n, uint32_t state)
{
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)((state >> 16 & 0x81ff) | 0x3e00); /* 2^-3 to 2^0 */
    }
}

/* The same numbers, read in each way. */
static bool ask_for(sheaf__gpu *gpu, asked *all, const asked *there,
                    const sheaf__products_kernel *kernel)
{
    for (int way = 0; way < WAYS; way++) {
        all->part[way] = (sheaf__products_part){ .a = there->a,
                                                 .b = there->b,
                                                 .lda = way == 0 ? K : M,
                                                 .ldb = way == 0 ? K : N,
                                                 .k = K,
                                                 .ends = 1,
                                                 .a_km = way == 1,
                                                 .b_kn = way == 1,
                                                 .b_type = SHEAF_BF16 };
        all->job[way] = (sheaf__products_job){ .m = M,
                                               .n = N,
                                               .first = way,
                                               .parts = 1,
                                               .tile0 = way,
                                               .rows = 1,
                                               .cols = 1,
                                               .dtype = SHEAF_BF16,
                                               .out = SHEAF_F32,
                                               .round_to = SHEAF_F32,
                                               .alpha = 1,
                                               .y = (void *)there->y[way],
                                               .ldy = N };
        if (!sheaf__products_maps(gpu, &all->map[way * 2], &(sheaf__product){ .m = M, .n = N },
                                  kernel, &all->part[way], 1))
            return false;
    }
    fill(all->a, M * K, 1);
    fill(all->b, N * K, 2);
    return true;
}

static uint32_t result(const asked *all, int way, int row, int col)
{
    uint16_t a[K], b[K];
    for (int k = 0; k < K; k++) {
        a[k] = all->a[way == 0 ? row * K + k : k * M + row];
        b[k] = all->b[way == 0 ? col * K + k : k * N + col];
    }
    return sheaf__mma_chain(SHEAF_SUMS_MMA16, SHEAF_BF16, 0, a, b, K);
}

/* Of every row and column some. */
static bool is_right(const asked *all)
{
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < M * N; i += 13)
            if (sheaf__bits(all->y[way][i]) != result(all, way, i / N, i % N))
                return false;
    return true;
}

static sheaf_status *ask(sheaf__gpu *gpu, asked *all)
{
    const asked *there = (const asked *)(uintptr_t)gpu->base;
    const sheaf__products_kernel *kernel = sheaf__products_wide_least();
    gpu->wide_differs = !ask_for(gpu, all, there, kernel);
    if (gpu->wide_differs)
        return NULL;
    const sheaf__products_table table = {
        .job = there->job, .part = there->part, .map = there->map, .jobs = WAYS, .tiles = WAYS
    };
    sheaf_status *st = sheaf__gpu_send(gpu, gpu->base, all, sizeof *all);
    TRY(st, sheaf__gpu_queue(gpu, &(sheaf__launch){ .kernel = kernel->name,
                                                    .blocks = { kernel->cluster },
                                                    .threads = kernel->threads,
                                                    .shared = kernel->shared,
                                                    .arguments = &table,
                                                    .bytes = sizeof table }));
    TRY(st, sheaf__gpu_fetch(gpu, all->y, (uintptr_t)there->y, sizeof all->y));
    gpu->wide_differs = st == NULL && !is_right(all);
    return st;
}

sheaf_status *sheaf__gpu_probe_products(sheaf__gpu *gpu)
{
    if (!sheaf__cuda_has_maps(gpu))
        return NULL;
    asked *all = aligned_alloc(_Alignof(asked), sizeof *all);
    if (all == NULL)
        return sheaf__no_memory("questions to a GPU");
    memset(all, 0, sizeof *all);
    sheaf_status *st = ask(gpu, all);
    free(all);
    return st;
}
