/* tied_head_test.c - a stored head that is tied: the table, the table rounded, or another one. */
#include "tests/check.h"
#include "tests/fake_source.h"

#include "dialects/common/model.h"
#include "ops/kernels.h"

enum { ROWS = 300, COLS = 7 };

static float numbers[2][ROWS * COLS]; /* the table's and the head's */

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const int i = fake_index((fake_source *)self, name);
    const sheaf_source_entry *e = &((fake_source *)self)->entry[i];
    assert_true(col0 == 0 && cols == COLS);
    if (e->dtype == SHEAF_F32)
        memcpy(dst, numbers[i] + row0 * COLS, (size_t)(rows * COLS) * sizeof(float));
    else
        sheaf__kernels_for(NULL)->round(dst, e->dtype, numbers[i] + row0 * COLS, rows * COLS);
    return NULL;
}

/* The head's numbers are the table's, rounded to this on the way. */
static void fill(sheaf_dtype via)
{
    for (int i = 0; i < ROWS * COLS; i++) {
        uint16_t bits;
        numbers[0][i] = numbers[1][i] = (float)(i - 500) / 1031.0f;
        if (via == SHEAF_F32)
            continue;
        sheaf__kernels_for(NULL)->round(&bits, via, &numbers[0][i], 1);
        sheaf__kernels_for(NULL)->widen(&numbers[1][i], &bits, via, 1);
    }
}

TEST(test_head__is_the_table_or_the_table_rounded)
{
    static const struct {
        const char *name;
        sheaf_dtype table, via, head;
        bool other, copy, refused;
    } rows[] = {
        { "the table", SHEAF_F32, SHEAF_F32, SHEAF_F32, false, false, false },
        { "in bfloat16", SHEAF_F32, SHEAF_F32, SHEAF_BF16, false, true, false },
        { "rounded to it, in float32", SHEAF_F32, SHEAF_BF16, SHEAF_F32, false, true, false },
        { "rounded to float16, in float32", SHEAF_F32, SHEAF_F16, SHEAF_F32, false, true, false },
        { "in float16", SHEAF_F32, SHEAF_F32, SHEAF_F16, false, true, false },
        { "of a table in bfloat16, widened", SHEAF_BF16, SHEAF_BF16, SHEAF_F32, false, true,
          false },
        { "another number", SHEAF_F32, SHEAF_F32, SHEAF_F32, true, false, true },
        { "another in bfloat16", SHEAF_F32, SHEAF_F32, SHEAF_BF16, true, false, true },
        { "another one, rounded", SHEAF_F32, SHEAF_F16, SHEAF_F32, true, false, true },
        { "both in bfloat16, another", SHEAF_BF16, SHEAF_F32, SHEAF_BF16, true, false, true },
        { "of a dtype that has no numbers", SHEAF_F32, SHEAF_F32, SHEAF_I32, false, false, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        fake_source f = { { fake_find, fake_count, fake_entry, read_box, NULL },
                          2,
                          { { "table", rows[i].table, 2, { ROWS, COLS } },
                            { sheaf__head_name, rows[i].head, 2, { ROWS, COLS } } } };
        bool copy = false;
        fill(rows[i].via);
        numbers[1][ROWS * COLS - 1] += rows[i].other ? 0.25f : 0;
        sheaf_status *st = sheaf__tied_head(&copy, &f.source, "table");
        if ((st != NULL) != rows[i].refused || copy != rows[i].copy)
            fail_msg("%s: copy %d, %s", rows[i].name, copy, st == NULL ? "taken" : "refused");
        sheaf_status_free(st);
        f.entry[1].shape[0]--;
        CHECK_FAILS(sheaf__tied_head(&copy, &f.source, "table"), SHEAF_E_LAYOUT, "another shape");
    }
}
