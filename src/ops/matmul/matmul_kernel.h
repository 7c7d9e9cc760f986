/* matmul_kernel.h - register tiles and what happens to their sums; the body of
 * matmul_avx2.c, matmul_avx512.c and matmul_avx512bf16.c.
 *
 * The file that includes it defines
 *   NAME(x)         x with the instruction set's suffix
 *   LANES           floats of a vector; two vectors make a tile's width
 *   ROWS            rows of a register tile
 *   STRIDE          words between rows of A
 *   vec and LOAD STORE ZERO SPLAT ADD MUL QUIET, LOAD_HALVES STORE_HALVES TO_BF16 FROM_BF16
 *   STEP(acc, a, b) one step: acc + a * b fused, or the pair instruction
 *   WORD(p)         a word of A in all lanes */

#include "ops/matmul/matmul_private.h"

/* Loops over the registers of a tile must vanish, or the tile lives in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef void tile_fn(const uint32_t *a, const uint32_t *b, int64_t steps, const mm_store *s);

static inline __attribute__((always_inline)) void
tile(const uint32_t *a, const uint32_t *b, int64_t steps, const mm_store *s, const int rows,
     const int width)
{
    vec c[ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < width; v++)
            c[r][v] = ZERO();
    for (int64_t k = 0; k < steps; k++, b += MM_PANEL) {
        vec bk[2];
        UNROLL for (int v = 0; v < width; v++)
            bk[v] = LOAD((const float *)b + v * LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            const vec ak = WORD(a + r * STRIDE + k);
            UNROLL for (int v = 0; v < width; v++)
                c[r][v] = STEP(c[r][v], ak, bk[v]);
        }
    }
    for (int q = 0; q < s->addends; q++) {
        const float *at = s->addend[q].at;
        const int64_t ld = s->addend[q].ld;
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < width; v++)
                c[r][v] = ADD(LOAD(at + r * ld + v * LANES), c[r][v]);
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < width; v++)
            STORE(s->to + r * s->ldto + v * LANES, QUIET(c[r][v]));
}

#define TILE(rows)                                                                              \
    static void tile_##rows##_1(const uint32_t *a, const uint32_t *b, int64_t steps,            \
                                const mm_store *s)                                              \
    {                                                                                           \
        tile(a, b, steps, s, rows, 1);                                                          \
    }                                                                                           \
    static void tile_##rows##_2(const uint32_t *a, const uint32_t *b, int64_t steps,            \
                                const mm_store *s)                                              \
    {                                                                                           \
        tile(a, b, steps, s, rows, 2);                                                          \
    }
#define PAIR(rows) { tile_##rows##_1, tile_##rows##_2 }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if ROWS > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#endif

/* tiles[rows - 1][vectors wide - 1] */
static tile_fn *const tiles[ROWS][2] = {
    PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5), PAIR(6),
#if ROWS > 6
    PAIR(7), PAIR(8), PAIR(9), PAIR(10), PAIR(11), PAIR(12), PAIR(13), PAIR(14),
#endif
};

/* ---- finish: from a tile in cache to the result ---- */

/* One vector at row i, column j of the result. */
static inline vec finish_vector(const mm_finish *f, vec v, int64_t i, int64_t j)
{
    if (f->round_bf16)
        v = FROM_BF16(TO_BF16(QUIET(v)));
    v = MUL(SPLAT(f->alpha), v);
    if (f->add)
        return ADD(LOAD((const float *)f->y + i * f->ldy + j), v);
    if (f->bias)
        v = ADD(v, LOAD(f->bias + j));
    if (f->residual && f->out == SHEAF_BF16)
        v = ADD(FROM_BF16(TO_BF16(QUIET(v))),
                FROM_BF16(LOAD_HALVES((const uint16_t *)f->residual + i * f->ldr + j)));
    else if (f->residual)
        v = ADD(v, LOAD((const float *)f->residual + i * f->ldr + j));
    return v;
}

static inline float finish_one(const mm_finish *f, float v, int64_t i, int64_t j)
{
    if (f->round_bf16)
        v = mm_from_bf16(mm_to_bf16(v));
    v = f->alpha * v;
    if (f->add)
        return ((const float *)f->y)[i * f->ldy + j] + v;
    if (f->bias)
        v = v + f->bias[j];
    if (f->residual && f->out == SHEAF_BF16)
        v = mm_from_bf16(mm_to_bf16(v)) +
            mm_from_bf16(((const uint16_t *)f->residual)[i * f->ldr + j]);
    else if (f->residual)
        v = v + ((const float *)f->residual)[i * f->ldr + j];
    return v;
}

/* `sum` [rows, cols], row stride MM_PANEL, belongs at row i, column j of the result. */
static void finish_tile(const mm_finish *f, const float *sum, int64_t i, int64_t j, int64_t rows,
                        int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, i++, sum += MM_PANEL) {
        int64_t c = 0;
        for (; c + LANES <= cols; c += LANES) {
            const vec v = QUIET(finish_vector(f, LOAD(sum + c), i, j + c));
            if (f->out == SHEAF_BF16)
                STORE_HALVES((uint16_t *)f->y + i * f->ldy + j + c, TO_BF16(v));
            else
                STORE((float *)f->y + i * f->ldy + j + c, v);
        }
        for (; c < cols; c++) {
            const float v = finish_one(f, sum[c], i, j + c);
            if (f->out == SHEAF_BF16)
                ((uint16_t *)f->y)[i * f->ldy + j + c] = mm_to_bf16(v);
            else
                ((float *)f->y)[i * f->ldy + j + c] = mm_quiet(v);
        }
    }
}

/* ---- all tiles of a block ---- */

/* The tile at row i, column j of the block (`whole`: all columns of its vectors exist). */
static void run_tile(const mm_block *block, tile_fn *run, const uint32_t *b, int64_t i, int64_t j,
                     int64_t rows, int64_t cols, bool whole)
{
    const mm_finish *f = block->finish;
    mm_store s;
    float sum[ROWS * MM_PANEL];
    s.addends = block->store.addends;
    for (int q = 0; q < s.addends; q++) {
        s.addend[q].ld = block->store.addend[q].ld;
        s.addend[q].at = block->store.addend[q].at + i * s.addend[q].ld + j;
    }
    const bool direct = f && whole && mm_finish_is_plain(f);
    if (direct) {
        s.to = (float *)f->y + (block->row0 + i) * f->ldy + block->col0 + j;
        s.ldto = f->ldy;
        if (f->add) {
            s.addend[s.addends].at = s.to;
            s.addend[s.addends++].ld = s.ldto;
        }
    } else if (f) {
        s.to = sum;
        s.ldto = MM_PANEL;
    } else {
        s.to = block->store.to + i * block->store.ldto + j;
        s.ldto = block->store.ldto;
    }
    run(block->a + i * STRIDE, b, block->steps, &s);
    if (f && !direct)
        finish_tile(f, sum, block->row0 + i, block->col0 + j, rows, cols);
}

/* Columns outside, so that a panel stays in the first-level cache while the rows of A
 * stream past; rows are shared out evenly, as a last tile of one row would wait for its
 * own sums. */
void NAME(mm_run)(const mm_block *block)
{
    const int64_t bands = mm_div_up(block->rows, ROWS);
    for (int64_t j = 0; j < block->cols; j += 2 * LANES) {
        const uint32_t *b = block->b + j / MM_PANEL * block->panel + j % MM_PANEL;
        const int64_t cols = mm_min(2 * LANES, block->cols - j), width = mm_div_up(cols, LANES);
        for (int64_t band = 0; band < bands; band++) {
            const int64_t i = block->rows * band / bands;
            const int64_t rows = block->rows * (band + 1) / bands - i;
            run_tile(block, tiles[rows - 1][width - 1], b, i, j, rows, cols,
                     cols == width * LANES);
        }
    }
}
