/* vectors.h - elements by 16 bytes at a time, for kernels that go over elements and rows.
 *
 * A thread has 16 bytes of the narrowest type among its operands: PER(dtype) elements, which it
 * loads, and stores, in words of 16 bytes where they all exist and lie at a multiple of 16, else
 * one by one. */
#pragma once

#include "ops/devices/gpu/kernel.h"
#include "ops/math/round.h"

typedef struct quad {
    uint32_t word[4];
} __attribute__((aligned(16))) quad;

DEVICE quad load_quad(const void *from)
{
    return *(const quad *)from;
}
DEVICE void store_quad(void *to, quad q)
{
    *(quad *)to = q;
}

enum { MOST = 8 };

/* Elements of a thread. */
#define PER(dtype) ((dtype) == SHEAF_F32 ? 4 : MOST)

DEVICE int64_t own_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Bits that a lane of the warp has, for all of them; and the largest number that one has. */
DEVICE int32_t any_lane(int32_t bits)
{
    UNROLL
    for (int by = 16; by > 0; by /= 2)
        bits |= shuffle_xor_i(bits, by);
    return bits;
}
DEVICE int32_t most_of_lanes(int32_t x)
{
    UNROLL
    for (int by = 16; by > 0; by /= 2) {
        const int32_t other = shuffle_xor_i(x, by);
        x = other > x ? other : x;
    }
    return x;
}

/* a / b and a % b, both not negative: in 32 bits where they fit. */
DEVICE int64_t divide(int64_t a, int64_t b, int64_t *rest)
{
    if ((a | b) >> 32 == 0) {
        const uint32_t q = (uint32_t)a / (uint32_t)b;
        *rest = (uint32_t)a - q * (uint32_t)b;
        return q;
    }
    *rest = a % b;
    return a / b;
}

DEVICE void *element_at(const void *x, int64_t i, sheaf_dtype dtype)
{
    return (char *)x + i * (dtype == SHEAF_F32 ? 4 : 2);
}

/* Whether `count` elements from the i-th of n are quads. */
DEVICE bool in_quads(const void *x, int64_t i, int64_t n, sheaf_dtype dtype, int count)
{
    return ((uintptr_t)element_at(x, i, dtype) & 15) == 0 && i + count <= n;
}

/* float16 by the instruction that has it, whose NaN alone has other bits. halves_of - two of a type
 * of 16 bits side by side, the first in the low half, neither a NaN. */
#ifdef __CUDACC__
DEVICE uint32_t halves_of(float low, float high, sheaf_dtype dtype)
{
    uint32_t both;
    if (dtype == SHEAF_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
DEVICE float widened_f16(uint16_t half)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return (half & 0x7fff) > 0x7c00 ? sheaf__from_f16(half) : x;
}
DEVICE uint16_t rounded_f16(float x)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return x != x ? sheaf__f16(x) : half;
}
#else
#define widened_f16 sheaf__from_f16
#define rounded_f16 sheaf__f16
DEVICE uint32_t halves_of(float low, float high, sheaf_dtype dtype)
{
    return dtype == SHEAF_BF16 ? sheaf__bf16(low) | (uint32_t)sheaf__bf16(high) << 16
                               : sheaf__f16(low) | (uint32_t)sheaf__f16(high) << 16;
}
#endif

/* One element; and the bits of one of 16, which was computed, or (moved) copied: of that float16
 * keeps a NaN. */
DEVICE float load_one(const void *x, int64_t i, sheaf_dtype dtype)
{
    return dtype == SHEAF_F16 ? widened_f16(((const uint16_t *)x)[i]) : sheaf__load(x, i, dtype);
}

DEVICE uint32_t half_of(float x, sheaf_dtype dtype, bool moved)
{
    if (dtype == SHEAF_BF16)
        return sheaf__bf16(x);
    return rounded_f16(moved ? x : sheaf__one_nan(x));
}

/* Elements i, i + 1, ... of n, `count` of them; zeros behind the n-th. */
DEVICE void load_some(float *v, const void *x, int64_t i, int64_t n, sheaf_dtype dtype, int count)
{
    if (!in_quads(x, i, n, dtype, count)) {
        UNROLL
        for (int e = 0; e < MOST; e++)
            if (e < count)
                v[e] = i + e < n ? load_one(x, i + e, dtype) : 0;
        return;
    }
    UNROLL
    for (int q = 0; q < MOST / 4; q++) {
        if (q * PER(dtype) >= count)
            continue;
        const quad in = load_quad((char *)element_at(x, i, dtype) + 16 * q);
        UNROLL
        for (int e = 0; e < 4; e++) {
            if (dtype == SHEAF_F32) {
                v[q * 4 + e] = sheaf__float(in.word[e]);
                continue;
            }
            UNROLL
            for (int h = 0; h < 2; h++) {
                const uint16_t half = (uint16_t)(in.word[e] >> 16 * h);
                v[(q * 8 + e * 2 + h) % MOST] =
                    dtype == SHEAF_F16 ? widened_f16(half) : sheaf__from_bf16(half);
            }
        }
    }
}

DEVICE void put_one(void *y, int64_t i, float x, sheaf_dtype dtype, bool moved)
{
    if (dtype == SHEAF_F32)
        ((float *)y)[i] = moved ? x : sheaf__one_nan(x);
    else
        ((uint16_t *)y)[i] = (uint16_t)half_of(x, dtype, moved);
}

/* sheaf__rounded() of round.h: rounded, kept as a float. */
DEVICE float rounded_one(float x, sheaf_dtype dtype)
{
    return dtype == SHEAF_F16 ? widened_f16(rounded_f16(x)) : sheaf__rounded(x, dtype);
}

DEVICE void put_some(void *y, int64_t i, int64_t n, const float *v, sheaf_dtype dtype, int count,
                     bool moved)
{
    if (!in_quads(y, i, n, dtype, count)) {
        UNROLL
        for (int e = 0; e < MOST; e++)
            if (e < count && i + e < n)
                put_one(y, i + e, v[e], dtype, moved);
        return;
    }
    UNROLL
    for (int q = 0; q < MOST / 4; q++) {
        if (q * PER(dtype) >= count)
            continue;
        quad out;
        UNROLL
        for (int e = 0; e < 4; e++) {
            if (dtype == SHEAF_F32)
                out.word[e] = sheaf__bits(moved ? v[q * 4 + e] : sheaf__one_nan(v[q * 4 + e]));
            else
                out.word[e] = half_of(v[(q * 8 + e * 2) % MOST], dtype, moved) |
                              half_of(v[(q * 8 + e * 2 + 1) % MOST], dtype, moved) << 16;
        }
        store_quad((char *)element_at(y, i, dtype) + 16 * q, out);
    }
}

/* "round" of kernels.h for computed results. */
DEVICE void store_some(void *y, int64_t i, int64_t n, const float *v, sheaf_dtype dtype, int count)
{
    put_some(y, i, n, v, dtype, count, false);
}
/* The same of what is only moved: bits stay what they are where the type does. */
DEVICE void move_some(void *y, int64_t i, int64_t n, const float *v, sheaf_dtype dtype, int count)
{
    put_some(y, i, n, v, dtype, count, true);
}

/* Elements i and up of x, of which `left` are left, to those from j on of y: their bits. */
DEVICE void copy_some(void *y, int64_t j, const void *x, int64_t i, int64_t left, sheaf_dtype dtype)
{
    const int per = PER(dtype);
    if (in_quads(x, i, i + left, dtype, per) && in_quads(y, j, j + left, dtype, per)) {
        store_quad(element_at(y, j, dtype), load_quad(element_at(x, i, dtype)));
        return;
    }
    UNROLL
    for (int e = 0; e < per; e++) {
        if (e >= left)
            continue;
        if (dtype == SHEAF_F32)
            ((uint32_t *)y)[j + e] = ((const uint32_t *)x)[i + e];
        else
            ((uint16_t *)y)[j + e] = ((const uint16_t *)x)[i + e];
    }
}
