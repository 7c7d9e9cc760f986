/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "train/bad.h"

typedef struct pass {
    const sheaf__evaluate_options *options;
    sheaf__evaluation *out;
    const sheaf_batch *batch;
    int64_t first, rows; /* this batch holds the rows numbered [first, first + rows) of... */
    int64_t all;         /* ...so many that are read */
    int64_t vocab;
    bool warned;
} pass;

static int64_t row_at(const pass *p, int64_t i)
{
    return p->options->row == NULL ? i : p->options->row[i];
}

static sheaf_status *take_logits(void *self, int64_t row0, const int32_t *row, int64_t n,
                                 const float *logits)
{
    const pass *p = self;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++, logits += p->vocab) {
        const int64_t in_batch = row[i] / p->batch->seq, position = row[i] % p->batch->seq;
        if (in_batch < p->rows && p->options->take != NULL) /* else padding of a last batch */
            st = p->options->take(p->options->self, row_at(p, p->first + in_batch), position,
                                  logits);
    }
    return st;
}

/* Asked of all ranks alike: one of them may see it first. */
static sheaf_status *asked_to_stop(const pass *p, const sheaf__model *model)
{
    const atomic_int *stop = p->options->stop;
    sheaf_status *st = NULL;
    if (stop == NULL)
        return NULL;
    if (atomic_load(stop) != 0)
        st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "eval"), "a request to stop");
    return sheaf__agree_all(model->context, st);
}

static int64_t longest(const pass *p, const sheaf_data *data)
{
    return p->options->row == NULL ? sheaf_data_longest(data)
                                   : sheaf_data_used(data, p->options->row, p->all);
}

/* A loss that is not finite is the result; where it began is said once. Layers that are placed over
 * stages are not looked at. */
static sheaf_status *warn_of(pass *p, sheaf__runner *runner, const int64_t *row)
{
    sheaf__model *model = runner->model;
    const char *weight = NULL;
    sheaf__bad bad = { 0 };
    sheaf_text text = { 0 };
    p->warned = true;
    if (model->context->stages > 1)
        return NULL;
    sheaf_status *st = sheaf__model_bad_weight(&weight, model);
    sheaf_status *(*const take)(void *, int64_t, const int32_t *, int64_t, const float *) =
        runner->head.take;
    runner->head.take = NULL; /* it has heard of these rows */
    runner->watch = &bad;
    if (st == NULL)
        st = sheaf__runner_run(runner, row);
    runner->watch = NULL;
    runner->head.take = take;
    sheaf__text_add(&text, "the loss of ");
    sheaf__bad_rows(&text, row, p->rows);
    sheaf__text_add(&text, " (counted from 0) is not finite: ");
    sheaf__bad_say(&text, &bad, weight);
    sheaf__text_bytes(&text, "", 0);
    if (st == NULL && text.at != NULL)
        sheaf_warn(p->options->events, "%s", text.at);
    sheaf__text_release(&text);
    return st;
}

/* Rows p->first .. p->first + n - 1, micro-batches of `batch` rows; n is a multiple of it. */
static sheaf_status *run_rows(pass *p, sheaf__model *model, const sheaf_data *data, int64_t batch,
                              int64_t n)
{
    const bool whole = p->options->padded;
    sheaf__runner runner;
    int64_t *row = malloc(2 * (size_t)batch * sizeof *row);
    sheaf_status *st = sheaf__runner_open(
        &runner, model, data,
        &(sheaf__runner_options){ .rows = batch,
                                  .seq = whole ? sheaf_data_seq(data) : longest(p, data),
                                  .longest = !whole });
    if (st == NULL && row == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "a batch of %lld rows", (long long)batch);
    runner.head.all_rows = whole;
    runner.head.judge = true;
    runner.head.take = whole ? take_logits : NULL;
    runner.head.self = p;
    p->batch = &runner.batch;
    p->rows = batch;
    for (const int64_t end = p->first + n; p->first < end && st == NULL; p->first += batch) {
        for (int64_t i = 0; i < 2 * batch; i++) /* these, and what is to be ready then */
            row[i] = p->first + i < end ? row_at(p, p->first + i) : -1;
        if (sheaf__is_first(model->context))
            sheaf_data_announce(data, row, 2 * batch);
        st = asked_to_stop(p, model);
        if (st == NULL)
            st = sheaf__runner_run(&runner, row);
        p->out->loss += runner.head.loss_sum;
        p->out->tokens += runner.head.labels;
        p->out->correct += runner.head.correct;
        if (st == NULL && !p->warned && !isfinite(runner.head.loss_sum))
            st = warn_of(p, &runner, row);
        sheaf_emit(p->options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                       .text = "rows",
                                                       .done = p->first + batch,
                                                       .total = p->all });
    }
    sheaf__runner_release(&runner);
    free(row);
    return st;
}

sheaf_status *sheaf__evaluate(sheaf__evaluation *out, sheaf__model *model, const sheaf_data *data,
                              const sheaf__evaluate_options *options)
{
    const int64_t rows = options->row == NULL ? sheaf_data_rows(data) : options->rows,
                  batch = options->micro_batch < rows ? options->micro_batch : rows;
    pass p = { .options = options, .out = out, .all = rows, .vocab = model->schema->config.vocab };
    *out = (sheaf__evaluation){ 0 };
    sheaf_status *st = run_rows(&p, model, data, batch, rows / batch * batch);
    if (st == NULL && rows % batch > 0)
        st = run_rows(&p, model, data, rows % batch, rows % batch);
    out->loss = out->tokens == 0 ? 0 : out->loss / (double)out->tokens;
    return st;
}
