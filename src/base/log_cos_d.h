/* log_cos_d.h - the parts of elementary.h's log and cos that have no branches, so that normals_of.h
 * computes many side by side. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/* LN2 is ln 2, pi/2 = HALF_PI + HALF_PI_2 + HALF_PI_3. LN2_42 has 42 bits,
 * so that its product with an exponent is exact; LN2_REST is what it leaves. */
#define LN2 0x1.62e42fefa39efp-1
#define LN2_42 0x1.62e42fefa3800p-1
#define LN2_REST 0x1.ef35793c76730p-45
#define HALF_PI 0x1.921fb54442d18p+0
#define HALF_PI_2 0x1.1a62633145c07p-54
#define HALF_PI_3 -0x1.f1976b7ed8fbcp-110
#define INV_HALF_PI 0x1.45f306dc9c883p-1
/* 1/3 and 1/5 as hi + lo */
#define THIRD 0x1.5555555555555p-2
#define THIRD_LO 0x1.5555555555555p-56
#define FIFTH 0x1.999999999999ap-3
#define FIFTH_LO -0x1.999999999999ap-57
/* Adding and subtracting it rounds |x| < 2^51 to the nearest integer. */
#define ROUNDER 0x1.8p52

static inline double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double nearest(double x)
{
    return (x + ROUNDER) - ROUNDER;
}

/* ln x = *hi + *lo for a normal positive x: x = 2^k m, m in [sqrt(1/2), sqrt(2)),
 * s = (m-1)/(m+1), ln m = 2s (1 + z/3 + z^2/5 + ...), z = s^2 <= 0.0295. */
static inline void log_as_sum(double *hi, double *lo, double x)
{
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
    const uint64_t over = to_bits(x) - sqrt_half;
    const int32_t k = (int32_t)(uint32_t)(over >> 32) >> 20;
    const double m = from_bits(to_bits(x) - (over & 0xfff0000000000000));
    const double f = m - 1; /* exact */
    const double d = m + 1, d_lo = m - (d - 1);
    const double s = f / d, s_lo = (fma(-s, d, f) - s * d_lo) / d;
    const double z = s * s, z_lo = fma(s, s, -z) + 2 * s * s_lo;

    double tail = fma(1.0 / 25, z, 1.0 / 23);
    tail = fma(tail, z, 1.0 / 21), tail = fma(tail, z, 1.0 / 19);
    tail = fma(tail, z, 1.0 / 17), tail = fma(tail, z, 1.0 / 15);
    tail = fma(tail, z, 1.0 / 13), tail = fma(tail, z, 1.0 / 11);
    tail = fma(tail, z, 1.0 / 9), tail = fma(tail, z, 1.0 / 7);
    tail *= z;
    /* From here on in two doubles: 1/5 + tail, then 1/3 + z *, then 1 + z *, then 2 s *. */
    const double c = FIFTH + tail, c_lo = (FIFTH - c) + tail + FIFTH_LO;
    double p = z * c, p_lo = fma(z, c, -p) + (z * c_lo + z_lo * c);
    const double u = THIRD + p, u_lo = (THIRD - u) + p + (THIRD_LO + p_lo);
    p = z * u, p_lo = fma(z, u, -p) + (z * u_lo + z_lo * u);
    const double v = 1 + p, v_lo = (1 - v) + p + p_lo;
    const double two_s = 2 * s, two_s_lo = 2 * s_lo;
    const double l = two_s * v, l_lo = fma(two_s, v, -l) + (two_s * v_lo + two_s_lo * v);

    const double exponent = (double)k * LN2_42;
    const double sum = exponent + l;
    const double sum_lo = k != 0 ? (exponent - sum) + l : 0;
    const double rest = sum_lo + ((double)k * LN2_REST + l_lo);
    *hi = sum + rest;
    *lo = (sum - *hi) + rest;
}

/* x = n pi/2 + r + r_lo, |r| <= pi/4; returns n mod 4. n*HALF_PI cancels x without
 * rounding for |x| <= 1e9, and the other two parts carry 108 more bits. */
static inline int reduce(double *r, double *r_lo, double x)
{
    const double n = nearest(x * INV_HALF_PI);
    const double cancelled = fma(-n, HALF_PI, x);
    const double p = n * HALF_PI_2, p_lo = fma(n, HALF_PI_2, -p) + n * HALF_PI_3;
    const double a = cancelled - p;
    const double back = a - cancelled;
    const double a_lo = (cancelled - (a - back)) - (p + back) - p_lo; /* two-sum */
    *r = a + a_lo;
    *r_lo = (a - *r) + a_lo;
    return (int32_t)n & 3;
}

static inline double sin_of_sum(double r, double r_lo)
{
    const double z = r * r;
    double series = fma(-1.0 / 121645100408832000 /* 1/19! */, z, 1.0 / 355687428096000);
    series = fma(series, z, -1.0 / 1307674368000), series = fma(series, z, 1.0 / 6227020800.0);
    series = fma(series, z, -1.0 / 39916800), series = fma(series, z, 1.0 / 362880);
    series = fma(series, z, -1.0 / 5040), series = fma(series, z, 1.0 / 120);
    series = fma(series, z, -1.0 / 6);
    return r + fma(r * z, series, fma(-0.5 * z, r_lo, r_lo));
}

static inline double cos_of_sum(double r, double r_lo)
{
    const double z = r * r, half = 0.5 * z;
    double series = fma(-1.0 / 6402373705728000 /* 1/18! */, z, 1.0 / 20922789888000);
    series = fma(series, z, -1.0 / 87178291200.0), series = fma(series, z, 1.0 / 479001600);
    series = fma(series, z, -1.0 / 3628800), series = fma(series, z, 1.0 / 40320);
    series = fma(series, z, -1.0 / 720), series = fma(series, z, 1.0 / 24);
    /* 1 - half rounds; what it loses and the rounding of half itself are put back. */
    const double top = 1 - half;
    const double lost = ((1 - top) - half) - 0.5 * fma(r, r, -z);
    return top + (fma(z * z, series, -r * r_lo) + lost);
}
