/* matmul_vec256.h - the vector words of matmul_kernel.h in AVX2. */
#pragma once

#include <stdint.h>

#include "ops/lanes.h"

#define LANES 8
#define MOST_VECTORS 8
typedef __m256 vec;
typedef __m128i halves;
#define LOAD(p) _mm256_loadu_ps((const float *)(p))
#define STORE(p, v) _mm256_storeu_ps((float *)(p), v)
#define ZERO() _mm256_setzero_ps()
#define SPLAT(x) _mm256_set1_ps(x)
#define ADD(a, b) _mm256_add_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define STEP(acc, a, b) _mm256_fmadd_ps(a, b, acc)
#define ODD(v) _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u)))
#define EVEN(v) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16))
#define WORD(p) _mm256_set1_ps(mm_load_float(p))
#define QUIET(v)                                                                                   \
    _mm256_blendv_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffc00000u)),                  \
                     _mm256_cmp_ps(v, v, _CMP_UNORD_Q))
#define UNORDERED(a, b) (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q))
#define LOAD_HALVES(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE_HALVES(p, h) _mm_storeu_si128((__m128i *)(p), h)
#define FROM_F16(h) _mm256_cvtph_ps(h)
#define TO_F16(v) _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
#define FROM_BF16(h) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))

/* To nearest even; NaN is the default one already. */
static inline __m128i TO_BF16(__m256 v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i x = _mm256_srli_epi32(up, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

/* The first n lanes: those whose number is below n. */
static inline __m256i first_lanes(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline __m256 LOAD_PART(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static inline void STORE_PART(float *p, __m256 v, int64_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* There is no masked move of halves. */
static inline __m128i LOAD_PART_HALVES(const uint16_t *p, int64_t n)
{
    uint16_t buffer[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++)
        buffer[i] = p[i];
    return LOAD_HALVES(buffer);
}

static inline void STORE_PART_HALVES(uint16_t *p, __m128i h, int64_t n)
{
    uint16_t buffer[LANES];
    STORE_HALVES(buffer, h);
    for (int64_t i = 0; i < n; i++)
        p[i] = buffer[i];
}
