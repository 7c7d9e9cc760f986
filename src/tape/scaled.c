/* scaled.c - see scaled.h. */
#include "tape/scaled.h"

#include "tape/rows.h"

typedef enum what { TIMES, DIVIDE, ADD } what;

typedef struct scaled_params {
    what what;
    sheaf__value *x, *h; /* h of ADD */
    float by;
    bool turns; /* the op that made x wants its gradient */
} scaled_params;

typedef struct scaled_args {
    const sheaf__context *c;
    what what;
    float by;
    void *x;
    const void *h;
} scaled_args;

static void scaled_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const scaled_args *a = arg;
    const sheaf__kernels *k = a->c->device->kernels;
    const sheaf_dtype t = a->c->dtype;
    float part[256], other[256];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < 256 ? end - i : 256;
        void *at = sheaf__at(a->x, i, t);
        k->widen(part, at, t, n);
        if (a->what == DIVIDE)
            for (int64_t e = 0; e < n; e++)
                part[e] /= a->by;
        else
            k->scale(part, a->by, n);
        k->round(at, t, part, n);
        if (a->what != ADD)
            continue;
        k->widen(part, at, t, n);
        k->widen(other, sheaf__at(a->h, i, t), t, n);
        k->add(part, other, part, n);
        k->round(at, t, part, n);
    }
}

static void scale_all(const sheaf__context *c, const scaled_params *p, what what, void *data)
{
    scaled_args a = { c, what, p->by, data, what == ADD ? p->h->data : NULL };
    sheaf__rows(c, p->x->rows * p->x->cols, 1 << 14, scaled_elements, &a);
}

static sheaf_status *scaled_forward(sheaf__tape *tape, sheaf__op *op)
{
    const scaled_params *p = op->params;
    scale_all(sheaf__tape_context(tape), p, p->what, p->x->data);
    return NULL;
}

typedef struct copy_args {
    const sheaf__context *c;
    void *to;
    const void *from;
} copy_args;

static void copy_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const copy_args *a = arg;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->convert(sheaf__at(a->to, begin, t), t, sheaf__at(a->from, begin, t), t,
                                   end - begin);
}

static sheaf_status *scaled_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const scaled_params *p = op->params;
    const int64_t n = p->x->rows * p->x->cols;
    if (p->what == ADD && p->h->needs_grad && p->h->grad_fresh)
        sheaf__rows(c, n, 1 << 14, copy_elements, &(copy_args){ c, p->h->grad, p->x->grad });
    else if (p->what == ADD && p->h->needs_grad)
        sheaf__accumulate(c, p->h->grad, p->x->grad, n, c->dtype);
    if (p->turns)
        scale_all(c, p, p->what == ADD ? TIMES : p->what, p->x->grad);
    return NULL;
}

static void record(sheaf__tape *tape, const char *name, what what, sheaf__value *x, sheaf__value *h,
                   float by)
{
    const bool turns = x->needs_grad, flows = turns || (h != NULL && h->needs_grad);
    sheaf__op *op = sheaf__tape_op(tape, name, scaled_forward, flows ? scaled_backward : NULL,
                                   sizeof(scaled_params));
    *(scaled_params *)op->params = (scaled_params){ what, x, h, by, turns };
    x->needs_grad = flows;
    if (h != NULL)
        sheaf__op_arg(op, h, SHEAF__READ | (h->needs_grad ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, x, SHEAF__CHANGE | (turns ? SHEAF__TURNS : flows ? SHEAF__GIVES : 0));
}

void sheaf__record_times_number(sheaf__tape *tape, sheaf__value *x, float by)
{
    record(tape, "scale of rows", TIMES, x, NULL, by);
}

void sheaf__record_divide(sheaf__tape *tape, sheaf__value *x, float by)
{
    record(tape, "division of rows", DIVIDE, x, NULL, by);
}

sheaf__value *sheaf__record_add_scaled(sheaf__tape *tape, sheaf__value *h, sheaf__value *y,
                                       float by)
{
    record(tape, "scaled branch", ADD, y, h, by);
    return y;
}
