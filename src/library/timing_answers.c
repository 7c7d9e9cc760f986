/* timing_answers.c - how long generation takes: sheaf__timing_..._answers() of timing.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/cores.h"
#include "comm/process.h"
#include "library/made_source.h"
#include "library/timed.h"
#include "library/timing.h"
#include "library/train_settings.h"
#include "models/crew.h"
#include "plan/passes.h"

enum { PAGE = 4096, LINE = 64, MOST_SWEPT = 256 << 20 };

/* What is read between two tokens, so that a weight comes from where a long model's does. */
typedef struct sweep {
    unsigned char *bytes;
    int64_t pages;
    unsigned *sum; /* [threads] that nobody reads: what is read must go somewhere */
} sweep;

typedef struct timing {
    sheaf_plan_generation asked; /* of the short model */
    const sheaf_data *data;
    int64_t left_out;      /* bytes of a rank in the layers that it lacks */
    bool processor, alone; /* alone: one rank by itself, else the first is timed */
    sheaf_profile *out;
    sheaf__timed read, next; /* of the rank that is timed, as what follows */
    sheaf__turns plain;      /* tokens without a list of ops, which takes time too */
    double first, fresh;
} timing;

/* ---- the question ---- */

static sheaf_status *refuse(const char *expected, const char *found, const char *instead)
{
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "time of generation"), "%s", expected);
    return sheaf_try_this(found == NULL ? st : sheaf_found(st, "%s", found), "%s", instead);
}

/* Of `schema`, the whole model or the short one. */
static sheaf_status *ask(sheaf_plan_generation *out, const sheaf__question *q,
                         const sheaf_schema *schema, const sheaf_lora *lora,
                         const sheaf__placement *place)
{
    const int64_t image = sheaf__image_positions(&schema->config);
    *out = (sheaf_plan_generation){ .schema = schema,
                                    .lora = lora,
                                    .place = place,
                                    .tp = q->o.tp,
                                    .threads = q->o.threads,
                                    .dtype = q->o.dtype,
                                    .batch = q->o.micro_batch,
                                    .seq = q->seq,
                                    .images = image > 0 ? q->o.micro_batch : 0 };
    if (q->place.stages > 1)
        return refuse("layers on one stage", q->place_text,
                      q->flags ? "--place 1" : "place \"1\", or NULL");
    if (lora != NULL)
        return refuse("a model without an adapter", q->o.adapter,
                      "the model alone, which a merged adapter is as fast as");
    return sheaf__question_prompt(&out->prompt, q, q->max_new > 0 ? q->max_new : 1);
}

/* ---- measuring ---- */

static void read_pages(void *arg, int64_t begin, int64_t end, int worker)
{
    const sweep *s = arg;
    unsigned sum = 0;
    for (int64_t at = begin * PAGE; at < end * PAGE; at += LINE)
        sum += s->bytes[at];
    s->sum[worker] += sum;
}

static sheaf_status *open_sweep(sweep *out, const sheaf__context *c, int64_t bytes)
{
    *out = (sweep){ .pages = (bytes < MOST_SWEPT ? bytes : MOST_SWEPT) / PAGE };
    out->bytes = malloc((size_t)(out->pages * PAGE) + 1);
    out->sum = calloc((size_t)c->device->threads, sizeof *out->sum);
    if (out->bytes == NULL || out->sum == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%" PRId64 " bytes between tokens", out->pages * PAGE);
    memset(out->bytes, 1, (size_t)(out->pages * PAGE) + 1);
    return NULL;
}

static void close_sweep(sweep *s)
{
    free(s->bytes);
    free(s->sum);
}

static bool is_timed(const timing *t, const sheaf__context *c)
{
    return t->alone || sheaf__is_first(c);
}

/* The clock of the rank that is timed decides for all. */
static sheaf_status *agree_over(const sheaf__context *c, bool *over)
{
    int flag = *over;
    sheaf_status *st =
        sheaf__everyone(c) == NULL ? NULL : sheaf_comm_any(sheaf__everyone(c), &flag);
    *over = flag != 0;
    return st;
}

/* listed: with its ops. Seconds; of ranks that are not timed they say nothing. */
static sheaf_status *take_turn(double *seconds, sheaf__timed_turn *turn, timing *t, sheaf_passes *p,
                               sheaf_status *(*run)(sheaf_passes *), bool listed)
{
    sheaf__context *c = p->model->context;
    sheaf__timed_begin(turn, t->processor);
    c->work = listed && is_timed(t, c) ? &turn->now : NULL;
    sheaf_status *st = run(p);
    *seconds = sheaf__timed_end(turn);
    c->work = NULL;
    return st;
}

/* Caches and tapes of each batch of prompts are made anew. */
static sheaf_status *open_and_read(sheaf_passes *p)
{
    sheaf_status *st = sheaf_passes_again(p);
    return st == NULL ? sheaf_passes_read(p) : st;
}

static sheaf_status *time_reading(timing *t, sheaf_passes *p)
{
    const sheaf__context *c = p->model->context;
    const bool timed = is_timed(t, c);
    const sheaf__work clock = { 0 };
    const double began = sheaf__work_now(&clock);
    sheaf_status *st = NULL;
    bool over = false;
    for (int turn = 0; st == NULL && !over; turn++) {
        sheaf__timed_turn now;
        double took;
        st = take_turn(&took, &now, t, p, open_and_read, true);
        if (timed && st == NULL && turn == 0)
            t->first = took;
        if (timed && st == NULL && sheaf__turns_count(turn, took, 1))
            sheaf__timed_keep(&t->read, &now, took, sheaf__timing_threads(&t->out->of, c->device));
        st = sheaf__timed_leave(&now, st);
        over = timed && sheaf__turns_enough(&t->read.turns, 1, turn + 1, SHEAF__MOST_STEPS,
                                            sheaf__work_now(&clock) - began);
        TRY(st, agree_over(c, &over));
    }
    return st;
}

/* By turns with a list of ops and without. */
static sheaf_status *time_tokens(timing *t, sheaf_passes *p, const sweep *s)
{
    sheaf__context *c = p->model->context;
    const bool timed = is_timed(t, c);
    const sheaf__work clock = { 0 };
    const double began = sheaf__work_now(&clock);
    sheaf_status *st = NULL;
    bool over = false;
    for (int turn = 0; st == NULL && !over; turn++) {
        const bool listed = turn % 2 == 0;
        sheaf__timed_turn now;
        double took;
        sheaf__rows(c, s->pages, 16, read_pages, (void *)s);
        st = take_turn(&took, &now, t, p, sheaf_passes_next, listed);
        if (timed && st == NULL && sheaf__turns_count(turn / 2, took, 2)) {
            if (listed)
                sheaf__timed_keep(&t->next, &now, took,
                                  sheaf__timing_threads(&t->out->of, c->device));
            else
                sheaf__turns_add(&t->plain, took);
        }
        st = sheaf__timed_leave(&now, st);
        over = timed && t->next.turns.n > 0 && t->plain.n > 0 &&
               sheaf__turns_enough(&t->plain, 1, turn + 1, 2 * SHEAF__MOST_TURNS,
                                   sheaf__work_now(&clock) - began);
        TRY(st, agree_over(c, &over));
    }
    return st;
}

static void collect(timing *t)
{
    sheaf_profile *p = t->out;
    const double middle = sheaf__turns_middle(&t->read.turns),
                 reading = t->read.turns.fastest - sheaf__timed_ops(&t->read);
    p->next_beside = sheaf__timed_as_middle(&t->next, &t->plain);
    p->work = t->read.work;
    p->next = t->next.work;
    t->read.work = t->next.work = (sheaf__work){ 0 };
    p->beside = reading > 0 ? reading : 0;
    p->first = t->first > middle ? t->first - middle : 0;
    p->size.fresh = t->fresh;
    p->spread = sheaf__turns_middle(&t->plain) / t->plain.fastest - 1;
    p->busy = t->next.busy;
}

static sheaf_status *time_model(void *self, sheaf__model *model)
{
    timing *t = self;
    const sheaf__context *c = model->context;
    const size_t loaded = c->device->peak;
    sheaf_passes passes;
    sweep between = { 0 };
    sheaf_status *st = sheaf_passes_open(&passes, model, &t->asked, t->data);
    TRY(st, open_sweep(&between, c, t->left_out));
    st = sheaf__agree_all(c, st);
    TRY(st, time_reading(t, &passes));
    if (st == NULL && is_timed(t, c))
        t->fresh = (double)(c->device->peak - loaded);
    TRY(st, time_tokens(t, &passes, &between));
    if (st == NULL && is_timed(t, c))
        collect(t);
    sheaf_passes_release(&passes);
    close_sweep(&between);
    return st;
}

static sheaf_status *run_short(timing *t, const sheaf__question *q, const sheaf__opened *opened,
                               const sheaf__timing_how *how)
{
    const sheaf_train_options *o = &q->o;
    const sheaf__sums sums = o->sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS;
    sheaf_fits_how fits;
    sheaf__opened with = *opened;
    sheaf_source *weights = NULL;
    sheaf_status *st = sheaf__made_source(&weights, opened->schema);
    with.weights = weights;
    with.adapter = NULL;
    if (sheaf__timing_fits(&fits, q, how) && st == NULL)
        st = sheaf_fits_generate(&t->asked, &fits);
    st = sheaf__process_agree(st);
    if (st == NULL && how->link != NULL)
        st = sheaf_plan_alone(&t->asked,
                              &(sheaf_plan_one){ .kind = SHEAF_CPU,
                                                 .rank = how->rank,
                                                 .sums = sums,
                                                 .isa = o->isa,
                                                 .base = weights },
                              time_model, t);
    else if (st == NULL)
        st = sheaf__crew_run(&with,
                             &(sheaf__crew_options){ .transport = sheaf__timing_transport(),
                                                     .ranks = o->tp,
                                                     .threads = o->threads,
                                                     .dtype = o->dtype,
                                                     .sums = sums,
                                                     .isa = o->isa,
                                                     .positions = q->seq,
                                                     .sequences = t->asked.batch },
                             time_model, t);
    if (weights != NULL)
        weights->close(weights);
    return st;
}

static sheaf_status *measure(timing *t, const sheaf__question *q, const sheaf__timing_how *how)
{
    sheaf_lora_options fresh;
    sheaf__open_options shorter;
    sheaf__opened opened = { 0 };
    sheaf__placement place;
    sheaf_status *st = sheaf__train_options_open(&shorter, &fresh, &q->o);
    shorter.config_only = true;
    shorter.layers = SHEAF__TIMED_LAYERS;
    shorter.fresh = NULL;
    TRY(st, sheaf__open_model(&opened, &shorter));
    TRY(st, sheaf__placement_read(&place, NULL, opened.schema));
    TRY(st, ask(&t->asked, q, opened.schema, opened.lora, &place));
    if (st == NULL) {
        t->left_out = (sheaf__parameters(q->opened.schema) - sheaf__parameters(opened.schema)) /
                      q->o.tp * (int64_t)sheaf_dtype_bytes(q->o.dtype);
        st = run_short(t, q, &opened, how);
    }
    sheaf__opened_close(&opened);
    sheaf_lora_options_release(&fresh);
    return sheaf_in(st, "measuring a model of %d layers", SHEAF__TIMED_LAYERS);
}

/* The prompts of a question. */
static sheaf_status *make_prompts(sheaf_data **out, sheaf_plan_generation *asked,
                                  const sheaf__question *q)
{
    *out = NULL;
    sheaf_status *st = ask(asked, q, q->opened.schema, q->opened.lora, &q->place);
    return st == NULL ? sheaf_data_made(out, &q->opened.config, asked->batch, asked->prompt) : st;
}

sheaf_status *sheaf__timing_measure_answers(sheaf_profile *out, const sheaf__question *q,
                                            const sheaf__timing_how *how)
{
    sheaf_plan_generation whole;
    sheaf_data *made;
    *out = (sheaf_profile){ .cores = sheaf__cores(0) };
    out->of = sheaf__timing_setting(q, how->link);
    snprintf(out->machine, sizeof out->machine, "%s", how->machine);
    timing *t = calloc(1, sizeof *t);
    sheaf_status *st = make_prompts(&made, &whole, q);
    if (st == NULL && t == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "measuring");
    if (st == NULL) {
        t->out = out;
        t->data = made;
        t->processor = sheaf__timing_by_processor(&out->of, how->rank);
        t->alone = how->link != NULL;
        st = measure(t, q, how);
        sheaf__work_release(&t->read.work);
        sheaf__work_release(&t->next.work);
    }
    sheaf_data_close(made);
    free(t);
    return st;
}

/* ---- predicting ---- */

sheaf_status *sheaf__timing_predict_answers(sheaf__timing_answers *out, const sheaf__question *q,
                                            const sheaf_profile *profile,
                                            const sheaf__timing_how *how)
{
    const sheaf_profile_setting setting = sheaf__timing_setting(q, how->link);
    sheaf_plan_generation asked;
    sheaf_pass_work read = { 0 }, next = { 0 };
    sheaf_plan_size size = { 0 };
    sheaf_data *made;
    *out = (sheaf__timing_answers){ 0 };
    sheaf_status *st = make_prompts(&made, &asked, q);
    TRY(st, sheaf_profile_check(profile, &setting, q->flags));
    TRY(st, sheaf_passes_work(&read, &next, &size.fresh, &asked, how->rank, made));
    TRY(st, sheaf_time_predict(&out->read, profile, &read.work, &size, 1));
    TRY(st, sheaf_time_next(&out->next, profile, &next.work));
    sheaf_time_exchange(&out->read, read.exchange, how->link);
    sheaf_time_exchange(&out->next, next.exchange, how->link);
    sheaf__work_release(&read.work);
    sheaf__work_release(&next.work);
    sheaf_data_close(made);
    return st;
}
