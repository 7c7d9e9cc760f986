/* trial.c - runs steps of a training setting: see timing.h. */
#include "base/base.h"
#include "plan/timing.h"

#include "base/thread.h"
#include "comm/comm.h"
#include "plan/needs.h"
#include "plan/fits.h"
#include "catalog/boxes.h"
#include "catalog/over_source.h"
#include "ops/quant/quant.h"

enum { MOST = 1000, MOST_SHORT = 32, FEWEST_SHORT = 4 }; /* steps to measure a model */
/* Seconds of a short model: its steps end after the least when the two fastest agree. */
#define LEAST_SECONDS 2.0
#define MOST_SECONDS 12.0
#define AGREE 1.03

typedef struct trial {
    sheaf__job job;
    sheaf__trial *out;
    double seconds;
    bool is_short, processor;
    double fastest, second; /* seconds of a step; 0: not yet */
} trial;

bool sheaf__trial_by_processor(const sheaf_train_options *o)
{
    return o->tp * o->dp == 1 && sheaf__cores(o->threads) == 1 && !sheaf__fit_apart(o->device);
}

static double operations(const sheaf__work *work)
{
    double flops = 0;
    for (int k = 0; k < SHEAF__WORK_KINDS; k++)
        for (int w = 0; w < SHEAF__WORK_WAYS; w++)
            flops += work->sum[k][w][1].flops;
    return flops;
}

static void note_step(trial *t, const sheaf__step_result *step, const sheaf__work *work)
{
    sheaf__trial *out = t->out;
    if (t->is_short && step->skipped) /* float16 looks for its scale and updated nothing */
        return;
    const double each = work->all / (operations(work) + 1);
    out->steps++;
    out->tokens += step->tokens;
    out->seconds += work->all;
    if (t->fastest == 0 || each < t->fastest) {
        t->second = t->fastest;
        t->fastest = each;
        out->work = *work;
    } else if (t->second == 0 || each < t->second) {
        t->second = each;
    }
}

static bool is_over(const trial *t, int64_t steps, double seconds)
{
    if (!t->is_short)
        return steps >= t->job.options->steps || steps > MOST ||
               (steps > 1 && seconds >= t->seconds);
    const bool agree = steps > FEWEST_SHORT && t->second > 0 && t->second <= AGREE * t->fastest;
    return (agree && seconds >= LEAST_SECONDS) || steps > MOST_SHORT ||
           (t->out->steps > 0 && seconds >= MOST_SECONDS);
}

/* The first rank's clock decides. */
static sheaf_status *take_steps(trial *t, sheaf__rank *rank, sheaf_comm *comm)
{
    const sheaf_train_options *o = t->job.options;
    const sheaf_schedule schedule = sheaf_train_options_schedule(o);
    const bool first_rank = sheaf_comm_rank(comm) == 0;
    const sheaf__work clock = { 0 };
    const double begin = sheaf__work_now(&clock);
    sheaf_status *st = NULL;
    int over = 0;
    for (int64_t done = 0; st == NULL && over == 0; done++) {
        sheaf__work work = { .processor = t->processor,
                             .trained = (double)rank->model->trained->numel };
        const double began = sheaf__work_now(&work);
        sheaf__step_result step;
        rank->context.work = t->is_short && first_rank ? &work : NULL;
        st = sheaf__stepper_run(&step, rank->stepper, done,
                                sheaf_schedule_rate(&schedule, o->lr, done));
        work.all = sheaf__work_now(&work) - began;
        if (st == NULL && first_rank && done > 0)
            note_step(t, &step, &work);
        over = first_rank && is_over(t, done + 1, sheaf__work_now(&clock) - begin);
        TRY(st, sheaf_comm_any(comm, &over));
    }
    rank->context.work = NULL;
    return st;
}

static sheaf_status *trial_rank(void *arg, const sheaf__grid *grid)
{
    trial *t = arg;
    sheaf_comm *const comm = grid->all;
    sheaf__rank rank = { 0 };
    const int me = sheaf_comm_rank(comm);
    sheaf_status *st = sheaf__rank_open(&rank, grid, me, &t->job);
    st = sheaf_comm_agree(comm, st);
    TRY(st, take_steps(t, &rank, comm));
    sheaf__rank_close(&rank);
    return st;
}

static sheaf_status *run(trial *t, const sheaf_events *events)
{
    const sheaf_train_options *o = t->job.options;
    sheaf_status *st =
        sheaf_fits_train(&t->job, &(sheaf_fits_options){ .force = o->force, .events = events });
    TRY(st,
        sheaf__grid_run(&(sheaf__grid_options){ .groups = o->dp, .ranks = o->tp }, trial_rank, t));
    return st;
}

sheaf_status *sheaf__trial_data(sheaf__subset *out, sheaf_data **made, const sheaf__plan_inputs *q)
{
    *made = NULL;
    *out = q->sets.train;
    if (out->data != NULL)
        return NULL;
    sheaf_status *st =
        sheaf_data_synthetic(made, &q->opened.config, q->o.micro_batch * q->o.dp, q->seq);
    *out = (sheaf__subset){ .data = *made };
    return st;
}

static sheaf_status *check_counted(const sheaf__trial *out)
{
    return out->steps > 0
               ? NULL
               : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "steps in float16"),
                                            "one that is not skipped"),
                             "%d skipped, at a lower loss scale each", MOST_SHORT);
}

/* The model itself with its weights, or a short one with made-up weights. */
static sheaf_status *open_model(sheaf__opened *opened, sheaf__selection *selection, trial *t)
{
    const sheaf_train_options *o = t->job.options;
    sheaf_lora_options fresh;
    sheaf__open_options how;
    sheaf_status *st = sheaf__train_options_open(&how, &fresh, o);
    how.for_training = !t->is_short;
    how.config_only = t->is_short;
    how.layers = t->is_short ? SHEAF__SHORT_LAYERS : 0;
    if (t->is_short)
        fresh.nlayers = 0; /* of the whole model, for the rates of adapted layers */
    TRY(st, sheaf__open_model(opened, &how));
    TRY(st, sheaf__select(selection, opened->schema, opened->lora, o, NULL));
    TRY(st, sheaf__opened_quantise(opened, o->quantize, sheaf__selected, selection));
    if (st == NULL && t->is_short)
        st = sheaf__made_source(&opened->weights, opened->schema, opened->forms);
    else if (st == NULL && opened->lora != NULL)
        st = sheaf_lora_save_also(opened->lora, opened->schema, sheaf__selected, selection);
    t->job.schema = opened->schema;
    t->job.lora = opened->lora;
    t->job.base = t->job.forms = opened->weights;
    t->job.adapter = opened->adapter;
    sheaf_lora_options_release(&fresh);
    return st;
}

static sheaf_status *open_and_run(trial *t, const sheaf__plan_inputs *q, const sheaf_events *events)
{
    sheaf__opened opened = { 0 };
    sheaf__selection selection = { 0 };
    sheaf_data *made = NULL;
    *t->out = (sheaf__trial){ 0 };
    t->job.selection = &selection;
    t->job.seq = q->seq;
    sheaf_status *st = sheaf__trial_data(&t->job.train, &made, q);
    TRY(st, open_model(&opened, &selection, t));
    TRY(st, run(t, events));
    sheaf_data_close(made);
    sheaf__selection_release(&selection);
    sheaf__opened_close(&opened);
    return st;
}

sheaf_status *sheaf__trial_run(sheaf__trial *out, const sheaf__plan_inputs *q, double seconds,
                               const sheaf_events *events)
{
    sheaf_train_options o = q->o;
    if (o.steps < 2)
        o.steps = INT64_C(1) << 40; /* rows are used again */
    trial t = { .job = { .options = &o, .data_bytes = q->data_bytes },
                .out = out,
                .seconds = seconds };
    return open_and_run(&t, q, events);
}

sheaf_status *sheaf__trial_run_short(sheaf__trial *out, const sheaf__plan_inputs *q,
                                     const sheaf_events *events)
{
    sheaf_train_options o = q->o;
    o.accumulate = o.dp; /* one micro-batch in each group */
    o.eval_data = NULL;
    o.eval_split = 0;
    trial t = {
        .job.options = &o, .out = out, .is_short = true, .processor = sheaf__trial_by_processor(&o)
    };
    sheaf_status *st = open_and_run(&t, q, events);
    TRY(st, check_counted(out));
    return sheaf_in(st, "measuring a model of %d layers", SHEAF__SHORT_LAYERS);
}

/* ---- made-up weights ---- */

enum { PERIOD = 8191 }; /* a prime, so that rows differ */

typedef struct made {
    sheaf__over_source over; /* first; all tensors are its own */
    sheaf_source *forms;     /* says which have codes; may be NULL */
    float value[PERIOD];
} made;

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const made *m = (const made *)self;
    const sheaf_source_entry *e = self->find(self, name);
    const int64_t width = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
    float *to = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++)
            *to++ = m->value[(r * width + c) % PERIOD];
    return NULL;
}

/* ---- codes ---- */

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    sheaf_source *forms = ((made *)self)->forms;
    return forms == NULL ? NULL : sheaf__source_held(forms, name);
}

static sheaf_status *read_codes(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const sheaf__quant_parts *to)
{
    const sheaf__quant *q = form(self, name);
    const int64_t in = self->find(self, name)->shape[1],
                  groups =
                      sheaf__quant_groups(q, &(sheaf__quant_box){ in, row0, rows, col0, cols }),
                  floats = sheaf__quant_floats(q);
    const uint32_t most = sheaf__code_bits(q->codes) == 4 ? 16 : 120;
    uint32_t state = (uint32_t)(row0 * in + col0);
    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 1664525u + 1013904223u;
        to->codes[i] = (uint8_t)((state >> 24) % most);
    }
    for (int64_t i = 0; i < rows * groups; i++) {
        if (q->doubled)
            to->scale_codes[i] = (uint8_t)(i & 127);
        for (int64_t k = i * floats; k < (i + 1) * floats && !q->doubled; k++)
            to->scales[k] =
                sheaf__code_bits(q->codes) == 4 && q->codes != SHEAF__INT4 ? 0.05f : 0.0005f;
        if (q->zeros)
            to->zeros[i] = 8;
    }
    return NULL;
}

static sheaf_status *read_whole(sheaf_source *self, const char *name, sheaf__quant_whole *to)
{
    const sheaf__quant *q = form(self, name);
    const sheaf_source_entry *e = self->find(self, name);
    for (int64_t i = 0; i < sheaf__quant_nested(q, e->shape[0] * e->shape[1]); i++)
        to->nested[i] = 0.001f;
    to->offset = q->doubled ? 0.05f : 0;
    for (int64_t c = 0; q->grouping == SHEAF__GROUPS_INDEXED && c < e->shape[1]; c++)
        to->index[c] = (uint16_t)(c % q->groups);
    return NULL;
}

static const sheaf__quantised_source quantised = { form, read_codes, read_whole };

sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema,
                                 sheaf_source *forms)
{
    made *m = sheaf__over_new(sizeof *m, NULL, schema->count, read_box, NULL);
    if (m == NULL)
        return sheaf__no_memory("made-up weights");
    sheaf_status *st = NULL;
    m->over.source.quantised = &quantised;
    m->forms = forms;
    uint32_t state = 1;
    for (int i = 0; i < PERIOD; i++) { /* between -0.03 and 0.03 */
        state = state * 1664525u + 1013904223u;
        m->value[i] = 0.06f * ((float)(state >> 8) / 16777216.0f - 0.5f);
    }
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        sheaf_source_entry e = { .dtype = SHEAF_F32, .ndim = t->ndim };
        memcpy(e.shape, t->shape, sizeof t->shape);
        st = sheaf__over_add(&m->over, strdup(t->name), e);
    }
    if (st == NULL)
        sheaf__over_sort(&m->over);
    return sheaf__over_end(out, m, st);
}
