/* catalog_test.c - boxes out of any tiling and any strides, and what is reported about holes,
 * overlaps, copies that differ, and places outside of the file. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files.h"

#include "catalog/catalog.h"
#include "formats/safetensors.h"
#include "ops/quant/values.h"

static const sheaf_dialect test_dialect = { .name = "test" };

static uint64_t seed = 7;

static int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* One file of numbers 0, 1, 2, ... as floats; a piece's values follow from its place alone. */
enum { NUMBERS = 40000 };

static void write_numbers(void)
{
    static float number[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        number[i] = (float)i;
    CHECK_OK(sheaf__file_write_whole(at("numbers"), number, sizeof number));
}

static sheaf_catalog *new_catalog(int *file)
{
    sheaf_catalog *c = NULL;
    write_numbers();
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    CHECK_OK(sheaf__catalog_file(file, c, at("numbers"), NULL));
    return c;
}

/* Cuts [begin, end) of every axis at random places and adds the boxes, each with strides of its
 * own. */
static void add_boxes(sheaf_catalog *c, sheaf_logical **t, const char *name, int file,
                      sheaf_piece box, int axis, int64_t *next)
{
    if (axis < (*t)->entry.ndim) {
        const int64_t begin = box.begin[axis], end = begin + box.size[axis];
        for (int64_t at = begin, size; at < end; at += size) {
            size = 1 + below(end - at);
            box.begin[axis] = at;
            box.size[axis] = size;
            add_boxes(c, t, name, file, box, axis + 1, next);
        }
        return;
    }
    int order[SHEAF_CATALOG_MAX_DIMS]; /* the fastest axis, the next one, ... */
    const int ndim = (*t)->entry.ndim;
    for (int i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    for (int i = 0; i < ndim; i++) {
        const int j = (int)below(ndim), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    int64_t stride = 1 + (below(4) == 0);
    for (int i = 0; i < ndim; i++) {
        box.stride[order[i]] = below(16) == 0 ? 0 : stride;
        stride *= box.size[order[i]];
    }
    box.file = file;
    box.dtype = SHEAF_F32;
    box.offset = *next * 4;
    *next += below(200);
    CHECK_OK(sheaf__catalog_piece(c, *t, &box));
}

static float expected_at(const sheaf_logical *t, const int64_t *index)
{
    for (int64_t k = 0; k < t->npieces; k++) {
        const sheaf_piece *p = &t->piece[k];
        int64_t at = p->offset / 4;
        bool inside = true;
        for (int i = 0; i < t->entry.ndim; i++) {
            inside &= index[i] >= p->begin[i] && index[i] < p->begin[i] + p->size[i];
            at += (index[i] - p->begin[i]) * p->stride[i];
        }
        if (inside)
            return (float)at;
    }
    return -1;
}

static void check_box(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0, int64_t rows,
                      int64_t col0, int64_t cols)
{
    float *got = malloc((size_t)(rows * cols) * sizeof *got + 1);
    CHECK_OK(sheaf__catalog_read(c, t, row0, rows, col0, cols, got));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) {
            int64_t index[SHEAF_CATALOG_MAX_DIMS] = { 0 }, row = row0 + r;
            const int last = t->entry.ndim - 1;
            if (t->entry.ndim > 1)
                index[last] = col0 + k;
            for (int i = t->entry.ndim > 1 ? last - 1 : last; i >= 0; i--) {
                index[i] = row % t->entry.shape[i];
                row /= t->entry.shape[i];
            }
            if (got[r * cols + k] != expected_at(t, index))
                fail_msg("row %d, column %d: %g instead of %g", (int)(row0 + r), (int)(col0 + k),
                         (double)got[r * cols + k], (double)expected_at(t, index));
        }
    free(got);
}

TEST(test_boxes__of_any_tiling_and_strides)
{
    for (int trial = 0; trial < 300; trial++) {
        int file;
        sheaf_catalog *c = new_catalog(&file);
        sheaf_logical *t;
        sheaf_piece all = { .rank = -1 };
        const int ndim = (int)below(5);
        int64_t rows = 1, cols = 1, next = 0, shape[4];
        for (int i = 0; i < ndim; i++) {
            shape[i] = all.size[i] = 1 + below(ndim == 1 ? 60 : ndim == 2 ? 20 : 5);
            *(i > 0 && i == ndim - 1 ? &cols : &rows) *= shape[i];
        }
        CHECK_OK(sheaf__catalog_tensor(&t, c, "t", SHEAF_F32, ndim, shape));
        add_boxes(c, &t, "t", file, all, 0, &next);
        CHECK_OK(sheaf__catalog_check(c));
        assert_int_equal(c->nfindings, 0);
        t = sheaf__catalog_find(c, "t");
        check_box(c, t, 0, rows, 0, cols);
        for (int i = 0; i < 4; i++) {
            const int64_t row0 = below(rows), col0 = below(cols);
            check_box(c, t, row0, below(rows - row0 + 1), col0, below(cols - col0 + 1));
        }
        sheaf__catalog_free(c);
    }
}

/* Columns that are longer than what is read at a time. */
TEST(test_boxes__of_long_columns)
{
    enum { ROWS = 3000, COLS = 3 };
    int file;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t;
    CHECK_OK(sheaf__catalog_tensor(&t, c, "t", SHEAF_F32, 2, (int64_t[]){ ROWS, COLS }));
    CHECK_OK(sheaf__catalog_piece(c, t,
                                  &(sheaf_piece){ .rank = -1,
                                                  .file = file,
                                                  .dtype = SHEAF_F32,
                                                  .offset = 40,
                                                  .size = { ROWS, COLS },
                                                  .stride = { 1, ROWS } }));
    check_box(c, t, 0, ROWS, 0, COLS);
    check_box(c, t, 7, ROWS - 9, 1, 2);
    sheaf__catalog_free(c);
}

TEST(test_boxes__outside_of_a_tensor_or_covered_twice)
{
    static const int64_t outside[][4] = { { 0, 5, 0, 3 },        { 4, 1, 0, 3 },
                                          { 0, 4, 0, 4 },        { 0, 4, 1, 3 },
                                          { 0, 4, 3, 1 },        { -1, 2, 0, 3 },
                                          { 0, 1, -1, 2 },       { INT64_MAX, 2, 0, 1 },
                                          { 0, 1, INT64_MAX, 2 } };
    int file;
    float buffer[64];
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t;
    const sheaf_piece whole = {
        .rank = -1, .file = file, .dtype = SHEAF_F32, .size = { 4, 3 }, .stride = { 3, 1 }
    };
    CHECK_OK(sheaf__catalog_tensor(&t, c, "t", SHEAF_F32, 2, (int64_t[]){ 4, 3 }));
    CHECK_OK(sheaf__catalog_piece(c, t, &whole));
    check_box(c, t, 0, 4, 0, 3);
    for (size_t i = 0; i < ARRAY_LEN(outside); i++)
        CHECK_FAILS(sheaf__catalog_read(c, t, outside[i][0], outside[i][1], outside[i][2],
                                        outside[i][3], buffer),
                    SHEAF_E_ARG, "box outside of it | inside [");
    CHECK_OK(sheaf__catalog_piece(c, t, &whole));
    CHECK_FAILS(sheaf__catalog_read(c, t, 0, 4, 0, 3, buffer), SHEAF_E_LAYOUT,
                "each element once | 24 elements in the files for 12");
    sheaf__catalog_free(c);
}

/* ---- what is wrong ---- */

static sheaf_logical *two_axes(sheaf_catalog *c, const char *name, int64_t rows, int64_t cols)
{
    sheaf_logical *t;
    CHECK_OK(sheaf__catalog_tensor(&t, c, name, SHEAF_F32, 2, (int64_t[]){ rows, cols }));
    return t;
}

static void add_rows(sheaf_catalog *c, sheaf_logical *t, int file, int rank, int64_t row0,
                     int64_t rows, int64_t first)
{
    sheaf_piece p = sheaf__piece_dense(file, rank, SHEAF_F32, first * 4, 2,
                                       (int64_t[]){ rows, t->entry.shape[1] });
    p.begin[0] = row0;
    CHECK_OK(sheaf__catalog_piece(c, t, &p));
}

static void check_finding(const sheaf_catalog *c, int64_t i, const char *code, const char *tensor,
                          const char *found)
{
    assert_true(i < c->nfindings);
    assert_string_equal(c->finding[i].code, code);
    assert_string_equal(c->finding[i].tensor, tensor);
    if (strstr(c->finding[i].found, found) == NULL)
        fail_msg("'%s' does not say '%s'", c->finding[i].found, found);
}

TEST(test_check__names_missing_rows_overlaps_and_dtypes)
{
    int file;
    sheaf_source *source = NULL;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t = two_axes(c, "a", 511, 4);
    add_rows(c, t, file, 0, 0, 100, 0);
    add_rows(c, t, file, 2, 200, 56, 0);
    t = two_axes(c, "b", 10, 4);
    add_rows(c, t, file, 0, 0, 6, 0);
    add_rows(c, t, file, 1, 5, 5, 0);
    t = two_axes(c, "c", 10, 4);
    add_rows(c, t, file, 0, 0, 5, 0);
    sheaf_piece half = sheaf__piece_dense(file, 1, SHEAF_BF16, 0, 2, (int64_t[]){ 5, 4 });
    half.begin[0] = 5;
    CHECK_OK(sheaf__catalog_piece(c, t, &half));
    t = two_axes(c, "d", 10, 4); /* nothing of it is there */
    CHECK_OK(sheaf__catalog_check(c));
    assert_int_equal(c->nfindings, 4);
    assert_int_equal(sheaf__catalog_defects(c), 4);
    check_finding(c, 0, "missing", "a", "rows 100..199, 256..510 of 511");
    check_finding(c, 1, "conflict", "b", "another place");
    check_finding(c, 2, "dtype", "c", "BF16");
    check_finding(c, 3, "missing", "d", "40 of 40");
    float row[4];
    CHECK_OK(sheaf__catalog_read(c, sheaf__catalog_find(c, "a"), 99, 1, 0, 4, row));
    CHECK_FAILS(sheaf__catalog_read(c, sheaf__catalog_find(c, "a"), 99, 2, 0, 4, row),
                SHEAF_E_LAYOUT, "a");
    CHECK_FAILS(sheaf__catalog_source(&source, c, false), SHEAF_E_LAYOUT, "rows 100..199");
}

TEST(test_piece__lies_in_its_file_and_its_tensor)
{
    int file;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t = two_axes(c, "a", 8, 4);
    sheaf_piece p =
        sheaf__piece_dense(file, 0, SHEAF_F32, (NUMBERS - 32) * 4, 2, (int64_t[]){ 8, 4 });
    CHECK_OK(sheaf__catalog_piece(c, t, &p));
    p.offset += 4;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_FORMAT, "160000 bytes");
    p.offset = -4;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_FORMAT, "a");
    p.offset = 0;
    p.begin[0] = 1;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_LAYOUT, "axis 0");
    p.begin[0] = 0;
    p.stride[0] = INT64_MAX / 2;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_FORMAT, "a");
    p.stride[0] = -1;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_FORMAT, "a");
    sheaf_logical *bytes;
    CHECK_OK(sheaf__catalog_tensor(&bytes, c, "bytes", SHEAF_U8, 1, (int64_t[]){ 2 }));
    p = sheaf__piece_dense(file, 0, SHEAF_U8, 0, 1, (int64_t[]){ 2 });
    p.stride[0] = INT64_MAX; /* one more is no number */
    CHECK_FAILS(sheaf__catalog_piece(c, bytes, &p), SHEAF_E_FORMAT, "byte -1");
    sheaf_logical *none;
    CHECK_FAILS(
        sheaf__catalog_tensor(&none, c, "huge", SHEAF_F32, 3, (int64_t[]){ INT64_MAX / 2, 3, 5 }),
        SHEAF_E_UNSUPPORTED, "huge");
    CHECK_FAILS(sheaf__catalog_tensor(&none, c, "less", SHEAF_F32, 1, (int64_t[]){ -1 }),
                SHEAF_E_UNSUPPORTED, "less");
    sheaf__catalog_free(c);
}

TEST(test_piece__is_converted_from_floats_alone)
{
    static const sheaf__gguf_type refused[] = { SHEAF__GGML_F64, SHEAF__GGML_I64, SHEAF__GGML_I8 };
    int file;
    sheaf_catalog *c = new_catalog(&file);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const sheaf__gguf_type_row *row = sheaf__gguf_type_at(refused[i]);
        sheaf_logical *t = NULL;
        CHECK_OK(sheaf__catalog_tensor(&t, c, row->name, row->dtype, 1, (int64_t[]){ 4096 }));
        sheaf_piece p = sheaf__piece_dense(file, 0, row->dtype, 0, 1, t->entry.shape);
        p.stored = refused[i];
        CHECK_OK(sheaf__catalog_piece(c, t, &p)); /* as it is */
        p.converted = p.plus_one = true;
        CHECK_FAILS(sheaf__catalog_piece(c, t, &p), SHEAF_E_UNSUPPORTED, row->name);
    }
    sheaf__catalog_free(c);
}

/* Random blocks of a type, but with finite halves: bit 6 of no byte is set. */
static void write_blocks(sheaf__gguf_type type, int64_t n)
{
    const int64_t bytes = n / sheaf__gguf_type_block(type) * sheaf__gguf_type_bytes(type);
    uint8_t *all = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        all[i] = (uint8_t)(below(256) & 0xbf);
    CHECK_OK(sheaf__file_write_whole(at("blocks"), all, (size_t)bytes));
    free(all);
}

enum { TURNED = 4, WIDE = 4608 }; /* rows, the even ones of the file first */

/* The codes of any box of blocks stand for what is read as numbers. */
static void check_codes(sheaf_source *s, const sheaf__quant *q, const char *name)
{
    for (int i = 0; i < 40; i++) {
        sheaf__quant_box b = { .in = WIDE, .row0 = below(TURNED), .col0 = below(WIDE) };
        b.rows = 1 + below(TURNED - b.row0);
        b.cols = 1 + below(WIDE - b.col0);
        const int64_t n = sheaf__quant_groups(q, &b), floats = sheaf__quant_floats(q);
        float *want = malloc((size_t)(b.rows * b.cols) * 4);
        sheaf__quant_parts p = { .codes = malloc((size_t)(b.rows * b.cols)),
                                 .scales = malloc((size_t)(b.rows * n * floats) * 4) };
        CHECK_OK(s->read(s, "w", b.row0, b.rows, b.col0, b.cols, want));
        CHECK_OK(sheaf__source_codes(s, "w", b.row0, b.rows, b.col0, b.cols, &p));
        for (int64_t k = 0; k < b.rows * b.cols; k++) {
            const float *of =
                p.scales + (k / b.cols * n + (b.col0 % q->block + k % b.cols) / q->block) * floats;
            const float product = sheaf__code_value(q->codes, p.codes[k]) * of[0],
                        got = q->added ? product + of[1] : product;
            CHECK_BYTES(name, &got, &want[k], sizeof got);
        }
        free(want);
        free(p.codes);
        free(p.scales);
    }
}

TEST(test_read__codes_of_blocks_have_their_values)
{
    int types = 0;
    for (int type = 0; type < SHEAF__GGML_TYPES; type++) {
        const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
        int file;
        sheaf_catalog *c = NULL;
        sheaf_logical *t = NULL;
        sheaf_source *s = NULL;
        if (row->elements <= 1)
            continue;
        write_blocks((sheaf__gguf_type)type, TURNED * WIDE);
        CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
        CHECK_OK(sheaf__catalog_file(&file, c, at("blocks"), NULL));
        CHECK_OK(sheaf__catalog_tensor(&t, c, "w", SHEAF_F32, 2, (int64_t[]){ TURNED, WIDE }));
        for (int i = 0; i < 2; i++) {
            sheaf_piece p = sheaf__piece_dense(file, -1, SHEAF_F32, 0, 2, t->entry.shape);
            p.stored = (sheaf__gguf_type)type;
            p.converted = true;
            p.offset = i * (WIDE / row->elements * row->bytes);
            p.begin[0] = i * (TURNED / 2);
            p.size[0] = TURNED / 2;
            p.stride[0] *= 2;
            CHECK_OK(sheaf__catalog_piece(c, t, &p));
        }
        CHECK_OK(sheaf__catalog_source(&s, c, false));
        assert_null(sheaf__source_form(s, "w")); /* to all but memory it is plain */
        check_codes(s, sheaf__source_held(s, "w"), row->name);
        s->close(s);
        types++;
    }
    assert_int_equal(types, 10);
}

/* Of a cut or interrupted download a table of copies may know a tensor of which no part holds
 * anything. */
TEST(test_check__a_tensor_of_copies_that_no_part_holds_is_missing)
{
    int file;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t = NULL;
    CHECK_OK(sheaf__catalog_tensor(&t, c, "w", SHEAF_F32, 1, (int64_t[]){ 4 }));
    t->replicated = true;
    CHECK_OK(sheaf__catalog_tensor(&t, c, "empty", SHEAF_F32, 2, (int64_t[]){ 0, 4 }));
    t->replicated = true;
    CHECK_OK(sheaf__catalog_check(c));
    CHECK_OK(sheaf__catalog_compare(c));
    assert_int_equal(c->nfindings, 1);
    assert_string_equal(c->finding[0].code, "missing");
    assert_string_equal(c->finding[0].tensor, "w");
    sheaf__catalog_free(c);
}

/* Without elements a shape may still multiply beyond 64 bits, in any order of its axes. */
TEST(test_tensor__of_no_elements_has_a_shape_that_can_be_held)
{
    static const int64_t big = (int64_t)1 << 62, half = (int64_t)1 << 31;
    const int64_t shapes[][3] = {
        { 0, big, big },   { big, 0, big },   { big, big, 0 },
        { 0, half, half }, { half, half, 0 }, { INT64_MAX, INT64_MAX, 0 }
    };
    int file;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t = NULL;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const sheaf_piece p = sheaf__piece_dense(file, 0, SHEAF_F32, 0, 3, shapes[i]);
        assert_int_equal(p.size[1], shapes[i][1]);
        CHECK_FAILS(sheaf__catalog_tensor(&t, c, "w", SHEAF_F32, 3, shapes[i]), SHEAF_E_UNSUPPORTED,
                    "its shape cannot be held");
    }
    CHECK_OK(sheaf__catalog_tensor(&t, c, "w", SHEAF_F32, 3, (int64_t[]){ 0, half, 2 }));
    const sheaf_piece p = sheaf__piece_dense(file, 0, SHEAF_F32, 0, 3, t->entry.shape);
    CHECK_OK(sheaf__catalog_piece(c, t, &p));
    assert_int_equal(t->npieces, 0);
    sheaf__catalog_free(c);
}

/* A stride of 0 makes terabytes of a few bytes, which nobody has the time to read. */
TEST(test_piece__is_not_expanded_beyond_all_measure)
{
    int file;
    sheaf_catalog *c = new_catalog(&file);
    sheaf_logical *t = NULL;
    const int64_t vast[] = { 1 << 20, 1 << 20 }, some[] = { 1 << 10, 1 << 10 };
    CHECK_OK(sheaf__catalog_tensor(&t, c, "vast", SHEAF_F32, 2, vast));
    sheaf_piece one = sheaf__piece_dense(file, 0, SHEAF_F32, 0, 2, vast);
    one.stride[0] = one.stride[1] = 0;
    CHECK_FAILS(sheaf__catalog_piece(c, t, &one), SHEAF_E_UNSUPPORTED, "expanded from a file");
    c->expanded = 0;
    for (int i = 0; i < 100; i++) { /* many that are small, together */
        CHECK_OK(sheaf__catalog_tensor(&t, c, textf("s%d", i), SHEAF_F32, 2, some));
        sheaf_piece p = sheaf__piece_dense(file, 0, SHEAF_F32, 0, 2, some);
        p.stride[0] = p.stride[1] = 0;
        sheaf_status *st = sheaf__catalog_piece(c, t, &p);
        if (i < 64)
            CHECK_OK(st);
        else
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, "expanded");
    }
    sheaf__catalog_free(c);
}

TEST(test_compare__names_the_parts_whose_copies_differ)
{
    int file;
    sheaf_source *source = NULL;
    sheaf_catalog *c = new_catalog(&file);
    for (int i = 0; i < 3; i++) {
        sheaf_logical *t = two_axes(c, i == 0 ? "x" : i == 1 ? "y" : "z", 6, 4);
        t->replicated = true;
        for (int rank = 0; rank < 3; rank++)
            add_rows(c, t, file, rank, 0, 6, i > 0 && rank == 3 - i ? 100 : 0);
    }
    CHECK_OK(sheaf__catalog_check(c));
    CHECK_OK(sheaf__catalog_compare(c));
    assert_int_equal(c->nfindings, 2);
    check_finding(c, 0, "replica", "y", "part 2 differs from part 0");
    check_finding(c, 1, "replica", "z", "part 1 differs from part 0");
    CHECK_OK(sheaf__catalog_source(&source, c, false));
    float v[24];
    CHECK_OK(source->read(source, "y", 0, 6, 0, 4, v));
    assert_true(v[23] == 23);
    source->close(source);
}

TEST(test_source__shows_weights_by_name_and_the_rest_on_request)
{
    static const sheaf_kind kinds[] = { SHEAF_MOMENT, SHEAF_WEIGHT, SHEAF_LORA, SHEAF_BUFFER };
    static const char *const names[] = { "a", "d", "b", "c" };
    for (int all = 0; all < 2; all++) {
        int file;
        sheaf_source *s = NULL;
        sheaf_catalog *c = new_catalog(&file);
        for (int i = 0; i < 4; i++) {
            sheaf_logical *t = two_axes(c, names[i], 1, 4);
            t->kind = kinds[i];
            add_rows(c, t, file, 0, 0, 1, 0);
        }
        CHECK_OK(sheaf__catalog_source(&s, c, all));
        assert_int_equal(s->count(s), all ? 4 : 2);
        assert_string_equal(s->entry(s, 0)->name, all ? "a" : "c");
        assert_true((s->find(s, "a") != NULL) == all);
        assert_null(s->find(s, "e"));
        s->close(s);
    }
}

TEST(test_source__refuses_in_the_words_of_the_first_defect)
{
    static const struct {
        const char *code;
        sheaf_code status;
    } rows[] = {
        { "damaged", SHEAF_E_FORMAT },          { "unsafe", SHEAF_E_UNSAFE },
        { "unsupported", SHEAF_E_UNSUPPORTED }, { "missing", SHEAF_E_LAYOUT },
        { "conflict", SHEAF_E_LAYOUT },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int file;
        sheaf_source *s = NULL;
        sheaf_catalog *c = new_catalog(&file);
        CHECK_OK(sheaf__warning(c, "padded", "", "", "", "", "not this"));
        CHECK_OK(sheaf__defect(c, rows[i].code, "", "", "", "", "this one"));
        CHECK_OK(sheaf__defect(c, "stale", "", "", "", "", "nor this"));
        CHECK_FAILS(sheaf__catalog_source(&s, c, false), rows[i].status, "this one");
    }
}

/* The bytes read before and those there now may be of two models. */
TEST(test_read__of_a_file_that_is_written_to_meanwhile)
{
    static const struct timespec old[2] = { { 1000, 1 }, { 1000, 1 } };
    const int64_t shape[] = { 4 };
    float four[4];
    int file = 0;
    write_numbers();
    for (int closed = 0; closed <= 1; closed++) { /* 1: it is opened for each read */
        sheaf_catalog *c = NULL;
        sheaf_logical *t = NULL;
        const int fd = open(at("numbers"), O_WRONLY);
        CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
        assert_int_equal(futimens(fd, old), 0);
        CHECK_OK(sheaf__catalog_file(&file, c, at("numbers"), NULL));
        CHECK_OK(sheaf__catalog_tensor(&t, c, "t", SHEAF_F32, 1, shape));
        const sheaf_piece whole = sheaf__piece_dense(file, -1, SHEAF_F32, 40, 1, shape);
        CHECK_OK(sheaf__catalog_piece(c, t, &whole));
        if (closed == 1) {
            close(c->file[file].fd);
            c->file[file].fd = -1;
        }
        CHECK_OK(sheaf__catalog_read(c, t, 0, 4, 0, 1, four));
        assert_int_equal(pwrite(fd, four, 4, 0), 4); /* another tensor's place */
        CHECK_FAILS(sheaf__catalog_read(c, t, 0, 4, 0, 1, four), SHEAF_E_CHANGED,
                    "numbers: changed while it was read");
        sheaf__catalog_free(c);
        close(fd);
    }
}

/* A header was read of what is no longer there: written over in place, or replaced by name. */
TEST(test_file__is_another_than_the_one_whose_header_was_read)
{
    static const char bytes[] = "\x2\0\0\0\0\0\0\0{}";
    static const struct timespec old[2] = { { 1000, 1 }, { 1000, 1 } };
    for (int replaced = 0; replaced <= 1; replaced++)
        for (int known = 0; known <= 1; known++) { /* to the catalog, before the header was read */
            sheaf_safetensors *header = NULL;
            int file;
            CHECK_OK(sheaf__file_write_whole(at("headed"), bytes, sizeof bytes - 1));
            const int fd = open(at("headed"), O_WRONLY);
            assert_int_equal(futimens(fd, old), 0);
            sheaf_catalog *c = NULL;
            CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
            CHECK_OK(sheaf__safetensors_open(&header, at("headed")));
            if (known)
                CHECK_OK(sheaf__catalog_file(&file, c, at("headed"), &header->mark));
            if (replaced) {
                CHECK_OK(sheaf__file_write_whole(at("another"), bytes, sizeof bytes - 1));
                assert_int_equal(utimensat(AT_FDCWD, at("another"), old, 0), 0);
                assert_int_equal(rename(at("another"), at("headed")), 0);
            } else
                assert_int_equal(pwrite(fd, bytes, 1, 0), 1);
            if (known) { /* of what the catalog holds open */
                sheaf__safetensors_close(header);
                CHECK_OK(sheaf__safetensors_open(&header, at("headed")));
            }
            CHECK_FAILS(sheaf__catalog_file(&file, c, at("headed"), &header->mark), SHEAF_E_CHANGED,
                        "headed: changed while it was read");
            sheaf__safetensors_close(header);
            sheaf__catalog_free(c);
            close(fd);
        }
}

TEST(test_names__many)
{
    int file;
    sheaf_catalog *c = new_catalog(&file);
    for (int i = 0; i < 5000; i++)
        (void)two_axes(c, textf("tensor.%d", (i * 7919) % 5000), i + 1, 1);
    assert_int_equal(c->count, 5000);
    CHECK_OK(sheaf__catalog_sort(c));
    for (int i = 0; i < 5000; i++)
        assert_int_equal(
            sheaf__catalog_find(c, textf("tensor.%d", (i * 7919) % 5000))->entry.shape[0], i + 1);
    assert_null(sheaf__catalog_find(c, "tensor.5000"));
    sheaf__catalog_free(c);
}

FIXTURE(make_scratch, remove_scratch);
