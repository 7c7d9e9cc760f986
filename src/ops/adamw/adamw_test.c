/* adamw_test.c */
#include "tests/ops_twin.h"

#include "base/elementary.h"
#include "ops/adamw/adamw.h"

static const sheaf__adamw usual = { .lr = 0.1,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .weight_decay = 0.01,
                                    .bias1 = 1 - 0.9,
                                    .bias2_sqrt = 0.03162277660168379,
                                    .grad_scale = 1 };

TEST(test_adamw__first_step_worked_by_hand)
{
    /* The first step goes lr against the sign of g whatever its size; decay first. */
    float p[4] = { 1, 1, -2, 0 }, m[4] = { 0 }, v[4] = { 0 };
    const float g[4] = { 0.5f, -1e-3f, 0, 1e-8f };
    sheaf__kernels_for("ref")->adamw(p, m, v, g, 4, &usual);
    CHECK_NEAR("p", p[0], 0.999 - 0.1, 1e-7);
    CHECK_NEAR("m", m[0], 0.05, 1e-8);
    CHECK_NEAR("v", v[0], 0.00025, 2e-11);
    CHECK_NEAR("against the sign", p[1], 0.999 + 0.1 * 1e-3 / (1e-3 + 1e-8), 1e-7);
    CHECK_NEAR("only decay", p[2], -1.998, 2e-7);
    CHECK_NEAR("eps counts: g = eps", p[3], -0.05, 1e-7);
}

TEST(test_adamw__grad_scale_is_a_smaller_gradient)
{
    float p[2] = { 1, 1 }, m[2] = { 0.5f, 0.5f }, v[2] = { 2, 2 };
    const float g = 3, quarter = 0.75f;
    sheaf__adamw clipped = usual;
    clipped.grad_scale = 0.25f;
    sheaf__kernels_for("ref")->adamw(p, m, v, &g, 1, &clipped);
    sheaf__kernels_for("ref")->adamw(p + 1, m + 1, v + 1, &quarter, 1, &usual);
    CHECK_NEAR("p", p[0], p[1], 0);
    CHECK_NEAR("m", m[0], m[1], 0);
    CHECK_NEAR("v", v[0], v[1], 0);
}

TEST(test_adamw__beta1_zero_takes_the_gradient_itself)
{
    float p = 1, m = 7.123456f, v = 1;
    const float g = 0.1234567f;
    sheaf__adamw how = usual;
    how.beta1 = 0, how.bias1 = 1;
    sheaf__kernels_for("ref")->adamw(&p, &m, &v, &g, 1, &how);
    CHECK_NEAR("m", m, g, 0);
}

/* At one half torch goes from the far end: g - (g - m) / 2, where g - m = 3 + 2^-23 rounds to 3.
 * From the near end it is -0.5. */
TEST(test_adamw__half_way_goes_from_the_far_end)
{
    static const char *const columns[] = { "ref", "avx2", "avx512" };
    sheaf__adamw how = usual;
    how.beta1 = 0.5;
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        float p = 1, m = -2, v = 1;
        const float g = 1 + 0x1p-23f;
        if (sheaf__kernels_for(columns[i]) == NULL)
            continue;
        sheaf__kernels_for(columns[i])->adamw(&p, &m, &v, &g, 1, &how);
        CHECK_NEAR(columns[i], m, -0.5 + 0x1p-23, 0);
    }
}

/* Rounded once, from double; in float32 each of these would be another number. */
TEST(test_adamw__constants_are_rounded_once)
{
    const sheaf__adamw how = { .lr = 0.9,
                               .beta1 = 0.1,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.9,
                               .bias1 = 0.6,
                               .bias2_sqrt = 0.3,
                               .grad_scale = 1 };
    const sheaf__adamw_constants k = sheaf__adamw_prepare(&how);
    CHECK_NEAR("decay", k.decay, (float)0.19, 0);
    CHECK_NEAR("toward", k.toward, (float)0.9, 0);
    CHECK_NEAR("stay: torch subtracts the rounded weight", k.stay, 1.0f - 0.9f, 0);
    CHECK_NEAR("beta2", k.beta2, (float)0.999, 0);
    CHECK_NEAR("rest2", k.rest2, (float)0.001, 0);
    CHECK_NEAR("step", k.step, (float)(-0.9 / 0.6), 0);
    assert_true(1 - 0.9f * 0.9f != (float)0.19 && 1 - 0.999f != (float)0.001f &&
                1.0f - 0.9f != 0.1f && -0.9f / 0.6f != (float)(-0.9 / 0.6));
}

TEST(test_adamw__follows_a_double_run_of_200_steps)
{
    enum { N = 64 };
    float p[N], m[N] = { 0 }, v[N] = { 0 }, g[N];
    double pd[N], md[N] = { 0 }, vd[N] = { 0 };
    for (int i = 0; i < N; i++)
        p[i] = twin_number((uint64_t)i, TWIN_PLAIN), pd[i] = p[i];
    for (int t = 1; t <= 200; t++) {
        sheaf__adamw how = usual;
        how.lr = 1e-3, how.weight_decay = 0.1;
        how.bias1 = 1 - sheaf__pow_d(0.9, t), how.bias2_sqrt = sqrt(1 - sheaf__pow_d(0.999, t));
        const double decay = (float)(1 - how.lr * how.weight_decay); /* its rounding adds up */
        for (int i = 0; i < N; i++) {
            g[i] = twin_number((uint64_t)(t * N + i), TWIN_PLAIN);
            pd[i] *= decay;
            md[i] = 0.9 * md[i] + 0.1 * g[i];
            vd[i] = 0.999 * vd[i] + 0.001 * g[i] * g[i];
            pd[i] -= how.lr / how.bias1 * md[i] / (sqrt(vd[i]) / how.bias2_sqrt + how.eps);
        }
        sheaf__kernels_for("ref")->adamw(p, m, v, g, N, &how);
    }
    /* 400 roundings of a p below 4, adding up at random to about 20 of one; and m, v */
    for (int i = 0; i < N; i++)
        CHECK_NEAR("after 200 steps", p[i], pd[i], 4 * 0x1p-24 * 20 + 1e-6);
}
