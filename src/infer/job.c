/* job.c - see job.h. */
#include "infer/job.h"

#include "base/base.h"

/* Names a weight that is not finite. */
static sheaf_status *name_weight(sheaf_status *st, const sheaf__model *model)
{
    const char *weight = NULL;
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_NUMBER)
        return st;
    sheaf_status *lost = sheaf__model_bad_weight(&weight, model);
    if (lost != NULL) {
        sheaf_status_free(st);
        return lost;
    }
    return weight == NULL
               ? st
               : sheaf_try_this(st,
                                "the weight '%s' holds a number that is not finite: sheaf verify "
                                "counts such numbers of each tensor",
                                weight);
}

static sheaf_status *run_pass(void *slots, const sheaf__slots_pass *pass)
{
    return sheaf__slots_run(slots, pass);
}

static sheaf_status *copy_rows(void *slots, const struct sheaf__slots_copy *copy)
{
    return sheaf__slots_copy(slots, copy);
}

sheaf_status *sheaf__slots_job_open(sheaf__slots_job *out, const sheaf__member *m,
                                    const sheaf__slots_size *size, int64_t chunk,
                                    bool (*ready)(sheaf__sequence *sequence))
{
    const sheaf__model *model = m->model[0];
    sheaf__order order = { .kind = SHEAF__ORDER_OPEN, .open = *size };
    *out = (sheaf__slots_job){ .scheduler = NULL };
    sheaf_status *st =
        sheaf__lead_settle(model->context, sheaf__lead_send(model->context, &order, NULL));
    TRY(st, sheaf__slots_open(&out->slots, m, size));
    return TRY(st, sheaf__scheduler_open(
                       &out->scheduler,
                       &(sheaf__scheduler_options){ .config = &model->schema->config,
                                                    .models = m->models,
                                                    .places = size->places,
                                                    .length = size->length,
                                                    .chunk = chunk,
                                                    .past = size->single ? &m->cache->prefix : NULL,
                                                    .ready = ready,
                                                    .run = run_pass,
                                                    .copy = copy_rows,
                                                    .self = &out->slots }));
}

sheaf_status *sheaf__slots_job_close(sheaf__slots_job *job, sheaf_status *st,
                                     const sheaf__member *m)
{
    sheaf__order last = { .kind = SHEAF__ORDER_CLOSE,
                          .names = st != NULL && sheaf_status_code(st) == SHEAF_E_NUMBER };
    sheaf__scheduler_close(job->scheduler);
    sheaf__slots_close(&job->slots);
    return name_weight(sheaf__first_of(st, sheaf__lead_order(m->model[0]->context, &last)),
                       m->model[0]);
}

/* ---- the other ranks ---- */

/* Obeys one order; *done: it was the last of a job. A failure is settled. */
static sheaf_status *obey(bool *done, bool *over, sheaf__slots *slots, sheaf__order *order,
                          char *bytes, const sheaf__member *m)
{
    const sheaf__context *c = m->model[0]->context;
    const char *weight;
    sheaf_status *st = NULL;
    if (order->kind == SHEAF__ORDER_PASS || order->kind == SHEAF__ORDER_COPY)
        return sheaf__slots_obey(slots, order, bytes);
    if (order->kind == SHEAF__ORDER_OPEN)
        st = sheaf__slots_open(slots, m, &order->open);
    else if (order->kind == SHEAF__ORDER_WAIT)
        st = sheaf__lead_stopped(over, c, m->stop);
    else if (order->names)
        st = sheaf__model_bad_weight(&weight, m->model[0]);
    *over = order->kind == SHEAF__ORDER_END;
    *done = order->kind == SHEAF__ORDER_CLOSE || *over ||
            (order->kind == SHEAF__ORDER_WAIT && slots->model == NULL);
    return sheaf__lead_settle(c, st);
}

sheaf_status *sheaf__slots_follow(bool *over, const sheaf__member *m)
{
    const sheaf__context *c = m->model[0]->context;
    sheaf__slots slots = { .model = NULL };
    sheaf_status *st = NULL;
    bool done = false;
    *over = false;
    while (!done && st == NULL) {
        sheaf__order order;
        char *bytes;
        st = sheaf__lead_settle(c, sheaf__lead_receive(&order, &bytes, c));
        TRY(st, obey(&done, over, &slots, &order, bytes, m));
        free(bytes);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_PEER) {
            sheaf_status_free(st); /* the leader has it, too, and goes on or ends the job */
            st = NULL;
        }
    }
    sheaf__slots_close(&slots);
    return st;
}
