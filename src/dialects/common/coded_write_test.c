/* coded_write_test.c - whatever boxes weights come in, the same bytes are written; what is not
 * finite is refused. */
#include "tests/files.h"

#include "base/random.h"
#include "catalog/packing.h"
#include "dialects/common/coded_write.h"
#include "tests/faults/faults.h"

enum { ROWS = 48, COLS = 32 };

static const struct {
    sheaf__quantizer by;
    sheaf__quant quant;
    int of; /* that rows and columns are multiples of */
} forms[] = {
    { SHEAF__BITSANDBYTES,
      { .codes = SHEAF__NF4, .grouping = SHEAF__GROUPS_FLAT, .block = 64, .dtype = SHEAF_BF16 },
      1 },
    { SHEAF__BITSANDBYTES,
      { .codes = SHEAF__FP4, .grouping = SHEAF__GROUPS_FLAT, .block = 32, .dtype = SHEAF_F16 },
      1 },
    { SHEAF__BITSANDBYTES,
      { .codes = SHEAF__NF4,
        .grouping = SHEAF__GROUPS_FLAT,
        .block = 64,
        .doubled = true,
        .dtype = SHEAF_F32 },
      1 },
    { SHEAF__BITSANDBYTES, { .codes = SHEAF__INT8, .dtype = SHEAF_F32 }, 1 },
    { SHEAF__GPTQ_4, { .codes = SHEAF__INT4, .block = 8, .zeros = true }, 8 },
    { SHEAF__GPTQ_8, { .codes = SHEAF__INT8, .block = 8 }, 8 },
    { SHEAF__AWQ_4, { .codes = SHEAF__INT4, .block = 8, .zeros = true }, 8 },
};

/* Writes one matrix in boxes of at most `tall` rows and `wide` columns, the last one first. */
static sheaf_status *write_in_boxes(const char *dst, int form, const float *x, int64_t rows,
                                    int64_t cols, int64_t tall, int64_t wide)
{
    const sheaf__coded_tensor list[] = {
        { .spec = { "a.weight", SHEAF_F32, 2, { rows, cols } },
          .packing = sheaf__packing_of(forms[form].by, forms[form].quant.codes),
          .form = forms[form].quant },
        { .spec = { "b", SHEAF_F32, 1, { 1 } } },
    };
    sheaf__packer *w = NULL;
    sheaf_folder *folder = NULL;
    sheaf_folder_options how = { .stem = "m", .replace = true };
    int64_t count = 0;
    sheaf_status *st = sheaf__packer_new(&w, list, 2);
    const sheaf_safetensors_spec *specs =
        st == NULL ? sheaf__packer_specs(&count, &how.late, w) : NULL;
    TRY(st, sheaf__folder_begin(&folder, dst, specs, count, &how));
    TRY(st, sheaf__packer_begin(w, folder));
    for (int64_t r = (rows - 1) / tall * tall; r >= 0 && st == NULL; r -= tall)
        for (int64_t c = (cols - 1) / wide * wide; c >= 0 && st == NULL; c -= wide) {
            float box[ROWS * COLS];
            const int64_t h = rows - r < tall ? rows - r : tall,
                          n = cols - c < wide ? cols - c : wide;
            for (int64_t i = 0; i < h; i++)
                memcpy(box + i * n, x + (r + i) * cols + c, (size_t)n * sizeof *box);
            st = sheaf__packer_put(w, 0, r, h, c, n, box);
        }
    TRY(st, sheaf__packer_put(w, 1, 0, 1, 0, 1, x));
    if (folder != NULL)
        st = sheaf__folder_end(folder, st);
    sheaf__packer_free(w);
    return st;
}

static void read_file(char **text, size_t *size)
{
    CHECK_OK(sheaf__file_read_all(text, size, at("out/m.safetensors"), 1 << 20));
}

TEST(test_coded_write__boxes_do_not_show)
{
    static const int64_t boxes[][2] = {
        { 1, COLS }, { 7, COLS }, { 1, 1 }, { 5, 7 }, { ROWS, 11 }
    };
    float x[ROWS * COLS];
    sheaf__random_normals(x, 1, 2, 0, ROWS * COLS);
    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        for (int64_t n = 0; n < 6; n++) {
            const int64_t of = forms[f].of, rows = (n / 2 * 20 + of) / of * of,
                          cols = (n % 2 * 29 + of) / of * of;
            char *whole = NULL, *text = NULL;
            size_t size = 0, got = 0;
            CHECK_OK(write_in_boxes(at("out"), (int)f, x, rows, cols, ROWS, COLS));
            read_file(&whole, &size);
            for (size_t b = 0; b < ARRAY_LEN(boxes); b++) {
                CHECK_OK(
                    write_in_boxes(at("out"), (int)f, x, rows, cols, boxes[b][0], boxes[b][1]));
                read_file(&text, &got);
                assert_int_equal(got, size);
                CHECK_BYTES("boxes", text, whole, size);
                free(text);
            }
            free(whole);
        }
}

TEST(test_coded_write__what_is_not_finite_is_refused)
{
    static const struct {
        int form;
        float value;
        bool good;
    } rows[] = { { 0, NAN, false },  { 0, INFINITY, false }, { 2, -INFINITY, false },
                 { 3, 65504, true }, { 3, 65520, false },    { 0, 3e38f, true },
                 { 3, NAN, false },  { 4, NAN, false },      { 6, INFINITY, false },
                 { 5, 3e8f, false } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        float x[ROWS * COLS] = { 0 };
        x[5 * COLS + 7] = rows[i].value;
        CHECK_OK(sheaf__remove_tree(at("out")));
        sheaf_status *st = write_in_boxes(at("out"), rows[i].form, x, ROWS, COLS, 3, COLS);
        if (rows[i].good) {
            CHECK_OK(st);
            continue;
        }
        CHECK_FAILS(st, SHEAF_E_NUMBER, "'a.weight', near row");
        assert_int_equal(sheaf__path_kind(at("out")), SHEAF_PATH_NONE);
    }
}

TEST(test_coded_write__only_matrices_of_floats)
{
    static const sheaf_safetensors_spec bad[] = { { "a.weight", SHEAF_F32, 1, { 4 } },
                                                  { "a.weight", SHEAF_I8, 2, { 4, 4 } },
                                                  { "a", SHEAF_F32, 2, { 4, 4 } } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf__packer *w = NULL;
        CHECK_FAILS(sheaf__packer_new(&w,
                                      &(sheaf__coded_tensor){ .spec = bad[i],
                                                              .packing = sheaf__packing_of(
                                                                  SHEAF__BITSANDBYTES, SHEAF__NF4),
                                                              .form = forms[0].quant },
                                      1),
                    SHEAF_E_UNSUPPORTED, "'a");
    }
}

/* After any failing call, or one that finds no memory, all of it is there, or nothing. */
TEST(test_coded_write__any_failing_call_leaves_all_or_nothing)
{
    const sheaf_faults kinds[] = { { .action = SHEAF_FAULT_FAIL },
                                   { .action = SHEAF_FAULT_ENOSPC },
                                   { SHEAF_FAULT_MALLOC, SHEAF_FAULT_FAIL } };
    float x[ROWS * COLS];
    char *whole = NULL;
    size_t size = 0;
    sheaf__random_normals(x, 1, 2, 0, ROWS * COLS);
    CHECK_OK(write_in_boxes(at("out"), 2, x, ROWS, COLS, 7, COLS));
    read_file(&whole, &size);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        for (int n = 1;; n++) {
            sheaf_faults faults = { kinds[k].op, kinds[k].action, .n = n };
            CHECK_OK(sheaf__remove_tree(at("out")));
            sheaf_status *st = UNDER(&faults, write_in_boxes(at("out"), 2, x, ROWS, COLS, 7, COLS));
            if (st == NULL) {
                assert_true(n > (k < 2 ? 20 : 5));
                break;
            }
            sheaf_status_free(st);
            if (sheaf__path_kind(at("out")) == SHEAF_PATH_NONE)
                continue;
            char *text = NULL;
            size_t got = 0;
            read_file(&text, &got);
            assert_int_equal(got, size);
            CHECK_BYTES("all of it", text, whole, size);
            free(text);
        }
    free(whole);
}

FIXTURE(make_scratch, remove_scratch);
