/* scaled.c - see scaled.h. */
#include "tape/scaled.h"

#include "tape/rows.h"

/* y = x * by; y = x / by; y = h + x * by. In place x and y are one value. */
typedef struct scaled_params {
    bool divide;
    sheaf__value *x, *y, *h; /* h NULL: nothing is added */
    float by;
    bool turns; /* the gradient of x is wanted */
} scaled_params;

static void run(const sheaf__context *c, const scaled_params *p, void *y, const void *x,
                const void *h, bool add)
{
    sheaf__op_scaled(c->device, y, x, h, p->by, sheaf__rows_present(p->x) * p->x->cols, p->divide,
                     add, c->dtype);
}

static sheaf_status *scaled_forward(sheaf__tape *tape, sheaf__op *op)
{
    const scaled_params *p = op->params;
    run(sheaf__tape_context(tape), p, p->y->data, p->x->data, p->h == NULL ? NULL : p->h->data,
        false);
    return NULL;
}

static sheaf_status *scaled_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const scaled_params *p = op->params;
    if (p->h != NULL && p->h->needs_grad)
        sheaf__copy(c, p->h->grad, p->y->grad, sheaf__rows_present(p->x) * p->x->cols,
                    !p->h->grad_fresh);
    if (p->turns)
        run(c, p, p->x->grad, p->y->grad, NULL, p->x != p->y && !p->x->grad_fresh);
    return NULL;
}

static sheaf__op *record(sheaf__tape *tape, const char *name, scaled_params how)
{
    const bool flows = how.turns || (how.h != NULL && how.h->needs_grad);
    sheaf__op *op =
        sheaf__tape_op(tape, name, scaled_forward, flows ? scaled_backward : NULL, sizeof how);
    *(scaled_params *)op->params = how;
    if (how.h != NULL)
        sheaf__op_arg(op, how.h, SHEAF__READ | SHEAF__GRAD_WRITE);
    if (how.x == how.y)
        sheaf__op_changes(op, how.x, flows);
    return op;
}

void sheaf__record_times_number(sheaf__tape *tape, sheaf__value *x, float by)
{
    record(tape, "scale of rows", (scaled_params){ false, x, x, NULL, by, x->needs_grad });
}

void sheaf__record_scale(sheaf__tape *tape, sheaf__value *x, float by)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    uint32_t rounded;
    c->device->kernels->round(&rounded, c->dtype, &by, 1);
    c->device->kernels->widen(&by, &rounded, c->dtype, 1);
    record(tape, "scale of the embedding", (scaled_params){ false, x, x, NULL, by, x->needs_grad });
}

sheaf__value *sheaf__record_divide(sheaf__tape *tape, sheaf__value *x, float by)
{
    sheaf__value *y = sheaf__tape_like(tape, x, "divided rows", x->cols, x->dtype);
    sheaf__op *op =
        record(tape, "division of rows", (scaled_params){ true, x, y, NULL, by, x->needs_grad });
    return sheaf__op_makes(op, y, x, 0);
}

sheaf__value *sheaf__record_add_scaled(sheaf__tape *tape, sheaf__value *h, sheaf__value *y,
                                       float by)
{
    record(tape, "scaled branch", (scaled_params){ false, y, y, h, by, y->needs_grad });
    return y;
}
