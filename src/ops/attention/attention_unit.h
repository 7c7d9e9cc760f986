/* attention_unit.h - a product of attention_tile.h by the tile unit; part of attention_avx512.c.
 *
 * Panels of b are tiles of the unit as they lie: 16 steps are 16 rows of 64 bytes. So are rows of a
 * whose words lie side by side; where the steps lie apart, a is turned in squares of 16 x 16. What
 * is missing of the last 16 rows of a, or of the last 16 steps of both, is filled up with zeros. */

#include "ops/tile_unit.h"

#define MOST_CHUNKS (SHEAF__ATTENTION_BLOCK / SHEAF__ATTENTION_CHUNK)
#define MOST_PANELS 16

static inline void begin_unit(void)
{
    _tile_loadconfig(&sheaf__whole_tiles);
}
static inline void end_unit(void)
{
    _tile_release();
}

/* 16 rows of a: chunk i starts at `at` + i * `chunk`. */
typedef struct strip {
    const char *at;
    int64_t row, chunk; /* bytes */
} strip;

/* to[r][s] = word r of the step at from + s * step bytes; steps from count on are zero. */
static void turn_square(uint32_t *to, const char *from, int64_t step, int64_t count)
{
    __m512i x[16], y[16];
    UNROLL for (int s = 0; s < 16; s++) x[s] =
        s < count ? _mm512_loadu_si512(from + s * step) : _mm512_setzero_si512();
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) UNROLL for (int h = 0; h < 2; h++)
    { /* x[i + 2 * h + ..]: word 4 * lane + 2 * h + .. of steps i .. i + 3 */
        x[i + 2 * h] = _mm512_unpacklo_epi64(y[i + h], y[i + 2 + h]);
        x[i + 2 * h + 1] = _mm512_unpackhi_epi64(y[i + h], y[i + 2 + h]);
    }
    UNROLL for (int w = 0; w < 4; w++)
    {
        const __m512i a = _mm512_shuffle_i32x4(x[w], x[4 + w], 0x88),
                      b = _mm512_shuffle_i32x4(x[w], x[4 + w], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(x[8 + w], x[12 + w], 0x88),
                      d = _mm512_shuffle_i32x4(x[8 + w], x[12 + w], 0xdd);
        _mm512_storeu_si512(to + w * 16, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_storeu_si512(to + (8 + w) * 16, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_storeu_si512(to + (4 + w) * 16, _mm512_shuffle_i32x4(b, d, 0x88));
        _mm512_storeu_si512(to + (12 + w) * 16, _mm512_shuffle_i32x4(b, d, 0xdd));
    }
}

/* Rows [row, row + 16) of a, as far as there are `rows`. */
static strip strip_at(uint32_t *buffer, const tile *t, int64_t row, int64_t rows)
{
    const char *from = t->a + row * t->a_row;
    const int64_t have = least(rows - row, 16), tail = t->steps % 16;
    if (t->a_step == 4 && have == 16 && tail == 0)
        return (strip){ from, t->a_row, 64 };
    for (int64_t s = 0; s < t->steps; s += 16) {
        const int64_t steps = least(t->steps - s, 16);
        uint32_t *to = buffer + s * 16;
        if (t->a_step != 4) {
            turn_square(to, from + s * t->a_step, t->a_step, steps);
            continue;
        }
        const __mmask16 words = (__mmask16)((1u << steps) - 1);
        for (int64_t r = 0; r < 16; r++) {
            const __mmask16 mask = r < have ? words : 0;
            _mm512_storeu_si512(
                to + r * 16,
                _mm512_maskz_loadu_epi32(mask, r < have ? from + r * t->a_row + s * 4 : from));
        }
    }
    return (strip){ (const char *)buffer, 64, SQUARE * 4 };
}

/* The last steps of each panel of b, filled up. */
static void fill_tails(uint32_t *tails, const tile *t, int64_t panels)
{
    const int64_t tail = t->steps % 16, skip = (t->steps - tail) * 16;
    for (int64_t p = 0; tail > 0 && p < panels; p++) {
        memcpy(tails + p * SQUARE, t->b + p * t->b_panel + skip, (size_t)(tail * 16) * 4);
        memset(tails + p * SQUARE + tail * 16, 0, (size_t)((16 - tail) * 16) * 4);
    }
}

/* The sums of 16 or 32 rows and one or two panels, [2][2][16][16], of which there is what was asked
 * for; b: chunk i of panel p is b[p] + i * 256 words, the last one last[p]. */
SHEAF__INLINE void unit_sums(float *c, const strip *a, const uint32_t *const *b,
                             const uint32_t *const *last, int64_t chunks, const bool rows32,
                             const bool wide)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < chunks; i++) {
        _tile_loadd(6, i + 1 < chunks ? b[0] + i * SQUARE : last[0], 64);
        _tile_loadd(4, a[0].at + i * a[0].chunk, a[0].row);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) {
            _tile_loadd(7, i + 1 < chunks ? b[1] + i * SQUARE : last[1], 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (rows32) {
            _tile_loadd(5, a[1].at + i * a[1].chunk, a[1].row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (rows32 && wide)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 64);
    if (wide)
        _tile_stored(1, c + SQUARE, 64);
    if (rows32)
        _tile_stored(2, c + 2 * SQUARE, 64);
    if (rows32 && wide)
        _tile_stored(3, c + 3 * SQUARE, 64);
}

/* end_tile() of `rows` rows of one panel. Half of a product of few steps would go into asking for
 * each row what is to be done. */
SHEAF__INLINE void end_square(const tile *t, const float *c, int64_t row, int64_t rows,
                              int64_t panel)
{
    float *to = t->c + row * t->c_row + panel * t->c_panel;
    const int64_t ld = t->c_row;
    const vec scale = v_set(t->scale);
    if (t->add && rows == 16)
        UNROLL for (int r = 0; r < 16; r++)
            store(to + r * ld, v_add(load(to + r * ld), load(c + r * 16)));
    else if (t->add)
        for (int64_t r = 0; r < rows; r++)
            store(to + r * ld, v_add(load(to + r * ld), load(c + r * 16)));
    else if (rows == 16)
        UNROLL for (int r = 0; r < 16; r++) store(to + r * ld, v_mul(scale, load(c + r * 16)));
    else
        for (int64_t r = 0; r < rows; r++)
            store(to + r * ld, v_mul(scale, load(c + r * 16)));
}

/* Of [2][2][16][16] those that are there. */
static void end_squares(const tile *t, const float *c, int64_t row, int64_t rows, int64_t panel,
                        int64_t panels)
{
    for (int64_t i = 0; i * 16 < rows; i++)
        for (int64_t p = 0; p < panels; p++)
            end_square(t, c + (i * 2 + p) * SQUARE, row + i * 16, least(rows - i * 16, 16),
                       panel + p);
}

SHEAF__INLINE void squares_unit(const squares *s, const bool rows32, const bool wide)
{
    float *c = s->c, *down = c + s->c_down;
    if (s->on) {
        _tile_loadd(0, c, 64);
        if (wide)
            _tile_loadd(1, c + s->c_right, 64);
        if (rows32)
            _tile_loadd(2, down, 64);
        if (rows32 && wide)
            _tile_loadd(3, down + s->c_right, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < s->chunks; i++) {
        const char *a = s->a + i * s->a_chunk;
        const uint32_t *b = s->b + i * SQUARE;
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, s->a_row);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) {
            _tile_loadd(7, b + s->b_right, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (rows32) {
            _tile_loadd(5, a + s->a_down, s->a_row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (rows32 && wide)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 64);
    if (wide)
        _tile_stored(1, c + s->c_right, 64);
    if (rows32)
        _tile_stored(2, down, 64);
    if (rows32 && wide)
        _tile_stored(3, down + s->c_right, 64);
}

static void product_unit(const tile *t, int64_t rows, int64_t panels)
{
    uint32_t buffer[2][MOST_CHUNKS * SQUARE] __attribute__((aligned(64)));
    uint32_t tails[MOST_PANELS * SQUARE] __attribute__((aligned(64)));
    float c[4 * SQUARE] __attribute__((aligned(64)));
    const int64_t chunks = (t->steps + 15) / 16;
    assert(chunks <= MOST_CHUNKS && panels <= MOST_PANELS);
    fill_tails(tails, t, panels);
    for (int64_t row = 0; row < rows; row += 32) {
        const bool two = row + 16 < rows;
        strip a[2] = { { 0 } };
        a[0] = strip_at(buffer[0], t, row, rows);
        if (two)
            a[1] = strip_at(buffer[1], t, row + 16, rows);
        for (int64_t p = 0; p < panels; p += 2) {
            const int64_t wide = least(panels - p, 2);
            const uint32_t *b[2], *last[2];
            for (int64_t i = 0; i < 2; i++) {
                b[i] = t->b + (p + (i < wide ? i : 0)) * t->b_panel;
                last[i] = t->steps % 16 != 0 ? tails + (p + (i < wide ? i : 0)) * SQUARE
                                             : b[i] + (chunks - 1) * SQUARE;
            }
            if (two && wide == 2)
                unit_sums(c, a, b, last, chunks, true, true);
            else if (two)
                unit_sums(c, a, b, last, chunks, true, false);
            else
                unit_sums(c, a, b, last, chunks, false, true);
            end_squares(t, c, row, least(rows - row, 32), p, wide);
        }
    }
}
