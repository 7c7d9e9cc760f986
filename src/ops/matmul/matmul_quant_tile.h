/* matmul_quant_tile.h - tiles of few rows that take codes in groups as they lie in memory
 * (matmul_quant.h); part of matmul_kernel.h.
 *
 * What a code stands for is looked up in a table of 16 bits, pair by pair; a group's sum meets its
 * scale when it is added to those before. `unit_of_codes` and `group_sum` are the vectors'. */
#include "ops/matmul/matmul_quant.h"

#define OF_PANEL (MM_PANEL / LANES) /* vectors */

/* The sum of a group, or of its chunk at hand: of odd and of even elements. */
#ifdef CHAINS
typedef chains group_sums;
#define ODDS(g) (g)->odd
#define EVENS(g) (g)->even
#define SUMS_OF_STEP(g) (g)
#else
typedef struct group_sums {
    vec all[ROWS][MOST_VECTORS];
} group_sums;
#define ODDS(g) (g)->all
#define EVENS(g) (g)->all
#define SUMS_OF_STEP(g) (g)->all
#endif

#if LANES == 16
#include "ops/matmul/matmul_quant_tile512.h"
#else
#include "ops/matmul/matmul_quant_tile256.h"
#endif

/* Where a tile is in its block, and vectors [first, first + count) of it. */
typedef struct codes_at {
    const mm_taken *taken;
    const char *a, *sums; /* of the group at hand: rows, and sums of their elements */
    const uint32_t *words;
    const float *scales; /* they are asked for in the next panel's cell, as codes are */
    numbers n;
} codes_at;

/* v = fma(scale, group's sum, v) of vectors [first, first + count), then what is added; on to the
 * next group. */
static inline __attribute__((always_inline)) void
add_group(vec c[ROWS][MOST_VECTORS], const vec g[ROWS][MOST_VECTORS], codes_at *at, const int first,
          const int count, const int rows, const bool added)
{
    UNROLL for (int v = first; v < first + count; v++)
    {
        const vec scale = LOAD(at->scales + v * LANES);
        __builtin_prefetch((const char *)(at->scales + v * LANES) + at->taken->bytes, 0, 3);
        UNROLL for (int r = 0; r < rows; r++) c[r][v] = FMA(scale, group_sum(g[r], v), c[r][v]);
        if (!added)
            continue;
        const vec more = LOAD(at->scales + MM_PANEL + v * LANES);
        __builtin_prefetch((const char *)(at->scales + MM_PANEL + v * LANES) + at->taken->bytes, 0,
                           3);
        UNROLL for (int r = 0; r < rows; r++) c[r][v] =
            FMA(more, WORD(at->sums + r * STRIDE * 4), c[r][v]);
    }
    at->scales += (added ? 2 : 1) * MM_PANEL;
    at->sums += 4;
}

static inline __attribute__((always_inline)) void clear_sums(group_sums *g, const int first,
                                                             const int count, const int rows)
{
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = first; v < first + count; v++)
    {
        ODDS(g)[r][v] = ZERO();
        EVENS(g)[r][v] = ZERO();
    }
}

/* The next `cols` columns, a group or, in the order `tiles`, a chunk of one. */
static inline __attribute__((always_inline)) void part_of_group(group_sums *g, codes_at *at,
                                                                int64_t cols, const int first,
                                                                const int count, const int rows)
{
    clear_sums(g, first, count, rows);
    for (; cols > 0; cols -= MM_UNIT, at->words += MM_PANEL, at->a += MM_UNIT / 2 * A_PAIR)
        if (cols >= MM_UNIT)
            unit_of_codes(g, at->a, at->words, MM_UNIT, &at->n, at->taken->bytes, first, count,
                          rows);
        else
            unit_of_codes(g, at->a, at->words, cols, &at->n, at->taken->bytes, first, count, rows);
}

/* The next group. */
static inline __attribute__((always_inline)) void group_of_codes(vec c[ROWS][MOST_VECTORS],
                                                                 codes_at *at, int64_t cols,
                                                                 const int first, const int count,
                                                                 const int rows, const bool added)
{
    group_sums g;
#ifdef CHAINS
    vec sum[ROWS][MOST_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = first; v < first + count; v++)
        sum[r][v] = ZERO();
    for (; cols > 0; cols -= MM_CHUNK) {
        part_of_group(&g, at, mm_min(cols, MM_CHUNK), first, count, rows);
        end_chunk(sum, &g, cols >= MM_CHUNK, rows, first, count);
    }
    add_group(c, sum, at, first, count, rows, added);
#else
    part_of_group(&g, at, cols, first, count, rows);
    add_group(c, g.all, at, first, count, rows, added);
#endif
}

/* The next two groups of as many columns, whole units. */
#if TWO_GROUPS
static inline __attribute__((always_inline)) void two_groups(vec c[ROWS][MOST_VECTORS],
                                                             codes_at *at, int64_t cols,
                                                             const int first, const int count,
                                                             const int rows, const bool added)
{
    group_sums g, h;
    const int64_t units = cols / MM_UNIT, bytes = MM_UNIT / 2 * A_PAIR;
    clear_sums(&g, first, count, rows);
    clear_sums(&h, first, count, rows);
    for (int64_t u = 0; u < units; u++, at->a += bytes, at->words += MM_PANEL) {
        unit_of_codes(&g, at->a, at->words, MM_UNIT, &at->n, at->taken->bytes, first, count, rows);
        unit_of_codes(&h, at->a + units * bytes, at->words + units * MM_PANEL, MM_UNIT, &at->n,
                      at->taken->bytes, first, count, rows);
    }
    add_group(c, g.all, at, first, count, rows, added);
    add_group(c, h.all, at, first, count, rows, added);
    at->a += units * bytes;
    at->words += units * MM_PANEL;
}
#endif

/* All groups of vectors [first, first + count). Of one row two at once, as a sum alone would wait
 * for itself. */
static inline __attribute__((always_inline)) void groups_of_codes(vec c[ROWS][MOST_VECTORS],
                                                                  codes_at at, const int first,
                                                                  const int count, const int rows,
                                                                  const bool added)
{
    const mm_taken *t = at.taken;
    for (int64_t col = 0, end = t->first; col < t->cols; end = mm_min(t->cols, end + t->block)) {
        const int64_t cols = end - col;
#if TWO_GROUPS
        if (rows == 1 && cols % MM_UNIT == 0 && cols == mm_min(t->block, t->cols - end)) {
            two_groups(c, &at, cols, first, count, rows, added);
            end += cols;
            col = end;
            continue;
        }
#endif
        group_of_codes(c, &at, cols, first, count, rows, added);
        col = end;
    }
}

/* All of a panel, of many rows half of it at a time. */
static inline __attribute__((always_inline)) void
panel_of_codes(vec c[ROWS][MOST_VECTORS], const codes_at at, const int rows, const bool added)
{
    const int half = OF_PANEL / 2;
    if (rows <= WHOLE_PANELS) {
        groups_of_codes(c, at, 0, OF_PANEL, rows, added);
    } else {
        groups_of_codes(c, at, 0, half, rows, added);
        groups_of_codes(c, at, half, half, rows, added);
    }
}

static inline __attribute__((always_inline)) void tile_of_taken(const operands *in, const store *s,
                                                                const float *scales,
                                                                const uint32_t *words,
                                                                const int rows)
{
    const place p = s->addend[0];
    vec c[ROWS][MOST_VECTORS];
    codes_at at = {
        .taken = in->taken, .a = in->a, .sums = s->sums, .words = words, .scales = scales
    };
    fill_numbers(&at.n, in->taken->number);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < OF_PANEL; v++) c[r][v] =
        s->started ? LOAD(p.at + r * p.ld + v * LANES)
                   : SPLAT(-0.0f); /* adding it changes nothing */
    if (s->added)
        panel_of_codes(c, at, rows, true);
    else
        panel_of_codes(c, at, rows, false);
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
