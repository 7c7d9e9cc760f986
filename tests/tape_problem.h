/* tape_problem.h - an op as a problem on a small tape: source -> op -> weighted sum.
 *
 * Values are compared with the formula in double, gradients with finite differences of that
 * formula; all operands are exact in bfloat16. Where an op may not be the only reader of a value,
 * everything runs a second time with a second reader, whose gradient comes first and is added to,
 * and with the op as a segment that backward runs again. For the tests of this folder. */
#pragma once

#include "tests/devices/checked.h"
#include "tests/tape_ends.h"
#include "tape/vision.h"

enum { MAX_OPERANDS = 5 };

typedef struct operand {
    int64_t rows, cols;
    bool vector; /* a sheaf__vector, trained unless frozen; otherwise a value */
    bool frozen;
} operand;

typedef struct problem problem;
struct problem {
    const char *name;
    int64_t rows, cols; /* of the result */
    operand operand[MAX_OPERANDS];
    bool once; /* works in place: no second reader */
    sheaf__value *(*record)(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                            const problem *p);
    void (*plain)(double *y, double *const *x, const problem *p);
    void *env;
    bool wild; /* weights of the sum of many sizes, so that its order shows */
};

static int count_of(const problem *p)
{
    int n = 0;
    while (n < MAX_OPERANDS && p->operand[n].rows > 0)
        n++;
    return n;
}

static int64_t numel(const operand *o)
{
    return o->rows * o->cols;
}

/* ---- one run of a problem ---- */

typedef struct outcome {
    float *x[MAX_OPERANDS], *grad[MAX_OPERANDS], *second[MAX_OPERANDS], *seen[MAX_OPERANDS];
    float *weight, *y;
    size_t peak[SHEAF_MEM_KINDS];
} outcome;

static const float START = 0.5f; /* what gradients of vectors hold before */

/* A vector where the device has it; on dry, which reads none, and where memory is shared, the
 * host's own. */
static float *vector_on(sheaf__device *device, float *x, int64_t n)
{
    float *at;
    CHECK_OK(sheaf__lend(&at, device, x, (size_t)n * sizeof *x));
    return at;
}

/* The gradient comes back. */
static void take_back(sheaf__device *device, const sheaf__vector *vector, const sheaf__trained *t,
                      float *grad)
{
    if (!device->class->counts)
        CHECK_OK(sheaf__download(device, grad, t->grad[0], (size_t)t->numel[0] * sizeof(float)));
    sheaf__reclaim(vector->data, device);
    sheaf__reclaim(t->grad[0], device);
}

static outcome run(const problem *p, const sheaf__device_class *class, sheaf_dtype dtype,
                   bool twice)
{
    outcome o = { .weight = numbers(p->rows * p->cols, 99),
                  .y = calloc((size_t)(p->rows * p->cols), sizeof(float)) };
    for (int64_t i = 0; i < p->rows * p->cols && p->wild; i++)
        o.weight[i] *= (float)(i * i % 1013) / 3;
    sheaf__device *device;
    sheaf__tape *tape;
    sheaf__value *value[MAX_OPERANDS] = { NULL };
    sheaf__vector vector[MAX_OPERANDS] = { { NULL } };
    sheaf__trained trained[MAX_OPERANDS] = { { NULL } };
    CHECK_OK(sheaf__device_open(&device, class, 2, NULL, 0));
    sheaf__context c = {
        .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 }, .dtype = dtype
    };
    CHECK_OK(sheaf__tape_new(&tape, &c));
    for (int i = 0; i < count_of(p); i++) {
        const operand *a = &p->operand[i];
        o.x[i] = numbers(numel(a), (uint64_t)i);
        o.second[i] = numbers(numel(a), 50 + (uint64_t)i);
        o.seen[i] = malloc((size_t)numel(a) * sizeof(float));
        o.grad[i] = malloc((size_t)numel(a) * sizeof(float));
        for (int64_t e = 0; e < numel(a); e++)
            o.grad[i][e] = START;
        if (a->vector) {
            float *x = vector_on(device, o.x[i], numel(a));
            trained[i] = (sheaf__trained){ .count = 1,
                                           .numel[0] = numel(a),
                                           .master[0] = x,
                                           .grad[0] = vector_on(device, o.grad[i], numel(a)) };
            vector[i] =
                (sheaf__vector){ "vector", a->rows, a->cols, x, a->frozen ? NULL : &trained[i] };
        } else
            value[i] = source_of(tape, a->rows, a->cols, a->frozen, o.x[i], o.grad[i], a->cols, 0);
    }
    sheaf__tape_segment_begin(tape, 0);
    sheaf__value *y = p->record(tape, value, vector, p);
    sheaf__tape_segment_end(tape);
    assert_int_equal(y->rows, p->rows);
    assert_int_equal(y->cols, p->cols);
    sink_of(tape, y, o.weight, o.y, p->cols, 0);
    for (int i = 0; i < count_of(p) && twice; i++)
        if (value[i] != NULL)
            sink_of(tape, value[i], o.second[i], o.seen[i], p->operand[i].cols, 0);
    CHECK_OK(sheaf__tape_compile(tape, true, twice));
    CHECK_OK(sheaf__tape_run(tape));
    CHECK_OK(sheaf__device_check(device));
    for (int i = 0; i < count_of(p); i++)
        if (p->operand[i].vector)
            take_back(device, &vector[i], &trained[i], o.grad[i]);
    if (device->in_use[SHEAF_MEM_ACTIVATIONS] != 0)
        fail_msg("%s: %zu bytes of values are left", p->name,
                 device->in_use[SHEAF_MEM_ACTIVATIONS]);
    memcpy(o.peak, device->peak_of, sizeof o.peak);
    sheaf__tape_free(tape);
    sheaf__device_close(device);
    return o;
}

static void drop(outcome *o)
{
    for (int i = 0; i < MAX_OPERANDS; i++) {
        free(o->x[i]);
        free(o->grad[i]);
        free(o->second[i]);
        free(o->seen[i]);
    }
    free(o->weight);
    free(o->y);
}

/* Change of the weighted sum with element e of operand i. */
static double slope(const problem *p, const outcome *o, double **x, double *y, int i, int64_t e)
{
    const double h = 1e-4, was = x[i][e];
    double sum = 0;
    for (int side = -1; side <= 1; side += 2) {
        x[i][e] = was + side * h;
        p->plain(y, x, p);
        for (int64_t k = 0; k < p->rows * p->cols; k++)
            sum += side * (double)o->weight[k] * y[k];
    }
    x[i][e] = was;
    return sum / (2 * h);
}

static void check_run(const problem *p, sheaf_dtype dtype, bool twice)
{
    outcome o = run(p, &sheaf__cpu, dtype, twice);
    const int64_t n = p->rows * p->cols;
    /* float32: rounding of a few dozen additions; bfloat16: a few roundings to 8 bits */
    const double tolerance = dtype == SHEAF_F32 ? 1e-5 : 0.02;
    double *x[MAX_OPERANDS], *y = malloc((size_t)n * sizeof *y);
    char what[128];
    for (int i = 0; i < count_of(p); i++) {
        x[i] = malloc((size_t)numel(&p->operand[i]) * sizeof *x[i]);
        for (int64_t e = 0; e < numel(&p->operand[i]); e++)
            x[i][e] = o.x[i][e];
    }
    p->plain(y, x, p);
    for (int64_t k = 0; k < n; k++) {
        snprintf(what, sizeof what, "%s, element %lld", p->name, (long long)k);
        CHECK_NEAR(what, o.y[k], y[k], tolerance * (1 + fabs(y[k])));
    }
    bool frozen = false;
    for (int i = 0; i < count_of(p); i++)
        frozen = frozen || p->operand[i].frozen;
    const int64_t step =
        frozen ? 11 * every(5) : every(31); /* with all of them each element was seen */
    for (int i = 0; i < count_of(p); i++) {
        const operand *a = &p->operand[i];
        for (int64_t e = 0; e < numel(a); e += step) {
            const bool both = twice && !a->vector;
            const double want = a->frozen ? START
                                          : slope(p, &o, x, y, i, e) + (a->vector ? START : 0) +
                                                (both ? o.second[i][e] : 0);
            snprintf(what, sizeof what, "%s, gradient %lld of operand %d%s", p->name, (long long)e,
                     i, twice ? ", added to" : "");
            CHECK_NEAR(what, o.grad[i][e], want, 2 * tolerance * (1 + fabs(want)));
        }
    }
    for (int i = 0; i < count_of(p); i++)
        free(x[i]);
    free(y);
    drop(&o);
}

/* Of an op that reads memory of its env, which is the host's. */
static inline void check_here(const problem *p)
{
    for (int twice = 0; twice <= !p->once; twice++) {
        check_run(p, SHEAF_F32, twice);
        check_run(p, SHEAF_BF16, twice);
        outcome real = run(p, &sheaf__cpu, SHEAF_BF16, twice),
                dry = run(p, &sheaf__dry, SHEAF_BF16, twice);
        CHECK_BYTES(p->name, dry.peak, real.peak, sizeof real.peak);
        drop(&real);
        drop(&dry);
    }
}

/* The same bytes on a device with memory of its own. */
static inline void check_device(const problem *p, const sheaf__device_class *class)
{
    for (int twice = 0; twice <= !p->once; twice++)
        for (int half = 0; half < 2; half++) {
            const sheaf_dtype dtype = half ? SHEAF_BF16 : SHEAF_F32;
            outcome want = run(p, &sheaf__cpu, dtype, twice), got = run(p, class, dtype, twice);
            CHECK_BYTES(p->name, got.y, want.y, (size_t)(p->rows * p->cols) * sizeof(float));
            for (int i = 0; i < count_of(p); i++)
                CHECK_BYTES(p->name, got.grad[i], want.grad[i],
                            (size_t)numel(&p->operand[i]) * sizeof(float));
            drop(&want);
            drop(&got);
        }
}

static inline void check(const problem *p)
{
    check_here(p);
    check_device(p, &checked_device);
}

/* Each of them with every set of its operands frozen. */
static inline void check_all(const problem *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int frozen = 0; frozen < 1 << count_of(&list[i]); frozen += every(3)) {
            char name[96];
            problem p = list[i];
            for (int k = 0; k < count_of(&p); k++)
                p.operand[k].frozen = frozen >> k & 1;
            snprintf(name, sizeof name, "%s, frozen %d", list[i].name, frozen);
            p.name = name;
            check(&p);
        }
}
