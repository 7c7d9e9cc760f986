/* matmul_kernel.h - register tiles and what happens to their sums; the body of
 * matmul_avx2.c, matmul_avx512.c, matmul_avx512bf16.c, and for the order `tiles` of
 * matmul_avx2tiles.c and matmul_avx512tiles.c.
 *
 * The file that includes it defines
 *   NAME(x)         x with the instruction set's suffix
 *   LANES           floats of a vector; two vectors make a tile's width
 *   ROWS            rows of a register tile
 *   STRIDE          words between rows of A
 *   MOST_VECTORS    of a tile of few rows
 *   TILES           tile functions, and `tiles`, how many rows select which of them
 *   vec and LOAD STORE ZERO SPLAT ADD MUL FMA QUIET UNORDERED
 *   halves and LOAD_HALVES STORE_HALVES TO_BF16 FROM_BF16 TO_F16 FROM_F16
 *   LOAD_PART STORE_PART LOAD_PART_HALVES STORE_PART_HALVES, of the first n < LANES
 *   STEP(acc, a, b) one step: acc + a * b fused, or the pair instruction
 *   WORD(p)         a word of A in all lanes
 *   ODD EVEN        optional: an element of a pair as a float, where kernels take B in pairs
 *   CHAINS          optional: the order `tiles` instead of `pairs`
 *   ONE_PANEL       optional, 1: few rows go through one panel after the other
 *   CODES(f)        optional: f(1) f(2) ... for rows of tiles that take compressed panels
 *   TAKEN(f)        optional: the same of codes in groups */

#include "base/unroll.h"
#include "ops/matmul/matmul_finish.h"

/* Destination of a tile's sums: v = block sum; v = addend + v for each addend in order. `across`
 * floats lie between the panels of a tile that spans several. */
typedef struct place {
    const float *at;
    int64_t ld, across;
} place;

typedef struct store {
    int addends;
    place addend[MM_DEPTH + 1];
    void *to;
    int64_t ldto, across;
    /* v = scale * block sum, or if `started` fma(scale, block sum, addend[0]); see mm_pass. Tiles
     * that take codes find scales themselves. */
    bool scaled, added, started;
    const float *scale;
    const char *sums; /* of the first row's elements, STRIDE words from the next one's */
    int64_t apart;    /* floats between panels of it */
    bool final;       /* a NaN becomes the default one; partial sums need not care */
    bool halves;      /* rounded to bfloat16 */
} store;

typedef struct operands {
    const char *a;
    const uint32_t *b;
    int64_t steps, panel_words; /* from one panel to the next */
    /* For tiles that read A where it lies: bytes between its rows, and from what they read to what
     * they ask for, of A or, in outer products, of B; words between steps of B. */
    int64_t stride, ahead, b_step;
    /* For outer products: bytes between rows of B, columns of a part of a vector, and what the
     * chains go on from, or NULL. */
    int64_t ldb, cols;
    const float *from;
    const mm_code *code;   /* b is compressed; else NULL */
    const mm_taken *taken; /* B is codes; else NULL */
    int64_t panel;         /* its number among their panels */
    mm_soon **soon;
    int64_t lines; /* of it to ask for every CHUNK steps */
} operands;

/* All requests at once would fill the queue of misses and hold up the loads of B. */
#ifdef CHAINS
#define CHUNK MM_CHUNK /* steps after which two chains end in a sum */
#else
#define CHUNK 16
#endif

/* If few rows meet one panel at a time, not several side by side, the processor by itself
 * prefetches for two to four of them. */
#ifndef ONE_PANEL
#define ONE_PANEL 0
#endif
#define SIDE_BY_SIDE(vectors) (ONE_PANEL ? 2 : (vectors))
#define FINDS_ALONE(rows) (ONE_PANEL && (rows) > 1 && (rows) <= 4)

typedef void tile_fn(const operands *in, const store *s);

/* Vector v of a tile: its panel, and its column there. */
#define PANEL_OF(v) ((v)*LANES / MM_PANEL)
#define COLUMN_OF(v) ((v)*LANES % MM_PANEL)

/* The machine fetches ahead within pages of 4 KB and begins anew with each, too late where few rows
 * let B go by fast: it is prefetched that far ahead. One row alone waits for nothing else, and asks
 * the first-level cache. */
static inline __attribute__((always_inline)) void ask_ahead(const uint32_t *b, int64_t panel,
                                                            const int rows, const int vectors)
{
    enum { PAGE = 4096 / 4 };
    if (FINDS_ALONE(rows))
        return;
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const uint32_t *at = b + PANEL_OF(v) * panel + COLUMN_OF(v);
        if (rows == 1 && !ONE_PANEL)
            __builtin_prefetch(at + PAGE / 2, 0, 3);
        else if (rows > 1 && rows <= 12 && ONE_PANEL)
            __builtin_prefetch(at + 2 * PAGE, 0, 2);
        else
            __builtin_prefetch(at + PAGE, 0, 2);
    }
}

/* Many rows: B is loaded once a step, A word by word. */
static inline __attribute__((always_inline)) void step_tall(vec c[ROWS][MOST_VECTORS],
                                                            const char *a, int64_t stride,
                                                            const uint32_t *b, const int rows,
                                                            const int vectors)
{
    vec bk[2];
    UNROLL for (int v = 0; v < vectors; v++) bk[v] = LOAD((const float *)b + v * LANES);
    UNROLL for (int r = 0; r < rows; r++)
    {
        const vec ak = WORD(a + r * stride);
        UNROLL for (int v = 0; v < vectors; v++) c[r][v] = STEP(c[r][v], ak, bk[v]);
    }
}

/* Few rows: several panels at once, as a sum alone would wait for itself. */
static inline __attribute__((always_inline)) void step_wide(vec c[ROWS][MOST_VECTORS],
                                                            const char *a, const uint32_t *b,
                                                            int64_t panel, const int rows,
                                                            const int vectors)
{
    vec ak[ROWS];
    UNROLL for (int r = 0; r < rows; r++) ak[r] = WORD(a + r * STRIDE * 4);
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const vec bk = LOAD((const float *)b + PANEL_OF(v) * panel + COLUMN_OF(v));
        UNROLL for (int r = 0; r < rows; r++) c[r][v] = STEP(c[r][v], ak[r], bk);
    }
}

#if defined(ODD) && !defined(CHAINS)
/* The same on pairs, for which A has two words: odd element, even element. */
static inline __attribute__((always_inline)) void step_pairs(vec c[ROWS][MOST_VECTORS],
                                                             const char *a, const uint32_t *b,
                                                             int64_t panel, const int rows,
                                                             const int vectors)
{
    vec odd[ROWS], even[ROWS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        odd[r] = WORD(a + r * STRIDE * 4);
        even[r] = WORD(a + r * STRIDE * 4 + 4);
    }
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const vec bk = LOAD((const float *)b + PANEL_OF(v) * panel + COLUMN_OF(v));
        UNROLL for (int r = 0; r < rows; r++) c[r][v] =
            STEP(STEP(c[r][v], odd[r], ODD(bk)), even[r], EVEN(bk));
    }
}
#endif

/* Block sums that are done: addends from `first` on. */
static inline __attribute__((always_inline)) void
put_from(vec c[][MOST_VECTORS], const store *s, const int first, const int rows, const int vectors)
{
    unsigned nan = 0;
    for (int q = first; q < s->addends; q++) {
        const place p = s->addend[q];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c[r][v] =
            ADD(LOAD(p.at + r * p.ld + PANEL_OF(v) * p.across + COLUMN_OF(v)), c[r][v]);
    }
    if (s->final) {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v += 2) nan |=
            UNORDERED(c[r][v], c[r][v + 1 < vectors ? v + 1 : v]);
    }
    if (__builtin_expect(nan != 0, 0)) {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c[r][v] =
            QUIET(c[r][v]);
    }
    if (s->halves) {
        uint16_t *to = s->to;
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) STORE_HALVES(
            to + r * s->ldto + PANEL_OF(v) * s->across + COLUMN_OF(v), TO_BF16(c[r][v]));
        return;
    }
    float *to = s->to;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        STORE(to + r * s->ldto + PANEL_OF(v) * s->across + COLUMN_OF(v), c[r][v]);
}

static inline __attribute__((always_inline)) void put(vec c[][MOST_VECTORS], const store *s,
                                                      const int rows, const int vectors)
{
    const place p = s->addend[0];
    if (s->scaled) {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            const vec scale = LOAD(s->scale + PANEL_OF(v) * s->apart + COLUMN_OF(v));
            UNROLL for (int r = 0; r < rows; r++) c[r][v] =
                FMA(scale, c[r][v],
                    s->started ? LOAD(p.at + r * p.ld + PANEL_OF(v) * p.across + COLUMN_OF(v))
                               : SPLAT(-0.0f)); /* adding it changes nothing */
            if (!s->added)
                continue;
            const vec added = LOAD(s->scale + PANEL_OF(v) * s->apart + MM_PANEL + COLUMN_OF(v));
            UNROLL for (int r = 0; r < rows; r++) c[r][v] =
                FMA(added, WORD(s->sums + r * STRIDE * 4), c[r][v]);
        }
    }
    put_from(c, s, s->scaled && s->started, rows, vectors);
}

#ifndef CHAINS
static inline __attribute__((always_inline)) void
tile(const operands *in, const store *s, const int rows, const int vectors, const bool direct)
{
    vec c[ROWS][MOST_VECTORS];
    const char *a = in->a;
    const uint32_t *b = in->b;
    const int64_t stride = direct ? in->stride : STRIDE * 4;
    const int64_t panel = in->panel_words;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c[r][v] = ZERO();
    for (int64_t left = in->steps; left > 0; left -= CHUNK) {
        if (!direct)
            mm_ask(in->soon, in->lines);
        UNROLL for (int r = 0; direct && r < rows; r++)
            __builtin_prefetch(a + r * stride + in->ahead, 0, 2);
        for (const char *end = a + 4 * mm_min(CHUNK, left); a < end; a += 4) {
            if (!direct)
                ask_ahead(b, panel, rows, vectors);
            if (vectors <= 2)
                step_tall(c, a, stride, b, rows, vectors);
            else
                step_wide(c, a, b, panel, rows, vectors);
            b += direct ? in->b_step : MM_PANEL;
        }
    }
    put(c, s, rows, vectors);
}

#endif

#if defined(ODD) && !defined(CHAINS)
static inline __attribute__((always_inline)) void tile_of_pairs(const operands *in, const store *s,
                                                                const int rows, const int vectors)
{
    vec c[ROWS][MOST_VECTORS];
    const uint32_t *b = in->b;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c[r][v] = ZERO();
    for (int64_t k = 0; k < in->steps; k++, b += MM_PANEL) {
        ask_ahead(b, in->panel_words, rows, vectors);
        step_pairs(c, in->a + k * 8, b, in->panel_words, rows, vectors);
    }
    put(c, s, rows, vectors);
}
#endif

#ifdef CHAINS
/* Two chains: the odd elements, the even ones. */
typedef struct chains {
    vec odd[ROWS][MOST_VECTORS], even[ROWS][MOST_VECTORS];
} chains;

/* One step of both, on pairs: A has two words, odd element, even element. */
static inline __attribute__((always_inline)) void step_pairs(chains *c, const char *a,
                                                             const uint32_t *b, int64_t panel,
                                                             const int rows, const int vectors)
{
    vec odd[ROWS], even[ROWS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        odd[r] = WORD(a + r * STRIDE * 4);
        even[r] = WORD(a + r * STRIDE * 4 + 4);
    }
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const vec bk = LOAD((const float *)b + PANEL_OF(v) * panel + COLUMN_OF(v));
        UNROLL for (int r = 0; r < rows; r++)
        {
            c->odd[r][v] = STEP(c->odd[r][v], odd[r], ODD(bk));
            c->even[r][v] = STEP(c->even[r][v], even[r], EVEN(bk));
        }
    }
}

static inline __attribute__((always_inline)) void begin_chunk(chains *c, const int rows,
                                                              const int vectors)
{
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c->odd[r][v] =
        c->even[r][v] = ZERO();
}

/* acc += even + odd. A chunk that is not whole ends with zeros, which make +0 of -0. */
static inline __attribute__((always_inline)) void end_chunk(vec acc[ROWS][MOST_VECTORS],
                                                            const chains *c, bool whole,
                                                            const int rows, const int first,
                                                            const int count)
{
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = first; v < first + count; v++)
    {
        const vec even = whole ? c->even[r][v] : ADD(c->even[r][v], ZERO());
        const vec odd = whole ? c->odd[r][v] : ADD(c->odd[r][v], ZERO());
        acc[r][v] = ADD(acc[r][v], ADD(even, odd));
    }
}

/* B in pairs: 16 steps are a chunk; else 32, odd and even alternate. */
static inline __attribute__((always_inline)) void tile_of_chains(const operands *in, const store *s,
                                                                 const int rows, const int vectors,
                                                                 const bool pairs)
{
    vec acc[ROWS][MOST_VECTORS];
    const char *a = in->a;
    const uint32_t *b = in->b;
    const int64_t panel = in->panel_words, chunk = pairs ? CHUNK / 2 : CHUNK;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) acc[r][v] =
        ZERO();
    for (int64_t left = in->steps; left > 0; left -= chunk) {
        chains c;
        begin_chunk(&c, rows, vectors);
        if (!pairs)
            mm_ask(in->soon, in->lines);
        for (const char *end = a + (pairs ? 8 : 4) * mm_min(chunk, left); a < end; a += 8) {
            ask_ahead(b, panel, rows, vectors);
            if (pairs) {
                step_pairs(&c, a, b, panel, rows, vectors);
                b += MM_PANEL;
                continue;
            }
            if (vectors <= 2) {
                step_tall(c.odd, a, STRIDE * 4, b, rows, vectors);
                step_tall(c.even, a + 4, STRIDE * 4, b + MM_PANEL, rows, vectors);
            } else {
                step_wide(c.odd, a, b, panel, rows, vectors);
                step_wide(c.even, a + 4, b + MM_PANEL, panel, rows, vectors);
            }
            ask_ahead(b + MM_PANEL, panel, rows, vectors);
            b += 2 * MM_PANEL;
        }
        end_chunk(acc, &c, left >= chunk, rows, 0, vectors);
    }
    put(acc, s, rows, vectors);
}
#define tile(in, s, rows, vectors, direct) tile_of_chains(in, s, rows, vectors, false)
#define tile_of_pairs(in, s, rows, vectors) tile_of_chains(in, s, rows, vectors, true)
#endif

/* Tiles of `rows` rows: one or two vectors; `wide` vectors where rows are few; tiles that read
 * A in place, with a register for each row; tiles of few rows that take B in pairs. */
typedef struct tile_row {
    tile_fn *run[3], *direct[2];
    int wide; /* vectors of run[2] */
    tile_fn *pairs[3];
    int wide_pairs;
} tile_row;

#define TILE_FN(name, ...)                                                                         \
    static void name(const operands *in, const store *s)                                           \
    {                                                                                              \
        tile(in, s, __VA_ARGS__);                                                                  \
    }
#define TALL(rows) TILE_FN(tile_##rows##_1, rows, 1, false) TILE_FN(tile_##rows##_2, rows, 2, false)
#define WIDE(rows, wide) TALL(rows) TILE_FN(tile_##rows##_w, rows, wide, false)
#define DIRECT(rows)                                                                               \
    TILE_FN(direct_##rows##_1, rows, 1, true) TILE_FN(direct_##rows##_2, rows, 2, true)
#define PAIRS_FN(name, rows, vectors)                                                              \
    static void name(const operands *in, const store *s)                                           \
    {                                                                                              \
        tile_of_pairs(in, s, rows, vectors);                                                       \
    }
/* clang-format off */
#define PAIRS(rows, wide) \
    PAIRS_FN(pairs_##rows##_1, rows, 1) PAIRS_FN(pairs_##rows##_2, rows, 2) PAIRS_FN(pairs_##rows##_w, rows, wide)
/* clang-format on */
#define PAIRS_ROW(rows, wide) { pairs_##rows##_1, pairs_##rows##_2, pairs_##rows##_w }, wide
#define NO_PAIRS { NULL, NULL, NULL }, 0
#define TALL_ROW(rows)                                                                             \
    {                                                                                              \
        { tile_##rows##_1, tile_##rows##_2, tile_##rows##_2 }, { NULL, NULL }, 2, NO_PAIRS         \
    }
#define WIDE_ROW(rows, wide, pairs)                                                                \
    {                                                                                              \
        { tile_##rows##_1, tile_##rows##_2, tile_##rows##_w }, { NULL, NULL }, wide, pairs         \
    }
#define DIRECT_ROW(rows, wide_tile, wide, pairs)                                                   \
    {                                                                                              \
        { tile_##rows##_1, tile_##rows##_2, wide_tile }, { direct_##rows##_1, direct_##rows##_2 }, \
            wide, pairs                                                                            \
    }

TILES

/* The step that meets pairs takes a panel's two vectors from registers as it takes them from
 * memory; where it picks a pair apart, A has two words for it. */
#if defined(CHAINS) || defined(ODD)
#define STEP_PANEL(c, a, w, rows) step_pairs(c, a, (const uint32_t *)(w), 0, rows, 2)
#define A_PAIR 8 /* bytes */
#else
#define STEP_PANEL(c, a, w, rows) step_wide(c, a, (const uint32_t *)(w), 0, rows, 2)
#define A_PAIR 4
#endif

#ifdef CODES
#include "ops/matmul/matmul_codes.h"
#endif
#ifdef TAKEN
#include "ops/matmul/matmul_quant_tile.h"
#endif

/* ---- all tiles of a band ---- */

/* The tile at column j, `vectors` wide (at most; its last ones may hang over the edge). What all of
 * its passes share is found once: passes of narrow slices are short. */
typedef struct tile_at {
    const mm_band *band;
    int64_t j, panel, inside; /* panels before its first one, columns there */
    int64_t across;           /* floats between panels of sums */
    float *near, *far;        /* its place in the first slot of each kind */
    tile_fn *run;
    int vectors;
} tile_at;

static inline float *sums_at(const tile_at *t, mm_slot slot)
{
    return slot.near ? t->near + slot.index * MM_NEAR : t->far + slot.index * t->band->far_size;
}

/* Not all of s is set: clearing the places for each pass shows in a step. */
static inline void begin_pass(operands *in, store *s, const tile_at *t, int p)
{
    const mm_band *band = t->band;
    const mm_pass *pass = &band->pass[p];
    s->addends = pass->addends;
    s->ldto = MM_PANEL;
    s->across = t->across;
    s->final = s->halves = false;
    s->scaled = pass->scaled;
    s->added = pass->added;
    s->started = pass->started;
    s->sums = (const char *)band->a + pass->sums * 4;
    for (int q = 0; q < pass->addends; q++)
        s->addend[q] = (place){ sums_at(t, pass->addend[q]), MM_PANEL, t->across };
    in->a = (const char *)band->a + pass->at * 4;
    in->steps = pass->steps;
    in->panel_words = mm_pass_words(pass);
    in->b = pass->steps == 0 ? NULL
            : band->ldb > 0  ? band->b[p] + t->j
                             : band->b[p] + t->panel * in->panel_words + t->inside;
    if (pass->scaled) {
        s->scale = (const float *)(in->b + pass->steps * MM_PANEL);
        s->apart = in->panel_words;
    }
#ifdef CODES
    in->code = NULL;
    if (band->code != NULL && band->code[p] != NULL) {
        in->code = band->code[p] + t->panel;
        in->b = band->b[p] + t->panel * mm_code_words(pass->steps);
    }
#endif
#ifdef TAKEN
    in->taken = NULL;
    if (band->taken != NULL && pass->steps > 0 && band->taken[p].w != NULL) {
        in->taken = &band->taken[p];
        in->panel = t->panel;
    }
#endif
}

static inline void run_pass(const tile_at *t, const operands *in, const store *s)
{
#ifdef CODES
    if (in->code != NULL) {
        tiles_of_codes[t->band->rows - 1](in, s);
        return;
    }
#endif
#ifdef TAKEN
    if (in->taken != NULL) {
        run_taken(in, s, t->band->rows);
        return;
    }
#endif
    t->run(in, s);
}

/* The last pass, whose sums are finished. */
static __attribute__((noinline)) void run_last(const tile_at *t, operands *in)
{
    const mm_band *band = t->band;
    const mm_finish *f = band->finish;
    const int64_t cols = mm_min(t->vectors * LANES, band->cols - t->j), at = band->col0 + t->j;
    const bool direct = !f->transposed && cols == t->vectors * LANES && mm_finish_is_plain(f);
    float sum[ROWS * MM_PANEL * 4];
    store s;
    begin_pass(in, &s, t, band->passes - 1);
    s.to = sum;
    if (direct) {
        s.final = true;
        s.halves = f->out == SHEAF_BF16;
        s.to = (char *)f->y + (band->row0 * f->ldy + at) * (s.halves ? 2 : 4);
        s.ldto = f->ldy;
        s.across = MM_PANEL;
        if (f->add)
            s.addend[s.addends++] = (place){ s.to, s.ldto, s.across };
    }
    ask_addend(f, band->row0, at, band->rows, cols);
    run_pass(t, in, &s);
    for (int64_t c = 0; !direct && c < cols; c += MM_PANEL)
        finish_panel(f, sum + c / MM_PANEL * t->across, band->row0, at + c, band->rows,
                     mm_min(MM_PANEL, cols - c));
}

static inline void run_tile(const mm_band *band, operands *in, int64_t j, tile_fn *run, int vectors)
{
    const int64_t panel = j / MM_PANEL, inside = j % MM_PANEL, across = band->rows * MM_PANEL;
    const tile_at t = { band,
                        j,
                        panel,
                        inside,
                        across,
                        band->near + inside,
                        band->far + panel * across + inside,
                        run,
                        vectors };
    const int kept = band->passes - (band->finish != NULL); /* passes whose sums stay in slots */
    store s;
    for (int p = 0; p < kept; p++) {
        begin_pass(in, &s, &t, p);
        s.to = sums_at(&t, band->pass[p].to);
        run_pass(&t, in, &s);
    }
    if (kept < band->passes)
        run_last(&t, in);
}

/* A row of A, `bytes` long, a multiple of 4. */
void NAME(mm_copy)(uint32_t *dst, const char *src, int64_t bytes)
{
    int64_t c = 0;
    for (; c + 2 * (int64_t)sizeof(vec) <= bytes; c += 2 * (int64_t)sizeof(vec)) {
        const vec x = LOAD(src + c), y = LOAD(src + c + sizeof(vec));
        STORE((char *)dst + c, x);
        STORE((char *)dst + c + sizeof(vec), y);
    }
    /* No call: rows of short blocks are all rest. */
    for (; c < bytes; c += (int64_t)sizeof(vec)) {
        const int64_t words = mm_min(LANES, (bytes - c) / 4);
        STORE_PART((float *)(dst + c / 4), LOAD_PART((const float *)(src + c), words), words);
    }
}

void NAME(mm_run)(const mm_band *band)
{
    mm_soon *list = band->soon;
    const tile_row *row = &tiles[band->rows - 1];
    tile_fn *const *run = band->pairs ? row->pairs : band->stride ? row->direct : row->run;
    const bool panels = band->code != NULL || band->taken != NULL;
    tile_fn *of_panel = run[1];
#if defined(TAKEN) && LANES == 8
    of_panel = panels ? panel_tiles[band->rows - 1] : NULL;
#endif
    const int vectors_wide = panels         ? MM_PANEL / LANES
                             : band->pairs  ? row->wide_pairs
                             : band->stride ? 2
                                            : row->wide;
    const int64_t wide = vectors_wide * LANES;
    operands in = { .stride = band->stride,
                    .ahead = band->rows * band->stride,
                    .b_step = band->narrow ? LANES : MM_PANEL,
                    .soon = &list };
    int64_t j = 0, chunks = 0;
    for (int p = 0; p < band->passes; p++)
        chunks += mm_div_up(band->pass[p].steps, CHUNK);
    if (chunks > 0)
        in.lines = mm_div_up(band->lines, chunks * (band->cols / wide + (band->cols % wide > 0)));
    for (; j < band->cols && panels; j += MM_PANEL)
        run_tile(band, &in, j, of_panel, vectors_wide);
    for (; j + wide <= band->cols && vectors_wide > 2; j += wide)
        run_tile(band, &in, j, run[2], vectors_wide);
    for (; j < band->cols; j += 2 * LANES) {
        const int vectors = band->cols - j > LANES ? 2 : 1;
        run_tile(band, &in, j, run[vectors - 1], vectors);
    }
}
