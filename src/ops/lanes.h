/* lanes.h - vectors of 256 bits in the words of AVX2, FMA and F16C, in which kernels are written:
 * x86's own, or the same by two vectors of 128 bits as every compiler has them.
 *
 * Each word computes what Intel's manual says, but for NaN payloads and signs, which no result
 * keeps. AArch64's instructions are named where a compiler does not find them by itself. */
#pragma once

#ifndef SHEAF_NO_X86
#include <immintrin.h>
#ifdef __AVX2__
#define SHEAF__LANES /* a file is compiled with vectors of 256 bits */
#endif
#define SHEAF__IN_REGISTER(x) __asm__("" : "+x"(x))
#else

#include "ops/math/round.h"

#define SHEAF__LANES
#define SHEAF__IN_REGISTER(x) (void)0

#ifdef __aarch64__
#include <arm_neon.h>
#endif

typedef float __m128 __attribute__((vector_size(16)));
typedef double lanes_2d __attribute__((vector_size(16)));
typedef uint32_t __m128i __attribute__((vector_size(16)));
typedef int32_t lanes_4i __attribute__((vector_size(16)));
typedef uint64_t lanes_2u __attribute__((vector_size(16)));
typedef uint16_t lanes_8u __attribute__((vector_size(16)));
typedef int16_t lanes_8i __attribute__((vector_size(16)));
typedef uint8_t lanes_16u __attribute__((vector_size(16)));
typedef int8_t lanes_16i __attribute__((vector_size(16)));
typedef struct {
    __m128 a, b;
} __m256;
typedef struct {
    __m128i a, b;
} __m256i;
typedef struct {
    lanes_2d a, b;
} __m256d;

#define LANES_FN static inline __attribute__((always_inline, unused))

enum { _CMP_UNORD_Q = 3, _CMP_LT_OQ = 17, _CMP_NLE_UQ = 22 };
enum { _MM_FROUND_TO_NEAREST_INT = 0, _MM_HINT_T0 = 3 };
#define _MM_SHUFFLE(d, c, b, a) ((d) << 6 | (c) << 4 | (b) << 2 | (a))
#define _mm_prefetch(p, hint) __builtin_prefetch(p, 0, hint)

/* ---- memory ---- */

#define LANES_MOVES(prefix, suffix, type, of)                                                      \
    LANES_FN type prefix##_loadu_##suffix(const void *p)                                           \
    {                                                                                              \
        type x;                                                                                    \
        memcpy(&x, p, sizeof x);                                                                   \
        return x;                                                                                  \
    }                                                                                              \
    LANES_FN void prefix##_storeu_##suffix(void *p, type x)                                        \
    {                                                                                              \
        memcpy(p, &x, sizeof x);                                                                   \
    }                                                                                              \
    LANES_FN type prefix##_setzero_##of(void)                                                      \
    {                                                                                              \
        return (type){ 0 };                                                                        \
    }
LANES_MOVES(_mm, ps, __m128, ps)
LANES_MOVES(_mm, si128, __m128i, si128)
LANES_FN __m256 _mm256_loadu_ps(const float *p)
{
    return (__m256){ _mm_loadu_ps(p), _mm_loadu_ps(p + 4) };
}
LANES_FN void _mm256_storeu_ps(float *p, __m256 x)
{
    _mm_storeu_ps(p, x.a);
    _mm_storeu_ps(p + 4, x.b);
}
LANES_FN __m256i _mm256_loadu_si256(const void *p)
{
    return (__m256i){ _mm_loadu_si128(p), _mm_loadu_si128((const char *)p + 16) };
}
LANES_FN void _mm256_storeu_si256(void *p, __m256i x)
{
    _mm_storeu_si128(p, x.a);
    _mm_storeu_si128((char *)p + 16, x.b);
}
LANES_FN __m256d _mm256_loadu_pd(const double *p)
{
    __m256d x;
    memcpy(&x.a, p, 16);
    memcpy(&x.b, p + 2, 16);
    return x;
}
LANES_FN void _mm256_storeu_pd(double *p, __m256d x)
{
    memcpy(p, &x.a, 16);
    memcpy(p + 2, &x.b, 16);
}
/* Where the mask's sign is set. */
LANES_FN __m256 _mm256_maskload_ps(const float *p, __m256i mask)
{
    uint32_t taken[8];
    float lane[8] = { 0 };
    _mm256_storeu_si256(taken, mask);
    for (int i = 0; i < 8; i++)
        if (taken[i] >> 31)
            lane[i] = p[i];
    return _mm256_loadu_ps(lane);
}
LANES_FN void _mm256_maskstore_ps(float *p, __m256i mask, __m256 x)
{
    uint32_t taken[8];
    float lane[8];
    _mm256_storeu_si256(taken, mask);
    _mm256_storeu_ps(lane, x);
    for (int i = 0; i < 8; i++)
        if (taken[i] >> 31)
            p[i] = lane[i];
}

/* ---- one value in all lanes ---- */

LANES_FN __m256 _mm256_set1_ps(float x)
{
    const __m128 half = { x, x, x, x };
    return (__m256){ half, half };
}
LANES_FN __m256 _mm256_broadcast_ss(const float *p)
{
    return _mm256_set1_ps(*p);
}
LANES_FN __m256i _mm256_set1_epi32(int value)
{
    const uint32_t x = (uint32_t)value;
    const __m128i half = { x, x, x, x };
    return (__m256i){ half, half };
}
LANES_FN __m256i _mm256_set1_epi16(short x)
{
    return _mm256_set1_epi32((int)((uint16_t)x * 0x10001u));
}
LANES_FN __m256i _mm256_set1_epi8(signed char x)
{
    return _mm256_set1_epi32((int)((uint8_t)x * 0x1010101u));
}
LANES_FN __m256 _mm256_setzero_ps(void)
{
    return _mm256_set1_ps(0);
}
LANES_FN __m256i _mm256_setzero_si256(void)
{
    return _mm256_set1_epi32(0);
}
LANES_FN __m256d _mm256_setzero_pd(void)
{
    return (__m256d){ { 0, 0 }, { 0, 0 } };
}
LANES_FN __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h)
{
    return (__m256i){ (__m128i)(lanes_4i){ a, b, c, d }, (__m128i)(lanes_4i){ e, f, g, h } };
}
LANES_FN __m128i _mm_cvtsi32_si128(int x)
{
    return (__m128i){ (uint32_t)x, 0, 0, 0 };
}
#define _mm_setr_epi8(...) ((__m128i)(lanes_16i){ __VA_ARGS__ })

/* ---- halves, and other types of the same bits ---- */

LANES_FN __m256i _mm256_castps_si256(__m256 x)
{
    return (__m256i){ (__m128i)x.a, (__m128i)x.b };
}
LANES_FN __m256 _mm256_castsi256_ps(__m256i x)
{
    return (__m256){ (__m128)x.a, (__m128)x.b };
}
LANES_FN __m256d _mm256_castps_pd(__m256 x)
{
    return (__m256d){ (lanes_2d)x.a, (lanes_2d)x.b };
}
LANES_FN __m128i _mm256_castsi256_si128(__m256i x)
{
    return x.a;
}
LANES_FN __m256i _mm256_castsi128_si256(__m128i x)
{
    return (__m256i){ x, x };
}
LANES_FN __m128 _mm256_castps256_ps128(__m256 x)
{
    return x.a;
}
LANES_FN __m256i _mm256_broadcastsi128_si256(__m128i x)
{
    return (__m256i){ x, x };
}
LANES_FN __m256i _mm256_set_m128i(__m128i high, __m128i low)
{
    return (__m256i){ low, high };
}
#define _mm256_extracti128_si256(x, i) ((i) ? (x).b : (x).a)
#define _mm256_extractf128_ps(x, i) ((i) ? (x).b : (x).a)
LANES_FN __m256i _mm256_inserti128_si256(__m256i x, __m128i half, const int i)
{
    return i ? (__m256i){ x.a, half } : (__m256i){ half, x.b };
}

/* ---- the same in every lane ---- */

#define LANES_ONE(type, half, name, expression)                                                    \
    LANES_FN half _mm_##name##_lanes(half x)                                                       \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    LANES_FN type _mm256_##name(type x)                                                            \
    {                                                                                              \
        return (type){ _mm_##name##_lanes(x.a), _mm_##name##_lanes(x.b) };                         \
    }
#define LANES_TWO(type, half, name, expression)                                                    \
    LANES_FN half _mm_##name(half x, half y)                                                       \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    LANES_FN type _mm256_##name(type x, type y)                                                    \
    {                                                                                              \
        return (type){ _mm_##name(x.a, y.a), _mm_##name(x.b, y.b) };                               \
    }
#define LANES_BY(name, of, op)                                                                     \
    LANES_FN __m128i _mm_##name(__m128i x, int by)                                                 \
    {                                                                                              \
        return (__m128i)((of)x op by);                                                             \
    }                                                                                              \
    LANES_FN __m256i _mm256_##name(__m256i x, int by)                                              \
    {                                                                                              \
        return (__m256i){ _mm_##name(x.a, by), _mm_##name(x.b, by) };                              \
    }
#define LANES_FLOATS(name, expression) LANES_TWO(__m256, __m128, name, expression)
#define LANES_INTS(name, expression) LANES_TWO(__m256i, __m128i, name, expression)
/* By the lanes of a mask. */
#define LANES_PICK(type, mask, yes, no)                                                            \
    ((type)(((__m128i)(mask) & (__m128i)(yes)) | (~(__m128i)(mask) & (__m128i)(no))))

LANES_FLOATS(add_ps, x + y)
LANES_FLOATS(sub_ps, x - y)
LANES_FLOATS(mul_ps, x *y)
LANES_FLOATS(div_ps, x / y)
LANES_FLOATS(min_ps, LANES_PICK(__m128, x < y, x, y)) /* y if one is NaN; no DAZ */
LANES_FLOATS(max_ps, LANES_PICK(__m128, x > y, x, y))
LANES_FLOATS(and_ps, (__m128)((__m128i)x &(__m128i)y))
LANES_TWO(__m256d, lanes_2d, add_pd, x + y)
LANES_INTS(add_epi32, x + y)
LANES_INTS(sub_epi32, x - y)
LANES_INTS(mullo_epi32, x *y)
LANES_INTS(sub_epi16, (__m128i)((lanes_8u)x - (lanes_8u)y))
LANES_INTS(cmpeq_epi32, (__m128i)(x == y))
LANES_INTS(cmpeq_epi16, (__m128i)((lanes_8u)x == (lanes_8u)y))
LANES_INTS(cmpeq_epi8, (__m128i)((lanes_16u)x == (lanes_16u)y))
LANES_INTS(cmpgt_epi32, (__m128i)((lanes_4i)x > (lanes_4i)y))
LANES_INTS(cmpgt_epi16, (__m128i)((lanes_8i)x > (lanes_8i)y))
LANES_INTS(max_epi32, LANES_PICK(__m128i, (lanes_4i)x > (lanes_4i)y, x, y))
LANES_INTS(max_epi16, LANES_PICK(__m128i, (lanes_8i)x > (lanes_8i)y, x, y))
LANES_INTS(max_epi8, LANES_PICK(__m128i, (lanes_16i)x > (lanes_16i)y, x, y))
LANES_INTS(max_epu32, LANES_PICK(__m128i, x > y, x, y))
LANES_INTS(min_epu32, LANES_PICK(__m128i, x < y, x, y))
LANES_INTS(mul_epu32,
           (__m128i)(((lanes_2u)x & 0xffffffff) * ((lanes_2u)y & 0xffffffff))) /* of even lanes */
LANES_TWO(__m256i, __m128i, and_si256, x &y)
LANES_TWO(__m256i, __m128i, or_si256, x | y)
LANES_TWO(__m256i, __m128i, xor_si256, x ^ y)
LANES_TWO(__m256i, __m128i, andnot_si256, ~x &y)
LANES_ONE(__m256i, __m128i, abs_epi32, LANES_PICK(__m128i, (lanes_4i)x < 0, -x, x))
LANES_BY(slli_epi32, __m128i, <<)
LANES_BY(srli_epi32, __m128i, >>)
LANES_BY(srai_epi32, lanes_4i, >>)
LANES_BY(slli_epi16, lanes_8u, <<)
LANES_BY(srli_epi16, lanes_8u, >>)
LANES_BY(slli_epi64, lanes_2u, <<)
LANES_BY(srli_epi64, lanes_2u, >>)
#define _mm256_srl_epi32(x, by) _mm256_srli_epi32(x, (int)(by)[0])

#ifdef __aarch64__
LANES_ONE(__m256, __m128, sqrt_ps, (__m128)vsqrtq_f32((float32x4_t)x))
LANES_INTS(adds_epi8, (__m128i)vqaddq_s8((int8x16_t)x, (int8x16_t)y))
LANES_INTS(packus_epi32,
           (__m128i)vcombine_u16(vqmovun_s32((int32x4_t)x), vqmovun_s32((int32x4_t)y)))
LANES_INTS(packus_epi16, (__m128i)vcombine_u8(vqmovun_s16((int16x8_t)x), vqmovun_s16((int16x8_t)y)))
LANES_INTS(shuffle_epi8, (__m128i)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)((lanes_16u)y & 0x8f)))
LANES_FN __m128 lanes_fma(__m128 x, __m128 y, __m128 z)
{
    return (__m128)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
}
LANES_FN lanes_2d lanes_fma_pd(lanes_2d x, lanes_2d y, lanes_2d z)
{
    return (lanes_2d)vfmaq_f64((float64x2_t)z, (float64x2_t)x, (float64x2_t)y);
}
LANES_FN __m256 _mm256_cvtph_ps(__m128i x)
{
    const float16x8_t h = (float16x8_t)x;
    return (__m256){ (__m128)vcvt_f32_f16(vget_low_f16(h)), (__m128)vcvt_high_f32_f16(h) };
}
LANES_FN __m128i _mm256_cvtps_ph(__m256 x, int mode)
{
    return (__m128i)vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)x.a), (float32x4_t)x.b);
}
/* A lane for each bit of the result. */
LANES_FN int lanes_signs(__m128i x)
{
    return (int)vaddvq_u32((uint32x4_t)((x >> 31) * (__m128i){ 1, 2, 4, 8 }));
}
LANES_FN unsigned lanes_signs8(__m128i x)
{
    const lanes_16u bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const uint8x16_t of = (uint8x16_t)((lanes_16u)((lanes_16i)x < 0) & bit);
    return (unsigned)vaddv_u8(vget_low_u8(of)) | (unsigned)vaddv_u8(vget_high_u8(of)) << 8;
}
/* Of eight floats. */
LANES_FN __m128 lanes_look_up(__m256 x, __m128i at)
{
    const uint8x16x2_t bytes = { { (uint8x16_t)x.a, (uint8x16_t)x.b } };
    return (__m128)vqtbl2q_u8(bytes, (uint8x16_t)((at & 7) * 0x04040404 + 0x03020100));
}
#else
#define LANES_EACH(half, type, count, expression)                                                  \
    type lane[count];                                                                              \
    half result;                                                                                   \
    for (int i = 0; i < (count); i++)                                                              \
        lane[i] = (type)(expression);                                                              \
    memcpy(&result, lane, sizeof result);                                                          \
    return result;
LANES_FN int lanes_between(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}
#define LANES_LOOP(name, type, count, expression)                                                  \
    LANES_FN __m128i lanes_##name(__m128i x, __m128i y){ LANES_EACH(                               \
        __m128i, type, count, expression) } LANES_INTS(name, lanes_##name(x, y))
LANES_LOOP(adds_epi8, int8_t, 16, lanes_between(((lanes_16i)x)[i] + ((lanes_16i)y)[i], -128, 127))
LANES_LOOP(packus_epi32, uint16_t, 8, lanes_between((int)(i < 4 ? x[i] : y[i - 4]), 0, 65535))
LANES_LOOP(packus_epi16, uint8_t, 16,
           lanes_between(i < 8 ? ((lanes_8i)x)[i] : ((lanes_8i)y)[i - 8], 0, 255))
LANES_LOOP(shuffle_epi8, uint8_t, 16,
           ((lanes_16u)y)[i] >> 7 ? 0 : ((lanes_16u)x)[((lanes_16u)y)[i] & 15])
LANES_FN __m128 lanes_sqrt(__m128 x){
    LANES_EACH(__m128, float, 4, __builtin_sqrtf(x[i]))
} LANES_ONE(__m256, __m128, sqrt_ps, lanes_sqrt(x)) LANES_FN __m128
    lanes_fma(__m128 x, __m128 y, __m128 z){
        LANES_EACH(__m128, float, 4, __builtin_fmaf(x[i], y[i], z[i]))
    } LANES_FN lanes_2d lanes_fma_pd(lanes_2d x, lanes_2d y, lanes_2d z){
        LANES_EACH(lanes_2d, double, 2, __builtin_fma(x[i], y[i], z[i]))
    } LANES_FN __m256 _mm256_cvtph_ps(__m128i x){
        LANES_EACH(__m256, float, 8, sheaf__from_f16(((lanes_8u)x)[i]))
    } LANES_FN __m128i _mm256_cvtps_ph(__m256 x, int mode){
        LANES_EACH(__m128i, uint16_t, 8, sheaf__f16(i < 4 ? x.a[i] : x.b[i - 4]))
    } LANES_FN int lanes_signs(__m128i x)
{
    return (int)(x[0] >> 31 | x[1] >> 31 << 1 | x[2] >> 31 << 2 | x[3] >> 31 << 3);
}
LANES_FN unsigned lanes_signs8(__m128i x)
{
    unsigned bits = 0;
    for (int i = 0; i < 16; i++)
        bits |= (unsigned)(((lanes_16u)x)[i] >> 7) << i;
    return bits;
}
LANES_FN __m128 lanes_look_up(__m256 x, __m128i at){
    LANES_EACH(__m128, float, 4, (at[i] & 4) != 0 ? x.b[at[i] & 3] : x.a[at[i] & 3])
}
#endif

LANES_FN __m256 _mm256_fmadd_ps(__m256 x, __m256 y, __m256 z)
{
    return (__m256){ lanes_fma(x.a, y.a, z.a), lanes_fma(x.b, y.b, z.b) };
}
LANES_FN __m256d _mm256_fmadd_pd(__m256d x, __m256d y, __m256d z)
{
    return (__m256d){ lanes_fma_pd(x.a, y.a, z.a), lanes_fma_pd(x.b, y.b, z.b) };
}

/* ---- choices ---- */

LANES_FN __m128 lanes_compare(__m128 x, __m128 y, const int how)
{
    return how == _CMP_LT_OQ    ? (__m128)(x < y)
           : how == _CMP_NLE_UQ ? (__m128) ~(x <= y)
                                : (__m128)((x != x) | (y != y));
}
LANES_FN __m256 _mm256_cmp_ps(__m256 x, __m256 y, const int how)
{
    return (__m256){ lanes_compare(x.a, y.a, how), lanes_compare(x.b, y.b, how) };
}
LANES_FN __m256 _mm256_blendv_ps(__m256 no, __m256 yes, __m256 mask)
{
    const __m256i m = _mm256_srai_epi32(_mm256_castps_si256(mask), 31);
    return (__m256){ LANES_PICK(__m128, m.a, yes.a, no.a), LANES_PICK(__m128, m.b, yes.b, no.b) };
}
LANES_FN __m256i _mm256_blendv_epi8(__m256i no, __m256i yes, __m256i mask)
{
    return (__m256i){ LANES_PICK(__m128i, (lanes_16i)mask.a < 0, yes.a, no.a),
                      LANES_PICK(__m128i, (lanes_16i)mask.b < 0, yes.b, no.b) };
}
/* By bits of a number: the odd lanes, which is all that is asked for. */
#define _mm256_blend_epi32(x, y, bits) lanes_blend_odd(x, y, 32, 1 / ((bits) == 0xaa))
#define _mm256_blend_epi16(x, y, bits) lanes_blend_odd(x, y, 16, 1 / ((bits) == 0xaa))
LANES_FN __m256i lanes_blend_odd(__m256i x, __m256i y, const int wide, const int one)
{
    const lanes_2u odd =
        (lanes_2u){ 1, 1 } * (wide == 32 ? 0xffffffff00000000 : 0xffff0000ffff0000);
    return (__m256i){ LANES_PICK(__m128i, odd, y.a, x.a), LANES_PICK(__m128i, odd, y.b, x.b) };
}
LANES_FN int _mm256_movemask_ps(__m256 x)
{
    return lanes_signs((__m128i)x.a) | lanes_signs((__m128i)x.b) << 4;
}
LANES_FN int _mm256_movemask_epi8(__m256i x)
{
    return (int)(lanes_signs8(x.a) | lanes_signs8(x.b) << 16);
}
LANES_FN int _mm256_testz_si256(__m256i x, __m256i y)
{
    const lanes_2u both = (lanes_2u)((x.a & y.a) | (x.b & y.b));
    return (both[0] | both[1]) == 0;
}

/* ---- lanes that change places ---- */

#define LANES_UNPACK(suffix, type, of, ...)                                                        \
    LANES_FN of _mm_unpack##suffix(of x, of y)                                                     \
    {                                                                                              \
        return (of)__builtin_shufflevector((type)x, (type)y, __VA_ARGS__);                         \
    }
#define LANES_WIDE(suffix, wide)                                                                   \
    LANES_FN wide _mm256_unpack##suffix(wide x, wide y)                                            \
    {                                                                                              \
        return (wide){ _mm_unpack##suffix(x.a, y.a), _mm_unpack##suffix(x.b, y.b) };               \
    }
LANES_UNPACK(lo_epi64, lanes_2u, __m128i, 0, 2)
LANES_UNPACK(hi_epi64, lanes_2u, __m128i, 1, 3)
LANES_UNPACK(lo_epi32, __m128i, __m128i, 0, 4, 1, 5)
LANES_UNPACK(hi_epi32, __m128i, __m128i, 2, 6, 3, 7)
LANES_UNPACK(lo_epi16, lanes_8u, __m128i, 0, 8, 1, 9, 2, 10, 3, 11)
LANES_UNPACK(hi_epi16, lanes_8u, __m128i, 4, 12, 5, 13, 6, 14, 7, 15)
LANES_UNPACK(lo_epi8, lanes_16u, __m128i, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
LANES_UNPACK(hi_epi8, lanes_16u, __m128i, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
             31)
LANES_UNPACK(lo_ps, __m128, __m128, 0, 4, 1, 5)
LANES_UNPACK(hi_ps, __m128, __m128, 2, 6, 3, 7)
LANES_WIDE(lo_epi64, __m256i)
LANES_WIDE(hi_epi64, __m256i)
LANES_WIDE(lo_epi32, __m256i)
LANES_WIDE(hi_epi32, __m256i)
LANES_WIDE(lo_epi8, __m256i)
LANES_WIDE(hi_epi8, __m256i)
LANES_WIDE(lo_ps, __m256)
LANES_WIDE(hi_ps, __m256)

LANES_FN __m256 lanes_shuffle(__m256 x, __m256 y, const int i) /* folded: i is a literal */
{
    return (__m256){ { x.a[i & 3], x.a[i >> 2 & 3], y.a[i >> 4 & 3], y.a[i >> 6 & 3] },
                     { x.b[i & 3], x.b[i >> 2 & 3], y.b[i >> 4 & 3], y.b[i >> 6 & 3] } };
}
#define _mm256_shuffle_ps(x, y, i) lanes_shuffle(x, y, i)
#define _mm256_permute_ps(x, i) lanes_shuffle(x, x, i)
LANES_FN __m128i lanes_half(__m256i x, __m256i y, const int i)
{
    return i == 0 ? x.a : i == 1 ? x.b : i == 2 ? y.a : y.b;
}
LANES_FN __m256i _mm256_permute2x128_si256(__m256i x, __m256i y, const int i)
{
    return (__m256i){ lanes_half(x, y, i & 3), lanes_half(x, y, i >> 4 & 3) };
}
LANES_FN __m256 _mm256_permute2f128_ps(__m256 x, __m256 y, const int i)
{
    return _mm256_castsi256_ps(
        _mm256_permute2x128_si256(_mm256_castps_si256(x), _mm256_castps_si256(y), i));
}
LANES_FN uint64_t lanes_word(__m256i x, const int i)
{
    return ((lanes_2u)(i < 2 ? x.a : x.b))[i & 1];
}
LANES_FN __m256i _mm256_permute4x64_epi64(__m256i x, const int i)
{
    return (__m256i){ (__m128i)(lanes_2u){ lanes_word(x, i & 3), lanes_word(x, i >> 2 & 3) },
                      (__m128i)(lanes_2u){ lanes_word(x, i >> 4 & 3), lanes_word(x, i >> 6 & 3) } };
}
LANES_FN __m256d _mm256_permute4x64_pd(__m256d x, const int i)
{
    const __m256i y = _mm256_permute4x64_epi64((__m256i){ (__m128i)x.a, (__m128i)x.b }, i);
    return (__m256d){ (lanes_2d)y.a, (lanes_2d)y.b };
}
LANES_FN __m256 _mm256_permutevar8x32_ps(__m256 x, __m256i at)
{
    return (__m256){ lanes_look_up(x, at.a), lanes_look_up(x, at.b) };
}
LANES_FN __m256 _mm256_i32gather_ps(const float *p, __m256i at, int scale)
{
    return (__m256){ { p[at.a[0]], p[at.a[1]], p[at.a[2]], p[at.a[3]] },
                     { p[at.b[0]], p[at.b[1]], p[at.b[2]], p[at.b[3]] } };
}
#define _mm_srli_si128(x, by) lanes_srli_si128(x, 1 / ((by) == 8))
LANES_FN __m128i lanes_srli_si128(__m128i x, int one)
{
    return (__m128i){ x[2], x[3], 0, 0 };
}

/* ---- conversions ---- */

LANES_FN __m256i _mm256_cvtepu16_epi32(__m128i x)
{
    const __m128i zero = { 0 };
    return (__m256i){ _mm_unpacklo_epi16(x, zero), _mm_unpackhi_epi16(x, zero) };
}
LANES_FN __m256i _mm256_cvtepu8_epi32(__m128i x)
{
    const lanes_16u zero = { 0 };
    return _mm256_cvtepu16_epi32((__m128i)__builtin_shufflevector(
        (lanes_16u)x, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
}
LANES_FN __m256i _mm256_cvtepu32_epi64(__m128i x)
{
    const __m128i zero = { 0 };
    return (__m256i){ _mm_unpacklo_epi32(x, zero), _mm_unpackhi_epi32(x, zero) };
}
LANES_FN __m256 _mm256_cvtepi32_ps(__m256i x)
{
    return (__m256){ __builtin_convertvector((lanes_4i)x.a, __m128),
                     __builtin_convertvector((lanes_4i)x.b, __m128) };
}
/* A whole number as x86 converts it: what does not fit is the least one. */
LANES_FN __m128i lanes_to_int(__m128 x)
{
    const __m128 most = { 0x1p31f, 0x1p31f, 0x1p31f, 0x1p31f };
    const __m128i fits = (__m128i)((x >= -most) & (x < most));
    const __m128i least = { 1u << 31, 1u << 31, 1u << 31, 1u << 31 };
    const __m128 in = (__m128)((__m128i)x & fits);
    return LANES_PICK(__m128i, fits, __builtin_convertvector(in, lanes_4i), least);
}
LANES_FN __m256i _mm256_cvttps_epi32(__m256 x)
{
    return (__m256i){ lanes_to_int(x.a), lanes_to_int(x.b) };
}
/* To nearest even: by the sum with what has no place for a fraction. */
LANES_FN __m256i _mm256_cvtps_epi32(__m256 x)
{
    const __m256i sign = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MIN));
    const __m256 large =
        _mm256_castsi256_ps(_mm256_or_si256(sign, _mm256_castps_si256(_mm256_set1_ps(0x1p23f))));
    const __m256 whole = _mm256_sub_ps(_mm256_add_ps(x, large), large);
    const __m256 size =
        _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MAX)));
    return _mm256_cvttps_epi32(
        _mm256_blendv_ps(x, whole, _mm256_cmp_ps(size, _mm256_set1_ps(0x1p23f), _CMP_LT_OQ)));
}
LANES_FN __m256d _mm256_cvtps_pd(__m128 x)
{
    return (__m256d){ { x[0], x[1] }, { x[2], x[3] } };
}

#endif
