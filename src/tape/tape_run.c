/* tape_run.c - runs a compiled tape: takes and gives back the memory of values, and looks at what
 * was computed; see tape.h. */
#include "tape/tape_inner.h"

#include "base/base.h"
#include "comm/activity.h"
#include "ops/tensor/tensor.h"
#include "tape/kept.h"

void sheaf__tape_drop(sheaf__tape *tape)
{
    for (int64_t i = 0; i < tape->nvalues; i++) {
        sheaf__value *value = tape->value[i];
        if (value->live_data && !value->shared)
            sheaf__device_free(tape->context->device, value->data);
        if (value->live_grad)
            sheaf__device_free(tape->context->device, value->grad);
        sheaf__device_free(tape->context->device, value->shrunk);
        value->shrunk = NULL;
        value->stored = value->live_data = value->live_grad = value->shared = value->remade = false;
        value->data = value->grad = NULL;
    }
}

static sheaf_status *allocate(sheaf__tape *tape, const sheaf__value *value, void **out)
{
    const size_t bytes =
        (size_t)(sheaf__value_rows(value) * value->cols) * sheaf_dtype_bytes(value->dtype);
    return sheaf_in(sheaf__device_alloc(out, tape->context->device, bytes, SHEAF_MEM_ACTIVATIONS),
                    "%s", value->name);
}

/* Does its data die after this step? */
static bool dies(const sheaf__tape *tape, const sheaf__step *s, const sheaf__value *value)
{
    for (int i = 0; i < s->ndead; i++)
        if (tape->dead[s->first_dead + i] == value)
            return true;
    return false;
}

static sheaf_status *reserve_grad(sheaf__tape *tape, const sheaf__step *s, sheaf__value *value,
                                  unsigned use)
{
    sheaf_status *st = NULL;
    value->grad_fresh = !value->live_grad;
    if (value->live_grad)
        return NULL;
    if ((use & SHEAF__OVER) && value->live_data && dies(tape, s, value)) {
        value->grad = value->data;
        value->shared = true;
    } else {
        st = allocate(tape, value, &value->grad);
    }
    value->live_grad = st == NULL;
    return st;
}

static sheaf_status *restore(sheaf__tape *tape, const sheaf__step *s, sheaf__arg arg)
{
    sheaf__value *value = arg.value;
    if (!value->stored || !sheaf__step_wants(s, arg))
        return NULL;
    sheaf_status *st = allocate(tape, value, &value->data);
    value->live_data = st == NULL;
    return TRY(st, sheaf__value_restore(tape->context, value));
}

static sheaf_status *reserve(sheaf__tape *tape, const sheaf__step *s)
{
    for (int a = 0; a < sheaf__step_args(s); a++) {
        sheaf__value *value = sheaf__step_arg(s, a).value;
        const unsigned use = sheaf__step_arg(s, a).use;
        sheaf_status *st = restore(tape, s, sheaf__step_arg(s, a));
        if (st != NULL)
            return st;
        if (!s->backward && (use & SHEAF__MAKE) && !value->live_data) {
            st = allocate(tape, value, &value->data);
            value->live_data = st == NULL;
        }
        if (s->backward && (use & SHEAF__GRAD_WRITE) && value->needs_grad)
            st = reserve_grad(tape, s, value, use);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static sheaf_status *give_back(sheaf__tape *tape, const sheaf__step *s)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < s->ndead; i++) {
        sheaf__value *value = tape->dead[s->first_dead + i];
        if ((value->shrinks || value->leaves) && !s->backward && !s->again)
            TRY(st, sheaf__value_store(tape->context, value));
        if (value->live_data && !value->shared)
            sheaf__device_free(tape->context->device, value->data);
        value->live_data = value->shared = false;
        value->data = NULL;
    }
    for (int a = 0; s->backward && a < sheaf__step_args(s); a++) {
        sheaf__value *value = sheaf__step_arg(s, a).value;
        value->grad_fresh = false;
        if (value->remade) { /* its data lay where the gradient was */
            value->remade = false;
            value->data = NULL;
        }
        if (!(sheaf__step_arg(s, a).use & SHEAF__GRAD_READ) || !value->live_grad)
            continue;
        sheaf__device_free(tape->context->device, value->grad);
        value->live_grad = false;
        value->grad = NULL;
    }
    return st;
}

/* The first argument in which a step left something that is not finite; -1: none. Rows that see no
 * key have a maximum of -inf; only what flows on counts. */
static int bad_argument(const sheaf__tape *tape, const sheaf__step *s)
{
    const unsigned forward = SHEAF__MAKE | SHEAF__CHANGE,
                   backward = SHEAF__GRAD_WRITE | SHEAF__GRAD_CHANGE;
    for (int a = 0; a < sheaf__step_args(s); a++) {
        const sheaf__value *v = sheaf__step_arg(s, a).value;
        const unsigned use = sheaf__step_arg(s, a).use;
        const bool looked_at = s->backward ? (use & backward) && v->live_grad
                                           : (use & forward) && v->live_data && !v->statistic;
        if (looked_at &&
            !sheaf__op_is_finite(tape->context->device, s->backward ? v->grad : v->data, v->dtype,
                                 sheaf__rows_present(v) * v->cols, v->dtype))
            return a;
    }
    return -1;
}

/* ---- what a run consists of ---- */

typedef struct mark {
    double flops, seconds, waiting;
} mark;

static mark mark_of(const sheaf__context *c)
{
    sheaf__costs costs;
    sheaf__costs_of(&costs, c);
    return (mark){ costs.flops, sheaf__context_now(c), sheaf__costs_waiting(&costs) };
}

static void count_work(const sheaf__context *c, const sheaf__step *s, const mark *before)
{
    const double ended = sheaf__context_now(c); /* before looking, which takes some */
    const mark after = mark_of(c);
    double flops = after.flops - before->flops, bytes = 0;
    for (int a = 0; a < sheaf__step_args(s); a++) {
        const sheaf__value *v = sheaf__step_arg(s, a).value;
        bytes += (double)v->rows * (double)v->cols * (double)sheaf_dtype_bytes(v->dtype);
        if (v->there != NULL && (v->blocks == NULL || !v->blocks->known_ahead))
            flops = 0;
    }
    const sheaf__work_way way = s->backward ? SHEAF__WORK_BACKWARD
                                : s->again  ? SHEAF__WORK_AGAIN
                                            : SHEAF__WORK_FORWARD;
    sheaf__work_sum *sum = &c->work->sum[s->op->kind][way][flops > 0];
    sum->runs++;
    sum->flops += flops;
    sum->bytes += bytes;
    sum->seconds += ended - before->seconds;
    sum->waiting += after.waiting - before->waiting;
}

static void note_bad(sheaf__tape *tape, const sheaf__step *s, int argument)
{
    if (argument < 0)
        return;
    *tape->bad = (s - tape->steps) * SHEAF__STEP_ARGS + argument;
    tape->bad = NULL;
}

/* As its first argument, which a step forward of such an op only reads. */
void sheaf__tape_check_values(sheaf__tape *tape, const void *data, int64_t n, sheaf_dtype dtype)
{
    if (tape->bad != NULL && !sheaf__op_is_finite(tape->context->device, data, dtype, n, dtype))
        note_bad(tape, tape->now, 0);
}

sheaf_status *sheaf__tape_recompute(sheaf__tape *tape, sheaf__value *x)
{
    const sheaf__step *s = tape == NULL ? NULL : tape->now;
    if (s == NULL || s->maker == NULL || s->op->arg[0].value != x)
        return NULL;
    sheaf__tape_check_values(tape, x->grad, sheaf__rows_present(x) * x->cols, x->dtype);
    sheaf__activity_op(tape->context->activity, "backward", s->maker->name, s->maker->layer);
    x->remade = true;
    sheaf_status *st = s->maker->backward(tape, s->maker);
    x->data = x->grad;
    sheaf__activity_op(tape->context->activity, "backward", s->op->name, s->op->layer);
    return st;
}

/* bad: gets step * SHEAF__STEP_ARGS + argument of the first bad one; stays where none is. NULL:
 * nothing is looked at. */
static sheaf_status *run_steps(sheaf__tape *tape, int64_t *bad)
{
    tape->bad = bad;
    sheaf__tape_drop(tape); /* those that are pinned, of the run before */
    sheaf_status *st = sheaf__tape_begin_away(tape);
    TRY(st, sheaf__tape_begin_leaving(tape));
    for (int64_t i = 0; i < tape->nsteps && st == NULL; i++) {
        const sheaf__step *s = &tape->steps[i];
        sheaf__activity_op(tape->context->activity,
                           s->backward ? "backward"
                           : s->again  ? "forward again"
                                       : "forward",
                           s->op->name, s->op->layer);
        const mark start = tape->context->work == NULL ? (mark){ 0 } : mark_of(tape->context);
        tape->now = s;
        st = reserve(tape, s);
        TRY(st, sheaf__step_bring(tape, s));
        sheaf__set_purpose(tape->context,
                           s->backward ? SHEAF__TRAFFIC_BACKWARD : SHEAF__TRAFFIC_FORWARD);
        TRY(st, (s->backward ? s->op->backward : s->op->forward)(tape, s->op));
        /* also after a failure, so that the next run does not meet what this one left */
        st = sheaf__first_of(st, sheaf__device_check(tape->context->device));
        sheaf__step_leave(tape, s);
        if (st == NULL && tape->bad != NULL)
            note_bad(tape, s, bad_argument(tape, s));
        TRY(st, give_back(tape, s));
        if (st != NULL) {
            sheaf__tape_drop(tape);
            return s->op->layer >= 0 ? sheaf_in(st, "layer %d: %s", s->op->layer, s->op->name)
                                     : sheaf_in(st, "%s", s->op->name);
        }
        if (tape->context->work != NULL)
            count_work(tape->context, s, &start);
    }
    sheaf__activity_phase(tape->context->activity, NULL);
    return st;
}

static sheaf_status *run(sheaf__tape *tape, int64_t *bad)
{
    sheaf_status *st = run_steps(tape, bad);
    st = sheaf__first_of(st, sheaf__tape_end_leaving(tape));
    sheaf__set_purpose(tape->context, SHEAF__TRAFFIC_OTHER);
    return TRY(st, sheaf__device_check(tape->context->device));
}

sheaf_status *sheaf__tape_run(sheaf__tape *tape)
{
    return run(tape, NULL);
}

sheaf_status *sheaf__tape_run_checked(sheaf__nonfinite *out, sheaf__tape *tape)
{
    const sheaf__context *c = tape->context;
    const int64_t none = tape->nsteps * SHEAF__STEP_ARGS;
    int64_t bad = none;
    *out = (sheaf__nonfinite){ .layer = -1 };
    sheaf_status *st = run(tape, &bad);
    float first = -(float)bad; /* ranks hold different columns: the earliest of all of them */
    if (st == NULL && c->comm != NULL)
        st = sheaf_comm_max(c->comm, &first, 1);
    bad = (int64_t)-first;
    if (st != NULL || bad >= none)
        return st;
    const sheaf__step *s = &tape->steps[bad / SHEAF__STEP_ARGS];
    const int argument = (int)(bad % SHEAF__STEP_ARGS);
    const bool inner = s->op->inner != NULL && argument == 0 && !s->backward;
    *out = (sheaf__nonfinite){ s->op->name,
                               inner ? s->op->inner : sheaf__step_arg(s, argument).value->name,
                               s->op->layer, s->backward };
    return NULL;
}
