/* stored_rows_test.c - rows of a table that stays in its files: rounded as they were when tables
 * were held, on any number of threads; and the error when they change or cannot be read. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/check.h"

#include <stdatomic.h>

#include "ops/math/round.h"
#include "tape/layers.h"

enum { WIDTH = 5, WORDS = 70, TOKENS = 200 };

typedef struct files {
    sheaf_source source; /* first */
    sheaf_dtype dtype;
    float number[WORDS][WIDTH];
    int64_t unreadable; /* rows from here on */
    atomic_int reads;
} files;

static sheaf_status *read_rows(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    files *f = (files *)self;
    assert_string_equal(name, "table");
    assert_true(rows == 1 && col0 == 0 && cols == WIDTH);
    f->reads++;
    if (row0 >= f->unreadable)
        return sheaf_fail(SHEAF_E_IO, "model.safetensors: reading");
    for (int i = 0; i < WIDTH; i++)
        sheaf__store(dst, i, f->number[row0][i], f->dtype);
    return NULL;
}

/* A model of one table; `threads` compute. */
typedef struct problem {
    files files;
    sheaf__context context;
    uint64_t print[WORDS];
    sheaf__table table;
    int32_t ids[TOKENS];
    sheaf__rows_in in;
    sheaf__tape *tape;
    sheaf__value *x;
    float got[TOKENS * WIDTH]; /* x, in the compute dtype */
} problem;

static sheaf_status *copy_out(sheaf__tape *tape, sheaf__op *op)
{
    problem *p = *(problem **)op->params;
    return sheaf__download(p->context.device, p->got, p->x->data,
                           TOKENS * WIDTH * sheaf_dtype_bytes(p->context.dtype));
}

static void set_up_on(problem *p, const sheaf__device_class *class, sheaf_dtype stored,
                      sheaf_dtype dtype, int threads)
{
    *p = (problem){
        .files = { .source = { .read = read_rows }, .dtype = stored, .unreadable = WORDS },
        .context = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype }
    };
    CHECK_OK(sheaf__device_open(&p->context.device, class, threads, NULL, 0));
    for (int r = 0; r < WORDS; r++) {
        uint32_t row[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            p->files.number[r][i] = sinf((float)(r * WIDTH + i));
        CHECK_OK(read_rows(&p->files.source, "table", r, 1, 0, WIDTH, row));
        p->print[r] = sheaf__row_hash(row, WIDTH * sheaf_dtype_bytes(stored));
    }
    p->table = (sheaf__table){ .name = "table",
                               .vocab = WORDS,
                               .width = WIDTH,
                               .cut = { .slices = 1, .nparts = 1, .part = { { WORDS, 1 } } },
                               .stored = { .source = &p->files.source,
                                           .name = "table",
                                           .width = WIDTH,
                                           .dtype = stored,
                                           .print = p->print } };
    for (int t = 0; t < TOKENS; t++)
        p->ids[t] = t * 13 % WORDS;
    p->in = (sheaf__rows_in){ .ids = p->ids, .host.ids = p->ids };
    CHECK_OK(sheaf__tape_new(&p->tape, &p->context));
    p->x = sheaf__record_embedding(p->tape, &p->table, TOKENS, &p->in);
    sheaf__op *end = sheaf__tape_op(p->tape, "end", copy_out, NULL, sizeof(problem *));
    *(problem **)end->params = p;
    sheaf__op_arg(end, p->x, SHEAF__READ);
    CHECK_OK(sheaf__tape_compile(p->tape, false, false));
    p->files.reads = 0;
}

static void set_up(problem *p, sheaf_dtype stored, sheaf_dtype dtype, int threads)
{
    set_up_on(p, &sheaf__cpu, stored, dtype, threads);
}

static void tear_down(problem *p)
{
    sheaf__tape_free(p->tape);
    sheaf__device_close(p->context.device);
}

TEST(test_stored_rows__are_rounded_once)
{
    static const sheaf_dtype all[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    static const sheaf__device_class *const devices[] = { &sheaf__cpu, &checked_device,
                                                          &copied_device };
    for (size_t s = 0; s < ARRAY_LEN(all); s++)
        for (size_t d = 0; d < ARRAY_LEN(all); d++)
            for (int way = 0; way < 9; way++) {
                problem p;
                set_up_on(&p, devices[way / 3], all[s], all[d], way % 3 + 1);
                CHECK_OK(sheaf__tape_run(p.tape));
                assert_int_equal(p.files.reads, TOKENS); /* those of tokens, no more */
                for (int t = 0; t < TOKENS; t++)
                    for (int i = 0; i < WIDTH; i++) {
                        uint32_t stored, want;
                        sheaf__store(&stored, 0, p.files.number[p.ids[t]][i], all[s]);
                        sheaf__store(&want, 0, sheaf__load(&stored, 0, all[s]), all[d]);
                        assert_memory_equal(sheaf__at(p.got, t * WIDTH + i, all[d]), &want,
                                            sheaf_dtype_bytes(all[d]));
                    }
                tear_down(&p);
            }
}

/* One number of one row, as a file that is written anew while a run reads it. */
TEST(test_stored_rows__changed)
{
    problem p;
    set_up(&p, SHEAF_BF16, SHEAF_F32, 2);
    p.files.number[13][WIDTH - 1] += 1;
    CHECK_FAILS(sheaf__tape_run(p.tape), SHEAF_E_FORMAT, "table: row 13, which a token needs");
    p.files.number[13][WIDTH - 1] -= 1;
    CHECK_OK(sheaf__tape_run(p.tape)); /* and as it was again */
    p.files.number[13][0] += 1;
    for (int t = 0; t < TOKENS; t++)
        p.ids[t] = p.ids[t] == 13 ? 12 : p.ids[t];
    CHECK_OK(sheaf__tape_run(p.tape)); /* none is read */
    tear_down(&p);
}

/* Of several failures, the first token's is reported, on any number of threads. */
TEST(test_stored_rows__cannot_be_read)
{
    for (int i = 0; i < 50; i++) {
        problem p;
        set_up(&p, SHEAF_F32, SHEAF_F32, 2);
        p.files.unreadable = 50;
        p.ids[1] = 68;
        p.ids[40] = 67;
        for (int t = 0; t < TOKENS; t++)
            p.ids[t] = t == 1 || t >= 40 ? p.ids[t] : 3;
        CHECK_FAILS(sheaf__tape_run(p.tape), SHEAF_E_IO, "table: row 68, which a token needs");
        p.ids[1] = 2;
        CHECK_FAILS(sheaf__tape_run(p.tape), SHEAF_E_IO, "table: row 67, which a token needs");
        tear_down(&p);
    }
}
