/* launch_products_fma.c - which kernel runs a product by plain fma (kernels/products_fma.c,
 * products_thin.c). */
#include "ops/devices/gpu/launch_products.h"
#include "ops/matmul/matmul_private.h"

/* Two buffers of operands, and the sums that wait there for the next block (of tiles for the next
 * chunk, too). */
#define SHARED(tm, tn, sums) (sizeof(float) * (2 * 16 * ((tm) + (tn) + 8) + (sums) * (tm) * (tn)))

enum { PLAIN, PAIRS, TILES };

/* By order: many results to a block, fewer, and few rows or columns. */
static const sheaf__products_kernel kernels[][3] = {
    [PLAIN] = { { "products_plain", 128, 128, 256, SHARED(128, 128, 1), 1, 0 },
                { "products_plain_small", 64, 64, 256, SHARED(64, 64, 1), 3, 0 },
                { "products_plain_thin", 8, 32, 512, 16 << 10, 1, 0 } },
    [PAIRS] = { { "products_pairs", 128, 128, 256, SHARED(128, 128, 1), 1, 0 },
                { "products_pairs_small", 64, 64, 256, SHARED(64, 64, 1), 3, 0 },
                { "products_pairs_thin", 8, 32, 512, 16 << 10, 1, 0 } },
    [TILES] = { { "products_tiles", 128, 64, 256, SHARED(128, 64, 2), 1, 0 },
                { "products_tiles_small", 64, 64, 256, SHARED(64, 64, 2), 2, 0 },
                { "products_tiles_thin", 8, 32, 512, 16 << 10, 1, 0 } },
};
_Static_assert(SHARED(128, 128, 1) <= SHEAF__GPU_SHARED, "what a block has");

static int64_t tiles(const sheaf__product *job, const sheaf__products_kernel *kernel)
{
    return mm_div_up(job->m, kernel->rows) * mm_div_up(job->n, kernel->cols);
}

const sheaf__products_kernel *sheaf__products_by_fma(const sheaf__products_call *call,
                                                     const sheaf__product *job)
{
    const int order = job->dtype != SHEAF_BF16                                ? PLAIN
                      : sheaf__sums_of_values(call->sums) == SHEAF_SUMS_TILES ? TILES
                                                                              : PAIRS;
    const sheaf__products_kernel *of = kernels[order];
    if (job->m <= 16 || job->n <= 32 || tiles(job, &of[1]) * 4 < call->processors)
        return &of[2];
    return tiles(job, &of[0]) < call->processors ? &of[1] : &of[0];
}
