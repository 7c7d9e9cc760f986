/* linear.h - linear layers whose weight is cut along its out axis (columns) or its
 * in axis (rows), with their LoRA factors; forward, backward and weight gradients.
 *
 * Columns: y_s = x W_s^T + h B_s^T + b_s,          h = round(scale * x A^T)
 *   g = round(scale * tree_s(dy_s B_s))
 *   dx = round(tree_s( sum over the layers that share x ( dy_s W_s + [s lowest] g A ) ))
 *   dA = g^T x, dB_s = dy_s^T h, dW_s = dy_s^T x, db_s = column sums of dy_s
 * Rows: y = round(round(tree_s( x_s W_s^T + [s lowest] h B^T ) + b) + residual),
 *   h = round(scale * tree_s(x_s A_s^T))
 *   g = round(scale * dy B); dx_s = round(dy W_s + g A_s)
 *   dA_s = g^T x_s, dB = dy^T h, dW_s = dy^T x_s, db = column sums of dy
 * Layers that share one A (a fused weight's parts under one pair of factors) are to it one layer:
 * g is then of the sum over them of dy_s B_s, in one product; h, g and dA are there once.
 * A replicated factor meets the whole g or h, once, in the lowest slice that has elements
 * (docs/contract.md, section 1.5). With dropout the LoRA branch reads d(x) in place of x and its
 * share of dx is rounded and added apart.
 *
 * DoRA (dora.c): with u, float32, in place of y without b and residual, and n[o] the norm of row o
 * of W + scale B A, a constant to the gradient,
 *   y = round(round((m / n) u + b) + residual)
 *   dm = sum over rows of (dy / n) u; dy then becomes round((m / n) dy), but in db and the residual
 */
#pragma once

#include "ops/matmul/matmul.h"
#include "tape/shards.h"
#include "tape/tape.h"
#include "tape/trained.h"

/* A fused weight (query, key and value in one tensor) runs as one layer for each part; the parts
 * share the tensors that are trained, and each has its place in them: `*_at`, in elements. */
typedef struct sheaf__lora_part {
    int64_t rank;
    float scale;
    double dropout;
    uint64_t purpose;      /* of its random numbers: sheaf__name_key(module) */
    sheaf__trained *a, *b; /* NULL when the adapter is only used */
    int64_t a_at, b_at[SHEAF_MAX_SLICES];
    /* In the compute dtype, dense; index 0 when the factor is replicated, else by slice. Owned
     * slices of B follow each other: from the first one on they are one matrix. */
    void *a_copy[SHEAF_MAX_SLICES], *b_copy[SHEAF_MAX_SLICES];
    int64_t a_numel[SHEAF_MAX_SLICES], b_numel[SHEAF_MAX_SLICES];
    /* DoRA: NULL without. Its magnitudes by slice as B's rows, and behind each other from the first
     * owned one on as their `factor`. */
    float *m_copy[SHEAF_MAX_SLICES];
    struct sheaf__dora {
        sheaf__trained *m; /* NULL when the adapter is only used */
        int64_t m_at[SHEAF_MAX_SLICES];
        int64_t n;               /* outputs here */
        float *squares;          /* of the rows of W */
        float *now;              /* of W + scale B A */
        float *factor, *inverse; /* m / n, 1 / n: with `now`, of the factors that there are ... */
        bool stale;              /* ... or not yet */
        float *weigh;            /* [rank] 2 scale, [rank] scale^2 */
    } * dora;
    /* The first part of the same module, recorded in the same op: A, its copies and h are its, and
     * g is the sum of both. NULL: A is this part's own. */
    const struct sheaf__lora_part *first;
} sheaf__lora_part;

typedef struct sheaf__linear {
    const char *name; /* borrowed: the weight's */
    int64_t in, out;  /* logical */
    float cap;        /* of the head: logits are cap * tanh(logit / cap); 0: as they are */
    bool rows;        /* cut along in; otherwise along out, or `whole` */
    bool whole;       /* every rank holds and computes all of it, as slice 0 (columns only) */
    /* y = x w for w [out, in] as it is stored, not x w^T: x has `out` columns, y `in`. A whole
     * layer, without bias and LoRA */
    bool transposed;
    int first, count;                 /* owned slices */
    int64_t begin[SHEAF_MAX_SLICES];  /* by slice: column in the owned part of the cut axis */
    int64_t extent[SHEAF_MAX_SLICES]; /* by slice, 0 = empty */
    int64_t logical0; /* index of the first owned row of the cut axis in the tensor */
    int64_t owned;    /* sum of extents */
    sheaf_tree tree;  /* of the slices that are not empty */
    /* In the compute dtype; where that is float32, frozen weights may stay as they are stored. Of a
     * layer cut along its out axis w[s] are parts of `all`, as every output is a sum of its own: x
     * meets them at once. */
    sheaf__packed w[SHEAF_MAX_SLICES], all;
    sheaf__away away; /* of both, one block */
    float *bias;      /* [owned] (columns) or [out] (rows), rounded to the compute dtype; or NULL */
    sheaf__trained *weight_trained, *bias_trained; /* NULL when frozen */
    int64_t weight_at[SHEAF_MAX_SLICES], bias_at[SHEAF_MAX_SLICES];
    sheaf__lora_part *lora; /* NULL without */
} sheaf__linear;

/* Dropout's view of the rows being run. */
typedef struct sheaf__step_info {
    bool training;
    uint64_t seed, step;
    const int64_t *sample, *position; /* [rows] */
    struct {
        const int64_t *sample, *position;
    } host; /* the same where the host can read them */
} sheaf__step_info;

#define SHEAF__MAX_TOGETHER 3

/* sheaf__record_columns - outputs of `n` <= 3 layers that share the input x; y[i] has
 * linear[i]->owned columns (`in` where it is transposed), and all rows, also where those of x are
 * divided. info is borrowed and read when the tape
 * runs.
 */
void sheaf__record_columns(sheaf__tape *tape, sheaf__value **y, sheaf__value *x,
                           sheaf__linear *const *linear, int n, const sheaf__step_info *info);
/* sheaf__record_rows - y = linear(x) + residual (residual may be NULL). x is cut. shards: of the
 * rows of y and of the residual; NULL: every rank has all. */
sheaf__value *sheaf__record_rows(sheaf__tape *tape, sheaf__value *x, sheaf__linear *linear,
                                 sheaf__value *residual, const sheaf__row_shards *shards,
                                 const sheaf__step_info *info);

/* sheaf__record_own_columns - [rows, linear->owned]: the columns of x [rows, linear->in] that this
 * rank's slices of `linear` (cut along in) read, where the layer before it was not cut. Backward
 * gathers the columns of all ranks. */
sheaf__value *sheaf__record_own_columns(sheaf__tape *tape, sheaf__value *x,
                                        const sheaf__linear *linear);

/* sheaf__columns_forward, sheaf__columns_backward - what recorded columns of one layer do, for
 * values that the caller holds. Ahead: y (in its dtype, rounded to the compute dtype) and h of x.
 * Back: reads y->grad, x->data, h->data; adds to the weight gradients; writes x->grad when
 * x->needs_grad (adds when it is not fresh). No dropout. */
sheaf_status *sheaf__columns_forward(sheaf__context *context, sheaf__value *y, sheaf__value *x,
                                     sheaf__value *h, sheaf__linear *linear);
sheaf_status *sheaf__columns_backward(sheaf__context *context, sheaf__value *y, sheaf__value *x,
                                      sheaf__value *h, sheaf__linear *linear);

/* sheaf__linear_bytes - of the block of a frozen weight that is away; 0: it has no elements.
 * sheaf__linear_away - its weights are such a block from here on. */
size_t sheaf__linear_bytes(const sheaf__linear *linear);
void sheaf__linear_away(sheaf__linear *linear, int64_t block);

/* sheaf__linear_refresh - compute copies of what is trained, from the masters. */
void sheaf__linear_refresh(sheaf__context *context, sheaf__linear *linear);

/* sheaf__lora_refresh - the same of factors alone; NULL: there are none. */
void sheaf__lora_refresh(sheaf__context *context, sheaf__lora_part *lora);

/* sheaf__dora_begin - of a layer with DoRA whose weight has been loaded and is here: the norms of
 * its rows; fresh: the magnitudes become the norms, so that all factors are 1. Collective. */
sheaf_status *sheaf__dora_begin(sheaf__context *context, sheaf__linear *linear, bool fresh);

/* sheaf__linear_trains - true when anything of `linear` is trained; trains_dora: magnitudes are. */
bool sheaf__linear_trains(const sheaf__linear *linear);
bool sheaf__linear_trains_dora(const sheaf__linear *linear);
