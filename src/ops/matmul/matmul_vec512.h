/* matmul_vec512.h - the vector words of matmul_kernel.h in AVX-512. */
#pragma once

#include <immintrin.h>

#define LANES 16
#define MOST_VECTORS 8
#define ODD(v)                                                                                     \
    _mm512_castsi512_ps(                                                                           \
        _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32((int)0xffff0000u)))
#define EVEN(v) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16))
#ifndef CHAINS
#define ROWS 14
/* clang-format off */
#define TILES                                                                                      \
    WIDE(1, 8) WIDE(2, 8) WIDE(3, 8) WIDE(4, 4) WIDE(5, 4) WIDE(6, 4) TALL(7) TALL(8)               \
    TALL(9) TALL(10) TALL(11) TALL(12) TALL(13) TALL(14)                                            \
    DIRECT(1) DIRECT(2) DIRECT(3) DIRECT(4) DIRECT(5) DIRECT(6) DIRECT(7) DIRECT(8)                 \
    DIRECT(9) DIRECT(10) DIRECT(11) DIRECT(12) TILES_OF_PAIRS                                       \
    static const tile_row tiles[ROWS] = {                                                           \
        DIRECT_ROW(1, tile_1_w, SIDE_BY_SIDE(8), PAIRS_OF(1, 8)),                                   \
        DIRECT_ROW(2, tile_2_w, SIDE_BY_SIDE(8), PAIRS_OF(2, 8)),                                   \
        DIRECT_ROW(3, tile_3_w, SIDE_BY_SIDE(8), PAIRS_OF(3, 4)),                                   \
        DIRECT_ROW(4, tile_4_w, SIDE_BY_SIDE(4), PAIRS_OF(4, 4)),                                   \
        DIRECT_ROW(5, tile_5_w, SIDE_BY_SIDE(4), PAIRS_OF(5, 4)),                                   \
        DIRECT_ROW(6, tile_6_w, SIDE_BY_SIDE(4), PAIRS_OF(6, 4)),                                   \
        DIRECT_ROW(7, tile_7_2, 2, PAIRS_OF(7, 2)), DIRECT_ROW(8, tile_8_2, 2, PAIRS_OF(8, 2)),     \
        DIRECT_ROW(9, tile_9_2, 2, NO_PAIRS), DIRECT_ROW(10, tile_10_2, 2, NO_PAIRS),               \
        DIRECT_ROW(11, tile_11_2, 2, NO_PAIRS), DIRECT_ROW(12, tile_12_2, 2, NO_PAIRS),             \
        TALL_ROW(13), TALL_ROW(14) };
/* clang-format on */
#endif
typedef __m512 vec;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define ZERO() _mm512_setzero_ps()
#define SPLAT(x) _mm512_set1_ps(x)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define WORD(p) _mm512_set1_ps(mm_load_float(p))
#define QUIET(v)                                                                                   \
    _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),                                  \
                       _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffc00000u)))
#define UNORDERED(a, b) _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q)
#define FIRST(n) (__mmask16)((1u << (n)) - 1)
#define LOAD_PART(p, n) _mm512_maskz_loadu_ps(FIRST(n), p)
#define STORE_PART(p, v, n) _mm512_mask_storeu_ps(p, FIRST(n), v)
#define LOAD_PART_HALVES(p, n) _mm256_maskz_loadu_epi16(FIRST(n), p)
#define STORE_PART_HALVES(p, h, n) _mm256_mask_storeu_epi16(p, FIRST(n), h)
#define LOAD_HALVES(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_HALVES(p, h) _mm256_storeu_si256((__m256i *)(p), h)
#define FROM_F16(h) _mm512_cvtph_ps(h)
#define TO_F16(v) _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
typedef __m256i halves;
#define FROM_BF16(h) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))

/* To nearest even; NaN is the default one already, and what is denormal was flushed, as the
 * instruction would do. */
#ifdef __AVX512BF16__
static inline __m256i TO_BF16(__m512 v)
{
    return (__m256i)_mm512_cvtneps_pbh(v);
}
#else
static inline __m256i TO_BF16(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
#endif
