/* math_test.c - our float functions against libm's double ones, which are off by less
 * than 1e-8 of a float's ulp. */
#include "tests/ops_twin.h"

#include "ops/math/elementary.h"
#include "ops/math/math.h"

static double exp_flushed(double x)
{
    const double y = exp(x);
    return y < 0x1p-126 ? 0 : y;
}

static double log_flushed(double x)
{
    return fabs(x) < 0x1p-126 ? -INFINITY : log(x);
}

static const struct {
    const char *name;
    float (*ours)(float);
    double (*wanted)(double);
    double limit; /* the largest error over all 2^32 floats, rounded up */
} functions[] = {
    { "exp", sheaf__exp, exp_flushed, 1.01 },
    { "log", sheaf__log, log_flushed, 0.83 },
    { "tanh", sheaf__tanh, tanh, 1.34 },
    { "erf", sheaf__erf_of, erf, 1.14 },
};

static void check_float(size_t f, float x)
{
    const float got = functions[f].ours(x);
    const double want = functions[f].wanted(x);
    if (want != want && sheaf__bits(got) == SHEAF__NAN_BITS)
        return;
    int exponent;
    frexp(want, &exponent);
    const double ulp = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    if (!(got == (float)want || fabs(got - want) <= functions[f].limit * ulp))
        fail_msg("%s(%a): got %a, wanted %a: %.3f ulp", functions[f].name, x, got, want,
                 fabs(got - want) / ulp);
}

TEST(test_math__within_the_errors_of_the_header)
{
    /* a step that visits all exponents and, over the floats below 1e2, many mantissas */
    for (size_t f = 0; f < ARRAY_LEN(functions); f++)
        for (uint64_t bits = f; bits < UINT64_C(1) << 32; bits += 4999)
            check_float(f, sheaf__float((uint32_t)bits));
}

TEST(test_math__around_every_switch)
{
    static const float switches[] = { 0,         0x1.62e42ep+6f, -0x1.5d589ep+6f,
                                      0.625f,    0.875f,         4,
                                      1,         0x1.6a09e6p-1f, 0x1.6a09e6p+0f,
                                      0x1p-126f, 9.01f,          INFINITY };
    for (size_t f = 0; f < ARRAY_LEN(functions); f++)
        for (size_t i = 0; i < ARRAY_LEN(switches); i++)
            for (uint32_t k = 0; k < 200; k++)
                for (uint32_t sign = 0; sign < 2; sign++)
                    check_float(f, sheaf__float((sheaf__bits(switches[i]) + k - 100) ^ sign << 31));
}

TEST(test_exp__at_its_ends)
{
    CHECK_NEAR("largest", sheaf__exp(0x1.62e42ep+6f), 0x1.ffff08p127, 0x1p104);
    assert_true(sheaf__exp(0x1.62e430p+6f) == INFINITY);
    assert_true(sheaf__exp(-0x1.5d589ep+6f) >= 0x1p-126f);
    CHECK_NEAR("below the smallest normal", sheaf__exp(-0x1.5d58a0p+6f), 0, 0);
    CHECK_NEAR("zero", sheaf__exp(0), 1, 0);
    CHECK_NEAR("minus infinity", sheaf__exp(-INFINITY), 0, 0);
    assert_true(sheaf__exp(INFINITY) == INFINITY);
    assert_int_equal(sheaf__bits(sheaf__exp(sheaf__float(0xff812345))), SHEAF__NAN_BITS);
}

TEST(test_tanh_erf__are_odd_and_saturate)
{
    for (float x = 0.001f; x < 12; x *= 1.1f) {
        CHECK_NEAR("tanh", sheaf__tanh(-x), -sheaf__tanh(x), 0);
        CHECK_NEAR("erf", sheaf__erf_of(-x), -sheaf__erf_of(x), 0);
    }
    CHECK_NEAR("tanh(20)", sheaf__tanh(20), 1, 0);
    CHECK_NEAR("erf(5)", sheaf__erf_of(5), 1, 0);
    assert_true(signbit(sheaf__tanh(-0.0f)) && signbit(sheaf__erf_of(-0.0f)));
}
