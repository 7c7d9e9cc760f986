/* matmul_tile.c - serial products for the attention op, on the kernels of sheaf__products.
 *
 * Panels are those of a packed weight, for every instruction set alike. Rows of
 * A are copied to the stack in bands, so a product of few rows costs little. */
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/matmul_transpose.h"

#define ROWS 56 /* of A copied at a time where B has to be spread; a multiple of no more than needed */

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
    uint32_t *panel = panels; /* in the order of memory: block by block, panel by panel */
    for (int64_t k0 = 0; k0 < k; k0 += MM_BLOCK)
        for (int64_t j = 0; j < n; j += MM_PANEL) {
            const int64_t cols = mm_min(MM_PANEL, n - j), end = mm_min(k, k0 + MM_BLOCK);
            for (int64_t i = k0; i < end; panel += MM_PANEL) {
                if (dtype == SHEAF_BF16) {
                    const uint16_t *low = (const uint16_t *)b + i * ldb + j;
                    mm_interleave(panel, low, i + 1 < end ? low + ldb : NULL, cols);
                    i += 2;
                } else {
                    memcpy(panel, (const float *)b + i * ldb + j, (size_t)cols * sizeof(float));
                    i++;
                }
                memset(panel + cols, 0, (size_t)(MM_PANEL - cols) * sizeof *panel);
            }
        }
}

/* One block of k of up to ROWS rows, already in `rows`; `b` at the block's first panel. */
static void tile_rows(const mm_engine *e, const uint32_t *rows, const uint32_t *b, int64_t steps,
                      int64_t i0, int64_t count, int64_t n, const mm_finish *finish)
{
    uint32_t room[MM_BLOCK * MM_PANEL];
    const int64_t cols = e->spread ? MM_PANEL : n, bands = mm_div_up(count, e->rows);
    for (int64_t j = 0; j < n; j += cols) {
        mm_band band = { .b = b + j * steps, .cols = mm_min(cols, n - j), .col0 = j, .steps = steps,
                         .finish = finish };
        if (e->spread) {
            sheaf__mm_spread(room, b + j * steps, steps);
            band.b = room;
            band.steps = 2 * steps;
        }
        for (int64_t g = 0; g < bands; g++) {
            const int64_t i = count * g / bands;
            band.a = rows + i * e->stride;
            band.rows = count * (g + 1) / bands - i;
            band.row0 = i0 + i;
            e->run(&band);
        }
    }
}

static void tile_run(const mm_engine *e, float *c, int64_t ldc, const void *a, int64_t lda,
                     const void *panels, int64_t m, int64_t n, int64_t k, bool add,
                     sheaf_dtype dtype)
{
    uint32_t rows[ROWS * MM_STRIDE_F32];
    const sheaf__term term = { .a = a, .lda = lda };
    mm_finish finish = { .y = c, .ldy = ldc, .out = SHEAF_F32, .alpha = 1, .add = add };
    if (k == 0 && add)
        return; /* no block: c stays, even where it is -0 */
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += MM_BLOCK, finish.add = true) {
        const int64_t kb = mm_min(MM_BLOCK, k - k0);
        for (int64_t i = 0; i < m; i += ROWS) {
            const int64_t end = mm_min(m, i + ROWS);
            sheaf__mm_rows(rows, e, &term, dtype, i, end, k0, kb);
            tile_rows(e, rows, (const uint32_t *)panels + mm_panel_at(dtype, n, k, 0, k0),
                      mm_steps(dtype, kb), i, end - i, n, &finish);
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
