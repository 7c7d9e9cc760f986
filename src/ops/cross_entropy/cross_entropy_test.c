/* cross_entropy_test.c */
#include "tests/ops_twin.h"

#include "ops/math/math.h"

TEST(test_cross_entropy__a_row_worked_by_hand)
{
    /* exp 1, 2, 4, sum 7 under a largest logit of ln 4 */
    const float logits[3] = { 0, 0.69314718f, 1.38629436f };
    const int32_t target = 1, elsewhere = -5, ignored = SHEAF__IGNORED;
    const float half = 0.5f;
    const sheaf__label_weights plain = { &half, 1, 0 }, smooth = { &half, 0.7f, 0.1f };
    float max, sum, d[3];
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    k->row_max(&max, logits, 3, 1, 3);
    k->row_sumexp(&sum, logits, 3, &max, 1, 3);
    CHECK_NEAR("max", max, logits[2], 0);
    CHECK_NEAR("sum", sum, 7.0 / 4, 1e-6);
    k->row_dlogits(d, 3, logits, 3, &max, &sum, &target, &plain, 1, 3, SHEAF_F32);
    CHECK_NEAR("first", d[0], 1 / 7.0 / 2, 1e-7);
    CHECK_NEAR("target", d[1], (2 / 7.0 - 1) / 2, 1e-7);
    CHECK_NEAR("last", d[2], 4 / 7.0 / 2, 1e-7);
    k->row_dlogits(d, 3, logits, 3, &max, &sum, &target, &smooth, 1, 3, SHEAF_F32);
    CHECK_NEAR("first, smoothed by 0.3", d[0], (1 / 7.0 - 0.1) / 2, 1e-7);
    CHECK_NEAR("target, smoothed", d[1], (2 / 7.0 - 0.7 - 0.1) / 2, 1e-7);
    k->row_dlogits(d, 3, logits, 3, &max, &sum, &ignored, &smooth, 1, 3, SHEAF_F32);
    CHECK_NEAR("ignored, smoothed", d[0] + d[1] + d[2], 0, 0);
    k->row_dlogits(d, 3, logits, 3, &max, &sum, &elsewhere, &plain, 1, 3, SHEAF_F32);
    CHECK_NEAR("target in another slice", d[1], 2 / 7.0 / 2, 1e-7);
    k->row_dlogits(d, 3, logits, 3, &max, &sum, &ignored, &plain, 1, 3, SHEAF_F32);
    CHECK_NEAR("ignored", d[0] + d[1] + d[2], 0, 0);
}

TEST(test_row_max__order_and_empty_rows)
{
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    float max = 0, sum = 1;
    k->row_max(&max, NULL, 0, 1, 0);
    k->row_sumexp(&sum, NULL, 0, &max, 1, 0);
    assert_true(max == -INFINITY);
    CHECK_NEAR("empty sum", sum, 0, 0);
    const float zeros[2] = { -0.0f, 0.0f }, with_nan[3] = { 1, NAN, INFINITY };
    k->row_max(&max, zeros, 2, 1, 2);
    assert_false(signbit(max));
    k->row_max(&max, with_nan, 3, 1, 3);
    assert_true(isnan(max));
    assert_true(isnan(sheaf__max(NAN, INFINITY)) && isnan(sheaf__max(INFINITY, NAN)));
    CHECK_NEAR("negative", sheaf__max(-2, -3), -2, 0);
}

enum { COLS = 19, TARGET = 4 };
static double loss(const double *x)
{
    double sum = 0;
    for (int c = 0; c < COLS; c++)
        sum += exp(x[c]);
    return log(sum) - x[TARGET];
}

TEST(test_row_dlogits__is_the_gradient)
{
    double x[COLS], want[COLS], total = 0;
    const float one = 1;
    float logits[COLS], d[COLS], max, sum;
    const int32_t target = TARGET;
    for (int c = 0; c < COLS; c++) {
        logits[c] = 2 * twin_number((uint64_t)c, TWIN_PLAIN), x[c] = logits[c];
        total += exp(x[c]);
    }
    for (int c = 0; c < COLS; c++)
        want[c] = exp(x[c]) / total - (c == TARGET);
    twin_gradient("cross-entropy", loss, x, COLS, want);
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    k->row_max(&max, logits, COLS, 1, COLS);
    k->row_sumexp(&sum, logits, COLS, &max, 1, COLS);
    k->row_dlogits(d, COLS, logits, COLS, &max, &sum, &target,
                   &(sheaf__label_weights){ &one, 1, 0 }, 1, COLS, SHEAF_F32);
    twin_close("dlogits", d, want, COLS, 1e-6);
}

/* What a draw reads: with a sum of 1 and no label, the weight of each logit beside the largest. */
TEST(test_row_dlogits__of_a_sum_of_1_are_weights)
{
    static const char *const sets[] = { "ref", "avx2", "avx512", NULL };
    static const int64_t sizes[] = { 1, 15, 16, 17, 63, 64, 65, 300 };
    static const float below[] = { -INFINITY, -0.0f,   -87.33f, 0,       -87.336548f,
                                   -87.34f,   -1e-30f, -0.7f,   -103.9f, -104.1f };
    static const int32_t elsewhere = -1;
    static const float one = 1, top[] = { 0, 3.25f, -12 };
    const sheaf__label_weights plain = { .weight = &one };
    float logits[300], d[300], max;
    for (size_t i = 0; i < ARRAY_LEN(sets) * ARRAY_LEN(sizes) * ARRAY_LEN(top); i++) {
        const sheaf__kernels *k = sheaf__kernels_for(sets[i % ARRAY_LEN(sets)]);
        const int64_t n = sizes[i / ARRAY_LEN(sets) % ARRAY_LEN(sizes)];
        const float at = top[i / ARRAY_LEN(sets) / ARRAY_LEN(sizes)];
        for (int64_t c = 0; c < n && k != NULL; c++)
            logits[c] = c + 1 == n ? at : at + below[c % (int64_t)ARRAY_LEN(below)];
        if (k == NULL)
            continue;
        k->row_max(&max, logits, n, 1, n);
        k->row_dlogits(d, n, logits, n, &max, &one, &elsewhere, &plain, 1, n, SHEAF_F32);
        for (int64_t c = 0; c < n; c++) {
            const float want = logits[c] == max ? 1 : sheaf__exp(logits[c] - max);
            CHECK_BYTES("weight", &d[c], &want, sizeof want);
        }
    }
}
