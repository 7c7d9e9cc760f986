/* matmul_amx.c - the order `tiles` by the tile unit: 32 x 32 sums in four accumulators.
 *
 * A panel of B is what the unit wants: a row of a tile is a step, 16 words of a panel. Rows of A
 * lie in scratch, filled up with zeros to whole chunks as the panels are, because a tile of
 * fewer steps would end its chains earlier than the order says. The unit takes denormals as
 * zero and flushes results whatever MXCSR says, as compute threads have it.
 * A thread configures the tiles when it begins an area and gives them back when it ends it. */
#include "ops/matmul/matmul_vec512.h"

#undef TILES
#include "ops/matmul/matmul_finish.h"

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

/* What a band needs while it is multiplied. */
typedef struct walk {
    const char *a;
    int64_t steps;
    mm_soon **soon;
    int64_t lines; /* to ask for every chunk */
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

/* A block's sums of one panel, [rows][32], on their way: added to what is there, and stored or
 * given to the result; see mm_band. */
static void end_panel(const mm_band *band, float *sum, int64_t j)
{
    const mm_finish *f = band->finish;
    const int64_t at = j * band->rows, cols = mm_min(MM_PANEL, band->cols - j);
    const bool direct = f && !f->transposed && cols == MM_PANEL && mm_finish_is_plain(f);
    for (int64_t r = 0; r < band->rows; r++) {
        const int64_t row = at + r * MM_PANEL;
        vec x = LOAD(sum + r * MM_PANEL), y = LOAD(sum + r * MM_PANEL + LANES);
        for (int q = 0; q < band->addends; q++) {
            x = ADD(LOAD(band->addend[q] + row), x);
            y = ADD(LOAD(band->addend[q] + row + LANES), y);
        }
        float *to = f ? sum + r * MM_PANEL : band->to + row;
        if (direct) {
            const int64_t to_y = (band->row0 + r) * f->ldy + band->col0 + j;
            to = (float *)f->y + to_y;
            if (f->add) {
                x = ADD(LOAD(to), x);
                y = ADD(LOAD(to + LANES), y);
            }
            x = QUIET(x);
            y = QUIET(y);
            if (f->out == SHEAF_BF16) {
                STORE_HALVES((uint16_t *)f->y + to_y, TO_BF16(x));
                STORE_HALVES((uint16_t *)f->y + to_y + LANES, TO_BF16(y));
                continue;
            }
        }
        STORE(to, x);
        STORE(to + LANES, y);
    }
    if (f && !direct)
        finish_panel(f, sum, band->row0, band->col0 + j, band->rows, cols);
}

void mm_run_amx(const mm_band *band)
{
    float sum[MM_PANEL * MM_PANEL] __attribute__((aligned(64)));
    mm_soon soon = band->soon, *list = &soon;
    walk w = { .a = band->a, .steps = band->steps, .soon = &list };
    const int64_t panel = band->steps * MM_PANEL,
                  chunks = band->steps / CHUNK_STEPS * mm_div_up(band->cols, MM_PANEL);
    if (chunks > 0)
        w.lines = mm_div_up(mm_soon_lines(&soon) + band->lines, chunks);
    for (int64_t j = 0; j < band->cols; j += MM_PANEL) {
        const uint32_t *b =
            band->b == NULL ? NULL : band->b + j / MM_PANEL * panel; /* NULL: no steps */
        if (band->rows > 16 && band->cols - j > 16) {
            sums_2x2(sum, &w, b);
        } else if (band->rows > 16) {
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
