/* head_test.c - the output head on small tapes: loss, logits and gradients against the formula in
 * double,
 *
 *   loss = sum over labelled rows of (log(sum_c exp(l_c)) - l_label),  l = x W^T + scale (x A^T)
 *     B^T,
 *
 * which knows no slices and no blocks of rows; with labels smoothed by eps
 *
 *   loss = (1 - eps) * that + eps * sum over labelled rows of (log(sum_c exp(l_c)) - mean_c l_c);
 *
 * and of a head of one row whose number is a score
 *
 *   loss = - sum over labelled rows of l.
 *
 * Gradients by finite differences of it. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/tape_layer.h"

#include "tape/head.h"

typedef struct shape {
    const char *name;
    int64_t tokens, hidden, vocab, rank;
    int unlabelled; /* every so-manyeth row has no label, the first among them; 1: all; 0: none */
    double smoothing;
    bool scores;
} shape;

typedef struct problem {
    const shape *s;
    tensor x, weight, none, a, b;
    int32_t *label;
    int64_t labels;
} problem;

static const double SCALE = 0.5;
static const float GRADIENT_SCALE = 0.25f;

static problem problem_of(const shape *s)
{
    problem p = { .s = s, .label = malloc((size_t)s->tokens * sizeof(int32_t)) };
    fill(&p.x, s->tokens, s->hidden, 1);
    fill(&p.weight, s->vocab, s->hidden, 2);
    if (s->rank > 0) {
        fill(&p.a, s->rank, s->hidden, 3);
        fill(&p.b, s->vocab, s->rank, 4);
    }
    for (int64_t t = 0; t < s->tokens; t++) {
        p.label[t] = s->unlabelled > 0 && t % s->unlabelled == 0
                         ? SHEAF__IGNORED
                         : (int32_t)((t * 7 + 3) % s->vocab);
        p.labels += p.label[t] >= 0;
    }
    return p;
}

static void problem_free(problem *p)
{
    tensor_free(&p->x);
    tensor_free(&p->weight);
    tensor_free(&p->a);
    tensor_free(&p->b);
    free(p->label);
}

static double logit(const problem *p, int64_t token, int64_t word)
{
    const double *x = p->x.wide + token * p->s->hidden;
    double l = 0;
    for (int64_t k = 0; k < p->s->hidden; k++) {
        double w = p->weight.wide[word * p->s->hidden + k];
        for (int64_t r = 0; r < p->s->rank; r++)
            w += SCALE * p->b.wide[word * p->s->rank + r] * p->a.wide[r * p->s->hidden + k];
        l += x[k] * w;
    }
    return l;
}

static double loss_of(const problem *p, int64_t begin, int64_t end)
{
    double loss = 0;
    for (int64_t t = begin; t < end && p->s->scores; t++)
        loss -= p->label[t] >= 0 ? logit(p, t, 0) : 0;
    for (int64_t t = begin; t < end && !p->s->scores; t++) {
        double sum = 0, mean = 0;
        for (int64_t c = 0; c < p->s->vocab && p->label[t] >= 0; c++) {
            sum += exp(logit(p, t, c));
            mean += logit(p, t, c) / (double)p->s->vocab;
        }
        if (p->label[t] >= 0)
            loss += (1 - p->s->smoothing) * (log(sum) - logit(p, t, p->label[t])) +
                    p->s->smoothing * (log(sum) - mean);
    }
    return loss;
}

static double slope(void *problem_, const tensor *t, int64_t e)
{
    problem *p = problem_;
    const double h = 1e-4, was = t->wide[e];
    const int64_t begin = t == &p->x ? e / t->cols : 0, end = t == &p->x ? begin + 1 : p->s->tokens;
    t->wide[e] = was + h;
    double change = loss_of(p, begin, end);
    t->wide[e] = was - h;
    change -= loss_of(p, begin, end);
    t->wide[e] = was;
    return GRADIENT_SCALE * change / (2 * h);
}

/* ---- what `take` hears ---- */

typedef struct heard {
    const problem *p;
    const int32_t *want;
    int64_t rows;
    double tolerance;
    float *weight, *each; /* of weights that follow from losses */
    bool by_block;
    int calls;
} heard;

static sheaf_status *hear(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits)
{
    heard *h = self;
    assert_int_equal(row0, h->rows);
    assert_in_range(n, 1, SHEAF__HEAD_BLOCK);
    for (int64_t i = 0; i < n; i++, h->rows++)
        for (int64_t c = 0; c < h->p->s->vocab; c++) {
            const double want = logit(h->p, h->want[h->rows], c);
            assert_int_equal(row[i], h->want[h->rows]);
            CHECK_NEAR(h->p->s->name, logits[i * h->p->s->vocab + c], want,
                       h->tolerance * (1 + fabs(want)));
        }
    return NULL;
}

/* By block each call knows 256 losses more, and later rows have no weight yet. */
static sheaf_status *weigh(void *self)
{
    heard *h = self;
    const int64_t known = h->by_block ? ++h->calls * SHEAF__HEAD_BLOCK : INT64_MAX;
    h->rows = 0;
    for (int64_t t = 0; t < h->p->s->tokens; t++) {
        const double want = loss_of(h->p, t, t + 1);
        h->weight[t] = h->rows < known ? GRADIENT_SCALE : NAN;
        if (h->p->label[t] < 0 || h->rows == known)
            continue;
        CHECK_NEAR(h->p->s->name, h->each[t], want, h->tolerance * (1 + fabs(want)));
        h->rows++;
    }
    return NULL;
}

/* ---- one case ---- */

enum { INPUT = 8 };

/* The processor, and those whose memory is elsewhere. */
static const sheaf__device_class *const devices[] = { &sheaf__cpu, &checked_device,
                                                      &copied_device };

/* A head over all tokens of a problem, on a device of its own: of `class`, given. */
typedef struct rig {
    const sheaf__device_class *class;
    sheaf__device *device;
    sheaf__context context;
    layer layer;
    sheaf__tape *tape;
} rig;

/* dx NULL: of x that needs no gradient. */
static void rig_open(rig *r, problem *p, sheaf__head_run *run, int trains, bool training, float *dx,
                     sheaf_dtype dtype)
{
    const shape *s = p->s;
    CHECK_OK(sheaf__device_open(&r->device, r->class, 2, NULL, 0));
    r->context = (sheaf__context){ .device = r->device,
                                   .ranks = 1,
                                   .slices = LAYER_SLICES,
                                   .own = { 0, LAYER_SLICES },
                                   .dtype = dtype };
    layer_init(
        &r->layer, &r->context,
        &(layer_of){ false, s->vocab, 1, &p->weight, &p->none, &p->a, &p->b, SCALE, 0, 0, trains });
    CHECK_OK(sheaf__tape_new(&r->tape, &r->context));
    sheaf__record_head(
        r->tape,
        source_of(r->tape, s->tokens, s->hidden, !(trains & INPUT), p->x.x, dx, s->hidden, 0),
        &r->layer.linear, run, NULL);
    CHECK_OK(sheaf__tape_compile(r->tape, training, false));
}

static void rig_close(rig *r)
{
    sheaf__tape_free(r->tape);
    sheaf__device_close(r->device);
    layer_free(&r->layer);
}

/* Leaves memory behind that holds gradients of every row: nothing of them may show in the next
 * run. */
static void run_with_all_labels(sheaf__tape *tape, sheaf__head_run *run, const problem *p)
{
    const sheaf__head_run was = *run;
    int32_t *all = calloc((size_t)p->s->tokens, sizeof *all);
    run->label = all;
    run->take = NULL;
    run->weigh = NULL;
    CHECK_OK(sheaf__tape_run(tape));
    *run = was;
    free(all);
}

/* When weights are known: before, once all losses are, once those of a block are. */
typedef enum when { BEFORE, LATE, BY_BLOCK } when;

static void check_case(const shape *s, int trains, sheaf_dtype dtype,
                       const sheaf__device_class *class, when when)
{
    /* float32: a few dozen roundings; bfloat16: logits of up to 5 are rounded to 8 bits, and so is
     * what flows back */
    const double tolerance = dtype == SHEAF_F32 ? 3e-6 : 0.02;
    const bool late = when != BEFORE && (s->rank > 0 || (trains & (INPUT | TRAIN_WEIGHT)) != 0);
    problem p = problem_of(s);
    rig r = { .class = class };
    int32_t *labelled = malloc((size_t)s->tokens * sizeof *labelled);
    for (int64_t t = 0, n = 0; t < s->tokens; t++)
        if (p.label[t] >= 0)
            labelled[n++] = (int32_t)t;
    heard h = { &p,
                labelled,
                0,
                tolerance,
                calloc((size_t)s->tokens, sizeof(float)),
                calloc((size_t)s->tokens, sizeof(float)),
                .by_block = when == BY_BLOCK };
    sheaf__head_run run = { .label = p.label,
                            .gradient_scale = GRADIENT_SCALE,
                            .weight = late ? h.weight : NULL,
                            .each = h.each,
                            .weigh = late ? weigh : NULL,
                            .by_block = when == BY_BLOCK,
                            .smoothing = s->smoothing,
                            .scores = s->scores,
                            .take = late ? NULL : hear,
                            .self = &h };
    float *dx = malloc((size_t)numel(&p.x) * sizeof *dx);
    for (int64_t e = 0; e < numel(&p.x); e++)
        dx[e] = 7;
    rig_open(&r, &p, &run, trains, true, dx, dtype);
    run_with_all_labels(r.tape, &run, &p);
    boxes_reset(&r.layer.weight);
    boxes_reset(&r.layer.a);
    boxes_reset(&r.layer.b);
    CHECK_OK(sheaf__tape_run(r.tape));
    CHECK_OK(sheaf__device_check(r.device));
    assert_int_equal(r.device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
    assert_int_equal(h.rows, p.labels);
    assert_int_equal(run.labels, p.labels);
    const double loss = loss_of(&p, 0, s->tokens);
    CHECK_NEAR(s->name, run.loss_sum, loss, tolerance * (1 + fabs(loss)));
    for (int64_t e = 0; e < numel(&p.x); e++) {
        const bool none = p.label[e / s->hidden] < 0;
        const double want = trains & INPUT ? slope(&p, &p.x, e) : 7;
        CHECK_NEAR(s->name, dx[e], want, trains & INPUT && !none ? tolerance : 0);
    }
    check_gradient("the weight", &p.weight, &r.layer.weight, trains & TRAIN_WEIGHT, tolerance,
                   slope, &p);
    check_gradient("A", &p.a, &r.layer.a, trains & TRAIN_LORA, tolerance, slope, &p);
    check_gradient("B", &p.b, &r.layer.b, trains & TRAIN_LORA, tolerance, slope, &p);
    rig_close(&r);
    problem_free(&p);
    free(labelled);
    free(dx);
    free(h.weight);
    free(h.each);
}

static void check(const shape *s)
{
    static const int trains[] = { INPUT, TRAIN_WEIGHT, TRAIN_WEIGHT | INPUT, TRAIN_LORA,
                                  TRAIN_WEIGHT | TRAIN_LORA | INPUT };
    for (size_t k = 0; k < ARRAY_LEN(trains); k++) {
        for (size_t d = 0; d < ARRAY_LEN(devices); d++) {
            for (when when = BEFORE; when <= BY_BLOCK; when++)
                check_case(s, trains[k], SHEAF_F32, devices[d], when);
            check_case(s, trains[k], SHEAF_BF16, devices[d], d == 0 ? LATE : BEFORE);
        }
    }
}

TEST(test_training)
{
    check(&(shape){ "even", 6, 7, 16 });
    check(&(shape){ "uneven vocabulary", 5, 6, 13, .unlabelled = 2 });
    check(&(shape){ "a vocabulary with empty slices", 5, 6, 3, .unlabelled = 3 });
    check(&(shape){ "LoRA beside it", 6, 7, 11, 2, .unlabelled = 4 });
    check(&(shape){ "nothing labelled", 4, 5, 9, 2, .unlabelled = 1 });
    check(&(shape){ "more than one block of labelled rows", 390, 2, 5, 1, .unlabelled = 3 });
    check(&(shape){ "smoothed labels", 5, 6, 13, 2, .unlabelled = 2, .smoothing = 0.1 });
    check(&(shape){ "a score", 5, 6, 1, .unlabelled = 2, .scores = true });
    check(&(shape){ "a score with LoRA beside it", 4, 6, 1, 2, .scores = true });
    check(&(shape){ "smoothed, with empty slices", 5, 6, 3, .unlabelled = 3, .smoothing = 0.7 });
}

/* Evaluation: the rows that are asked for, in the order they are asked for, whether labelled or
 * not. */
TEST(test_picked_rows)
{
    const shape s = { "picked rows", 300, 5, 11, 2, .unlabelled = 2 };
    problem p = problem_of(&s);
    int32_t all[300], few[] = { 299, 0, 7, 8 };
    for (int32_t t = 0; t < 300; t++)
        all[t] = t;
    for (int way = 0; way < 4 * (int)ARRAY_LEN(devices); way++) {
        rig r = { .class = devices[way / 4] };
        const bool picked = way & 1;
        heard h = { &p, picked ? few : all, 0, 3e-6 };
        sheaf__head_run run = { .label = way & 2 ? p.label : NULL,
                                .all_rows = true,
                                .pick = picked ? few : NULL,
                                .npick = picked ? (int64_t)ARRAY_LEN(few) : 0,
                                .take = hear,
                                .self = &h };
        rig_open(&r, &p, &run, 0, false, NULL, SHEAF_F32);
        CHECK_OK(sheaf__tape_run(r.tape));
        assert_int_equal(h.rows, picked ? (int64_t)ARRAY_LEN(few) : s.tokens);
        double want = 0;
        int64_t labels = 0;
        for (int64_t i = 0; i < h.rows && way & 2; i++) {
            want += loss_of(&p, h.want[i], h.want[i] + 1);
            labels += p.label[h.want[i]] >= 0;
        }
        assert_int_equal(run.labels, labels);
        CHECK_NEAR("loss", run.loss_sum, want, 3e-6 * (1 + want));
        rig_close(&r);
    }
    problem_free(&p);
}

/* Scratch of a pass over 300 rows of which the first `labels` have a label, or of `pick` of them.
 */
static size_t scratch_of(int labels, int pick)
{
    const shape s = { "scratch", 300, 5, 64 };
    problem p = problem_of(&s);
    rig r = { .class = &sheaf__cpu };
    int32_t label[300], row[300];
    for (int32_t t = 0; t < 300; t++) {
        label[t] = t < labels ? t % 64 : SHEAF__IGNORED;
        row[t] = t;
    }
    sheaf__head_run run = {
        .label = label, .all_rows = pick > 0, .pick = pick > 0 ? row : NULL, .npick = pick
    };
    rig_open(&r, &p, &run, 0, false, NULL, SHEAF_F32);
    CHECK_OK(sheaf__tape_run(r.tape));
    const size_t most = r.device->peak_of[SHEAF_MEM_SCRATCH];
    rig_close(&r);
    problem_free(&p);
    return most;
}

/* Logits of 64 words take 256 bytes a row, for as many rows as a block has. */
TEST(test_scratch__is_of_the_rows_there_are)
{
    const size_t all = scratch_of(300, 0);
    assert_int_equal(scratch_of(256, 0), all);
    assert_in_range(all - scratch_of(32, 0), 224 * 256, 224 * 256 + 224 * 5 * 4 + 8192);
    assert_int_equal(scratch_of(1, 0), scratch_of(32, 0)); /* a unit */
    assert_int_equal(scratch_of(33, 0), scratch_of(64, 0));
    assert_int_equal(scratch_of(300, 300), all);
    assert_int_equal(scratch_of(300, 32), scratch_of(32, 0));
    assert_in_range(all - scratch_of(300, 1), 255 * 256, 255 * 256 + 255 * 5 * 4 + 8192);
}
