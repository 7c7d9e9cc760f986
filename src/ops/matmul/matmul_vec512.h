/* matmul_vec512.h - the vector words of matmul_kernel.h in AVX-512. */
#ifndef SHEAF_OPS_MATMUL_VEC512_H
#define SHEAF_OPS_MATMUL_VEC512_H

#include <immintrin.h>

#define LANES 16
#define ROWS 14
typedef __m512 vec;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define ZERO() _mm512_setzero_ps()
#define SPLAT(x) _mm512_set1_ps(x)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define WORD(p) _mm512_set1_ps(mm_float(*(p)))
#define QUIET(v) \
    _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), \
                       _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffc00000u)))
#define LOAD_HALVES(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_HALVES(p, h) _mm256_storeu_si256((__m256i *)(p), h)
#define FROM_BF16(h) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))

/* To nearest even; NaN is the default one already. */
static inline __m256i TO_BF16(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

#endif
