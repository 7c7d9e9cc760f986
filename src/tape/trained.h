/* trained.h - the tensors a run changes: float32 masters, gradients, moments.
 *
 * All owned (tensor, slice) pairs lie one after the other in flat float32 arrays
 * (16-element aligned), the same order in masters, gradients and both moments, so
 * that sums over gradient accumulators and the optimizer walk plain memory: what is replicated,
 * then slice after slice. A replicated tensor is stored as slice 0 by every rank.
 *
 * A set that is `divided` keeps masters and moments of slice s in group s mod D alone (of a
 * replicated tensor in all), as the group that writes it. Its slices are in the order of their
 * groups then: what a group keeps is one stretch. Where the weights are needed, peers send
 * theirs, rounded to the compute dtype, in the array of gradients, which are no longer needed. */
#pragma once

#include "sheaf/cut.h"
#include "tape/tape.h"

typedef struct sheaf__trained {
    char *name;
    int ndim;
    int64_t shape[2];
    sheaf_cut cut; /* nparts 0 = replicated */
    bool decay;    /* weight decay applies */
    double
        lr_scale; /* its learning rate is this times the step's; 1 unless the caller changes it */
    /* of so many rows of a slice together the second half of the numbers stays as it is; 0: of none
     */
    int64_t band;
    int first, count; /* slices held here: [first, first + count); replicated: 0, 1 */
    /* By slice; NULL where not held. Each is the slice's box (of a fused tensor, cut along axis 0
     * in several parts, box after box), dense row-major: [rows of the slice, shape[1]] for axis 0,
     * [shape[0], cols of the slice] for axis 1. */
    int64_t numel[SHEAF_MAX_SLICES]; /* of every slice, held or not */
    float *grad[SHEAF_MAX_SLICES];
    /* of a divided set only of slices that are kept here, else NULL; moments that are away have
     * addresses that only sheaf__borrow() knows */
    float *master[SHEAF_MAX_SLICES], *moment1[SHEAF_MAX_SLICES], *moment2[SHEAF_MAX_SLICES];
    /* For moments in 8 bits moment1 and moment2 are NULL and these are not: codes of each element,
     * and absmax of each 256 from the slice's first on. Each slice's have `blocks` of these, the
     * most that one needs; the rest is 0. */
    bool eight;
    int64_t blocks;
    sheaf_cut blocks_cut; /* of absmax [slices * blocks]; nparts 0 = replicated, [blocks] */
    uint8_t *code1[SHEAF_MAX_SLICES], *code2[SHEAF_MAX_SLICES];
    float *absmax1[SHEAF_MAX_SLICES], *absmax2[SHEAF_MAX_SLICES];
    /* source of the compute copies: the masters; of a divided set the gradients' place, from
     * sheaf__trained_publish() to the next accumulator */
    float *weight[SHEAF_MAX_SLICES];
} sheaf__trained;

#define SHEAF__MOST_ACCUMULATORS 16
#define SHEAF__MAX_ACCUMULATED 8 /* sums at once: one for each level of their tree, and more */

typedef struct sheaf__trained_set {
    sheaf__context *context;
    int count;
    int64_t capacity;
    sheaf__trained **item;          /* order of addition */
    bool divided;                   /* set before sheaf__trained_allocate() */
    bool moments_away;              /* likewise: they lie elsewhere between updates (moments.h), */
    const char *folder;             /* there; as sheaf__offload_new() takes it */
    struct sheaf__moments *moments; /* or NULL: all are in memory */
    int64_t numel;                  /* floats of a gradient array */
    int64_t common;                 /* of them, those of replicated tensors, which come first */
    int64_t kept;                   /* floats of masters, and of a moment */
    bool eight_bits;                /* set before sheaf__trained_allocate(): moments of
                                       SHEAF__EIGHT_BITS_FROM elements and more have 8 bits */
    void *eight;                    /* these; NULL: away */
    struct sheaf__map8 *maps8;      /* the host's */
    int64_t moment_floats;          /* floats of a moment of the others */
    float *master, *moment1, *moment2;
    float *sum[SHEAF__MAX_ACCUMULATED]; /* gradient arrays; item grads point into the current one */
    int nsums;
} sheaf__trained_set;

sheaf_status *sheaf__trained_set_new(sheaf__trained_set **out, sheaf__context *context);
void sheaf__trained_set_free(sheaf__trained_set *set);
/* sheaf__trained_add - a new member; name and cut are copied. cut NULL = replicated.
 * Memory comes with sheaf__trained_allocate(), after all members are known. */
sheaf_status *sheaf__trained_add(sheaf__trained **out, sheaf__trained_set *set, const char *name,
                                 int ndim, const int64_t *shape, const sheaf_cut *cut, bool decay);
/* sheaf__trained_allocate - masters, moments (zeroed), and one gradient array. */
sheaf_status *sheaf__trained_allocate(sheaf__trained_set *set);
/* bitsandbytes' min_8bit_size: of the undivided tensor. */
#define SHEAF__EIGHT_BITS_FROM 4096
/* sheaf__trained8_prepare - part of sheaf__trained_allocate(): blocks and maps of moments in 8
 * bits, and their bytes; 0: there are none. sheaf__trained8_allocate - memory for them.
 * sheaf__trained8_bytes - of both moments of a slice.
 * sheaf__trained8_place - those of a slice are at `at`; returns the end of them. */
sheaf_status *sheaf__trained8_prepare(sheaf__trained_set *set, size_t *bytes);
sheaf_status *sheaf__trained8_allocate(sheaf__trained_set *set, size_t bytes);
size_t sheaf__trained8_bytes(const sheaf__trained *t, int slice);
char *sheaf__trained8_place(sheaf__trained *t, int slice, char *at);
/* sheaf__trained_groups - groups that a divided set is kept by, each a part; 1 of another set. */
static inline int sheaf__trained_groups(const sheaf__trained_set *set)
{
    return set->divided && set->context->groups > 1 ? set->context->groups : 1;
}
/* sheaf__trained_keeps - are masters and moments of this slice kept here? */
static inline bool sheaf__trained_keeps(const sheaf__trained_set *set, const sheaf__trained *t,
                                        int slice)
{
    const int groups = sheaf__trained_groups(set);
    return t->cut.nparts == 0 || slice % groups == set->context->group % groups;
}
/* sheaf__trained_away - do its moments lie elsewhere? Of a set with some in 8 bits only these do.
 */
static inline bool sheaf__trained_away(const sheaf__trained_set *set, const sheaf__trained *t)
{
    return set->moments_away && t->eight == set->eight_bits;
}
/* sheaf__trained_next - all slices that are kept here, in the order in which they are updated: what
 * is replicated, then slice after slice. false: that was the last. `at` begins as zeros. */
typedef struct sheaf__trained_walk {
    int round, next; /* 0: what is replicated; r: the r-th owned slice */
    sheaf__trained *item;
    int slice;
} sheaf__trained_walk;
bool sheaf__trained_next(sheaf__trained_walk *at, const sheaf__trained_set *set);
/* sheaf__trained_stretch - floats of what `group` keeps of this rank's slices, replicated tensors
 * aside. */
int64_t sheaf__trained_stretch(const sheaf__trained_set *set, int group);
/* sheaf__trained_from_weights - of a divided set: the masters from the weights, which all ranks
 * have read.
 */
void sheaf__trained_from_weights(sheaf__trained_set *set);
/* sheaf__trained_publish - of a divided set: the weights from the masters of all peers. Collective
 * among them. */
sheaf_status *sheaf__trained_publish(sheaf__trained_set *set);
/* sheaf__trained_copy - the masters, into out[set->kept] of the device.
 * sheaf__trained_exchange - they and those of `other` change places, by way of the gradients'
 * array: between steps. The caller publishes them. */
void sheaf__trained_copy(float *out, const sheaf__trained_set *set);
void sheaf__trained_exchange(sheaf__trained_set *set, float *other);
/* The logical box of `slice` in part `part` of the cut (0 when there is one): rows and columns. */
void sheaf__trained_box(const sheaf__trained *t, int part, int slice, sheaf_range *rows,
                        sheaf_range *cols);
/* Begin of that box in the slice's array, in elements: parts lie one after the other. */
int64_t sheaf__trained_at(const sheaf__trained *t, int part, int slice);
int sheaf__trained_parts(const sheaf__trained *t); /* at least 1 */

/* Gradient accumulators (docs/contract.md, section 1.6): the micro-batches of one step fall into
 * `count` of them; sums within one ascend, and their totals join in the fixed tree. Call
 * accumulator_begin(g) before the first backward of accumulator g (it clears),
 * accumulators_close when all are done: item grads then hold the total. Empty ones
 * never start. */
typedef struct sheaf__accumulators {
    int depth;
    int begin[SHEAF__MAX_ACCUMULATED];
} sheaf__accumulators;
sheaf_status *sheaf__accumulator_begin(sheaf__trained_set *set, sheaf__accumulators *stack, int g);
void sheaf__accumulators_close(sheaf__trained_set *set, sheaf__accumulators *stack);
/* sheaf__accumulators_reduce - after the close: the sums of all groups are added by the tree; all
 * have the total. present[G]: accumulators with a sum, in whatever group. Collective among
 * peers.
 */
sheaf_status *sheaf__accumulators_reduce(sheaf__trained_set *set, int count, const bool *present);

/* sheaf__grad_norm - global L2 norm: squares in double per tensor and slice, tree over
 * slices, tensors in name order, replicated ones once. Collective. */
sheaf_status *sheaf__grad_norm(double *out, sheaf__trained_set *set);
/* sheaf__trained_update - one AdamW step on all that is kept here, each with lr_scale times
 * how->lr; how->weight_decay applies where decay is set. */
void sheaf__trained_update(sheaf__trained_set *set, const sheaf__adamw *how);
