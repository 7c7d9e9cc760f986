/* tape.c - see tape.h.
 *
 * A compiled tape is a flat list of steps. Liveness is worked out once, walking
 * the list from its end: the last step that reads a value before it is made
 * again is where its memory goes back. */
#include "tape/tape_inner.h"

#include "base/base.h"
#include "tape/kept.h"

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

void sheaf__tape_free(sheaf__tape *tape)
{
    if (tape == NULL)
        return;
    sheaf__tape_drop(tape);
    for (int64_t i = 0; i < tape->nvalues; i++)
        free(tape->value[i]);
    for (int64_t i = 0; i < tape->nops; i++) {
        free(tape->op[i]->params);
        free(tape->op[i]->away);
        free(tape->op[i]);
    }
    for (int64_t i = 0; i < tape->nheld; i++)
        free(tape->held[i]);
    free(tape->held);
    free(tape->value);
    free(tape->op);
    free(tape->steps);
    free(tape->dead);
    free(tape->away);
    free(tape->leaving);
    free(tape->leaving_use);
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
                       .segment = tape->segment,
                       .mlp = tape->mlp };
    return op;
}

sheaf__value *sheaf__tape_like(sheaf__tape *tape, const sheaf__value *x, const char *name,
                               int64_t cols, sheaf_dtype dtype)
{
    sheaf__value *y = sheaf__tape_value(tape, name, x->rows, cols, dtype);
    y->there = x->there;
    y->blocks = x->blocks;
    y->shards = x->shards;
    sheaf__cut_as(y, x);
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
    if (use & SHEAF__CHANGE)
        value->all_ahead = NULL;
    value->near = value->near || (use & SHEAF__NEAR) != 0;
    value->exact = value->exact || (use & SHEAF__KEEP_NEAR) == SHEAF__KEEP;
    value->readers += (use & (SHEAF__READ | SHEAF__CHANGE | SHEAF__KEEP)) != 0;
}

void sheaf__tape_segment_begin(sheaf__tape *tape, int layer)
{
    tape->segment = tape->nsegments++;
    tape->layer = layer;
    tape->mlp = false;
}

void sheaf__tape_mlp(sheaf__tape *tape)
{
    tape->mlp = true;
}

void sheaf__tape_segment_end(sheaf__tape *tape)
{
    tape->segment = -1;
    tape->layer = -1;
    tape->mlp = false;
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
    tape->steps[tape->nsteps++] = (sheaf__step){ .op = op, .again = true };
}

/* Inputs that an op's backward pass keeps and that are made again. */
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
    if (before == NULL || !op->reads_late || !before->remakes || before->segment != op->segment ||
        before->mlp != op->mlp)
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
    tape->steps[tape->nsteps++] = (sheaf__step){ .op = op, .maker = maker, .backward = true };
}

/* The segment that an op is run again with; -1: it is not. */
static int rerun_with(const sheaf__op *op, sheaf__kept kept)
{
    const bool again = kept == SHEAF__KEPT_NONE || (kept == SHEAF__KEPT_ATTENTION && op->mlp);
    return again ? op->segment : -1;
}

/* Steps of the whole run, in order. The forward steps of a segment, or a part of it, that is not
 * kept come again right before its backward steps, if it has any. */
static void lay_out_steps(sheaf__tape *tape, bool backward, sheaf__kept kept)
{
    for (int64_t i = 0; i < tape->nops; i++) {
        tape->op[i]->made_again = tape->op[i]->within = false;
        tape->steps[tape->nsteps++] = (sheaf__step){ .op = tape->op[i] };
    }
    if (!backward)
        return;
    for (int64_t end = tape->nops; end > 0;) {
        int64_t begin = end - 1;
        const int segment = rerun_with(tape->op[begin], kept);
        if (segment >= 0) {
            while (begin > 0 && rerun_with(tape->op[begin - 1], kept) == segment)
                begin--;
            for (int64_t i = begin; i < end && flows_back(tape, begin, end); i++)
                tape->steps[tape->nsteps++] = (sheaf__step){ .op = tape->op[i], .again = true };
        }
        for (int64_t i = end - 1; i >= begin; i--)
            if (tape->op[i]->backward != NULL && !tape->op[i]->within)
                lay_out_backward(tape, i);
        end = begin;
    }
}

/* Is nothing that a step makes or changes read later? So it is with the last layer of a segment
 * that is run again. */
static bool is_idle(const sheaf__step *s)
{
    bool idle = s->again;
    for (int a = 0; a < s->op->nargs && idle; a++)
        idle = (s->op->arg[a].use & (SHEAF__MAKE | SHEAF__CHANGE)) == 0 ||
               !s->op->arg[a].value->live_data;
    return idle;
}

/* Less than this stays: it takes as much, and a transfer. */
enum { LEAST_TO_LEAVE = 4096 };

/* Values that are read after the forward pass, and are shrunk or away until then, die in it. */
static void find_stored(sheaf__tape *tape, sheaf__kept kept)
{
    for (int64_t i = 0; i < tape->nvalues; i++) {
        sheaf__value *v = tape->value[i];
        const bool waits = v->live_data && !v->pinned;
        v->shrinks = waits && kept == SHEAF__KEPT_INT8 && v->near && !v->exact;
        v->leaves = waits && tape->context->activations != NULL &&
                    sheaf__value_kept_most(v) >= LEAST_TO_LEAVE;
        v->live_data = v->live_data && !v->shrinks && !v->leaves;
    }
}

/* Walks the steps from the end; live_data serves as the mark "read later". Idle steps lose their
 * op. */
static bool find_deaths(sheaf__tape *tape, sheaf__kept kept)
{
    for (int64_t i = tape->nsteps - 1; i >= 0; i--) {
        sheaf__step *s = &tape->steps[i];
        if (i == tape->nops - 1)
            find_stored(tape, kept);
        s->first_dead = (int)tape->ndead;
        if (is_idle(s)) {
            s->op = NULL;
            continue;
        }
        const unsigned reads = s->backward ? SHEAF__KEEP : SHEAF__READ | SHEAF__CHANGE;
        for (int pass = 0; pass < 2; pass++) /* reads first, then what is made here */
            for (int a = 0; a < sheaf__step_args(s); a++) {
                sheaf__value *value = sheaf__step_arg(s, a).value;
                const unsigned use = sheaf__step_arg(s, a).use;
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

sheaf_status *sheaf__tape_compile(sheaf__tape *tape, bool backward, sheaf__kept kept)
{
    free(tape->steps);
    tape->nsteps = tape->ndead = 0;
    tape->steps = calloc((size_t)tape->nops * 4 + 1, sizeof *tape->steps);
    if (tape->no_memory || tape->steps == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "tape of %lld ops", (long long)tape->nops);
    lay_out_steps(tape, backward, kept);
    if (!find_deaths(tape, kept))
        return sheaf_fail(SHEAF_E_MEMORY, "tape of %lld steps", (long long)tape->nsteps);
    int64_t left = 0;
    for (int64_t i = 0; i < tape->nsteps; i++)
        if (tape->steps[i].op != NULL)
            tape->steps[left++] = tape->steps[i];
    tape->nsteps = left;
    sheaf_status *st = sheaf__tape_list_away(tape);
    return TRY(st, sheaf__tape_list_leaving(tape));
}
