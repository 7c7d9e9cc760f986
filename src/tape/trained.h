/* trained.h - the tensors a run changes: float32 masters, gradients, moments.
 *
 * All owned (tensor, slice) pairs lie one after the other in flat float32 arrays
 * (16-element aligned), the same order in masters, gradients and both moments, so
 * that sums over gradient accumulators and the optimizer walk plain memory. A replicated tensor is
 * stored as slice 0 by every rank. */
#ifndef SHEAF_TAPE_TRAINED_H
#define SHEAF_TAPE_TRAINED_H

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
    int first, count; /* slices held here: [first, first + count); replicated: 0, 1 */
    /* By slice; NULL where not held. Each is the slice's box (of a fused tensor, cut along axis 0
     * in several parts, box after box), dense row-major: [rows of the slice, shape[1]] for axis 0,
     * [shape[0], cols of the slice] for axis 1. */
    int64_t numel[SHEAF_MAX_SLICES]; /* of every slice, held or not */
    float *master[SHEAF_MAX_SLICES], *grad[SHEAF_MAX_SLICES];
    float *moment1[SHEAF_MAX_SLICES], *moment2[SHEAF_MAX_SLICES];
} sheaf__trained;

#define SHEAF__MAX_ACCUMULATED 8

typedef struct sheaf__trained_set {
    sheaf__context *context;
    int count;
    int64_t capacity;
    sheaf__trained **item; /* order of addition */
    int64_t numel;         /* floats per flat array */
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
/* The logical box of `slice` in part `part` of the cut (0 when there is one): rows and columns. */
void sheaf__trained_box(const sheaf__trained *t, int part, int slice, sheaf_range *rows,
                        sheaf_range *cols);
/* Where that box begins in the slice's array, in elements: parts lie one after the other. */
int64_t sheaf__trained_at(const sheaf__trained *t, int part, int slice);
int sheaf__trained_parts(const sheaf__trained *t); /* at least 1 */

/* Gradient accumulators (docs/contract.md, section 1.6): the micro-batches of one step fall into
 * `count` of them; sums within one ascend, and their totals join in the fixed tree. Call
 * accumulator_begin(g) before the first backward of accumulator g (it clears), accumulator_end
 * after its last, accumulators_close when all are done: item grads then hold the total. Empty ones
 * are never begun. */
typedef struct sheaf__accumulators {
    int depth;
    int begin[SHEAF__MAX_ACCUMULATED], end[SHEAF__MAX_ACCUMULATED];
    int count;
} sheaf__accumulators;
void sheaf__accumulators_open(sheaf__accumulators *stack, int count);
sheaf_status *sheaf__accumulator_begin(sheaf__trained_set *set, sheaf__accumulators *stack, int g);
void sheaf__accumulator_end(sheaf__trained_set *set, sheaf__accumulators *stack);
void sheaf__accumulators_close(sheaf__trained_set *set, sheaf__accumulators *stack);

/* sheaf__grad_norm - global L2 norm: squares in double per tensor and slice, tree over
 * slices, tensors in name order, replicated ones once. Collective. */
sheaf_status *sheaf__grad_norm(double *out, sheaf__trained_set *set);
/* sheaf__trained_update - one AdamW step on all members, each with lr_scale times how->lr;
 * how->weight_decay applies where decay is set. */
void sheaf__trained_update(sheaf__trained_set *set, const sheaf__adamw *how);

#endif
