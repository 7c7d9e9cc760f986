/* rope_test.c */
#include "tests/ops_twin.h"

TEST(test_rope__quarter_turns_worked_by_hand)
{
    /* Two positions: none, and a quarter turn for j = 0, a half turn for j = 1. */
    const float cos[4] = { 1, 1, 0, -1 }, sin[4] = { 0, 0, 1, 0 };
    const int32_t pos[2] = { 1, 0 };
    float x[2][6] = { { 1, 2, 3, 4, 5, 6 }, { 1, 2, 3, 4, 5, 6 } }; /* rot 4 of head_dim 6 */
    const float turned[6] = { -3, -2, 1, -4, 5, 6 }, still[6] = { 1, 2, 3, 4, 5, 6 };
    sheaf__kernels_for("ref")->rope(x, 6, cos, sin, pos, 2, 1, 6, 4, false, SHEAF_F32);
    CHECK_BYTES("turned", x[0], turned, sizeof turned);
    CHECK_BYTES("position 0", x[1], still, sizeof still);
    sheaf__kernels_for("ref")->rope(x, 6, cos, sin, pos, 2, 1, 6, 4, true, SHEAF_F32);
    CHECK_BYTES("and back", x[0], still, sizeof still);
}

enum { HEADS = 2, DIM = 6, ROT = 4, N = HEADS * DIM };
static double angle_cos[2], angle_sin[2], flow[N];

static double loss(const double *x)
{
    double sum = 0;
    for (int h = 0; h < HEADS; h++)
        for (int c = 0; c < DIM; c++) {
            const double *v = x + h * DIM, *d = flow + h * DIM;
            const int j = c % 2;
            const double y = c >= ROT ? v[c]
                             : c < 2  ? v[j] * angle_cos[j] - v[j + 2] * angle_sin[j]
                                      : v[j + 2] * angle_cos[j] + v[j] * angle_sin[j];
            sum += d[c] * y;
        }
    return sum;
}

TEST(test_rope__inverse_is_the_gradient)
{
    const float cos_f[2] = { 0.8f, -0.28f }, sin_f[2] = { 0.6f, 0.96f };
    const int32_t pos = 0;
    double x[N], want[N];
    float dx[N];
    for (int i = 0; i < N; i++) {
        x[i] = twin_number((uint64_t)i, TWIN_PLAIN);
        dx[i] = twin_number(50 + (uint64_t)i, TWIN_PLAIN), flow[i] = dx[i];
    }
    for (int j = 0; j < 2; j++)
        angle_cos[j] = cos_f[j], angle_sin[j] = sin_f[j];
    for (int h = 0; h < HEADS; h++) {
        const double *d = flow + h * DIM;
        for (int j = 0; j < 2; j++) {
            want[h * DIM + j] = d[j] * angle_cos[j] + d[j + 2] * angle_sin[j];
            want[h * DIM + j + 2] = d[j + 2] * angle_cos[j] - d[j] * angle_sin[j];
        }
        want[h * DIM + 4] = d[4], want[h * DIM + 5] = d[5];
    }
    twin_gradient("rope", loss, x, N, want);
    sheaf__kernels_for("ref")->rope(dx, N, cos_f, sin_f, &pos, 1, HEADS, DIM, ROT, true, SHEAF_F32);
    twin_close("rope inverse", dx, want, N, 1e-6);
}

/* ---- interleaved pairs ---- */

TEST(test_rope_pairs__quarter_turns_worked_by_hand)
{
    /* Position 1: a quarter turn of the first pair, a half turn of the second. */
    const float cos[8] = { 1, 1, 1, 1, 0, 0, -1, -1 }, sin[8] = { 0, 0, 0, 0, 1, 1, 0, 0 };
    const int32_t pos[3] = { 1, -1, 0 };
    float x[3][5] = { { 1, 2, 3, 4, 5 }, { 1, 2, 3, 4, 5 }, { 1, 2, 3, 4, 5 } }; /* stride 5 */
    const float turned[5] = { -2, 1, -3, -4, 5 }, still[5] = { 1, 2, 3, 4, 5 };
    sheaf__kernels_for("ref")->rope_pairs(x, 5, cos, sin, pos, 3, 1, 4, 4, false, SHEAF_F32);
    CHECK_BYTES("turned", x[0], turned, sizeof turned);
    CHECK_BYTES("no position", x[1], still, sizeof still);
    CHECK_BYTES("position 0", x[2], still, sizeof still);
    sheaf__kernels_for("ref")->rope_pairs(x, 5, cos, sin, pos, 3, 1, 4, 4, true, SHEAF_F32);
    CHECK_BYTES("and back", x[0], still, sizeof still);
}

TEST(test_rope_pairs__a_part_of_each_head_turns)
{
    const float cos[4] = { 1, 1, 0, 0 }, sin[4] = { 0, 0, 1, 1 };
    const int32_t pos[2] = { 1, 0 };
    float x[2][8] = { { 1, 2, 3, 4, 5, 6, 7, 8 }, { 1, 2, 3, 4, 5, 6, 7, 8 } };
    const float turned[8] = { -2, 1, 3, 4, -6, 5, 7, 8 }, still[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    sheaf__kernels_for("ref")->rope_pairs(x, 8, cos, sin, pos, 2, 2, 4, 2, false, SHEAF_F32);
    CHECK_BYTES("turned", x[0], turned, sizeof turned);
    CHECK_BYTES("position 0", x[1], still, sizeof still);
}

TEST(test_rope_pairs__one_rounding_in_bf16)
{
    /* 1.5 * 1.0078125 - 1 * 0.00390625 = 1.5078125 exactly; the product alone, 1.51171875,
     * would go to 1.515625 and leave 1.5117, which is 1.515625 again. */
    const float cos[2] = { 1.0078125f, 1 }, sin[2] = { 0.00390625f, 0 };
    const int32_t pos = 0;
    uint16_t x[2] = { sheaf__bf16(1.5f), sheaf__bf16(1) };
    sheaf__kernels_for("ref")->rope_pairs(x, 2, cos, sin, &pos, 1, 1, 2, 2, false, SHEAF_BF16);
    CHECK_NEAR("1.5", sheaf__from_bf16(x[0]), 1.5078125, 0);
}

/* The two columns of a pair have different angles here, so that a mixed-up one shows. */
static double pair_cos[DIM], pair_sin[DIM];

static double loss_pairs(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const double across = i % 2 == 0 ? -x[i + 1] : x[i - 1];
        sum += flow[i] * (x[i] * pair_cos[i % DIM] + across * pair_sin[i % DIM]);
    }
    return sum;
}

TEST(test_rope_pairs__inverse_is_the_gradient)
{
    float cos[DIM], sin[DIM], y[N], dx[N];
    const int32_t pos = 0;
    double x[N], want[N], sum = 0;
    for (int c = 0; c < DIM; c++) {
        cos[c] = twin_number(300 + (uint64_t)c, TWIN_PLAIN), pair_cos[c] = cos[c];
        sin[c] = twin_number(400 + (uint64_t)c, TWIN_PLAIN), pair_sin[c] = sin[c];
    }
    for (int i = 0; i < N; i++) {
        y[i] = twin_number((uint64_t)i, TWIN_PLAIN), x[i] = y[i];
        dx[i] = twin_number(50 + (uint64_t)i, TWIN_PLAIN), flow[i] = dx[i];
    }
    for (int i = 0; i < N; i += 2) {
        const double *c = pair_cos + i % DIM, *s = pair_sin + i % DIM;
        want[i] = flow[i] * c[0] + flow[i + 1] * s[1];
        want[i + 1] = flow[i + 1] * c[1] - flow[i] * s[0];
    }
    twin_gradient("rope_pairs", loss_pairs, x, N, want);
    sheaf__kernels_for("ref")->rope_pairs(y, N, cos, sin, &pos, 1, HEADS, DIM, DIM, false,
                                          SHEAF_F32);
    sheaf__kernels_for("ref")->rope_pairs(dx, N, cos, sin, &pos, 1, HEADS, DIM, DIM, true,
                                          SHEAF_F32);
    for (int i = 0; i < N; i++)
        sum += flow[i] * y[i];
    CHECK_NEAR("forward", sum, loss_pairs(x), 1e-5); /* 12 products of up to 50, 6e-8 each */
    twin_close("rope_pairs inverse", dx, want, N, 1e-6);
}
