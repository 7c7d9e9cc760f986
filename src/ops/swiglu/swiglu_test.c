/* swiglu_test.c - SwiGLU and GeGLU: silu or gelu (by tanh) of the gate, times up. */
#include "tests/ops_twin.h"

static const struct {
    const char *name;
    bool gelu;
    float gate, up, want;
} by_hand[] = {
    { "silu(0) is 0", false, 0, 5, 0 },
    { "silu(1) = 1/(1+1/e)", false, 1, 1, 0.731058579f },
    { "up scales", false, 1, -2, -1.462117157f },
    { "silu(-1)", false, -1, 1, -0.268941421f },
    { "large gate passes", false, 50, 3, 150 },
    { "very negative gate closes", false, -200, 3, 0 },
    { "minimum of silu", false, -1.27846454f, 1, -0.278464543f },
    { "gelu(0) is 0", true, 0, 5, 0 },
    { "gelu(1), by torch", true, 1, 1, 0.8411919906f },
    { "up scales gelu", true, 1, -2, -1.6823839812f },
    { "gelu(-1)", true, -1, 1, -0.1588080094f },
    { "gelu(2)", true, 2, 1, 1.9545976940f },
    { "large gate passes gelu", true, 50, 3, 150 },
    { "very negative gate closes gelu", true, -200, 3, 0 },
};

TEST(test_swiglu__values_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float h;
        sheaf__kernels_for("ref")->swiglu(&h, &by_hand[i].gate, &by_hand[i].up, 1, by_hand[i].gelu,
                                          SHEAF_F32);
        CHECK_NEAR(by_hand[i].name, h, by_hand[i].want, 2e-7 * fabs(by_hand[i].want) + 1e-30);
    }
}

TEST(test_swiglu__one_rounding_in_bf16)
{
    /* 1.5 * silu(1.5) = 1.5 * 1.2263617 = 1.8395425; bf16 neighbours are 1.8359375 and
     * 1.84375: the first. Rounding silu to 1.2265625 on the way would give the second. */
    const uint16_t x = sheaf__bf16(1.5f);
    uint16_t h;
    sheaf__kernels_for("ref")->swiglu(&h, &x, &x, 1, false, SHEAF_BF16);
    CHECK_NEAR("1.5", sheaf__from_bf16(h), 1.8359375, 0);
}

enum { N = 24 };

static double silu(double g)
{
    return g / (1 + exp(-g));
}

static double gelu(double g)
{
    return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)));
}

/* x: gate, up; the loss weighs element i by i + 1, so dh = i + 1. */
static double loss(const double *x, double (*gated)(double))
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (i + 1) * gated(x[i]) * x[N + i];
    return sum;
}

static double silu_loss(const double *x)
{
    return loss(x, silu);
}

static double gelu_loss(const double *x)
{
    return loss(x, gelu);
}

static void check_gradient(const char *name, double (*gated)(double), double (*f)(const double *))
{
    double x[2 * N], want[2 * N];
    float gate[N], up[N], dh[N], got[2 * N];
    for (int i = 0; i < N; i++) {
        gate[i] = 3 * twin_number((uint64_t)i, TWIN_PLAIN),
        up[i] = twin_number(100 + (uint64_t)i, TWIN_PLAIN);
        dh[i] = (float)(i + 1), x[i] = gate[i], x[N + i] = up[i];
        want[i] = dh[i] * x[N + i] * (gated(x[i] + 1e-5) - gated(x[i] - 1e-5)) / 2e-5;
        want[N + i] = dh[i] * gated(x[i]);
    }
    twin_gradient(name, f, x, 2 * N, want);
    sheaf__kernels_for("ref")->swiglu_back(got, got + N, NULL, dh, gate, up, N, gated == gelu,
                                           SHEAF_F32);
    twin_close(name, got, want, 2 * N, 1e-6);
}

TEST(test_swiglu_back__is_the_gradient)
{
    check_gradient("silu", silu, silu_loss);
    check_gradient("gelu", gelu, gelu_loss);
}
