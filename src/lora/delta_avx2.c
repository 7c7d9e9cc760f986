/* delta_avx2.c - the sums of delta.h, built for AVX2, FMA and F16C. */
#include "lora/delta.h"

#include <string.h>

#include "base/unroll.h"
#include "ops/lanes.h"

enum { PANEL = 16, STRIP = 6 }; /* columns and rows of one tile of registers */

/* One chain of `rank` steps for `rows` <= STRIP rows: tile[row][PANEL]. */
static inline __attribute__((always_inline)) void tile_chain(__m256 tile[STRIP][2], const float *b,
                                                             int64_t ldb, const float *panel,
                                                             int64_t rank, int rows)
{
    UNROLL for (int i = 0; i < rows; i++) tile[i][0] = tile[i][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < rank; k++, panel += PANEL) {
        const __m256 a0 = _mm256_loadu_ps(panel), a1 = _mm256_loadu_ps(panel + 8);
        UNROLL for (int i = 0; i < rows; i++)
        {
            const __m256 bk = _mm256_broadcast_ss(b + i * ldb + k);
            tile[i][0] = _mm256_fmadd_ps(bk, a0, tile[i][0]);
            tile[i][1] = _mm256_fmadd_ps(bk, a1, tile[i][1]);
        }
    }
}

static inline __attribute__((always_inline)) void strip(float *d, int64_t cols, const float *b,
                                                        const float *panel, int64_t rank,
                                                        int64_t block, int rows, int64_t width)
{
    __m256 tile[STRIP][2], more[STRIP][2];
    tile_chain(tile, b, rank, panel, block, rows);
    for (int64_t k = block; k < rank; k += block) {
        tile_chain(more, b + k, rank, panel + k * PANEL, k + block < rank ? block : rank - k, rows);
        UNROLL for (int i = 0; i < rows; i++)
        {
            tile[i][0] = _mm256_add_ps(tile[i][0], more[i][0]);
            tile[i][1] = _mm256_add_ps(tile[i][1], more[i][1]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++, d += cols)
    {
        if (width == PANEL) {
            _mm256_storeu_ps(d, tile[i][0]);
            _mm256_storeu_ps(d + 8, tile[i][1]);
        } else {
            float edge[PANEL];
            _mm256_storeu_ps(edge, tile[i][0]);
            _mm256_storeu_ps(edge + 8, tile[i][1]);
            memcpy(d, edge, (size_t)width * sizeof *d);
        }
    }
}

void sheaf__lora_delta(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                       int64_t rank, int64_t block)
{
    const int64_t each = block > 0 && block < rank ? block : rank;
    for (int64_t j = 0; j < cols; j += PANEL, packed += PANEL * rank) {
        const int64_t width = cols - j < PANEL ? cols - j : PANEL;
        int64_t i = 0;
        for (; i + STRIP <= rows; i += STRIP)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, each, STRIP, width);
        for (; i < rows; i++)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, each, 1, width);
    }
}

void sheaf__lora_add(float *w, const float *d, float scale, int64_t n)
{
    const __m256 by = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) /* two roundings: not fused */
        _mm256_storeu_ps(w + i, _mm256_add_ps(_mm256_loadu_ps(w + i),
                                              _mm256_mul_ps(_mm256_loadu_ps(d + i), by)));
    for (; i < n; i++) {
        const float scaled = d[i] * scale; /* -ffp-contract=off: rounded before the sum */
        w[i] += scaled;
    }
}

/* ---- rounding and counting ---- */

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 widen(const void *at, int64_t i, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F32)
        return _mm256_loadu_ps((const float *)at + i);
    const __m128i halves = _mm_loadu_si128((const __m128i *)((const uint16_t *)at + i));
    if (dtype == SHEAF_F16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* Rounds, stores, and returns what was stored as float32. */
INLINE __m256 narrow(void *at, int64_t i, __m256 x, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F32) {
        _mm256_storeu_ps((float *)at + i, x);
        return x;
    }
    if (dtype == SHEAF_F16) {
        const __m128i halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)((uint16_t *)at + i), halves);
        return _mm256_cvtph_ps(halves);
    }
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    up = _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc0), nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(up, up), 0x08);
    _mm_storeu_si128((__m128i *)((uint16_t *)at + i), _mm256_castsi256_si128(packed));
    return _mm256_castsi256_ps(_mm256_slli_epi32(up, 16));
}

typedef struct sums {
    __m256 change, base;
    __m256i wild; /* lanes that were infinite or NaN */
    int64_t same;
} sums;

INLINE void finish_eight(sums *s, void *out, const float *v, const float *d, __m256 scale,
                         const void *was, int64_t i, sheaf_dtype dtype)
{
    __m256 x = _mm256_loadu_ps(v + i);
    if (d != NULL)
        x = _mm256_add_ps(x, _mm256_mul_ps(_mm256_loadu_ps(d + i), scale));
    x = narrow(out, i, x, dtype);
    const __m256 before = widen(was, i, dtype), change = _mm256_sub_ps(x, before);
    s->change = _mm256_fmadd_ps(change, change, s->change);
    s->base = _mm256_fmadd_ps(before, before, s->base);
    const __m256i exponent = _mm256_set1_epi32(0x7f800000), bits = _mm256_castps_si256(x);
    s->wild =
        _mm256_or_si256(s->wild, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
    const __m256i same = _mm256_cmpeq_epi32(bits, _mm256_castps_si256(before));
    s->same += __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same)));
}

static double total(__m256 x)
{
    float lane[8];
    double sum = 0;
    _mm256_storeu_ps(lane, x);
    for (int i = 0; i < 8; i++)
        sum += (double)lane[i];
    return sum;
}

enum { BLOCK = 4096 };

INLINE void finish(sheaf__lora_change *change, void *out, const float *v, const float *d,
                   float scale, const void *was, int64_t n, sheaf_dtype dtype)
{
    const __m256 by = _mm256_set1_ps(scale);
    const size_t size = dtype == SHEAF_F32 ? 4 : 2;
    *change = (sheaf__lora_change){ .changed = n, .finite = true };
    for (int64_t at = 0; at < n; at += BLOCK) {
        sums s = { _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_si256(), 0 };
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        int64_t i = at;
        for (; i + 8 <= end; i += 8)
            finish_eight(&s, out, v, d, by, was, i, dtype);
        if (i < end) {
            const size_t left = (size_t)(end - i);
            float few[8] = { 0 }, more[8] = { 0 }, stood[8] = { 0 }, result[8];
            memcpy(few, v + i, left * sizeof *few);
            if (d != NULL)
                memcpy(more, d + i, left * sizeof *more);
            memcpy(stood, (const char *)was + (size_t)i * size, left * size);
            finish_eight(&s, result, few, more, by, stood, 0, dtype);
            memcpy((char *)out + (size_t)i * size, result, left * size);
            s.same -= (int64_t)(8 - left); /* zeros that stayed zero */
        }
        change->changed -= s.same;
        change->change += total(s.change);
        change->base += total(s.base);
        change->finite = change->finite && _mm256_testz_si256(s.wild, s.wild);
    }
}

void sheaf__lora_finish(sheaf__lora_change *change, void *out, sheaf_dtype dtype, const float *v,
                        const float *d, float scale, const void *was, int64_t n)
{
    if (dtype == SHEAF_F32)
        finish(change, out, v, d, scale, was, n, SHEAF_F32);
    else if (dtype == SHEAF_BF16)
        finish(change, out, v, d, scale, was, n, SHEAF_BF16);
    else
        finish(change, out, v, d, scale, was, n, SHEAF_F16);
}

void sheaf__lora_dot(double *dot, double *squares, const float *w, const double *x, int64_t n)
{
    __m256d a = _mm256_setzero_pd(), b = _mm256_setzero_pd(), p = _mm256_setzero_pd(),
            q = _mm256_setzero_pd();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 both = _mm256_loadu_ps(w + i);
        const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(both)),
                      high = _mm256_cvtps_pd(_mm256_extractf128_ps(both, 1));
        a = _mm256_fmadd_pd(low, _mm256_loadu_pd(x + i), a);
        b = _mm256_fmadd_pd(high, _mm256_loadu_pd(x + i + 4), b);
        p = _mm256_fmadd_pd(low, low, p);
        q = _mm256_fmadd_pd(high, high, q);
    }
    double lane[4], lane2[4];
    _mm256_storeu_pd(lane, _mm256_add_pd(a, b));
    _mm256_storeu_pd(lane2, _mm256_add_pd(p, q));
    for (int k = 0; k < 4; k++) {
        *dot += lane[k];
        *squares += lane2[k];
    }
    for (; i < n; i++) {
        *dot += (double)w[i] * x[i];
        *squares += (double)w[i] * (double)w[i];
    }
}

#ifdef SHEAF_NO_X86
sheaf__lora_product *sheaf__lora_delta_for(const char *isa)
{
    return sheaf__lora_delta;
}
#endif
