/* matmul_tile.c - serial products for the attention op, on the kernels of sheaf__products.
 *
 * Panels are those of a packed weight, for every instruction set alike. Rows of
 * A are copied to the stack in bands, so a product of few rows costs little. */
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/matmul_transpose.h"

#define BAND 56 /* rows copied at a time; a multiple of the tile's rows where it matters */

size_t sheaf__tile_bytes(sheaf_dtype dtype, int64_t n, int64_t k)
{
    return sheaf__packed_bytes(dtype, n, k);
}

void sheaf__tile_pack_nk(void *panels, const void *b, int64_t ldb, int64_t n, int64_t k,
                         sheaf_dtype dtype)
{
    sheaf__packed w = { .dtype = dtype, .n = n, .k = k, .ahead = panels };
    sheaf__pack(&w, b, dtype, ldb, 0, n);
}

void sheaf__tile_pack_kn(void *panels, const void *b, int64_t ldb, int64_t n, int64_t k,
                         sheaf_dtype dtype)
{
    const int64_t steps = mm_steps(dtype, k);
    for (int64_t j = 0; j < n; j += MM_PANEL) {
        uint32_t *panel = (uint32_t *)panels + j * steps;
        const int64_t cols = mm_min(MM_PANEL, n - j);
        for (int64_t s = 0; s < steps; s++, panel += MM_PANEL) {
            if (dtype == SHEAF_BF16) {
                const uint16_t *low = (const uint16_t *)b + 2 * s * ldb + j;
                mm_interleave(panel, low, 2 * s + 1 < k ? low + ldb : NULL, cols);
            } else {
                memcpy(panel, (const float *)b + s * ldb + j, (size_t)cols * sizeof(float));
            }
            memset(panel + cols, 0, (size_t)(MM_PANEL - cols) * sizeof *panel);
        }
    }
}

/* One block of k of one band of rows. */
static void tile_band(const mm_engine *e, const mm_block *band, const uint32_t *panels,
                      int64_t panel, int64_t k0, int64_t steps, sheaf_dtype dtype)
{
    mm_block block = *band;
    if (!e->spread) {
        block.b = panels + mm_steps(dtype, k0) * MM_PANEL;
        block.panel = panel;
        block.steps = steps;
        e->run(&block);
        return;
    }
    uint32_t room[MM_BLOCK * MM_PANEL];
    block.b = room;
    block.steps = 2 * steps;
    for (int64_t j = 0; j < band->cols; j += MM_PANEL) {
        sheaf__mm_spread_panel(room, panels + j / MM_PANEL * panel + mm_steps(dtype, k0) * MM_PANEL,
                               steps);
        block.col0 = j;
        block.cols = mm_min(MM_PANEL, band->cols - j);
        e->run(&block);
    }
}

static void tile_run(const mm_engine *e, float *c, int64_t ldc, const void *a, int64_t lda,
                     const void *panels, int64_t m, int64_t n, int64_t k, bool add,
                     sheaf_dtype dtype)
{
    uint32_t rows[BAND * MM_STRIDE_F32];
    const sheaf__term term = { .a = a, .lda = lda };
    mm_finish finish = { .y = c, .ldy = ldc, .out = SHEAF_F32, .alpha = 1, .add = add };
    if (k == 0 && add)
        return; /* no block: c stays, even where it is -0 */
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += MM_BLOCK, finish.add = true) {
        const int64_t kb = mm_min(MM_BLOCK, k - k0);
        for (int64_t i = 0; i < m; i += BAND) {
            const int64_t end = mm_min(m, i + BAND);
            mm_block band = { .a = rows, .rows = end - i, .cols = n, .finish = &finish, .row0 = i };
            sheaf__mm_rows(rows, e->stride, &term, dtype, i, end, k0, kb, e->spread);
            tile_band(e, &band, panels, mm_steps(dtype, k) * MM_PANEL, k0, mm_steps(dtype, kb),
                      dtype);
        }
    }
}

#define TILE_FN(name, engines)                                                                 \
    static void name(float *c, int64_t ldc, const void *a, int64_t lda, const void *panels,    \
                     int64_t m, int64_t n, int64_t k, bool add, sheaf_dtype dtype)             \
    {                                                                                          \
        tile_run(mm_engine_of(&(engines), dtype), c, ldc, a, lda, panels, m, n, k, add, dtype); \
    }
TILE_FN(tile_avx2, sheaf__mm_avx2)
TILE_FN(tile_avx512, sheaf__mm_avx512)
TILE_FN(tile_avx512bf16, sheaf__mm_avx512bf16)

sheaf__tile_fn *sheaf__mm_tile_with(const mm_isa *isa)
{
    if (isa == &sheaf__mm_avx2)
        return tile_avx2;
    if (isa == &sheaf__mm_avx512)
        return tile_avx512;
    return isa == &sheaf__mm_avx512bf16 ? tile_avx512bf16 : sheaf__tile_ref;
}

sheaf__tile_fn *sheaf__tile_for(const sheaf__kernels *kernels)
{
    return sheaf__mm_tile_with(sheaf__mm_isa_for(kernels->isa));
}
