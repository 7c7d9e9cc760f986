/* linear_rows.c - layers cut along their input: forward, backward and what is recorded; see
 * linear.h.
 *
 * The slices meet in forward, where bias and residual are added to the finished sum; backward needs
 * no other rank, so dx is a product for each slice and g one for the whole layer. */
#include "base/base.h"
#include "tape/linear_inner.h"
#include "tape/rows.h"

typedef struct rows_params {
    sheaf__linear *linear;
    const sheaf__step_info *info;
    sheaf__value *x, *y, *residual, *h, *xd;
} rows_params;

/* Where h goes: a value of the tape, where dB needs it. */
static void *h_of(const rows_params *p, const sheaf__lora_back *l)
{
    return p->h != NULL ? p->h->data : l->g;
}

static sheaf_status *rows_lora_inner(sheaf__context *c, const rows_params *p, sheaf__lora_back *l,
                                     sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const int64_t m = sheaf__rows_there(p->x);
    const void *x = p->xd != NULL ? p->xd->data : p->x->data;
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (layer->extent[s] == 0)
            continue;
        sheaf__product *job = sheaf__batch_job(b, m, lora->rank, c->dtype,
                                               l->part[s - layer->first], lora->rank, SHEAF_F32);
        sheaf__batch_term(b, job,
                          sheaf__term_of(sheaf__at(x, layer->begin[s], c->dtype), layer->owned,
                                         SHEAF__B_NK, lora->a_copy[s], layer->extent[s],
                                         layer->extent[s]));
    }
    sheaf__batch_run(c, b);
    float *total;
    sheaf_status *st = sheaf__sum_partials(c, &layer->tree, l->part, layer->first, l->spare, m,
                                           lora->rank, &total);
    if (st == NULL)
        sheaf__scaled_round(c, h_of(p, l), total, m, lora->rank, 0, lora->rank, lora->scale);
    return st;
}

static sheaf_status *rows_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const rows_params *p = op->params;
    const sheaf__linear *layer = p->linear;
    const int64_t m = sheaf__rows_there(p->x);
    sheaf__lora_back l = { .width = layer->lora == NULL ? 0 : layer->lora->rank };
    sheaf__batch *b;
    sheaf_status *st = m == 0 ? NULL : sheaf__batch_new(&b);
    if (st != NULL || m == 0)
        return st;
    if (p->xd != NULL)
        sheaf__lora_drop(c, p->xd->data, p->x->data, m, layer->owned, layer->logical0, layer->lora,
                         p->info, c->dtype);
    if (layer->lora != NULL) {
        st = sheaf__lora_back_take(c, &l, layer->count, m);
        TRY(st, rows_lora_inner(c, p, &l, b));
    }
    sheaf__batch_begin_tree(b);
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (layer->extent[s] == 0)
            continue;
        sheaf__batch_slice(b, s);
        b->term[b->nterms++] =
            sheaf__term_packed(sheaf__at(p->x->data, layer->begin[s], c->dtype), layer->owned,
                               SHEAF__B_AHEAD, &layer->w[s], layer->extent[s]);
        if (layer->lora != NULL && s == sheaf__lora_slice(layer))
            b->term[b->nterms++] = sheaf__term_of(h_of(p, &l), l.width, SHEAF__B_NK,
                                                  layer->lora->b_copy[0], l.width, l.width);
    }
    TRY(st, sheaf__batch_finish_tree(c, b, &layer->tree, false, m, layer->out, p->y->data,
                                     layer->bias, p->residual == NULL ? NULL : p->residual->data));
    sheaf__lora_back_give(c, &l);
    sheaf__batch_free(b);
    return st;
}

static sheaf_status *rows_weight_gradients(sheaf__context *c, const rows_params *p, const void *g,
                                           sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const void *dy = p->y->grad;
    sheaf_status *st = NULL;
    for (int s = layer->first; s < layer->first + layer->count && st == NULL; s++) {
        if (lora != NULL && lora->a != NULL)
            st = sheaf__batch_weight_gradient(
                b, lora->a->grad[s], lora->rank, layer->extent[s], g, lora->rank,
                sheaf__at(p->xd != NULL ? p->xd->data : p->x->data, layer->begin[s], c->dtype),
                layer->owned, p->x);
        if (st == NULL && layer->weight_trained != NULL)
            st = sheaf__batch_weight_gradient(
                b, layer->weight_trained->grad[s], layer->out, layer->extent[s], dy, layer->out,
                sheaf__at(p->x->data, layer->begin[s], c->dtype), layer->owned, p->x);
    }
    if (st == NULL && lora != NULL && lora->b != NULL)
        st = sheaf__batch_weight_gradient(b, lora->b->grad[0], layer->out, lora->rank, dy,
                                          layer->out, p->h->data, lora->rank, p->x);
    if (st != NULL)
        return st;
    sheaf__batch_run(c, b);
    if (layer->bias_trained != NULL)
        sheaf__column_sums(c, layer->bias_trained->grad[0], dy, layer->out, sheaf__rows_there(p->x),
                           layer->out);
    return NULL;
}

static sheaf_status *rows_input_gradient(sheaf__context *c, const rows_params *p, const void *g,
                                         sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const int64_t m = sheaf__rows_there(p->x);
    sheaf__value x = *p->x;
    for (int dropped = 0; dropped <= (p->xd != NULL); dropped++) {
        void *dx;
        x.grad_fresh &= !dropped; /* the second is added to the first */
        sheaf_status *st = sheaf__take_gradient(&dx, c, &x);
        if (st != NULL)
            return st;
        for (int s = layer->first; s < layer->first + layer->count; s++) {
            if (layer->extent[s] == 0)
                continue;
            sheaf__product *job =
                sheaf__batch_job(b, m, layer->extent[s], c->dtype,
                                 sheaf__at(dx, layer->begin[s], c->dtype), layer->owned, c->dtype);
            if (!dropped)
                sheaf__batch_term(b, job,
                                  sheaf__term_packed(p->y->grad, layer->out, SHEAF__B_BACK,
                                                     &layer->w[s], layer->out));
            if (layer->lora != NULL && dropped == (p->xd != NULL))
                sheaf__batch_term(b, job,
                                  sheaf__term_of(g, layer->lora->rank, SHEAF__B_KN,
                                                 layer->lora->a_copy[s], layer->extent[s],
                                                 layer->lora->rank));
        }
        sheaf__batch_run(c, b);
        if (dropped)
            sheaf__lora_drop(c, dx, dx, m, layer->owned, layer->logical0, layer->lora, p->info,
                             c->dtype);
        sheaf__give_gradient(c, &x, dx, true);
    }
    return NULL;
}

static sheaf_status *rows_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const rows_params *p = op->params;
    const sheaf__lora_part *lora = p->linear->lora;
    const int64_t m = sheaf__rows_there(p->y);
    void *g = NULL;
    sheaf__batch *b;
    sheaf_status *st = m == 0 ? sheaf__tape_remake(tape, p->x) : sheaf__batch_new(&b);
    if (st != NULL || m == 0)
        return st;
    if (lora != NULL) {
        st = sheaf__take(&g, c, (size_t)(m * lora->rank) * sheaf_dtype_bytes(c->dtype),
                         SHEAF_MEM_SCRATCH);
        if (st == NULL) {
            sheaf__product *job =
                sheaf__batch_job(b, m, lora->rank, c->dtype, g, lora->rank, c->dtype);
            job->alpha = lora->scale;
            sheaf__batch_term(b, job,
                              sheaf__term_of(p->y->grad, p->linear->out, SHEAF__B_KN,
                                             lora->b_copy[0], lora->rank, p->linear->out));
            sheaf__batch_run(c, b);
        }
    }
    if (st == NULL && p->x->needs_grad)
        st = rows_input_gradient(c, p, g, b);
    TRY(st, sheaf__tape_remake(tape, p->x));
    TRY(st, rows_weight_gradients(c, p, g, b));
    sheaf__give(c, g);
    sheaf__batch_free(b);
    if (st == NULL && p->residual != NULL && p->residual->needs_grad) {
        sheaf__hand_on(c, p->residual, p->y);
    }
    return st;
}

sheaf__value *sheaf__record_rows(sheaf__tape *tape, sheaf__value *x, sheaf__linear *linear,
                                 sheaf__value *residual, const sheaf__step_info *info)
{
    sheaf__op *op = sheaf__tape_op(tape, linear->name, rows_forward, NULL, sizeof(rows_params));
    rows_params *p = op->params;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (rows_params){ .linear = linear, .info = info, .x = x, .residual = residual };
    const bool trains = sheaf__linear_trains(linear), drops = sheaf__linear_drops(linear, info);
    const bool flows = trains || x->needs_grad || (residual != NULL && residual->needs_grad);
    const bool keep_x = linear->weight_trained != NULL ||
                        (linear->lora != NULL && linear->lora->a != NULL && !drops);
    p->y = sheaf__tape_value(tape, linear->name, x->rows, linear->out, x->dtype);
    sheaf__rows_as(p->y, x);
    p->y->needs_grad = flows;
    sheaf__op_arg(op, x,
                  SHEAF__READ | (flows ? SHEAF__TAKES : 0) | (flows && keep_x ? SHEAF__KEEP : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    if (linear->lora != NULL && linear->lora->b != NULL) {
        p->h = sheaf__tape_value(tape, "lora inner value", x->rows, linear->lora->rank, x->dtype);
        sheaf__rows_as(p->h, x);
        sheaf__op_arg(op, p->h, SHEAF__MAKE | SHEAF__KEEP);
    }
    if (drops) {
        p->xd = sheaf__tape_value(tape, "dropped input", x->rows, x->cols, x->dtype);
        sheaf__rows_as(p->xd, x);
        sheaf__op_arg(op, p->xd, SHEAF__MAKE | SHEAF__KEEP);
    }
    op->reads_late = true;
    if (flows)
        op->backward = rows_backward;
    return p->y;
}

/* ---- the owned columns of a value that is whole on every rank ---- */

/* Ranks own runs of whole slices, so their columns lie side by side. */
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
    char *all = NULL;
    void *dx = p->x->grad;
    sheaf_status *st = sheaf__take(&all, c, (size_t)(rows * p->x->cols * size), SHEAF_MEM_EXCHANGE);
    TRY(st, sheaf__take_gradient(&dx, c, p->x));
    if (st == NULL && c->device->kind != SHEAF_DRY)
        memcpy(all + p->begin[c->rank] * rows * size, p->y->grad, bytes[c->rank]);
    if (c->comm != NULL)
        TRY(st, sheaf_comm_gather(c->comm, all, bytes));
    for (int r = 0; r < c->ranks && st == NULL; r++) {
        const int64_t cols = p->begin[r + 1] - p->begin[r];
        sheaf__copy_box(c, (char *)dx + p->begin[r] * size, p->x->cols,
                        all + p->begin[r] * rows * size, cols, rows, cols);
    }
    sheaf__give(c, all);
    sheaf__give_gradient(c, p->x, dx, st == NULL);
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
