/* plan.c - what a run needs: sheaf/plan.h. */
#include "sheaf/plan.h"

#include "base/base.h"
#include "base/inside.h"
#include "library/model.h"
#include "library/question.h"
#include "library/take.h"
#include "library/timing.h"
#include "library/session.h"

struct sheaf_needs {
    sheaf_plan plan;
    int64_t seq;
};

/* A question and what it borrows from; begins as zeros. */
typedef struct asked {
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf__settings state;
    sheaf__question q;
    char *base, *config;
    const sheaf_events *events;
} asked;

static void release(asked *a)
{
    sheaf__question_close(&a->q);
    sheaf__settings_release(&a->state);
    free(a->base);
    free(a->config);
}

static sheaf_status *ask_run(asked *a, const sheaf_run_train_options *options)
{
    sheaf_run_train_options o;
    sheaf__question *q = &a->q;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_run_train_options");
    TRY(st, sheaf__train_take(&a->state, a->table, &q->o, &o, true));
    q->whole = q->o.steps == 0 && q->o.epochs == 0;
    if (q->whole)
        q->o.steps = 1;
    if (st == NULL && q->o.model == NULL && q->o.config == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_run_train_options"),
                            "a model, or the setting config");
    if (st == NULL)
        sheaf__train_dtype(&q->o, o.events);
    TRY(st, sheaf__train_settings_check(&a->state, a->table, &q->o));
    a->events = o.events;
    return st == NULL ? sheaf__question_open(q, o.events) : st;
}

static sheaf_status *ask_model(asked *a, const sheaf_model_open_options *options, int64_t batch,
                               int64_t max_new)
{
    sheaf_model_open_options o;
    sheaf__question *q = &a->q;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_open_options");
    sheaf_train_options_default(&q->o);
    TRY(st, sheaf__model_check_open(&o, true));
    TRY(st, sheaf__run_model_base(&a->base, &a->config, o.model));
    q->o.dtype = o.dtype;
    q->o.model = a->base != NULL ? a->base : o.model;
    q->o.config = o.config != NULL ? o.config : a->config;
    if (st == NULL)
        sheaf__train_dtype(&q->o, o.events);
    q->o.adapter = o.adapter;
    q->o.tp = o.tp > 0 ? o.tp : 1;
    q->o.dp = o.dp > 0 ? o.dp : 1;
    q->o.threads = o.threads;
    q->o.micro_batch = batch > 0 ? batch : 1;
    q->max_new = max_new;
    if (o.slices > 0)
        q->o.slices = o.slices;
    q->o.seq = o.positions;
    q->place_text = o.place != NULL ? o.place : "1";
    a->events = o.events;
    return st == NULL ? sheaf__question_open(q, o.events) : st;
}

/* `st`: of asking, consumed. */
static sheaf_status *answer(sheaf_needs **out, asked *a, sheaf_status *st)
{
    sheaf_needs *needs = st == NULL ? calloc(1, sizeof *needs) : NULL;
    if (st == NULL && needs == NULL)
        st = sheaf__no_memory("plan");
    TRY(st, sheaf__question_answer(&needs->plan, &a->q));
    if (st == NULL) {
        needs->seq = a->q.seq;
        *out = needs;
    } else {
        free(needs);
    }
    return st;
}

sheaf_status *sheaf_run_plan(sheaf_needs **out, const sheaf_run_train_options *options)
{
    SHEAF__INSIDE;
    asked a = { 0 };
    *out = NULL;
    sheaf_status *st = answer(out, &a, ask_run(&a, options));
    release(&a);
    return st;
}

sheaf_status *sheaf_model_plan(sheaf_needs **out, const sheaf_model_open_options *options)
{
    SHEAF__INSIDE;
    asked a = { 0 };
    *out = NULL;
    sheaf_status *st = answer(out, &a, ask_model(&a, options, 1, 0));
    release(&a);
    return st;
}

void sheaf_needs_free(sheaf_needs *needs)
{
    free(needs);
}

sheaf_status *sheaf_needs_look(sheaf_needs_facts *facts, const sheaf_needs *needs)
{
    const sheaf_plan *p = &needs->plan;
    sheaf_status *st = sheaf__take_report(facts, "sheaf_needs_facts");
    if (st == NULL)
        sheaf__give_report(facts,
                           &(sheaf_needs_facts){ .ranks = p->ranks,
                                                 .process = p->process,
                                                 .fullest = sheaf_plan_fullest(p),
                                                 .parameters = p->parameters,
                                                 .trained = p->trained,
                                                 .seq = needs->seq },
                           sizeof *facts);
    return st;
}

sheaf_status *sheaf_needs_rank(sheaf_needs_rank_facts *facts, const sheaf_needs *needs, int rank)
{
    sheaf_status *st = sheaf__take_report(facts, "sheaf_needs_rank_facts");
    if (st != NULL)
        return st;
    if (rank < 0 || rank >= needs->plan.ranks)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "rank"), "0 to %d", needs->plan.ranks - 1), "%d",
            rank);
    const sheaf_plan_rank *r = &needs->plan.rank[rank];
    sheaf__give_report(
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

/* ---- how long it takes ---- */

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

/* Are they a report and options that can be, before anything is read? */
static sheaf_status *take_timing(sheaf_timing_options *out, const sheaf_timing_facts *facts,
                                 const sheaf_timing_options *how)
{
    static const char of[] = "sheaf_timing_options";
    sheaf_status *st = sheaf__take_report(facts, "sheaf_timing_facts");
    TRY(st, sheaf__take_options(out, sizeof *out, how, of));
    if (st == NULL && out->batch != 0)
        st = sheaf__take_count(of, "batch", out->batch, SHEAF__MOST_ROWS);
    if (st == NULL && out->max_new != 0)
        st = sheaf__take_count(of, "max_new", out->max_new, SHEAF__MOST_POSITIONS);
    return st;
}

/* `st`: of asking, consumed. */
static sheaf_status *time_question(sheaf_timing_facts *facts, const asked *a, sheaf_status *st)
{
    sheaf__timing found;
    TRY(st, sheaf__timing_find(&found, &a->q, a->events));
    if (st == NULL) {
        const sheaf_timing_facts got = facts_of(&found);
        sheaf__give_report(facts, &got, sizeof got);
    }
    return st;
}

sheaf_status *sheaf_run_timing(sheaf_timing_facts *facts, const sheaf_run_train_options *options)
{
    SHEAF__INSIDE;
    asked a = { 0 };
    sheaf_status *st = sheaf__take_report(facts, "sheaf_timing_facts");
    TRY(st, ask_run(&a, options));
    st = time_question(facts, &a, st);
    release(&a);
    return st;
}

sheaf_status *sheaf_model_timing(sheaf_timing_facts *facts, const sheaf_model_open_options *options,
                                 const sheaf_timing_options *how)
{
    SHEAF__INSIDE;
    asked a = { 0 };
    sheaf_timing_options h = { 0 };
    sheaf_status *st = take_timing(&h, facts, how);
    TRY(st, ask_model(&a, options, h.batch, h.max_new));
    if (st == NULL && a.q.o.dp > 1) /* each group's prompts take the time of one group */
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_open_options: dp"),
                                        "one group, and `batch` of its prompts"),
                         "%d", a.q.o.dp);
    st = time_question(facts, &a, st);
    release(&a);
    return st;
}
