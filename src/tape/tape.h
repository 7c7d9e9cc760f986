/* tape.h - records a model's ops once, then runs them forward and backward.
 *
 * Recording touches no data. sheaf__tape_compile() lays out the steps of a run
 * (forward, re-run of marked segments and of cheap ops, backward) and works out where each value
 * is needed last, so that memory is taken and given back at fixed places: the
 * same on a device with memory and on the dry one. One tape serves all slices a
 * rank owns; loops over slices live inside ops. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "ops/device.h"
#include "sheaf/owner.h"
#include "tape/work.h"

/* Place and resources of this rank. comm is NULL with one rank; on the dry device it only counts
 * (sheaf_comm_dry_new). */
typedef struct sheaf__context {
    sheaf__device *device;
    sheaf_comm *comm;
    int rank, ranks, slices;
    sheaf_range own;                  /* slices this rank owns */
    sheaf_dtype dtype;                /* activations and compute copies: F32, BF16 or F16 */
    struct sheaf__activity *activity; /* records which op runs; or NULL */
    bool own_process;                 /* each rank is a process */
    sheaf__work *work;                /* counts and measures runs of ops; NULL: nothing does */
    /* Of a model whose layers are placed over stages; comm, rank and ranks are then those of one
     * stage. */
    int stages;            /* 0 or 1: not placed */
    int stage, head_stage; /* this rank's, and the one that holds the output head */
    sheaf_comm *world;     /* all ranks of all stages */
    /* Of several groups that hold the model (comm/grid.h): how many, 0 or 1: one; which this is;
     * and the ranks with the same slices. */
    int groups, group;
    sheaf_comm *peers;
    struct sheaf__offload *away;        /* frozen weights between their uses; NULL: on the device */
    struct sheaf__offload *activations; /* values between the forward and the backward pass */
} sheaf__context;

/* sheaf__set_purpose - the purpose of its exchanges from now on. */
static inline void sheaf__set_purpose(const sheaf__context *c, sheaf__traffic purpose)
{
    sheaf_comm_purpose(c->comm, purpose);
    sheaf_comm_purpose(c->world, purpose);
}

/* sheaf__model_comm - the group of all ranks that run the model; NULL when that is one. */
static inline sheaf_comm *sheaf__model_comm(const sheaf__context *c)
{
    return c->stages > 1 ? c->world : c->comm;
}

/* sheaf__agree_all - sheaf_comm_agree() among them; alone, `st` itself. */
static inline sheaf_status *sheaf__agree_all(const sheaf__context *c, sheaf_status *st)
{
    return sheaf__model_comm(c) == NULL ? st : sheaf_comm_agree(sheaf__model_comm(c), st);
}

/* sheaf__agree_groups - the same among all ranks of all groups: within each, then among peers. */
static inline sheaf_status *sheaf__agree_groups(const sheaf__context *c, sheaf_status *st)
{
    st = sheaf__agree_all(c, st);
    return c->peers == NULL ? st : sheaf_comm_agree(c->peers, st);
}

/* sheaf__is_first - is this the one rank of all groups that writes results? */
static inline bool sheaf__is_first(const sheaf__context *c)
{
    return c->rank == 0 && c->stage == 0 && c->group == 0;
}

/* sheaf__is_first_of_group - the first of those that hold one copy of the model. */
static inline bool sheaf__is_first_of_group(const sheaf__context *c)
{
    return c->rank == 0 && c->stage == 0;
}

/* sheaf__share_of - what of `all` things in a row falls to a group: as even as can be. */
static inline sheaf_range sheaf__share_of(int64_t all, const sheaf__context *c, int group)
{
    const int groups = c->groups > 1 ? c->groups : 1;
    return (sheaf_range){ all * group / groups, all * (group + 1) / groups };
}

/* Begins of blocks of 256 (mma8, mma16: chains of 4096) of all rows among the rows that a run
 * chose: [begin[i], begin[i + 1]) are of one block, which sums over rows take by itself. n 0:
 * nothing was chosen yet, or nothing sums over them. */
typedef struct sheaf__row_blocks {
    int64_t n, *begin;
    /* An earlier op says how many rows there are, on dry as far as it knows the labels. */
    bool known_ahead;
} sheaf__row_blocks;

/* Rows of a value whose gradient something reads; an op that makes the gradient may leave zeros, or
 * anything finite, in the others. */
typedef struct sheaf__grad_rows {
    const int32_t *const *list; /* none twice; read when the tape runs */
    int64_t count;
} sheaf__grad_rows;

/* The parts of a layer that a step keeps for its backward pass. */
typedef enum sheaf__kept {
    SHEAF__KEPT_ALL,
    SHEAF__KEPT_NONE,      /* but what goes into the layer; the rest is recomputed */
    SHEAF__KEPT_ATTENTION, /* the MLP is recomputed */
    SHEAF__KEPT_INT8,      /* all; activations but attention's own in 8 bits, rounded */
    SHEAF__KEPT_PAIRS,     /* all, of both answers of a pair (train/pairs.h) */
} sheaf__kept;

/* A matrix of activations: replicated, or cut (columns of the owned slices, ascending). */
typedef struct sheaf__value {
    const char *name; /* static text, for messages */
    int layer;        /* for messages, -1 = outside layers */
    int64_t rows, cols;
    /* Of rows that a run chooses: how many of the first are there; NULL: all. Where they are
     * known ahead, memory is taken for these; else for all, and on dry all are there. */
    const int64_t *there;
    const sheaf__row_blocks *blocks; /* of such rows; else NULL */
    /* Of a value whose rows are divided over the ranks, of which this one has `rows` (shards.h):
     * which are whose. NULL: it has all. */
    const struct sheaf__row_shards *shards;
    /* And one that has all rows, while only ops of the forward pass have read it: no gather makes
     * them then. NULL: none has. */
    struct sheaf__value *all_ahead;
    sheaf__grad_rows grad_rows; /* list NULL: all */
    sheaf_dtype dtype;
    bool needs_grad;
    bool statistic; /* kept for backward only; may hold -inf in a healthy run */
    /* Of one that is cut: the columns of each owned slice (borrowed); 0: it is not. */
    const int64_t *part;
    int parts;
    bool near, exact;  /* some op keeps it as SHEAF__NEAR; some op keeps it without */
    bool shrinks;      /* it is in 8 bits between forward and backward */
    bool leaves;       /* it is in context->activations between forward and backward, */
    int64_t block;     /* as this block */
    bool stored;       /* one of these, or both, is so now */
    void *shrunk;      /* 8 bits that do not leave; else NULL */
    void *data, *grad; /* NULL while not live; valid inside an op's function */
    /* Of x in sheaf__columns_backward(): where this rank's roots of the gradient's sum over slices
     * stay, which the caller sums; the gradient is not made then. NULL: it is. */
    float *const *roots;
    bool live_data, live_grad,
        grad_fresh; /* fresh: allocated by this step, must be written, not added to */
    bool changed;   /* some op changes it in place */
    bool pinned;    /* given: its data stays after a run, until the next one or free */
    int readers;    /* ops that read its data, forward or backward */
    bool shared;    /* during a step: the gradient lies where the data is, which dies */
    /* While its maker's backward pass runs: leave the data where the gradient was. */
    bool remade;
    struct sheaf__op *maker; /* NULL: none yet */
} sheaf__value;

/* sheaf__cut_as - y is cut as x is. */
static inline void sheaf__cut_as(sheaf__value *y, const sheaf__value *x)
{
    y->part = x->part;
    y->parts = x->parts;
}

/* sheaf__rows_present - the rows that ops compute. */
static inline int64_t sheaf__rows_present(const sheaf__value *v)
{
    return v->there == NULL ? v->rows : *v->there;
}

enum {
    SHEAF__READ = 1,         /* forward reads data */
    SHEAF__MAKE = 2,         /* forward creates data */
    SHEAF__CHANGE = 4,       /* forward changes data in place */
    SHEAF__KEEP = 8,         /* backward reads data */
    SHEAF__GRAD_READ = 16,   /* backward reads the gradient; it is dead afterwards */
    SHEAF__GRAD_WRITE = 32,  /* backward writes (grad_fresh) or adds to the gradient */
    SHEAF__GRAD_CHANGE = 64, /* backward changes the gradient in place */
    SHEAF__OVER = 128, /* backward may write the gradient over the data, element by element: with
                          KEEP and TAKES */
    SHEAF__NEAR = 256, /* with KEEP: of an activation, which may come back rounded */
    SHEAF__KEEP_NEAR = SHEAF__KEEP | SHEAF__NEAR,
    SHEAF__ONCE = 512, /* with READ: not when a segment is run again */
};

#define SHEAF__MAX_ARGS 16

typedef struct sheaf__arg {
    sheaf__value *value;
    unsigned use;
} sheaf__arg;

typedef struct sheaf__tape sheaf__tape;
typedef struct sheaf__op sheaf__op;

/* A block of context->away that ops read, and that leaves between their steps. */
typedef struct sheaf__away {
    int64_t block;
    /* It is at `at` now; NULL: no longer. Itself NULL: it is on the device all the time. */
    void (*place)(struct sheaf__away *away, void *at);
} sheaf__away;

typedef sheaf_status *sheaf__op_fn(sheaf__tape *tape, sheaf__op *op);
/* Rows [begin, end) of what is divided among threads. */
typedef void sheaf__body(void *arg, int64_t begin, int64_t end, int worker);

struct sheaf__op {
    const char *name;
    int layer;
    sheaf__work_kind kind; /* elements, where the function that records it says nothing */
    sheaf__op_fn *forward, *backward; /* backward NULL: nothing flows back */
    int nargs;
    sheaf__arg arg[SHEAF__MAX_ARGS];
    void *params; /* the tape's */
    /* Costs little, and its bits depend on nothing but what it reads: where its backward pass keeps
     * all that it reads, what it made is made again before a backward step that reads it, and its
     * memory serves others meanwhile. It exchanges nothing. */
    bool cheap;
    /* Of a cheap op with one result: its backward pass, called once all rows of that gradient are
     * there, leaves the result where the gradient was if the value is to be remade. */
    bool remakes;
    /* Its backward pass makes the gradient of the first argument before it reads the data, and
     * calls sheaf__tape_recompute() in between. */
    bool reads_late;
    const char
        *inner; /* of what it computes within, which sheaf__tape_check_values() is shown; or NULL */
    bool made_again, within; /* while steps are laid out */
    int segment;             /* -1 = none */
    sheaf__away **away;      /* sheaf__op_away() */
    int64_t naway, away_capacity;
    bool mlp; /* of the segment */
};

sheaf_status *sheaf__tape_new(sheaf__tape **out, sheaf__context *context);
/* Also gives back whatever values are still live. Accepts NULL. */
void sheaf__tape_free(sheaf__tape *tape);
sheaf__context *sheaf__tape_context(sheaf__tape *tape);

/* Recording. Allocation failures are remembered and reported by compile; the
 * pointers returned then point to a dummy. */
sheaf__value *sheaf__tape_value(sheaf__tape *tape, const char *name, int64_t rows, int64_t cols,
                                sheaf_dtype dtype);
sheaf__op *sheaf__tape_op(sheaf__tape *tape, const char *name, sheaf__op_fn *forward,
                          sheaf__op_fn *backward, size_t params_bytes);
void sheaf__op_arg(sheaf__op *op, sheaf__value *value, unsigned use);
/* sheaf__op_away - both passes of the op read it, if it is away. It is there while they run. */
void sheaf__op_away(sheaf__tape *tape, sheaf__op *op, sheaf__away *away);
/* sheaf__tape_like - a value with the rows of x, and cut as it is. */
sheaf__value *sheaf__tape_like(sheaf__tape *tape, const sheaf__value *x, const char *name,
                               int64_t cols, sheaf_dtype dtype);
/* sheaf__op_makes - of an op that makes y of x, or of nothing (NULL), what both are for; returns y.
 * What is for a backward pass does not count where the op has none.
 *   keep  what the backward pass needs of x beside, as SHEAF__KEEP */
sheaf__value *sheaf__op_makes(sheaf__op *op, sheaf__value *y, sheaf__value *x, unsigned keep);
/* sheaf__op_changes - of an op that changes x in place, and its gradient where the op that made x
 * wants that; flows: x has a gradient from here on. */
void sheaf__op_changes(sheaf__op *op, sheaf__value *x, bool flows);
/* sheaf__tape_host_memory - host memory of zeros for an op whose parameters grow with its rows; the
 * tape's, NULL after a failure. */
void *sheaf__tape_host_memory(sheaf__tape *tape, size_t bytes);
/* Between begin and end lies a segment that backward may re-run instead of keeping
 * its values. `layer` also names the ops for messages. */
void sheaf__tape_segment_begin(sheaf__tape *tape, int layer);
void sheaf__tape_segment_end(sheaf__tape *tape);
/* sheaf__tape_mlp - what is recorded from here to the end of the segment is the layer's MLP. */
void sheaf__tape_mlp(sheaf__tape *tape);

/* sheaf__tape_recompute - in the backward pass of an op that reads x late: x->data is there
 * afterwards. Where the op before it made x, and remakes, that op's backward pass runs now, and the
 * data of x takes the place of its gradient. So what is cheap is made again while its operands are
 * in the cache anyway, and needs no memory of its own. tape NULL: x is the caller's, and there. */
sheaf_status *sheaf__tape_recompute(sheaf__tape *tape, sheaf__value *x);

/* sheaf__tape_compile - backward: lay out a training step. */
sheaf_status *sheaf__tape_compile(sheaf__tape *tape, bool backward, sheaf__kept kept);
/* sheaf__tape_run - one pass over all steps. All but pinned values is given back. */
sheaf_status *sheaf__tape_run(sheaf__tape *tape);
/* The first step of a run after which a value, or the gradient of one, holds NaN or infinity. */
typedef struct sheaf__nonfinite {
    const char *op, *value; /* static text; NULL: all is finite */
    int layer;              /* -1: outside layers */
    bool backward;          /* the gradient of the value */
} sheaf__nonfinite;
/* sheaf__tape_run_checked - sheaf__tape_run() that looks at all it computes, over all ranks. Slow.
 * Collective. */
sheaf_status *sheaf__tape_run_checked(sheaf__nonfinite *out, sheaf__tape *tape);
/* sheaf__tape_check_values - within a step forward: n elements of what the op's `inner` names,
 * where the run looks at all. */
void sheaf__tape_check_values(sheaf__tape *tape, const void *data, int64_t n, sheaf_dtype dtype);
/* sheaf__rows - work of the host, divided over the device's threads; not done on dry, which has
 * none. */
void sheaf__rows(const sheaf__context *context, int64_t rows, int64_t grain, sheaf__body *body,
                 void *arg);
/* Costs of a rank so far; for planners that run one of several equal parts. */
typedef struct sheaf__costs {
    double flops;
    uint64_t uploaded, downloaded; /* bytes of the device's transfers */
    sheaf__counters comm, world, peers;
} sheaf__costs;
void sheaf__costs_of(sheaf__costs *out, const sheaf__context *context);
/* sheaf__context_now - by the clock of context->work, once the device has done all that it was
 * told.
 */
double sheaf__context_now(const sheaf__context *context);
/* sheaf__costs_repeat - what was spent since `before` counts `times` times more. */
void sheaf__costs_repeat(sheaf__context *context, const sheaf__costs *before, int64_t times);
/* sheaf__costs_sent - bytes handed to other ranks of its group. */
double sheaf__costs_sent(const sheaf__costs *costs);
/* sheaf__costs_waiting - seconds in which it waited for others or for bytes. */
double sheaf__costs_waiting(const sheaf__costs *costs);

/* sheaf__sum_among - the sum of own roots over the ranks of `comm`, or of none (NULL), into
 * roots[0] (float32 [rows, cols]): of all rows, or of a rank's own (`first`, as sheaf_comm_sum()
 * has it). Counts bytes on dry. */
sheaf_status *sheaf__sum_among(sheaf__context *context, sheaf_comm *comm, const sheaf_tree *tree,
                               float *const *roots, int64_t rows, int64_t cols,
                               const int64_t *first);

/* sheaf__chain_among - sheaf_comm_chain() among the ranks of c->comm; counts bytes on dry. */
sheaf_status *sheaf__chain_among(const sheaf__context *context, float *out, float *part,
                                 const int64_t *first, int64_t n);

/* sheaf__exchanges_beside - do the ranks of c->comm exchange while operations run? Then work may be
 * made in parts, behind each of which stands a mark: the exchanges to come, a mark each, wait for
 * what was made up to it, and no further. */
bool sheaf__exchanges_beside(const sheaf__context *context);
void sheaf__exchange_mark(const sheaf__context *context);

/* The exchanges of comm/comm.h, of device memory; comm NULL: nothing to do. */
sheaf_status *sheaf__max_among(const sheaf__context *context, sheaf_comm *comm, float *x,
                               int64_t n);
sheaf_status *sheaf__select_among(const sheaf__context *context, sheaf_comm *comm, void *rows,
                                  size_t row_bytes, int64_t n, const int32_t *owner);
sheaf_status *sheaf__gather_among(const sheaf__context *context, sheaf_comm *comm, void *all,
                                  const size_t *size);
sheaf_status *sheaf__broadcast_among(const sheaf__context *context, sheaf_comm *comm, void *x,
                                     size_t bytes, int root);

/* A buffer of device memory freed in one line; data NULL when not allocated. */
sheaf_status *sheaf__alloc(void *out, sheaf__context *context, size_t bytes, sheaf_memory kind);
void sheaf__free(sheaf__context *context, void *block);
