/* scaled.c - see scaled.h. */
#include "tape/scaled.h"

#include "tape/rows.h"

/* y = x * by; y = x / by; y = h + x * by. In place x and y are one value. */
typedef enum what { TIMES, DIVIDE, ADD } what;

typedef struct scaled_params {
    what what;
    sheaf__value *x, *y, *h; /* h of ADD */
    float by;
    bool turns; /* in place: the op that made x wants its gradient */
} scaled_params;

typedef struct scaled_args {
    const sheaf__context *c;
    what what;
    float by;
    void *y;
    const void *x, *h;
    bool add; /* to y */
} scaled_args;

static void scaled_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const scaled_args *a = arg;
    const sheaf__kernels *k = a->c->device->kernels;
    const sheaf_dtype t = a->c->dtype;
    float part[256], other[256];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < 256 ? end - i : 256;
        void *to = sheaf__at(a->y, i, t);
        k->widen(part, sheaf__at(a->x, i, t), t, n);
        if (a->what == DIVIDE)
            for (int64_t e = 0; e < n; e++)
                part[e] /= a->by;
        else
            k->scale(part, a->by, n);
        if (a->what == ADD) {
            k->round(to, t, part, n);
            k->widen(part, to, t, n);
        }
        if (a->what == ADD || a->add) {
            k->widen(other, a->add ? to : sheaf__at(a->h, i, t), t, n);
            k->add(part, other, part, n);
        }
        k->round(to, t, part, n);
    }
}

static sheaf_status *scaled_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const scaled_params *p = op->params;
    scaled_args a = { c,          p->what,    p->by,
                      p->y->data, p->x->data, p->h == NULL ? NULL : p->h->data,
                      false };
    sheaf__rows(c, sheaf__rows_there(p->x) * p->x->cols, 1 << 14, scaled_elements, &a);
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
    const int64_t n = sheaf__rows_there(p->x) * p->x->cols;
    const bool to_h = p->h != NULL && p->h->needs_grad, apart = p->x != p->y;
    if (to_h && p->h->grad_fresh)
        sheaf__rows(c, n, 1 << 14, copy_elements, &(copy_args){ c, p->h->grad, p->y->grad });
    else if (to_h)
        sheaf__accumulate(c, p->h->grad, p->y->grad, n, c->dtype);
    scaled_args a = { c,    p->what == DIVIDE ? DIVIDE : TIMES, p->by, p->x->grad, p->y->grad,
                      NULL, apart && !p->x->grad_fresh };
    if (apart || p->turns)
        sheaf__rows(c, n, 1 << 14, scaled_elements, &a);
    return NULL;
}

static void record_in_place(sheaf__tape *tape, const char *name, what what, sheaf__value *x,
                            sheaf__value *h, float by)
{
    const bool turns = x->needs_grad, flows = turns || (h != NULL && h->needs_grad);
    sheaf__op *op = sheaf__tape_op(tape, name, scaled_forward, flows ? scaled_backward : NULL,
                                   sizeof(scaled_params));
    *(scaled_params *)op->params = (scaled_params){ what, x, x, h, by, turns };
    x->needs_grad = flows;
    if (h != NULL)
        sheaf__op_arg(op, h, SHEAF__READ | (h->needs_grad ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, x, SHEAF__CHANGE | (turns ? SHEAF__TURNS : flows ? SHEAF__GIVES : 0));
}

void sheaf__record_times_number(sheaf__tape *tape, sheaf__value *x, float by)
{
    record_in_place(tape, "scale of rows", TIMES, x, NULL, by);
}

void sheaf__record_scale(sheaf__tape *tape, sheaf__value *x, float by)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const sheaf__kernels *k = c->device->kernels;
    uint32_t rounded;
    k->round(&rounded, c->dtype, &by, 1);
    k->widen(&by, &rounded, c->dtype, 1);
    record_in_place(tape, "scale of the embedding", TIMES, x, NULL, by);
}

sheaf__value *sheaf__record_divide(sheaf__tape *tape, sheaf__value *x, float by)
{
    const bool flows = x->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "division of rows", scaled_forward,
                                   flows ? scaled_backward : NULL, sizeof(scaled_params));
    sheaf__value *y = sheaf__tape_value(tape, "divided rows", x->rows, x->cols, x->dtype);
    *(scaled_params *)op->params = (scaled_params){ DIVIDE, x, y, NULL, by, false };
    sheaf__rows_as(y, x);
    return sheaf__op_makes(op, y, x, flows, 0);
}

sheaf__value *sheaf__record_add_scaled(sheaf__tape *tape, sheaf__value *h, sheaf__value *y,
                                       float by)
{
    record_in_place(tape, "scaled branch", ADD, y, h, by);
    return y;
}
