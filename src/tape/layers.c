/* layers.c - see layers.h. */
#include "tape/layers.h"

#include <string.h>

#include "tape/linear.h"
#include "tape/rows.h"

/* ---- RMSNorm ---- */

typedef struct norm_params {
    sheaf__norm *norm;
    sheaf__value *x, *y, *rstd;
} norm_params;

static void norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const int64_t w = p->norm->width;
    float *rstd = p->rstd->data;
    a->c->device->kernels->rmsnorm(sheaf__at(p->y->data, begin * w, a->c->dtype), rstd + begin,
                                   sheaf__at(p->x->data, begin * w, a->c->dtype), p->norm->weight,
                                   end - begin, w, p->norm->eps, p->norm->once, a->c->dtype);
}

static sheaf_status *norm_forward(sheaf__tape *tape, sheaf__op *op)
{
    const norm_params *p = op->params;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->x), 16, norm_rows);
}

/* Remade while the rows are in the cache. */
static void norm_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const sheaf__kernels *k = a->c->device->kernels;
    const int64_t w = p->norm->width;
    const sheaf_dtype t = a->c->dtype;
    void *y = sheaf__at(p->y->grad, begin * w, t), *x = sheaf__at(p->x->data, begin * w, t);
    float *rstd = (float *)p->rstd->data + begin;
    if (p->x->needs_grad)
        k->rmsnorm_back(sheaf__at(p->x->grad, begin * w, t), y, x, p->norm->weight, rstd,
                        end - begin, w, !p->x->grad_fresh, t);
    if (p->y->remade)
        k->rmsnorm(y, rstd, x, p->norm->weight, end - begin, w, p->norm->eps, p->norm->once, t);
}

static void norm_weight_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const int64_t w = p->norm->width;
    a->c->device->kernels->layernorm_dw(p->norm->trained->grad[0], NULL, p->y->grad, w, p->x->data,
                                        w, NULL, p->rstd->data, p->x->rows, begin, end,
                                        a->c->dtype);
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    const norm_params *p = op->params;
    if (p->norm->trained != NULL)
        sheaf__op_rows(tape, op, p->norm->width, 64, norm_weight_columns);
    if (p->x->needs_grad || p->y->remade)
        sheaf__op_rows(tape, op, sheaf__rows_there(p->x), 16, norm_back_rows);
    return NULL;
}

sheaf__value *sheaf__record_rmsnorm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm)
{
    const bool flows = x->needs_grad || norm->trained != NULL;
    sheaf__op *op = sheaf__tape_op(tape, norm->name, norm_forward, flows ? norm_backward : NULL,
                                   sizeof(norm_params));
    norm_params *p = op->params;
    op->cheap = op->remakes = true;
    *p = (norm_params){ norm, x, sheaf__tape_value(tape, norm->name, x->rows, x->cols, x->dtype),
                        sheaf__tape_value(tape, "norm scale", x->rows, 1, SHEAF_F32) };
    sheaf__rows_as(p->y, x);
    sheaf__rows_as(p->rstd, x);
    if (norm->trained == NULL) /* row by row */
        p->y->grad_rows = x->grad_rows;
    sheaf__op_makes(op, p->y, x, flows, SHEAF__KEEP);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | (flows ? SHEAF__KEEP : 0));
    return p->y;
}

void sheaf__norm_refresh(sheaf__context *c, sheaf__norm *norm)
{
    if (norm->trained == NULL || c->device->kind == SHEAF_DRY)
        return;
    for (int64_t i = 0; i < norm->width; i++) {
        uint32_t rounded;
        c->device->kernels->round(&rounded, c->dtype, norm->trained->weight[0] + i, 1);
        c->device->kernels->widen(norm->weight + i, &rounded, c->dtype, 1);
    }
    if (norm->one)
        sheaf__add_one(c, norm->weight, norm->width);
}

/* ---- rotary embedding ---- */

typedef struct rope_params {
    sheaf__rope_table *table;
    int64_t heads, head_dim, queries;
    const sheaf__rows_in *in;
    sheaf__value *x;
} rope_params;

typedef struct rope_args {
    sheaf__context *c;
    const rope_params *p;
    bool inverse;
} rope_args;

static void rope_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const rope_args *a = arg;
    const rope_params *p = a->p;
    void *x = a->inverse ? p->x->grad : p->x->data;
    a->c->device->kernels->rope(sheaf__at(x, begin * p->x->cols, a->c->dtype), p->x->cols,
                                p->table->cos, p->table->sin, p->in->position + begin, end - begin,
                                p->heads, p->head_dim, p->table->rot, a->inverse, a->c->dtype);
}

typedef struct rope_part {
    const rope_args *all;
    int64_t first;
} rope_part;

static void rope_part_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const rope_part *part = arg;
    rope_rows((void *)part->all, part->first + begin, part->first + end, worker);
}

/* Positions of the sequence in rows [begin, end), without the padding behind it, of which a row has
 * as much as its neighbours are longer. */
static int64_t own_length(const rope_params *p, int64_t begin, int64_t end)
{
    const sheaf__rows_in *in = p->in;
    const uint8_t *mask = in->key_mask;
    if (mask != NULL && in->keys >= p->queries) {
        mask += begin / p->queries * in->mask_ld + in->keys - p->queries;
        while (end > begin + 1 && mask[(end - 1) % p->queries] == 0)
            end--;
    }
    return in->position[end - 1] + (int64_t)1;
}

/* Sequences turn by the angles of their own length: positions ascend by one, and begin again with
 * each that is packed behind another. */
static void turn(const rope_args *a)
{
    const rope_params *p = a->p;
    const int32_t *position = p->in->position;
    const int64_t rows = p->x->rows;
    if (p->table->lengthen == NULL || a->c->device->kind == SHEAF_DRY) {
        sheaf__rows(a->c, rows, 32, rope_rows, (void *)a);
        return;
    }
    for (int64_t begin = 0, end; begin < rows; begin = end) {
        for (end = begin + 1; end < rows && end % p->queries != 0; end++)
            if (position[end] != position[end - 1] + 1)
                break;
        p->table->lengthen(p->table, a->c, own_length(p, begin, end));
        rope_part part = { a, begin };
        sheaf__rows(a->c, end - begin, 32, rope_part_rows, &part);
    }
}

static sheaf_status *rope_forward(sheaf__tape *tape, sheaf__op *op)
{
    turn(&(rope_args){ sheaf__tape_context(tape), op->params, false });
    return NULL;
}

static sheaf_status *rope_backward(sheaf__tape *tape, sheaf__op *op)
{
    turn(&(rope_args){ sheaf__tape_context(tape), op->params, true });
    return NULL;
}

void sheaf__record_rope(sheaf__tape *tape, sheaf__value *x, sheaf__rope_table *table, int64_t heads,
                        int64_t head_dim, int64_t queries, const sheaf__rows_in *in)
{
    sheaf__op *op = sheaf__tape_op(tape, "rotary embedding", rope_forward,
                                   x->needs_grad ? rope_backward : NULL, sizeof(rope_params));
    *(rope_params *)op->params = (rope_params){ table, heads, head_dim, queries, in, x };
    sheaf__op_arg(op, x, SHEAF__CHANGE | SHEAF__TURNS);
}

/* ---- SwiGLU ---- */

typedef struct swiglu_params {
    bool gelu;
    sheaf__value *gate, *up, *h;
} swiglu_params;
static void swiglu_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const swiglu_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->swiglu(sheaf__at(p->h->data, begin, t),
                                  sheaf__at(p->gate->data, begin, t),
                                  sheaf__at(p->up->data, begin, t), end - begin, p->gelu, t);
}

static sheaf_status *swiglu_forward(sheaf__tape *tape, sheaf__op *op)
{
    const swiglu_params *p = op->params;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->h) * p->h->cols, 1 << 14, swiglu_elements);
}

/* What is remade takes the place of its gradient. */
static void swiglu_back_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const swiglu_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    void *dh = sheaf__at(p->h->grad, begin, t);
    a->c->device->kernels->swiglu_back(sheaf__at(p->gate->grad, begin, t),
                                       sheaf__at(p->up->grad, begin, t), p->h->remade ? dh : NULL,
                                       dh, sheaf__at(p->gate->data, begin, t),
                                       sheaf__at(p->up->data, begin, t), end - begin, p->gelu, t);
}

static sheaf_status *swiglu_backward(sheaf__tape *tape, sheaf__op *op)
{
    const swiglu_params *p = op->params;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->h) * p->h->cols, 1 << 14,
                          swiglu_back_elements);
}

sheaf__value *sheaf__record_swiglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up,
                                   bool gelu)
{
    const bool flows = gate->needs_grad;
    const char *name = gelu ? "geglu" : "swiglu";
    sheaf__op *op = sheaf__tape_op(tape, name, swiglu_forward, flows ? swiglu_backward : NULL,
                                   sizeof(swiglu_params));
    swiglu_params *p = op->params;
    *p = (swiglu_params){ gelu, gate, up,
                          sheaf__tape_value(tape, name, gate->rows, gate->cols, gate->dtype) };
    op->cheap = op->remakes = true;
    sheaf__rows_as(p->h, gate);
    p->h->needs_grad = flows;
    const unsigned use = SHEAF__READ | (flows ? SHEAF__KEEP | SHEAF__TAKES | SHEAF__OVER : 0);
    sheaf__op_arg(op, gate, use);
    sheaf__op_arg(op, up, use);
    sheaf__op_arg(op, p->h, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    return p->h;
}
