/* tape_inner.h - a compiled tape: what tape.c lays out and tape_run.c runs; private to them. */
#pragma once

#include "ops/offload.h"
#include "tape/tape.h"

enum { SHEAF__STEP_ARGS = 2 * SHEAF__MAX_ARGS };

typedef struct sheaf__step {
    sheaf__op *op;
    sheaf__op *maker;      /* of its first argument, whose backward pass runs within; or NULL */
    bool backward, again;  /* again: of a segment that is run again, or of a cheap op */
    int first_dead, ndead; /* range in tape->dead */
} sheaf__step;

struct sheaf__tape {
    sheaf__context *context;
    sheaf__value **value;
    int64_t nvalues, value_capacity;
    sheaf__op **op;
    int64_t nops, op_capacity;
    sheaf__step *steps;
    int64_t nsteps;
    sheaf__value **dead; /* values whose data dies after a step, grouped by step */
    int64_t ndead, dead_capacity;
    void **held; /* sheaf__tape_host_memory() */
    int64_t nheld, held_capacity;
    int segment, nsegments, layer;
    bool mlp;
    const sheaf__step *now;   /* the step that runs */
    int64_t *bad;             /* of a run that looks for bad values, see run_steps() */
    sheaf__offload_use *away; /* blocks of context->away that the steps read, in order */
    int64_t naway;
    size_t away_most;       /* bytes that a step reads of them */
    sheaf__value **leaving; /* those that leave, in order: block i is of number i */
    int64_t nleaving, leaving_capacity;
    sheaf__offload_use *leaving_use; /* [2 * nleaving] */
    size_t leaving_ring;             /* bytes together, as sheaf__offload_begin() has it */
    bool no_memory;
    sheaf__value spare_value;
    sheaf__op spare_op;
    _Alignas(max_align_t) char spare_params[4096];
};

/* The arguments of a step: those of its op, then those of an op that runs within. */
static inline int sheaf__step_args(const sheaf__step *s)
{
    return s->op->nargs + (s->maker == NULL ? 0 : s->maker->nargs);
}

static inline sheaf__arg sheaf__step_arg(const sheaf__step *s, int a)
{
    const sheaf__op *op = a < s->op->nargs ? s->op : s->maker;
    const int at = a < s->op->nargs ? a : a - s->op->nargs;
    sheaf__arg arg = op->arg[at];
    if (s->maker != NULL && a == 0)
        arg.use &= ~(unsigned)SHEAF__KEEP; /* it is made within */
    if (s->again && (arg.use & SHEAF__ONCE))
        arg.use &= ~(unsigned)SHEAF__READ;
    return arg;
}

/* sheaf__step_wants - does the step read the data that the argument had before it? */
static inline bool sheaf__step_wants(const sheaf__step *s, sheaf__arg arg)
{
    return (arg.use & (s->backward ? SHEAF__KEEP : SHEAF__READ | SHEAF__CHANGE)) != 0;
}

/* sheaf__tape_drop - gives back all values that are live. */
void sheaf__tape_drop(sheaf__tape *tape);
/* Weights that are away (away.c). sheaf__tape_list_away - once steps are laid out.
 * sheaf__tape_begin_away - before the first of them. sheaf__step_bring, sheaf__step_leave - around
 * each. */
sheaf_status *sheaf__tape_list_away(sheaf__tape *tape);
sheaf_status *sheaf__tape_begin_away(sheaf__tape *tape);
sheaf_status *sheaf__step_bring(sheaf__tape *tape, const sheaf__step *s);
void sheaf__step_leave(sheaf__tape *tape, const sheaf__step *s);
/* Values that leave, likewise; their space in context->activations is claimed with the list. */
sheaf_status *sheaf__tape_list_leaving(sheaf__tape *tape);
sheaf_status *sheaf__tape_claim_leaving(sheaf__tape *tape);
sheaf_status *sheaf__tape_begin_leaving(sheaf__tape *tape);
sheaf_status *sheaf__tape_end_leaving(sheaf__tape *tape);
