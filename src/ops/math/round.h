/* round.h - one element between float32 and the types it is stored in.
 *
 * Rounding is to nearest, ties to even, denormals kept, by integer arithmetic,
 * so that neither DAZ and FTZ nor an instruction's habits show (vcvtneps2bf16
 * drops denormals; it is not used). The rule of the contract for NaN: which NaN
 * a sum of two NaNs is depends on the order a compiler gives the operands, so
 * every stored result that is NaN is one and the same quiet NaN. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/shared_fn.h"
#include "sheaf/dtype.h"

#define SHEAF__NAN_BITS UINT32_C(0x7fc00000)
#define SHEAF__NAN_BF16 UINT16_C(0x7fc0)

SHEAF__SHARED_FN uint32_t sheaf__bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

SHEAF__SHARED_FN float sheaf__float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

SHEAF__SHARED_FN float sheaf__one_nan(float x)
{
    return x == x ? x : sheaf__float(SHEAF__NAN_BITS);
}

SHEAF__SHARED_FN uint16_t sheaf__bf16(float x)
{
    const uint32_t bits = sheaf__bits(x);
    if (x != x)
        return SHEAF__NAN_BF16;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

SHEAF__SHARED_FN float sheaf__from_bf16(uint16_t half)
{
    return sheaf__float((uint32_t)half << 16);
}

/* The bits of vcvtps2ph: a NaN stays quiet and keeps its sign and upper payload. */
SHEAF__SHARED_FN uint16_t sheaf__f16(float x)
{
    const uint32_t bits = sheaf__bits(x), size = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) /* 65520, half way to the number after the largest */
        return sign | 0x7c00;
    if (size >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
    if (size <= 0x33000000) /* 2^-25, half the smallest: ties to zero */
        return sign;
    const uint32_t significand = (size & 0x7fffff) | 0x800000, drop = 126 - (size >> 23);
    const uint32_t kept = significand >> drop, lost = significand & ((UINT32_C(1) << drop) - 1);
    const uint32_t half = UINT32_C(1) << (drop - 1);
    return (uint16_t)(sign | (kept + (lost > half || (lost == half && (kept & 1)))));
}

/* The bits of vcvtph2ps. */
SHEAF__SHARED_FN float sheaf__from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
    if (size > 0x7c00)
        return sheaf__float(sign | 0x7fc00000 | size << 13);
    if (size == 0x7c00)
        return sheaf__float(sign | 0x7f800000);
    if (size >= 0x400)
        return sheaf__float(sign | ((size << 13) + 0x38000000));
    if (size == 0)
        return sheaf__float(sign);
    const int shift = __builtin_clz(size) - 21; /* brings the leading one to bit 10 */
    return sheaf__float(sign | (((uint32_t)(113 - shift) << 23) + ((size << shift & 0x3ff) << 13)));
}

/* Element i of an operand in the activation type: F32, BF16 or F16. */
SHEAF__SHARED_FN float sheaf__load(const void *x, int64_t i, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F16)
        return sheaf__from_f16(((const uint16_t *)x)[i]);
    return dtype == SHEAF_BF16 ? sheaf__from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* "round" of kernels.h for a computed result. */
SHEAF__SHARED_FN void sheaf__store(void *y, int64_t i, float value, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        ((uint16_t *)y)[i] = sheaf__bf16(value);
    else if (dtype == SHEAF_F16)
        ((uint16_t *)y)[i] = sheaf__f16(sheaf__one_nan(value));
    else
        ((float *)y)[i] = sheaf__one_nan(value);
}

/* The same, kept as a float for the next step. */
SHEAF__SHARED_FN float sheaf__rounded(float value, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F16)
        return sheaf__from_f16(sheaf__f16(value));
    return dtype == SHEAF_BF16 ? sheaf__from_bf16(sheaf__bf16(value)) : value;
}

/* The larger in the order of the bits read as sign and size: -0 < +0, and a NaN with
 * clear sign above all. Associative and commutative, whatever the flags. */
SHEAF__SHARED_FN int32_t sheaf__order(float x)
{
    const int32_t bits = (int32_t)sheaf__bits(x);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

SHEAF__SHARED_FN float sheaf__max(float a, float b)
{
    return sheaf__order(a) > sheaf__order(b) ? a : b;
}
