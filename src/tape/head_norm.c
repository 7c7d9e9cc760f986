/* head_norm.c - RMSNorm of each head of queries or keys by itself, with one weight for all heads.
 *
 * Forward and dx are those of dense rows, a head each. The heads are cut over slices, so the
 * gradient of the weight, which every rank holds whole, is a sum over slices: within a slice head
 * after head, rows ascending in blocks of 256; then the tree. */
#include "base/base.h"
#include "tape/layers.h"

#include "tape/linear.h"
#include "tape/rows.h"

enum { COLUMNS = 16 }; /* of the weight that a thread sums at a time */

typedef struct head_params {
    sheaf__norm *norm;
    const sheaf__linear *like;
    sheaf__value *x, *y, *rstd; /* rstd: [rows, owned heads] */
} head_params;

typedef struct head_args {
    sheaf__context *c;
    const head_params *p;
    int64_t heads; /* owned */
    float *part;   /* [slices held][width] */
    float *rstd;   /* [owned heads][rows], and behind them a row of zeros: means */
} head_args;

static void norm_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    const head_args *a = arg;
    const head_params *p = a->p;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->rmsnorm(
        sheaf__at(p->y->data, begin * p->x->cols, t), (float *)p->rstd->data + begin * a->heads,
        sheaf__at(p->x->data, begin * p->x->cols, t), p->norm->weight, (end - begin) * a->heads,
        p->norm->width, p->norm->eps, p->norm->once, t);
}

static head_args args_of(sheaf__tape *tape, const sheaf__op *op)
{
    const head_params *p = op->params;
    return (head_args){ sheaf__tape_context(tape), p, p->x->cols / p->norm->width, NULL, NULL };
}

static sheaf_status *head_forward(sheaf__tape *tape, sheaf__op *op)
{
    head_args a = args_of(tape, op);
    sheaf__rows(a.c, a.p->x->rows, 16, norm_heads, &a);
    return NULL;
}

static void head_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const head_args *a = arg;
    const head_params *p = a->p;
    const sheaf_dtype t = a->c->dtype;
    const int64_t at = begin * p->x->cols;
    a->c->device->kernels->rmsnorm_back(
        sheaf__at(p->x->grad, at, t), sheaf__at(p->y->grad, at, t), sheaf__at(p->x->data, at, t),
        p->norm->weight, (float *)p->rstd->data + begin * a->heads, (end - begin) * a->heads,
        p->norm->width, !p->x->grad_fresh, t);
}

/* ---- the weight ---- */

static void turn_scales(void *arg, int64_t begin, int64_t end, int worker)
{
    const head_args *a = arg;
    const int64_t rows = a->p->x->rows;
    for (int64_t h = begin; h < end; h++)
        for (int64_t r = 0; r < rows; r++)
            a->rstd[h * rows + r] =
                h < a->heads ? ((float *)a->p->rstd->data)[r * a->heads + h] : 0;
}

/* Items are blocks of columns, slice after slice. With a mean of zero n of a LayerNorm is that of
 * an RMSNorm. */
static void weight_items(void *arg, int64_t begin, int64_t end, int worker)
{
    const head_args *a = arg;
    const head_params *p = a->p;
    const int64_t width = p->norm->width, rows = p->x->rows, ld = p->x->cols,
                  blocks = (width + COLUMNS - 1) / COLUMNS;
    const sheaf_dtype t = a->c->dtype;
    for (int64_t i = begin; i < end; i++) {
        const int s = (int)(i / blocks);
        const int64_t first = i % blocks * COLUMNS,
                      last = first + COLUMNS < width ? first + COLUMNS : width,
                      at = p->like->begin[p->like->first + s],
                      extent = p->like->extent[p->like->first + s];
        float *part = a->part + s * width;
        memset(part + first, 0, (size_t)(last - first) * sizeof *part);
        for (int64_t head = at; head < at + extent; head += width)
            a->c->device->kernels->layernorm_dw(
                part, NULL, sheaf__at(p->y->grad, head, t), ld, sheaf__at(p->x->data, head, t), ld,
                a->rstd + a->heads * rows, a->rstd + head / width * rows, rows, first, last, t);
    }
}

static sheaf_status *weight_gradient(head_args *a)
{
    const head_params *p = a->p;
    const sheaf__linear *like = p->like;
    const int64_t width = p->norm->width, blocks = (width + COLUMNS - 1) / COLUMNS;
    float *part[SHEAF_MAX_SLICES], *spare = NULL, *total = NULL;
    sheaf_status *st = sheaf__take(&a->part, a->c, (size_t)(like->count * width) * sizeof(float),
                                   SHEAF_MEM_SCRATCH);
    TRY(st, sheaf__take(&spare, a->c, (size_t)width * sizeof(float), SHEAF_MEM_SCRATCH));
    TRY(st, sheaf__take(&a->rstd, a->c, (size_t)((a->heads + 1) * p->x->rows) * sizeof(float),
                        SHEAF_MEM_SCRATCH));
    if (st == NULL) {
        sheaf__rows(a->c, a->heads + 1, 1, turn_scales, a);
        sheaf__rows(a->c, like->count * blocks, 1, weight_items, a);
        for (int s = 0; s < like->count; s++)
            part[s] = a->part + s * width;
        st = sheaf__sum_partials(a->c, &like->tree, part, like->first, spare, 1, width, &total);
    }
    if (st == NULL)
        sheaf__add(a->c, p->norm->trained->grad[0], total, width);
    sheaf__give(a->c, a->rstd);
    sheaf__give(a->c, spare);
    sheaf__give(a->c, a->part);
    return st;
}

static sheaf_status *head_backward(sheaf__tape *tape, sheaf__op *op)
{
    head_args a = args_of(tape, op);
    sheaf_status *st = a.p->norm->trained != NULL ? weight_gradient(&a) : NULL;
    if (st == NULL && a.p->x->needs_grad)
        sheaf__rows(a.c, a.p->x->rows, 16, head_back_rows, &a);
    return st;
}

sheaf__value *sheaf__record_head_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                      const sheaf__linear *like)
{
    const bool flows = x->needs_grad || norm->trained != NULL;
    sheaf__op *op = sheaf__tape_op(tape, norm->name, head_forward, flows ? head_backward : NULL,
                                   sizeof(head_params));
    head_params *p = op->params;
    *p = (head_params){
        norm, like, x, sheaf__tape_value(tape, norm->name, x->rows, x->cols, x->dtype),
        sheaf__tape_value(tape, "norm scale", x->rows, x->cols / norm->width, SHEAF_F32)
    };
    sheaf__op_makes(op, p->y, x, flows, SHEAF__KEEP);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | (flows ? SHEAF__KEEP : 0));
    return p->y;
}
