/* plan.c - what a run needs: sheaf/plan.h. */
#include "sheaf/plan.h"

#include <stdlib.h>
#include <string.h>

#include "library/model.h"
#include "library/question.h"
#include "library/take.h"
#include "library/train.h"

struct sheaf_needs {
    sheaf_plan plan;
    int64_t seq;
};

static sheaf_status *answer(sheaf_needs **out, sheaf__question *q, const sheaf_events *events)
{
    sheaf_needs *needs = calloc(1, sizeof *needs);
    sheaf_status *st =
        needs == NULL ? sheaf_fail(SHEAF_E_MEMORY, "plan") : sheaf__question_open(q, events);
    if (st == NULL)
        st = sheaf__question_answer(&needs->plan, q);
    if (st == NULL) {
        needs->seq = q->seq;
        *out = needs;
    } else {
        free(needs);
    }
    return st;
}

sheaf_status *sheaf_run_plan(sheaf_needs **out, const sheaf_run_train_options *options)
{
    sheaf_run_train_options o;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf__settings state = { 0 };
    sheaf__question q = { 0 };
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_run_train_options");
    if (st == NULL)
        st = sheaf__train_take(&state, table, &q.o, &o, true);
    q.whole = q.o.steps == 0 && q.o.epochs == 0;
    if (q.whole)
        q.o.steps = 1;
    if (st == NULL && q.o.model == NULL && q.o.config == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_run_train_options"),
                            "a model, or the setting config");
    if (st == NULL)
        st = sheaf__train_settings_check(&state, table, &q.o);
    if (st == NULL)
        st = answer(out, &q, o.events);
    sheaf__question_close(&q);
    sheaf__settings_release(&state);
    return st;
}

sheaf_status *sheaf_model_plan(sheaf_needs **out, const sheaf_model_open_options *options)
{
    sheaf_model_open_options o;
    sheaf__question q = { 0 };
    char *base = NULL, *config = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_open_options");
    sheaf_train_options_default(&q.o);
    if (st == NULL && o.model == NULL && o.config == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_open_options"),
                            "a model, or a config");
    if (st == NULL)
        st = sheaf__take_activations(&q.o.dtype, o.dtype == NULL ? "float32" : o.dtype);
    if (st == NULL)
        st = sheaf__run_model_base(&base, &config, o.model);
    q.o.model = base != NULL ? base : o.model;
    q.o.config = o.config != NULL ? o.config : config;
    q.o.adapter = o.adapter;
    q.o.tp = o.tp > 0 ? o.tp : 1;
    q.o.threads = o.threads;
    q.o.micro_batch = 1;
    if (o.slices > 0)
        q.o.slices = o.slices;
    q.o.seq = o.positions;
    q.place_text = o.place != NULL ? o.place : "1";
    if (st == NULL)
        st = answer(out, &q, o.events);
    sheaf__question_close(&q);
    free(base);
    free(config);
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
