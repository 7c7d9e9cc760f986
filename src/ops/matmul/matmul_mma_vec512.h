/* matmul_mma_vec512.h - the words of matmul_mma_kernel.h in AVX-512. */
#pragma once

#include "ops/matmul/matmul_vec512.h"
#undef TILES

typedef __m512i ivec;
typedef __mmask32 lanes16; /* of halves of words */
#define ISA(x) x##_avx512mma
#define BITS(v) _mm512_castps_si512(v)
#define FLOATS(i) _mm512_castsi512_ps(i)
#define ILOAD(p) _mm512_loadu_si512(p)
#define ISTORE(p, i) _mm512_storeu_si512(p, i)
#define ISET(x) _mm512_set1_epi32((int)(x))
#define ISET16(x) _mm512_set1_epi16((short)(x))
#define IWORD(p) _mm512_set1_epi32((int)*(p))
#define IADD(a, b) _mm512_add_epi32(a, b)
#define ISUB(a, b) _mm512_sub_epi32(a, b)
#define IAND(a, b) _mm512_and_si512(a, b)
#define IOR(a, b) _mm512_or_si512(a, b)
#define IXOR(a, b) _mm512_xor_si512(a, b)
#define SLL(a, n) _mm512_slli_epi32(a, n)
#define SRL(a, n) _mm512_srli_epi32(a, n)
#define MAXU(a, b) _mm512_max_epu32(a, b)
#define MINU(a, b) _mm512_min_epu32(a, b)
#define IABS(a) _mm512_abs_epi32(a)
#define ADD8(a, b) _mm512_adds_epi8(a, b)
#define MAX8(a, b) _mm512_max_epi8(a, b)
#define EQUAL8(a, b) _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(a, b))
#define SLL16(a, n) _mm512_slli_epi16(a, n)
#define SRL16(a, n) _mm512_srli_epi16(a, n)
#define SUB16(a, b) _mm512_sub_epi16(a, b)
#define MAX16(a, b) _mm512_max_epi16(a, b)
#define EQUAL16(a, b) _mm512_cmpeq_epi16_mask(a, b)
#define ABOVE16(a, b) _mm512_cmpgt_epi16_mask(a, b)
#define EITHER(a, b) (__mmask32)((a) | (b))
#define PICK16(lanes, yes, no) _mm512_mask_mov_epi16(no, lanes, yes)
#define IS_ZERO(i) (_mm512_test_epi32_mask(i, i) == 0)
/* Any lane of a below `low`, or of b not below `high`. */
#define OUTSIDE(a, low, b, high)                                                                   \
    ((_mm512_cmplt_epu32_mask(a, low) | _mm512_cmpge_epu32_mask(b, high)) != 0)
#define ANY_ABOVE(a, limit) (_mm512_cmpge_epu32_mask(a, limit) != 0)
#define TOWARD_ZERO(v) _mm512_cvttps_epi32(v)
/* Truncated. */
#define FROM_INT(i) _mm512_cvt_roundepi32_ps(i, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
/* Floats of words whose upper halves are zero. */
#define WIDEN_F16(i) _mm512_cvtph_ps(_mm512_cvtepi32_epi16(i))
/* So that a compiler does not add up later what it then has to keep in memory. */
#define IN_ORDER(i) __asm__("" : "+v"(i))
/* A denormal becomes a zero of its sign. */
#define WITHOUT_DENORMALS(v)                                                                       \
    FLOATS(_mm512_mask_and_epi32(BITS(v), _mm512_testn_epi32_mask(BITS(v), ISET(0x7f800000)),      \
                                 BITS(v), ISET(0x80000000u)))
