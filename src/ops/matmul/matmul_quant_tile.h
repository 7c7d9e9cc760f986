/* matmul_quant_tile.h - tiles of few rows that take codes of 4 bits as they lie in memory
 * (matmul_quant.h), and make words of a panel of them in registers; part of matmul_kernel.h.
 *
 * A word has eight codes. The lookup sees only the lowest four bits, so every second code is there
 * where the word is loaded from its second, third or fourth byte on: the units that shift are what
 * such a tile waits for, loads are not. */
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_quant512.h"
#include "ops/quant/values.h"

/* The two vectors of a step from codes that lie lowest in words. */
static inline __attribute__((always_inline)) void
words_of_step(__m512i w[2], const __m512i code[4], __m512 numbers, const __m512 scale[4])
{
    __m512 x[4];
    UNROLL for (int q = 0; q < 4; q++) x[q] =
        _mm512_mul_ps(_mm512_permutexvar_ps(code[q], numbers), scale[q]);
    UNROLL for (int v = 0; v < 2; v++) w[v] = (__m512i)_mm512_cvtne2ps_pbh(x[2 * v + 1], x[2 * v]);
}

/* `steps` of a unit, of which there are 8; of the last one, if it is `odd`, the second column is
 * none. */
static inline __attribute__((always_inline)) void
unit_of_codes(vec c[ROWS][MOST_VECTORS], const char *a, const uint32_t *words, int64_t steps,
              bool odd, __m512 numbers, const __m512 scale[4], const int rows)
{
    __m512i code[4];
    UNROLL for (int s = 0; s < 8; s++)
    {
        __m512i w[2];
        if (s >= steps)
            return;
        UNROLL for (int q = 0; q < 4; q++)
        {
            code[q] = s % 2 ? _mm512_srli_epi32(code[q], 4)
                            : _mm512_loadu_si512((const char *)(words + 16 * q) + s / 2);
            __asm__("" : "+v"(code[q])); /* not loaded again for the next step */
        }
        words_of_step(w, code, numbers, scale);
        if (odd && s + 1 == steps) {
            w[0] = _mm512_and_si512(w[0], _mm512_set1_epi32(0xffff));
            w[1] = _mm512_and_si512(w[1], _mm512_set1_epi32(0xffff));
        }
        step_wide(c, a + 4 * s, (const uint32_t *)w, 0, rows, 2);
    }
}

/* Scales of a group, each for two columns; false: vectors would flush what they are for. */
static inline __attribute__((always_inline)) bool scales_of(__m512 scale[4], const float *from)
{
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                  high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 x = _mm512_loadu_ps(from), y = _mm512_loadu_ps(from + 16);
    scale[0] = _mm512_permutexvar_ps(low, x);
    scale[1] = _mm512_permutexvar_ps(high, x);
    scale[2] = _mm512_permutexvar_ps(low, y);
    scale[3] = _mm512_permutexvar_ps(high, y);
    return ORDINARY(x) && ORDINARY(y);
}

static inline __attribute__((always_inline)) bool tile_of_taken(const operands *in, const store *s,
                                                                const float *scales,
                                                                const uint32_t *words,
                                                                const int rows)
{
    static const uint32_t nf4[16] = SHEAF__NF4_BITS, fp4[16] = SHEAF__FP4_BITS;
    static const float int4[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 };
    const mm_taken *t = in->taken;
    const sheaf__codes codes = t->w->quant.codes;
    const __m512 numbers = _mm512_loadu_ps(codes == SHEAF__NF4   ? (const void *)nf4
                                           : codes == SHEAF__FP4 ? (const void *)fp4
                                                                 : (const void *)int4);
    const char *a = in->a;
    vec c[ROWS][MOST_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) c[r][0] = c[r][1] = ZERO();
    for (int64_t col = 0; col < t->cols; scales += MM_PANEL) {
        const int64_t end = mm_min(t->cols, col + t->block);
        __m512 scale[4];
        if (!scales_of(scale, scales))
            return false;
        for (; col + 16 <= end; col += 16, words += 8 * MM_PANEL / 4, a += 32)
            unit_of_codes(c, a, words, 8, false, numbers, scale, rows);
        if (col < end)
            unit_of_codes(c, a, words, (end - col + 1) / 2, end % 2 != 0, numbers, scale, rows);
        col = end;
    }
    put(c, s, rows, 2);
    return true;
}

#define TAKEN_TILE(rows)                                                                           \
    static bool taken_##rows(const operands *in, const store *s, const float *scales,              \
                             const uint32_t *words)                                                \
    {                                                                                              \
        return tile_of_taken(in, s, scales, words, rows);                                          \
    }
#define TAKEN_ROW(rows) taken_##rows,
TAKEN(TAKEN_TILE)
typedef bool taken_fn(const operands *in, const store *s, const float *scales,
                      const uint32_t *words);
static taken_fn *const tiles_of_taken[] = { TAKEN(TAKEN_ROW) };

/* By a panel in memory, where it has to be. */
static __attribute__((noinline)) void run_expanded(const mm_codes *l, const operands *in,
                                                   const store *s, tile_fn *run)
{
    const mm_taken *t = in->taken;
    uint32_t panel[MM_PANEL * MM_BLOCK / 2];
    operands plain = *in;
    NAME(mm_values)(panel, l, t->row + in->panel * MM_PANEL, t->k0, t->cols, false);
    plain.b = panel;
    run(&plain, s);
}

/* Scales that are codes themselves; false: as scales_of(). */
static inline bool restored(float *to, const mm_taken *t, int64_t panel, const uint8_t *codes)
{
    const __m512i apart = _mm512_set1_epi32((int)t->apart),
                  row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const bool alike = (t->number | t->apart) % 4 == 0 && t->block == 64; /* in one of 256 groups */
    bool ordinary = true;
    for (int half = 0; half < 2; half++) {
        const int64_t first = panel * MM_PANEL + 16 * half, rows = t->w->n - t->row - first;
        const __mmask16 have = rows >= 16 ? 0xffff : rows <= 0 ? 0 : (__mmask16)((1 << rows) - 1);
        const __m512i number = _mm512_add_epi32(
            _mm512_set1_epi32((int)(t->number + first * t->apart)), _mm512_mullo_epi32(row, apart));
        __m512 by = _mm512_setzero_ps();
        for (int64_t g = 0; g * t->block < t->cols; g++) {
            const __m512i at = _mm512_srli_epi32(
                              _mm512_add_epi32(number, _mm512_set1_epi32((int)g)), 8),
                          code = _mm512_cvtepu8_epi32(
                              _mm_loadu_si128((const __m128i *)(codes + g * MM_PANEL + 16 * half)));
            if (g == 0 || !alike) {
                by = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), have, at, t->nested, 4);
                ordinary = ordinary && ORDINARY(by);
            }
            const __m512 product = _mm512_mul_ps(_mm512_i32gather_ps(code, t->map, 4), by);
            _mm512_storeu_ps(to + g * MM_PANEL + 16 * half,
                             _mm512_add_ps(product, _mm512_set1_ps(t->w->offset)));
        }
    }
    return ordinary;
}

static inline void run_taken(const operands *in, const store *s, int64_t rows, tile_fn *run)
{
    const mm_taken *t = in->taken;
    const char *cell = (const char *)in->b + in->panel * t->bytes;
    const float *scales = (const float *)cell;
    float all[MM_BLOCK / 16 * MM_PANEL];
    bool able = true;
    if (t->w->quant.doubled) {
        able = restored(all, t, in->panel, (const uint8_t *)cell);
        scales = all;
    }
    if (able && tiles_of_taken[rows - 1](in, s, scales, (const uint32_t *)(cell + t->head)))
        return;
    const mm_codes l = sheaf__mm_codes(t->w);
    run_expanded(&l, in, s, run);
}
