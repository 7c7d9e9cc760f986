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
    sheaf__value *x, *y, *residual, *h, *u; /* u: of DoRA, or NULL */
    bool drops;
    const void *of_lora; /* while the op runs: what LoRA reads in place of x */
} rows_params;

/* With dropout of_lora is scratch memory, which the caller frees; else that is NULL. */
static sheaf_status *read_begin(void **dropped, sheaf__context *c, rows_params *p)
{
    const sheaf__linear *layer = p->linear;
    const int64_t m = sheaf__rows_present(p->x);
    *dropped = NULL;
    p->of_lora = p->x->data;
    if (!p->drops)
        return NULL;
    sheaf_status *st = sheaf__alloc_scratch(dropped, c, m * layer->owned);
    if (st == NULL)
        sheaf__lora_drop(c, *dropped, p->x->data, m, layer->owned, layer->logical0, layer->lora,
                         p->info, c->dtype);
    p->of_lora = *dropped;
    return st;
}

/* The place of h: a value of the tape, if dB needs it. */
static void *h_of(const rows_params *p, const sheaf__lora_back *l)
{
    return p->h != NULL ? p->h->data : l->g;
}

static sheaf_status *rows_lora_inner(sheaf__context *c, const rows_params *p, sheaf__lora_back *l,
                                     sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const int64_t m = sheaf__rows_present(p->x);
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (layer->extent[s] == 0)
            continue;
        sheaf__batch_job(b, m, lora->rank, l->part[s - layer->first], lora->rank, SHEAF_F32,
                         sheaf__term_of(sheaf__at(p->of_lora, layer->begin[s], c->dtype),
                                        layer->owned, SHEAF__B_NK, lora->a_copy[s],
                                        layer->extent[s], layer->extent[s]));
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
    rows_params *p = op->params;
    const sheaf__linear *layer = p->linear;
    const int64_t m = sheaf__rows_present(p->x);
    sheaf__lora_back l = { .width = layer->lora == NULL ? 0 : layer->lora->rank };
    sheaf__batch *b;
    void *dropped;
    sheaf_status *st = m == 0 ? NULL : sheaf__batch_new(&b, c);
    if (st != NULL || m == 0)
        return st;
    st = read_begin(&dropped, c, p);
    TRY(st, sheaf__dora_norms(c, p->linear));
    if (st == NULL && layer->lora != NULL) {
        st = sheaf__lora_back_alloc(c, &l, layer->count, m);
        TRY(st, rows_lora_inner(c, p, &l, b));
    }
    sheaf__free(c, dropped);
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
    const void *residual = p->residual == NULL ? NULL : p->residual->data;
    const bool plain = p->u == NULL;
    TRY(st, sheaf__batch_finish_tree(c, b, &layer->tree, false, m, layer->out,
                                     plain ? p->y->data : p->u->data, plain ? c->dtype : SHEAF_F32,
                                     plain ? layer->bias : NULL, plain ? residual : NULL,
                                     p->y->shards, NULL));
    if (st == NULL && !plain)
        sheaf__dora_apply(c, layer, p->y->data, p->u->data, residual, sheaf__rows_present(p->y));
    sheaf__lora_back_free(c, &l);
    sheaf__batch_free(b);
    return st;
}

static sheaf_status *rows_weight_gradients(sheaf__context *c, const rows_params *p, const void *g,
                                           sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const void *dy = p->y->grad;
    const int64_t out = layer->out;
    sheaf_status *st = NULL;
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (lora != NULL && lora->a != NULL)
            TRY(st, sheaf__batch_weight_gradient(
                        b, lora->a->grad[s], lora->rank, layer->extent[s], g, lora->rank,
                        sheaf__at(p->of_lora, layer->begin[s], c->dtype), layer->owned, p->x));
        if (layer->weight_trained != NULL)
            TRY(st, sheaf__batch_weight_gradient(
                        b, layer->weight_trained->grad[s], out, layer->extent[s], dy, out,
                        sheaf__at(p->x->data, layer->begin[s], c->dtype), layer->owned, p->x));
    }
    if (lora != NULL && lora->b != NULL)
        TRY(st, sheaf__batch_weight_gradient(b, lora->b->grad[0], out, lora->rank, dy, out,
                                             p->h->data, lora->rank, p->x));
    if (st != NULL)
        return st;
    sheaf__batch_run(c, b);
    if (layer->bias_trained != NULL && p->u == NULL)
        sheaf__column_sums(c, layer->bias_trained->grad[0], dy, out, sheaf__rows_present(p->x),
                           out);
    return NULL;
}

static sheaf_status *rows_input_gradient(sheaf__context *c, const rows_params *p, const void *g,
                                         sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear;
    const int64_t m = sheaf__rows_present(p->x);
    sheaf__value x = *p->x;
    for (int dropped = 0; dropped <= p->drops; dropped++) {
        void *dx;
        x.grad_fresh &= !dropped; /* the second is added to the first */
        sheaf_status *st = sheaf__gradient_begin(&dx, c, &x);
        if (st != NULL)
            return st;
        for (int s = layer->first; s < layer->first + layer->count; s++) {
            if (layer->extent[s] == 0)
                continue;
            const sheaf__lora_part *lora = layer->lora;
            const sheaf__term of_w = sheaf__term_packed(p->y->grad, layer->out, SHEAF__B_BACK,
                                                        &layer->w[s], layer->out),
                              of_a = lora == NULL ? of_w
                                                  : sheaf__term_of(g, lora->rank, SHEAF__B_KN,
                                                                   lora->a_copy[s],
                                                                   layer->extent[s], lora->rank);
            sheaf__product *job =
                sheaf__batch_job(b, m, layer->extent[s], sheaf__at(dx, layer->begin[s], c->dtype),
                                 layer->owned, c->dtype, dropped ? of_a : of_w);
            if (lora != NULL && !p->drops)
                sheaf__batch_term(b, job, of_a);
        }
        sheaf__batch_run(c, b);
        if (dropped)
            sheaf__lora_drop(c, dx, dx, m, layer->owned, layer->logical0, layer->lora, p->info,
                             c->dtype);
        sheaf__gradient_end(c, &x, dx, true);
    }
    return NULL;
}

/* y->grad, which is p->y's so far, becomes that of all rows, with DoRA of u: in scratch memory, if
 * it is another. */
static sheaf_status *all_gradients(sheaf__value *y, sheaf__context *c, const rows_params *p)
{
    const int64_t m = sheaf__rows_present(p->x);
    void *dy = p->y->grad, *all = NULL;
    sheaf_status *st = NULL;
    sheaf__value_shard(y, NULL);
    if (p->y->shards != NULL) {
        st = sheaf__gather_shards(&all, c, p->y, dy);
        y->grad = dy = all;
    }
    if (p->u == NULL)
        return st;
    y->grad = all;
    if (all == NULL)
        TRY(st, sheaf__alloc_scratch(&y->grad, c, m * y->cols));
    return TRY(st, sheaf__dora_back(c, p->linear, y->grad, dy, p->u, m));
}

static sheaf_status *rows_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const rows_params *own = op->params;
    rows_params of = *own; /* of the gradient that products read: of all rows, with DoRA of u */
    rows_params *p = &of;
    const sheaf__lora_part *lora = p->linear->lora;
    const int64_t m = sheaf__rows_present(p->x);
    sheaf__value y = *p->y;
    void *g = NULL, *dropped = NULL;
    sheaf__batch *b;
    sheaf_status *st = m == 0 ? sheaf__tape_recompute(tape, p->x) : sheaf__batch_new(&b, c);
    if (st != NULL || m == 0)
        return st;
    of.y = &y;
    st = all_gradients(&y, c, own);
    if (st == NULL && lora != NULL)
        st = sheaf__alloc_scratch(&g, c, m * lora->rank);
    if (lora != NULL && st == NULL) {
        sheaf__batch_job(b, m, lora->rank, g, lora->rank, c->dtype,
                         sheaf__term_of(p->y->grad, p->linear->out, SHEAF__B_KN, lora->b_copy[0],
                                        lora->rank, p->linear->out))
            ->alpha = lora->scale;
        sheaf__batch_run(c, b);
    }
    if (st == NULL && p->x->needs_grad)
        st = rows_input_gradient(c, p, g, b);
    TRY(st, sheaf__tape_recompute(tape, p->x));
    if (lora != NULL && lora->a != NULL)
        TRY(st, read_begin(&dropped, c, p));
    TRY(st, rows_weight_gradients(c, p, g, b));
    sheaf__free(c, dropped);
    sheaf__free(c, g);
    if (y.grad != own->y->grad)
        sheaf__free(c, y.grad);
    sheaf__batch_free(b);
    if (st == NULL)
        sheaf__pass_gradient(c, own->residual, own->y);
    return st;
}

sheaf__value *sheaf__record_rows(sheaf__tape *tape, sheaf__value *x, sheaf__linear *linear,
                                 sheaf__value *residual, const sheaf__row_shards *shards,
                                 const sheaf__step_info *info)
{
    sheaf__op *op = sheaf__tape_op(tape, linear->name, rows_forward, NULL, sizeof(rows_params));
    rows_params *p = op->params;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (rows_params){ .linear = linear,
                        .info = info,
                        .x = x,
                        .residual = residual,
                        .drops = sheaf__linear_drops(linear, info) };
    sheaf__op_away(tape, op, &linear->away);
    const bool trains = sheaf__linear_trains(linear);
    const bool flows = trains || x->needs_grad || (residual != NULL && residual->needs_grad);
    const bool keep_x =
        linear->weight_trained != NULL || (linear->lora != NULL && linear->lora->a != NULL);
    p->y = sheaf__tape_like(tape, x, linear->name, linear->out, x->dtype);
    p->y->parts = 0;
    sheaf__value_shard(p->y, shards);
    p->y->needs_grad = flows;
    sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE | (keep_x ? SHEAF__KEEP_NEAR : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | SHEAF__GRAD_READ);
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | SHEAF__GRAD_WRITE);
    if (linear->lora != NULL && linear->lora->b != NULL) {
        p->h = sheaf__tape_like(tape, x, "lora inner value", linear->lora->rank, x->dtype);
        sheaf__op_arg(op, p->h, SHEAF__MAKE | SHEAF__KEEP);
    }
    if (sheaf__dora_of(linear) != NULL) {
        p->u = sheaf__tape_like(tape, x, "product of DoRA", linear->out, SHEAF_F32);
        p->u->parts = 0;
        sheaf__value_shard(p->u, shards);
        sheaf__op_arg(op, p->u,
                      SHEAF__MAKE | (sheaf__linear_trains_dora(linear) ? SHEAF__KEEP : 0));
    }
    op->reads_late = true;
    if (flows)
        op->backward = rows_backward;
    return p->y;
}

/* ---- the owned columns of a value that is whole on every rank ---- */

/* Ranks own runs of whole slices, so their columns lie side by side. */
typedef struct own_params {
    sheaf__value *x, *y;
    int64_t begin[SHEAF_MAX_SLICES + 1]; /* by rank: its first column; [ranks] = all */
} own_params;

static sheaf_status *own_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const own_params *p = op->params;
    sheaf__copy_box(c, p->y->data, p->y->cols, sheaf__at(p->x->data, p->begin[c->rank], c->dtype),
                    p->x->cols, p->x->rows, p->y->cols);
    return NULL;
}

static sheaf_status *own_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const own_params *p = op->params;
    const int64_t rows = p->x->rows, size = (int64_t)sheaf_dtype_bytes(c->dtype);
    size_t bytes[SHEAF_MAX_SLICES];
    for (int r = 0; r < c->ranks; r++)
        bytes[r] = (size_t)((p->begin[r + 1] - p->begin[r]) * rows * size);
    char *all = NULL;
    void *dx = p->x->grad;
    sheaf_status *st =
        sheaf__alloc(&all, c, (size_t)(rows * p->x->cols * size), SHEAF_MEM_EXCHANGE);
    TRY(st, sheaf__gradient_begin(&dx, c, p->x));
    if (st == NULL)
        sheaf__copy(c, all + p->begin[c->rank] * rows * size, p->y->grad, rows * p->y->cols, false);
    TRY(st, sheaf__gather_among(c, c->comm, all, bytes));
    for (int r = 0; r < c->ranks && st == NULL; r++) {
        const int64_t cols = p->begin[r + 1] - p->begin[r];
        sheaf__copy_box(c, (char *)dx + p->begin[r] * size, p->x->cols,
                        all + p->begin[r] * rows * size, cols, rows, cols);
    }
    sheaf__free(c, all);
    sheaf__gradient_end(c, p->x, dx, st == NULL);
    return st;
}

sheaf__value *sheaf__record_own_columns(sheaf__tape *tape, sheaf__value *x,
                                        const sheaf__linear *linear)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__op *op = sheaf__tape_op(tape, linear->name, own_forward,
                                   x->needs_grad ? own_backward : NULL, sizeof(own_params));
    own_params *p = op->params;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (own_params){ .x = x,
                       .y = sheaf__tape_like(tape, x, linear->name, linear->owned, x->dtype) };
    p->y->part = linear->extent + linear->first;
    p->y->parts = linear->count;
    for (int r = 0; r < c->ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(c->slices, c->ranks, r);
        p->begin[r + 1] = p->begin[r];
        for (int64_t s = own.begin; s < own.end; s++)
            p->begin[r + 1] += linear->extent[s];
    }
    return sheaf__op_makes(op, p->y, x, 0);
}
