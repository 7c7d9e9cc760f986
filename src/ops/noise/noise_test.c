/* noise_test.c */
#include "tests/ops_twin.h"

enum { ROWS = 3, COLS = 200 };

static const int64_t sample[ROWS] = { 0, INT64_C(1) << 40, 3 }, position[ROWS] = { 9, 0, 511 };

static sheaf__noise with(const float *half)
{
    return (sheaf__noise){
        .seed = 7, .purpose = 11, .step = 13, .sample = sample, .position = position, .half = half
    };
}

TEST(test_noise__is_uniform_and_of_its_size)
{
    static const float half[ROWS] = { 0.5f, 0, 4 };
    const sheaf__noise how = with(half);
    float x[ROWS][COLS];
    double squares[ROWS] = { 0 }, largest[ROWS] = { 0 };
    for (int i = 0; i < ROWS * COLS; i++)
        x[i / COLS][i % COLS] = 100;
    sheaf__kernels_for("ref")->noise(x, COLS, ROWS, COLS, &how, SHEAF_F32);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            const uint32_t u = sheaf__random_u32(7, 11, 13, (uint64_t)sample[r],
                                                 (uint64_t)position[r], (uint64_t)c);
            const double n = x[r][c] - 100.0, t = 2 * sheaf__unit_float(u) - 1;
            CHECK_NEAR("element", x[r][c], (float)(100 + half[r] * t), 1e-5);
            squares[r] += n * n / COLS;
            largest[r] = fabs(n) > largest[r] ? fabs(n) : largest[r];
        }
    CHECK_NEAR("none", largest[1], 0, 0);
    assert_true(largest[0] <= 0.5 && largest[0] > 0.45 && largest[2] <= 4 && largest[2] > 3.6);
    /* variance half^2 / 3; that of its estimate is half^4 * 4 / 45 / COLS */
    CHECK_NEAR("variance", squares[2], 16 / 3.0, 5 * 16 * sqrt(4 / 45.0 / COLS));
}

TEST(test_noise__rows_are_independent_of_their_batch)
{
    static const float half[ROWS] = { 1, 2, 3 };
    const sheaf__noise all = with(half);
    sheaf__noise last = with(half + 2);
    last.sample = sample + 2;
    last.position = position + 2;
    float x[ROWS][COLS] = { { 0 } }, alone[COLS] = { 0 };
    sheaf__kernels_for(NULL)->noise(x, COLS, ROWS, COLS, &all, SHEAF_F32);
    sheaf__kernels_for(NULL)->noise(alone, COLS, 1, COLS, &last, SHEAF_F32);
    CHECK_BYTES("a row alone", alone, x[2], sizeof alone);
}
