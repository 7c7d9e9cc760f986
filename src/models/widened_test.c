/* widened_test.c - rows of new tokens: means and random ones worked out here, wherever a box is cut
 * from, in every dtype, with and without spare rows of the base. */
#include "models/widened.h"

#include "base/random.h"
#include "ops/kernels.h"
#include "tests/check.h"
#include "tests/fake_source.h"

enum { OLD = 5, COLS = 3, MOST = 8 };

/* A table and a head in one dtype. */
typedef struct tables {
    fake_source fake; /* first */
    float value[2][MOST][COLS];
    int64_t reads;
} tables;

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    tables *t = (tables *)self;
    const int which = fake_index(&t->fake, name);
    const sheaf_source_entry *e = &t->fake.entry[which];
    assert_true(which >= 0 && row0 >= 0 && row0 + rows <= e->shape[0] && col0 + cols <= COLS);
    t->reads++;
    for (int64_t r = 0; r < rows; r++)
        sheaf__kernels_for("ref")->convert(
            (char *)dst + (size_t)(r * cols) * sheaf_dtype_bytes(e->dtype), e->dtype,
            &t->value[which][row0 + r][col0], SHEAF_F32, cols);
    return NULL;
}

static void fill(tables *t, sheaf_dtype dtype, int64_t rows)
{
    *t = (tables){ { { fake_find, fake_count, fake_entry, .read = read_box }, 2 } };
    for (int i = 0; i < 2; i++) {
        t->fake.entry[i] = (sheaf_source_entry){
            i == 0 ? "model.embed_tokens.weight" : "lm_head.weight", dtype, 2, { rows, COLS }
        };
        for (int64_t r = 0; r < rows; r++)
            for (int c = 0; c < COLS; c++)
                t->value[i][r][c] = (float)(1 + i) * (float)(r * r + c) / 4;
    }
}

static sheaf_tensor row[2] = {
    { .name = "model.embed_tokens.weight", .ndim = 2, .shape = { MOST, COLS } },
    { .name = "lm_head.weight", .ndim = 2, .shape = { MOST, COLS } },
};

static int64_t by_name[2] = { 1, 0 };

/* Three tokens behind 5, in a table of 8 rows. */
static sheaf_source *widen(tables *t, bool random, int64_t rows)
{
    sheaf_source *out = NULL;
    row[0].shape[0] = row[1].shape[0] = rows;
    const sheaf_schema schema = { .config = { .family = SHEAF_LLAMA, .initializer_range = 0.5 },
                                  .tensor = row,
                                  .by_name = by_name,
                                  .count = 2 };
    CHECK_OK(sheaf__widened_new(&out, &t->fake.source, &schema,
                                &(sheaf__added_rows){ OLD, 3, random, 11 }));
    return out;
}

static void check_rows(sheaf_source *wide, const tables *t, int which, const float want[MOST][COLS],
                       int64_t rows)
{
    const char *name = t->fake.entry[which].name;
    const size_t size = sheaf_dtype_bytes(t->fake.entry[which].dtype);
    assert_int_equal(wide->find(wide, name)->shape[0], rows);
    for (int64_t row0 = 0; row0 < rows; row0++)
        for (int64_t n = 1; row0 + n <= rows; n++)
            for (int64_t col0 = 0; col0 < COLS; col0++) {
                char got[MOST * COLS * 4], expected[MOST * COLS * 4];
                const int64_t cols = COLS - col0;
                CHECK_OK(wide->read(wide, name, row0, n, col0, cols, got));
                for (int64_t r = 0; r < n; r++)
                    sheaf__kernels_for("ref")->convert(expected + (size_t)(r * cols) * size,
                                                       t->fake.entry[which].dtype,
                                                       &want[row0 + r][col0], SHEAF_F32, cols);
                CHECK_BYTES(name, got, expected, (size_t)(n * cols) * size);
            }
}

TEST(test_widened__rows_are_the_mean_of_all_tokens)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
        for (int64_t stored = OLD; stored <= 6; stored++)
            for (int which = 0; which < 2; which++) {
                tables t;
                fill(&t, dtypes[d], stored);
                sheaf_source *wide = widen(&t, false, MOST);
                float want[MOST][COLS];
                /* (0 + 1 + 4 + 9 + 16) / 5 + c, over 4: a spare sixth row does not count */
                for (int r = 0; r < MOST; r++)
                    for (int c = 0; c < COLS; c++)
                        want[r][c] = r < OLD ? t.value[which][r][c]
                                             : (float)(1 + which) * (6 + (float)c) / 4;
                check_rows(wide, &t, which, want, MOST);
                wide->close(wide);
            }
}

TEST(test_widened__rows_behind_the_new_ones_are_the_bases)
{
    tables t;
    fill(&t, SHEAF_F32, MOST);
    row[0].shape[0] = MOST;
    sheaf_source *wide = NULL;
    const sheaf_schema schema = {
        .config = { .family = SHEAF_LLAMA }, .tensor = row, .by_name = by_name + 1, .count = 1
    };
    CHECK_OK(sheaf__widened_new(&wide, &t.fake.source, &schema,
                                &(sheaf__added_rows){ .first = OLD, .count = 2 }));
    float want[MOST][COLS];
    for (int r = 0; r < MOST; r++)
        for (int c = 0; c < COLS; c++)
            want[r][c] = r == OLD || r == OLD + 1 ? (6 + (float)c) / 4 : t.value[0][r][c];
    check_rows(wide, &t, 0, want, MOST);
    wide->close(wide);
}

TEST(test_widened__random_rows_are_of_seed_name_and_place)
{
    for (int which = 0; which < 2; which++) {
        tables t;
        fill(&t, SHEAF_F32, OLD);
        sheaf_source *wide = widen(&t, true, MOST);
        float want[MOST][COLS];
        for (int r = 0; r < MOST; r++)
            for (int c = 0; c < COLS; c++)
                want[r][c] =
                    r < OLD
                        ? t.value[which][r][c]
                        : 0.5f * sheaf__random_normal(11, sheaf__name_key(t.fake.entry[which].name),
                                                      (uint64_t)(r * COLS + c));
        check_rows(wide, &t, which, want, MOST);
        wide->close(wide);
    }
}

TEST(test_widened__a_mean_is_taken_once_and_when_it_is_needed)
{
    tables t;
    char got[COLS * 4];
    fill(&t, SHEAF_F32, OLD);
    sheaf_source *wide = widen(&t, false, MOST);
    assert_int_equal(t.reads, 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(wide->read(wide, "lm_head.weight", OLD + i, 1, 0, COLS, got));
    assert_int_equal(t.reads, 1);
    assert_null(wide->find(wide, "model.norm.weight"));
    wide->close(wide);
}
