/* dropout_test.c */
#include "tests/ops_twin.h"

static sheaf__dropout quarter(const int64_t *sample, const int64_t *position, int64_t channel0)
{
    return (sheaf__dropout){ .seed = 7,
                             .purpose = 11,
                             .step = 13,
                             .sample = sample,
                             .position = position,
                             .channel0 = channel0,
                             .threshold = 0x40000000,
                             .scale = 1 / 0.75f };
}

TEST(test_dropout__keeps_what_the_counter_says_and_scales_it)
{
    const int64_t sample[2] = { 5, 6 }, position[2] = { 0, 900 };
    const sheaf__dropout how = quarter(sample, position, 100);
    float x[2][200], y[2][200];
    int kept = 0;
    for (int i = 0; i < 400; i++)
        x[i / 200][i % 200] = 3;
    sheaf__kernels_for("ref")->dropout(y, x, 200, 2, 200, &how, SHEAF_F32);
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 200; c++) {
            const uint32_t u = sheaf__random_u32(7, 11, 13, (uint64_t)sample[r],
                                                 (uint64_t)position[r], (uint64_t)(100 + c));
            CHECK_NEAR("element", y[r][c], u >= 0x40000000 ? 3 * (1 / 0.75f) : 0, 0);
            kept += y[r][c] != 0;
        }
    CHECK_NEAR("share kept", kept / 400.0, 0.75, 5 * sqrt(0.75 * 0.25 / 400));
}

TEST(test_dropout__mask_does_not_depend_on_rows_or_cuts)
{
    /* Columns 0..99 at once, or cut at 37 and the rows swapped. */
    const int64_t sample[2] = { 1, 2 }, position[2] = { 10, 20 };
    const int64_t swapped_sample[2] = { 2, 1 }, swapped_position[2] = { 20, 10 };
    const sheaf__dropout whole = quarter(sample, position, 0);
    const sheaf__dropout left = quarter(swapped_sample, swapped_position, 0);
    const sheaf__dropout right = quarter(swapped_sample, swapped_position, 37);
    float x[2][100], y[2][100], cut[2][100];
    for (int i = 0; i < 200; i++)
        x[i / 100][i % 100] = 1;
    const char *const columns[] = { "ref", "avx2", "avx512" };
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const sheaf__kernels *k = sheaf__kernels_for(columns[i]);
        if (k == NULL)
            continue;
        k->dropout(y, x, 100, 2, 100, &whole, SHEAF_F32);
        k->dropout(cut, x, 100, 2, 37, &left, SHEAF_F32);
        k->dropout(&cut[0][37], &x[0][37], 100, 2, 63, &right, SHEAF_F32);
        CHECK_BYTES(columns[i], cut[0], y[1], sizeof y[0]);
        CHECK_BYTES(columns[i], cut[1], y[0], sizeof y[0]);
    }
}

TEST(test_dropout__edges_of_the_threshold)
{
    const int64_t zero[1] = { 0 };
    sheaf__dropout how = quarter(zero, zero, 0);
    float x[64], y[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)i - 20;
    how.threshold = 0, how.scale = 1;
    sheaf__kernels_for("ref")->dropout(y, x, 64, 1, 64, &how, SHEAF_F32);
    CHECK_BYTES("p = 0 keeps all", y, x, sizeof x);
    const uint32_t fifth = sheaf__random_u32(7, 11, 13, 0, 0, 5);
    how.threshold = fifth;
    sheaf__kernels_for("ref")->dropout(y, x, 64, 1, 64, &how, SHEAF_F32);
    CHECK_NEAR("equal to the threshold is kept", y[5], x[5], 0);
    how.threshold = fifth + 1;
    sheaf__kernels_for("ref")->dropout(y, x, 64, 1, 64, &how, SHEAF_F32);
    CHECK_NEAR("below it is not", y[5], 0, 0);
    x[3] = NAN, x[4] = INFINITY, how.threshold = UINT32_MAX;
    sheaf__kernels_for("ref")->dropout(y, x, 64, 1, 64, &how, SHEAF_F32);
    for (int i = 0; i < 64; i++)
        CHECK_NEAR("a dropped NaN is 0", y[i], 0, 0);
}
