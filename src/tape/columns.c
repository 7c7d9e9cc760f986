/* columns.c - see columns.h. Ranks own runs of whole slices, so their columns lie side by side. */
#include "tape/columns.h"

#include <string.h>

#include "tape/rows.h"

typedef struct own_params {
    const sheaf__linear *linear;
    sheaf__value *x, *y;
    int64_t begin[SHEAF_MAX_SLICES + 1]; /* by rank: its first column; [ranks] = all */
} own_params;

static sheaf_status *own_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const own_params *p = op->params;
    if (c->device->kind != SHEAF_DRY)
        sheaf__copy_box(c, p->y->data, p->y->cols,
                        (const char *)p->x->data +
                            p->begin[c->rank] * (int64_t)sheaf_dtype_bytes(c->dtype),
                        p->x->cols, p->x->rows, p->y->cols);
    return NULL;
}

static sheaf_status *own_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const own_params *p = op->params;
    const int64_t rows = p->x->rows, size = (int64_t)sheaf_dtype_bytes(c->dtype);
    if (!p->x->needs_grad)
        return NULL;
    size_t bytes[SHEAF_MAX_SLICES];
    for (int r = 0; r < c->ranks; r++)
        bytes[r] = (size_t)((p->begin[r + 1] - p->begin[r]) * rows * size);
    char *all = NULL, *apart = NULL;
    sheaf_status *st = sheaf__take(&all, c, (size_t)(rows * p->x->cols * size), SHEAF_MEM_EXCHANGE);
    if (st == NULL && !p->x->grad_fresh)
        st = sheaf__take(&apart, c, (size_t)(rows * p->x->cols * size), SHEAF_MEM_SCRATCH);
    if (st == NULL && c->device->kind == SHEAF_DRY)
        st = c->comm == NULL ? NULL : sheaf_comm_gather(c->comm, all, bytes);
    else if (st == NULL) {
        memcpy(all + p->begin[c->rank] * rows * size, p->y->grad, bytes[c->rank]);
        st = c->comm == NULL ? NULL : sheaf_comm_gather(c->comm, all, bytes);
        char *dx = apart != NULL ? apart : p->x->grad;
        for (int r = 0; r < c->ranks && st == NULL; r++) {
            const int64_t cols = p->begin[r + 1] - p->begin[r];
            sheaf__copy_box(c, dx + p->begin[r] * size, p->x->cols, all + p->begin[r] * rows * size,
                            cols, rows, cols);
        }
        if (st == NULL && apart != NULL)
            sheaf__accumulate(c, p->x->grad, apart, rows * p->x->cols, c->dtype);
    }
    sheaf__give(c, all);
    sheaf__give(c, apart);
    return st;
}

sheaf__value *sheaf__record_own_columns(sheaf__tape *tape, sheaf__value *x,
                                        const sheaf__linear *linear)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const bool flows = x->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, linear->name, own_forward, flows ? own_backward : NULL,
                                   sizeof(own_params));
    own_params *p = op->params;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (own_params){
        linear, x, sheaf__tape_value(tape, linear->name, x->rows, linear->owned, x->dtype), { 0 }
    };
    for (int r = 0; r < c->ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(c->slices, c->ranks, r);
        p->begin[r + 1] = p->begin[r];
        for (int64_t s = own.begin; s < own.end; s++)
            p->begin[r + 1] += linear->extent[s];
    }
    p->y->needs_grad = flows;
    sheaf__op_arg(op, x, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    return p->y;
}
