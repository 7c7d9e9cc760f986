/* tiled_test.c - every box that is read by way of tiles has the values of the source below, which
 * is read once where rows are read in order, by any number of threads. */
#include "tests/check.h"

#include <stdatomic.h>
#include <time.h>

#include "catalog/coded.h"
#include "catalog/tiled.h"
#include "ops/pool.h"
#include "tests/fake_source.h"

/* Values are a function of their place. */
typedef struct below {
    fake_source fake; /* first */
    atomic_llong elements;
    atomic_int reads, failures; /* further ones that fail */
    bool slow;                  /* each takes a millisecond */
} below;

static below files;
static uint32_t state;

static int64_t less_than(int64_t n)
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)(state >> 8) % n;
}

static uint32_t value(int64_t row, int64_t col)
{
    return (uint32_t)(row * 40503 + col * 7);
}

static sheaf_status *read_files(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, void *dst)
{
    below *b = (below *)self;
    const sheaf_dtype dtype = fake_find(self, name)->dtype;
    atomic_fetch_add(&b->elements, rows * cols);
    atomic_fetch_add(&b->reads, 1);
    if (b->slow)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (atomic_load(&b->failures) > 0 && atomic_fetch_sub(&b->failures, 1) > 0)
        return sheaf_fail(SHEAF_E_NUMBER, "rows from %d", (int)row0);
    for (int64_t i = 0; i < rows * cols; i++)
        if (dtype == SHEAF_F32)
            ((uint32_t *)dst)[i] = value(row0 + i / cols, col0 + i % cols);
        else
            ((uint16_t *)dst)[i] = (uint16_t)value(row0 + i / cols, col0 + i % cols);
    return NULL;
}

static void close_files(sheaf_source *self)
{
    (void)self;
}

typedef struct shape {
    sheaf__quantizer by;
    sheaf_dtype dtype;
    int64_t out, in;
} shape;

static sheaf_catalog *catalog;

static sheaf_source *tiled(const shape *is)
{
    const int64_t size[2] = { is->out, is->in };
    sheaf_logical *t;
    sheaf_source *source = &files.fake.source;
    state = 3;
    files.fake =
        (fake_source){ .source = { fake_find, fake_count, fake_entry, read_files, close_files },
                       .n = 1,
                       .entry = { { "a", is->dtype, 2, { is->out, is->in } } } };
    CHECK_OK(sheaf__catalog_new(&catalog, NULL, "files"));
    CHECK_OK(sheaf__catalog_tensor(&t, catalog, "a", is->dtype, 2, size));
    t->coded = calloc(1, sizeof *t->coded);
    assert_non_null(t->coded);
    t->coded->packing = sheaf__packing_of(is->by, SHEAF__CODES);
    t->coded->out = is->out;
    t->coded->in = is->in;
    CHECK_OK(sheaf__tiled(&source, catalog));
    atomic_store(&files.elements, 0);
    atomic_store(&files.reads, 0);
    return source;
}

static void done(sheaf_source *source)
{
    source->close(source);
    sheaf__catalog_free(catalog);
}

/* How many of a box are wrong. */
static int64_t read_box(sheaf_source *source, int64_t row0, int64_t rows, int64_t col0,
                        int64_t cols)
{
    const bool wide = files.fake.entry[0].dtype == SHEAF_F32;
    int64_t wrong = 0;
    uint32_t *x = malloc((size_t)(rows * cols) * sizeof *x + 1);
    assert_non_null(x);
    CHECK_OK(source->read(source, "a", row0, rows, col0, cols, x));
    for (int64_t i = 0; i < rows * cols; i++) {
        const uint32_t want = value(row0 + i / cols, col0 + i % cols);
        wrong += wide ? x[i] != want : ((uint16_t *)x)[i] != (uint16_t)want;
    }
    free(x);
    return wrong;
}

TEST(test_tiled__every_box_has_its_values)
{
    static const shape cases[] = {
        { SHEAF__AWQ_4, SHEAF_F16, 1400, 200 },   { SHEAF__GPTQ_4, SHEAF_BF16, 1032, 1000 },
        { SHEAF__GPTQ_4, SHEAF_F32, 1000, 1104 }, { SHEAF__AWQ_4, SHEAF_F32, 24, 19000 },
        { SHEAF__AWQ_4, SHEAF_F32, 16, 300000 },
    };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        sheaf_source *source = tiled(&cases[k]);
        for (int i = 0; i < 40; i++) {
            const int64_t row0 = less_than(cases[k].out), col0 = less_than(cases[k].in),
                          rows = 1 + less_than(cases[k].out - row0),
                          some = i % 2 == 0 ? rows : 1 + rows % 20;
            assert_int_equal(read_box(source, row0, some < rows ? some : rows, col0,
                                      1 + less_than(cases[k].in - col0)),
                             0);
        }
        done(source);
    }
}

typedef struct streaming {
    sheaf_source *source;
    int64_t out, in, rows;
    atomic_llong wrong;
} streaming;

static void read_chunk(void *context, int64_t index, int worker)
{
    streaming *s = context;
    const int64_t row = index * s->rows, left = s->out - row;
    (void)worker;
    atomic_fetch_add(&s->wrong,
                     read_box(s->source, row, left < s->rows ? left : s->rows, 0, s->in));
}

/* One thread reads nothing twice. Of several, one that the machine suspends may find its tile
 * reused and fill it again. */
TEST(test_tiled__rows_in_order_are_read_once)
{
    static const shape cases[] = {
        { SHEAF__AWQ_4, SHEAF_F16, 1400, 4096 },
        { SHEAF__GPTQ_4, SHEAF_F16, 999, 1104 },
        { SHEAF__GPTQ_4, SHEAF_BF16, 600, 11008 },
        { SHEAF__AWQ_4, SHEAF_F32, 160, 28672 },
    };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        for (int threads = 1; threads <= 3; threads++) {
            sheaf__pool *pool;
            streaming s = { .source = tiled(&cases[k]),
                            .out = cases[k].out,
                            .in = cases[k].in,
                            .rows = 65536 / cases[k].in };
            CHECK_OK(sheaf__pool_new(&pool, threads));
            sheaf__pool_run(pool, (s.out + s.rows - 1) / s.rows, read_chunk, &s);
            sheaf__pool_free(pool);
            assert_int_equal(s.wrong, 0);
            if (threads == 1)
                assert_int_equal(files.elements, s.out * s.in);
            else
                assert_in_range(files.elements, s.out * s.in, 2 * s.out * s.in);
            done(s.source);
        }
}

TEST(test_tiled__more_threads_than_tiles_get_their_values)
{
    const shape is = { SHEAF__AWQ_4, SHEAF_F32, 1024, 16384 };
    streaming s = { .source = tiled(&is), .out = is.out, .in = is.in, .rows = 8 };
    sheaf__pool *pool;
    CHECK_OK(sheaf__pool_new(&pool, 40));
    files.slow = true;
    sheaf__pool_run(pool, s.out / s.rows, read_chunk, &s);
    files.slow = false;
    sheaf__pool_free(pool);
    assert_int_equal(s.wrong, 0);
    done(s.source);
}

TEST(test_tiled__of_no_columns_nothing_is_read)
{
    const shape is = { SHEAF__AWQ_4, SHEAF_F16, 8, 0 };
    sheaf_source *source = tiled(&is);
    assert_int_equal(read_box(source, 0, 8, 0, 0), 0);
    assert_int_equal(files.elements, 0);
    done(source);
}

TEST(test_tiled__other_forms_are_read_as_they_are)
{
    const shape is = { SHEAF__COMPRESSED_TENSORS_4, SHEAF_BF16, 100, 300 };
    sheaf_source *source = tiled(&is);
    assert_int_equal(read_box(source, 3, 5, 7, 11), 0);
    assert_int_equal(files.elements, 55);
    assert_int_equal(files.reads, 1);
    done(source);
}

TEST(test_tiled__a_failure_is_that_of_the_first_tile_and_stays_none)
{
    const shape is = { SHEAF__GPTQ_4, SHEAF_F16, 1024, 1024 };
    sheaf_source *source = tiled(&is);
    uint16_t x[20 * 2];
    files.failures = 1000;
    CHECK_FAILS(source->read(source, "a", 505, 20, 63, 2, x), SHEAF_E_NUMBER, "rows from 0");
    files.failures = 0;
    assert_int_equal(read_box(source, 505, 20, 63, 2), 0);
    CHECK_FAILS(source->read(source, "a", 1023, 2, 0, 1, x), SHEAF_E_ARG, "'a'");
    done(source);
}
