/* geglu_test.c */
#include "tests/ops_twin.h"

static const struct {
    const char *name;
    float gate, up, want;
} by_hand[] = {
    { "gelu(0) is 0", 0, 5, 0 },
    { "gelu(1)", 1, 1, 0.8411919906f },
    { "up scales", 1, -2, -1.6823839812f },
    { "gelu(-1)", -1, 1, -0.1588080094f },
    { "gelu(2)", 2, 1, 1.9545976940f },
    { "large gate passes", 50, 3, 150 },
    { "very negative gate closes", -200, 3, 0 },
};

TEST(test_geglu__values_of_torch)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float h;
        sheaf__kernels_for("ref")->swiglu(&h, &by_hand[i].gate, &by_hand[i].up, 1, true, SHEAF_F32);
        CHECK_NEAR(by_hand[i].name, h, by_hand[i].want, 2e-7 * fabs(by_hand[i].want) + 1e-30);
    }
}

enum { N = 24 };

static double gelu(double g)
{
    return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)));
}

/* Its slope by the middle of two near values. */
static double slope(double g)
{
    return (gelu(g + 1e-5) - gelu(g - 1e-5)) / 2e-5;
}

/* x: gate, up; the loss weighs element i by i + 1, so dh = i + 1. */
static double loss(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (i + 1) * gelu(x[i]) * x[N + i];
    return sum;
}

TEST(test_geglu_back__is_the_gradient)
{
    double x[2 * N], want[2 * N];
    float gate[N], up[N], dh[N], got[2 * N];
    for (int i = 0; i < N; i++) {
        gate[i] = 3 * twin_number((uint64_t)i, TWIN_PLAIN),
        up[i] = twin_number(100 + (uint64_t)i, TWIN_PLAIN);
        dh[i] = (float)(i + 1), x[i] = gate[i], x[N + i] = up[i];
        want[i] = dh[i] * x[N + i] * slope(x[i]);
        want[N + i] = dh[i] * gelu(x[i]);
    }
    twin_gradient("geglu", loss, x, 2 * N, want);
    sheaf__kernels_for("ref")->swiglu_back(got, got + N, NULL, dh, gate, up, N, true, SHEAF_F32);
    twin_close("geglu_back", got, want, 2 * N, 1e-6);
}

enum { MOST = 6145 };

static void twins(const twin *t)
{
    static void *block[8];
    const size_t each = MOST * 4;
    for (size_t i = 0; i < ARRAY_LEN(block); i++)
        block[i] = block[i] != NULL ? block[i] : twin_take(each);
    for (size_t s = 0; s < ARRAY_LEN(twin_sizes); s++) {
        const int64_t n = twin_sizes[s];
        const size_t bytes = (size_t)n * twin_bytes(t->dtype);
        void *v[8];
        for (size_t i = 0; i < ARRAY_LEN(block); i++)
            v[i] = twin_end(block[i], each, bytes);
        for (uint64_t i = 0; i < 3; i++)
            twin_fill(v[i], n, t->dtype, t->numbers, 10 * s + i);
        t->ref->swiglu(v[3], v[0], v[1], n, true, t->dtype);
        t->fast->swiglu(v[4], v[0], v[1], n, true, t->dtype);
        twin_same(t, "geglu", v[4], v[3], bytes);
        t->ref->swiglu_back(v[3], v[4], v[7], v[2], v[0], v[1], n, true, t->dtype);
        t->fast->swiglu_back(v[5], v[6], NULL, v[2], v[0], v[1], n, true, t->dtype);
        twin_same(t, "dgate", v[5], v[3], bytes);
        twin_same(t, "dup", v[6], v[4], bytes);
        t->fast->swiglu(v[5], v[0], v[1], n, true, t->dtype);
        twin_same(t, "h again", v[7], v[5], bytes);
        t->fast->swiglu_back(v[0], v[1], v[2], v[2], v[0], v[1], n, true, t->dtype);
        twin_same(t, "dgate over gate", v[0], v[3], bytes);
        twin_same(t, "dup over up", v[1], v[4], bytes);
        twin_same(t, "h over dh", v[2], v[7], bytes);
    }
}

TEST(test_geglu__fast_kernels_give_the_reference_bits)
{
    twin_each(twins);
}
