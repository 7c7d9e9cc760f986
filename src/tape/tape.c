/* tape.c - see tape.h.
 *
 * A compiled tape is a flat list of steps. Liveness is worked out once, walking
 * the list from its end: the last step that reads a value before it is made
 * again is where its memory goes back. */
#include "tape/tape.h"

#include "base/base.h"
#include "comm/activity.h"
#include "ops/tensor/tensor.h"

enum { STEP_ARGS = 2 * SHEAF__MAX_ARGS };

typedef struct step {
    sheaf__op *op;
    sheaf__op *maker;      /* of its first argument, whose backward pass runs within; or NULL */
    bool backward, again;  /* again: of a segment that is run again, or of a cheap op */
    int first_dead, ndead; /* range in tape->dead */
} step;

struct sheaf__tape {
    sheaf__context *context;
    sheaf__value **value;
    int64_t nvalues, value_capacity;
    sheaf__op **op;
    int64_t nops, op_capacity;
    step *steps;
    int64_t nsteps;
    sheaf__value **dead; /* values whose data dies after a step, grouped by step */
    int64_t ndead, dead_capacity;
    void **held; /* sheaf__tape_host_memory() */
    int64_t nheld, held_capacity;
    int segment, nsegments, layer;
    const step *now; /* the step that runs */
    int64_t *bad;    /* of a run that looks for bad values, see run_steps() */
    bool no_memory;
    sheaf__value spare_value;
    sheaf__op spare_op;
    _Alignas(max_align_t) char spare_params[4096];
};

sheaf_status *sheaf__tape_new(sheaf__tape **out, sheaf__context *context)
{
    sheaf__tape *tape = calloc(1, sizeof *tape);
    if (tape == NULL)
        return sheaf__no_memory("tape");
    tape->context = context;
    tape->segment = -1;
    tape->layer = -1;
    *out = tape;
    return NULL;
}

static void drop_values(sheaf__tape *tape)
{
    for (int64_t i = 0; i < tape->nvalues; i++) {
        sheaf__value *value = tape->value[i];
        if (value->live_data && !value->shared)
            sheaf__device_free(tape->context->device, value->data);
        if (value->live_grad)
            sheaf__device_free(tape->context->device, value->grad);
        value->live_data = value->live_grad = value->shared = value->remade = false;
        value->data = value->grad = NULL;
    }
}

void sheaf__tape_free(sheaf__tape *tape)
{
    if (tape == NULL)
        return;
    drop_values(tape);
    for (int64_t i = 0; i < tape->nvalues; i++)
        free(tape->value[i]);
    for (int64_t i = 0; i < tape->nops; i++) {
        free(tape->op[i]->params);
        free(tape->op[i]);
    }
    for (int64_t i = 0; i < tape->nheld; i++)
        free(tape->held[i]);
    free(tape->held);
    free(tape->value);
    free(tape->op);
    free(tape->steps);
    free(tape->dead);
    free(tape);
}

sheaf__context *sheaf__tape_context(sheaf__tape *tape)
{
    return tape->context;
}

sheaf__value *sheaf__tape_value(sheaf__tape *tape, const char *name, int64_t rows, int64_t cols,
                                sheaf_dtype dtype)
{
    sheaf__value *value = calloc(1, sizeof *value);
    if (value == NULL || !SHEAF_GROW(&tape->value, &tape->value_capacity, tape->nvalues + 1)) {
        free(value);
        tape->no_memory = true;
        return &tape->spare_value;
    }
    tape->value[tape->nvalues++] = value;
    *value = (sheaf__value){
        .name = name, .layer = tape->layer, .rows = rows, .cols = cols, .dtype = dtype
    };
    return value;
}

sheaf__op *sheaf__tape_op(sheaf__tape *tape, const char *name, sheaf__op_fn *forward,
                          sheaf__op_fn *backward, size_t params_bytes)
{
    if (params_bytes > sizeof tape->spare_params)
        abort(); /* our mistake: an op with more parameters than the tape keeps a spare for */
    sheaf__op *op = calloc(1, sizeof *op);
    void *params = calloc(1, params_bytes + 1);
    if (op == NULL || params == NULL ||
        !SHEAF_GROW(&tape->op, &tape->op_capacity, tape->nops + 1)) {
        free(op);
        free(params);
        tape->no_memory = true;
        tape->spare_op = (sheaf__op){ .params = tape->spare_params };
        return &tape->spare_op;
    }
    tape->op[tape->nops++] = op;
    *op = (sheaf__op){ .name = name,
                       .layer = tape->layer,
                       .kind = SHEAF__WORK_ELEMENTS,
                       .forward = forward,
                       .backward = backward,
                       .params = params,
                       .segment = tape->segment };
    return op;
}

sheaf__value *sheaf__tape_like(sheaf__tape *tape, const sheaf__value *x, const char *name,
                               int64_t cols, sheaf_dtype dtype)
{
    sheaf__value *y = sheaf__tape_value(tape, name, x->rows, cols, dtype);
    y->there = x->there;
    y->blocks = x->blocks;
    return y;
}

sheaf__value *sheaf__op_makes(sheaf__op *op, sheaf__value *y, sheaf__value *x, unsigned keep)
{
    y->needs_grad = op->backward != NULL;
    if (x != NULL)
        sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE | keep);
    sheaf__op_arg(op, y, SHEAF__MAKE | SHEAF__GRAD_READ);
    return y;
}

void sheaf__op_changes(sheaf__op *op, sheaf__value *x, bool flows)
{
    sheaf__op_arg(op, x, SHEAF__CHANGE | (x->needs_grad ? SHEAF__GRAD_CHANGE : SHEAF__GRAD_READ));
    x->needs_grad = flows;
}

void *sheaf__tape_host_memory(sheaf__tape *tape, size_t bytes)
{
    void *block = calloc(1, bytes + 1);
    if (block == NULL || !SHEAF_GROW(&tape->held, &tape->held_capacity, tape->nheld + 1)) {
        free(block);
        tape->no_memory = true;
        return NULL;
    }
    return tape->held[tape->nheld++] = block;
}

void sheaf__op_arg(sheaf__op *op, sheaf__value *value, unsigned use)
{
    if (op->nargs == SHEAF__MAX_ARGS)
        abort(); /* our mistake: an op with more arguments than the tape allows */
    op->arg[op->nargs].value = value;
    op->arg[op->nargs++].use = use;
    if (use & SHEAF__MAKE)
        value->maker = op;
    value->changed = value->changed || (use & SHEAF__CHANGE) != 0;
    value->readers += (use & (SHEAF__READ | SHEAF__CHANGE | SHEAF__KEEP)) != 0;
}

void sheaf__tape_segment_begin(sheaf__tape *tape, int layer)
{
    tape->segment = tape->nsegments++;
    tape->layer = layer;
}

void sheaf__tape_segment_end(sheaf__tape *tape)
{
    tape->segment = -1;
    tape->layer = -1;
}

static bool flows_back(const sheaf__tape *tape, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        if (tape->op[i]->backward != NULL)
            return true;
    return false;
}

/* Does the forward pass of this op, run once more during backward, give the same? */
static bool can_make_again(const sheaf__op *op)
{
    bool can = op->cheap && op->backward != NULL;
    for (int a = 0; a < op->nargs && can; a++) {
        const unsigned use = op->arg[a].use;
        can = (use & SHEAF__READ) ? (use & SHEAF__KEEP) != 0 : !op->arg[a].value->changed;
    }
    return can;
}

/* After what it reads, where that is made again too. */
static void make_again(sheaf__tape *tape, sheaf__op *op)
{
    op->made_again = true;
    for (int a = 0; a < op->nargs; a++) {
        sheaf__op *before = op->arg[a].value->maker;
        if ((op->arg[a].use & SHEAF__READ) && before != NULL && !before->made_again &&
            can_make_again(before))
            make_again(tape, before);
    }
    tape->steps[tape->nsteps++] = (step){ .op = op, .again = true };
}

/* What the backward pass of an op keeps, where it is made again. */
static void make_kept(sheaf__tape *tape, const sheaf__op *op)
{
    for (int a = 0; a < op->nargs; a++) {
        sheaf__op *maker = op->arg[a].value->maker;
        if ((op->arg[a].use & SHEAF__KEEP) && maker != NULL && maker != op && !maker->within &&
            !maker->made_again && can_make_again(maker))
            make_again(tape, maker);
    }
}

/* The op whose backward pass can run within that of op i: it stands right before and they share
 * nothing else, so that gradients are added up in the same order; nothing else reads what it made.
 */
static sheaf__op *maker_within(const sheaf__tape *tape, int64_t i)
{
    const sheaf__op *op = tape->op[i];
    sheaf__op *before = i > 0 ? tape->op[i - 1] : NULL;
    if (before == NULL || !op->reads_late || !before->remakes || before->segment != op->segment)
        return NULL;
    const unsigned wanted = SHEAF__KEEP | SHEAF__GRAD_WRITE;
    const sheaf__value *x = op->arg[0].value;
    bool can = x->maker == before && x->readers == 1 && !x->pinned &&
               (op->arg[0].use & wanted) == wanted && x->needs_grad && can_make_again(before);
    for (int a = 1; a < op->nargs && can; a++)
        for (int b = 0; b < before->nargs; b++)
            can = can && op->arg[a].value != before->arg[b].value;
    return can ? before : NULL;
}

static void lay_out_backward(sheaf__tape *tape, int64_t i)
{
    sheaf__op *op = tape->op[i], *maker = maker_within(tape, i);
    if (maker != NULL) {
        maker->within = true;
        make_kept(tape, maker);
    }
    make_kept(tape, op);
    tape->steps[tape->nsteps++] = (step){ .op = op, .maker = maker, .backward = true };
}

/* Steps of the whole run, in order. With rerun, a segment's forward steps come again
 * right before its backward steps, if it has any. */
static void lay_out_steps(sheaf__tape *tape, bool backward, bool rerun)
{
    for (int64_t i = 0; i < tape->nops; i++) {
        tape->op[i]->made_again = tape->op[i]->within = false;
        tape->steps[tape->nsteps++] = (step){ .op = tape->op[i] };
    }
    if (!backward)
        return;
    for (int64_t end = tape->nops; end > 0;) {
        int64_t begin = end - 1;
        const int segment = tape->op[begin]->segment;
        if (segment >= 0 && rerun) {
            while (begin > 0 && tape->op[begin - 1]->segment == segment)
                begin--;
            for (int64_t i = begin; i < end && flows_back(tape, begin, end); i++)
                tape->steps[tape->nsteps++] = (step){ .op = tape->op[i], .again = true };
        }
        for (int64_t i = end - 1; i >= begin; i--)
            if (tape->op[i]->backward != NULL && !tape->op[i]->within)
                lay_out_backward(tape, i);
        end = begin;
    }
}

/* The arguments of a step: those of its op, then those of an op that runs within. */
static int args_of(const step *s)
{
    return s->op->nargs + (s->maker == NULL ? 0 : s->maker->nargs);
}

static sheaf__arg arg_of(const step *s, int a)
{
    const sheaf__op *op = a < s->op->nargs ? s->op : s->maker;
    const int at = a < s->op->nargs ? a : a - s->op->nargs;
    sheaf__arg arg = op->arg[at];
    if (s->maker != NULL && a == 0)
        arg.use &= ~(unsigned)SHEAF__KEEP; /* it is made within */
    return arg;
}

/* Is nothing that a step makes or changes read later? So it is with the last layer of a segment
 * that is run again. */
static bool is_idle(const step *s)
{
    bool idle = s->again;
    for (int a = 0; a < s->op->nargs && idle; a++)
        idle = (s->op->arg[a].use & (SHEAF__MAKE | SHEAF__CHANGE)) == 0 ||
               !s->op->arg[a].value->live_data;
    return idle;
}

/* Walks the steps from the end; live_data serves as the mark "read later". Idle steps lose their
 * op. */
static bool find_deaths(sheaf__tape *tape)
{
    for (int64_t i = tape->nsteps - 1; i >= 0; i--) {
        step *s = &tape->steps[i];
        s->first_dead = (int)tape->ndead;
        if (is_idle(s)) {
            s->op = NULL;
            continue;
        }
        const unsigned reads = s->backward ? SHEAF__KEEP : SHEAF__READ | SHEAF__CHANGE;
        for (int pass = 0; pass < 2; pass++) /* reads first, then what is made here */
            for (int a = 0; a < args_of(s); a++) {
                sheaf__value *value = arg_of(s, a).value;
                const unsigned use = arg_of(s, a).use;
                const bool touched =
                    pass == 0 ? (use & reads) != 0 : !s->backward && (use & SHEAF__MAKE) != 0;
                if (!touched)
                    continue;
                if (!value->live_data && !value->pinned) {
                    if (!SHEAF_GROW(&tape->dead, &tape->dead_capacity, tape->ndead + 1))
                        return false;
                    tape->dead[tape->ndead++] = value;
                    s->ndead++;
                }
                value->live_data = pass == 0;
            }
    }
    for (int64_t i = 0; i < tape->nvalues; i++)
        tape->value[i]->live_data = false;
    return true;
}

sheaf_status *sheaf__tape_compile(sheaf__tape *tape, bool backward, bool rerun)
{
    free(tape->steps);
    tape->nsteps = tape->ndead = 0;
    tape->steps = calloc((size_t)tape->nops * 4 + 1, sizeof *tape->steps);
    if (tape->no_memory || tape->steps == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "tape of %lld ops", (long long)tape->nops);
    lay_out_steps(tape, backward, rerun);
    if (!find_deaths(tape))
        return sheaf_fail(SHEAF_E_MEMORY, "tape of %lld steps", (long long)tape->nsteps);
    int64_t kept = 0;
    for (int64_t i = 0; i < tape->nsteps; i++)
        if (tape->steps[i].op != NULL)
            tape->steps[kept++] = tape->steps[i];
    tape->nsteps = kept;
    return NULL;
}

static sheaf_status *allocate(sheaf__tape *tape, const sheaf__value *value, void **out)
{
    const bool known = value->blocks != NULL && value->blocks->known_ahead;
    const int64_t rows = known ? sheaf__rows_present(value) : value->rows;
    const size_t bytes = (size_t)rows * (size_t)value->cols * sheaf_dtype_bytes(value->dtype);
    return sheaf_in(sheaf__device_alloc(out, tape->context->device, bytes, SHEAF_MEM_ACTIVATIONS),
                    "%s", value->name);
}

/* Does its data die after this step? */
static bool dies(const sheaf__tape *tape, const step *s, const sheaf__value *value)
{
    for (int i = 0; i < s->ndead; i++)
        if (tape->dead[s->first_dead + i] == value)
            return true;
    return false;
}

static sheaf_status *reserve_grad(sheaf__tape *tape, const step *s, sheaf__value *value,
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

static sheaf_status *reserve(sheaf__tape *tape, const step *s)
{
    for (int a = 0; a < args_of(s); a++) {
        sheaf__value *value = arg_of(s, a).value;
        const unsigned use = arg_of(s, a).use;
        sheaf_status *st = NULL;
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

static void give_back(sheaf__tape *tape, const step *s)
{
    for (int i = 0; i < s->ndead; i++) {
        sheaf__value *value = tape->dead[s->first_dead + i];
        if (value->live_data && !value->shared)
            sheaf__device_free(tape->context->device, value->data);
        value->live_data = value->shared = false;
        value->data = NULL;
    }
    for (int a = 0; s->backward && a < args_of(s); a++) {
        sheaf__value *value = arg_of(s, a).value;
        value->grad_fresh = false;
        if (value->remade) { /* its data lay where the gradient was */
            value->remade = false;
            value->data = NULL;
        }
        if (!(arg_of(s, a).use & SHEAF__GRAD_READ) || !value->live_grad)
            continue;
        sheaf__device_free(tape->context->device, value->grad);
        value->live_grad = false;
        value->grad = NULL;
    }
}

/* The first argument in which a step left something that is not finite; -1: none. Rows that see no
 * key have a maximum of -inf; only what flows on counts. */
static int bad_argument(const sheaf__tape *tape, const step *s)
{
    const unsigned forward = SHEAF__MAKE | SHEAF__CHANGE,
                   backward = SHEAF__GRAD_WRITE | SHEAF__GRAD_CHANGE;
    for (int a = 0; a < args_of(s); a++) {
        const sheaf__value *v = arg_of(s, a).value;
        const unsigned use = arg_of(s, a).use;
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

static void count_work(const sheaf__context *c, const step *s, const mark *before)
{
    const double ended = sheaf__context_now(c); /* before looking, which takes some */
    const mark after = mark_of(c);
    double flops = after.flops - before->flops, bytes = 0;
    for (int a = 0; a < args_of(s); a++) {
        const sheaf__value *v = arg_of(s, a).value;
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

static void note_bad(sheaf__tape *tape, const step *s, int argument)
{
    if (argument < 0)
        return;
    *tape->bad = (s - tape->steps) * STEP_ARGS + argument;
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
    const step *s = tape == NULL ? NULL : tape->now;
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

/* bad: gets step * STEP_ARGS + argument of the first bad one; stays where none is. NULL: nothing is
 * looked at. */
static sheaf_status *run_steps(sheaf__tape *tape, int64_t *bad)
{
    tape->bad = bad;
    drop_values(tape); /* those that are pinned, of the run before */
    for (int64_t i = 0; i < tape->nsteps; i++) {
        const step *s = &tape->steps[i];
        sheaf__activity_op(tape->context->activity,
                           s->backward ? "backward"
                           : s->again  ? "forward again"
                                       : "forward",
                           s->op->name, s->op->layer);
        const mark begun = tape->context->work == NULL ? (mark){ 0 } : mark_of(tape->context);
        tape->now = s;
        sheaf_status *st = reserve(tape, s);
        sheaf__set_purpose(tape->context,
                           s->backward ? SHEAF__TRAFFIC_BACKWARD : SHEAF__TRAFFIC_FORWARD);
        TRY(st, (s->backward ? s->op->backward : s->op->forward)(tape, s->op));
        /* also after a failure, so that the next run does not meet what this one left */
        st = sheaf__first_of(st, sheaf__device_check(tape->context->device));
        if (st != NULL) {
            drop_values(tape);
            return s->op->layer >= 0 ? sheaf_in(st, "layer %d: %s", s->op->layer, s->op->name)
                                     : sheaf_in(st, "%s", s->op->name);
        }
        if (tape->bad != NULL)
            note_bad(tape, s, bad_argument(tape, s));
        give_back(tape, s);
        if (tape->context->work != NULL)
            count_work(tape->context, s, &begun);
    }
    sheaf__activity_phase(tape->context->activity, NULL);
    return NULL;
}

static sheaf_status *run(sheaf__tape *tape, int64_t *bad)
{
    sheaf_status *st = run_steps(tape, bad);
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
    const int64_t none = tape->nsteps * STEP_ARGS;
    int64_t bad = none;
    *out = (sheaf__nonfinite){ .layer = -1 };
    sheaf_status *st = run(tape, &bad);
    float first = -(float)bad; /* ranks hold different columns: the earliest of all of them */
    if (st == NULL && c->comm != NULL)
        st = sheaf_comm_max(c->comm, &first, 1);
    bad = (int64_t)-first;
    if (st != NULL || bad >= none)
        return st;
    const step *s = &tape->steps[bad / STEP_ARGS];
    const int argument = (int)(bad % STEP_ARGS);
    const bool inner = s->op->inner != NULL && argument == 0 && !s->backward;
    *out = (sheaf__nonfinite){ s->op->name, inner ? s->op->inner : arg_of(s, argument).value->name,
                               s->op->layer, s->backward };
    return NULL;
}
