/* probe_products.c - are products by wgmma right, in the order of the rule, with the tensor maps of
 * this driver and operands that lie as [m, k] and as [k, m]? Asked as a GPU of sm_90a is opened;
 * where they are not, it does without them (products_mma.c has the same results). */
#include "ops/devices/gpu/cuda/tensor_map.h"
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/products.h"
#include "ops/devices/gpu/launch_products.h"
#include "ops/math/round.h"
#include "ops/matmul/mma.h"

/* Two tiles of a kernel, one after the other in the same blocks; so many steps that the ring of
 * stages goes round. */
enum { M = 256, N = 256, K = 64 * 6, WAYS = 2 };

/* The content of the GPU's first memory. */
typedef struct exam {
    sheaf__tensor_map map[WAYS * 2];
    sheaf__products_job job[WAYS];
    sheaf__products_part part[WAYS];
    _Alignas(16) uint16_t a[M * K], b[N * K];
    float y[WAYS][M * N];
} exam;

/* From 2^-3 to 2^0, and now and then any number, also infinities and NaN: rarely enough that most
 * sums are finite. */
static void fill(uint16_t *x, int n, uint32_t state, bool f16)
{
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const uint16_t any = (uint16_t)(state >> 16),
                       usual = f16 ? (any & 0x8fff) | 0x3000 : (any & 0x81ff) | 0x3e00;
        x[i] = (state >> 4 & 0x7ff) == 0 ? any : usual;
    }
}

/* The same numbers, read in each way. */
static bool ask_for(sheaf__gpu *gpu, exam *all, const exam *there,
                    const sheaf__products_kernel *kernel, sheaf_dtype dtype)
{
    const int n = kernel->cols;
    for (int way = 0; way < WAYS; way++) {
        all->part[way] = (sheaf__products_part){ .a = there->a,
                                                 .b = there->b,
                                                 .lda = way == 0 ? K : M,
                                                 .ldb = way == 0 ? K : n,
                                                 .k = K,
                                                 .ends = 1,
                                                 .a_km = way == 1,
                                                 .b_kn = way == 1,
                                                 .b_type = (uint8_t)dtype };
        all->job[way] = (sheaf__products_job){ .m = M,
                                               .n = n,
                                               .first = way,
                                               .parts = 1,
                                               .tile0 = way,
                                               .rows = 1,
                                               .cols = 1,
                                               .dtype = (uint8_t)dtype,
                                               .out = SHEAF_F32,
                                               .round_to = SHEAF_F32,
                                               .alpha = 1,
                                               .y = (void *)there->y[way],
                                               .ldy = n };
        if (!sheaf__products_maps(gpu, &all->map[way * 2], &(sheaf__product){ .m = M, .n = n },
                                  kernel, &all->part[way], 1))
            return false;
    }
    fill(all->a, M * K, 1, dtype == SHEAF_F16);
    fill(all->b, n * K, 2, dtype == SHEAF_F16);
    return true;
}

/* A chain's sum, in which a denormal is a zero. */
static uint32_t result(const exam *all, int way, int row, int col, int n, sheaf_dtype dtype)
{
    uint16_t a[K], b[K];
    for (int k = 0; k < K; k++) {
        a[k] = all->a[way == 0 ? row * K + k : k * M + row];
        b[k] = all->b[way == 0 ? col * K + k : k * n + col];
    }
    const uint32_t sum = sheaf__mma_chain(SHEAF_SUMS_MMA16, dtype, 0, a, b, K);
    return (sum & 0x7f800000) == 0 ? sum & 0x80000000u : sum;
}

/* Of every row and column some; by any NaN all are meant. */
static bool is_right(const exam *all, int n, sheaf_dtype dtype)
{
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < M * n; i += 67) {
            const uint32_t want = result(all, way, i / n, i % n, n, dtype),
                           is = sheaf__bits(all->y[way][i]);
            const bool nan = (want & 0x7fffffff) > 0x7f800000 && (is & 0x7fffffff) > 0x7f800000;
            if (is != want && !nan)
                return false;
        }
    return true;
}

static sheaf_status *ask(sheaf__gpu *gpu, exam *all, const sheaf__products_kernel *kernel,
                         sheaf_dtype dtype)
{
    const exam *there = (const exam *)(uintptr_t)gpu->base;
    gpu->wide_differs = !ask_for(gpu, all, there, kernel, dtype);
    if (gpu->wide_differs)
        return NULL;
    const sheaf__products_table table = {
        .job = there->job, .part = there->part, .map = there->map, .jobs = WAYS, .tiles = WAYS
    };
    sheaf_status *st = sheaf__gpu_send(gpu, gpu->base, all, offsetof(exam, y));
    TRY(st, sheaf__gpu_queue(gpu, SHEAF__LAUNCHED(kernel->name, kernel->cluster, 1, kernel->threads,
                                                  kernel->shared, &table)));
    TRY(st, sheaf__gpu_await(gpu, gpu->stream,
                             "SHEAF_WGMMA=off: the products of other GPUs, with the same bytes"));
    TRY(st, sheaf__gpu_fetch(gpu, all->y, (uintptr_t)there->y, sizeof all->y));
    gpu->wide_differs = st == NULL && !is_right(all, kernel->cols, dtype);
    return st;
}

sheaf_status *sheaf__gpu_probe_products(sheaf__gpu *gpu)
{
    if (!sheaf__cuda_has_maps(gpu))
        return NULL;
    exam *all = aligned_alloc(_Alignof(exam), sizeof *all);
    if (all == NULL)
        return sheaf__no_memory("questions to a GPU");
    memset(all, 0, sizeof *all);
    sheaf_status *st = NULL;
    for (int which = 0; which < 2 && st == NULL && !gpu->wide_differs; which++) {
        const sheaf_dtype dtype = which == 0 ? SHEAF_BF16 : SHEAF_F16;
        st = ask(gpu, all, sheaf__products_wide_kernel(which, dtype), dtype);
    }
    free(all);
    return st;
}
