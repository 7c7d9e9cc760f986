/* linear_inner.h - what the files of the linear layers share; private to them.
 *
 * Each function of a layer gathers its products as independent jobs and hands them to the matmul op
 * at once: many slices of small products then fill all threads. */
#pragma once

#include "tape/linear.h"
#include "tape/shards.h"

enum {
    SHEAF__MAX_JOBS = SHEAF__MAX_TOGETHER * (SHEAF_MAX_SLICES + 1),
    SHEAF__MAX_TERMS = 2 * SHEAF__MAX_JOBS
};

/* Products in the making, of the compute dtype. The terms of one job are added right after it was
 * begun. */
typedef struct sheaf__batch {
    sheaf_dtype dtype;
    sheaf__product job[SHEAF__MAX_JOBS];
    sheaf__term term[SHEAF__MAX_TERMS];
    int njobs, nterms;
    /* for one job with a tree: slices and where their terms begin */
    int slice_of[SHEAF_MAX_SLICES], first[SHEAF_MAX_SLICES + 1], nslices;
    void *owned[SHEAF__MAX_JOBS]; /* longer lists of terms */
    int nowned;
} sheaf__batch;

/* sheaf__batch_new - an empty one. */
sheaf_status *sheaf__batch_new(sheaf__batch **out, const sheaf__context *context);
/* sheaf__batch_job - a plain product y [m, n] = A * B with alpha 1, of one term so far; float32 is
 * rounded to the compute dtype only if the caller says so. The caller changes what differs. */
sheaf__product *sheaf__batch_job(sheaf__batch *b, int64_t m, int64_t n, void *y, int64_t ldy,
                                 sheaf_dtype out, sheaf__term term);
void sheaf__batch_term(sheaf__batch *b, sheaf__product *job, sheaf__term term);
/* sheaf__batch_weight_gradient - dW += dy^T x for activations stored by token: grad [m, n] += a^T x
 * over the rows that are there of `rows`, block by block. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__batch_weight_gradient(sheaf__batch *b, float *grad, int64_t m, int64_t n,
                                           const void *a, int64_t lda, const void *x, int64_t ldx,
                                           const sheaf__value *rows);
static inline sheaf__term sheaf__term_of(const void *a, int64_t lda, sheaf__right form,
                                         const void *b, int64_t ldb, int64_t k)
{
    return (sheaf__term){ .a = a, .lda = lda, .form = form, .b = b, .ldb = ldb, .k = k };
}
static inline sheaf__term sheaf__term_packed(const void *a, int64_t lda, sheaf__right form,
                                             const sheaf__packed *w, int64_t k)
{
    return (sheaf__term){ .a = a, .lda = lda, .form = form, .w = w, .k = k };
}
/* sheaf__batch_free - accepts NULL. sheaf__batch_run - runs the jobs; the batch is empty then. */
void sheaf__batch_free(sheaf__batch *b);
void sheaf__batch_run(sheaf__context *c, sheaf__batch *b);

/* A product whose slices meet in the tree, for this rank alone or with the others: begin, then each
 * slice and its terms, then finish; y in `out`. Every rank must finish. Of rows that are divided y
 * and the residual are this rank's. roots: this rank's subtrees of the sum end there in place of
 * that; NULL: they do not. */
void sheaf__batch_begin_tree(sheaf__batch *b);
void sheaf__batch_slice(sheaf__batch *b, int slice);
sheaf_status *sheaf__batch_finish_tree(sheaf__context *c, sheaf__batch *b, const sheaf_tree *tree,
                                       bool whole, int64_t m, int64_t n, void *y, sheaf_dtype out,
                                       const float *bias, const void *residual,
                                       const sheaf__row_shards *shards, float *const *roots);

/* LoRA's inner values of one op, g backward or h forward, share one sum over slices: [m, width],
 * the ranks of its layers side by side. */
typedef struct sheaf__lora_back {
    int64_t width, at[SHEAF__MAX_TOGETHER];
    float *part[SHEAF_MAX_SLICES], *spare; /* by owned slice */
    void *g;
} sheaf__lora_back;
/* sheaf__lora_slice - the lowest slice that has elements: in it g or h meets the replicated factor.
 */
int sheaf__lora_slice(const sheaf__linear *l);
/* Memory for `count` owned slices and m rows; given back also after a failure. */
sheaf_status *sheaf__lora_back_alloc(sheaf__context *c, sheaf__lora_back *l, int count, int64_t m);
void sheaf__lora_back_free(sheaf__context *c, sheaf__lora_back *l);
/* dst = round(scale * src), columns col.. of both, row strides ld. */
void sheaf__scaled_round(sheaf__context *c, void *dst, const float *src, int64_t rows, int64_t ld,
                         int64_t col, int64_t cols, float scale);
/* y = x [rows, cols] with the dropout of a layer's LoRA; y may be x. channel0: the logical index of
 * column 0. */
void sheaf__lora_drop(sheaf__context *c, void *y, const void *x, int64_t rows, int64_t cols,
                      int64_t channel0, const sheaf__lora_part *lora, const sheaf__step_info *info,
                      sheaf_dtype dtype);
/* Does a run of `info` drop inputs of this layer's LoRA? */
bool sheaf__linear_drops(const sheaf__linear *l, const sheaf__step_info *info);

/* sheaf__dora_norms - the factors of a layer with DoRA, where they are stale. Every rank must.
 * sheaf__dora_apply - y of u; residual may be NULL.
 * sheaf__dora_back - adds to the gradients of m and of the bias; g = (m / n) dy may be dy. */
sheaf_status *sheaf__dora_norms(sheaf__context *c, sheaf__linear *l);
void sheaf__dora_apply(sheaf__context *c, const sheaf__linear *l, void *y, const float *u,
                       const void *residual, int64_t rows);
sheaf_status *sheaf__dora_back(sheaf__context *c, const sheaf__linear *l, void *g, const void *dy,
                               const sheaf__value *u, int64_t rows);
static inline const struct sheaf__dora *sheaf__dora_of(const sheaf__linear *l)
{
    return l->lora == NULL ? NULL : l->lora->dora;
}
