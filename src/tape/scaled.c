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

static void scaled_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const scaled_params *p = a->params;
    const sheaf__kernels *k = a->c->device->kernels;
    const sheaf_dtype t = a->c->dtype;
    const bool add = a->backward && p->x != p->y && !p->x->grad_fresh,
               branch = !a->backward && p->h != NULL;
    void *y = a->backward ? p->x->grad : p->y->data, *x = a->backward ? p->y->grad : p->x->data;
    float part[256], other[256];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < 256 ? end - i : 256;
        void *to = sheaf__at(y, i, t);
        k->widen(part, sheaf__at(x, i, t), t, n);
        if (p->divide)
            for (int64_t e = 0; e < n; e++)
                part[e] /= p->by;
        else
            k->scale(part, p->by, n);
        if (branch) {
            k->round(to, t, part, n);
            k->widen(part, to, t, n);
        }
        if (branch || add) {
            k->widen(other, add ? to : sheaf__at(p->h->data, i, t), t, n);
            k->add(part, other, part, n);
        }
        k->round(to, t, part, n);
    }
}

static sheaf_status *scaled_backward(sheaf__tape *tape, sheaf__op *op)
{
    const scaled_params *p = op->params;
    if (p->h != NULL && p->h->needs_grad)
        sheaf__copy(sheaf__tape_context(tape), p->h->grad, p->y->grad,
                    sheaf__rows_present(p->x) * p->x->cols, !p->h->grad_fresh);
    return p->turns ? sheaf__op_each(tape, op, true) : NULL;
}

static sheaf__op *record(sheaf__tape *tape, const char *name, scaled_params how)
{
    const bool flows = how.turns || (how.h != NULL && how.h->needs_grad);
    sheaf__op *op = sheaf__tape_each(tape, name, sizeof how, how.x, 0, scaled_elements,
                                     flows ? scaled_elements : NULL);
    *(scaled_params *)op->params = how;
    if (flows)
        op->backward = scaled_backward;
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
