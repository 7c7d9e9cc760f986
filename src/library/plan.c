/* plan.c - what a run needs: sheaf/plan.h. */
#include "sheaf/plan.h"

#include "base/base.h"
#include "base/numeric_env.h"
#include "library/model.h"
#include "library/sampler.h"
#include "library/session.h"
#include "library/structs.h"
#include "models/placement.h"
#include "plan/fits.h"
#include "plan/needs.h"

struct sheaf_needs {
    sheaf_plan plan;
    sheaf_needs_facts facts;
    sheaf_timing_facts timing; /* step 0: not asked for, or nothing fits */
    char *json;
    sheaf_text adapter;
};

/* A plan's request, and the memory behind its inputs. */
typedef struct request {
    sheaf__plan_request plan;
    sheaf__settings state;
    sheaf__run_settings own; /* of a program that passes a struct */
    sheaf__run_sampler sampler;
    char *base, *config;
} request;

static void release(request *r)
{
    sheaf__plan_inputs_close(&r->plan.q);
    sheaf__run_sampler_close(&r->sampler);
    sheaf__run_settings_close(&r->own);
    sheaf__settings_release(&r->state);
    free(r->plan.first);
    free(r->plan.first_to);
    free(r->base);
    free(r->config);
}

/* ---- the request ---- */

/* The options; the inputs are not open yet. */
static sheaf_status *ask_run(sheaf__plan_request *a, const sheaf__run_settings *run,
                             const sheaf_plan_options *how)
{
    sheaf__plan_inputs *q = &a->q;
    sheaf_train_options *t = run->options;
    sheaf_status *st = sheaf__struct_read(&a->how, sizeof a->how, how, "sheaf_plan_options");
    if (st != NULL)
        return st;
    const int groups = t->dp;
    q->place_text = a->how.place;
    q->max_new = a->how.max_new;
    q->images_text = a->how.images;
    q->whole = t->steps == 0 && t->epochs == 0;
    if (q->whole)
        t->steps = 1;
    if (q->place_text != NULL)
        t->dp = 1;
    if ((t->model == NULL || t->model[0] == '\0') && (t->config == NULL || t->config[0] == '\0'))
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "a model, or the setting config"),
            "config.json of a model whose weights need not be here");
    sheaf__train_dtype(t, a->events);
    st = sheaf__train_settings_check(run->state, run->table, t);
    if (st == NULL && t->dp < groups)
        sheaf_note(a->events, "`dp %d` has no effect with `place`: generation has no groups",
                   groups);
    if (st == NULL && sheaf__sets_samples(t) && (a->how.time || a->how.trial))
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`time` and `trial`"),
                           "`rollouts`, completions that are given: the time of sampling is not "
                           "known"),
            "`reward`");
    q->o = *t;
    return st;
}

static sheaf_status *ask_model(request *r, const sheaf_model_open_options *options,
                               const sheaf_plan_options *how)
{
    static const char of[] = "sheaf_plan_options";
    sheaf_model_open_options o;
    sheaf__plan_request *a = &r->plan;
    sheaf__plan_inputs *q = &a->q;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_open_options");
    sheaf_train_options_default(&q->o);
    TRY(st, sheaf__struct_read(&a->how, sizeof a->how, how, of));
    TRY(st, sheaf__check_count(of, "batch", a->how.batch, SHEAF__MOST_ROWS));
    TRY(st, sheaf__check_count(of, "max_new", a->how.max_new, SHEAF__MOST_POSITIONS));
    if (st == NULL && (a->how.place != NULL || a->how.images != NULL || a->how.trial ||
                       a->how.first_step || a->how.table != SHEAF_PLAN_NO_TABLE))
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", of),
                                        "memory, slots, max_new, batch or time, of a model"),
                         "a question of training");
    TRY(st, sheaf__model_check_open(&o, true));
    TRY(st, sheaf__run_model_base(&r->base, &r->config, o.model));
    q->o.dtype = o.dtype;
    q->o.model = r->base != NULL ? r->base : o.model;
    q->o.config = o.config != NULL ? o.config : r->config;
    if (st == NULL)
        sheaf__train_dtype(&q->o, o.events);
    q->o.adapter = o.adapter;
    q->o.tp = o.tp > 0 ? o.tp : 1;
    q->o.dp = o.dp > 0 ? o.dp : 1;
    q->o.threads = o.threads;
    q->o.isa = o.isa;
    q->o.device = o.device;
    q->o.quantize = o.quantize;
    q->o.micro_batch = a->how.batch > 0 ? a->how.batch : 1;
    q->max_new = a->how.max_new;
    if (o.slices > 0)
        q->o.slices = o.slices;
    q->o.seq = o.positions;
    q->place_text = o.place != NULL ? o.place : "1";
    q->positions = true;
    a->events = o.events;
    if (st == NULL && a->how.time && q->o.dp > 1) /* each group's prompts take the time of one */
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_open_options: dp"),
                                        "one group, and `batch` of its prompts"),
                         "%d", q->o.dp);
    return st == NULL ? sheaf__plan_inputs_open(q, o.events) : st;
}

/* ---- sizes from the data ---- */

static void count_work(sheaf__plan_request *a)
{
    const sheaf__subset *set = &a->q.sets.train;
    const sheaf_train_options *o = &a->q.o;
    const int64_t rows = o->micro_batch * o->accumulate;
    sheaf__data_work *w = &a->work;
    w->rows = sheaf__subset_rows(set);
    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t sample = sheaf__subset_row(set, i, 0, false),
                      side[] = { sheaf_data_side(set->data, sample, 0),
                                 sheaf_data_side(set->data, sample, 1) };
        w->tokens += sheaf_data_tokens(set->data, side, sheaf_data_sides(set->data));
        w->labels += sheaf_data_labels(set->data, side, sheaf_data_sides(set->data));
    }
    w->epoch_steps = (w->rows + rows - 1) / rows;
    w->steps = a->q.whole ? w->epoch_steps : o->steps;
    w->all_tokens = (double)w->tokens * (double)w->steps * (double)rows / (double)w->rows;
}

static sheaf_status *try_speed(sheaf__plan_request *a)
{
    enum { SECONDS = 60 };
    sheaf__data_work *w = &a->work;
    sheaf_status *st = sheaf__trial_run(&w->trial, &a->q, SECONDS, a->events);
    if (st == NULL)
        w->hours = w->all_tokens * w->trial.seconds / (double)w->trial.tokens / 3600;
    return st;
}

static sheaf_status *find_time(sheaf__plan_request *a)
{
    const sheaf_train_options *o = &a->q.o;
    a->timed_steps = a->work.rows > 0 ? a->work.steps : a->q.whole ? 0 : o->steps;
    if (o->transport == SHEAF_TRANSPORT_MPI && o->tp * o->dp > 1)
        sheaf_note(
            a->events,
            "`time`: ranks are measured as threads of one process; between hosts they wait longer");
    return sheaf_in(sheaf__timing_find(&a->timing, &a->q, a->events), "`time`");
}

/* The bytes that the first step of the run exchanges. */
static sheaf_status *count_first(sheaf__plan_request *a, const sheaf_plan *plan)
{
    const sheaf__job job = sheaf__plan_inputs_job(&a->q);
    a->first = calloc((size_t)plan->ranks, sizeof *a->first);
    a->first_to = calloc((size_t)plan->ranks, sizeof *a->first_to);
    sheaf_status *st = a->first == NULL || a->first_to == NULL ? sheaf__no_memory("plan") : NULL;
    for (int r = 0; r < plan->ranks && st == NULL; r++)
        st = sheaf_plan_step(a->first[r], a->first_to[r], NULL, &job, r, 0);
    return st;
}

/* ---- the plan ---- */

static sheaf_timing_facts facts_of(const sheaf__timing *found)
{
    const bool generation = found->next.step > 0;
    const sheaf_time *t = generation ? &found->next : &found->is;
    const double tokens = generation ? (double)found->batch : found->tokens;
    sheaf_timing_facts f = { .step = t->step,
                             .products = t->kind[SHEAF__WORK_PRODUCTS],
                             .attention = t->kind[SHEAF__WORK_ATTENTION],
                             .head = t->kind[SHEAF__WORK_HEAD],
                             .elements = t->kind[SHEAF__WORK_ELEMENTS],
                             .optimizer = t->update,
                             .beside = t->beside,
                             .waiting = t->waiting,
                             .tokens = tokens,
                             .tokens_per_s = tokens / t->step };
    if (generation) {
        f.prompt = found->is.step;
        f.prompt_tokens = found->tokens;
        f.prompt_tokens_per_s = found->tokens / found->is.step;
    }
    return f;
}

static void find_facts(sheaf_needs *needs, const sheaf__plan_request *a)
{
    const sheaf_plan *p = &needs->plan;
    const bool fits = a->how.memory == 0 || a->fit.fits;
    sheaf__lora_sizes sizes;
    if (sheaf__needs_sizes(&sizes, a))
        sheaf__lora_sizes_text(&needs->adapter, &sizes);
    needs->facts = (sheaf_needs_facts){ .ranks = p->ranks,
                                        .process = p->process,
                                        .fullest = sheaf_plan_fullest(p),
                                        .parameters = p->parameters,
                                        .trained = p->trained,
                                        .seq = a->q.seq,
                                        .fits = fits,
                                        .need = a->how.memory > 0 ? a->fit.need : p->process,
                                        .pictures = sheaf__image_positions(&a->q.opened.config) > 0,
                                        .adapter = needs->adapter.at };
}

/* If the hosts have too few slots, each takes its share of the ranks, rounded up. */
static void take_slots(sheaf__plan_request *a)
{
    const sheaf__plan_inputs *q = &a->q;
    const int ranks = q->o.tp * (q->place_text == NULL ? q->o.dp : q->place.stages);
    int n = 0, all = 0;
    for (; n < SHEAF_MAX_SLICES && a->how.slots[n] > 0; n++)
        all += a->how.slots[n];
    for (int i = 0; i < n; i++)
        a->slot[i] = all < ranks ? (a->how.slots[i] * ranks + all - 1) / all : a->how.slots[i];
    a->slot[n] = 0;
    a->how.slots = a->slot;
}

/* Of this setting, which keeps what a run on this machine does. */
static sheaf_status *answer_here(sheaf_plan *plan, sheaf__plan_inputs *q)
{
    if (q->place_text == NULL) {
        const sheaf__job job = sheaf__plan_inputs_job(q);
        if (sheaf_fits_pairs(&job, &(sheaf_fits_options){ 0 }))
            q->o.kept = SHEAF__KEPT_PAIRS;
    }
    return sheaf__plan_inputs_answer(plan, q);
}

/* The inputs are open. */
static sheaf_status *find_needs(sheaf_needs *needs, sheaf__plan_request *a)
{
    sheaf__plan_inputs *q = &a->q;
    const sheaf_plan_options *how = &a->how;
    const bool data = q->sets.data != NULL && q->place_text == NULL && !sheaf__sets_samples(&q->o);
    if (how->slots != NULL)
        take_slots(a);
    sheaf_status *st = how->memory > 0 ? sheaf__fit_find(&a->fit, &needs->plan, q, how->memory,
                                                         how->slots, a->events)
                                       : answer_here(&needs->plan, q);
    const bool fits = how->memory == 0 || a->fit.fits;
    if (st == NULL && data)
        count_work(a);
    if (st == NULL && how->trial && fits)
        st = try_speed(a);
    if (st == NULL && how->time && fits) {
        st = find_time(a);
        needs->timing = facts_of(&a->timing);
    }
    if (st == NULL && how->first_step && data)
        st = count_first(a, &needs->plan);
    if (st == NULL)
        find_facts(needs, a);
    return TRY(st, sheaf__needs_json(&needs->json, a, &needs->plan));
}

/* `st`: of making the request, consumed. */
static sheaf_status *answer(sheaf_needs **out, sheaf__plan_request *a, sheaf_status *st)
{
    sheaf_needs *needs = st == NULL ? calloc(1, sizeof *needs) : NULL;
    if (st == NULL && needs == NULL)
        st = sheaf__no_memory("plan");
    TRY(st, a->how.table == SHEAF_PLAN_NO_TABLE ? find_needs(needs, a)
                                                : sheaf__needs_table(&needs->json, a));
    if (st == NULL)
        *out = needs;
    else
        sheaf_needs_free(needs);
    return st;
}

/* `st`: of making the settings, consumed. */
static sheaf_status *plan_run(sheaf_needs **out, request *r, const sheaf__run_settings *run,
                              const sheaf_plan_options *how, sheaf_status *st)
{
    sheaf__plan_request *a = &r->plan;
    *out = NULL;
    sheaf__run_sampler_begin(&r->sampler, true, NULL, NULL);
    a->q.sampler = &r->sampler.sampler;
    TRY(st, ask_run(a, run, how));
    if (a->how.table == SHEAF_PLAN_NO_TABLE)
        TRY(st, sheaf__plan_inputs_open(&a->q, a->events));
    return answer(out, a, st);
}

sheaf_status *sheaf__run_plan(sheaf_needs **out, const sheaf__run_settings *run,
                              const sheaf_plan_options *how, const sheaf_events *events)
{
    SHEAF__NUMERIC_ENV;
    request r = { .plan.events = events };
    sheaf__plan_request *a = &r.plan;
    sheaf_status *st = plan_run(out, &r, run, how, NULL);
    if (st == NULL && a->how.table == SHEAF_PLAN_NO_TABLE) {
        *run->options = a->q.o;
        sheaf__balance_note(a->q.opened.schema, a->q.o.tp, events);
    }
    release(&r);
    return st;
}

sheaf_status *sheaf_run_plan(sheaf_needs **out, const sheaf_run_train_options *options,
                             const sheaf_plan_options *how)
{
    SHEAF__NUMERIC_ENV;
    sheaf_run_train_options o;
    request r = { 0 };
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_run_train_options");
    r.plan.events = o.events;
    TRY(st, sheaf__train_take(&r.own, &r.state, &o, true));
    st = plan_run(out, &r, &r.own, how, st);
    release(&r);
    return st;
}

sheaf_status *sheaf_model_plan(sheaf_needs **out, const sheaf_model_open_options *options,
                               const sheaf_plan_options *how)
{
    SHEAF__NUMERIC_ENV;
    request r = { 0 };
    *out = NULL;
    sheaf_status *st = answer(out, &r.plan, ask_model(&r, options, how));
    release(&r);
    return st;
}

void sheaf_needs_free(sheaf_needs *needs)
{
    if (needs == NULL)
        return;
    sheaf__text_release(&needs->adapter);
    free(needs->json);
    free(needs);
}

const char *sheaf_needs_json(const sheaf_needs *needs)
{
    return needs->json;
}

sheaf_status *sheaf_needs_info(sheaf_needs_facts *facts, const sheaf_needs *needs)
{
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_needs_facts");
    if (st == NULL)
        sheaf__struct_fill(facts, &needs->facts, sizeof *facts);
    return st;
}

sheaf_status *sheaf_needs_timing(sheaf_timing_facts *facts, const sheaf_needs *needs)
{
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_timing_facts");
    if (st == NULL && needs->timing.step == 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_needs_timing"),
                                        "a plan with `time`, of a setting that fits"),
                         "one without");
    if (st == NULL)
        sheaf__struct_fill(facts, &needs->timing, sizeof *facts);
    return st;
}

sheaf_status *sheaf_needs_rank(sheaf_needs_rank_facts *facts, const sheaf_needs *needs, int rank)
{
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_needs_rank_facts");
    if (st != NULL)
        return st;
    if (rank < 0 || rank >= needs->plan.ranks)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "rank"), "0 to %d", needs->plan.ranks - 1), "%d",
            rank);
    const sheaf_plan_rank *r = &needs->plan.rank[rank];
    sheaf__struct_fill(
        facts,
        &(sheaf_needs_rank_facts){ .peak = r->peak, .flops = r->flops, .sent = sheaf_plan_sent(r) },
        sizeof *facts);
    return NULL;
}

const char *sheaf_needs_kind(int kind)
{
    return kind < 0 || kind >= SHEAF_MEM_KINDS ? NULL : sheaf_plan_kind((sheaf_memory)kind);
}

uint64_t sheaf_needs_bytes(const sheaf_needs *needs, int rank, int kind)
{
    const bool is = rank >= 0 && rank < needs->plan.ranks && kind >= 0 && kind < SHEAF_MEM_KINDS;
    return is ? needs->plan.rank[rank].bytes[kind] : 0;
}
