/* reduce_test.c */
#include "tests/ops_twin.h"

#include "ops/math/math.h"

static float lanes_sum(const float *x, int64_t n)
{
    float sum;
    sheaf__kernels_for("ref")->layernorm_sum(&sum, x, n, 1, n, SHEAF_F32);
    return sum;
}

TEST(test_lanes__join_in_the_order_of_the_contract)
{
    /* 2^24 + 1 rounds to 2^24 in float: which lanes meet first is visible. */
    float lane[16] = { 0 };
    lane[0] = 0x1p24f, lane[8] = 1, lane[4] = 1;
    CHECK_NEAR("8 apart, then 4: both lost", sheaf__lanes_join(lane), 0x1p24, 0);
    lane[8] = 0, lane[12] = 1;
    CHECK_NEAR("4 and 12 meet first", sheaf__lanes_join(lane), 0x1p24 + 2, 0);
    lane[4] = lane[12] = 0, lane[1] = lane[9] = 1;
    CHECK_NEAR("1 and 9 meet before 1 and 0", sheaf__lanes_join(lane), 0x1p24 + 2, 0);
    float x[33] = { 0 };
    x[0] = 0x1p24f, x[16] = 1, x[32] = 1;
    CHECK_NEAR("one lane, one after the other", lanes_sum(x, 33), 0x1p24, 0);
    x[16] = 0, x[7] = 1, x[23] = 1;
    CHECK_NEAR("lane 7 collects two", lanes_sum(x, 24), 0x1p24 + 2, 0);
}

TEST(test_lanes_dot__is_fused)
{
    const float x[2] = { 1 + 0x1p-12f, 1 }, y[2] = { 1 + 0x1p-12f, 0 };
    CHECK_NEAR("rounded once", sheaf__lanes_dot(x, y, 1), 1 + 0x1p-11, 0);
    const float a[17] = { [0] = 1, [16] = 1 + 0x1p-12f },
                b[17] = { [0] = -1 - 0x1p-11f, [16] = 1 + 0x1p-12f };
    CHECK_NEAR("the product is not rounded", sheaf__lanes_dot(a, b, 17), 0x1p-24, 0);
}

TEST(test_squares__small_ones_beside_a_large_one)
{
    float x[20] = { 0 };
    x[0] = 0x1p20f, x[1] = 0x1p-6f, x[19] = 3;
    CHECK_NEAR("squares", sheaf__kernels_for("ref")->squares(x, 20), 0x1p40 + 0x1p-12 + 9, 0);
}

TEST(test_column_sums__add_block_by_block_to_what_is_there)
{
    /* Column 0: a one in each of two blocks, each lost against 2^24; as one sum of 2 they
     * would not be. Column 1: 300 ones, which one by one would be lost. */
    float x[300][3] = { { 0 } }, out[2] = { 0x1p24f, 0x1p24f };
    for (int r = 0; r < 300; r++)
        x[r][0] = r % 256 == 0, x[r][1] = 1, x[r][2] = NAN;
    sheaf__kernels_for("ref")->column_sums(out, x, 3, 300, 2, SHEAF_F32);
    CHECK_NEAR("a block each", out[0], 0x1p24, 0);
    CHECK_NEAR("300 ones", out[1], 0x1p24 + 300, 0);
}
