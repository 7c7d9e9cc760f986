/* linear_columns.c - layers cut along their output: forward, backward and what is recorded; see
 * linear.h.
 *
 * Up to three layers that read the same x run as one op: their products stand in one batch, LoRA's
 * gradients share one sum over slices, and dx is one product with the terms of all. */
#include <assert.h>

#include "base/base.h"
#include "tape/linear_inner.h"
#include "tape/rows.h"

typedef struct columns_params {
    sheaf__linear *linear[SHEAF__MAX_TOGETHER];
    int n;
    const sheaf__step_info *info;
    sheaf__value *x, *y[SHEAF__MAX_TOGETHER];
    sheaf__value *h[SHEAF__MAX_TOGETHER]; /* LoRA's inner value, NULL without */
    sheaf__value *u[SHEAF__MAX_TOGETHER]; /* of DoRA, NULL without */
    bool drops[SHEAF__MAX_TOGETHER];
    bool keeps;  /* the backward pass reads x, */
    bool blocks; /* of which this rank's rows give their blocks of the sums of dA */
} columns_params;

/* The LoRA of a layer, where its A is its own: not that of a layer before it. */
static const sheaf__lora_part *own_lora(const columns_params *p, int i)
{
    const sheaf__lora_part *lora = p->linear[i]->lora;
    return lora == NULL || lora->first != NULL ? NULL : lora;
}

/* The layer whose A layer i has; i itself where that is its own. */
static int first_of(const columns_params *p, int i)
{
    const sheaf__lora_part *lora = p->linear[i]->lora;
    for (int j = 0; j < i && lora != NULL && lora->first != NULL; j++)
        if (p->linear[j]->lora == lora->first)
            return j;
    return i;
}

/* Columns of y: turned, a weight is read the other way round. */
static int64_t columns_of(const sheaf__linear *l)
{
    return l->transposed ? l->in : l->owned;
}

/* Rows of x, and what LoRA reads in place of it. */
typedef struct read_rows {
    const void *x, *of_lora[SHEAF__MAX_TOGETHER];
    void *all, *dropped[SHEAF__MAX_TOGETHER]; /* scratch memory: gathered, and with dropout */
} read_rows;

static void read_end(sheaf__context *c, read_rows *r)
{
    for (int i = 0; i < SHEAF__MAX_TOGETHER; i++)
        sheaf__free(c, r->dropped[i]);
    sheaf__free(c, r->all);
}

/* From the first row on that this rank has of x. */
static sheaf__step_info own_info(const sheaf__context *c, const columns_params *p)
{
    const int64_t first = sheaf__first_row(c, p->x);
    sheaf__step_info own = *p->info;
    own.sample += first;
    own.position += first;
    return own;
}

/* x->data is there. all: all rows, else this rank's. */
static sheaf_status *read_begin(read_rows *r, sheaf__context *c, const columns_params *p, bool all)
{
    const int64_t m = all ? sheaf__all_rows(p->x) : sheaf__rows_present(p->x), in = p->x->cols;
    sheaf_status *st = NULL;
    *r = (read_rows){ .x = p->x->data };
    if (all && p->x->all_ahead != NULL && p->x->all_ahead->data != NULL) {
        r->x = p->x->all_ahead->data;
    } else if (all && p->x->shards != NULL) {
        st = sheaf__gather_shards(&r->all, c, p->x, p->x->data);
        r->x = r->all;
    }
    for (int i = 0; i < p->n && st == NULL; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        r->of_lora[i] = r->x;
        if (lora == NULL || !p->drops[i])
            continue;
        const sheaf__step_info info = all ? *p->info : own_info(c, p);
        st = sheaf__alloc_scratch(&r->dropped[i], c, m * in);
        if (st == NULL)
            sheaf__lora_drop(c, r->dropped[i], r->x, m, in, 0, lora, &info, c->dtype);
        r->of_lora[i] = r->dropped[i];
    }
    return st;
}

static sheaf_status *columns_ahead(sheaf__context *c, const columns_params *p)
{
    const int64_t m = sheaf__all_rows(p->x), in = p->x->cols;
    sheaf__batch *b;
    sheaf_status *st = m == 0 ? NULL : sheaf__batch_new(&b, c);
    if (st != NULL || m == 0)
        return st;
    read_rows r;
    st = read_begin(&r, c, p, true);
    for (int i = 0; i < p->n; i++)
        TRY(st, sheaf__dora_norms(c, p->linear[i]));
    for (int i = 0; i < p->n && st == NULL; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        if (lora != NULL)
            sheaf__batch_job(b, m, lora->rank, p->h[i]->data, lora->rank, c->dtype,
                             sheaf__term_of(r.of_lora[i], in, SHEAF__B_NK, lora->a_copy[0], in, in))
                ->alpha = lora->scale;
    }
    sheaf__batch_run(c, b);
    for (int i = 0; i < p->n && st == NULL; i++) {
        const sheaf__linear *l = p->linear[i];
        const int64_t n = columns_of(l);
        if (n == 0)
            continue;
        sheaf__product *job = sheaf__batch_job(
            b, m, n, p->y[i]->data, n, p->y[i]->dtype,
            l->transposed ? sheaf__term_packed(r.x, in, SHEAF__B_BACK, &l->w[0], in)
                          : sheaf__term_packed(r.x, in, SHEAF__B_AHEAD, &l->all, in));
        job->bias = l->bias;
        job->round_to = c->dtype;
        if (p->u[i] != NULL) {
            job->y = p->u[i]->data;
            job->out = job->round_to = SHEAF_F32;
            job->bias = NULL;
        }
        if (l->lora != NULL)
            sheaf__batch_term(b, job,
                              sheaf__term_of(p->h[i]->data, l->lora->rank, SHEAF__B_NK,
                                             l->lora->b_copy[l->first], l->lora->rank,
                                             l->lora->rank));
    }
    sheaf__batch_run(c, b);
    sheaf__batch_free(b);
    read_end(c, &r);
    for (int i = 0; i < p->n && st == NULL; i++)
        if (p->u[i] != NULL)
            sheaf__dora_apply(c, p->linear[i], p->y[i]->data, p->u[i]->data, NULL, m);
    return st;
}

static sheaf_status *columns_forward(sheaf__tape *tape, sheaf__op *op)
{
    return columns_ahead(sheaf__tape_context(tape), op->params);
}

/* g of every layer with LoRA. */
static sheaf_status *columns_lora_inner(sheaf__context *c, const columns_params *p,
                                        sheaf__lora_back *l, sheaf__batch *b)
{
    const int64_t m = sheaf__all_rows(p->x);
    const sheaf__linear *first = p->linear[0];
    for (int i = 0; i < p->n; i++)
        for (int s = first->first; s < first->first + first->count && own_lora(p, i) != NULL; s++) {
            if (p->linear[i]->extent[s] == 0)
                continue;
            sheaf__product *job = NULL;
            for (int j = i; j < p->n; j++) { /* and those that share its A */
                const sheaf__linear *layer = p->linear[j];
                if (layer->lora == NULL || first_of(p, j) != i)
                    continue;
                const int64_t rank = layer->lora->rank;
                const sheaf__term term = sheaf__term_of(
                    sheaf__at(p->y[j]->grad, layer->begin[s], c->dtype), layer->owned, SHEAF__B_KN,
                    layer->lora->b_copy[s], rank, layer->extent[s]);
                if (job != NULL)
                    sheaf__batch_term(b, job, term);
                else
                    job = sheaf__batch_job(b, m, rank, l->part[s - first->first] + l->at[i],
                                           l->width, SHEAF_F32, term);
            }
        }
    sheaf__batch_run(c, b);
    float *total = l->part[0];
    sheaf_status *st = first->whole ? NULL
                                    : sheaf__sum_partials(c, &first->tree, l->part, first->first,
                                                          l->spare, m, l->width, &total);
    for (int i = 0; i < p->n && st == NULL; i++)
        if (own_lora(p, i) != NULL)
            sheaf__scaled_round(c, l->g, total, m, l->width, l->at[i], p->linear[i]->lora->rank,
                                p->linear[i]->lora->scale);
    return st;
}

/* The value whose rows, all of them, sums over rows have. */
static const sheaf__value *summed(const columns_params *p)
{
    return p->x->shards != NULL ? p->y[0] : p->x;
}

static sheaf_status *columns_slice_gradients(sheaf__context *c, const columns_params *p,
                                             const read_rows *r, int i, int s, sheaf__batch *b)
{
    const sheaf__linear *layer = p->linear[i];
    const sheaf__lora_part *lora = layer->lora;
    const int64_t in = p->x->cols;
    const void *dy = sheaf__at(p->y[i]->grad, layer->begin[s], c->dtype);
    sheaf_status *st = NULL;
    if (lora != NULL && lora->b != NULL)
        st = sheaf__batch_weight_gradient(b, lora->b->grad[s] + lora->b_at[s], layer->extent[s],
                                          lora->rank, dy, layer->owned, p->h[i]->data, lora->rank,
                                          summed(p));
    float *dw =
        layer->weight_trained == NULL ? NULL : layer->weight_trained->grad[s] + layer->weight_at[s];
    if (st == NULL && dw != NULL)
        st = layer->transposed ? sheaf__batch_weight_gradient(b, dw, in, layer->in, r->x, in, dy,
                                                              layer->in, summed(p))
                               : sheaf__batch_weight_gradient(b, dw, layer->extent[s], in, dy,
                                                              layer->owned, r->x, in, summed(p));
    if (st == NULL && layer->bias_trained != NULL && p->u[i] == NULL)
        sheaf__column_sums(c, layer->bias_trained->grad[s] + layer->bias_at[s], dy, layer->owned,
                           sheaf__all_rows(p->x), layer->extent[s]);
    return st;
}

/* The sums of dA over each block of this rank's rows, and of all ranks in the order of rows. */
static sheaf_status *columns_factor_gradients(sheaf__context *c, const columns_params *p,
                                              const sheaf__lora_back *l, const read_rows *r,
                                              sheaf__batch *b)
{
    const int64_t in = p->x->cols, first = sheaf__first_row(c, p->x), one = l->width * in;
    int64_t blocks[SHEAF_MAX_SLICES + 1];
    float *part = NULL, *sum = NULL;
    sheaf__shard_blocks(blocks, c, p->x);
    const int64_t mine = blocks[c->rank + 1] - blocks[c->rank];
    sheaf_status *st = sheaf__alloc(&part, c, (size_t)(mine * sheaf_comm_part(one)) * sizeof *part,
                                    SHEAF_MEM_EXCHANGE);
    TRY(st, sheaf__alloc(&sum, c, (size_t)one * sizeof *sum, SHEAF_MEM_EXCHANGE));
    for (int64_t j = 0; j < mine && st == NULL; j++) {
        const sheaf_range rows = sheaf__shard_block(c, p->x, blocks, j);
        for (int i = 0; i < p->n; i++) {
            if (own_lora(p, i) == NULL)
                continue;
            sheaf__term term = sheaf__term_of(
                sheaf__at(l->g, (first + rows.begin) * l->width + l->at[i], c->dtype), l->width,
                SHEAF__B_KN, sheaf__at(r->of_lora[i], rows.begin * in, c->dtype), in,
                rows.end - rows.begin);
            term.a_km = true;
            sheaf__batch_job(b, p->linear[i]->lora->rank, in,
                             part + j * sheaf_comm_part(one) + l->at[i] * in, in, SHEAF_F32, term);
        }
        sheaf__batch_run(c, b);
    }
    TRY(st, sheaf__chain_among(c, sum, part, blocks, one));
    for (int i = 0; i < p->n && st == NULL; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        if (lora != NULL)
            sheaf__op_add(c->device, lora->a->grad[0] + lora->a_at, sum + l->at[i] * in,
                          lora->rank * in);
    }
    sheaf__free(c, part);
    sheaf__free(c, sum);
    return st;
}

static sheaf_status *columns_weight_gradients(sheaf__context *c, const columns_params *p,
                                              const sheaf__lora_back *l, sheaf__batch *b)
{
    const int64_t in = p->x->cols;
    read_rows r = { 0 };
    sheaf_status *st = p->keeps ? read_begin(&r, c, p, !p->blocks) : NULL;
    if (p->blocks)
        TRY(st, columns_factor_gradients(c, p, l, &r, b));
    /* those that read x side by side: matmul then reads it once */
    for (int i = 0; i < p->n && st == NULL && !p->blocks; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        if (lora != NULL && lora->a != NULL)
            st = sheaf__batch_weight_gradient(b, lora->a->grad[0] + lora->a_at, lora->rank, in,
                                              sheaf__at(l->g, l->at[i], c->dtype), l->width,
                                              r.of_lora[i], in, summed(p));
    }
    for (int i = 0; i < p->n; i++) {
        const sheaf__linear *layer = p->linear[i];
        for (int s = layer->first; s < layer->first + layer->count && st == NULL; s++)
            st = columns_slice_gradients(c, p, &r, i, s, b);
    }
    if (st == NULL)
        sheaf__batch_run(c, b);
    read_end(c, &r);
    return st;
}

/* The operands of dx. */
typedef struct dx_rows {
    int64_t m;
    void *dy[SHEAF__MAX_TOGETHER]; /* [m, owned] of each layer */
    void *g; /* [m, width]; NULL without LoRA, and where its slice is another rank's */
} dx_rows;

/* The products of dx [from->m, in]. */
static sheaf_status *columns_dx(sheaf__context *c, const columns_params *p,
                                const sheaf__lora_back *l, const dx_rows *from, sheaf__batch *b,
                                void *dx)
{
    const sheaf__linear *first = p->linear[0];
    const int64_t in = p->x->cols;
    const int lora_slice = sheaf__lora_slice(first);
    sheaf__batch_begin_tree(b);
    for (int s = first->first; s < first->first + first->count; s++) {
        if (first->extent[s] == 0)
            continue;
        sheaf__batch_slice(b, s);
        for (int i = 0; i < p->n; i++) {
            const sheaf__linear *layer = p->linear[i];
            b->term[b->nterms++] =
                layer->transposed
                    ? sheaf__term_packed(from->dy[i], layer->in, SHEAF__B_AHEAD, &layer->w[0],
                                         layer->in)
                    : sheaf__term_packed(sheaf__at(from->dy[i], layer->begin[s], c->dtype),
                                         layer->owned, SHEAF__B_BACK, &layer->w[s],
                                         layer->extent[s]);
            if (own_lora(p, i) != NULL && !p->drops[i] && s == lora_slice)
                b->term[b->nterms++] =
                    sheaf__term_of(sheaf__at(from->g, l->at[i], c->dtype), l->width, SHEAF__B_KN,
                                   layer->lora->a_copy[0], in, layer->lora->rank);
        }
    }
    return sheaf__batch_finish_tree(c, b, &first->tree, first->whole, from->m, in, dx, c->dtype,
                                    NULL, NULL, p->x->shards, p->x->roots);
}

/* Rows of `from` that `map` names, side by side, in scratch memory. */
static sheaf_status *take_rows(void **to, sheaf__context *c, const void *from, sheaf__row_map map,
                               int64_t rows, int64_t cols)
{
    sheaf_status *st = sheaf__alloc_scratch(to, c, rows * cols);
    if (st == NULL)
        sheaf__gather(c, *to, from, map, rows, cols, false);
    return st;
}

/* Of the rows whose gradient is read; the others are zero. */
static sheaf_status *columns_some_rows(sheaf__context *c, const columns_params *p,
                                       const sheaf__lora_back *l, const dx_rows *all,
                                       sheaf__batch *b)
{
    const int64_t count = p->x->grad_rows.count, in = p->x->cols;
    const sheaf__row_map map = sheaf__row_map_listed(*p->x->grad_rows.list, p->x->rows);
    dx_rows some = { .m = count };
    void *dx = NULL;
    sheaf_status *st = sheaf__alloc_scratch(&dx, c, count * in);
    for (int i = 0; i < p->n && st == NULL; i++)
        st = take_rows(&some.dy[i], c, all->dy[i], map, count, columns_of(p->linear[i]));
    if (st == NULL && all->g != NULL)
        st = take_rows(&some.g, c, all->g, map, count, l->width);
    TRY(st, columns_dx(c, p, l, &some, b, dx));
    if (st == NULL)
        sheaf__scatter_gradient(c, p->x, dx, map, count);
    for (int i = 0; i < p->n; i++)
        sheaf__free(c, some.dy[i]);
    sheaf__free(c, some.g);
    sheaf__free(c, dx);
    return st;
}

static sheaf_status *columns_input_gradient(sheaf__context *c, const columns_params *p,
                                            const sheaf__lora_back *l, sheaf__batch *b)
{
    const sheaf__linear *first = p->linear[0];
    const int64_t m = sheaf__all_rows(p->x);
    const int lora_slice = sheaf__lora_slice(first);
    dx_rows all = { .m = m };
    for (int i = 0; i < p->n; i++)
        all.dy[i] = p->y[i]->grad;
    if (l->width > 0 && lora_slice >= first->first && lora_slice < first->first + first->count)
        all.g = l->g;
    if (p->x->grad_fresh && p->x->grad_rows.list != NULL && p->x->grad_rows.count < m)
        return columns_some_rows(c, p, l, &all, b);
    void *dx;
    sheaf_status *st = sheaf__gradient_begin(&dx, c, p->x);
    TRY(st, columns_dx(c, p, l, &all, b, dx));
    sheaf__gradient_end(c, p->x, dx, st == NULL);
    return st;
}

/* With dropout: dx += dropout(round(g A)), layer after layer. */
static sheaf_status *columns_dropped_gradient(sheaf__context *c, const columns_params *p,
                                              const sheaf__lora_back *l, sheaf__batch *b)
{
    const int64_t m = sheaf__rows_present(p->x), in = p->x->cols, first = sheaf__first_row(c, p->x);
    for (int i = 0; i < p->n; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        if (!p->drops[i] || lora == NULL)
            continue;
        const sheaf__step_info own = own_info(c, p);
        void *part;
        sheaf_status *st = sheaf__alloc_scratch(&part, c, m * in);
        if (st != NULL)
            return st;
        sheaf__batch_job(b, m, in, part, in, c->dtype,
                         sheaf__term_of(sheaf__at(l->g, first * l->width + l->at[i], c->dtype),
                                        l->width, SHEAF__B_KN, lora->a_copy[0], in, lora->rank));
        sheaf__batch_run(c, b);
        sheaf__lora_drop(c, part, part, m, in, 0, lora, &own, c->dtype);
        sheaf__op_accumulate(c->device, p->x->grad, part, m * in, c->dtype);
        sheaf__free(c, part);
    }
    return NULL;
}

/* tape NULL: x and its gradient are the caller's. */
static sheaf_status *columns_back(sheaf__context *c, const columns_params *p, sheaf__tape *tape)
{
    sheaf__lora_back l = { 0 };
    for (int i = 0; i < p->n; i++) {
        l.at[i] = l.width;
        l.width += own_lora(p, i) == NULL ? 0 : p->linear[i]->lora->rank;
    }
    const int64_t m = sheaf__all_rows(p->x);
    sheaf__batch *b;
    if (m == 0)
        return sheaf__tape_recompute(tape, p->x);
    sheaf_status *st = sheaf__batch_new(&b, c);
    if (st != NULL)
        return st;
    for (int i = 0; i < p->n; i++) /* the gradient of y dies in this step */
        if (p->u[i] != NULL)
            TRY(st, sheaf__dora_back(c, p->linear[i], p->y[i]->grad, p->y[i]->grad, p->u[i], m));
    if (st == NULL && l.width > 0) {
        st = sheaf__lora_back_alloc(c, &l, p->linear[0]->count, m);
        TRY(st, columns_lora_inner(c, p, &l, b));
    }
    if (st == NULL && p->x->needs_grad)
        st = columns_input_gradient(c, p, &l, b);
    if (st == NULL && p->x->needs_grad)
        st = columns_dropped_gradient(c, p, &l, b);
    TRY(st, sheaf__tape_recompute(tape, p->x));
    TRY(st, columns_weight_gradients(c, p, &l, b));
    sheaf__lora_back_free(c, &l);
    sheaf__batch_free(b);
    return st;
}

static sheaf_status *columns_backward(sheaf__tape *tape, sheaf__op *op)
{
    return columns_back(sheaf__tape_context(tape), op->params, tape);
}

sheaf_status *sheaf__columns_forward(sheaf__context *c, sheaf__value *y, sheaf__value *x,
                                     sheaf__value *h, sheaf__linear *linear)
{
    return columns_ahead(
        c, &(columns_params){ .linear = { linear }, .n = 1, .x = x, .y = { y }, .h = { h } });
}

sheaf_status *sheaf__columns_backward(sheaf__context *c, sheaf__value *y, sheaf__value *x,
                                      sheaf__value *h, sheaf__linear *linear)
{
    return columns_back(
        c,
        &(columns_params){
            .linear = { linear }, .n = 1, .x = x, .y = { y }, .h = { h }, .keeps = true },
        NULL);
}

/* Can each rank sum over its own rows of x, whose sums are sent in place of rows? They must take no
 * more memory than those, which would be gathered: one for each block, and that of all ranks. A
 * rank sends twice the latter then, which is no more than rows either. All ranks decide by the
 * first one's rows, which are the most. */
static bool sums_blocks(const sheaf__context *c, const columns_params *p)
{
    const sheaf__row_shards *shards = p->x->shards;
    int64_t width = 0;
    if (shards == NULL || !shards->blocks || sheaf__by_mma(c->device->sums, c->dtype))
        return false;
    for (int i = 0; i < p->n; i++) {
        const sheaf__lora_part *lora = own_lora(p, i);
        if (p->linear[i]->weight_trained != NULL || (lora != NULL && lora->a == NULL))
            return false;
        width += lora == NULL ? 0 : lora->rank;
    }
    return (shards->first[1] / SHEAF__ROWS_BLOCK + 1) * width * (int64_t)sizeof(float) <=
           shards->rows * (int64_t)sheaf_dtype_bytes(c->dtype);
}

static sheaf__value *whole_like(sheaf__tape *tape, const sheaf__value *x, const char *name,
                                int64_t cols, sheaf_dtype dtype)
{
    sheaf__value *y = sheaf__tape_like(tape, x, name, cols, dtype);
    sheaf__value_shard(y, NULL);
    return y;
}

void sheaf__record_columns(sheaf__tape *tape, sheaf__value **y, sheaf__value *x,
                           sheaf__linear *const *linear, int n, const sheaf__step_info *info)
{
    sheaf__op *op =
        sheaf__tape_op(tape, linear[0]->name, columns_forward, NULL, sizeof(columns_params));
    columns_params *p = op->params;
    bool trains = false;
    op->kind = SHEAF__WORK_PRODUCTS;
    *p = (columns_params){ .n = n, .info = info, .x = x };
    for (int i = 0; i < n; i++) {
        const sheaf__linear *l = p->linear[i] = linear[i];
        sheaf__op_away(tape, op, &linear[i]->away);
        trains |= sheaf__linear_trains(l);
        p->keeps |= l->weight_trained != NULL || (l->lora != NULL && l->lora->a != NULL);
    }
    p->blocks = p->keeps && sums_blocks(sheaf__tape_context(tape), p);
    const bool flows = trains || x->needs_grad;
    sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE | (p->keeps ? SHEAF__KEEP_NEAR : 0));
    if (x->all_ahead != NULL)
        sheaf__op_arg(op, x->all_ahead, SHEAF__READ | SHEAF__ONCE);
    for (int i = 0; i < n; i++) {
        const sheaf__linear *l = linear[i];
        y[i] = p->y[i] = whole_like(tape, x, l->name, columns_of(l), x->dtype);
        y[i]->part = l->extent + l->first;
        y[i]->parts = l->whole || l->transposed ? 0 : l->count;
        y[i]->needs_grad = flows;
        sheaf__op_arg(op, y[i], SHEAF__MAKE | SHEAF__GRAD_READ);
        if (sheaf__dora_of(l) != NULL) {
            p->u[i] = whole_like(tape, x, "product of DoRA", l->owned, SHEAF_F32);
            sheaf__op_arg(op, p->u[i],
                          SHEAF__MAKE | (sheaf__linear_trains_dora(l) ? SHEAF__KEEP : 0));
        }
        assert(l->lora == NULL || l->lora->first == NULL || first_of(p, i) != i);
        if (first_of(p, i) != i) {
            p->h[i] = p->h[first_of(p, i)];
            p->drops[i] = p->drops[first_of(p, i)];
            continue;
        }
        if (l->lora != NULL) {
            p->h[i] = whole_like(tape, x, "lora inner value", l->lora->rank, x->dtype);
            sheaf__op_arg(op, p->h[i], SHEAF__MAKE | (l->lora->b != NULL ? SHEAF__KEEP : 0));
        }
        p->drops[i] = sheaf__linear_drops(l, info);
    }
    op->reads_late = true;
    if (flows)
        op->backward = columns_backward;
}
