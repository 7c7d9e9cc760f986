/* linear_times.c - y = x W for a weight that is stored as [in, out]: the panels of the layer are
 * those of any weight, read the other way round; see linear.h. */
#include <assert.h>

#include "tape/linear_inner.h"
#include "tape/rows.h"

typedef struct times_params {
    sheaf__linear *linear;
    sheaf__value *x, *y;
} times_params;

static sheaf_status *times_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const times_params *p = op->params;
    sheaf__batch *b;
    sheaf_status *st = sheaf__batch_new(&b);
    if (st != NULL)
        return st;
    sheaf__product *job =
        sheaf__batch_job(b, p->x->rows, p->y->cols, c->dtype, p->y->data, p->y->cols, c->dtype);
    sheaf__batch_term(
        b, job,
        sheaf__term_packed(p->x->data, p->x->cols, SHEAF__B_BACK, &p->linear->w[0], p->x->cols));
    sheaf__batch_run(c, b);
    sheaf__batch_free(b);
    return NULL;
}

static sheaf_status *input_gradient(sheaf__context *c, const times_params *p, sheaf__batch *b)
{
    void *dx;
    sheaf_status *st = sheaf__take_gradient(&dx, c, p->x);
    if (st != NULL)
        return st;
    sheaf__product *job =
        sheaf__batch_job(b, p->x->rows, p->x->cols, c->dtype, dx, p->x->cols, c->dtype);
    sheaf__batch_term(
        b, job,
        sheaf__term_packed(p->y->grad, p->y->cols, SHEAF__B_AHEAD, &p->linear->w[0], p->y->cols));
    sheaf__batch_run(c, b);
    sheaf__give_gradient(c, p->x, dx, true);
    return NULL;
}

static sheaf_status *times_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const times_params *p = op->params;
    sheaf__batch *b;
    sheaf_status *st = sheaf__batch_new(&b);
    if (st != NULL)
        return st;
    if (p->linear->weight_trained != NULL) {
        st = sheaf__batch_weight_gradient(b, p->linear->weight_trained->grad[0], p->x->cols,
                                          p->y->cols, p->x->data, p->x->cols, p->y->grad,
                                          p->y->cols, p->x);
        if (st == NULL)
            sheaf__batch_run(c, b);
    }
    if (st == NULL && p->x->needs_grad)
        st = input_gradient(c, p, b);
    sheaf__batch_free(b);
    return st;
}

sheaf__value *sheaf__record_times(sheaf__tape *tape, sheaf__value *x, sheaf__linear *linear)
{
    assert(linear->whole && linear->turned && linear->bias == NULL && linear->lora == NULL &&
           x->cols == linear->out);
    const bool trains = linear->weight_trained != NULL, flows = trains || x->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, linear->name, times_forward, flows ? times_backward : NULL,
                                   sizeof(times_params));
    times_params *p = op->params;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (times_params){ linear, x,
                         sheaf__tape_value(tape, linear->name, x->rows, linear->in, x->dtype) };
    return sheaf__op_makes(op, p->y, x, flows, trains ? SHEAF__KEEP : 0);
}
