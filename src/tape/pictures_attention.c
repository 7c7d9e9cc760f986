/* pictures_attention.c - attention inside each picture.
 *
 * Neighbours of as many rows go to the op together, as sequences of one length. A sequence's bits
 * do not depend on the others, so neither do a picture's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention/attention.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

typedef struct inside_params {
    sheaf__heads heads;
    sheaf__pictures of;
    int64_t queries_each;
    sheaf__value *q, *k, *v, *o, *stats;
} inside_params;

/* Rows of picture i and of all before it. */
static int64_t rows_before(const sheaf__picture_at *at, const sheaf__pictures *p, int64_t i)
{
    const int64_t patches = at != NULL ? at[i].first : p->patches * i / p->images;
    return patches + (p->class_row ? i : 0);
}

/* Queries of their own do not see what lies behind a picture's own patches. */
static bool sees_own(const inside_params *p)
{
    return p->of.tower.padded && p->queries_each > 0;
}

/* Of these, those that are seen. */
static int64_t keys_of(const sheaf__picture_at *at, const inside_params *p, int64_t i)
{
    return at != NULL && sees_own(p) ? at[i].down * at[i].across
                                     : rows_before(at, &p->of, i + 1) - rows_before(at, &p->of, i);
}

static sheaf__attention shape_of(const sheaf__context *c, const inside_params *p, int64_t keys,
                                 int64_t rows, int64_t images)
{
    const sheaf__heads *h = &p->heads;
    return (sheaf__attention){ .dtype = c->dtype,
                               .batch = images,
                               .queries = p->queries_each > 0 ? p->queries_each : keys,
                               .keys = keys,
                               .full = true,
                               .kv_heads = h->kv_heads,
                               .group = h->group,
                               .head_dim = h->head_dim,
                               .scale = (float)(1.0 / sqrt(h->scalar > 0 ? h->scalar
                                                                         : (double)h->head_dim)),
                               .ldq = p->q->cols,
                               .ldk = p->k->cols,
                               .ldv = p->v->cols,
                               .ldo = p->q->cols,
                               .kv_rows = rows };
}

/* A run of equally large pictures: its shape, and the rows before it. */
typedef struct run {
    sheaf__attention shape;
    int64_t query, key;
} run;

static run run_from(const sheaf__context *c, const inside_params *p, const sheaf__picture_at *at,
                    int64_t i, int64_t *end)
{
    const int64_t key = rows_before(at, &p->of, i), rows = rows_before(at, &p->of, i + 1) - key,
                  keys = keys_of(at, p, i);
    int64_t last = i + 1;
    while (last < p->of.images && keys_of(at, p, last) == keys &&
           rows_before(at, &p->of, last + 1) - rows_before(at, &p->of, last) == rows)
        last++;
    *end = last;
    return (run){ shape_of(c, p, keys, rows, last - i),
                  p->queries_each > 0 ? i * p->queries_each : key, key };
}

/* Where row `row` of a value lies; NULL on dry. */
static void *row_of(const sheaf__context *c, void *data, int64_t row, int64_t cols)
{
    return c->device->kind == SHEAF_DRY ? NULL : sheaf__at(data, row * cols, c->dtype);
}

static float *stats_of(const sheaf__context *c, const inside_params *p, int64_t row)
{
    return p->stats == NULL || c->device->kind == SHEAF_DRY
               ? NULL
               : (float *)p->stats->data + row * p->stats->cols;
}

static sheaf_status *layout_of(sheaf__picture_at **at, const sheaf__context *c,
                               const inside_params *p)
{
    *at = NULL;
    return c->device->kind == SHEAF_DRY ? NULL : sheaf__pictures_layout(at, &p->of);
}

static sheaf_status *inside_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const inside_params *p = op->params;
    sheaf__picture_at *at;
    sheaf_status *st = layout_of(&at, c, p);
    for (int64_t i = 0, end; i < p->of.images && st == NULL; i = end) {
        const run r = run_from(c, p, at, i, &end);
        sheaf__attention_forward(
            c->device, &r.shape, row_of(c, p->o->data, r.query, p->o->cols),
            stats_of(c, p, r.query), row_of(c, p->q->data, r.query, p->q->cols),
            row_of(c, p->k->data, r.key, p->k->cols), row_of(c, p->v->data, r.key, p->v->cols));
    }
    free(at);
    return st;
}

static void back_all(sheaf__context *c, const inside_params *p, const sheaf__picture_at *at,
                     void *const grad[3])
{
    for (int64_t i = 0, end; i < p->of.images; i = end) {
        const run r = run_from(c, p, at, i, &end);
        sheaf__attention_backward(
            c->device, &r.shape, row_of(c, grad[0], r.query, p->q->cols),
            row_of(c, grad[1], r.key, p->k->cols), row_of(c, grad[2], r.key, p->v->cols),
            row_of(c, p->o->grad, r.query, p->o->cols), row_of(c, p->o->data, r.query, p->o->cols),
            stats_of(c, p, r.query), row_of(c, p->q->data, r.query, p->q->cols),
            row_of(c, p->k->data, r.key, p->k->cols), row_of(c, p->v->data, r.key, p->v->cols));
    }
}

/* The kernel writes all three gradients: one that nobody needs or that is added to goes apart. */
static sheaf_status *inside_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const inside_params *p = op->params;
    sheaf__value *const to[3] = { p->q, p->k, p->v };
    void *grad[3] = { NULL }, *apart[3] = { NULL };
    sheaf__picture_at *at;
    sheaf_status *st = layout_of(&at, c, p);
    for (int i = 0; i < 3 && st == NULL; i++) {
        const size_t bytes = (size_t)(to[i]->rows * to[i]->cols) * sheaf_dtype_bytes(c->dtype);
        if (!to[i]->needs_grad || !to[i]->grad_fresh)
            st = sheaf__take(&apart[i], c, bytes, SHEAF_MEM_SCRATCH);
        grad[i] = apart[i] == NULL ? to[i]->grad : apart[i];
    }
    for (int i = 1; i < 3 && st == NULL && sees_own(p) && at != NULL; i++)
        memset(grad[i], 0, (size_t)(to[i]->rows * to[i]->cols) * sheaf_dtype_bytes(c->dtype));
    if (st == NULL)
        back_all(c, p, at, grad);
    for (int i = 0; i < 3; i++) {
        if (st == NULL && to[i]->needs_grad && apart[i] != NULL)
            sheaf__accumulate(c, to[i]->grad, apart[i], to[i]->rows * to[i]->cols, c->dtype);
        sheaf__give(c, apart[i]);
    }
    free(at);
    return st;
}

sheaf__value *sheaf__record_picture_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                              sheaf__value *v, const sheaf__heads *heads,
                                              const sheaf__pictures *pictures, int64_t queries_each)
{
    const bool flows = q->needs_grad || k->needs_grad || v->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "attention", inside_forward,
                                   flows ? inside_backward : NULL, sizeof(inside_params));
    inside_params *p = op->params;
    op->kind = SHEAF__WORK_ATTENTION;
    *p = (inside_params){
        .heads = *heads, .of = *pictures, .queries_each = queries_each, .q = q, .k = k, .v = v
    };
    p->o = sheaf__tape_value(tape, "attention output", q->rows, q->cols, q->dtype);
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
