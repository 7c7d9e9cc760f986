/* timing.c - see timing.h. */
#include "library/timing.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/cores.h"
#include "comm/process.h"
#include "library/made_source.h"
#include "library/timed.h"
#include "library/train_settings.h"
#include "models/crew.h"

enum { STEPS = 4 }; /* different ones that are taken, where rows differ */

typedef struct timing {
    sheaf__job job;
    sheaf_profile *out;
    int steps;
    bool processor, alone; /* alone: rank `rank` by itself */
    int rank;              /* that is timed, as what follows says */
    sheaf__timed of[STEPS];
    double first;  /* seconds of the first step */
    size_t loaded; /* its memory before */
} timing;

/* ---- what is read ---- */

/* The rows of a question that has none. */
static sheaf_status *choose_data(sheaf__subset *out, sheaf_data **made, const sheaf__question *q)
{
    *made = NULL;
    *out = q->sets.train;
    if (out->data != NULL)
        return NULL;
    sheaf_status *st = sheaf_data_made(made, &q->opened.config, q->o.micro_batch * q->o.dp, q->seq);
    *out = (sheaf__subset){ .data = *made };
    return st;
}

/* Steps that must be looked at: one where all rows of the first ones are alike. */
static int count_steps(const sheaf__question *q, const sheaf__subset *set)
{
    const int64_t rows = STEPS * q->o.micro_batch * q->o.dp;
    int64_t used = -1, labels = 0, tokens = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = sheaf__subset_row(set, i, q->o.seed, q->o.shuffle);
        const int64_t u = sheaf_data_used(set->data, &row, 1),
                      l = sheaf_data_labels(set->data, &row, 1),
                      t = sheaf_data_tokens(set->data, &row, 1);
        if (used >= 0 && (u != used || l != labels || t != tokens))
            return STEPS;
        used = u;
        labels = l;
        tokens = t;
    }
    return 1;
}

/* A run of the question with one micro-batch in each group. */
static sheaf__job job_of(const sheaf__question *q, sheaf_train_options *o, const sheaf__subset *set)
{
    sheaf__job job = sheaf__question_job(q);
    *o = q->o;
    o->accumulate = o->dp;
    o->eval_data = NULL;
    o->eval_split = 0;
    job.options = o;
    job.train = *set;
    job.eval = (sheaf__subset){ 0 };
    return job;
}

sheaf_profile_setting sheaf__timing_setting(const sheaf__question *q,
                                            const sheaf_cluster_link *link)
{
    const sheaf_train_options *o = &q->o;
    sheaf_profile_setting s = { .threads = sheaf__cores(o->threads),
                                .tp = o->tp,
                                .dp = o->dp,
                                .slices = o->slices,
                                .batch = q->place_text == NULL ? 0 : o->micro_batch,
                                .copies = q->place_text == NULL ? sheaf__weight_copies_of(o) : 0 };
    const char *sums = sheaf__sums_name(o->dtype, o->sums);
    snprintf(s.dtype, sizeof s.dtype, "%s%s%s", sheaf_dtype_torch_name(o->dtype),
             sums == NULL ? "" : " ", sums == NULL ? "" : sums);
    if (sheaf__process_count() > 1)
        s.threads = sheaf__process_threads(o->threads) * o->tp * o->dp;
    snprintf(s.ranks, sizeof s.ranks, "%s",
             link != NULL                 ? "alone"
             : sheaf__process_count() > 1 ? "mpi"
                                          : "threads");
    return s;
}

sheaf_transport sheaf__timing_transport(void)
{
    return sheaf__process_count() > 1 ? SHEAF_TRANSPORT_MPI : SHEAF_TRANSPORT_THREADS;
}

int sheaf__timing_threads(const sheaf_profile_setting *of, const sheaf__device *device)
{
    const bool one = sheaf__process_count() > 1 || strcmp(of->ranks, "alone") == 0;
    return one ? device->threads : of->threads;
}

bool sheaf__timing_by_processor(const sheaf_profile_setting *of, int rank)
{
    const int ranks = of->tp * of->dp;
    const bool alone = strcmp(of->ranks, "alone") == 0;
    return alone ? sheaf__threads_of(of->threads, ranks, rank) == 1
                 : of->threads == 1 && ranks == 1;
}

bool sheaf__timing_fits(sheaf_fits_how *out, const sheaf__question *q, const sheaf__timing_how *how)
{
    *out = (sheaf_fits_how){ .force = q->o.force,
                             .only = how->link != NULL ? how->rank + 1 : 0,
                             .events = how->events };
    return sheaf__process_asks(&out->share);
}

/* ---- measuring ---- */

/* One turn of one of the steps; its weights stay as they are. */
static sheaf_status *take_turn(timing *t, sheaf__rank *rank, int step, int turn, bool first_rank)
{
    sheaf__timed_turn now;
    sheaf__step_result result;
    rank->scaler.skipped = 0; /* of the turns before: this is step `step` again */
    sheaf__timed_begin(&now, t->processor);
    rank->context.work = first_rank ? &now.now : NULL;
    sheaf_status *st = sheaf__stepper_run(&result, rank->stepper, step, 0);
    const double took = sheaf__timed_end(&now);
    rank->context.work = NULL;
    if (!first_rank)
        return st;
    if (step == 0 && turn == 0 && !result.skipped)
        t->first = took;
    /* One that float16 skipped, until its scale was low enough, updated nothing. */
    if (st == NULL && !result.skipped && sheaf__turns_count(turn, took, t->steps))
        sheaf__timed_keep(&t->of[step], &now, took,
                          sheaf__timing_threads(&t->out->of, rank->device));
    return sheaf__timed_leave(&now, st);
}

/* Which pairs of packed rows attend to each other only the rows tell, and the dry device does not
 * know: then shapes must be enough. */
static void add_all(sheaf__work *to, const sheaf__work *from, bool packed)
{
    for (int64_t i = 0; i < from->n; i++) {
        sheaf__work_entry e = from->entry[i];
        if (packed && e.kind == SHEAF__WORK_ATTENTION)
            e.flops = 0;
        sheaf__work_add(to, &e);
    }
}

/* What all fastest turns have, as one list. */
static sheaf_status *collect(timing *t, const sheaf__rank *rank, int steps, int turns)
{
    const bool packed = sheaf_data_is_packed(t->job.train.data);
    sheaf_profile *p = t->out;
    p->size = (sheaf_plan_size){ (double)rank->model->trained->numel,
                                 (double)(rank->device->peak - t->loaded) };
    for (int s = 0; s < steps; s++) {
        const sheaf__timed *of = &t->of[s];
        if (of->turns.n == 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "steps in float16"),
                                              "one that is not skipped"),
                               "%d skipped, at a lower loss scale each", turns);
        add_all(&p->work, &of->work, packed);
        const double beside = of->turns.fastest - sheaf__timed_ops(of) - of->work.update;
        p->beside += (beside > 0 ? beside : 0) / steps;
        p->work.update += of->work.update / steps;
        p->work.update_waiting += of->work.update_waiting / steps;
    }
    const sheaf__turns *first = &t->of[0].turns;
    const double middle = sheaf__turns_middle(first);
    p->spread = middle / first->fastest - 1;
    p->first = t->first > middle ? t->first - middle : 0;
    p->busy = t->of[0].busy;
    return p->work.no_memory ? sheaf_fail(SHEAF_E_MEMORY, "list of ops") : NULL;
}

static bool is_enough(const timing *t, int steps, int turns, double seconds)
{
    sheaf__turns of[STEPS];
    for (int s = 0; s < steps; s++)
        of[s] = t->of[s].turns;
    return sheaf__turns_enough(of, steps, turns, SHEAF__MOST_STEPS, seconds);
}

/* The first rank's clock decides for all. Where a first turn of some steps is long, the others are
 * priced by these. */
static sheaf_status *take_turns(timing *t, sheaf__rank *rank, sheaf_comm *comm)
{
    const bool first_rank = sheaf_comm_rank(comm) == 0;
    const sheaf__work clock = { 0 };
    const double began = sheaf__work_now(&clock);
    sheaf_status *st = NULL;
    int over = 0, turns = 0, steps = t->steps;
    if (first_rank)
        t->loaded = rank->device->peak;
    while (st == NULL && over == 0) {
        for (int s = 0, late = 0; s < steps && st == NULL; s++) {
            st = take_turn(t, rank, s, turns, first_rank);
            late = first_rank && sheaf__work_now(&clock) - began >= SHEAF__MOST_SECONDS;
            if (st == NULL && turns == 0)
                st = sheaf_comm_any(comm, &late);
            if (turns == 0 && late != 0)
                steps = s + 1;
        }
        turns++;
        over = first_rank && is_enough(t, steps, turns, sheaf__work_now(&clock) - began);
        TRY(st, sheaf_comm_any(comm, &over));
    }
    if (st == NULL && first_rank)
        st = collect(t, rank, steps, turns);
    return st;
}

static sheaf_status *time_rank(void *arg, const sheaf__grid *grid)
{
    timing *t = arg;
    sheaf__rank rank = { 0 };
    sheaf_status *st = sheaf__rank_open(&rank, SHEAF_CPU, t->alone ? NULL : grid,
                                        t->alone ? t->rank : sheaf_comm_rank(grid->all), &t->job);
    st = sheaf_comm_agree(grid->all, st);
    TRY(st, take_turns(t, &rank, grid->all));
    sheaf__rank_close(&rank);
    return st;
}

static sheaf_status *run_short(timing *t, const sheaf__question *q, const sheaf__opened *opened,
                               const sheaf__timing_how *how)
{
    sheaf_fits_how fits;
    sheaf_source *weights = NULL;
    const sheaf_train_options *o = t->job.options;
    sheaf_status *st = sheaf__made_source(&weights, opened->schema);
    t->job.base = weights;
    sheaf__process_settle(o->threads, how->events);
    if (sheaf__timing_fits(&fits, q, how) && st == NULL)
        st = sheaf_fits_train(&t->job, &fits);
    st = sheaf__process_agree(st);
    TRY(st, sheaf__grid_run(&(sheaf__grid_options){ .transport = sheaf__timing_transport(),
                                                    .groups = t->alone ? 1 : o->dp,
                                                    .ranks = t->alone ? 1 : o->tp },
                            time_rank, t));
    if (weights != NULL)
        weights->close(weights);
    return sheaf_in(st, "measuring a model of %d layers", SHEAF__TIMED_LAYERS);
}

static sheaf_status *measure(timing *t, const sheaf__question *q, const sheaf__timing_how *how)
{
    sheaf_lora_options fresh;
    sheaf__open_options shorter;
    sheaf__opened opened = { 0 };
    sheaf__selection selection = { 0 };
    sheaf_status *st = sheaf__train_options_open(&shorter, &fresh, &q->o);
    shorter.config_only = true;
    shorter.layers = SHEAF__TIMED_LAYERS;
    fresh.nlayers = 0; /* of the whole model: what is adapted of the others is priced by these */
    TRY(st, sheaf__open_model(&opened, &shorter));
    TRY(st, sheaf__select(&selection, opened.schema, opened.lora, &q->o, NULL));
    st = sheaf_in(st, "measuring a model of %d layers", SHEAF__TIMED_LAYERS);
    t->job.schema = opened.schema;
    t->job.lora = opened.lora;
    t->job.selection = &selection;
    TRY(st, run_short(t, q, &opened, how));
    sheaf__selection_release(&selection);
    sheaf__opened_close(&opened);
    sheaf_lora_options_release(&fresh);
    return st;
}

sheaf_status *sheaf__timing_measure(sheaf_profile *out, const sheaf__question *q,
                                    const sheaf__timing_how *how)
{
    sheaf_train_options o;
    sheaf__subset set;
    sheaf_data *made;
    *out = (sheaf_profile){ .cores = sheaf__cores(0) };
    timing *t = calloc(1, sizeof *t);
    sheaf_status *st = t == NULL ? sheaf_fail(SHEAF_E_MEMORY, "measuring") : NULL;
    TRY(st, choose_data(&set, &made, q));
    if (st != NULL) {
        free(t);
        return st;
    }
    *t = (timing){ .out = out, .job = job_of(q, &o, &set), .steps = count_steps(q, &set) };
    out->of = sheaf__timing_setting(q, how->link);
    snprintf(out->machine, sizeof out->machine, "%s", how->machine);
    t->alone = how->link != NULL;
    t->rank = how->rank;
    t->processor = sheaf__timing_by_processor(&out->of, how->rank);
    st = measure(t, q, how);
    for (int s = 0; s < STEPS; s++)
        sheaf__work_release(&t->of[s].work);
    sheaf_data_close(made);
    free(t);
    return st;
}

/* ---- predicting ---- */

static void add_time(sheaf_time *to, const sheaf_time *from, double share)
{
    for (int k = 0; k < SHEAF__WORK_KINDS; k++)
        to->kind[k] += share * from->kind[k];
    to->step += share * from->step;
    to->update += share * from->update;
    to->beside += share * from->beside;
    to->waiting += share * from->waiting;
    to->first += share * from->first;
    to->scaled += share * from->scaled;
    to->farthest = from->farthest > to->farthest ? from->farthest : to->farthest;
}

/* What the rank exchanges in a step of the question. */
static sheaf_status *add_exchange(sheaf_time *out, const sheaf__question *q,
                                  const sheaf__subset *set, const sheaf__timing_how *how)
{
    sheaf__count exchange[SHEAF__TRAFFICS] = { { 0 } };
    sheaf__job job = sheaf__question_job(q);
    job.train = *set;
    job.eval = (sheaf__subset){ 0 };
    sheaf_status *st =
        q->o.tp * q->o.dp == 1 ? NULL : sheaf_plan_exchange(exchange, &job, how->rank, 0);
    if (st == NULL)
        sheaf_time_exchange(out, exchange, how->link);
    return st;
}

sheaf_status *sheaf__timing_predict(sheaf_time *out, const sheaf__question *q,
                                    const sheaf_profile *profile, const sheaf__timing_how *how)
{
    sheaf_train_options o;
    sheaf__subset set;
    sheaf_data *made;
    *out = (sheaf_time){ 0 };
    sheaf_status *st = choose_data(&set, &made, q);
    if (st != NULL)
        return st;
    const sheaf__job job = job_of(q, &o, &set);
    const sheaf_profile_setting asked = sheaf__timing_setting(q, how->link);
    const int steps = count_steps(q, &set);
    const int64_t micros = (q->o.accumulate + o.dp - 1) / o.dp;
    st = sheaf_profile_check(profile, &asked, q->flags);
    for (int s = 0; s < steps && st == NULL; s++) {
        sheaf__work work = { 0 }, asked_of = { 0 };
        sheaf_time one;
        sheaf_plan_size size;
        st = sheaf_plan_work(&work, &size, &job, how->rank, s);
        add_all(&asked_of, &work, sheaf_data_is_packed(set.data));
        if (st == NULL && asked_of.no_memory)
            st = sheaf_fail(SHEAF_E_MEMORY, "list of ops");
        TRY(st, sheaf_time_predict(&one, profile, &asked_of, &size, micros));
        if (st == NULL)
            add_time(out, &one, 1.0 / steps);
        sheaf__work_release(&work);
        sheaf__work_release(&asked_of);
    }
    TRY(st, add_exchange(out, q, &set, how));
    sheaf_data_close(made);
    return st;
}
