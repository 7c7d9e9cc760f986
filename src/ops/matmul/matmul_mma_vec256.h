/* matmul_mma_vec256.h - the words of matmul_mma_kernel.h in AVX2. */
#pragma once

#include "ops/matmul/matmul_vec256.h"

typedef __m256i ivec;
typedef __m256i lanes16; /* of halves of words */
#define ISA(x) x##_avx2mma
#define BITS(v) _mm256_castps_si256(v)
#define FLOATS(i) _mm256_castsi256_ps(i)
#define ILOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define ISTORE(p, i) _mm256_storeu_si256((__m256i *)(p), i)
#define ISET(x) _mm256_set1_epi32((int)(x))
#define ISET16(x) _mm256_set1_epi16((short)(x))
#define IWORD(p) _mm256_set1_epi32((int)*(p))
#define IADD(a, b) _mm256_add_epi32(a, b)
#define ISUB(a, b) _mm256_sub_epi32(a, b)
#define IAND(a, b) _mm256_and_si256(a, b)
#define IOR(a, b) _mm256_or_si256(a, b)
#define IXOR(a, b) _mm256_xor_si256(a, b)
#define SLL(a, n) _mm256_slli_epi32(a, n)
#define SRL(a, n) _mm256_srli_epi32(a, n)
#define MAXU(a, b) _mm256_max_epu32(a, b)
#define MINU(a, b) _mm256_min_epu32(a, b)
#define IABS(a) _mm256_abs_epi32(a)
#define ADD8(a, b) _mm256_adds_epi8(a, b)
#define MAX8(a, b) _mm256_max_epi8(a, b)
#define EQUAL8(a, b) _mm256_cmpeq_epi8(a, b)
#define SLL16(a, n) _mm256_slli_epi16(a, n)
#define SRL16(a, n) _mm256_srli_epi16(a, n)
#define SUB16(a, b) _mm256_sub_epi16(a, b)
#define MAX16(a, b) _mm256_max_epi16(a, b)
#define EQUAL16(a, b) _mm256_cmpeq_epi16(a, b)
#define ABOVE16(a, b) _mm256_cmpgt_epi16(a, b)
#define EITHER(a, b) IOR(a, b)
#define PICK16(lanes, yes, no) _mm256_blendv_epi8(no, yes, lanes)
#define IS_ZERO(i) (_mm256_testz_si256(i, i) != 0)
/* Any lane of a below `low`, or of b not below `high`. */
#define NOT_BELOW(a, b) _mm256_cmpeq_epi32(MAXU(a, b), a)
#define OUTSIDE(a, low, b, high)                                                                   \
    (_mm256_movemask_epi8(_mm256_andnot_si256(NOT_BELOW(b, high), NOT_BELOW(a, low))) != -1)
#define ANY_ABOVE(a, limit) (_mm256_movemask_epi8(NOT_BELOW(a, limit)) != 0)
#define TOWARD_ZERO(v) _mm256_cvttps_epi32(v)
/* Truncated, as the thread then rounds. */
#define FROM_INT(i) _mm256_cvtepi32_ps(i)
#define ROUNDS_BY_MODE
/* Floats of words whose upper halves are zero. */
#define WIDEN_F16(i)                                                                               \
    _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1)))
/* So that a compiler does not add up later what it then has to keep in memory. */
#define IN_ORDER(i) SHEAF__IN_REGISTER(i)
/* A denormal becomes a zero of its sign. */
#define WITHOUT_DENORMALS(v)                                                                       \
    _mm256_blendv_ps(v, _mm256_and_ps(v, FLOATS(ISET(0x80000000u))),                               \
                     FLOATS(_mm256_cmpeq_epi32(IAND(BITS(v), ISET(0x7f800000)), ISET(0))))
