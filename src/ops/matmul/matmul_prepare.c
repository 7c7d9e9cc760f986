/* matmul_prepare.c - operands of a product into the rows and panels of matmul_private.h.
 *
 * Compiled with -mavx2; the AVX-512 kernels use it too, as copying is bound by
 * memory. */
#include "ops/math/math.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_transpose.h"

/* ---- spreading a pair into two float32 steps, odd element first ---- */

static inline void spread8(uint32_t *odd, uint32_t *even, __m256i words)
{
    _mm256_storeu_si256((__m256i *)odd,
                        _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000u)));
    _mm256_storeu_si256((__m256i *)even, _mm256_slli_epi32(words, 16));
}

/* Two float32 steps for each pair; downwards, so that dst may be src. */
static void spread_panels(uint32_t *dst, const uint32_t *src, int64_t steps)
{
    for (int64_t s = steps - 1; s >= 0; s--) {
        __m256i words[4];
        for (int v = 0; v < 4; v++)
            words[v] = _mm256_loadu_si256((const __m256i *)(src + s * MM_PANEL + v * 8));
        for (int v = 0; v < 4; v++)
            spread8(dst + 2 * s * MM_PANEL + v * 8, dst + (2 * s + 1) * MM_PANEL + v * 8, words[v]);
    }
}

/* One row of A in place: words [0, pairs) become floats [0, 2 * pairs). */
static void spread_row(uint32_t *row, int64_t pairs)
{
    for (int64_t p = mm_up(pairs, 8) - 8; p >= 0; p -= 8) {
        const __m256i words = _mm256_loadu_si256((const __m256i *)(row + p));
        const __m256i odd = _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000u));
        const __m256i even = _mm256_slli_epi32(words, 16);
        const __m256i low = _mm256_unpacklo_epi32(odd, even),
                      high = _mm256_unpackhi_epi32(odd, even);
        _mm256_storeu_si256((__m256i *)(row + 2 * p), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(row + 2 * p + 8),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
}

/* ---- widening 16 bits to float32 steps, in ascending order ---- */

/* One row of A in place: words [0, pairs) become floats [0, 2 * pairs). */
static void widen_row(uint32_t *row, int64_t pairs)
{
    for (int64_t p = mm_up(pairs, 8) - 8; p >= 0; p -= 8) {
        const __m256i words = _mm256_loadu_si256((const __m256i *)(row + p));
        float *to = (float *)(row + 2 * p);
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm256_castsi256_si128(words)));
        _mm256_storeu_ps(to + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1)));
    }
}

/* The float32 of eight words whose upper halves are zero. */
static inline __m256i from_f16(__m256i x)
{
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm256_castps_si256(_mm256_cvtph_ps(packed));
}

/* `kb` float32 steps for each panel of pairs; downwards, so that dst may be src. */
static void widen_panels(uint32_t *dst, const uint32_t *src, int64_t panels, int64_t kb,
                         sheaf_dtype type)
{
    const int64_t pairs = (kb + 1) / 2;
    for (int64_t at = panels * pairs - 1; at >= 0; at--) {
        const int64_t even = at / pairs * kb + at % pairs * 2;
        const bool lone = at % pairs * 2 + 1 == kb;
        for (int v = 24; v >= 0; v -= 8) {
            const __m256i words = _mm256_loadu_si256((const __m256i *)(src + at * MM_PANEL + v));
            __m256i low = _mm256_slli_epi32(words, 16),
                    high = _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000u));
            if (type == SHEAF_F16) {
                low = from_f16(_mm256_srli_epi32(low, 16));
                high = from_f16(_mm256_srli_epi32(words, 16));
            }
            if (!lone)
                _mm256_storeu_si256((__m256i *)(dst + (even + 1) * MM_PANEL + v), high);
            _mm256_storeu_si256((__m256i *)(dst + even * MM_PANEL + v), low);
        }
    }
}

/* ---- A ---- */

/* rows[i][p] from pairs of rows of src [kb, lda]. */
static void transpose_pairs(uint32_t *rows, int64_t stride, const uint16_t *src, int64_t lda,
                            int64_t count, int64_t kb)
{
    uint32_t words[8][64];
    for (int64_t i0 = 0; i0 < count; i0 += 64) {
        const int64_t width = mm_min(64, count - i0);
        for (int64_t p0 = 0; p0 < (kb + 1) / 2; p0 += 8) {
            const int64_t pairs = mm_min(8, (kb + 1) / 2 - p0);
            for (int64_t p = 0; p < pairs; p++) {
                const uint16_t *low = src + 2 * (p0 + p) * lda + i0;
                mm_interleave(words[p], low, 2 * (p0 + p) + 1 < kb ? low + lda : NULL, width);
            }
            mm_transpose(rows + i0 * stride + p0, stride, words, sizeof words[0], pairs, width, 0);
        }
    }
}

static inline void clear16(uint32_t *words)
{
    _mm256_storeu_si256((__m256i *)words, _mm256_setzero_si256());
    _mm256_storeu_si256((__m256i *)(words + 8), _mm256_setzero_si256());
}

void sheaf__mm_rows(uint32_t *rows, const mm_engine *engine, const sheaf__term *term,
                    sheaf_dtype dtype, int64_t i0, int64_t i1, int64_t k0, int64_t kb,
                    int64_t stride)
{
    const int64_t count = i1 - i0, size = mm_size(dtype);
    const bool odd = size == 2 && kb % 2; /* the last element meets zero */
    const char *a = term->a;
    const int64_t steps = mm_steps(mm_computed(engine, dtype), kb),
                  padded = mm_padded(engine, steps);
    for (int64_t i = 0; padded > steps && i < count; i++) /* only tiles are padded, by less */
        clear16(rows + i * stride + padded - 16);
    if (term->a_km && size == 2)
        transpose_pairs(rows, stride, (const uint16_t *)a + k0 * term->lda + i0, term->lda, count,
                        kb);
    else if (term->a_km)
        mm_transpose(rows, stride, a + (k0 * term->lda + i0) * 4, term->lda * 4, kb, count, 8);
    for (int64_t i = 0; !term->a_km && i < count; i++) {
        const char *src = a + ((i0 + i) * term->lda + k0) * size;
        engine->copy(rows + i * stride, src, (kb - odd) * size);
        if (odd)
            rows[i * stride + kb / 2] = ((const uint16_t *)src)[kb - 1];
    }
    for (int64_t i = 0; engine->spread && i < count; i++)
        spread_row(rows + i * stride, (kb + 1) / 2);
    for (int64_t i = 0; dtype == SHEAF_F16 && !engine->mma && i < count; i++)
        widen_row(rows + i * stride, (kb + 1) / 2);
}

/* The sum of `count` numbers, whole lanes, by lanes (docs/contract.md, 1.3). */
static float sum_by_lanes(const uint16_t *x, int64_t count)
{
    __m256 low = _mm256_setzero_ps(), high = low;
    for (int64_t i = 0; i < count; i += 16) {
        const __m256i at = _mm256_loadu_si256((const __m256i *)(x + i)),
                      a = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(at)),
                      b = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(at, 1));
        low = _mm256_add_ps(low, _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)));
        high = _mm256_add_ps(high, _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)));
    }
    float lane[16];
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    return sheaf__one_nan(sheaf__lanes_join(lane));
}

/* The same of any count, filled up with zeros, of which one comes every `apart`. */
static float sum_of_apart(const uint16_t *a, int64_t apart, int64_t count)
{
    uint16_t x[MM_BLOCK] = { 0 };
    for (int64_t c = 0; c < count; c++)
        x[c] = a[c * apart];
    return sum_by_lanes(x, count);
}

void sheaf__mm_row_sums(float *to, const sheaf__term *term, int64_t i0, int64_t i1, int64_t k0,
                        int64_t kb, int64_t stride)
{
    const int64_t row = term->a_km ? 1 : term->lda, apart = term->a_km ? term->lda : 1;
    for (int64_t k = k0, n; k < k0 + kb; k += n, to++) {
        const uint16_t *a = (const uint16_t *)term->a + i0 * row + k * apart;
        n = mm_min(mm_block(term, k, true), k0 + kb - k);
        for (int64_t i = i0; i < i1; i++, a += row)
            to[(i - i0) * stride] =
                apart == 1 && n % 16 == 0 ? sum_by_lanes(a, n) : sum_of_apart(a, apart, n);
    }
}

/* ---- B ----
 *
 * Panels are filled in the order in which the source lies in memory, as far as it goes:
 * a jump costs more than the copying. */

/* Destination of panels: columns [j0, j1), `stride` words from one panel to the next. */
typedef struct shelf {
    uint32_t *to;
    int64_t stride, j0, j1;
} shelf;

static uint32_t *panel_of(const shelf *shelf, int64_t j)
{
    return shelf->to + (j - shelf->j0) / MM_PANEL * shelf->stride;
}

/* From b [n, k] at element k0: rows of b are columns of a panel. */
static void panels_nk(const shelf *shelf, const char *b, int64_t ldb, int64_t kb, sheaf_dtype dtype)
{
    const bool pairs = dtype != SHEAF_F32;
    const int64_t step = ldb * mm_size(dtype), words = pairs ? kb / 2 : kb;
    for (int64_t j = shelf->j0; j < shelf->j1; j += 8) {
        const int64_t cols = mm_min(8, shelf->j1 - j);
        const char *src = b + j * step;
        uint32_t *to = panel_of(shelf, j) + j % MM_PANEL;
        mm_transpose(to, MM_PANEL, src, step, cols, words, 8);
        for (int64_t c = 0; pairs && kb % 2 && c < cols; c++)
            to[kb / 2 * MM_PANEL + c] = ((const uint16_t *)(src + c * step))[kb - 1];
    }
}

/* From b [k, n] at row k0. */
static void panels_kn(const shelf *shelf, const char *b, int64_t ldb, int64_t kb, sheaf_dtype dtype)
{
    const int64_t size = mm_size(dtype);
    for (int64_t k = 0, step = 0; k < kb; step++) {
        const char *row = b + k * ldb * size;
        k += size == 2 ? 2 : 1;
        for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL) {
            uint32_t *to = panel_of(shelf, j) + step * MM_PANEL;
            const int64_t cols = mm_min(MM_PANEL, shelf->j1 - j);
            const char *src = row + j * size;
            _mm_prefetch(src + 4 * ldb * size, _MM_HINT_T0);
            _mm_prefetch(src + (size == 4 ? 4 * ldb * 4 + 64 : 5 * ldb * 2), _MM_HINT_T0);
            if (size == 2)
                mm_interleave(to, (const uint16_t *)src,
                              k > kb ? NULL : (const uint16_t *)src + ldb, cols);
            else if (cols == MM_PANEL)
                memcpy(to, src, MM_PANEL * 4);
            else
                memcpy(to, src, (size_t)cols * 4);
        }
    }
}

/* 64-bit units u(p, q), q < 4, of 4 rows p are transposed, and within a unit the words
 * (w0, w1) become (low w0 | low w1 << 16, high w0 | high w1 << 16). Rows of src and dst are
 * MM_PANEL words. */
static inline void turn_pairs_4x4(uint32_t *dst, const uint32_t *src)
{
    __m256i x[4];
    const __m256i halves = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (int p = 0; p < 4; p++)
        x[p] =
            _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(src + p * MM_PANEL)), halves);
    const __m256i a = _mm256_unpacklo_epi64(x[0], x[1]), b = _mm256_unpackhi_epi64(x[0], x[1]);
    const __m256i c = _mm256_unpacklo_epi64(x[2], x[3]), d = _mm256_unpackhi_epi64(x[2], x[3]);
    _mm256_storeu_si256((__m256i *)dst, _mm256_permute2x128_si256(a, c, 0x20));
    _mm256_storeu_si256((__m256i *)(dst + MM_PANEL), _mm256_permute2x128_si256(b, d, 0x20));
    _mm256_storeu_si256((__m256i *)(dst + 2 * MM_PANEL), _mm256_permute2x128_si256(a, c, 0x31));
    _mm256_storeu_si256((__m256i *)(dst + 3 * MM_PANEL), _mm256_permute2x128_si256(b, d, 0x31));
}

/* 32 columns of the panels that W^T uses, W's rows, from column `at` of a panel on; what is past
 * its end is in the next one, `apart` words on. W may be a part, whose rows begin anywhere. */
typedef struct columns {
    const uint32_t *panel;
    int64_t at, apart;
} columns;

/* `count` columns of `rows` rows of pairs side by side, others are zero. */
static void take_square(uint32_t square[16 * MM_PANEL], const columns *from, int64_t count,
                        int64_t rows)
{
    const int64_t here = mm_min(MM_PANEL - from->at, count);
    memset(square, 0, 16 * MM_PANEL * sizeof *square);
    for (int64_t p = 0; p < rows; p++) {
        const uint32_t *row = from->panel + p * MM_PANEL;
        memcpy(square + p * MM_PANEL, row + from->at, (size_t)here * sizeof *square);
        if (count > here)
            memcpy(square + p * MM_PANEL + here, row + from->apart,
                   (size_t)(count - here) * sizeof *square);
    }
}

/* A square of 16 rows of pairs, of which `count` columns are wanted. Rows past `have` are not
 * there. */
static void turn_pairs(uint32_t *to, columns from, int64_t count, int64_t have)
{
    uint32_t square[16 * MM_PANEL], rest[4 * MM_PANEL];
    const uint32_t *soon = from.panel + 2 * sizeof square / sizeof *square,
                   *then = soon + (from.at == 0 ? MM_PANEL / 2 : from.apart);
    const int64_t pairs = (count + 1) / 2;
    soon += from.at;
    if (have < 16 || from.at % 8 != 0) {
        take_square(square, &from, count, have);
        from = (columns){ square, 0, 0 };
    }
    for (int64_t q = 0; q < pairs; q += 4) {
        uint32_t *four = q + 4 <= pairs ? to + q * MM_PANEL : rest;
        const int64_t at = from.at + 2 * q;
        const uint32_t *src = from.panel + (at < MM_PANEL ? at : from.apart + at - MM_PANEL);
        for (int p = 0; p < 16; p += 4)
            turn_pairs_4x4(four + 2 * p, src + p * MM_PANEL);
        for (int r = 0; r < 4; r++) { /* a quarter of the square after the next one */
            _mm_prefetch((const char *)(soon + (q + r) * MM_PANEL), _MM_HINT_T0);
            _mm_prefetch((const char *)(then + (q + r) * MM_PANEL), _MM_HINT_T0);
        }
        if (four == rest) /* a next panel may lie behind the last row */
            memcpy(to + q * MM_PANEL, rest, (size_t)(pairs - q) * MM_PANEL * 4);
    }
    if (count % 2 != 0) /* a last one meets zero, not what comes after the part */
        for (int c = 0; c < MM_PANEL; c++)
            to[count / 2 * MM_PANEL + c] &= 0xffff;
}

/* The same of float32: `count` columns of `rows` rows. */
static void turn_floats(uint32_t *to, const columns *from, int64_t count, int64_t rows)
{
    const int64_t here = mm_min(MM_PANEL - from->at, count);
    mm_transpose(to, MM_PANEL, from->panel + from->at, MM_PANEL * 4, rows, here, 2 * MM_PANEL);
    if (count > here)
        mm_transpose(to + here * MM_PANEL, MM_PANEL, from->panel + from->apart, MM_PANEL * 4, rows,
                     count - here, 2 * MM_PANEL);
}

/* Of W's rows from `row` on, from its column j on (even). */
static columns columns_at(const sheaf__packed *w, int64_t row, int64_t j)
{
    const int64_t block = j / MM_BLOCK * MM_BLOCK, at = (w->row0 + row) % MM_PANEL;
    return (columns){ (const uint32_t *)w->ahead + mm_ahead_at(w, row, block) - at +
                          mm_steps(w->dtype, j - block) * MM_PANEL,
                      at, mm_steps(w->dtype, mm_min(MM_BLOCK, w->k - block)) * MM_PANEL };
}

/* The same of codes, brought into `square` [2][MM_PANEL][MM_PANEL]. */
static columns columns_of_codes(uint32_t *square, mm_values_fn *values, const mm_codes *l,
                                int64_t row, int64_t rows, int64_t j, int64_t cols)
{
    const int64_t at = (l->w->row0 + row) % MM_PANEL;
    values(square, l, row, j, cols, MM_BACK);
    if (at + rows > MM_PANEL)
        values(square + MM_PANEL * MM_PANEL, l, row + MM_PANEL - at, j, cols, MM_BACK);
    return (columns){ square, at, MM_PANEL * MM_PANEL };
}

static mm_values_fn *values_of(const mm_engine *engine)
{
    return engine->values != NULL ? engine->values : sheaf__mm_values;
}

/* Panels of W from those that W^T uses, in squares of 32 x 32. They are padded with zeros to
 * pairs of columns. W's n axis is summed over: elements [k0, k0 + kb). */
static void panels_back(const shelf *shelf, const mm_engine *engine, const sheaf__packed *w,
                        int64_t k0, int64_t kb)
{
    const bool pairs = w->dtype != SHEAF_F32;
    uint32_t square[2 * MM_PANEL * MM_PANEL];
    mm_codes codes;
    assert(w->code == NULL);
    if (w->quantised)
        codes = sheaf__mm_codes(w);
    for (int64_t k = 0; k < kb; k += MM_PANEL) {
        const int64_t rows = mm_min(MM_PANEL, kb - k);
        for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL) {
            const int64_t cols = mm_min(MM_PANEL, shelf->j1 - j);
            const columns from = w->quantised ? columns_of_codes(square, values_of(engine), &codes,
                                                                 k0 + k, rows, j, cols)
                                              : columns_at(w, k0 + k, j);
            uint32_t *to = panel_of(shelf, j) + mm_steps(w->dtype, k) * MM_PANEL;
            if (pairs)
                turn_pairs(to, from, rows, mm_steps(w->dtype, cols));
            else
                turn_floats(to, &from, rows, cols);
        }
    }
}

static const uint32_t *stored_panel(const sheaf__term *term, int64_t j, int64_t k0)
{
    const sheaf__packed *w = term->w;
    assert(w->row0 % MM_PANEL == 0);
    if (w->quantised) {
        const mm_codes l = sheaf__mm_codes(w);
        return (const uint32_t *)((const char *)w->ahead + mm_cell_at(&l, j, k0));
    }
    return (const uint32_t *)w->ahead +
           (w->code != NULL ? mm_code_at(w, j, k0) : mm_ahead_at(w, j, k0));
}

/* ---- compressed panels ---- */

/* Columns [shelf->j0, shelf->j1) of W^T, `steps` steps of the block at k0. */
static void panels_expanded(const shelf *shelf, const mm_engine *engine, const sheaf__packed *w,
                            int64_t k0, int64_t steps)
{
    void (*const expand)(uint32_t *, const uint32_t *, const mm_code *, int64_t) =
        engine->expand != NULL ? engine->expand : sheaf__mm_expand;
    for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL)
        expand(panel_of(shelf, j), (const uint32_t *)w->ahead + mm_code_at(w, j, k0),
               &w->code[mm_code_box(w, j, k0)], steps);
}

/* The same of codes, `kb` columns of W. */
static void panels_of_codes(const shelf *shelf, const mm_engine *engine, const sheaf__packed *w,
                            int64_t k0, int64_t kb)
{
    const mm_codes codes = sheaf__mm_codes(w);
    for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL)
        values_of(engine)(panel_of(shelf, j), &codes, j, k0, kb, MM_AHEAD);
}

/* The same of codes in groups, of one group: their numbers, and last in a panel the scales. */
static void panels_of_group(const shelf *shelf, const mm_engine *engine, const sheaf__term *term,
                            int64_t k0, int64_t kb, bool spread)
{
    const mm_codes codes = sheaf__mm_codes(term->w);
    const int64_t steps = mm_steps(SHEAF_BF16, kb), block0 = k0 / MM_BLOCK * MM_BLOCK,
                  last = shelf->stride - sheaf__quant_floats(&term->w->quant) * MM_PANEL,
                  filled = steps * (spread ? 2 : 1) * MM_PANEL;
    uint32_t pairs[MM_PANEL * MM_BLOCK / 2];
    mm_taken taken;
    sheaf__mm_take(&taken, term, shelf->j0, block0);
    for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL) {
        uint32_t *to = panel_of(shelf, j);
        values_of(engine)(spread ? pairs : to, &codes, j, k0, kb, MM_NUMBERS);
        if (spread)
            spread_panels(to, pairs, steps);
        memset(to + filled, 0, (size_t)(last - filled) * sizeof *to);
        sheaf__mm_group_scales((float *)(to + last), &taken, (j - shelf->j0) / MM_PANEL,
                               k0 - block0);
    }
}

/* Stored panels of `steps` steps into roomier ones. */
static void panels_copied(const shelf *shelf, const uint32_t *from, int64_t steps)
{
    for (int64_t j = shelf->j0; j < shelf->j1; j += MM_PANEL, from += steps * MM_PANEL)
        memcpy(panel_of(shelf, j), from, (size_t)(steps * MM_PANEL) * 4);
}

const uint32_t *sheaf__mm_panels(uint32_t *buffer, const mm_engine *engine, const sheaf__term *term,
                                 sheaf_dtype dtype, int64_t j0, int64_t j1, int64_t k0, int64_t kb,
                                 bool spread, int takes, bool groups, bool made)
{
    const bool widen = mm_widens(engine, term, dtype);
    const sheaf_dtype stored = mm_stored(term, dtype);
    const int64_t size = mm_size(stored), panels = mm_div_up(j1 - j0, MM_PANEL);
    /* as they are stored, and, unless they are widened, with zeros to fill up */
    const int64_t steps = mm_steps(stored, kb), padded = widen ? steps : mm_padded(engine, steps);
    if (mm_panels_in_place(engine, term, dtype, spread, takes) && padded == steps)
        return stored_panel(term, j0, k0);
    if (made)
        return buffer;
    if (groups) {
        const int64_t scales = sheaf__quant_floats(&term->w->quant);
        const shelf group = { buffer, (padded * (spread ? 2 : 1) + scales) * MM_PANEL, j0, j1 };
        panels_of_group(&group, engine, term, k0, kb, spread);
        return buffer;
    }
    const shelf shelf = { buffer, padded * MM_PANEL, j0, j1 };
    const uint32_t *from = buffer;
    if (mm_compressed(term))
        panels_expanded(&shelf, engine, term->w, k0, steps);
    else if (mm_in_panels(term) && mm_quantised(term))
        panels_of_codes(&shelf, engine, term->w, k0, kb);
    else if (mm_in_panels(term) && padded == steps)
        from = stored_panel(term, j0, k0);
    else if (mm_in_panels(term))
        panels_copied(&shelf, stored_panel(term, j0, k0), steps);
    else if (term->form == SHEAF__B_NK)
        panels_nk(&shelf, (const char *)term->b + k0 * size, term->ldb, kb, stored);
    else if (term->form == SHEAF__B_KN)
        panels_kn(&shelf, (const char *)term->b + k0 * term->ldb * size, term->ldb, kb, stored);
    else
        panels_back(&shelf, engine, term->w, k0, kb);
    for (int64_t p = 0; padded > steps && p < panels; p++)
        memset(buffer + (p * padded + steps) * MM_PANEL, 0,
               (size_t)((padded - steps) * MM_PANEL) * 4);
    if (widen)
        widen_panels(buffer, from, panels, kb, stored);
    if (spread)
        spread_panels(buffer, from, panels * steps);
    return buffer;
}

void sheaf__mm_narrow(uint32_t *to, const sheaf__term *term, int64_t n, int64_t width, int64_t k0,
                      int64_t kb)
{
    const char *b = term->b;
    if (term->form == SHEAF__B_NK)
        mm_transpose(to, width, b + k0 * 4, term->ldb * 4, n, kb, 0);
    else
        for (int64_t k = 0; k < kb; k++)
            memcpy(to + k * width, b + (k0 + k) * term->ldb * 4, (size_t)n * 4);
}

void sheaf__mm_rows_source(mm_soon *soon, const sheaf__term *term, sheaf_dtype dtype, int64_t i0,
                           int64_t i1, int64_t k0, int64_t kb)
{
    const int64_t size = mm_size(dtype), outer = term->a_km ? k0 : i0, inner = term->a_km ? i0 : k0;
    soon->at = (const char *)term->a + (outer * term->lda + inner) * size;
    soon->step = term->lda * size;
    soon->rows = term->a_km ? kb : i1 - i0;
    soon->bytes = (term->a_km ? i1 - i0 : kb) * size;
    soon->done = 0;
    soon->then = NULL;
}

/* Of W's panels, as panels_back reads them: one run for each block of W's k axis. */
static int back_source(mm_soon *soon, const sheaf__packed *w, int64_t j0, int64_t j1, int64_t k0,
                       int64_t kb)
{
    int runs = 0;
    for (int64_t j = j0; j < j1 && runs < MM_RUNS; runs++) {
        const int64_t end = mm_min(j1, (j / MM_BLOCK + 1) * MM_BLOCK);
        const columns from = columns_at(w, k0, j);
        soon[runs] = (mm_soon){ .at = (const char *)from.panel,
                                .step = from.apart * 4,
                                .rows = mm_div_up(from.at + kb, MM_PANEL),
                                .bytes = mm_steps(w->dtype, end - j) * MM_PANEL * 4 };
        j = end;
    }
    return runs;
}

/* Of codes: the cells of W's rows [row, row + rows), columns [col, col + cols). */
static int codes_source(mm_soon *soon, const sheaf__packed *w, int64_t row, int64_t rows,
                        int64_t col, int64_t cols)
{
    const mm_codes l = sheaf__mm_codes(w);
    int runs = 0;
    for (int64_t k0 = col / MM_BLOCK * MM_BLOCK; k0 < col + cols && runs < MM_RUNS;
         k0 += MM_BLOCK) {
        const int64_t first = mm_cell_at(&l, row, k0), last = mm_cell_at(&l, row + rows - 1, k0);
        soon[runs++] =
            (mm_soon){ .at = (const char *)w->ahead + first,
                       .rows = 1,
                       .bytes = last - first + mm_cell_bytes(&l, mm_min(MM_BLOCK, w->k - k0)) };
    }
    return runs;
}

int sheaf__mm_panels_source(mm_soon soon[MM_RUNS], const sheaf__term *term, sheaf_dtype dtype,
                            int64_t j0, int64_t j1, int64_t k0, int64_t kb)
{
    const sheaf_dtype stored = mm_stored(term, dtype);
    const int64_t size = mm_size(stored), step = term->ldb * size;
    const char *b = term->b;
    int runs = 1;
    if (mm_quantised(term))
        return mm_in_panels(term) ? codes_source(soon, term->w, j0, j1 - j0, k0, kb)
                                  : codes_source(soon, term->w, k0, kb, j0, j1 - j0);
    if (mm_in_panels(term))
        soon[0] = (mm_soon){ .at = (const char *)stored_panel(term, j0, k0),
                             .rows = 1,
                             .bytes = mm_div_up(j1 - j0, MM_PANEL) * 4 *
                                      (mm_compressed(term) ? mm_code_words(mm_steps(stored, kb))
                                                           : mm_steps(stored, kb) * MM_PANEL) };
    else if (term->form == SHEAF__B_NK)
        soon[0] = (mm_soon){
            .at = b + j0 * step + k0 * size, .step = step, .rows = j1 - j0, .bytes = kb * size
        };
    else if (term->form == SHEAF__B_KN)
        soon[0] = (mm_soon){
            .at = b + k0 * step + j0 * size, .step = step, .rows = kb, .bytes = (j1 - j0) * size
        };
    else
        runs = back_source(soon, term->w, j0, j1, k0, kb);
    return runs;
}
