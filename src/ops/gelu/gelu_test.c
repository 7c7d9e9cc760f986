/* gelu_test.c */
#include "tests/ops_twin.h"

static const struct {
    const char *name;
    float x, want;
} by_hand[] = {
    { "0 stays", 0, 0 },
    { "1 times Phi(1)", 1, 0.841344746f },
    { "-1 times Phi(-1)", -1, -0.158655254f },
    { "half way", 0.5f, 0.345731231f },
    { "least value", -0.751791525f, -0.169971208f },
    { "large numbers pass", 50, 50 },
    { "very negative ones close", -50, 0 },
};

TEST(test_gelu__values_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float y;
        sheaf__kernels_for("ref")->gelu(&y, &by_hand[i].x, 1, false, SHEAF_F32);
        CHECK_NEAR(by_hand[i].name, y, by_hand[i].want, 1e-7);
    }
}

TEST(test_gelu__one_rounding_in_bf16)
{
    /* 1.125 * Phi(1.125) = 1.125 * 0.869705 = 0.978419; bf16 neighbours are 0.9765625 and
     * 0.98046875: the first. Rounding Phi to 0.87109375 on the way would give the second. */
    const uint16_t x = sheaf__bf16(1.125f);
    uint16_t y;
    sheaf__kernels_for("ref")->gelu(&y, &x, 1, false, SHEAF_BF16);
    CHECK_NEAR("1.125", sheaf__from_bf16(y), 0.9765625, 0);
}

static double gelu(double x)
{
    return x * 0.5 * erfc(-x * sqrt(0.5));
}
static double slope(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

TEST(test_gelu__ends)
{
    const float x[] = { INFINITY, -INFINITY, NAN, -0.0f, 1e30f, -1e30f };
    float y[6], dx[6];
    const float ones[6] = { 1, 1, 1, 1, 1, 1 };
    sheaf__kernels_for("ref")->gelu(y, x, 6, false, SHEAF_F32);
    sheaf__kernels_for("ref")->gelu_back(dx, ones, x, 6, false, false, SHEAF_F32);
    assert_true(y[0] == INFINITY && sheaf__bits(y[1]) == SHEAF__NAN_BITS &&
                sheaf__bits(y[2]) == SHEAF__NAN_BITS);
    assert_true(y[3] == 0 && signbit(y[3]) && y[4] == 1e30f && y[5] == 0);
    assert_true(sheaf__bits(dx[0]) == SHEAF__NAN_BITS && sheaf__bits(dx[1]) == SHEAF__NAN_BITS);
    assert_true(sheaf__bits(dx[2]) == SHEAF__NAN_BITS && dx[3] == 0.5f && dx[4] == 1 && dx[5] == 0);
}

TEST(test_gelu__within_its_error_of_the_double_formulas)
{
    enum { STEP = 15360, STEPS = 12 };
    static float x[STEP], y[STEP], dx[STEP], ones[STEP];
    static uint16_t x16[STEP], y16[STEP];
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    for (int i = 0; i < STEP; i++)
        ones[i] = 1;
    for (int s = 0; s < STEPS; s++) { /* from -12 to 12 */
        for (int i = 0; i < STEP; i++)
            x[i] = (float)((s * STEP + i) * (24.0 / (STEP * STEPS)) - 12);
        k->gelu(y, x, STEP, false, SHEAF_F32);
        k->gelu_back(dx, ones, x, STEP, false, false, SHEAF_F32);
        for (int i = 0; i < STEP; i++) {
            /* 1 + erf is off by an ulp of erf and half of its own; the density is at most 0.4 */
            CHECK_NEAR("gelu", y[i], gelu(x[i]), 1.2e-7 * fabs(x[i]));
            CHECK_NEAR("slope", dx[i], slope(x[i]), 2.5e-7);
        }
        k->round(x16, SHEAF_BF16, x, STEP);
        k->gelu(y16, x16, STEP, false, SHEAF_BF16);
        for (int i = 0; i < STEP; i++) {
            const double v = sheaf__from_bf16(x16[i]);
            CHECK_NEAR("bf16", sheaf__from_bf16(y16[i]), gelu(v),
                       1.2e-7 * fabs(v) + 0x1.01p-8 * fabs(gelu(v)));
        }
    }
}

/* ---- by tanh ---- */

static const double A = 1.5957691216057308, B = 0.044715; /* A = 2 sqrt(2 / pi) */

static double by_tanh(double x)
{
    return 0.5 * x * (1 + tanh(A / 2 * (x + B * x * x * x)));
}
static double tanh_slope(double x)
{
    const double p = 1 / (1 + exp(-A * (x + B * x * x * x)));
    return p + x * p * (1 - p) * A * (1 + 3 * B * x * x);
}

TEST(test_gelu__by_tanh)
{
    enum { STEP = 15360 };
    static float x[STEP], y[STEP], dx[STEP], ones[STEP];
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    for (int i = 0; i < STEP; i++) { /* from -12 to 12 */
        ones[i] = 1;
        x[i] = (float)(i * (24.0 / STEP) - 12);
    }
    k->gelu(y, x, STEP, true, SHEAF_F32);
    k->gelu_back(dx, ones, x, STEP, false, true, SHEAF_F32);
    for (int i = 0; i < STEP; i++) {
        /* exp, a sum, a quotient and a product, and the rounding of z, which exp multiplies */
        CHECK_NEAR("by tanh", y[i], by_tanh(x[i]), 3e-6 * (1e-3 + fabs(by_tanh(x[i]))));
        /* 1 - p is off by half an ulp of 1, and meets up to 30 before it vanishes */
        CHECK_NEAR("its slope", dx[i], tanh_slope(x[i]), 2e-6);
    }
    const float ends[] = { INFINITY, -INFINITY, NAN, -0.0f, 1e20f, -1e20f, 1, -1 };
    k->gelu(y, ends, 8, true, SHEAF_F32);
    assert_true(y[0] == INFINITY && y[2] != y[2] && y[3] == 0 && signbit(y[3]) && y[4] == 1e20f &&
                y[5] == 0);
    CHECK_NEAR("1", y[6], 0.841191990608f, 1e-7);
    CHECK_NEAR("-1", y[7], -0.158808009392f, 1e-7);
    float erf_of;
    k->gelu(&erf_of, &ends[6], 1, false, SHEAF_F32);
    assert_true(fabsf(erf_of - y[6]) > 1e-4f);
}

enum { N = 24 };

/* Weighs element i by i + 1, so dy = i + 1. */
static double loss(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (i + 1) * gelu(x[i]);
    return sum;
}

static double tanh_loss(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (i + 1) * by_tanh(x[i]);
    return sum;
}

TEST(test_gelu_back__is_the_gradient)
{
    for (int which = 0; which < 2; which++) {
        double x[N], want[N];
        float xf[N], dy[N], dx[N], twice[N];
        for (int i = 0; i < N; i++) {
            xf[i] = 3 * twin_number((uint64_t)i, TWIN_PLAIN), x[i] = xf[i];
            dy[i] = (float)(i + 1), want[i] = dy[i] * (which ? tanh_slope(x[i]) : slope(x[i]));
        }
        twin_gradient("gelu", which ? tanh_loss : loss, x, N, want);
        sheaf__kernels_for("ref")->gelu_back(dx, dy, xf, N, false, which, SHEAF_F32);
        twin_close("gelu_back", dx, want, N, 1e-6);
        memcpy(twice, dx, sizeof dx);
        sheaf__kernels_for("ref")->gelu_back(twice, dy, xf, N, true, which, SHEAF_F32);
        for (int i = 0; i < N; i++)
            CHECK_NEAR("add", twice[i], 2 * dx[i], 0);
    }
}

static const char *const forms[] = { "gelu", "gelu by tanh" };

/* Floats of all sizes, and those around the ends of erf and exp's branches. */
static void sweep(const twin *t)
{
    static const float ends[] = {
        0.875f * 0x1.6a09e6p+0f, 4 * 0x1.6a09e6p+0f, 13.2137f, 13.3215f, 0, 0x1p-126f
    };
    enum { STEP = 4096 };
    static float x[STEP], y[2][STEP], dx[2][STEP], ones[STEP];
    if (t->dtype != SHEAF_F32 || t->numbers != TWIN_PLAIN)
        return;
    for (int i = 0; i < STEP; i++)
        ones[i] = 1;
    for (uint64_t s = 0; s < 60 + ARRAY_LEN(ends); s++) {
        for (uint64_t i = 0; i < STEP; i++)
            x[i] = s < 60 ? sheaf__float((uint32_t)((s * STEP + i) * 17477))
                          : sheaf__float((sheaf__bits(ends[s - 60]) + (uint32_t)i / 2 - STEP / 4) ^
                                         (uint32_t)i << 31);
        for (int which = 0; which < 2; which++) {
            t->ref->gelu(y[0], x, STEP, which == 1, t->dtype);
            t->fast->gelu(y[1], x, STEP, which == 1, t->dtype);
            twin_same(t, forms[which], y[1], y[0], sizeof x);
            t->ref->gelu_back(dx[0], ones, x, STEP, false, which == 1, t->dtype);
            t->fast->gelu_back(dx[1], ones, x, STEP, false, which == 1, t->dtype);
            twin_same(t, forms[which], dx[1], dx[0], sizeof x);
        }
    }
}

TEST(test_gelu__fast_kernels_give_the_reference_bits_at_every_size_of_x)
{
    twin_each(sweep);
}
