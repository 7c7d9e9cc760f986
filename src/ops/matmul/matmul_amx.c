/* matmul_amx.c - the order `tiles` by the tile unit: 32 x 32 sums in four accumulators.
 *
 * A panel of B is what the unit wants: a row of a tile is a step, 16 words of a panel. Rows of A
 * lie in scratch, filled up with zeros to whole chunks as the panels are, because a tile of
 * fewer steps would end its chains earlier than the order says. The unit takes denormals as
 * zero and flushes results whatever MXCSR says, as compute threads have it.
 * A thread configures the tiles when it begins an area and gives them back when it ends it.
 *
 * What the unit waits for is the first-level cache: loads of tiles, lines of B that come into
 * it, and the running sums that go through it. So sums are added to what is there in portions,
 * while the unit computes the next ones, and a short block that follows a slice's first one
 * (LoRA's) goes on from the sums that the unit holds: it would be added next in any case. */
#include "ops/matmul/matmul_vec512.h"

#undef TILES
#include "base/unroll.h"
#include "ops/matmul/matmul_finish.h"
#include "ops/tile_unit.h"

#define CHUNK_STEPS (MM_CHUNK / 2)
#define B_STRIDE (MM_PANEL * 4)

void mm_enter_amx(void)
{
    _tile_loadconfig(&sheaf__whole_tiles);
}
void mm_leave_amx(void)
{
    _tile_release();
}

/* ---- where a panel's sums of one block go ---- */

typedef enum way {
    TO_SUMS,   /* partial sums */
    TO_F32,    /* the result, as it is */
    ADD_F32,   /* the same, added to what is there */
    TO_HALVES, /* the result, rounded to bfloat16 */
    FINISHED   /* the result, by finish_vector() */
} way;

/* Passes [begin, end) of panel j, which the unit added to one sum. */
typedef struct chain {
    const mm_band *band;
    int begin, end;
    int64_t j;
} chain;

/* Sums whose rows are added to addends and stored bit by bit. What is in `left` outlives the band;
 * a chain's operands do not. */
typedef struct ending {
    mm_ending *left;
    bool chained; /* of several passes: */
    chain of;
    int64_t column; /* of the chain's */
} ending;

/* Half a row of one block's sums, by fma. */
static vec block_by_fma(const mm_band *band, int p, int64_t r, int64_t column)
{
    const mm_pass *pass = &band->pass[p];
    const char *a = (const char *)band->a + (r * band->words + pass->at) * 4;
    vec sum = ZERO();
    for (int64_t s = 0; s < pass->steps; s += CHUNK_STEPS) {
        vec even = ZERO(), odd = ZERO();
        for (int64_t q = s; q < s + CHUNK_STEPS; q++) {
            const vec pair = WORD(a + q * 4);
            const vec b = LOAD(band->b[p] + column / MM_PANEL * mm_pass_words(pass) + q * MM_PANEL +
                               column % MM_PANEL);
            even = _mm512_fmadd_ps(EVEN(pair), EVEN(b), even);
            odd = _mm512_fmadd_ps(ODD(pair), ODD(b), odd);
        }
        sum = ADD(sum, ADD(even, odd));
    }
    return sum;
}

/* A chain's sum, block by block. The unit adds chunks to its sum where a block's chunks are first
 * added to +0: the same but for -0, which +0 makes +0. Only sums that underflow are -0. */
static __attribute__((noinline)) vec chain_by_fma(const chain *of, int64_t r, int64_t column)
{
    vec sum = block_by_fma(of->band, of->begin, r, of->j + column);
    for (int p = of->begin + 1; p < of->end; p++)
        sum = ADD(sum, block_by_fma(of->band, p, r, of->j + column));
    return sum;
}

static inline bool has_minus_zero(vec x, vec y)
{
    const __m512i zero = _mm512_set1_epi32((int)0x80000000u);
    return (_mm512_cmpeq_epi32_mask(_mm512_castps_si512(x), zero) |
            _mm512_cmpeq_epi32_mask(_mm512_castps_si512(y), zero)) != 0;
}

static inline __attribute__((always_inline)) vec with_addends(const mm_ending *left, vec x,
                                                              int64_t at, const int addends)
{
    for (int q = 0; q < addends; q++)
        x = ADD(LOAD(left->addend[q] + at), x);
    return x;
}

static inline __attribute__((always_inline)) void end_row(const ending *e, int64_t r,
                                                          const int addends, const way way)
{
    const mm_ending *left = e->left;
    const bool half = left->half;
    const int64_t at = r * MM_PANEL;
    vec x = LOAD(left->sum + at), y = half ? x : LOAD(left->sum + at + LANES);
    if (e->chained && __builtin_expect(has_minus_zero(x, y), 0)) {
        x = chain_by_fma(&e->of, r, e->column);
        y = half ? x : chain_by_fma(&e->of, r, e->column + LANES);
    }
    x = with_addends(left, x, at, addends);
    y = half ? x : with_addends(left, y, at + LANES, addends);
    if (way == FINISHED) {
        finish_vector(left->finish, x, left->row + r, left->column, LANES);
        if (!half)
            finish_vector(left->finish, y, left->row + r, left->column + LANES, LANES);
        return;
    }
    float *to = (float *)left->to + r * left->ld;
    uint16_t *halves = (uint16_t *)left->to + r * left->ld;
    if (way == ADD_F32) {
        x = ADD(LOAD(to), x);
        y = half ? x : ADD(LOAD(to + LANES), y);
    }
    if (way != TO_SUMS && __builtin_expect(UNORDERED(x, y) != 0, 0)) {
        x = QUIET(x);
        y = QUIET(y);
    }
    if (way == TO_HALVES) {
        STORE_HALVES(halves, TO_BF16(x));
        if (!half)
            STORE_HALVES(halves + LANES, TO_BF16(y));
        return;
    }
    STORE(to, x);
    if (!half)
        STORE(to + LANES, y);
}

/* The next four rows, or fewer. */
static inline __attribute__((always_inline)) void end_four(ending *e, const int addends,
                                                           const way way)
{
    const int64_t r = e->left->done, rows = e->left->rows;
    e->left->done = mm_min(r + 4, rows);
    if (r + 4 <= rows)
        UNROLL for (int i = 0; i < 4; i++) end_row(e, r + i, addends, way);
    else
        for (int64_t i = r; i < rows; i++)
            end_row(e, i, addends, way);
}

static inline __attribute__((always_inline)) void end_way(ending *e, const way way)
{
    const int addends = e->left->addends;
    if (addends == 0)
        end_four(e, 0, way);
    else if (addends == 1)
        end_four(e, 1, way);
    else if (addends == 2)
        end_four(e, 2, way);
    else
        end_four(e, addends, way);
}

static inline bool is_left(const ending *e)
{
    return e->left->done < e->left->rows;
}

/* Up to `fours` times four rows. */
static void end_some(ending *e, int64_t fours)
{
    for (; fours > 0 && is_left(e); fours--)
        switch ((way)e->left->way) {
        case TO_SUMS: end_way(e, TO_SUMS); break;
        case TO_F32: end_way(e, TO_F32); break;
        case ADD_F32: end_way(e, ADD_F32); break;
        case TO_HALVES: end_way(e, TO_HALVES); break;
        case FINISHED: end_way(e, FINISHED); break;
        }
}

static void end_all(ending *e)
{
    end_some(e, MM_PANEL / 4);
}

void mm_end_amx(mm_ending *left)
{
    end_all(&(ending){ .left = left });
}

/* ---- the unit's part ---- */

/* State of a chain while it is multiplied. */
typedef struct walk {
    chain of;
    mm_soon **soon;
    int64_t lines;  /* to ask for every chunk */
    ending *before; /* of the chain before: `fours` times four rows every chunk */
    int64_t fours;
    int chunks; /* of the chain */
} walk;

/* One pass: its part of the rows of A, and the panel. */
typedef struct part {
    const char *a;
    const uint32_t *b;
    int64_t steps, panel; /* words of a panel */
} part;

static inline part part_of(const chain *of, int p)
{
    const mm_pass *pass = &of->band->pass[p];
    const int64_t panel = mm_pass_words(pass);
    return (part){ (const char *)of->band->a + pass->at * 4,
                   pass->steps == 0 ? NULL : of->band->b[p] + of->j / MM_PANEL * panel, pass->steps,
                   panel };
}

/* Sums of 16 rows lie `MM_PANEL` floats apart. Tiles 0..3 are sums, 4 and 5 are of A, the rest of
 * B; each function is compiled for its shapes, as the instructions name their tiles. What is done
 * beside is complete before sums are stored, as they may lie where it read. */

/* 32 rows and 16 columns, or two times 16. */
static inline __attribute__((always_inline)) void sums_2(float *c, const walk *w, const bool wide)
{
    const int64_t ld = w->of.band->words * 4; /* of A */
    _tile_zero(0);
    _tile_zero(2);
    if (wide) {
        _tile_zero(1);
        _tile_zero(3);
    }
    for (int p = w->of.begin; p < w->of.end; p++) {
        part x = part_of(&w->of, p);
        for (int64_t s = 0; s < x.steps; s += CHUNK_STEPS) {
            mm_ask(w->soon, w->lines);
            _tile_loadd(6, x.b, B_STRIDE);
            _tile_loadd(4, x.a, ld);
            _tile_dpbf16ps(0, 4, 6);
            if (wide) {
                _tile_loadd(7, x.b + 16, B_STRIDE);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (is_left(w->before))
                end_some(w->before, w->fours);
            _tile_loadd(5, x.a + 16 * ld, ld);
            _tile_dpbf16ps(2, 5, 6);
            if (wide)
                _tile_dpbf16ps(3, 5, 7);
            x.a += 64;
            x.b += CHUNK_STEPS * MM_PANEL;
        }
    }
    end_all(w->before);
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(2, c + 16 * MM_PANEL, B_STRIDE);
    if (wide) {
        _tile_stored(1, c + 16, B_STRIDE);
        _tile_stored(3, c + 16 * MM_PANEL + 16, B_STRIDE);
    }
}

/* 16 rows of one panel, or of two. */
static inline __attribute__((always_inline)) void sums_1(float *c, const walk *w, const bool two)
{
    const int64_t ld = w->of.band->words * 4; /* of A */
    _tile_zero(0);
    _tile_zero(1);
    if (two) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int p = w->of.begin; p < w->of.end; p++) {
        part x = part_of(&w->of, p);
        for (int64_t s = 0; s < x.steps; s += CHUNK_STEPS) {
            const uint32_t *then = x.b + x.panel;
            mm_ask(w->soon, w->lines);
            _tile_loadd(4, x.a, ld);
            _tile_loadd(6, x.b, B_STRIDE);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, x.b + 16, B_STRIDE);
            _tile_dpbf16ps(1, 4, 7);
            if (two) {
                _tile_loadd(5, then, B_STRIDE);
                _tile_dpbf16ps(2, 4, 5);
                _tile_loadd(6, then + 16, B_STRIDE);
                _tile_dpbf16ps(3, 4, 6);
            }
            x.a += 64;
            x.b += CHUNK_STEPS * MM_PANEL;
        }
    }
    end_all(w->before);
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(1, c + 16, B_STRIDE);
    if (two) {
        _tile_stored(2, c + 16 * MM_PANEL, B_STRIDE);
        _tile_stored(3, c + 16 * MM_PANEL + 16, B_STRIDE);
    }
}

/* ---- codes in groups ---- */

#define TILE_ROWS 16

/* 16 rows and columns of a chain of groups, and what the unit has left of groups at hand. */
typedef struct groups {
    const chain *of;
    int64_t row, column;
    const float *scale[MM_PASSES]; /* and, a panel's row later, what is added */
    float sum[2][TILE_ROWS * LANES] __attribute__((aligned(64)));
} groups;

/* Group p by the unit, into a tile of the odd ones or of the even ones. */
static inline __attribute__((always_inline)) void multiply_group(groups *g, int p, const bool odd)
{
    const int64_t ld = g->of->band->words * 4; /* of A */
    const part x = part_of(g->of, p);
    const char *a = x.a + g->row * ld;
    const uint32_t *b = x.b + g->column / MM_PANEL * x.panel + g->column % MM_PANEL,
                   *end = b + x.steps * MM_PANEL;
    g->scale[p] = (const float *)end;
    if (odd)
        _tile_zero(1);
    else
        _tile_zero(0);
    for (; b < end; a += 64, b += CHUNK_STEPS * MM_PANEL)
        if (odd) {
            _tile_loadd(5, a, ld);
            _tile_loadd(7, b, B_STRIDE);
            _tile_dpbf16ps(1, 5, 7);
        } else {
            _tile_loadd(4, a, ld);
            _tile_loadd(6, b, B_STRIDE);
            _tile_dpbf16ps(0, 4, 6);
        }
}

static inline __attribute__((always_inline)) void store_group(groups *g, const bool odd)
{
    if (odd)
        _tile_stored(1, g->sum[1], LANES * 4);
    else
        _tile_stored(0, g->sum[0], LANES * 4);
}

static inline __attribute__((always_inline)) void add_group(vec sum[TILE_ROWS], const groups *g,
                                                            int p, const bool odd, const int rows)
{
    const mm_band *band = g->of->band;
    const mm_pass *pass = &band->pass[p];
    const char *s = (const char *)band->a + (pass->sums + g->row * band->words) * 4;
    const vec scale = LOAD(g->scale[p]);
    UNROLL for (int r = 0; r < rows; r++) sum[r] =
        _mm512_fmadd_ps(scale, LOAD(g->sum[odd] + r * LANES), sum[r]);
    if (!pass->added)
        return;
    const vec more = LOAD(g->scale[p] + MM_PANEL);
    UNROLL for (int r = 0; r < rows; r++) sum[r] =
        _mm512_fmadd_ps(more, WORD(s + r * band->words * 4), sum[r]);
}

/* What the chain goes on from. The last row's is there for those that the band does not have. */
static inline __attribute__((always_inline)) void begin_groups(vec sum[TILE_ROWS], const groups *g,
                                                               const int rows)
{
    const mm_band *band = g->of->band;
    const mm_pass *pass = &band->pass[g->of->begin];
    const int64_t last = band->rows - 1 - g->row;
    if (!pass->started) {
        UNROLL for (int r = 0; r < rows; r++) sum[r] = SPLAT(-0.0f); /* adding it changes nothing */
        return;
    }
    const float *before =
        mm_sums_at(band, pass->addend[0], g->of->j + g->column / MM_PANEL * MM_PANEL) +
        g->row * MM_PANEL + g->column % MM_PANEL;
    UNROLL for (int r = 0; r < rows; r++) sum[r] = LOAD(before + mm_min(r, last) * MM_PANEL);
}

/* Sums of the first `rows` of 16 rows, from `row` of the band on, and of 16 columns, which stay in
 * registers over a chain's groups. What the unit leaves of a group goes through the first-level
 * cache, and waits there while the unit goes on. */
static inline __attribute__((always_inline)) void
sums_of_groups(float *c, const chain *of, int64_t row, int64_t column, const int rows)
{
    groups g;
    g.of = of;
    g.row = row;
    g.column = column;
    vec sum[TILE_ROWS];
    begin_groups(sum, &g, rows);
    multiply_group(&g, of->begin, false);
    for (int p = of->begin; p < of->end; p += 2) {
        if (p + 1 < of->end)
            multiply_group(&g, p + 1, true);
        if (p > of->begin)
            add_group(sum, &g, p - 1, true, rows);
        store_group(&g, false);
        if (p + 2 < of->end)
            multiply_group(&g, p + 2, false);
        add_group(sum, &g, p, false, rows);
        if (p + 1 < of->end)
            store_group(&g, true);
    }
    if ((of->end - of->begin) % 2 == 0)
        add_group(sum, &g, of->end - 1, true, rows);
    UNROLL for (int r = 0; r < rows; r++) STORE(c + r * MM_PANEL, sum[r]);
}

static void groups_8(float *c, const chain *of, int64_t r0, int64_t column)
{
    sums_of_groups(c, of, r0, column, TILE_ROWS / 2);
}

static void groups_16(float *c, const chain *of, int64_t r0, int64_t column)
{
    sums_of_groups(c, of, r0, column, TILE_ROWS);
}

/* All of a tile's rows and `cols` columns: of each panel's sums where sums_1() and sums_2() have
 * them. */
static void run_groups(float *sum, const walk *w, int64_t cols)
{
    const int64_t rows = w->of.band->rows;
    end_all(w->before);
    for (int64_t j = 0; j < cols; j += LANES)
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            float *c = sum + (r + j / MM_PANEL * TILE_ROWS) * MM_PANEL + j % MM_PANEL;
            (rows - r > TILE_ROWS / 2 ? groups_16 : groups_8)(c, &w->of, r, j);
            if (j == 0)
                mm_ask(w->soon, w->lines * w->chunks);
        }
}

/* ---- all panels of a band ---- */

/* How the sums of a chain end in panel `next` of the tile; false if they have to go on by
 * finish_panel(). */
static bool begin_end(ending *e, const chain *of, const float *sum, int64_t next)
{
    const mm_band *band = of->band;
    const mm_pass *first = &band->pass[of->begin], *last = &band->pass[of->end - 1];
    const mm_finish *f = of->end == band->passes ? band->finish : NULL;
    const int64_t j = of->j + next * MM_PANEL, at = next * band->rows * MM_PANEL;
    mm_ending *left = e->left;
    *e = (ending){ left, of->end - of->begin > 1 && !last->scaled, *of, next * MM_PANEL };
    *left = (mm_ending){ .sum = sum + next * 16 * MM_PANEL, .ld = MM_PANEL, .rows = band->rows };
    /* The first addend of a chained pass is the sum that the unit went on from; a group's is in its
     * sum. */
    const int before = last->scaled ? last->started : last != first;
    for (int q = before; q < last->addends; q++)
        left->addend[left->addends++] = mm_sums_at(band, last->addend[q], of->j) + at;
    if (f == NULL) {
        left->to = mm_sums_at(band, last->to, of->j) + at;
        return true;
    }
    left->to = (float *)left->sum;
    if (f->transposed || (band->cols - j < MM_PANEL && band->cols - j != LANES))
        return false;
    left->half = band->cols - j == LANES;
    left->row = band->row0;
    left->column = band->col0 + j;
    left->finish = f;
    left->way = FINISHED;
    if (mm_finish_is_plain(f)) {
        left->to = (char *)f->y + (left->row * f->ldy + left->column) * mm_size(f->out);
        left->ld = f->ldy;
        left->way = f->out == SHEAF_BF16 ? TO_HALVES : f->add ? ADD_F32 : TO_F32;
    }
    return true;
}

static void end_panel(ending *e, const chain *of, float *sum, int64_t next)
{
    const mm_band *band = of->band;
    const int64_t j = of->j + next * MM_PANEL;
    if (begin_end(e, of, sum, next))
        return; /* the rest is done beside the next chain */
    end_all(e);
    finish_panel(band->finish, e->left->sum, band->row0, band->col0 + j, band->rows,
                 mm_min(MM_PANEL, band->cols - j));
}

/* Whether pass p goes on from the sums of the one before in one chain. */
static bool goes_on(const mm_band *band, int p)
{
    const mm_pass *pass = &band->pass[p];
    return pass->chained || (pass->scaled && pass->started && pass[-1].scaled);
}

/* The chain that begins with pass p. */
static chain chain_at(const mm_band *band, int p, int64_t j)
{
    chain of = { band, p, p + 1, j };
    while (of.end < band->passes && goes_on(band, of.end))
        of.end++;
    return of;
}

static int chunks_of(const mm_band *band, int begin, int end)
{
    int64_t steps = 0;
    for (int p = begin; p < end; p++)
        steps += band->pass[p].steps;
    return (int)(steps / CHUNK_STEPS);
}

/* A chain for `cols` columns, at most a tile's; e: the ending of the chain before, then of this. */
static void run_chain(walk *w, ending *e, float *sum, int64_t cols)
{
    const mm_band *band = w->of.band;
    const mm_pass *pass = &band->pass[w->of.begin];
    const int chunks = chunks_of(band, w->of.begin, w->of.end),
              left = (int)(e->left->rows - e->left->done);
    w->before = e;
    if (band->finish && w->of.end == band->passes)
        ask_addend(band->finish, band->row0, band->col0 + w->of.j, band->rows, cols);
    const int fours = (left + 3) / 4;
    w->fours = chunks >= fours ? 1 : chunks == 0 ? 0 : (fours + chunks - 1) / chunks;
    w->chunks = chunks;
    /* The sums of a slice's first block are what they are; the unit stores whole tiles. */
    const bool low = band->rows <= 16, two = low && cols > MM_PANEL,
               whole = band->rows == MM_PANEL && cols > 16,
               alone = pass->addends == 0 && !pass->scaled && w->of.end == w->of.begin + 1;
    if (whole && alone && (w->of.end < band->passes || band->finish == NULL)) {
        sums_2(mm_sums_at(band, pass->to, w->of.j), w, true);
        return;
    }
    if (pass->scaled)
        run_groups(sum, w, cols);
    else if (low && two)
        sums_1(sum, w, true);
    else if (low)
        sums_1(sum, w, false);
    else if (cols > 16)
        sums_2(sum, w, true);
    else
        sums_2(sum, w, false);
    end_panel(e, &w->of, sum, 0);
    if (two) {
        end_all(e);
        end_panel(e, &w->of, sum, 1);
    }
}

void mm_run_amx(const mm_band *band)
{
    mm_soon *list = band->soon;
    ending e = { .left = band->ending };
    walk w = { .soon = &list };
    const int64_t tile = band->rows > 16 ? MM_PANEL : 2 * MM_PANEL,
                  chunks = chunks_of(band, 0, band->passes) * mm_div_up(band->cols, tile);
    if (chunks > 0)
        w.lines = mm_div_up(band->lines, chunks);
    for (int64_t j = 0; j < band->cols; j += tile)
        for (int p = 0; p < band->passes; p = w.of.end) {
            w.of = chain_at(band, p, j);
            run_chain(&w, &e, band->stored, mm_min(tile, band->cols - j));
        }
    if (e.chained)
        end_all(&e);
}
