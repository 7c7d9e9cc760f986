/* trial.h - one forward, or forward and backward, of a recorded model at some number of ranks:
 * logits, loss, stages on the way, gradients; and recorded tensors to compare them with. What the
 * parity tests of models of every kind share. */
#pragma once

#include <math.h>

#include "models/open.h"
#include "tests/files.h"
#include "tests/parity/recorded.h"
#include "train/runner.h"

enum { MAX_STAGES = 512 };
static const int ranks_to_try[] = { 1, 2, 3, 8 };

static inline void close_opened(void *opened)
{
    sheaf__opened_close(opened);
}

/* A model, which stays open until the program ends. */
static inline const sheaf__opened *opened_of(const char *model)
{
    sheaf__opened *opened = room(sizeof *opened);
    CHECK_OK(sheaf__open_model(opened, &(sheaf__open_options){ .model = model, .slices = 8 }));
    return kept(opened, close_opened);
}

/* ---- recorded tensors ---- */

/* The n floats of a recorded tensor, F32 or BF16; NULL and 0 when there is none of the name. */
static inline float *values(const sheaf_safetensors *file, const char *name, int64_t *n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    *n = e == NULL ? 0 : e->bytes / (int64_t)sheaf_dtype_bytes(e->dtype);
    if (e == NULL)
        return NULL;
    float *x = room((size_t)*n * sizeof *x);
    assert_true(e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16);
    assert_true(sheaf__dtype_convert(x, SHEAF_F32, raw_of(file, name, NULL), e->dtype, *n));
    return x;
}

/* The same of one that must be there. */
static inline float *values_of(const sheaf_safetensors *file, const char *name, int64_t *n)
{
    if (sheaf__safetensors_find(file, name) == NULL)
        fail_msg("no recorded '%s'", name);
    return values(file, name, n);
}

/* The numbers of a recorded integer tensor, I64, I32 or I8, row by row; cols: out, of a row, 1
 * where it has one axis. */
static inline int64_t *integer_rows(const sheaf_safetensors *file, const char *name, int64_t *cols)
{
    const sheaf_safetensors_entry *e;
    const void *raw = raw_of(file, name, &e);
    const int64_t size = (int64_t)sheaf_dtype_bytes(e->dtype), n = e->bytes / size;
    int64_t *x = room((size_t)n * sizeof *x);
    assert_true(e->dtype == SHEAF_I64 || e->dtype == SHEAF_I32 || e->dtype == SHEAF_I8);
    *cols = e->ndim == 2 ? e->shape[1] : 1;
    for (int64_t i = 0; i < n; i++)
        x[i] = size == 8   ? ((const int64_t *)raw)[i]
               : size == 4 ? ((const int32_t *)raw)[i]
                           : ((const int8_t *)raw)[i];
    return x;
}

/* The same; NULL where there is no such tensor. */
static inline int64_t *integers(const sheaf_safetensors *file, const char *name)
{
    int64_t cols;
    return sheaf__safetensors_find(file, name) == NULL ? NULL : integer_rows(file, name, &cols);
}

/* ---- one run ---- */

typedef struct stage {
    char name[64];
    int stream;
    sheaf__value *value;
} stage;

typedef struct trial {
    /* in */
    const sheaf__opened *opened;
    const sheaf_data *data;
    int ranks;
    sheaf_dtype dtype;
    bool backward;
    int64_t positions, vocab; /* of all sequences together; of a position's logits */
    /* out, of rank 0 */
    float *logits;
    double loss;
    float *stage[MAX_STAGES]; /* rows of the sequences in their order */
    int64_t stage_numel[MAX_STAGES];
    char stage_name[MAX_STAGES][64];
    int stages;
    float **grad; /* by trained tensor, logical [shape], when backward */
    char **name;
    int64_t *numel;
    int trained;
} trial;

/* The number of a stage; -1: there is none of the name. */
static inline int stage_at(const trial *t, const char *name)
{
    for (int i = 0; i < t->stages; i++)
        if (strcmp(t->stage_name[i], name) == 0)
            return i;
    return -1;
}

/* The n numbers of a stage that must be there. */
static inline const float *stage_of(const trial *t, const char *name, int64_t n)
{
    const int s = stage_at(t, name);
    if (s < 0 || t->stage_numel[s] != n)
        fail_msg("%s: %" PRId64 " numbers, not %" PRId64, name, s < 0 ? 0 : t->stage_numel[s], n);
    return t->stage[s];
}

/* The number of a trained tensor; -1: there is none of the name. */
static inline int trained_at(const trial *t, const char *name)
{
    for (int i = 0; i < t->trained; i++)
        if (strcmp(t->name[i], name) == 0)
            return i;
    return -1;
}

typedef struct watched {
    stage at[MAX_STAGES];
    int count;
} watched;

static inline void watch(void *self, sheaf__tape *tape, const char *name, int layer, int stream,
                         sheaf__value *value)
{
    watched *w = self;
    assert_true(w->count < MAX_STAGES);
    stage *s = &w->at[w->count++];
    snprintf(s->name, sizeof s->name, layer < 0 ? "%s" : "%s%d", name, layer);
    s->stream = stream;
    s->value = value;
    value->pinned = true;
}

static inline bool everything(void *self, const sheaf_tensor *t)
{
    return true;
}

static inline sheaf_status *keep_logits(void *self, int64_t row0, const int32_t *row, int64_t n,
                                        const float *logits)
{
    trial *t = self;
    const int64_t vocab = t->opened->config.vocab;
    for (int64_t i = 0; i < n; i++)
        memcpy(t->logits + row[i] * vocab, logits + i * vocab, (size_t)vocab * sizeof *logits);
    return NULL;
}

static inline sheaf_status *drop_logits(void *self, int64_t row0, const int32_t *row, int64_t n,
                                        const float *logits)
{
    return NULL;
}

/* Both streams of a stage in one array, rows in the order of the sequences. */
static inline void keep_stages(trial *t, const watched *w, const sheaf__runner *r)
{
    const sheaf__kernels *k = r->model->context->device->kernels;
    for (int i = 0; i < w->count; i++) {
        const stage *s = &w->at[i];
        int at = stage_at(t, s->name);
        const bool split = strncmp(s->name, "attention", 9) == 0 ||
                           strncmp(s->name, "cross_attention", 15) == 0 ||
                           strncmp(s->name, "mlp", 3) == 0;
        const int64_t cols = s->value->cols,
                      rows = split ? r->options.rows * r->options.seq : s->value->rows;
        if (at < 0) {
            at = t->stages++;
            snprintf(t->stage_name[at], 64, "%s", s->name);
            t->stage[at] = calloc((size_t)(rows * cols), sizeof(float));
            t->stage_numel[at] = rows * cols;
        }
        for (int64_t row = 0; row < s->value->rows; row++) {
            const int32_t *of = r->batch.stream[s->stream];
            const int64_t to = split && of != NULL ? of[row] : row;
            k->widen(t->stage[at] + to * cols,
                     (const char *)s->value->data +
                         row * cols * (int64_t)sheaf_dtype_bytes(s->value->dtype),
                     s->value->dtype, cols);
        }
    }
}

/* A rank's slices of the gradients, into arrays that all ranks fill. */
static inline void keep_gradients(trial *t, const sheaf__trained_set *set)
{
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *m = set->item[i];
        assert_string_equal(t->name[i], m->name);
        for (int s = m->first; s < m->first + m->count; s++) {
            const float *x = m->grad[s];
            for (int part = 0; part < sheaf__trained_parts(m); part++) {
                sheaf_range rows, cols;
                sheaf__trained_box(m, part, s, &rows, &cols);
                for (int64_t r = rows.begin; r < rows.end; r++)
                    for (int64_t c = cols.begin; c < cols.end; c++)
                        t->grad[i][r * m->shape[1] + c] = *x++;
            }
        }
    }
}

static inline sheaf_status *trial_rank(void *arg, sheaf_comm *comm)
{
    trial *t = arg;
    sheaf__device *device;
    sheaf__model *model;
    sheaf__runner runner;
    watched *w = calloc(1, sizeof *w);
    const sheaf__stages stages = { watch, w };
    const int rank = sheaf_comm_rank(comm);
    const int64_t rows = sheaf_data_rows(t->data), seq = sheaf_data_seq(t->data);
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    sheaf__context c = { .device = device,
                         .comm = t->ranks == 1 ? NULL : comm,
                         .rank = rank,
                         .ranks = t->ranks,
                         .slices = 8,
                         .own = sheaf_owner_slices(8, t->ranks, rank),
                         .dtype = t->dtype };
    CHECK_OK(sheaf__model_new(&model, &c, t->opened->schema,
                              &(sheaf__model_options){ .trains = t->backward ? everything : NULL,
                                                       .backward = t->backward,
                                                       .train_lora = t->backward,
                                                       .positions = seq,
                                                       .lora = t->opened->lora }));
    if (model->begins) /* whose row never learns */
        assert_int_equal(model->embedding.padding, t->opened->schema->config.padding);
    CHECK_OK(sheaf__model_load(model, t->opened->weights, t->opened->adapter));
    CHECK_OK(sheaf__runner_open(
        &runner, model, t->data,
        &(sheaf__runner_options){ .rows = rows,
                                  .seq = seq,
                                  .backward = t->backward,
                                  .kept = t->backward && t->ranks == 3 ? SHEAF__KEPT_NONE
                                                                       : SHEAF__KEPT_ALL,
                                  .stages = t->backward ? NULL : &stages }));
    int64_t row[64];
    for (int64_t i = 0; i < rows; i++)
        row[i] = i;
    runner.info.training = t->backward;
    runner.head.gradient_scale = 1.0f / (float)sheaf_data_labels(t->data, row, rows);
    runner.head.all_rows = !t->backward;
    runner.head.take = t->backward ? NULL
                       : rank == 0 ? keep_logits
                                   : drop_logits; /* all ranks or none */
    runner.head.self = t;
    sheaf__accumulators accumulators = { 0 };
    if (t->backward)
        CHECK_OK(sheaf__accumulator_begin(model->trained, &accumulators, 0));
    if (rank == 0 && t->backward) {
        t->trained = model->trained->count;
        t->grad = calloc((size_t)t->trained, sizeof *t->grad);
        t->name = calloc((size_t)t->trained, sizeof *t->name);
        t->numel = calloc((size_t)t->trained, sizeof *t->numel);
        for (int i = 0; i < t->trained; i++) {
            const sheaf__trained *m = model->trained->item[i];
            t->numel[i] = m->shape[0] * m->shape[1];
            t->grad[i] = calloc((size_t)t->numel[i], sizeof(float));
            t->name[i] = strdup(m->name);
        }
    }
    CHECK_OK(sheaf__runner_run(&runner, row));
    CHECK_OK(sheaf_comm_barrier(comm));
    if (rank == 0) {
        t->loss = runner.head.loss_sum / (double)sheaf_data_labels(t->data, row, rows);
        keep_stages(t, w, &runner);
    }
    if (t->backward)
        keep_gradients(t, model->trained);
    sheaf__runner_release(&runner);
    sheaf__model_free(model);
    sheaf__device_close(device);
    free(w);
    return NULL;
}

static inline trial run(const char *model, const char *adapter, const char *inputs, int ranks,
                        sheaf_dtype dtype, bool backward)
{
    sheaf__opened opened;
    sheaf_data *data;
    CHECK_OK(sheaf__open_model(
        &opened, &(sheaf__open_options){ .model = model, .slices = 8, .adapter = adapter }));
    CHECK_OK(sheaf_data_open(&data, inputs, &(sheaf_data_options){ .config = &opened.config }));
    trial t = { .opened = &opened,
                .data = data,
                .ranks = ranks,
                .dtype = dtype,
                .backward = backward,
                .positions = sheaf_data_rows(data) * sheaf_data_seq(data),
                .vocab = opened.config.vocab };
    t.logits = calloc((size_t)(t.positions * t.vocab), sizeof *t.logits);
    CHECK_OK(sheaf_comm_run_threads(ranks, trial_rank, &t));
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
    return t;
}

static inline void release(trial *t)
{
    free(t->logits);
    for (int i = 0; i < t->stages; i++)
        free(t->stage[i]);
    for (int i = 0; i < t->trained; i++) {
        free(t->grad[i]);
        free(t->name[i]);
    }
    free(t->grad);
    free(t->name);
    free(t->numel);
}

/* Of a run at each number of ranks, which all have the same bytes: that at the first. */
static inline trial run_alike(const char *model, const char *adapter, const char *inputs,
                              const int *ranks, size_t count, sheaf_dtype dtype, bool backward)
{
    trial one = run(model, adapter, inputs, ranks[0], dtype, backward);
    for (size_t r = 1; r < count; r++) {
        trial t = run(model, adapter, inputs, ranks[r], dtype, backward);
        assert_int_equal(t.trained, one.trained);
        CHECK_BYTES(inputs, &t.loss, &one.loss, sizeof t.loss);
        CHECK_BYTES(inputs, t.logits, one.logits, (size_t)(t.positions * t.vocab) * sizeof(float));
        for (int s = 0; s < t.stages; s++)
            CHECK_BYTES(t.stage_name[s], t.stage[s], one.stage[s],
                        (size_t)t.stage_numel[s] * sizeof(float));
        for (int i = 0; i < t.trained; i++)
            CHECK_BYTES(t.name[i], t.grad[i], one.grad[i], (size_t)t.numel[i] * sizeof(float));
        release(&t);
    }
    return one;
}

static inline trial run_forward(const char *model, const char *adapter, const char *inputs,
                                sheaf_dtype dtype)
{
    return run_alike(model, adapter, inputs, ranks_to_try, ARRAY_LEN(ranks_to_try), dtype, false);
}

static inline trial run_backward(const char *model, const char *adapter, const char *inputs,
                                 const int *ranks, size_t count)
{
    return run_alike(model, adapter, inputs, ranks, count, SHEAF_F32, true);
}

static inline double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static inline double largest_of(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static inline void compare(const char *what, const float *x, const float *want, int64_t n,
                           double absolute, double relative)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(what, x[i], want[i], absolute + relative * fabs((double)want[i]));
}

/* ---- gradients ---- */

/* How far numbers may lie from recorded ones: all, by their own size, by that of a tensor's
 * largest.
 */
typedef struct tolerance {
    double absolute, relative, largest;
} tolerance;

/* The number of the trained tensor that is recorded by a name, perhaps with PEFT's ".default" in
 * it, or "[0:64]" behind it where these rows are recorded alone. */
static inline int trained_as(const trial *t, const char *recorded)
{
    const char *name = plain_name(recorded);
    return trained_at(t, textf("%.*s", (int)strcspn(name, "["), name));
}

/* Recorded gradients whose names begin with `prefix`; returns how many there are. */
static inline int64_t compare_gradients(const trial *t, const sheaf_safetensors *want,
                                        const char *prefix, tolerance by)
{
    int64_t compared = 0;
    for (int64_t e = 0; e < want->header.count; e++) {
        const char *name = want->header.entry[e].name;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        const int i = trained_as(t, name + strlen(prefix));
        if (i < 0)
            fail_msg("%s: no gradient of it", name);
        int64_t n;
        const float *x = values_of(want, name, &n);
        assert_true(n == t->numel[i] || (strchr(name, '[') != NULL && n < t->numel[i]));
        compare(name, t->grad[i], x, n, by.absolute + by.largest * largest_of(x, n), by.relative);
        compared++;
    }
    return compared;
}

/* Norms of all gradients; null: of a tensor that is not trained. Returns how many are not. */
static inline int64_t compare_norms(const trial *t, const json_t *norms, double relative,
                                    double absolute)
{
    const char *name;
    const json_t *norm;
    int64_t there = 0;
    for (int i = 0; i < t->trained; i++) {
        norm = json_object_get(norms, t->name[i]);
        if (norm == NULL || json_is_null(norm))
            fail_msg("%s: trained here, not there", t->name[i]);
        const double told = json_number_value(norm);
        CHECK_NEAR(t->name[i], norm_of(t->grad[i], t->numel[i]), told, relative * told + absolute);
    }
    json_object_foreach((json_t *)norms, name, norm)
    {
        if (!json_is_null(norm) && json_number_value(norm) != 0 && trained_at(t, name) < 0)
            fail_msg("%s: no gradient", name);
        there += !json_is_null(norm);
    }
    return there;
}

/* ---- files of trained tensors ---- */

typedef void check_pair(void *self, const char *name, const float *got, const float *want,
                        int64_t n);

/* Each tensor of the file `want` beside that of `got`, which has no other. */
static inline void each_pair(const char *got, const char *want, check_pair *check, void *self)
{
    sheaf_safetensors *a, *b;
    CHECK_OK(sheaf__safetensors_open(&a, got));
    CHECK_OK(sheaf__safetensors_open(&b, want));
    assert_true(b->header.count > 0);
    assert_int_equal(a->header.count, b->header.count);
    for (int64_t i = 0; i < b->header.count; i++) {
        const char *name = b->header.entry[i].name;
        int64_t n, m;
        const float *x = values(a, name, &n), *y = values(b, name, &m);
        if (x == NULL || n != m)
            fail_msg("%s: not in %s, or of another size", name, got);
        check(self, name, x, y, n);
    }
    sheaf__safetensors_close(a);
    sheaf__safetensors_close(b);
}

static inline void check_near(void *self, const char *name, const float *got, const float *want,
                              int64_t n)
{
    const tolerance *by = self;
    if (by == NULL)
        CHECK_BYTES(name, got, want, (size_t)n * sizeof *got);
    else
        compare(name, got, want, n, by->absolute, by->relative);
}

/* The adapters in two folders are near each other; by NULL: have the same bytes. */
static inline void compare_adapters(const char *got, const char *want, const tolerance *by)
{
    each_pair(in_dir(got, "adapter_model.safetensors"), in_dir(want, "adapter_model.safetensors"),
              check_near, (void *)by);
}

/* How many numbers lie beyond `near`; none may lie beyond `most`. */
typedef struct nearly {
    double near, most;
    int64_t beyond, all;
} nearly;

static inline void check_nearly(void *self, const char *name, const float *got, const float *want,
                                int64_t n)
{
    nearly *c = self;
    compare(name, got, want, n, c->most, 0);
    for (int64_t i = 0; i < n; i++)
        c->beyond += !(fabs((double)got[i] - (double)want[i]) <= c->near);
    c->all += n;
}

/* Two files whose numbers are near each other, but for one in `few`. */
static inline void compare_nearly(const char *got, const char *want, double near, double most,
                                  int64_t few)
{
    nearly c = { near, most, 0, 0 };
    each_pair(got, want, check_nearly, &c);
    if (c.beyond * few > c.all)
        fail_msg("%s: %" PRId64 " of %" PRId64 " numbers differ by more than %g", got, c.beyond,
                 c.all, near);
}
