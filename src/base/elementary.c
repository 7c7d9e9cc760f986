/* elementary.c - see elementary.h.
 *
 * Series rather than tables or fitted polynomials: the coefficients are then
 * fractions a reader can check. A value written hi + lo is a sum of two doubles
 * that is not rounded; its error is about 2^-100. */
#include "base/elementary.h"

#include <math.h>

#include "base/base.h"
#include "base/exp_d.h"
#include "base/log_cos_d.h"

double sheaf__exp_d(double x)
{
    return sheaf__exp_d_of(x);
}

double sheaf__log_d(double x)
{
    double hi, lo;
    if (x != x || x < 0)
        return NAN;
    if (x < 0x1p-1022)
        return -INFINITY;
    if (x > 0x1.fffffffffffffp1023)
        return INFINITY;
    log_as_sum(&hi, &lo, x);
    return hi;
}

double sheaf__pow_d(double x, double y)
{
    double hi, lo;
    if (x != x || y != y || x < 0)
        return NAN;
    if (y == 0 || x == 1)
        return 1;
    if (x < 0x1p-1022 || x > 0x1.fffffffffffffp1023)
        return (x > 1) == (y > 0) ? INFINITY : 0;
    log_as_sum(&hi, &lo, x);
    const double p = y * hi;
    if (p > 1000 || p < -1000)
        return p > 0 ? INFINITY : 0;
    return sheaf__exp_d_sum(p, fma(y, hi, -p) + y * lo);
}

static double circular(double x, int quarter_turns)
{
    double r, r_lo;
    if (!(x <= 1e9 && x >= -1e9))
        return NAN;
    if (x < 0x1p-500 && x > -0x1p-500) /* keeps r*r out of the denormals */
        return quarter_turns == 0 ? x : 1;
    const int quarter = (reduce(&r, &r_lo, x) + quarter_turns) & 3;
    const double y = quarter & 1 ? cos_of_sum(r, r_lo) : sin_of_sum(r, r_lo);
    return quarter & 2 ? -y : y;
}

double sheaf__sin_d(double x)
{
    return circular(x, 0);
}
double sheaf__cos_d(double x)
{
    return circular(x, 1);
}
