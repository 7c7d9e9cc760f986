/* matmul_quant512.h - the vector words of matmul_dequantise.h in AVX-512. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/unroll.h"
#include "sheaf/dtype.h"

#define LANES 16
typedef __m512 vec;
typedef __m512i ivec;
typedef __m512 table;
#define MUL(a, b) _mm512_mul_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define LOAD(p) _mm512_loadu_ps(p)
#define ILOAD(p) _mm512_loadu_si512(p)
#define SPLAT(x) _mm512_set1_ps(x)
#define SHIFT(i, n) _mm512_srl_epi32(i, _mm_cvtsi32_si128(n))
#define NEXT(i, n) _mm512_srli_epi32(i, n)
#define TABLE(p) _mm512_loadu_ps(p)
#define LOOKUP(t, i) _mm512_permutexvar_ps(i, t)
#define SIGNED(i) _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(i, 24), 24))

static inline __m512i TWICE(const uint32_t *p)
{
    const __m512i halves = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8,
                                            8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_epi16(halves,
                                    _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p)));
}

/* The smallest ones are eighths of 2^-6; no denormal number is met on the way. */
static inline __m512 FLOAT8(__m512i words)
{
    const __m512i size = _mm512_and_si512(words, _mm512_set1_epi32(0x7f)),
                  sign = _mm512_slli_epi32(_mm512_and_si512(words, _mm512_set1_epi32(0x80)), 24);
    __m512i x = _mm512_add_epi32(_mm512_slli_epi32(size, 20), _mm512_set1_epi32(0x3c000000));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(size), _mm512_set1_ps(0x1p-9f));
    x = _mm512_mask_mov_epi32(x, _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(8)),
                              _mm512_castps_si512(small));
    x = _mm512_mask_mov_epi32(x, _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(0x7f)),
                              _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(_mm512_or_si512(x, sign));
}

static inline void INTERLEAVE(__m512 s[4], const float *a, const float *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                  high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    UNROLL for (int i = 0; i < 2; i++)
    {
        const __m512 x = _mm512_loadu_ps(a + 16 * i), y = _mm512_loadu_ps(b + 16 * i);
        s[2 * i] = _mm512_permutex2var_ps(x, low, y);
        s[2 * i + 1] = _mm512_permutex2var_ps(x, high, y);
    }
}

static inline bool ORDINARY(__m512 s)
{
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(s), _mm512_set1_epi32(0x7fffffff)),
                  above = _mm512_sub_epi32(size, _mm512_set1_epi32(0x12800000)); /* 2^-90 */
    return _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(size, size), above,
                                        _mm512_set1_epi32(0x7f800000 - 0x12800000)) == 0;
}

/* 16 halves. */
static inline __m256i rounded_halves(__m512 x, sheaf_dtype type)
{
    if (type == SHEAF_F16)
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#ifdef __AVX512BF16__
    return (__m256i)_mm512_cvtneps_pbh(x);
#else
    const __m512i bits = _mm512_castps_si512(x),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1)),
                  up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
#endif
}

static inline __m512 THROUGH(__m512 x, sheaf_dtype type)
{
    const __m256i half = rounded_halves(x, type);
    return type == SHEAF_F16
               ? _mm512_cvtph_ps(half)
               : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void STORE_FLOATS(uint32_t *to, const __m512 x[4])
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    UNROLL for (int i = 0; i < 2; i++)
    {
        _mm512_storeu_ps(to + 16 * i, _mm512_permutex2var_ps(x[2 * i], even, x[2 * i + 1]));
        _mm512_storeu_ps(to + 32 + 16 * i, _mm512_permutex2var_ps(x[2 * i], odd, x[2 * i + 1]));
    }
}

static inline void STORE_WORDS(uint32_t *to, const __m512 x[4], sheaf_dtype type)
{
#ifdef __AVX512BF16__
    if (type == SHEAF_BF16) {
        UNROLL for (int i = 0; i < 2; i++)
            _mm512_storeu_si512(to + 16 * i, (__m512i)_mm512_cvtne2ps_pbh(x[2 * i + 1], x[2 * i]));
        return;
    }
#endif
    UNROLL for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)(to + 8 * i), rounded_halves(x[i], type));
}
