/* matmul_transpose.h - transposes of 32-bit words and of bfloat16 pairs.
 *
 * Included by files of different instruction sets: SSE2 is what every x86-64
 * has, and under -mavx2 the compiler encodes the same steps in AVX. */
#pragma once

#include "base/base.h"
#include "base/unroll.h"
#include "ops/lanes.h"

static inline __m128i mm_load4(const void *src)
{
    return _mm_loadu_si128((const __m128i *)src);
}
static inline void mm_store4(void *dst, __m128i x)
{
    _mm_storeu_si128((__m128i *)dst, x);
}

/* dst[c][r] = x[r][c] for 4 x 4 words. */
static inline void mm_store_4x4(uint32_t *dst, int64_t ldd, __m128i x0, __m128i x1, __m128i x2,
                                __m128i x3)
{
    const __m128i a = _mm_unpacklo_epi32(x0, x1), b = _mm_unpacklo_epi32(x2, x3);
    const __m128i c = _mm_unpackhi_epi32(x0, x1), d = _mm_unpackhi_epi32(x2, x3);
    mm_store4(dst, _mm_unpacklo_epi64(a, b));
    mm_store4(dst + ldd, _mm_unpackhi_epi64(a, b));
    mm_store4(dst + 2 * ldd, _mm_unpacklo_epi64(c, d));
    mm_store4(dst + 3 * ldd, _mm_unpackhi_epi64(c, d));
}

#ifdef SHEAF__LANES
/* dst[c][r] = src[r][c] for 8 x 8 words; `step` bytes between rows of src, which may
 * be half-word aligned. */
static inline void mm_transpose_8x8(uint32_t *dst, int64_t ldd, const char *src, int64_t step)
{
    __m256i x[8], y[8];
    UNROLL for (int i = 0; i < 4; i++)
    {
        x[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(mm_load4(src + i * step)),
                                       mm_load4(src + (i + 4) * step), 1);
        x[i + 4] = _mm256_inserti128_si256(_mm256_castsi128_si256(mm_load4(src + i * step + 16)),
                                           mm_load4(src + (i + 4) * step + 16), 1);
    }
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        y[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t *d = dst + h * 4 * ldd;
        const __m256i *q = y + h * 4;
        _mm256_storeu_si256((__m256i *)d, _mm256_unpacklo_epi64(q[0], q[2]));
        _mm256_storeu_si256((__m256i *)(d + ldd), _mm256_unpackhi_epi64(q[0], q[2]));
        _mm256_storeu_si256((__m256i *)(d + 2 * ldd), _mm256_unpacklo_epi64(q[1], q[3]));
        _mm256_storeu_si256((__m256i *)(d + 3 * ldd), _mm256_unpackhi_epi64(q[1], q[3]));
    }
}
#endif

static inline uint32_t mm_load_word(const char *src)
{
    uint32_t word;
    memcpy(&word, src, sizeof word);
    return word;
}

/* mm_transpose() of rows [r, rows), columns [begin, cols). */
static inline void mm_turn_words(uint32_t *dst, int64_t ldd, const char *src, int64_t step,
                                 int64_t r, int64_t rows, int64_t begin, int64_t cols)
{
    for (; r < rows; r++)
        for (int64_t c = begin; c < cols; c++)
            dst[c * ldd + r] = mm_load_word(src + r * step + c * 4);
}

/* dst[c * ldd + r] = word c of row r; rows of src are `step` bytes apart. Rows that come
 * `soon` rows later are prefetched; there need not be any. */
static inline void mm_transpose(uint32_t *dst, int64_t ldd, const void *from, int64_t step,
                                int64_t rows, int64_t cols, int64_t soon)
{
    const char *src = from;
    int64_t r = 0;
#ifdef SHEAF__LANES
    for (; r + 8 <= rows; r += 8) {
        int64_t c = 0;
        for (; c + 8 <= cols; c += 8) {
            for (int64_t i = 0; soon && c % 16 == 0 && i < 8; i++)
                _mm_prefetch(src + (r + soon + i) * step + c * 4, _MM_HINT_T0);
            mm_transpose_8x8(dst + c * ldd + r, ldd, src + r * step + c * 4, step);
        }
        mm_turn_words(dst, ldd, src, step, r, r + 8, c, cols);
    }
#endif
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        const char *p = src + r * step;
        for (; c + 4 <= cols; c += 4, p += 16)
            mm_store_4x4(dst + c * ldd + r, ldd, mm_load4(p), mm_load4(p + step),
                         mm_load4(p + 2 * step), mm_load4(p + 3 * step));
        mm_turn_words(dst, ldd, src, step, r, r + 4, c, cols);
    }
    mm_turn_words(dst, ldd, src, step, r, rows, 0, cols);
}

/* Two rows of bfloat16 into one row of words: dst[j] = low[j] | high[j] << 16; high NULL
 * stands for zeros. */
static inline void mm_interleave(uint32_t *dst, const uint16_t *low, const uint16_t *high,
                                 int64_t count)
{
    int64_t j = 0;
    for (; j + 8 <= count; j += 8) {
        const __m128i a = mm_load4(low + j), b = high ? mm_load4(high + j) : _mm_setzero_si128();
        mm_store4(dst + j, _mm_unpacklo_epi16(a, b));
        mm_store4(dst + j + 4, _mm_unpackhi_epi16(a, b));
    }
    for (; j < count; j++)
        dst[j] = low[j] | (high ? (uint32_t)high[j] << 16 : 0);
}
