/* pictures_grid_test.c - positions on a grid for pictures of their own sizes. What torch computes
 * for bicubic positions and NaViT's buckets was recorded with torch 2.15. */
#include "ops/math/round.h"
#include "tests/tape_pictures.h"

static double keys(double x, double a)
{
    x = fabs(x);
    return x <= 1  ? (a + 2) * x * x * x - (a + 3) * x * x + 1
           : x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a
                   : 0;
}

/* How much of row j of n is in row r of m: summed over all taps of the plane outside too. */
static double share(sheaf__position_kind kind, int64_t j, int64_t n, int64_t r, int64_t m)
{
    const double s = (double)n / (double)m, f = s > 1 ? s : 1;
    double sum = 0, all = 0;
    if (kind == SHEAF__GRID_BUCKETS)
        return j == (r * n) / m;
    if (kind == SHEAF__GRID_AS_IS || n == m)
        return j == r;
    for (int64_t k = -9; k < n + 9; k++) {
        const double smooth = keys(((double)k + 0.5 - s * ((double)r + 0.5)) / f, -0.5),
                     plain = keys((double)k + 0.5 - s * ((double)r + 0.5), -0.75);
        const int64_t clamped = k < 0 ? 0 : k >= n ? n - 1 : k;
        if (kind == SHEAF__GRID_CUBIC && clamped == j)
            sum += plain;
        if (kind == SHEAF__GRID_CUBIC_SMOOTH && k == j)
            sum += smooth;
        if (kind == SHEAF__GRID_CUBIC_SMOOTH && k >= 0 && k < n)
            all += smooth;
    }
    return kind == SHEAF__GRID_CUBIC ? sum : sum / all;
}

static double turn(int64_t channel, int64_t width, int64_t r, int64_t c)
{
    const int64_t half = width / 2, quarter = width / 4, j = channel % half;
    const double position = (double)(channel < half ? c : r),
                 angle = position * pow(10000, -(double)(j % quarter) / (double)quarter);
    return j < quarter ? sin(angle) : cos(angle);
}

/* Of the frame's number, a half each. */
static double moment(int64_t channel, int64_t width, int32_t frame)
{
    const int64_t half = width / 2;
    const double angle = (double)(frame - 1) * pow(10000, -(double)(channel % half) / (double)half);
    return frame == 0 ? 0 : channel < half ? sin(angle) : cos(angle);
}

static double position_of(const picture_env *e, const double *table, int64_t width, int64_t i,
                          int64_t r, int64_t c, int64_t channel)
{
    const sheaf__position_grid *g = &e->grid;
    double sum = 0;
    if (g->kind == SHEAF__GRID_SINCOS)
        return turn(channel, width, r, c);
    if (g->kind == SHEAF__GRID_FRAMES)
        return moment(channel, width, e->frame[i]);
    table += g->class_row ? width : 0;
    for (int64_t y = 0; y < g->rows; y++)
        for (int64_t x = 0; x < g->cols; x++)
            sum += share(g->kind, y, g->rows, r, e->down[i]) *
                   share(g->kind, x, g->cols, c, e->across[i]) *
                   table[(y * g->cols + x) * width + channel];
    return sum;
}

static sheaf__value *record_positions(sheaf__tape *tape, sheaf__value **value,
                                      sheaf__vector *vector, const problem *p)
{
    picture_env *e = p->env;
    const sheaf__pictures of = pictures_of(e);
    e->grid.table = p->operand[1].rows > 0 ? &vector[1] : NULL;
    return sheaf__record_grid_positions(tape, value[0], &of, &e->grid);
}
static void plain_positions(double *y, double *const *x, const problem *p)
{
    const picture_env *e = p->env;
    const double *from = x[0];
    for (int64_t i = 0; i < e->images; i++) {
        for (int64_t n = 0; n < p->cols && e->class_row; n++)
            *y++ = *from++ + (e->grid.class_row ? x[1][n] : 0);
        for (int64_t k = 0; k < seen_of(e, i); k++)
            for (int64_t n = 0; n < p->cols; n++)
                *y++ = *from++ + (k < patches_of(e, i)
                                      ? position_of(e, x[1], p->cols, i, k / e->across[i],
                                                    k % e->across[i], n)
                                      : 0);
    }
}

static void check_positions(const picture_env *set, sheaf__position_kind kind, int64_t rows,
                            int64_t cols, bool class_row, int frozen)
{
    static const char *const name[] = { "as it is", "cubic", "smooth", "buckets",
                                        "linear",   "sines", "frames" };
    picture_env e = *set;
    e.grid =
        (sheaf__position_grid){ .kind = kind, .rows = rows, .cols = cols, .class_row = class_row };
    const bool table = kind != SHEAF__GRID_SINCOS && kind != SHEAF__GRID_FRAMES;
    const int64_t width = table ? 3 : 12;
    check(&(problem){ name[kind],
                      rows_of(&e),
                      width,
                      { { rows_of(&e), width, false, frozen & 1 },
                        { table ? rows * cols + class_row : 0, width, true, frozen & 2 } },
                      false,
                      record_positions,
                      plain_positions,
                      &e });
}

TEST(test_pictures__positions)
{
    static const sheaf__position_kind kinds[] = { SHEAF__GRID_CUBIC, SHEAF__GRID_CUBIC_SMOOTH,
                                                  SHEAF__GRID_BUCKETS };
    for (size_t s = 0; s < ARRAY_LEN(sets); s++)
        for (int frozen = 0; frozen < 4; frozen += s == 1 ? 1 : 3) {
            const bool with_class = sets[s].class_row && frozen != 3;
            for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
                check_positions(&sets[s], kinds[k], 4, 4, with_class, frozen);
            check_positions(&sets[s], SHEAF__GRID_CUBIC_SMOOTH, 2, 5, with_class, frozen);
            check_positions(&sets[s], SHEAF__GRID_CUBIC, 2, 3, with_class, frozen);
            check_positions(&sets[s], SHEAF__GRID_SINCOS, 0, 0, false, frozen);
            if (!sets[s].ragged)
                check_positions(&sets[s], SHEAF__GRID_AS_IS, 2, 3, with_class, frozen);
        }
}

/* Every patch of a frame gets the row of its number, a picture's none. */
TEST(test_pictures__frames)
{
    static const picture_env set = { .images = 4,
                                     .down = { 2, 3, 3, 1 },
                                     .across = { 3, 1, 1, 5 },
                                     .frame = { 1, 8, 0, 200 },
                                     .joins = { false, true, false, false },
                                     .ragged = true };
    for (int frozen = 0; frozen < 2; frozen++)
        check_positions(&set, SHEAF__GRID_FRAMES, 0, 0, false, frozen);
}

/* Rows behind a picture's own have no position, and teach the table nothing. */
TEST(test_pictures__positions_of_padded_ones)
{
    static const picture_env set = {
        .images = 3, .down = { 1, 4, 1 }, .across = { 1, 4, 3 }, .ragged = true, .padded = true
    };
    check_positions(&set, SHEAF__GRID_CUBIC, 4, 4, false, 0);
    check_positions(&set, SHEAF__GRID_BUCKETS, 4, 4, false, 0);
    check_positions(&set, SHEAF__GRID_SINCOS, 0, 0, false, 0);
}

/* Positions alone, of one picture with a table of one column. */
static void positions_of(float *y, picture_env *e, sheaf_dtype dtype, float *table)
{
    sheaf__device *device;
    sheaf__tape *tape;
    const sheaf__pictures of = pictures_of(e);
    float *zeros = calloc((size_t)of.patches, sizeof *zeros);
    sheaf__vector vector = { "table", e->grid.rows * e->grid.cols, 1, table, NULL };
    e->grid.table = &vector;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 2, NULL, 0));
    sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
    c.dtype = dtype;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = source_of(tape, of.patches, 1, true, zeros, NULL, 1, 0);
    sink_of(tape, sheaf__record_grid_positions(tape, x, &of, &e->grid), NULL, y, 1, 0);
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_OK(sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    sheaf__device_close(device);
    free(zeros);
}

/* torch.nn.functional.interpolate(numbers(n, 7), mode="bicubic", antialias=...) in double */
static const struct {
    sheaf__position_kind kind;
    int64_t rows, cols, down, across;
    double want[36];
} recorded[] = {
    { SHEAF__GRID_CUBIC, 4, 4, 6, 6,
      LIST(-0.5802561, -0.9567956, -0.8076908, 0.3902386, 0.0608809, -0.7803721, -0.6847721,
           -0.5072784, -0.2357522, -0.0699016, 0.2213898, 0.4180806, -0.4526655, -0.1590853,
           0.0567669, -0.1729789, 0.3175868, 0.8779866, 0.3019121, -0.4276965, -0.6252931,
           0.6368977, 0.1577041, -0.8454096, 0.0210080, -0.5022430, -0.4378498, 0.9340962,
           0.1904755, -1.1175707, -0.5817769, -0.4633179, 0.0320324, 0.8627294, 0.2893812,
           -0.6301484) },
    { SHEAF__GRID_CUBIC, 4, 5, 7, 3,
      LIST(-0.8565750, 0.4035168, -0.6061627, -0.5567958, 0.7118998, -0.6581933, -0.1119572,
           0.9909177, -0.6184782, 0.2576859, 0.3120117, -0.0119267, 0.2677611, -0.5695495,
           0.6068748, -0.1719961, -0.7890967, 0.6767267, -0.5186626, -0.8450554, 0.6467195) },
    { SHEAF__GRID_CUBIC, 6, 6, 2, 4,
      LIST(0.0588379, 0.5850830, -0.5349121, -0.4887695, -0.4536133, 0.0984497, 0.3821411,
           -0.5313721) },
    { SHEAF__GRID_CUBIC_SMOOTH, 4, 4, 6, 6,
      LIST(-0.5886670, -0.8786160, -0.8200969, 0.3809436, -0.0196522, -0.7208167, -0.6447489,
           -0.5315744, -0.3050981, 0.0004489, 0.1988538, 0.2868856, -0.4691788, -0.1938083,
           0.0504885, -0.1601895, 0.3498540, 0.8632460, 0.2781466, -0.3539475, -0.6456134,
           0.6646960, 0.0559492, -0.8601450, -0.0494751, -0.4207396, -0.4219580, 0.8840827,
           0.0919118, -0.9877854, -0.5562511, -0.4360488, -0.0251260, 0.8439651, 0.2073820,
           -0.6106356) },
    { SHEAF__GRID_CUBIC_SMOOTH, 4, 5, 7, 3,
      LIST(-0.8071272, -0.1068356, -0.5464728, -0.5415425, 0.1868471, -0.5250563, -0.0763540,
           0.5991861, -0.4271539, 0.1144982, -0.0035747, 0.0258564, 0.0851116, -0.6771759,
           0.4784983, -0.2939506, -0.5363925, 0.5749886, -0.5216849, -0.4013873, 0.5955800) },
    { SHEAF__GRID_CUBIC_SMOOTH, 6, 6, 2, 4,
      LIST(-0.1735134, 0.2716933, -0.2884624, -0.2866307, -0.1780211, 0.1911459, 0.1932081,
           -0.1075822) },
};

TEST(test_pictures__bicubic_positions_are_those_of_torch)
{
    for (size_t k = 0; k < ARRAY_LEN(recorded); k++) {
        picture_env e = {
            .images = 1,
            .down = { recorded[k].down },
            .across = { recorded[k].across },
            .grid = { .kind = recorded[k].kind, .rows = recorded[k].rows, .cols = recorded[k].cols }
        };
        float y[49], *table = numbers(recorded[k].rows * recorded[k].cols, 7);
        positions_of(y, &e, SHEAF_F32, table);
        for (int64_t i = 0; i < recorded[k].down * recorded[k].across; i++)
            CHECK_NEAR("position", y[i], recorded[k].want[i], 3e-7);
        free(table);
    }
}

/* Row r of h is in bucket r * n / h of n, but for these, where the quotients are equal and
 * torch.arange() in float32 is below: one less. */
static const int16_t one_less[][3] = {
    { 27, 27, 10 }, { 27, 54, 20 }, { 27, 54, 42 }, { 27, 54, 46 }, { 70, 25, 15 }, { 70, 49, 14 },
    { 70, 49, 35 }, { 70, 50, 15 }, { 70, 50, 30 }, { 70, 55, 11 }, { 70, 55, 22 }, { 70, 55, 33 },
    { 70, 77, 55 }, { 70, 95, 57 }, { 70, 98, 14 }, { 70, 98, 35 }, { 70, 98, 70 }, { 98, 49, 10 },
    { 98, 49, 11 }, { 98, 49, 23 }, { 98, 49, 32 }, { 98, 98, 10 }, { 98, 98, 14 }, { 98, 98, 17 },
    { 98, 98, 19 }, { 98, 98, 20 }, { 98, 98, 22 }, { 98, 98, 23 }, { 98, 98, 64 }, { 98, 98, 88 }
};

TEST(test_pictures__buckets_are_those_of_torch)
{
    static const int64_t tables[] = { 8, 27, 70, 98 };
    size_t found = 0;
    float table[98 * 98], y[128];
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        const int64_t n = tables[t];
        for (int64_t i = 0; i < n * n; i++)
            table[i] = (float)i;
        for (int64_t h = 1; h < n + 30; h++) {
            picture_env e = { .images = 1,
                              .down = { h },
                              .across = { 1 },
                              .grid = { .kind = SHEAF__GRID_BUCKETS, .rows = n, .cols = n } };
            positions_of(y, &e, SHEAF_F32, table);
            for (int64_t r = 0; r < h; r++) {
                int64_t want = r * n / h;
                if (found < ARRAY_LEN(one_less) && one_less[found][0] == n &&
                    one_less[found][1] == h && one_less[found][2] == r) {
                    want--;
                    found++;
                }
                CHECK_NEAR("bucket", y[r], (double)(want * n), 0);
            }
        }
    }
    assert_int_equal(found, ARRAY_LEN(one_less));
}

/* A resized position is rounded before it is added, as torch casts the table it resized. */
TEST(test_pictures__positions_are_rounded_first)
{
    picture_env e = { .images = 1,
                      .down = { 6 },
                      .across = { 6 },
                      .grid = { .kind = SHEAF__GRID_CUBIC, .rows = 4, .cols = 4 } };
    const problem p = {
        "rounded",       36, 2, { { 36, 2 }, { 16, 2, true } }, true, record_positions,
        plain_positions, &e
    };
    outcome exact = run(&p, &sheaf__cpu, SHEAF_F32, false),
            coarse = run(&p, &sheaf__cpu, SHEAF_BF16, false);
    int once = 0;
    for (int i = 0; i < 72; i++) {
        const float position = exact.y[i] - exact.x[0][i],
                    rounded = sheaf__from_bf16(sheaf__bf16(position));
        const float want = sheaf__from_bf16(sheaf__bf16(exact.x[0][i] + rounded));
        /* the subtraction above may have moved a position that lies at the edge of two */
        once += coarse.y[i] != want;
    }
    assert_true(once <= 1);
    drop(&exact);
    drop(&coarse);
}

TEST(test_pictures__another_grid_than_the_table_has)
{
    picture_env e = { .images = 1,
                      .down = { 2 },
                      .across = { 3 },
                      .grid = { .kind = SHEAF__GRID_AS_IS, .rows = 3, .cols = 2 } };
    sheaf__device *device;
    sheaf__tape *tape;
    const sheaf__pictures of = pictures_of(&e);
    float table[6] = { 0 };
    sheaf__vector vector = { "table", 6, 1, table, NULL };
    e.grid.table = &vector;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
    c.dtype = SHEAF_F32;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = source_of(tape, 6, 1, true, table, NULL, 1, 0);
    sheaf__record_grid_positions(tape, x, &of, &e.grid);
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_FAILS(sheaf__tape_run(tape), SHEAF_E_ARG,
                "image 1 | 2 x 3 patches, as the positions have | 3 x 2");
    sheaf__tape_free(tape);
    sheaf__device_close(device);
}
