/* softcap_test.c */
#include "tests/ops_twin.h"

static const struct {
    const char *name;
    float x, cap, want;
} by_hand[] = {
    { "0", 0, 30, 0 },
    { "30 tanh(1)", 30, 30, 22.8478246787f },
    { "-2.5 tanh(0.4)", -1, 2.5f, -0.9498723806f },
    { "3 tanh(1/300)", 0.01f, 3, 0.0099999630f },
    { "far out", 1e6f, 50, 50 },
};

TEST(test_softcap__values_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float x = by_hand[i].x;
        sheaf__kernels_for("ref")->softcap(&x, by_hand[i].cap, 1, SHEAF_F32);
        CHECK_NEAR(by_hand[i].name, x, by_hand[i].want, 3e-7 * fabs(by_hand[i].want) + 1e-30);
    }
}

enum { N = 24 };

static double loss(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (i + 1) * 3.5 * tanh(x[i] / 3.5);
    return sum;
}

TEST(test_softcap_back__is_the_gradient)
{
    double x[N], want[N];
    float y[N], got[N];
    for (int i = 0; i < N; i++) {
        y[i] = 3 * twin_number((uint64_t)i, TWIN_PLAIN);
        x[i] = y[i];
        got[i] = (float)(i + 1);
        want[i] = (i + 1) * (1 - tanh(x[i] / 3.5) * tanh(x[i] / 3.5));
    }
    twin_gradient("softcap", loss, x, N, want);
    sheaf__kernels_for("ref")->softcap(y, 3.5f, N, SHEAF_F32);
    sheaf__kernels_for("ref")->softcap_back(got, y, 3.5f, N, SHEAF_F32);
    twin_close("softcap_back", got, want, N, 1e-5);
}
