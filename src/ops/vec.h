/* vec.h - sixteen float lanes: one 512-bit register, or two of 256 bits.
 *
 * A fast kernel is written once on these and compiled for both. Each operation
 * is the scalar one of the reference in every lane, so a kernel that keeps the
 * reference's order has its bits. Reads and writes take a count: lanes from
 * count on are not touched in memory and read as +0; a literal 16 compiles to
 * a plain load or store. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "ops/lanes.h"
#include "ops/math/round.h"

#define SHEAF__INLINE static inline __attribute__((always_inline))

/* Operations that are one instruction for each register, `op` its name behind the width: */
#ifdef __AVX512F__

typedef __m512 vec;
typedef __m512i veci;
typedef __mmask16 vecm; /* one truth value per lane */

#define V_ONE(type, name, from, op)                                                                \
    SHEAF__INLINE type name(from x)                                                                \
    {                                                                                              \
        return _mm512_##op(x);                                                                     \
    }
#define V_TWO(type, name, op)                                                                      \
    SHEAF__INLINE type name(type x, type y)                                                        \
    {                                                                                              \
        return _mm512_##op(x, y);                                                                  \
    }
#define V_BY(type, name, op)                                                                       \
    SHEAF__INLINE type name(type x, int by)                                                        \
    {                                                                                              \
        return _mm512_##op(x, (unsigned)by);                                                       \
    }
#define V_SPLAT V_ONE
V_ONE(veci, v_bits, vec, castps_si512)
V_ONE(vec, v_float, veci, castsi512_ps)
V_TWO(veci, vi_xor, xor_si512)
V_TWO(veci, vi_and, and_si512)

#else

typedef struct {
    __m256 a, b;
} vec;
typedef struct {
    __m256i a, b;
} veci;
typedef struct {
    __m256 a, b;
} vecm; /* all bits of a lane set or clear */

#define V_ONE(type, name, from, op)                                                                \
    SHEAF__INLINE type name(from x)                                                                \
    {                                                                                              \
        return (type){ _mm256_##op(x.a), _mm256_##op(x.b) };                                       \
    }
#define V_TWO(type, name, op)                                                                      \
    SHEAF__INLINE type name(type x, type y)                                                        \
    {                                                                                              \
        return (type){ _mm256_##op(x.a, y.a), _mm256_##op(x.b, y.b) };                             \
    }
#define V_BY(type, name, op)                                                                       \
    SHEAF__INLINE type name(type x, int by)                                                        \
    {                                                                                              \
        return (type){ _mm256_##op(x.a, by), _mm256_##op(x.b, by) };                               \
    }
#define V_SPLAT(type, name, from, op)                                                              \
    SHEAF__INLINE type name(from x)                                                                \
    {                                                                                              \
        return (type){ _mm256_##op(x), _mm256_##op(x) };                                           \
    }
V_ONE(veci, v_bits, vec, castps_si256)
V_ONE(vec, v_float, veci, castsi256_ps)
V_TWO(veci, vi_xor, xor_si256)
V_TWO(veci, vi_and, and_si256)

#endif

V_SPLAT(vec, v_set, float, set1_ps)
V_SPLAT(veci, vi_set, uint32_t, set1_epi32)
V_ONE(vec, v_sqrt, vec, sqrt_ps)
V_TWO(vec, v_add, add_ps)
V_TWO(vec, v_sub, sub_ps)
V_TWO(vec, v_mul, mul_ps)
V_TWO(vec, v_div, div_ps)
V_TWO(vec, v_min, min_ps) /* y if one is NaN */
V_TWO(veci, vi_add, add_epi32)
V_TWO(veci, vi_max, max_epi32) /* signed */
V_BY(veci, vi_left, slli_epi32)
V_BY(veci, vi_right, srli_epi32)
V_BY(veci, vi_right_signed, srai_epi32)
#undef V_ONE
#undef V_TWO
#undef V_BY
#undef V_SPLAT

#ifdef __AVX512F__

SHEAF__INLINE vec v_fma(vec x, vec y, vec z)
{
    return _mm512_fmadd_ps(x, y, z);
}
/* lanes 2i and 2i + 1 change places */
SHEAF__INLINE vec v_swap_pairs(vec x)
{
    return _mm512_permute_ps(x, 0xb1);
}
SHEAF__INLINE veci vi_counting(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
SHEAF__INLINE vecm v_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SHEAF__INLINE vecm v_is_nan(vec a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
SHEAF__INLINE vec v_select(vecm m, vec yes, vec no)
{
    return _mm512_mask_mov_ps(no, m, yes);
}
SHEAF__INLINE vecm v_first(int64_t count)
{
    return (vecm)((1u << count) - 1);
}

/* unsigned a >= b */
SHEAF__INLINE vecm vi_at_least(veci a, veci b)
{
    return _mm512_cmpge_epu32_mask(a, b);
}
/* The 64-bit products of each lane with `by`, as low and high words. */
SHEAF__INLINE void vi_multiply(veci *low, veci *high, veci a, uint32_t by)
{
    const veci even = _mm512_mul_epu32(a, vi_set(by));
    const veci odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), vi_set(by));
    *low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
    *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
}
SHEAF__INLINE void vi_store(uint32_t *p, veci a)
{
    _mm512_storeu_si512(p, a);
}
SHEAF__INLINE veci vi_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}

SHEAF__INLINE vec v_load(const float *p, int64_t count)
{
    return count == 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(v_first(count), p);
}
SHEAF__INLINE void v_store(float *p, vec a, int64_t count)
{
    if (count == 16)
        _mm512_storeu_ps(p, a);
    else
        _mm512_mask_storeu_ps(p, v_first(count), a);
}
SHEAF__INLINE __m256i v_load_halves(const uint16_t *p, int64_t count)
{
    return count == 16 ? _mm256_loadu_si256((const __m256i *)p)
                       : _mm256_maskz_loadu_epi16(v_first(count), p);
}
SHEAF__INLINE void v_store_halves(uint16_t *p, __m256i a, int64_t count)
{
    if (count == 16)
        _mm256_storeu_si256((__m256i *)p, a);
    else
        _mm256_mask_storeu_epi16(p, v_first(count), a);
}
/* Element i to the upper half of lane i, and back; one permutation each. */
SHEAF__INLINE vec v_from_bf16(__m256i a)
{
    const __m512i spread = vi_left(vi_counting(), 16);
    return v_float(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, spread, _mm512_castsi256_si512(a)));
}
SHEAF__INLINE __m256i vi_upper_halves(veci a)
{
    const __m512i odd =
        _mm512_setr_epi32(0x00030001, 0x00070005, 0x000b0009, 0x000f000d, 0x00130011, 0x00170015,
                          0x001b0019, 0x001f001d, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, a));
}
/* sheaf__bf16 in the upper half of each lane; the lower half is left over. In a NaN it
 * does not matter whether the 1 of an odd number is added: it stays in that half. */
SHEAF__INLINE veci vi_bf16(vec x)
{
    const veci bits = v_bits(x);
    const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, vi_set(0x10000));
    const veci sum = _mm512_mask_add_epi32(vi_set(SHEAF__NAN_BITS), number, bits, vi_set(0x7fff));
    return _mm512_mask_add_epi32(sum, odd, sum, vi_set(1));
}
SHEAF__INLINE veci vi_halves(__m256i a) /* element i to lane i */
{
    return _mm512_cvtepu16_epi32(a);
}
SHEAF__INLINE vec v_from_f16(__m256i a)
{
    return _mm512_cvtph_ps(a);
}
SHEAF__INLINE __m256i v_f16(vec a)
{
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
}

#else

SHEAF__INLINE vec v_fma(vec x, vec y, vec z)
{
    return (vec){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}
/* lanes 2i and 2i + 1 change places */
SHEAF__INLINE vec v_swap_pairs(vec x)
{
    return (vec){ _mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1) };
}
SHEAF__INLINE vecm v_less(vec x, vec y)
{
    return (vecm){ _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ) };
}
SHEAF__INLINE vecm v_is_nan(vec x)
{
    return (vecm){ _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q) };
}
SHEAF__INLINE vec v_select(vecm m, vec yes, vec no)
{
    return (vec){ _mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b) };
}
SHEAF__INLINE vecm v_first(int64_t count)
{
    static const int32_t mask[32] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1
    };
    const float *from = (const float *)(mask + 16 - count);
    return (vecm){ _mm256_loadu_ps(from), _mm256_loadu_ps(from + 8) };
}

SHEAF__INLINE veci vi_counting(void)
{
    return (veci){ _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                   _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15) };
}
/* unsigned x >= y */
SHEAF__INLINE vecm vi_at_least(veci x, veci y)
{
    return (vecm){
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(x.a, y.a), x.a)),
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(x.b, y.b), x.b)),
    };
}
SHEAF__INLINE void vi_multiply_half(__m256i *low, __m256i *high, __m256i x, __m256i by)
{
    const __m256i even = _mm256_mul_epu32(x, by);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), by);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
/* The 64-bit products of each lane with `by`, as low and high words. */
SHEAF__INLINE void vi_multiply(veci *low, veci *high, veci x, uint32_t by)
{
    vi_multiply_half(&low->a, &high->a, x.a, vi_set(by).a);
    vi_multiply_half(&low->b, &high->b, x.b, vi_set(by).b);
}
SHEAF__INLINE void vi_store(uint32_t *p, veci x)
{
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)(p + 8), x.b);
}
SHEAF__INLINE veci vi_load(const uint32_t *p)
{
    return (veci){ _mm256_loadu_si256((const __m256i *)p),
                   _mm256_loadu_si256((const __m256i *)(p + 8)) };
}

SHEAF__INLINE vec v_load(const float *p, int64_t count)
{
    if (count == 16)
        return (vec){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
    const vecm m = v_first(count);
    return (vec){ _mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
                  _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b)) };
}
SHEAF__INLINE void v_store(float *p, vec x, int64_t count)
{
    if (count == 16) {
        _mm256_storeu_ps(p, x.a);
        _mm256_storeu_ps(p + 8, x.b);
        return;
    }
    const vecm m = v_first(count);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}
/* AVX2 has no masks for 16-bit elements: a row's end goes through a copy. */
SHEAF__INLINE __m256i v_load_halves(const uint16_t *p, int64_t count)
{
    if (count == 16)
        return _mm256_loadu_si256((const __m256i *)p);
    uint16_t copy[16] = { 0 };
    memcpy(copy, p, (size_t)count * 2);
    return _mm256_loadu_si256((const __m256i *)copy);
}
SHEAF__INLINE void v_store_halves(uint16_t *p, __m256i x, int64_t count)
{
    if (count == 16) {
        _mm256_storeu_si256((__m256i *)p, x);
        return;
    }
    uint16_t copy[16];
    _mm256_storeu_si256((__m256i *)copy, x);
    memcpy(p, copy, (size_t)count * 2);
}
SHEAF__INLINE veci vi_halves(__m256i x) /* element i to lane i */
{
    return (veci){ _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                   _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)) };
}
SHEAF__INLINE vec v_from_bf16(__m256i x)
{
    return v_float(vi_left(vi_halves(x), 16));
}
SHEAF__INLINE __m256i vi_upper_halves(veci x)
{
    const veci low = vi_right(x, 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low.a, low.b), 0xd8);
}
/* sheaf__bf16 in the upper half of each lane; the lower half is left over. */
SHEAF__INLINE veci vi_bf16(vec x)
{
    const veci bits = v_bits(x);
    const veci odd = vi_and(vi_right(bits, 16), vi_set(1));
    const vec sum = v_float(vi_add(vi_add(bits, vi_set(0x7fff)), odd));
    return v_bits(v_select(v_is_nan(x), v_float(vi_set(SHEAF__NAN_BITS)), sum));
}
SHEAF__INLINE vec v_from_f16(__m256i x)
{
    return (vec){ _mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)) };
}
SHEAF__INLINE __m256i v_f16(vec x)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
}

#endif

/* ---- built from the above ---- */

SHEAF__INLINE vec v_zero(void)
{
    return v_set(0);
}
SHEAF__INLINE vec v_negate(vec x)
{
    return v_float(vi_xor(v_bits(x), vi_set(0x80000000)));
}
SHEAF__INLINE vec v_one_nan(vec x)
{
    return v_select(v_is_nan(x), v_float(vi_set(SHEAF__NAN_BITS)), x);
}
/* `now` in the first `count` lanes, `before` in the others: the end of a sum. */
SHEAF__INLINE vec v_keep(int64_t count, vec now, vec before)
{
    return count == 16 ? now : v_select(v_first(count), now, before);
}

/* sheaf__load, sheaf__store and sheaf__rounded of elements i .. i + count - 1. */
SHEAF__INLINE vec v_read(const void *x, int64_t i, int64_t count, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        return v_from_bf16(v_load_halves((const uint16_t *)x + i, count));
    if (dtype == SHEAF_F16)
        return v_from_f16(v_load_halves((const uint16_t *)x + i, count));
    return v_load((const float *)x + i, count);
}
SHEAF__INLINE void v_write(void *y, int64_t i, vec value, int64_t count, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        v_store_halves((uint16_t *)y + i, vi_upper_halves(vi_bf16(value)), count);
    else if (dtype == SHEAF_F16)
        v_store_halves((uint16_t *)y + i, v_f16(v_one_nan(value)), count);
    else
        v_store((float *)y + i, v_one_nan(value), count);
}
SHEAF__INLINE vec v_rounded(vec value, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F16)
        return v_from_f16(v_f16(value));
    return dtype == SHEAF_BF16 ? v_float(vi_and(vi_bf16(value), vi_set(0xffff0000))) : value;
}

/* How many vectors a kernel with an exponential takes at a time. Its long chains of
 * dependent steps fill the scheduler when one vector follows the other; step by step
 * through several they do not wait. */
#define SHEAF__MANY 4

/* sheaf__exp of `many` vectors (but for the bits of a NaN: as every result, it is made
 * one when stored). */
SHEAF__INLINE void v_exp(vec *e, const vec *x, const int many)
{
    static const float q_terms[] = { 0x1.123b8ap-7f, 0x1.5558fcp-5f, 0x1.555490p-3f,
                                     0x1.fffffcp-2f };
    const vec rounder = v_set(0x1.8p23f), least = v_set(-0x1.5d589ep+6f);
    vec shifted[SHEAF__MANY], n[SHEAF__MANY], r[SHEAF__MANY], q[SHEAF__MANY];
    for (int k = 0; k < many; k++) {
#ifdef __AVX512F__
        r[k] = _mm512_min_ps(v_set(89), x[k]); /* keeps a NaN */
#else
        r[k] = x[k];
#endif
        shifted[k] = v_fma(r[k], v_set(0x1.715476p+0f), rounder);
    }
    for (int k = 0; k < many; k++)
        n[k] = v_sub(shifted[k], rounder);
    for (int k = 0; k < many; k++)
        r[k] = v_fma(n[k], v_set(-0x1.62e430p-1f), r[k]);
    for (int k = 0; k < many; k++)
        r[k] = v_fma(n[k], v_set(0x1.05c610p-29f), r[k]);
    for (int k = 0; k < many; k++)
        q[k] = v_set(0x1.6a217cp-10f);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < many; k++)
            q[k] = v_fma(q[k], r[k], v_set(q_terms[i]));
    for (int k = 0; k < many; k++)
        q[k] = v_fma(v_mul(r[k], r[k]), q[k], r[k]);
    for (int k = 0; k < many; k++) {
        const vec y = v_add(q[k], v_set(1));
#ifdef __AVX512F__
        /* vscalefps overflows by itself from 89 on. */
        e[k] = _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x[k], least, _CMP_NLT_UQ), y, n[k]);
#else
        vec scaled = v_float(vi_add(v_bits(y), vi_left(v_bits(shifted[k]), 23)));
        scaled = v_select(v_less(x[k], least), v_zero(), scaled);
        scaled = v_select(v_less(v_set(0x1.62e42ep+6f), x[k]), v_set(__builtin_inff()), scaled);
        e[k] = v_select(v_is_nan(x[k]), x[k], scaled);
#endif
    }
}

/* sheaf__erf_of of `many` vectors, as v_exp; e may be x. Both branches are worked out. From
 * 4 on a 4 is as good: 1 - e^q(4) rounds to 1. */
SHEAF__INLINE void v_erf(vec *e, const vec *x, const int many)
{
    static const float p_terms[] = { -0x1.aec8a2p-11f, 0x1.5542a4p-8f,  -0x1.b81a72p-6f,
                                     0x1.ce2e8ep-4f,   -0x1.812744p-2f, 0x1.06eba8p-3f };
    static const float q_terms[] = { -0x1.44f7eep-16f, 0x1.de2338p-14f, -0x1.abc2f8p-14f,
                                     -0x1.7365d6p-9f,  0x1.77f490p-6f,  -0x1.b2162ap-4f,
                                     -0x1.450f2ep-1f,  -0x1.210194p+0f, 0x1.458d96p-14f };
    const veci sign = vi_set(0x80000000), size = vi_set(0x7fffffff);
    vec a[SHEAF__MANY], z[SHEAF__MANY], p[SHEAF__MANY], q[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        a[k] = v_min(v_set(4), v_float(vi_and(v_bits(x[k]), size))); /* keeps a NaN */
    for (int k = 0; k < many; k++)
        q[k] = v_set(0x1.433402p-20f);
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < many; k++)
            q[k] = v_fma(q[k], a[k], v_set(q_terms[i]));
    v_exp(q, q, many);
    for (int k = 0; k < many; k++)
        z[k] = v_mul(a[k], a[k]);
    for (int k = 0; k < many; k++)
        p[k] = v_set(0x1.6cdc76p-14f);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < many; k++)
            p[k] = v_fma(p[k], z[k], v_set(p_terms[i]));
    for (int k = 0; k < many; k++) {
        const vec large = v_sub(v_set(1), q[k]); /* at least 0: its sign is free */
        const vec signed_large = v_float(vi_xor(v_bits(large), vi_and(v_bits(x[k]), sign)));
        e[k] = v_select(v_less(a[k], v_set(0.875f)), v_fma(x[k], p[k], x[k]), signed_large);
    }
}

/* sheaf__tanh of `many` vectors, as v_exp; t may be x. Both branches are worked out. */
SHEAF__INLINE void v_tanh(vec *t, const vec *x, const int many)
{
    static const float terms[] = { -0x1.0c2374p-7f, 0x1.63955ap-6f, -0x1.b9ef8ap-5f, 0x1.11106cp-3f,
                                   -0x1.555554p-2f };
    const veci sign = vi_set(0x80000000), size = vi_set(0x7fffffff);
    vec a[SHEAF__MANY], e[SHEAF__MANY];
    for (int k = 0; k < many; k++)
        a[k] = v_float(vi_and(v_bits(x[k]), size));
    for (int k = 0; k < many; k++)
        e[k] = v_mul(v_set(2), a[k]);
    v_exp(e, e, many);
    for (int k = 0; k < many; k++) {
        const vec z = v_mul(a[k], a[k]);
        vec p = v_set(0x1.1982a8p-9f);
        for (int i = 0; i < 5; i++)
            p = v_fma(p, z, v_set(terms[i]));
        const vec small = v_fma(v_mul(a[k], z), p, a[k]);
        const vec large = v_sub(v_set(1), v_div(v_set(2), v_add(e[k], v_set(1))));
        const vec y = v_select(v_less(a[k], v_set(0.625f)), small, large);
        t[k] = v_select(v_is_nan(x[k]), v_float(vi_set(SHEAF__NAN_BITS)),
                        v_float(vi_xor(v_bits(y), vi_and(v_bits(x[k]), sign))));
    }
}

/* The bits of sheaf__order. */
SHEAF__INLINE veci vi_order(vec x)
{
    const veci bits = v_bits(x);
    return vi_xor(bits, vi_and(vi_right_signed(bits, 31), vi_set(0x7fffffff)));
}
