/* grid_test.c - positions on a grid are those of numpy, whose numbers these are. */
#include "tests/check.h"

#include "schema/grid.h"

/* Row 1, column 2 of a grid of 4 x 4 in 8 channels: two frequencies, 1 and 0.01. */
TEST(test_sincos__the_column_comes_first)
{
    static const float want[] = { 0.9092974f, 0.0199987f, -0.4161468f, 0.9998000f,
                                  0.8414710f, 0.0099998f, 0.5403023f,  0.9999500f };
    for (int i = 0; i < 8; i++)
        assert_true(fabsf(sheaf__sincos((1 * 4 + 2) * 8 + i, 4, 8) - want[i]) < 1e-6f);
}

/* Sines of columns of MiniCPM-V's widths, where frequencies rounded once are others. */
TEST(test_sincos__each_step_is_in_float32)
{
    static const struct {
        int64_t width, cols, column, frequency;
        float want;
    } rows[] = {
        { 2304, 8, 6, 40, -0.0234032646f }, { 2304, 8, 6, 1, -0.369399697f },
        { 4096, 8, 7, 18, -0.323574036f },  { 3584, 70, 69, 36, -0.508984268f },
        { 128, 4, 2, 9, 0.149417207f },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_true(sheaf__sincos(rows[i].column * rows[i].width + rows[i].frequency, rows[i].cols,
                                  rows[i].width) == rows[i].want);
}

TEST(test_square_side__rounds_down)
{
    static const int64_t want[] = { 0, 1, 1, 1, 2, 2, 2, 2, 2, 3 };
    for (int64_t n = 0; n < (int64_t)ARRAY_LEN(want); n++)
        assert_int_equal(sheaf__square_side(n), want[n]);
    assert_int_equal(sheaf__square_side(4900), 70);
}
