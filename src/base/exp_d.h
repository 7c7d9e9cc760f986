/* exp_d.h - sheaf__exp_d of elementary.h as kernels for GPUs have it, too. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/shared_fn.h"

/* 2^k of a normal number */
SHEAF__SHARED_FN double sheaf__power_of_two(int64_t k)
{
    const uint64_t bits = (uint64_t)(k + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^(hi + lo) = 2^n e^r, |r| <= ln2/2. r is exact but for lo: hi and n ln 2 cancel. */
SHEAF__SHARED_FN double sheaf__exp_d_sum(double hi, double lo)
{
    if (hi != hi)
        return hi;
    if (hi > 709.79)
        return (double)INFINITY;
    if (hi < -708.39)
        return 0;
    /* adding and subtracting 1.5 * 2^52 rounds to the nearest integer */
    const double n = (hi * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;
    const double cancelled = fma(-n, 0x1.62e42fefa39efp-1, hi);
    const double rest = fma(-n, 0x1.abc9e3b39803fp-56, lo);
    const double r = cancelled + rest;
    const double r_lo = (cancelled - r) + rest;

    double series = 1.0 / 6227020800.0; /* 1/13!; the next term is below 2^-57 */
    series = fma(series, r, 1.0 / 479001600);
    series = fma(series, r, 1.0 / 39916800);
    series = fma(series, r, 1.0 / 3628800);
    series = fma(series, r, 1.0 / 362880);
    series = fma(series, r, 1.0 / 40320);
    series = fma(series, r, 1.0 / 5040);
    series = fma(series, r, 1.0 / 720);
    series = fma(series, r, 1.0 / 120);
    series = fma(series, r, 1.0 / 24);
    series = fma(series, r, 1.0 / 6);
    series = fma(series, r, 0.5);
    const double small = fma(r * r, series, fma(r_lo, r, r_lo));
    const double sum = 1 + r;
    const double y = sum + (((1 - sum) + r) + small);

    /* In two steps, as 2^1024 and 2^-1022 times a y below 1 need them. */
    const int64_t k = (int64_t)n, half = k / 2;
    return y * sheaf__power_of_two(half) * sheaf__power_of_two(k - half);
}

SHEAF__SHARED_FN double sheaf__exp_d_of(double x)
{
    return sheaf__exp_d_sum(x, 0);
}
