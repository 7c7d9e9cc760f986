/* matmul_quant256.h - the vector words of matmul_dequantise.h in AVX2. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/unroll.h"
#include "sheaf/dtype.h"
#include "ops/lanes.h"

#define LANES 8
typedef __m256 vec;
typedef __m256i ivec;
typedef struct table {
    __m256 low, high;
} table;
#define MUL(a, b) _mm256_mul_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define LOAD(p) _mm256_loadu_ps(p)
#define ILOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define SPLAT(x) _mm256_set1_ps(x)
#define SHIFT(i, n) _mm256_srl_epi32(i, _mm_cvtsi32_si128(n))
#define NEXT(i, n) _mm256_srli_epi32(i, n)
#define TABLE(p)                                                                                   \
    {                                                                                              \
        _mm256_loadu_ps(p), _mm256_loadu_ps((p) + 8)                                               \
    }
#define SIGNED(i) _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(i, 24), 24))

static inline __m256i TWICE(const uint32_t *p)
{
    const __m256i x = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)p));
    return _mm256_or_si256(x, _mm256_slli_epi64(x, 16));
}

/* Three bits are looked up, the fourth one chooses. */
static inline __m256 LOOKUP(table t, __m256i i)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, i), _mm256_permutevar8x32_ps(t.high, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}

static inline __m256 FLOAT8(__m256i words)
{
    const __m256i size = _mm256_and_si256(words, _mm256_set1_epi32(0x7f)),
                  sign = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0x80)), 24);
    __m256i x = _mm256_add_epi32(_mm256_slli_epi32(size, 20), _mm256_set1_epi32(0x3c000000));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(size), _mm256_set1_ps(0x1p-9f));
    x = _mm256_blendv_epi8(x, _mm256_castps_si256(small),
                           _mm256_cmpgt_epi32(_mm256_set1_epi32(8), size));
    x = _mm256_blendv_epi8(x, _mm256_set1_epi32(0x7fc00000),
                           _mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x7f)));
    return _mm256_castsi256_ps(_mm256_or_si256(x, sign));
}

static inline void INTERLEAVE(__m256 s[8], const float *a, const float *b)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m256 x = _mm256_loadu_ps(a + 8 * i), y = _mm256_loadu_ps(b + 8 * i);
        const __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
        s[2 * i] = _mm256_permute2f128_ps(low, high, 0x20);
        s[2 * i + 1] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

static inline bool ORDINARY(__m256 s)
{
    const __m256i least = _mm256_set1_epi32(0x12800000); /* 2^-90 */
    const __m256i size = _mm256_and_si256(_mm256_castps_si256(s), _mm256_set1_epi32(0x7fffffff)),
                  small = _mm256_cmpgt_epi32(least, size),
                  none = _mm256_cmpeq_epi32(size, _mm256_setzero_si256()),
                  large = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f7fffff));
    return _mm256_movemask_epi8(_mm256_or_si256(_mm256_andnot_si256(none, small), large)) == 0;
}

/* Eight halves as words. */
static inline __m256i bf16_of(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1)),
                  up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_srli_epi32(up, 16);
}

static inline __m256 THROUGH(__m256 x, sheaf_dtype type)
{
    return type == SHEAF_F16 ? _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
                             : _mm256_castsi256_ps(_mm256_slli_epi32(bf16_of(x), 16));
}

static inline void STORE_FLOATS(uint32_t *to, const __m256 x[8])
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m256 a = x[2 * i], b = x[2 * i + 1];
        const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)),
                      odd = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
        _mm256_storeu_pd((double *)(to + 8 * i), _mm256_permute4x64_pd(even, 0xd8));
        _mm256_storeu_pd((double *)(to + 32 + 8 * i), _mm256_permute4x64_pd(odd, 0xd8));
    }
}

static inline void STORE_WORDS(uint32_t *to, const __m256 x[8], sheaf_dtype type)
{
    UNROLL for (int i = 0; type == SHEAF_F16 && i < 8; i++)
        _mm_storeu_si128((__m128i *)(to + 4 * i), _mm256_cvtps_ph(x[i], _MM_FROUND_TO_NEAREST_INT));
    UNROLL for (int i = 0; type != SHEAF_F16 && i < 4; i++)
    {
        const __m256i both = _mm256_packus_epi32(bf16_of(x[2 * i]), bf16_of(x[2 * i + 1]));
        _mm256_storeu_si256((__m256i *)(to + 8 * i), _mm256_permute4x64_epi64(both, 0xd8));
    }
}
