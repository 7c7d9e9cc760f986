/* matmul_amx.c - the order `tiles` by the tile unit: 32 x 32 sums in four accumulators.
 *
 * A panel of B is what the unit wants: a row of a tile is a step, 16 words of a panel. Rows of A
 * lie in scratch, filled up with zeros to whole chunks as the panels are, because a tile of
 * fewer steps would end its chains earlier than the order says. The unit takes denormals as
 * zero and flushes results whatever MXCSR says, as compute threads have it.
 * A thread configures the tiles when it begins an area and gives them back when it ends it.
 *
 * What the unit waits for is the first-level cache: loads of tiles, lines of B that come into
 * it, and the running sums that go through it. So a panel's sums are added to what is there in
 * portions, while the unit computes the next panel. */
#include "ops/matmul/matmul_vec512.h"

#undef TILES
#include "ops/matmul/matmul_finish.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define CHUNK_STEPS (MM_CHUNK / 2)
#define A_STRIDE (MM_STRIDE_PAIRS * 4)
#define B_STRIDE (MM_PANEL * 4)

/* All eight tiles have 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Constant: the compiler does not know that the instruction reads all of it. */
static const tile_config whole = { .palette = 1,
                                   .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                   .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };

void mm_enter_amx(void)
{
    _tile_loadconfig(&whole);
}
void mm_leave_amx(void)
{
    _tile_release();
}

/* ---- where a panel's sums of one block go ---- */

typedef enum way {
    TO_SUMS,  /* partial sums */
    TO_F32,   /* the result, as it is */
    ADD_F32,  /* the same, added to what is there */
    TO_HALVES /* the result, rounded to bfloat16 */
} way;

/* `sum` [rows][32] is added to addends of the same form; a result has a row stride of its own. */
typedef struct ending {
    way way;
    const float *sum;
    const float *addend[MM_DEPTH];
    int addends;
    void *to;
    int64_t ld; /* elements between rows of `to` */
    int64_t rows, done;
} ending;

static inline __attribute__((always_inline)) void end_row(const ending *e, int64_t r,
                                                          const int addends, const way way)
{
    vec x = LOAD(e->sum + r * MM_PANEL), y = LOAD(e->sum + r * MM_PANEL + LANES);
    for (int q = 0; q < addends; q++) {
        x = ADD(LOAD(e->addend[q] + r * MM_PANEL), x);
        y = ADD(LOAD(e->addend[q] + r * MM_PANEL + LANES), y);
    }
    float *to = (float *)e->to + r * e->ld;
    if (way == ADD_F32) {
        x = ADD(LOAD(to), x);
        y = ADD(LOAD(to + LANES), y);
    }
    if (way != TO_SUMS && __builtin_expect(UNORDERED(x, y) != 0, 0)) {
        x = QUIET(x);
        y = QUIET(y);
    }
    if (way == TO_HALVES) {
        uint16_t *halves = (uint16_t *)e->to + r * e->ld;
        STORE_HALVES(halves, TO_BF16(x));
        STORE_HALVES(halves + LANES, TO_BF16(y));
        return;
    }
    STORE(to, x);
    STORE(to + LANES, y);
}

/* The next four rows, or what is left of them. */
static inline __attribute__((always_inline)) void end_four(ending *e, const int addends,
                                                           const way way)
{
    const int64_t r = e->done, left = e->rows - r;
    e->done = r + mm_min(4, left);
    if (left >= 4)
        UNROLL for (int i = 0; i < 4; i++) end_row(e, r + i, addends, way);
    else
        for (int64_t i = r; i < e->rows; i++)
            end_row(e, i, addends, way);
}

static inline __attribute__((always_inline)) void end_way(ending *e, const way way)
{
    if (e->addends == 0)
        end_four(e, 0, way);
    else if (e->addends == 1)
        end_four(e, 1, way);
    else
        end_four(e, e->addends, way);
}

static void end_some(ending *e)
{
    switch (e->way) {
    case TO_SUMS: end_way(e, TO_SUMS); break;
    case TO_F32: end_way(e, TO_F32); break;
    case ADD_F32: end_way(e, ADD_F32); break;
    case TO_HALVES: end_way(e, TO_HALVES); break;
    }
}

static void end_all(ending *e)
{
    while (e->done < e->rows)
        end_some(e);
}

/* ---- the unit's part ---- */

/* What a band needs while it is multiplied. */
typedef struct walk {
    const char *a;
    int64_t steps;
    mm_soon **soon;
    int64_t lines;  /* to ask for every chunk */
    ending *before; /* of the panel before: the next rows every chunk */
} walk;

/* Sums of 16 rows lie `MM_PANEL` floats apart. Tiles 0..3 are sums, 4 and 5 are of A, the rest
 * of B; every function is one shape, as the instructions name their tiles. */
static void sums_2x2(float *c, const walk *w, const uint32_t *b)
{
    const char *a = w->a;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < w->steps; s += CHUNK_STEPS, a += 64, b += CHUNK_STEPS * MM_PANEL) {
        mm_ask(w->soon, w->lines);
        _tile_loadd(6, b, B_STRIDE);
        _tile_loadd(4, a, A_STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, B_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        if (w->before->done < w->before->rows)
            end_some(w->before);
        _tile_loadd(5, a + 16 * A_STRIDE, A_STRIDE);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(1, c + 16, B_STRIDE);
    _tile_stored(2, c + 16 * MM_PANEL, B_STRIDE);
    _tile_stored(3, c + 16 * MM_PANEL + 16, B_STRIDE);
}

/* 16 columns. */
static void sums_2x1(float *c, const walk *w, const uint32_t *b)
{
    const char *a = w->a;
    _tile_zero(0);
    _tile_zero(2);
    for (int64_t s = 0; s < w->steps; s += CHUNK_STEPS, a += 64, b += CHUNK_STEPS * MM_PANEL) {
        mm_ask(w->soon, w->lines);
        _tile_loadd(6, b, B_STRIDE);
        _tile_loadd(4, a, A_STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + 16 * A_STRIDE, A_STRIDE);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(2, c + 16 * MM_PANEL, B_STRIDE);
}

/* 16 rows of two panels. */
static void sums_1x4(float *c, const walk *w, const uint32_t *b)
{
    const char *a = w->a;
    const uint32_t *then = b + w->steps * MM_PANEL;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < w->steps; s += CHUNK_STEPS, a += 64) {
        mm_ask(w->soon, w->lines);
        _tile_loadd(4, a, A_STRIDE);
        _tile_loadd(6, b, B_STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, B_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, then, B_STRIDE);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, then + 16, B_STRIDE);
        _tile_dpbf16ps(3, 4, 6);
        b += CHUNK_STEPS * MM_PANEL;
        then += CHUNK_STEPS * MM_PANEL;
    }
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(1, c + 16, B_STRIDE);
    _tile_stored(2, c + 16 * MM_PANEL, B_STRIDE);
    _tile_stored(3, c + 16 * MM_PANEL + 16, B_STRIDE);
}

/* 16 rows of one panel. */
static void sums_1x2(float *c, const walk *w, const uint32_t *b)
{
    const char *a = w->a;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t s = 0; s < w->steps; s += CHUNK_STEPS, a += 64, b += CHUNK_STEPS * MM_PANEL) {
        mm_ask(w->soon, w->lines);
        _tile_loadd(4, a, A_STRIDE);
        _tile_loadd(6, b, B_STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, B_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, B_STRIDE);
    _tile_stored(1, c + 16, B_STRIDE);
}

/* ---- all panels of a band ---- */

/* How the sums of panel j end; false if they have to go on by finish_rest(). */
static bool begin_end(ending *e, const mm_band *band, float *sum, int64_t j)
{
    const mm_finish *f = band->finish;
    const int64_t at = j * band->rows;
    *e = (ending){ .sum = sum, .addends = band->addends, .ld = MM_PANEL, .rows = band->rows };
    for (int q = 0; q < band->addends; q++)
        e->addend[q] = band->addend[q] + at;
    e->to = f ? sum : band->to + at;
    if (f == NULL || f->transposed || band->cols - j < MM_PANEL || !mm_finish_is_plain(f))
        return f == NULL;
    e->to = (char *)f->y + (band->row0 * f->ldy + band->col0 + j) * mm_size(f->out);
    e->ld = f->ldy;
    e->way = f->out == SHEAF_BF16 ? TO_HALVES : f->add ? ADD_F32 : TO_F32;
    return true;
}

static void finish_rest(const mm_band *band, const float *sum, int64_t j)
{
    finish_panel(band->finish, sum, band->row0, band->col0 + j, band->rows,
                 mm_min(MM_PANEL, band->cols - j));
}

static void end_panel(const mm_band *band, float *sum, int64_t j)
{
    ending e;
    const bool plain = begin_end(&e, band, sum, j);
    end_all(&e);
    if (!plain)
        finish_rest(band, sum, j);
}

/* Panels of 32 rows, as long as they have more than 16 columns; returns where that ends. */
static int64_t run_whole(const mm_band *band, walk *w)
{
    float sum[2][MM_PANEL * MM_PANEL] __attribute__((aligned(64)));
    ending end[2] = { 0 };
    int64_t j = 0;
    for (int turn = 0; band->cols - j > 16; j += MM_PANEL, turn ^= 1) {
        ending *now = &end[turn];
        const bool plain = begin_end(now, band, sum[turn], j);
        /* A first block's sums are what they are; the unit stores whole tiles. */
        const bool stored = !band->finish && band->addends == 0 && band->rows == MM_PANEL;
        w->before = &end[turn ^ 1];
        sums_2x2(stored ? now->to : sum[turn], w, band->b ? band->b + j * w->steps : NULL);
        end_all(w->before);
        if (stored)
            now->done = now->rows;
        if (!plain) {
            end_all(now);
            finish_rest(band, sum[turn], j);
        }
    }
    end_all(&end[0]);
    end_all(&end[1]);
    return j;
}

void mm_run_amx(const mm_band *band)
{
    float sum[MM_PANEL * MM_PANEL] __attribute__((aligned(64)));
    mm_soon soon = band->soon, *list = &soon;
    walk w = { .a = band->a, .steps = band->steps, .soon = &list };
    const int64_t chunks = band->steps / CHUNK_STEPS * mm_div_up(band->cols, MM_PANEL);
    if (chunks > 0)
        w.lines = mm_div_up(mm_soon_lines(&soon) + band->lines, chunks);
    for (int64_t j = band->rows > 16 ? run_whole(band, &w) : 0; j < band->cols; j += MM_PANEL) {
        const uint32_t *b = band->b == NULL ? NULL : band->b + j * band->steps;
        if (band->rows > 16) {
            sums_2x1(sum, &w, b);
        } else if (band->cols - j > MM_PANEL && b != NULL) {
            sums_1x4(sum, &w, b);
            end_panel(band, sum, j);
            j += MM_PANEL;
            end_panel(band, sum + 16 * MM_PANEL, j);
            continue;
        } else {
            sums_1x2(sum, &w, b);
        }
        end_panel(band, sum, j);
    }
}
