/* launch_products_mma.c - which kernel of products_mma.c a product of tensor cores takes. */
#include "ops/devices/gpu/launch_products.h"

enum { LARGE, LARGE_WAITS, MIDDLE, SMALL, SHAPES };

/* A slot of shared memory has a step of both operands; behind them is what a block knows. */
#define SHARED(rows, cols, depth, stages) ((size_t)((rows) + (cols)) * (depth)*2 * (stages) + 64)

#define KERNELS_OF(type)                                                                           \
    {                                                                                              \
        { "products_mma_128_" type, 128, 128, 128, SHARED(128, 128, 32, 3), 2, 0 },                \
            { "products_mma_128_waits_" type, 128, 128, 256, SHARED(128, 128, 32, 4), 1, 1 },      \
            { "products_mma_64_" type, 64, 64, 128, SHARED(64, 64, 64, 3), 2, 1 },                 \
            { "products_mma_32_" type, 32, 32, 128, SHARED(32, 32, 128, 4), 2, 1 },                \
    }

static const sheaf__products_kernel kernels[2][SHAPES] = { KERNELS_OF("bf16"), KERNELS_OF("f16") };

/* The largest tiles that fill the machine. */
const sheaf__products_kernel *sheaf__products_by_mma(const sheaf__products_call *call,
                                                     const sheaf__product *job, bool waits)
{
    const sheaf__products_kernel *of = kernels[job->dtype == SHEAF_F16];
    const int64_t least = job->m < job->n ? job->m : job->n;
    if (least > 64 && sheaf__products_tiles(call, &of[LARGE]) >= call->processors)
        return &of[waits ? LARGE_WAITS : LARGE];
    if (least > 32 && sheaf__products_tiles(call, &of[MIDDLE]) >= call->processors)
        return &of[MIDDLE];
    return &of[SMALL];
}

/* ---- of a few rows, with weights of 4 bits ---- */

/* Two buffers, tables (kernels/products_codes.c). */
#define CODES_SHARED (2 * 16384 + 16 * SHEAF__CODES * sizeof(float))

static const sheaf__products_kernel by_codes[2] = {
    { "products_codes_bf16", 8, 16, 160, CODES_SHARED, 4, 0, 0 },
    { "products_codes_f16", 8, 16, 160, CODES_SHARED, 4, 0, 0 },
};

const sheaf__products_kernel *sheaf__products_by_codes(const sheaf__product *job)
{
    for (int t = 0; t < job->nterms; t++)
        if (job->term[t].w != NULL && job->term[t].w->quantised)
            return &by_codes[job->dtype == SHEAF_F16];
    return NULL;
}
