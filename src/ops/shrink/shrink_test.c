/* shrink_test.c */
#include "tests/ops_twin.h"

#include "ops/shrink/shrink.h"

enum { BLOCK = SHEAF__SHRINK_BLOCK };

static void there_and_back(float *y, const float *x, int64_t n)
{
    int8_t codes[2 * BLOCK];
    uint8_t scales[2];
    sheaf__kernels_for("ref")->shrink(codes, scales, x, n, SHEAF_F32);
    sheaf__kernels_for("ref")->expand(y, codes, scales, n, SHEAF_F32);
}

static const struct {
    const char *name;
    float x[4], want[4];
} by_hand[] = {
    { "scale 1", { 64, 2.5f, 3.5f, -0.5f }, { 64, 2, 4, 0 } }, /* ties to even */
    { "scale 1, largest", { 127, -127, 0.75f, -126.75f }, { 127, -127, 1, -127 } },
    { "128 would be nearest", { 127.75f, -127.75f, 1, 0.25f }, { 127, -127, 1, 0 } },
    { "scale 2", { 128, 3, 5, -7 }, { 128, 4, 4, -8 } },
    { "scale 1/64", { 1, -1, 0.0078125f, 0.0234375f }, { 1, -1, 0, 0.03125f } },
    { "zeros", { 0, -0.0f, 0, 0 }, { 0, 0, 0, 0 } },
    { "denormal numbers are zero", { 0x1p-127f, -0x1p-126f, 0, 0 }, { 0, 0, 0, 0 } },
    { "the largest",
      { 0x1.fffffep127f, -0x1p127f, 0x1p121f, 0 },
      { 0x1.fcp127f, -0x1p127f, 0x1p121f, 0 } },
};

TEST(test_shrink__blocks_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float y[4];
        there_and_back(y, by_hand[i].x, 4);
        for (int c = 0; c < 4; c++)
            CHECK_NEAR(by_hand[i].name, y[c], by_hand[i].want[c], 0);
    }
}

/* A block is NaN, its neighbour is not. */
TEST(test_shrink__what_is_not_finite_comes_back_as_nan)
{
    static const float bad[] = { INFINITY, -INFINITY, NAN, -NAN };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        float x[2 * BLOCK], y[2 * BLOCK];
        for (int c = 0; c < 2 * BLOCK; c++)
            x[c] = (float)c;
        x[i * 9] = bad[i];
        there_and_back(y, x, 2 * BLOCK);
        for (int c = 0; c < 2 * BLOCK; c++)
            assert_true(c < BLOCK ? sheaf__bits(y[c]) == SHEAF__NAN_BITS : y[c] == x[c]);
    }
}

/* The bound of shrink.h, on numbers of every size, and that codes fill seven bits. */
TEST(test_shrink__error_is_a_128th_of_the_largest)
{
    float x[BLOCK], y[BLOCK];
    for (int round = 0; round < 2000; round++) {
        float most = 0;
        for (int i = 0; i < BLOCK; i++) {
            x[i] = ldexpf(twin_number((uint64_t)(round * BLOCK + i), TWIN_PLAIN), round % 150 - 90);
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        }
        there_and_back(y, x, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const bool clamped = fabsf(y[i]) * (127.5f / 127) < fabsf(x[i]);
            assert_true(fabsf(x[i] - y[i]) <= most / (clamped ? 127.5f : 128) + 0x1p-125f);
        }
    }
}
