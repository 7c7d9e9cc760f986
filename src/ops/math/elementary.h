/* elementary.h - the functions of math.h as kernels for GPUs have them, too. Coefficients are
 * minimax fits (Remez, relative error) rounded to float; each comment gives the fit's own error. */
#pragma once

#include <math.h>

#include "ops/math/round.h"

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln2/2; e^r = 1 + (r + r^2 q(r)), q of
 * degree 4 within 2^-28. 0x1.8p23 rounds to an integer and leaves it in the low bits,
 * which are then added to the exponent. */
SHEAF__SHARED_FN float sheaf__exp_below(float x) /* of x up to 88.7, or NaN */
{
    const float shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p23f);
    const float n = shifted - 0x1.8p23f;
    float r = fmaf(n, -0x1.62e430p-1f, x);
    r = fmaf(n, 0x1.05c610p-29f, r);
    float q = 0x1.6a217cp-10f;
    q = fmaf(q, r, 0x1.123b8ap-7f);
    q = fmaf(q, r, 0x1.5558fcp-5f);
    q = fmaf(q, r, 0x1.555490p-3f);
    q = fmaf(q, r, 0x1.fffffcp-2f);
    const float y = fmaf(r * r, q, r) + 1.0f;
    float e = sheaf__float(sheaf__bits(y) + (sheaf__bits(shifted) << 23));
    e = x < -0x1.5d589ep+6f ? 0.0f : e; /* chosen: GPUs would branch */
    return x == x ? e : sheaf__float(SHEAF__NAN_BITS);
}
SHEAF__SHARED_FN float sheaf__exp_of(float x)
{
    const float e = sheaf__exp_below(x);
    return x > 0x1.62e42ep+6f ? sheaf__float(0x7f800000) : e;
}

/* x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f), z = s^2;
 * ln m = f - (f^2/2 - s (f^2/2 + z l(z))), l within 2^-36. */
SHEAF__SHARED_FN float sheaf__log_of(float x)
{
    if (sheaf__bits(x) << 1 < 0x01000000)
        return sheaf__float(0xff800000);
    if (x != x || x < 0)
        return sheaf__float(SHEAF__NAN_BITS);
    if (sheaf__bits(x) == 0x7f800000)
        return x;
    const uint32_t above = sheaf__bits(x) - 0x3f3504f3; /* sqrt(1/2) */
    const float k = (float)((int32_t)above >> 23);
    const float f = sheaf__float((above & 0x7fffff) + 0x3f3504f3) - 1.0f;
    const float s = f / (2.0f + f), z = s * s;
    float l = 0x1.e2fc3ap-3f;
    l = fmaf(l, z, 0x1.2438b4p-2f);
    l = fmaf(l, z, 0x1.999a7ap-2f);
    l = fmaf(l, z, 0x1.555554p-1f);
    const float half = 0.5f * f * f;
    const float rest = fmaf(s, fmaf(z, l, half), k * -0x1.05c610p-29f) - half;
    return fmaf(k, 0x1.62e430p-1f, f + rest);
}

/* Small: x + x z p(z), z = x^2, within 2^-32. Else 1 - 2 / (e^2|x| + 1). */
SHEAF__SHARED_FN float sheaf__tanh_of(float x)
{
    if (x != x)
        return sheaf__float(SHEAF__NAN_BITS);
    const uint32_t sign = sheaf__bits(x) & 0x80000000;
    const float a = sheaf__float(sheaf__bits(x) ^ sign);
    float y;
    if (a < 0.625f) {
        const float z = a * a;
        float p = 0x1.1982a8p-9f;
        p = fmaf(p, z, -0x1.0c2374p-7f);
        p = fmaf(p, z, 0x1.63955ap-6f);
        p = fmaf(p, z, -0x1.b9ef8ap-5f);
        p = fmaf(p, z, 0x1.11106cp-3f);
        p = fmaf(p, z, -0x1.555554p-2f);
        y = fmaf(a * z, p, a);
    } else {
        y = 1.0f - 2.0f / (sheaf__exp_of(2.0f * a) + 1.0f);
    }
    return sheaf__float(sheaf__bits(y) | sign);
}

/* Small: x + x p(x^2), p = erf(x)/x - 1 within 2^-32. Else 1 - e^q(|x|), q = ln erfc
 * fitted so that e^q is within 2^-36 (absolute). From 4 on the result is 1. */
SHEAF__SHARED_FN float sheaf__erf_of(float x)
{
    if (x != x)
        return sheaf__float(SHEAF__NAN_BITS);
    const uint32_t sign = sheaf__bits(x) & 0x80000000;
    const float a = sheaf__float(sheaf__bits(x) ^ sign);
    if (a < 0.875f) {
        const float z = a * a;
        float p = 0x1.6cdc76p-14f;
        p = fmaf(p, z, -0x1.aec8a2p-11f);
        p = fmaf(p, z, 0x1.5542a4p-8f);
        p = fmaf(p, z, -0x1.b81a72p-6f);
        p = fmaf(p, z, 0x1.ce2e8ep-4f);
        p = fmaf(p, z, -0x1.812744p-2f);
        p = fmaf(p, z, 0x1.06eba8p-3f);
        return fmaf(x, p, x);
    }
    float y = 1.0f;
    if (a < 4.0f) {
        float q = 0x1.433402p-20f;
        q = fmaf(q, a, -0x1.44f7eep-16f);
        q = fmaf(q, a, 0x1.de2338p-14f);
        q = fmaf(q, a, -0x1.abc2f8p-14f);
        q = fmaf(q, a, -0x1.7365d6p-9f);
        q = fmaf(q, a, 0x1.77f490p-6f);
        q = fmaf(q, a, -0x1.b2162ap-4f);
        q = fmaf(q, a, -0x1.450f2ep-1f);
        q = fmaf(q, a, -0x1.210194p+0f);
        q = fmaf(q, a, 0x1.458d96p-14f);
        y = 1.0f - sheaf__exp_of(q);
    }
    return sheaf__float(sheaf__bits(y) | sign);
}
