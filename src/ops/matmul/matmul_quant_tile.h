/* matmul_quant_tile.h - tiles of few rows that take codes in groups as they lie in memory
 * (matmul_quant.h); part of matmul_kernel.h.
 *
 * What a code stands for is looked up in a table of 16 bits, pair by pair; a group's sum meets its
 * scale when it is added to those before. `unit_of_codes` and `group_sum` are the vectors'. */
#include "ops/matmul/matmul_quant.h"

#define OF_PANEL (MM_PANEL / LANES) /* vectors */

#if LANES == 16
#include "ops/matmul/matmul_quant_tile512.h"
#else
#include "ops/matmul/matmul_quant_tile256.h"
#endif

/* v = fma(scale, group's sum, v) of vectors [first, first + count). */
static inline __attribute__((always_inline)) void add_group(vec c[ROWS][MOST_VECTORS],
                                                            const vec g[ROWS][MOST_VECTORS],
                                                            const float *scales, const int first,
                                                            const int count, const int rows)
{
    UNROLL for (int v = first; v < first + count; v++)
    {
        const vec scale = LOAD(scales + v * LANES);
        UNROLL for (int r = 0; r < rows; r++) c[r][v] = FMA(scale, group_sum(g[r], v), c[r][v]);
    }
}

/* Columns [0, cols) of a group. */
static inline __attribute__((always_inline)) void
group_of_codes(vec g[ROWS][MOST_VECTORS], const char *a, const uint32_t *words, int64_t cols,
               const numbers *n, const int first, const int count, const int rows)
{
    for (; cols >= MM_UNIT; cols -= MM_UNIT, words += MM_PANEL, a += MM_UNIT / 2 * A_PAIR)
        unit_of_codes(g, a, words, MM_UNIT, n, first, count, rows);
    if (cols > 0)
        unit_of_codes(g, a, words, cols, n, first, count, rows);
}

static inline __attribute__((always_inline)) void
clear_sums(vec g[ROWS][MOST_VECTORS], const int first, const int count, const int rows)
{
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = first; v < first + count; v++)
        g[r][v] = ZERO();
}

/* All groups of vectors [first, first + count). Of one row two at once, as a sum alone would wait
 * for itself. */
static inline __attribute__((always_inline)) void
groups_of_codes(vec c[ROWS][MOST_VECTORS], const mm_taken *t, const char *a, const float *scales,
                const uint32_t *words, const numbers *n, const int first, const int count,
                const int rows)
{
    for (int64_t col = 0, end = t->first; col < t->cols; end = mm_min(t->cols, end + t->block)) {
        vec g[ROWS][MOST_VECTORS], h[ROWS][MOST_VECTORS];
        const int64_t cols = end - col;
        clear_sums(g, first, count, rows);
        if (rows * TWO_GROUPS == 1 && cols % MM_UNIT == 0 &&
            cols == mm_min(t->block, t->cols - end)) { /* the next one has as many */
            const char *then = a + cols / 2 * A_PAIR;
            clear_sums(h, first, count, rows);
            for (int64_t u = 0; u < cols / MM_UNIT; u++) {
                const int64_t at = u * (MM_UNIT / 2) * A_PAIR;
                unit_of_codes(g, a + at, words + u * MM_PANEL, MM_UNIT, n, first, count, rows);
                unit_of_codes(h, then + at, words + (cols / MM_UNIT + u) * MM_PANEL, MM_UNIT, n,
                              first, count, rows);
            }
            add_group(c, g, scales, first, count, rows);
            scales += MM_PANEL;
            add_group(c, h, scales, first, count, rows);
            a = then;
            words += cols / MM_UNIT * MM_PANEL;
            col = end;
            end += cols;
        } else {
            group_of_codes(g, a, words, cols, n, first, count, rows);
            add_group(c, g, scales, first, count, rows);
        }
        a += (end - col) / 2 * A_PAIR;
        words += (end - col) / MM_UNIT * MM_PANEL;
        scales += MM_PANEL;
        col = end;
    }
}

static inline __attribute__((always_inline)) void tile_of_taken(const operands *in, const store *s,
                                                                const float *scales,
                                                                const uint32_t *words,
                                                                const int rows)
{
    const mm_taken *t = in->taken;
    const place p = s->addend[0];
    const int at_once = rows <= WHOLE_PANELS ? OF_PANEL : OF_PANEL / 2;
    vec c[ROWS][MOST_VECTORS];
    numbers n;
    fill_numbers(&n, t->number);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < OF_PANEL; v++) c[r][v] =
        s->started ? LOAD(p.at + r * p.ld + v * LANES)
                   : SPLAT(-0.0f); /* adding it changes nothing */
    UNROLL for (int v = 0; v < OF_PANEL; v += at_once)
        groups_of_codes(c, t, in->a, scales, words, &n, v, at_once, rows);
    put_from(c, s, s->started, rows, OF_PANEL);
}

#define TAKEN_TILE(rows)                                                                           \
    static void taken_##rows(const operands *in, const store *s, const float *scales,              \
                             const uint32_t *words)                                                \
    {                                                                                              \
        tile_of_taken(in, s, scales, words, rows);                                                 \
    }
#define TAKEN_ROW(rows) taken_##rows,
TAKEN(TAKEN_TILE)
typedef void taken_fn(const operands *in, const store *s, const float *scales,
                      const uint32_t *words);
static taken_fn *const tiles_of_taken[] = { TAKEN(TAKEN_ROW) };

static inline void run_taken(const operands *in, const store *s, int64_t rows)
{
    const mm_taken *t = in->taken;
    const char *cell = t->cells + in->panel * t->bytes;
    float room[MM_MOST_SCALES];
    tiles_of_taken[rows - 1](in, s, sheaf__mm_scales(room, t, in->panel),
                             (const uint32_t *)(cell + t->head));
}

/* Tiles as wide as a panel, for what else such a product meets. */
#if LANES == 8
#define PANEL_TILE(rows) PAIRS_FN(panel_##rows, rows, OF_PANEL)
#define PANEL_ROW(rows) panel_##rows,
TAKEN(PANEL_TILE)
static tile_fn *const panel_tiles[] = { TAKEN(PANEL_ROW) };
#endif
