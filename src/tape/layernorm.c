/* layernorm.c - LayerNorm as an op of the tape, see vision.h; formulas in ops/kernels.h.
 *
 * A whole width is one pass over each few rows. A cut one needs sums over slices: of x, of
 * (x - mean)^2, and backward of a and a*n together, a number for each row and slice. */
#include "tape/vision.h"

#include <assert.h>

#include "tape/rows.h"
#include "tape/shards.h"

typedef struct norm_params {
    sheaf__layernorm *norm;
    sheaf__value *x, *residual, *y, *mean, *rstd;
} norm_params;

/* y: its data, or backward its gradient. */
static sheaf__layer_norm operation_of(const sheaf__context *c, const norm_params *p, void *y)
{
    const sheaf__layernorm *norm = p->norm;
    return (sheaf__layer_norm){ .y = y,
                                .mean = p->mean->data,
                                .rstd = p->rstd->data,
                                .x = p->x->data,
                                .residual = p->residual == NULL ? NULL : p->residual->data,
                                .weight = norm->weight,
                                .bias = norm->bias,
                                .rows = sheaf__rows_present(p->x),
                                .cols = p->x->cols,
                                .width = norm->width,
                                .cut = norm->cut,
                                .slices = norm->count,
                                .begin = norm->begin + norm->first,
                                .extent = norm->extent + norm->first,
                                .eps = norm->eps,
                                .plain = norm->plain,
                                .dtype = c->dtype };
}

/* ---- a cut width ---- */

/* The total over all slices and ranks of sums of each row, of which `sums` has space for those of
 * each slice. A rank that holds no slice with columns gets the total in the first. */
static sheaf_status *sum_rows(sheaf__context *c, const norm_params *p, const sheaf__layer_norm *how,
                              float *sums, sheaf__norm_sums which, float **total)
{
    const int64_t n = how->rows * (which == SHEAF__SUMS_BACK ? 2 : 1);
    float *part[SHEAF_MAX_SLICES];
    sheaf__op_layernorm_sums(c->device, how, sums, which);
    for (int s = 0; s < how->slices; s++)
        part[s] = sums + s * n;
    return sheaf__sum_partials(c, &p->norm->tree, part, p->norm->first, sums, n, 1, total);
}

static sheaf_status *cut_forward(sheaf__context *c, const norm_params *p)
{
    const sheaf__layer_norm how = operation_of(c, p, p->y->data);
    float *sums = NULL, *total = NULL;
    sheaf_status *st =
        sheaf__alloc(&sums, c, (size_t)(how.slices * how.rows) * sizeof(float), SHEAF_MEM_SCRATCH);
    if (st == NULL && !how.plain)
        st = sum_rows(c, p, &how, sums, SHEAF__SUMS_X, &total);
    if (st == NULL) {
        sheaf__op_layernorm_statistics(c->device, &how, total, SHEAF__SUMS_X);
        st = sum_rows(c, p, &how, sums, SHEAF__SUMS_SQUARES, &total);
    }
    if (st == NULL) {
        sheaf__op_layernorm_statistics(c->device, &how, total, SHEAF__SUMS_SQUARES);
        sheaf__op_layernorm(c->device, &how);
    }
    sheaf__free(c, sums);
    return st;
}

static sheaf_status *cut_backward(sheaf__context *c, const norm_params *p)
{
    const sheaf__layer_norm how = operation_of(c, p, p->y->grad);
    float *sums = NULL, *total = NULL;
    sheaf_status *st = sheaf__alloc(&sums, c, (size_t)(how.slices * 2 * how.rows) * sizeof(float),
                                    SHEAF_MEM_SCRATCH);
    TRY(st, sum_rows(c, p, &how, sums, SHEAF__SUMS_BACK, &total));
    if (st == NULL)
        sheaf__op_layernorm_back(c->device, &how, p->x->grad, !p->x->grad_fresh, total);
    sheaf__free(c, sums);
    return st;
}

/* ---- the op ---- */

static sheaf_status *norm_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const norm_params *p = op->params;
    if (p->norm->cut)
        return cut_forward(c, p);
    const sheaf__layer_norm how = operation_of(c, p, p->y->data);
    sheaf__op_layernorm(c->device, &how);
    return NULL;
}

static sheaf_status *weight_gradient(sheaf__context *c, const norm_params *p, int slice)
{
    const sheaf__layernorm *norm = p->norm;
    const sheaf__trained *w = norm->weight_trained, *b = norm->bias_trained;
    const int64_t first = norm->begin[slice];
    return sheaf__sum_shards(
        c,
        &(sheaf__norm_weight){ w == NULL ? NULL : w->grad[slice], b == NULL ? NULL : b->grad[slice],
                               sheaf__at(p->y->grad, first, c->dtype),
                               w == NULL ? NULL : sheaf__at(p->x->data, first, c->dtype),
                               p->mean->data, p->rstd->data, p->x->cols, 0, norm->extent[slice],
                               c->dtype },
        p->x);
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const norm_params *p = op->params;
    const sheaf__layernorm *norm = p->norm;
    const sheaf__layer_norm how = operation_of(c, p, p->y->grad);
    sheaf_status *st = NULL;
    if (norm->weight_trained != NULL || norm->bias_trained != NULL)
        for (int s = norm->first; s < norm->first + norm->count; s++)
            TRY(st, weight_gradient(c, p, s));
    if (st == NULL && p->x->needs_grad && norm->cut)
        st = cut_backward(c, p);
    else if (st == NULL && p->x->needs_grad)
        sheaf__op_layernorm_back(c->device, &how, p->x->grad, !p->x->grad_fresh, NULL);
    if (st == NULL)
        sheaf__pass_gradient(c, p->residual, p->y);
    return st;
}

sheaf__value *sheaf__record_layernorm(sheaf__tape *tape, sheaf__value *x, sheaf__layernorm *norm,
                                      sheaf__value *residual)
{
    assert(residual == NULL || (!norm->cut && residual != x));
    const bool reads_x = x->needs_grad || norm->weight_trained != NULL;
    const bool flows =
        reads_x || norm->bias_trained != NULL || (residual != NULL && residual->needs_grad);
    sheaf__op *op = sheaf__tape_op(tape, norm->name, norm_forward, flows ? norm_backward : NULL,
                                   sizeof(norm_params));
    norm_params *p = op->params;
    *p = (norm_params){ norm,
                        x,
                        residual,
                        sheaf__tape_like(tape, x, norm->name, x->cols, x->dtype),
                        sheaf__tape_like(tape, x, "norm mean", 1, SHEAF_F32),
                        sheaf__tape_like(tape, x, "norm scale", 1, SHEAF_F32) };
    op->cheap = !norm->cut; /* a cut one sums over ranks */
    const unsigned keep = reads_x ? SHEAF__KEEP : 0;
    sheaf__op_makes(op, p->y, x, reads_x ? SHEAF__KEEP_NEAR : 0);
    sheaf__op_arg(op, p->mean, SHEAF__MAKE | keep);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | keep);
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | SHEAF__GRAD_WRITE);
    return p->y;
}

void sheaf__layernorm_refresh(sheaf__context *c, sheaf__layernorm *norm)
{
    for (int s = norm->first; s < norm->first + norm->count; s++) {
        if (norm->weight_trained != NULL)
            sheaf__refresh(c, norm->weight + norm->begin[s], norm->weight_trained->weight[s],
                           norm->extent[s], norm->one);
        if (norm->bias_trained != NULL)
            sheaf__refresh(c, norm->bias + norm->begin[s], norm->bias_trained->weight[s],
                           norm->extent[s], false);
    }
}
