/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>

#include "base/base.h"
#include "comm/activity.h"
#include "models/team.h"
#include "train/bad.h"

/* The result of one micro-batch. */
typedef struct found {
    double loss;
    int64_t tokens, correct;
} found;

/* Micro-batches of `batch` rows, and of the `rest`; this group's are `own`. */
typedef struct course {
    const sheaf__evaluate_options *options;
    sheaf__model *model;
    const sheaf_data *data;
    int64_t all, batch, rest, micros, groups, rounds; /* all rows to read */
    sheaf_range own;
    sheaf__runner runner;
    int64_t first, rows; /* rows [first, first + rows) are loaded; 0: not open */
    int64_t *row;
    found *found;   /* [micros] */
    float *each;    /* for options->value: what the runner's positions lose, */
    uint8_t *label; /* and 1 where they have a label */
    bool warned;
} course;

static int64_t row_at(const course *c, int64_t i)
{
    return c->options->row == NULL ? i : c->options->row[i];
}

static sheaf_status *take_logits(void *self, int64_t row0, const int32_t *row, int64_t n,
                                 const float *logits)
{
    const course *c = self;
    const int64_t seq = c->runner.batch.seq;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++, logits += c->model->schema->config.vocab)
        if (row[i] / seq < c->rows && c->options->take != NULL) /* else padding of the last batch */
            st = c->options->take(c->options->self, row_at(c, c->first + row[i] / seq),
                                  row[i] % seq, logits);
    return st;
}

sheaf_status *sheaf__evaluate_stopped(const sheaf__context *c, const atomic_int *stop)
{
    sheaf_status *st = NULL;
    if (stop == NULL)
        return NULL;
    if (atomic_load(stop) != 0)
        st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "eval"), "a request to stop");
    return sheaf__agree_groups(c, st);
}

/* A loss that is not finite is the result; its origin is reported once. With layers placed over
 * stages only the weights are checked. */
static sheaf_status *warn_of(course *c)
{
    sheaf__runner *runner = &c->runner;
    const char *weight = NULL;
    sheaf__nonfinite bad = { 0 };
    sheaf_text text = { 0 };
    c->warned = true;
    sheaf_status *st = sheaf__model_bad_weight(&weight, c->model);
    sheaf_status *(*const take)(void *, int64_t, const int32_t *, int64_t, const float *) =
        runner->head.take;
    runner->head.take = NULL; /* these rows were reported */
    runner->watch = &bad;
    if (st == NULL && c->model->context->stages <= 1)
        st = sheaf__runner_run(runner, c->row);
    runner->watch = NULL;
    runner->head.take = take;
    sheaf__text_add(&text, "the loss of ");
    sheaf__bad_rows(&text, c->row, c->rows);
    sheaf__text_add(&text, " (counted from 0) is not finite%s",
                    bad.op != NULL || weight != NULL ? ": " : "");
    sheaf__bad_describe(&text, &bad, weight);
    sheaf__text_bytes(&text, "", 0);
    if (st == NULL && text.at != NULL)
        sheaf_warn(c->options->events, "%s", text.at);
    sheaf__text_release(&text);
    return st;
}

static sheaf_status *open_runner(course *c, int64_t rows)
{
    const bool whole = c->options->padded;
    const int64_t seq = whole ? sheaf_data_seq(c->data)
                        : c->options->other != NULL
                            ? sheaf_data_mixed(c->data, c->options->row, c->options->other, c->all)
                        : c->options->row == NULL
                            ? sheaf_data_longest(c->data)
                            : sheaf_data_used(c->data, c->options->row, c->all);
    if (c->rows > 0)
        sheaf__runner_release(&c->runner);
    c->rows = rows;
    if (c->options->value != NULL && c->each == NULL) {
        c->each = malloc((size_t)(rows * seq) * sizeof *c->each);
        c->label = malloc((size_t)(rows * seq));
        if (c->each == NULL || c->label == NULL)
            return sheaf__no_memory("losses of a batch");
    }
    sheaf_status *st =
        sheaf__runner_open(&c->runner, c->model, c->data,
                           &(sheaf__runner_options){ .rows = rows, .seq = seq, .longest = !whole });
    c->runner.head.all_rows = whole;
    c->runner.head.judge = true;
    c->runner.head.temperature = c->options->temperature;
    c->runner.head.each = c->each;
    c->runner.batch.answer = c->label;
    c->runner.batch.prompts_too = c->options->prompts_too;
    c->runner.head.take = whole ? take_logits : NULL;
    c->runner.head.self = c;
    return st;
}

static void take_values(course *c, int64_t n)
{
    const sheaf_batch *of = &c->runner.batch;
    for (int64_t i = 0; i < n && c->options->value != NULL; i++)
        c->options->values[c->first + i] =
            c->options->value(c->options->self, row_at(c, c->first + i), c->label + i * of->seq,
                              c->each + i * of->seq, of->seq);
}

static sheaf_status *run_micro(course *c, int64_t micro)
{
    const int64_t n = micro == c->micros - 1 && c->rest > 0 ? c->rest : c->batch;
    sheaf_status *st = c->rows == n ? NULL : open_runner(c, n);
    c->first = micro * c->batch;
    sheaf__activity_number(c->model->context->activity, "row", row_at(c, c->first) + 1);
    for (int64_t i = 0; i < 2 * n; i++) /* these rows, and the buffers for them */
        c->row[i] = c->first + i < c->all && (i < n || micro + 1 < c->own.end)
                        ? row_at(c, c->first + i)
                        : -1;
    if (sheaf__team_keeps_result(c->model->context))
        sheaf_data_announce(c->data, c->row, 2 * n);
    c->runner.other = c->options->other == NULL ? NULL : c->options->other + c->first;
    TRY(st, sheaf__runner_run(&c->runner, c->row));
    if (st == NULL)
        take_values(c, n);
    c->found[micro] =
        (found){ c->runner.head.loss_sum, c->runner.head.labels, c->runner.head.correct };
    return st == NULL && !c->warned && !isfinite(c->found[micro].loss) ? warn_of(c) : st;
}

/* All groups check for a stop at the same time; one of them may be done by then. */
static sheaf_status *run_course(course *c)
{
    sheaf_status *st = NULL;
    for (int64_t round = 0; round < c->rounds && st == NULL; round++) {
        const int64_t micro = c->own.begin + round, done = (round + 1) * c->groups * c->batch;
        st = sheaf__evaluate_stopped(c->model->context, c->options->stop);
        if (st == NULL && micro < c->own.end)
            st = run_micro(c, micro);
        sheaf_emit(c->options->events,
                   &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                   .text = "rows",
                                   .done = round + 1 < c->rounds && done < c->all ? done : c->all,
                                   .total = c->all });
    }
    return st;
}

static int64_t rows_before(const course *c, int64_t micro)
{
    const int64_t rows = micro * c->batch;
    return rows < c->all ? rows : c->all;
}

/* Exchanges the results of all groups. If another group's loss is not finite, the first reports its
 * origin. */
static sheaf_status *share(course *c)
{
    const sheaf__context *context = c->model->context;
    size_t size[SHEAF_MAX_SLICES];
    if (context->peers == NULL)
        return NULL;
    for (int g = 0; g < context->groups; g++) {
        const sheaf_range of = sheaf__share_of(c->micros, context, g);
        size[g] = (size_t)(of.end - of.begin) * sizeof *c->found;
    }
    sheaf_status *st = sheaf_comm_gather(context->peers, c->found, size);
    for (int g = 0; g < context->groups; g++) {
        const sheaf_range of = sheaf__share_of(c->micros, context, g);
        size[g] = (size_t)(rows_before(c, of.end) - rows_before(c, of.begin)) *
                  sizeof *c->options->values;
    }
    if (c->options->value != NULL)
        TRY(st, sheaf_comm_gather(context->peers, c->options->values, size));
    for (int64_t i = 0; i < c->micros && context->group == 0 && st == NULL; i++)
        if (!c->warned && !isfinite(c->found[i].loss))
            st = run_micro(c, i);
    return st;
}

sheaf_status *sheaf__evaluate(sheaf__evaluation *out, sheaf__model *model, const sheaf_data *data,
                              const sheaf__evaluate_options *options)
{
    const sheaf__context *context = model->context;
    const int64_t rows = options->row == NULL ? sheaf_data_rows(data) : options->rows,
                  batch = options->micro_batch < rows ? options->micro_batch : rows,
                  micros = batch == 0 ? 0 : (rows + batch - 1) / batch,
                  groups = context->groups > 1 ? context->groups : 1;
    course c = { .options = options,
                 .model = model,
                 .all = rows,
                 .data = data,
                 .batch = batch,
                 .rest = batch == 0 ? 0 : rows % batch,
                 .micros = micros,
                 .groups = groups,
                 .rounds = (micros + groups - 1) / groups,
                 .own = sheaf__share_of(micros, context, context->group),
                 .row = malloc(2 * (size_t)batch * sizeof *c.row + 1),
                 .found = calloc((size_t)micros + 1, sizeof *c.found) };
    *out = (sheaf__evaluation){ 0 };
    sheaf_status *st = c.row == NULL || c.found == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "a batch of %lld rows", (long long)batch)
                           : run_course(&c);
    TRY(st, share(&c));
    for (int64_t i = 0; i < micros && st == NULL; i++) {
        out->loss += c.found[i].loss;
        out->tokens += c.found[i].tokens;
        out->correct += c.found[i].correct;
    }
    out->loss = out->tokens == 0 ? 0 : out->loss / (double)out->tokens;
    sheaf__activity_item(context->activity, NULL);
    if (c.rows > 0)
        sheaf__runner_release(&c.runner);
    free(c.row);
    free(c.found);
    free(c.each);
    free(c.label);
    return st;
}

static double score_of(void *self, int64_t row, const uint8_t *label, const float *each, int64_t n)
{
    int64_t i = 0;
    (void)self;
    (void)row;
    while (i + 1 < n && !label[i])
        i++;
    return -(double)each[i];
}

sheaf_status *sheaf__evaluate_scores(double *out, sheaf__model *model, const sheaf_data *data,
                                     const sheaf__evaluate_options *how)
{
    sheaf__evaluate_options options = *how;
    sheaf__evaluation unused;
    options.value = score_of;
    options.values = out;
    return sheaf__evaluate(&unused, model, data, &options);
}
