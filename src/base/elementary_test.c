/* elementary_test.c - our double functions against long double libm (64-bit mantissa). */
#include "tests/check.h"

#include "base/elementary.h"
#include "base/random.h"

/* The comments in elementary.h plus what 20 times more points might find. */
#define EXP_ULP 0.65
#define LOG_ULP 0.51
#define POW_ULP 0.66
#define CIRCULAR_ULP 0.77

static uint64_t drawn;
static double uniform(double from, double to)
{
    uint32_t out[4];
    const uint32_t counter[4] = { (uint32_t)drawn, (uint32_t)(drawn >> 32), 0, 0 },
                   key[2] = { 7, 7 };
    drawn++;
    sheaf__philox(out, counter, key);
    return from + (to - from) * (((double)out[0] + (double)out[1] * 0x1p-32) * 0x1p-32);
}

static double ulps(double got, long double want)
{
    int exponent;
    frexpl(want, &exponent);
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - 53));
}

static void check_ulps(const char *name, double x, double got, long double want, double limit)
{
    const double error = ulps(got, want);
    if (!(error <= limit))
        fail_msg("%s(%.17g): %.3f ulp, limit %.2f", name, x, error, limit);
}

TEST(test_exp__within_its_bound)
{
    for (int i = 0; i < 200000; i++) {
        const double x = i & 1 ? uniform(-708, 709.7) : uniform(-2, 2);
        check_ulps("exp", x, sheaf__exp_d(x), expl(x), EXP_ULP);
    }
}

TEST(test_log__within_its_bound_also_beside_one)
{
    for (int i = 0; i < 100000; i++) {
        const double wide = ldexp(uniform(1, 2), (int)uniform(-1021, 1022));
        check_ulps("log", wide, sheaf__log_d(wide), logl(wide), LOG_ULP);
        const double near = 1 + ldexp(uniform(-0.5, 0.5), -(int)uniform(0, 45));
        if (near != 1)
            check_ulps("log", near, sheaf__log_d(near), logl(near), LOG_ULP);
    }
}

TEST(test_pow__within_its_bound_on_tables_and_long_schedules)
{
    for (int i = 0; i < 100000; i++) {
        double x = uniform(1000, 1000000), y = -uniform(0, 1); /* rotary base */
        check_ulps("pow", x, sheaf__pow_d(x, y), powl(x, y), POW_ULP);
        x = uniform(0.9, 0.9999), y = floor(uniform(1, 6000)); /* beta to the step */
        check_ulps("pow", x, sheaf__pow_d(x, y), powl(x, y), POW_ULP);
        x = exp(uniform(-10, 10)), y = uniform(-60, 60);
        check_ulps("pow", x, sheaf__pow_d(x, y), powl(x, y), POW_ULP);
    }
}

TEST(test_sin_cos__within_their_bound_up_to_1e9)
{
    for (int i = 0; i < 50000; i++) {
        const double x[] = { uniform(-1, 1), uniform(-1e5, 1e5), uniform(-1e9, 1e9),
                             floor(uniform(1, 6e8)) * 1.5707963267948966 /* beside a zero */,
                             ldexp(uniform(1, 2), -(int)uniform(0, 900)) };
        for (size_t k = 0; k < ARRAY_LEN(x); k++) {
            check_ulps("sin", x[k], sheaf__sin_d(x[k]), sinl(x[k]), CIRCULAR_ULP);
            check_ulps("cos", x[k], sheaf__cos_d(x[k]), cosl(x[k]), CIRCULAR_ULP);
        }
    }
}

static void check_same(const char *name, double got, double want)
{
    if (!(got == want || (got != got && want != want)))
        fail_msg("%s: got %.17g, wanted %.17g", name, got, want);
}

TEST(test_edges)
{
    check_same("exp(0)", sheaf__exp_d(0), 1);
    check_same("exp(inf)", sheaf__exp_d(INFINITY), INFINITY);
    check_same("exp(-inf)", sheaf__exp_d(-INFINITY), 0);
    check_same("exp(710)", sheaf__exp_d(710), INFINITY);
    check_same("exp(-709)", sheaf__exp_d(-709), 0);
    check_same("exp(NaN)", sheaf__exp_d(NAN), NAN);
    check_same("log(1)", sheaf__log_d(1), 0);
    check_same("log(0)", sheaf__log_d(0), -INFINITY);
    check_same("log(denormal)", sheaf__log_d(0x1p-1074), -INFINITY);
    check_same("log(2^-1022), the smallest normal number", sheaf__log_d(0x1p-1022),
               -0x1.6232bdd7abcd2p+9);
    check_same("log(-1)", sheaf__log_d(-1), NAN);
    check_same("log(inf)", sheaf__log_d(INFINITY), INFINITY);
    check_same("log(NaN)", sheaf__log_d(NAN), NAN);
    check_same("pow(0.9, 0)", sheaf__pow_d(0.9, 0), 1);
    check_same("pow(0, 5)", sheaf__pow_d(0, 5), 0); /* a beta of 0 */
    check_same("pow(0, 0)", sheaf__pow_d(0, 0), 1);
    check_same("pow(0, -1)", sheaf__pow_d(0, -1), INFINITY);
    check_same("pow(1, inf)", sheaf__pow_d(1, INFINITY), 1);
    check_same("pow(2, 10)", sheaf__pow_d(2, 10), 1024);
    check_same("pow(2, 2000)", sheaf__pow_d(2, 2000), INFINITY);
    check_same("pow(2, -2000)", sheaf__pow_d(2, -2000), 0);
    check_same("pow(inf, -1)", sheaf__pow_d(INFINITY, -1), 0);
    check_same("pow(-2, 2)", sheaf__pow_d(-2, 2), NAN);
    check_same("pow(NaN, 1)", sheaf__pow_d(NAN, 1), NAN);
    check_same("cos(0)", sheaf__cos_d(0), 1);
    check_same("sin(0)", sheaf__sin_d(0), 0);
    check_same("sin(inf)", sheaf__sin_d(INFINITY), NAN);
    check_same("cos(1.1e9)", sheaf__cos_d(1.1e9), NAN);
}

/* The whole point: these bits are the same on every machine and compiler. */
TEST(test_frozen_bits)
{
    const struct {
        double got, want;
    } frozen[] = {
        { sheaf__exp_d(1), 0x1.5bf0a8b145769p+1 },
        { sheaf__log_d(10), 0x1.26bb1bbb55516p+1 },
        { sheaf__pow_d(10000, -0.015625), 0x1.bb5fad00ab22cp-1 },
        { sheaf__pow_d(0.999, 12345), 0x1.22391fb94567ep-18 },
        { sheaf__cos_d(4095), -0x1.0e3cd8b89b3a3p-4 },
        { sheaf__sin_d(123456.789), -0x1.ff50e60ab53f9p-1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(frozen); i++)
        if (frozen[i].got != frozen[i].want)
            fail_msg("frozen value %zu: got %a, wanted %a", i, frozen[i].got, frozen[i].want);
}
