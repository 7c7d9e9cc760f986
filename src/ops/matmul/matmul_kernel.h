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

/* Where a tile's sums go: v = block sum; v = addend + v for each addend in order. */
typedef struct store {
    int addends;
    struct {
        const float *at;
        int64_t ld;
    } addend[MM_DEPTH + 1];
    void *to;
    int64_t ldto;
    bool final;  /* a NaN becomes the default one; partial sums need not care */
    bool halves; /* rounded to bfloat16 */
} store;

typedef void tile_fn(const uint32_t *a, const uint32_t *b, int64_t steps, const store *s);

static inline __attribute__((always_inline)) void
tile(const uint32_t *a, const uint32_t *b, int64_t steps, const store *s, const int rows,
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
    if (s->final)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < width; v++)
                c[r][v] = QUIET(c[r][v]);
    if (s->halves) {
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < width; v++)
                STORE_HALVES((uint16_t *)s->to + r * s->ldto + v * LANES, TO_BF16(c[r][v]));
        return;
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < width; v++)
            STORE((float *)s->to + r * s->ldto + v * LANES, c[r][v]);
}

#define TILE(rows)                                                                              \
    static void tile_##rows##_1(const uint32_t *a, const uint32_t *b, int64_t steps,            \
                                const store *s)                                              \
    {                                                                                           \
        tile(a, b, steps, s, rows, 1);                                                          \
    }                                                                                           \
    static void tile_##rows##_2(const uint32_t *a, const uint32_t *b, int64_t steps,            \
                                const store *s)                                              \
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

/* ---- all tiles of a band ---- */

/* The tile at column j, `width` vectors wide, `at` words into the partial sums. */
static inline void run_tile(const mm_band *band, const uint32_t *b, int64_t j, int64_t at, int width)
{
    const mm_finish *f = band->finish;
    const int64_t cols = mm_min(width * LANES, band->cols - j);
    float sum[ROWS * MM_PANEL];
    store s = { .addends = band->addends, .to = band->to + at, .ldto = MM_PANEL };
    for (int q = 0; q < s.addends; q++) {
        s.addend[q].at = band->addend[q] + at;
        s.addend[q].ld = MM_PANEL;
    }
    const bool direct = f && cols == width * LANES && mm_finish_is_plain(f);
    if (direct) {
        const int64_t y = band->row0 * f->ldy + band->col0 + j;
        s.final = true;
        s.halves = f->out == SHEAF_BF16;
        s.to = (char *)f->y + y * (s.halves ? 2 : 4);
        s.ldto = f->ldy;
        if (f->add) {
            s.addend[s.addends].at = s.to;
            s.addend[s.addends++].ld = s.ldto;
        }
    } else if (f) {
        s.to = sum;
    }
    tiles[band->rows - 1][width - 1](band->a, b, band->steps, &s);
    if (f && !direct)
        finish_tile(f, sum, band->row0, band->col0 + j, band->rows, cols);
}

void NAME(mm_run)(const mm_band *band)
{
    mm_soon soon = band->soon;
    const int64_t tiles_across = mm_div_up(band->cols, 2 * LANES);
    const int64_t lines = mm_div_up(soon.rows * (soon.bytes / 64 + 1), tiles_across);
    for (int64_t j = 0; j < band->cols; j += 2 * LANES) {
        const int64_t panel = j / MM_PANEL, in = j % MM_PANEL;
        mm_ask(&soon, lines);
        run_tile(band, band->b + panel * band->steps * MM_PANEL + in, j,
                 panel * band->rows * MM_PANEL + in, band->cols - j > LANES ? 2 : 1);
    }
}
