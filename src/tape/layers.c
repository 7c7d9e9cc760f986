/* layers.c - see layers.h. */
#include "tape/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/lowest.h"
#include "ops/attention/attention.h"
#include "tape/linear.h"
#include "tape/rows.h"

static sheaf_range slice_rows(const sheaf_cut *cut, int slice)
{
    sheaf_range rows = { 0, 0 };
    sheaf_status_free(sheaf_cut_rows(&rows, cut, 0, slice)); /* checked when the schema was made */
    return rows;
}

int sheaf__cut_slice_of(const sheaf_cut *cut, int64_t row)
{
    int low = 0, high = cut->slices - 1;
    while (low < high) { /* the first slice that ends behind row */
        const int mid = (low + high) / 2;
        if (slice_rows(cut, mid).end > row)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

void sheaf__owners(const sheaf__context *c, int32_t *owner, const sheaf_cut *cut,
                   const int32_t *known, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        owner[i] = known == NULL ? (int32_t)(i * c->ranks / n)
                   : known[i] < 0
                       ? 0
                       : sheaf_owner_rank(c->slices, c->ranks, sheaf__cut_slice_of(cut, known[i]));
}

sheaf_status *sheaf__select_counted(sheaf__context *c, void *rows, size_t row_bytes,
                                    const sheaf_cut *cut, const int32_t *known, int64_t n)
{
    enum { PARTS = 1 << 16 };
    if (c->comm == NULL)
        return NULL;
    if (known == NULL && n > PARTS) { /* even shares: a part stands for many rows */
        row_bytes = (size_t)((double)row_bytes * (double)n / PARTS);
        n = PARTS;
    }
    int32_t *owner = malloc((size_t)n * sizeof *owner + 1);
    if (owner == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "owners of %lld rows", (long long)n);
    sheaf__owners(c, owner, cut, known, n);
    sheaf_status *st = sheaf_comm_select(c->comm, rows, row_bytes, n, owner);
    free(owner);
    return st;
}

/* ---- embedding ---- */

typedef struct embedding_params {
    const sheaf__table *table;
    const sheaf__rows_in *in;
    sheaf__value *x;
} embedding_params;

typedef struct lookup {
    sheaf__context *c;
    const embedding_params *p;
    int32_t *owner;
    sheaf__lowest failed;
} lookup;

/* Of a tied head. Where it is stored narrower than x, it is laid at the end of x and widened from
 * there: what is written never reaches what is still to be read. */
static void packed_row(const sheaf__context *c, void *x, const sheaf__packed *w, int64_t row)
{
    const size_t wide = sheaf_dtype_bytes(c->dtype), narrow = sheaf_dtype_bytes(w->dtype);
    char *at = (char *)x + (size_t)w->k * (wide - narrow);
    enum { PART = 256 };
    uint32_t part[PART];
    sheaf__packed_row(at, w, row);
    for (int64_t i = 0, n; w->dtype != c->dtype && i < w->k; i += n) {
        n = w->k - i < PART ? w->k - i : PART;
        memcpy(part, at + (size_t)i * narrow, (size_t)n * narrow);
        c->device->kernels->convert(sheaf__at(x, i, c->dtype), c->dtype, part, w->dtype, n);
    }
}

static void look_up(void *arg, int64_t begin, int64_t end, int worker)
{
    lookup *l = arg;
    const sheaf__table *t = l->p->table;
    sheaf__context *c = l->c;
    const int64_t row0 = slice_rows(&t->cut, (int)c->own.begin).begin;
    sheaf_status *st = NULL;
    for (int64_t r = begin; r < end && st == NULL; r++) {
        const int64_t id = l->p->in->ids[r];
        const int slice = sheaf__cut_slice_of(&t->cut, id);
        char *x = sheaf__at(l->p->x->data, r * t->width, c->dtype);
        l->owner[r] = sheaf_owner_rank(c->slices, c->ranks, slice);
        if (l->owner[r] != c->rank)
            continue;
        const int64_t in_slice = id - slice_rows(&t->cut, slice).begin;
        if (t->trained != NULL && t->rows == NULL && !t->panels)
            c->device->kernels->round(x, c->dtype, t->trained->master[slice] + in_slice * t->width,
                                      t->width);
        else if (t->packed != NULL)
            packed_row(c, x, &t->packed[slice], in_slice);
        else if (t->stored.print != NULL)
            st = sheaf__stored_row(x, c, &t->stored, id, c->device->scratch[worker]);
        else
            memcpy(x, sheaf__at(t->rows, (id - row0) * t->width, c->dtype),
                   (size_t)t->width * sheaf_dtype_bytes(c->dtype));
        if (st != NULL)
            sheaf__lowest_note(&l->failed, r, st);
    }
}

static sheaf_status *embedding_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const embedding_params *p = op->params;
    const size_t row = (size_t)p->table->width * sheaf_dtype_bytes(c->dtype);
    const bool dry = c->device->kind == SHEAF_DRY;
    if (dry)
        return sheaf__select_counted(c, p->x->data, row, &p->table->cut, p->in->known, p->x->rows);
    int32_t *owner = malloc((size_t)p->x->rows * sizeof *owner + 1);
    if (owner == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "owners of %lld rows", (long long)p->x->rows);
    lookup look = { c, p, owner, { .at = 0 } };
    sheaf__lowest_begin(&look.failed);
    sheaf__rows(c, p->x->rows, 32, look_up, &look);
    sheaf_status *st = sheaf__lowest_end(&look.failed);
    if (st == NULL && c->comm != NULL)
        st = sheaf_comm_select(c->comm, p->x->data, row, p->x->rows, owner);
    free(owner);
    return st;
}

void sheaf__table_refresh(sheaf__context *c, const sheaf__table *t)
{
    for (int64_t s = c->own.begin, at = 0; s < c->own.end && t->rows != NULL; s++) {
        const int64_t n = t->trained == NULL ? 0 : t->trained->numel[s];
        if (n > 0 && c->device->kind != SHEAF_DRY)
            c->device->kernels->round(sheaf__at(t->rows, at, c->dtype), c->dtype,
                                      t->trained->weight[s], n);
        at += n;
    }
    sheaf__lora_refresh(c, t->lora);
}

/* Each table row receives its tokens in ascending order; threads share columns. */
static void scatter(void *arg, int64_t begin, int64_t end, int worker)
{
    const lookup *l = arg;
    const sheaf__table *t = l->p->table;
    sheaf__context *c = l->c;
    float part[256];
    for (int64_t r = 0; r < l->p->x->rows; r++) {
        const int64_t id = l->p->in->ids[r];
        const int slice = sheaf__cut_slice_of(&t->cut, id);
        if (slice < c->own.begin || slice >= c->own.end || id == t->padding - 1)
            continue;
        float *grad = t->trained->grad[slice] + (id - slice_rows(&t->cut, slice).begin) * t->width;
        for (int64_t col = begin; col < end; col += 256) {
            const int64_t n = end - col < 256 ? end - col : 256;
            c->device->kernels->widen(part, sheaf__at(l->p->x->grad, r * t->width + col, c->dtype),
                                      c->dtype, n);
            c->device->kernels->add(grad + col, grad + col, part, n);
        }
    }
}

static sheaf_status *embedding_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const embedding_params *p = op->params;
    sheaf__rows(c, p->table->width, 256, scatter, &(lookup){ .c = c, .p = p });
    return NULL;
}

sheaf__value *sheaf__record_embedding(sheaf__tape *tape, const sheaf__table *table, int64_t rows,
                                      const sheaf__rows_in *in)
{
    const bool trained = table->trained != NULL;
    sheaf__op *op = sheaf__tape_op(tape, table->name, embedding_forward,
                                   trained ? embedding_backward : NULL, sizeof(embedding_params));
    sheaf__value *x =
        sheaf__tape_value(tape, table->name, rows, table->width, sheaf__tape_context(tape)->dtype);
    *(embedding_params *)op->params = (embedding_params){ table, in, x };
    return sheaf__op_makes(op, x, NULL, trained, 0);
}

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
    a->c->device->kernels->rmsnorm_dw(p->norm->trained->grad[0], p->y->grad, p->x->data,
                                      p->rstd->data, p->x->rows, p->norm->width, begin, end,
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

/* ---- attention ---- */

typedef struct attention_params {
    sheaf__heads heads;
    const sheaf__rows_in *in;
    const sheaf__cache *cache;
    sheaf__value *q, *k, *v, *o, *stats;
} attention_params;

static sheaf__attention shape_of(const sheaf__context *c, const attention_params *p)
{
    const sheaf__heads *h = &p->heads;
    const int64_t keys = p->cache == NULL ? h->queries : p->in->keys;
    return (sheaf__attention){ .dtype = c->dtype,
                               .batch = h->batch,
                               .queries = h->queries,
                               .keys = keys,
                               .kv_heads = h->kv_heads,
                               .group = h->group,
                               .head_dim = h->head_dim,
                               .window = h->window,
                               .scale = (float)(1.0 / sqrt(h->scalar > 0 ? h->scalar
                                                                         : (double)h->head_dim)),
                               .cap = h->cap,
                               .key_mask = p->in->key_mask,
                               .mask_ld = p->in->mask_ld,
                               .ldq = p->q->cols,
                               .ldk = p->cache == NULL ? p->k->cols : h->head_dim,
                               .ldv = p->cache == NULL ? p->v->cols : h->head_dim,
                               .ldo = p->o->cols,
                               .by_head = p->cache != NULL,
                               .kv_rows = p->cache == NULL ? keys : p->cache->length,
                               .segment = p->cache == NULL ? p->in->segment : NULL,
                               .segments = p->in->segments };
}

static int64_t keys_of(const attention_params *p, int64_t sequence)
{
    return p->in->keys_of == NULL ? p->in->keys : p->in->keys_of[sequence];
}

/* New rows go behind the old ones of each sequence and head. */
static void append(const sheaf__context *c, const attention_params *p)
{
    const sheaf__heads *heads = &p->heads;
    const int64_t n = heads->queries, d = heads->head_dim, cols = p->k->cols;
    for (int64_t b = 0; b < heads->batch; b++)
        for (int64_t h = 0; h < heads->kv_heads; h++) {
            const int64_t at = (b * heads->kv_heads + h) * p->cache->length + keys_of(p, b) - n,
                          from = b * n * cols + h * d;
            sheaf__copy_box(c, sheaf__at(p->cache->k, at * d, c->dtype), d,
                            sheaf__at(p->k->data, from, c->dtype), cols, n, d);
            sheaf__copy_box(c, sheaf__at(p->cache->v, at * d, c->dtype), d,
                            sheaf__at(p->v->data, from, c->dtype), cols, n, d);
        }
}

/* Neighbours that have as many keys go together: the op knows one number of keys. */
static void each_length(const sheaf__context *c, const attention_params *p)
{
    const int64_t batch = p->heads.batch;
    sheaf__attention shape = shape_of(c, p);
    for (int64_t b = 0, end; b < batch; b = end) {
        for (end = b + 1; end < batch && keys_of(p, end) == keys_of(p, b);)
            end++;
        shape.batch = end - b;
        shape.keys = keys_of(p, b);
        if (p->in->key_mask != NULL)
            shape.key_mask = p->in->key_mask + b * shape.mask_ld;
        sheaf__attention_forward(
            c->device, &shape, sheaf__at(p->o->data, b * shape.queries * shape.ldo, c->dtype), NULL,
            sheaf__at(p->q->data, b * shape.queries * shape.ldq, c->dtype),
            sheaf__at(p->cache->k, b * shape.kv_rows * p->k->cols, c->dtype),
            sheaf__at(p->cache->v, b * shape.kv_rows * p->v->cols, c->dtype));
    }
}

static sheaf_status *attention_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const attention_params *p = op->params;
    const sheaf__attention shape = shape_of(c, p);
    if (p->cache != NULL && c->device->kind != SHEAF_DRY)
        append(c, p);
    if (p->cache != NULL && p->in->keys_of != NULL && c->device->kind != SHEAF_DRY) {
        each_length(c, p);
        return NULL;
    }
    sheaf__attention_forward(
        c->device, &shape, p->o->data, p->stats == NULL ? NULL : p->stats->data, p->q->data,
        p->cache == NULL ? p->k->data : p->cache->k, p->cache == NULL ? p->v->data : p->cache->v);
    return NULL;
}

static sheaf_status *attention_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const attention_params *p = op->params;
    const sheaf__attention shape = shape_of(c, p);
    sheaf__attention_backward(c->device, &shape, p->q->grad, p->k->grad, p->v->grad, p->o->grad,
                              p->o->data, p->stats->data, p->q->data, p->k->data, p->v->data);
    return NULL;
}

sheaf__value *sheaf__record_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                      sheaf__value *v, const sheaf__heads *heads,
                                      const sheaf__rows_in *in, const sheaf__cache *cache)
{
    /* Linear layers give all three or none a gradient; a norm between may be trained alone. */
    const bool flows = (q->needs_grad || k->needs_grad || v->needs_grad) && cache == NULL;
    if (flows)
        q->needs_grad = k->needs_grad = v->needs_grad = true;
    sheaf__op *op = sheaf__tape_op(tape, "attention", attention_forward,
                                   flows ? attention_backward : NULL, sizeof(attention_params));
    attention_params *p = op->params;
    op->kind = SHEAF__WORK_ATTENTION;
    *p =
        (attention_params){ *heads,
                            in,
                            cache,
                            q,
                            k,
                            v,
                            sheaf__tape_value(tape, "attention output", q->rows, q->cols, q->dtype),
                            NULL };
    p->o->needs_grad = flows;
    const unsigned use = SHEAF__READ | (flows ? SHEAF__KEEP | SHEAF__TAKES : 0);
    sheaf__op_arg(op, q, use);
    sheaf__op_arg(op, k, use);
    sheaf__op_arg(op, v, use);
    sheaf__op_arg(op, p->o, SHEAF__MAKE | (flows ? SHEAF__KEEP | SHEAF__GIVES : 0));
    if (flows) {
        p->stats = sheaf__tape_value(tape, "softmax statistics", q->rows,
                                     heads->kv_heads * heads->group * 2, SHEAF_F32);
        p->stats->statistic = true;
        sheaf__op_arg(op, p->stats, SHEAF__MAKE | SHEAF__KEEP);
    }
    return p->o;
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
    const sheaf__kernels *k = a->c->device->kernels;
    (p->gelu ? k->geglu : k->swiglu)(sheaf__at(p->h->data, begin, t),
                                     sheaf__at(p->gate->data, begin, t),
                                     sheaf__at(p->up->data, begin, t), end - begin, t);
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
    const sheaf__kernels *k = a->c->device->kernels;
    void *dh = sheaf__at(p->h->grad, begin, t);
    (p->gelu ? k->geglu_back
             : k->swiglu_back)(sheaf__at(p->gate->grad, begin, t), sheaf__at(p->up->grad, begin, t),
                               p->h->remade ? dh : NULL, dh, sheaf__at(p->gate->data, begin, t),
                               sheaf__at(p->up->data, begin, t), end - begin, t);
}

static sheaf_status *swiglu_backward(sheaf__tape *tape, sheaf__op *op)
{
    const swiglu_params *p = op->params;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->h) * p->h->cols, 1 << 14,
                          swiglu_back_elements);
}

static sheaf__value *record_gated(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up,
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

sheaf__value *sheaf__record_swiglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up)
{
    return record_gated(tape, gate, up, false);
}

sheaf__value *sheaf__record_geglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up)
{
    return record_gated(tape, gate, up, true);
}
