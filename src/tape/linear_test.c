/* linear_test.c - layers cut along their output and along their input on small tapes: values
 * against the formula in double, gradients of everything that can be trained against finite
 * differences of it.
 *
 * The formula knows no slices. All operands are exact in bfloat16; slices are uneven and empty;
 * each case runs with x's gradient made and added to, kept and computed again. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/tape_layer.h"

#include "base/random.h"

enum { LAYERS = SHEAF__MAX_TOGETHER, RANK = 3, TENSORS = 1 + 4 * LAYERS + 1 };

/* Beside what a layer trains: x and the residual take gradients. */
enum { INPUT = 8 };

typedef struct shape {
    const char *name;
    bool rows;                       /* cut along the input */
    int layers;                      /* that share x; 1 for rows */
    int64_t tokens, fixed;           /* the axis that is not cut: in for columns, out for rows */
    int64_t units, per_unit[LAYERS]; /* of the axis that is cut */
    bool bias[LAYERS], lora[LAYERS], residual;
    double dropout;
    bool one_a; /* all layers have the first one's A, as the parts of a fused weight do */
} shape;

static const double SCALE[LAYERS] = { 2, 0.5, 1 };

/* Operand 0 is x, then weight, bias, A and B of each layer, the residual. */
typedef struct problem {
    const shape *s;
    int64_t in, out[LAYERS];
    tensor t[TENSORS];
    float *weight[LAYERS]; /* of the sum of y[i] */
    float *keep;           /* [tokens, in]: what dropout makes of 1 */
} problem;

static tensor *weight_of(problem *p, int i)
{
    return &p->t[1 + 4 * i];
}
static tensor *bias_of(problem *p, int i)
{
    return &p->t[2 + 4 * i];
}
static tensor *a_of(problem *p, int i)
{
    return &p->t[3 + 4 * (p->s->one_a ? 0 : i)];
}
static double scale_of(const problem *p, int i)
{
    return SCALE[p->s->one_a ? 0 : i];
}
static tensor *b_of(problem *p, int i)
{
    return &p->t[4 + 4 * i];
}
static tensor *residual_of(problem *p)
{
    return &p->t[TENSORS - 1];
}
static const uint64_t SEED = 11, PURPOSE = 77;
static int64_t sample_of(int64_t token)
{
    return 40 + token / 4;
}
static int64_t position_of(int64_t token)
{
    return token % 4;
}

static problem problem_of(const shape *s)
{
    problem p = { .s = s };
    for (int i = 0; i < s->layers; i++) {
        const int64_t cut = s->units * s->per_unit[i];
        p.in = s->rows ? cut : s->fixed;
        p.out[i] = s->rows ? s->fixed : cut;
        fill(weight_of(&p, i), p.out[i], p.in, 10 + (uint64_t)i);
        if (s->bias[i])
            fill(bias_of(&p, i), 1, p.out[i], 20 + (uint64_t)i);
        if (s->lora[i]) {
            if (i == 0 || !s->one_a)
                fill(a_of(&p, i), RANK, p.in, 30 + (uint64_t)i);
            fill(b_of(&p, i), p.out[i], RANK, 40 + (uint64_t)i);
        }
        p.weight[i] = numbers(s->tokens * p.out[i], 60 + (uint64_t)i);
    }
    fill(&p.t[0], s->tokens, p.in, 1);
    if (s->residual)
        fill(residual_of(&p), s->tokens, p.out[0], 2);
    p.keep = malloc((size_t)(s->tokens * p.in) * sizeof(float));
    const uint32_t threshold = (uint32_t)(s->dropout * 4294967296.0);
    for (int64_t t = 0; t < s->tokens; t++)
        for (int64_t c = 0; c < p.in; c++)
            p.keep[t * p.in + c] =
                sheaf__random_u32(SEED, PURPOSE, 5, (uint64_t)sample_of(t),
                                  (uint64_t)position_of(t), (uint64_t)c) >= threshold
                    ? (float)(1 / (1 - s->dropout))
                    : 0;
    return p;
}

static void problem_free(problem *p)
{
    for (int i = 0; i < TENSORS; i++)
        tensor_free(&p->t[i]);
    for (int i = 0; i < LAYERS; i++)
        free(p->weight[i]);
    free(p->keep);
}

/* One element of y[i] by the formula. */
static double plain(problem *p, int i, int64_t token, int64_t o)
{
    const double *x = p->t[0].wide + token * p->in, *w = weight_of(p, i)->wide + o * p->in;
    const float *keep = p->keep + token * p->in;
    double y = 0;
    for (int64_t k = 0; k < p->in; k++)
        y += x[k] * w[k];
    for (int64_t r = 0; r < RANK && p->s->lora[i]; r++) {
        double h = 0;
        for (int64_t k = 0; k < p->in; k++)
            h += x[k] * keep[k] * a_of(p, i)->wide[r * p->in + k];
        y += scale_of(p, i) * h * b_of(p, i)->wide[o * RANK + r];
    }
    if (p->s->bias[i])
        y += bias_of(p, i)->wide[o];
    return p->s->residual ? y + residual_of(p)->wide[token * p->out[0] + o] : y;
}

static double weighted_sum(problem *p)
{
    double sum = 0;
    for (int i = 0; i < p->s->layers; i++)
        for (int64_t t = 0; t < p->s->tokens; t++)
            for (int64_t o = 0; o < p->out[i]; o++)
                sum += (double)p->weight[i][t * p->out[i] + o] * plain(p, i, t, o);
    return sum;
}

/* The formula has degree at most 2 in one element, so the central difference is exact but for its
 * rounding. */
static double slope(void *problem_, const tensor *t, int64_t e)
{
    problem *p = problem_;
    const double was = t->wide[e];
    t->wide[e] = was + 0.5;
    double sum = weighted_sum(p);
    t->wide[e] = was - 0.5;
    sum -= weighted_sum(p);
    t->wide[e] = was;
    return sum;
}

/* ---- one case ---- */

typedef struct setting {
    int trains;
    sheaf_dtype dtype;
    bool twice;
    const int32_t *rows; /* rows whose gradient of x is read; NULL: all */
    int64_t nrows;
} setting;

typedef struct outcome {
    float *y[LAYERS], *dx, *dresidual, *second, *second_residual, *seen;
} outcome;

static void run(outcome *o, problem *p, layer *l, sheaf__context *c, const setting *how)
{
    const shape *s = p->s;
    const int64_t n = s->tokens * p->in;
    const bool takes = how->trains & INPUT;
    sheaf__tape *tape;
    sheaf__linear *layers[LAYERS];
    sheaf__value *y[LAYERS], *residual = NULL;
    int64_t *sample = malloc((size_t)s->tokens * sizeof *sample),
            *position = malloc((size_t)s->tokens * sizeof *position);
    for (int64_t t = 0; t < s->tokens; t++) {
        sample[t] = sample_of(t);
        position[t] = position_of(t);
    }
    const size_t names = (size_t)s->tokens * sizeof *sample;
    const int32_t *rows = device_copy(c->device, how->rows, (size_t)how->nrows * sizeof *rows);
    const sheaf__step_info info = { .training = true,
                                    .seed = SEED,
                                    .step = 5,
                                    .sample = device_copy(c->device, sample, names),
                                    .position = device_copy(c->device, position, names) };
    *o = (outcome){ .dx = calloc((size_t)n, sizeof(float)),
                    .second = numbers(n, 90),
                    .seen = calloc((size_t)(n + s->tokens * p->out[0]), sizeof(float)),
                    .dresidual = calloc((size_t)(s->tokens * p->out[0]), sizeof(float)),
                    .second_residual = numbers(s->tokens * p->out[0], 91) };
    for (int i = 0; i < s->layers; i++) {
        layers[i] = &l[i].linear;
        o->y[i] = calloc((size_t)(s->tokens * p->out[i]), sizeof(float));
    }
    CHECK_OK(sheaf__tape_new(&tape, c));
    sheaf__value *x = source_of(tape, s->tokens, p->in, !takes, p->t[0].x, o->dx, p->in, 0);
    if (how->rows != NULL)
        x->grad_rows = (sheaf__grad_rows){ &rows, how->nrows };
    if (s->residual)
        residual = source_of(tape, s->tokens, p->out[0], !takes, residual_of(p)->x, o->dresidual,
                             p->out[0], 0);
    sheaf__tape_segment_begin(tape, 0);
    if (s->rows)
        y[0] = sheaf__record_rows(tape, x, layers[0], residual, NULL, &info);
    else
        sheaf__record_columns(tape, y, x, layers, s->layers, &info);
    sheaf__tape_segment_end(tape);
    for (int i = 0; i < s->layers; i++)
        sink_of(tape, y[i], p->weight[i], o->y[i], p->out[i], 0);
    if (how->twice && takes)
        sink_of(tape, x, o->second, o->seen, p->in, 0);
    if (how->twice && takes && residual != NULL)
        sink_of(tape, residual, o->second_residual, o->seen, p->out[0], 0);
    CHECK_OK(sheaf__tape_compile(tape, true, how->twice));
    CHECK_OK(sheaf__tape_run(tape));
    assert_int_equal(c->device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
    sheaf__tape_free(tape);
    free(sample);
    free(position);
}

static void outcome_free(outcome *o)
{
    for (int i = 0; i < LAYERS; i++)
        free(o->y[i]);
    free(o->dx);
    free(o->dresidual);
    free(o->second);
    free(o->second_residual);
    free(o->seen);
}

/* Rows of dx that are read are those of a run that reads all, to the bit; others are zero. */
static void check_some_rows(problem *p, layer *l, sheaf__context *c, const setting *how)
{
    setting all = *how;
    outcome some, whole;
    all.rows = NULL;
    run(&some, p, l, c, how);
    run(&whole, p, l, c, &all);
    for (int64_t t = 0; t < p->s->tokens; t++) {
        bool read = false;
        for (int64_t i = 0; i < how->nrows; i++)
            read |= how->rows[i] == t;
        for (int64_t e = t * p->in; e < (t + 1) * p->in; e++)
            if (read || p->s->dropout == 0 || how->twice)
                assert_true(some.dx[e] == (read || how->twice ? whole.dx[e] : 0));
            else
                assert_true(isfinite(some.dx[e]));
    }
    outcome_free(&some);
    outcome_free(&whole);
}

/* Values and gradients are the formula's. */
static void check_formula(problem *p, layer *l, sheaf__context *c, const setting *how)
{
    /* float32: rounding of a few dozen additions; bfloat16: h, g, y and dx are rounded to 8 bits,
     * of sums whose terms are several times as large as the sum. */
    const double tolerance = how->dtype == SHEAF_F32 ? 3e-6 : 0.03;
    const shape *s = p->s;
    outcome o;
    char name[200];
    run(&o, p, l, c, how);
    for (int i = 0; i < s->layers; i++)
        for (int64_t e = 0; e < s->tokens * p->out[i]; e++) {
            const double want = plain(p, i, e / p->out[i], e % p->out[i]);
            snprintf(name, sizeof name, "%s: y%d, element %lld", s->name, i, (long long)e);
            CHECK_NEAR(name, o.y[i][e], want, tolerance * (1 + fabs(want)));
        }
    for (int64_t e = 0; e < numel(&p->t[0]) && how->trains & INPUT; e++) {
        const double want = slope(p, &p->t[0], e) + (how->twice ? o.second[e] : 0);
        snprintf(name, sizeof name, "%s: gradient of x, element %lld%s", s->name, (long long)e,
                 how->twice ? ", added to" : "");
        CHECK_NEAR(name, o.dx[e], want, tolerance * (1 + fabs(want)));
    }
    for (int64_t e = 0; e < numel(residual_of(p)) && how->trains & INPUT; e++)
        CHECK_NEAR("gradient of the residual", o.dresidual[e],
                   p->weight[0][e] + (how->twice ? o.second_residual[e] : 0),
                   how->dtype == SHEAF_F32 ? 0 : 0.01);
    for (int i = 0; i < s->layers; i++) {
        check_gradient("the weight", weight_of(p, i), &l[i].weight, how->trains & TRAIN_WEIGHT,
                       tolerance, slope, p);
        check_gradient("the bias", bias_of(p, i), &l[i].bias, how->trains & TRAIN_BIAS, tolerance,
                       slope, p);
        check_gradient("A", a_of(p, i), &l[i].a, how->trains & TRAIN_LORA && (i == 0 || !s->one_a),
                       tolerance, slope, p);
        check_gradient("B", b_of(p, i), &l[i].b, how->trains & TRAIN_LORA, tolerance, slope, p);
    }
    outcome_free(&o);
}

/* The layers of a problem on a device of their own. */
typedef struct rig {
    sheaf__device *device;
    sheaf__context context;
    layer layer[LAYERS];
} rig;

static void rig_open(rig *r, problem *p, const sheaf__device_class *class, const setting *how)
{
    const shape *s = p->s;
    *r = (rig){ .context = { .ranks = 1,
                             .slices = LAYER_SLICES,
                             .own = { 0, LAYER_SLICES },
                             .dtype = how->dtype } };
    CHECK_OK(sheaf__device_open(&r->device, class, 2, NULL, 0));
    r->context.device = r->device;
    for (int i = 0; i < s->layers; i++)
        layer_init(&r->layer[i], &r->context,
                   &(layer_of){ s->rows, s->units, s->per_unit[i], weight_of(p, i), bias_of(p, i),
                                a_of(p, i), b_of(p, i), scale_of(p, i), s->dropout, PURPOSE,
                                how->trains });
    for (int i = 1; i < s->layers && s->one_a; i++)
        r->layer[i].lora.first = &r->layer[0].lora;
}

static void rig_close(rig *r)
{
    for (int i = 0; i < LAYERS; i++)
        layer_free(&r->layer[i]);
    sheaf__device_close(r->device);
}

static void check_case(const shape *s, const setting *how)
{
    problem p = problem_of(s);
    rig r;
    rig_open(&r, &p, &sheaf__cpu, how);
    (how->rows != NULL ? check_some_rows : check_formula)(&p, r.layer, &r.context, how);
    rig_close(&r);
    problem_free(&p);
}

static void check_boxes(const shape *s, const boxes *got, const boxes *want)
{
    if (want->rows == 0)
        return;
    boxes_download(got);
    boxes_download(want);
    for (int k = 0; k < LAYER_SLICES; k++)
        CHECK_BYTES(s->name, got->grad[k], want->grad[k],
                    (size_t)want->trained.numel[k] * sizeof(float));
}

/* Memory elsewhere: the same bytes as the processor's. */
static void check_device(const shape *s, const sheaf__device_class *class, const setting *how)
{
    problem p = problem_of(s);
    rig r, here;
    outcome o, want;
    rig_open(&r, &p, class, how);
    rig_open(&here, &p, &sheaf__cpu, how);
    run(&o, &p, r.layer, &r.context, how);
    run(&want, &p, here.layer, &here.context, how);
    CHECK_OK(sheaf__device_check(r.device));
    CHECK_BYTES(s->name, o.dx, want.dx, (size_t)(s->tokens * p.in) * sizeof(float));
    CHECK_BYTES(s->name, o.dresidual, want.dresidual,
                (size_t)(s->tokens * p.out[0]) * sizeof(float));
    for (int i = 0; i < s->layers; i++) {
        CHECK_BYTES(s->name, o.y[i], want.y[i], (size_t)(s->tokens * p.out[i]) * sizeof(float));
        check_boxes(s, &r.layer[i].weight, &here.layer[i].weight);
        check_boxes(s, &r.layer[i].bias, &here.layer[i].bias);
        check_boxes(s, &r.layer[i].a, &here.layer[i].a);
        check_boxes(s, &r.layer[i].b, &here.layer[i].b);
    }
    outcome_free(&o);
    outcome_free(&want);
    rig_close(&r);
    rig_close(&here);
    problem_free(&p);
}

static void check_devices(const shape *s, const setting *how)
{
    check_device(s, &checked_device, how);
    check_device(s, &copied_device, how);
}

static void check(const shape *s)
{
    static const int trains[] = {
        INPUT,      TRAIN_WEIGHT,       TRAIN_BIAS,
        TRAIN_LORA, TRAIN_LORA | INPUT, TRAIN_WEIGHT | TRAIN_BIAS | TRAIN_LORA | INPUT
    };
    for (size_t k = 0; k < ARRAY_LEN(trains); k++)
        for (int way = 0; way < 4; way++)
            check_case(s, &(setting){ trains[k], way & 1 ? SHEAF_BF16 : SHEAF_F32, way & 2 });
    for (int way = 0; way < 4; way++)
        check_devices(s, &(setting){ trains[ARRAY_LEN(trains) - 1],
                                     way & 1 ? SHEAF_BF16 : SHEAF_F32, way & 2 });
}

/* ---- cases ---- */

TEST(test_columns)
{
    check(&(shape){ "a fused weight under one A",
                    false,
                    3,
                    4,
                    7,
                    5,
                    { 2, 1, 1 },
                    { false },
                    { true, true, true },
                    .one_a = true });
    check(&(shape){ "two parts under one A, with dropout",
                    false,
                    2,
                    4,
                    7,
                    3,
                    { 1, 1 },
                    { false },
                    { true, true },
                    .dropout = 0.25,
                    .one_a = true });
    check(&(shape){ "one layer", false, 1, 6, 7, 8, { 1 } });
    check(&(shape){ "uneven slices", false, 1, 5, 6, 11, { 1 }, { true } });
    check(&(shape){ "empty slices", false, 1, 5, 6, 3, { 2 }, { true }, { true } });
    check(&(shape){ "three layers", false, 3, 4, 7, 5, { 2, 1, 1 }, { true, false, true } });
    check(&(shape){ "three layers, LoRA beside some",
                    false,
                    3,
                    4,
                    7,
                    5,
                    { 2, 1, 1 },
                    { false, true, false },
                    { true, false, true } });
    check(&(shape){ "two layers with dropout",
                    false,
                    2,
                    7,
                    6,
                    3,
                    { 2, 1 },
                    { false },
                    { true, true },
                    .dropout = 0.25 });
}

TEST(test_some_rows)
{
    static const int32_t rows[] = { 5, 1, 2 };
    static const shape shapes[] = {
        { "some rows", false, 3, 7, 7, 5, LIST(2, 1, 1), LIST(true, false, true),
          LIST(true, false, true) },
        { "some rows, without LoRA", false, 1, 6, 6, 11, { 1 } },
        { "some rows, with dropout", false, 2, 7, 6, 3, LIST(2, 1), LIST(false), LIST(true, true),
          .dropout = 0.25 },
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int way = 0; way < 4; way++) {
            const setting how = { TRAIN_LORA | INPUT, way & 1 ? SHEAF_BF16 : SHEAF_F32, way & 2,
                                  rows, ARRAY_LEN(rows) };
            check_case(&shapes[i], &how);
            check_devices(&shapes[i], &how);
        }
}

TEST(test_rows)
{
    check(&(shape){ "rows", true, 1, 6, 5, 8, { 1 } });
    check(&(shape){ "rows, uneven slices", true, 1, 5, 6, 11, { 1 }, { true } });
    check(&(shape){ "rows, empty slices", true, 1, 5, 4, 3, { 2 }, { true }, { true } });
    check(&(shape){ "rows and residual", true, 1, 6, 5, 9, { 1 }, { false }, { false }, true });
    check(&(shape){ "rows, all of it", true, 1, 6, 5, 9, { 1 }, { true }, { true }, true });
    check(&(shape){
        "rows with dropout", true, 1, 7, 4, 3, { 2 }, { true }, { true }, true, .dropout = 0.25 });
}
