/* recompute_test.c - ops whose result a backward pass leaves where its gradient was: the same
 * bytes, and the same gradients, as if the result had been kept. */

#include "tests/tape_ends.h"
#include "tape/layers.h"

/* Several parts of what a thread takes at once, no multiple of a vector. */
enum { ROWS = 9, COLS = 700, MANY = ROWS * COLS };

typedef enum maker { SWIGLU, GEGLU, NORM, NORM_ONCE } maker;
static const char *const names[] = { "swiglu", "geglu", "norm", "norm, rounded once" };

/* The remade value, as the reader finds it in its backward pass, and the resulting gradients. */
typedef struct result {
    float made[MANY], found[MANY], grad[2][MANY], weight[COLS];
    bool kept; /* its memory was its own */
} result;

typedef struct reader_params {
    sheaf__value *x;
    const float *give;
    result *to;
} reader_params;

static void widen(const sheaf__context *c, float *to, const void *from)
{
    c->device->kernels->widen(to, from, c->dtype, MANY);
}

static sheaf_status *reader_forward(sheaf__tape *tape, sheaf__op *op)
{
    const reader_params *p = op->params;
    widen(sheaf__tape_context(tape), p->to->made, p->x->data);
    return NULL;
}

static sheaf_status *reader_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const reader_params *p = op->params;
    c->device->kernels->round(p->x->grad, c->dtype, p->give, MANY);
    CHECK_OK(sheaf__tape_recompute(tape, p->x));
    p->to->kept = p->x->data != p->x->grad;
    widen(c, p->to->found, p->x->data);
    return NULL;
}

static sheaf__value *record_maker(sheaf__tape *tape, maker kind, sheaf__value *const *in,
                                  sheaf__norm *norm)
{
    norm->once = kind == NORM_ONCE;
    return kind == SWIGLU || kind == GEGLU ? sheaf__record_swiglu(tape, in[0], in[1], kind == GEGLU)
                                           : sheaf__record_rmsnorm(tape, in[0], norm);
}

/* late: the reader reads the result after it has made the gradient. */
static void run(result *to, maker kind, sheaf_dtype dtype, int threads, bool late, bool frozen)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype };
    sheaf__tape *tape;
    sheaf__trained_set *set;
    sheaf__value *in[2] = { NULL }, *made;
    float weight[COLS], *data[] = { numbers(MANY, 1), numbers(MANY, 2) }, *give = numbers(MANY, 3);
    sheaf__norm norm = { .name = "norm", .width = COLS, .eps = 1e-5f, .weight = weight };
    memset(to, 0, sizeof *to);
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, threads, NULL, 0));
    CHECK_OK(sheaf__tape_new(&tape, &c));
    CHECK_OK(sheaf__trained_set_new(&set, &c));
    CHECK_OK(sheaf__trained_add(&norm.trained, set, "norm", 1, (int64_t[]){ COLS }, NULL, false));
    CHECK_OK(sheaf__trained_allocate(set));
    memset(norm.trained->grad[0], 0, COLS * sizeof(float));
    for (int i = 0; i < COLS; i++)
        norm.trained->master[0][i] = 1 + number(i, 4) / 2;
    sheaf__norm_refresh(&c, &norm);
    for (int i = 0; i < (kind <= GEGLU ? 2 : 1); i++)
        in[i] = source_of(tape, ROWS, COLS, frozen, data[i], to->grad[i], COLS, 0);
    made = record_maker(tape, kind, in, &norm);
    sheaf__op *reader =
        sheaf__tape_op(tape, "reader", reader_forward, reader_backward, sizeof(reader_params));
    *(reader_params *)reader->params = (reader_params){ made, give, to };
    reader->reads_late = late;
    sheaf__op_arg(reader, made, SHEAF__READ | SHEAF__KEEP | SHEAF__GRAD_WRITE);
    CHECK_OK(sheaf__tape_compile(tape, true, false));
    CHECK_OK(sheaf__tape_run(tape));
    memcpy(to->weight, norm.trained->grad[0], sizeof to->weight);
    sheaf__tape_free(tape);
    sheaf__trained_set_free(set);
    sheaf__device_close(c.device);
    free(data[0]);
    free(data[1]);
    free(give);
}

static void same(const char *what, const char *of, const float *got, const float *want, int64_t n)
{
    char name[100];
    snprintf(name, sizeof name, "%s of %s", what, of);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(name, got[i], want[i], 0);
}

/* frozen: only the norm's weight takes a gradient. */
static void check(maker kind, sheaf_dtype dtype, int threads, bool frozen)
{
    static result kept, late;
    run(&kept, kind, dtype, threads, false, frozen);
    run(&late, kind, dtype, threads, true, frozen);
    assert_true(kept.kept && !late.kept);
    same("the result", names[kind], late.found, kept.made, MANY);
    same("the result in forward", names[kind], late.made, kept.made, MANY);
    for (int i = 0; i < 2; i++)
        same("the gradient", names[kind], late.grad[i], kept.grad[i], MANY);
    same("the weight's gradient", names[kind], late.weight, kept.weight, COLS);
}

TEST(test_remade__is_what_was_made)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (maker kind = SWIGLU; kind <= NORM_ONCE; kind++)
        for (size_t t = 0; t < ARRAY_LEN(dtypes); t++)
            for (int threads = 1; threads < 4; threads += 2)
                check(kind, dtypes[t], threads, false);
}

/* No gradient goes on, but the result is needed all the same. */
TEST(test_remade__behind_frozen_layers)
{
    check(NORM, SHEAF_F32, 1, true);
    check(NORM_ONCE, SHEAF_BF16, 1, true);
}
