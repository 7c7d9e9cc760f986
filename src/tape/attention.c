/* attention.c - attention as an op of the tape: of a decoder, with a cache or without (layers.h);
 * of all rows of a sequence to all keys of it (vision.h); inside pictures (pictures.h).
 *
 * Neighbours of as many rows go to the kernels together, as sequences of one length. A sequence's
 * bits do not depend on the others, so neither do a picture's. */
#include "ops/attention/attention.h"

#include <math.h>

#include "base/base.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

typedef struct attention_params {
    sheaf__heads heads;
    const sheaf__rows_in *in; /* of causal attention; else NULL */
    const sheaf__cache *cache;
    const sheaf__rows_in *places; /* says which of the cache's sequences these are; NULL: all */
    sheaf__pictures of;   /* the sequences; of full attention, of.in NULL: they are equally long */
    int64_t queries_each; /* 0: as many as keys */
    sheaf__value *q, *k, *v, *o, *stats;
} attention_params;

/* The fields that all kinds share. */
static sheaf__attention shape_of(const sheaf__context *c, const attention_params *p)
{
    const sheaf__heads *h = &p->heads;
    const int64_t owned = h->kv_heads * h->head_dim;
    return (sheaf__attention){ .dtype = c->dtype,
                               .kv_heads = h->kv_heads,
                               .group = h->group,
                               .head_dim = h->head_dim,
                               .scale = (float)(1.0 / sqrt(h->scalar > 0 ? h->scalar
                                                                         : (double)h->head_dim)),
                               .ldq = p->q->cols,
                               .ldk = p->k == NULL ? owned : p->k->cols,
                               .ldv = p->v == NULL ? owned : p->v->cols,
                               .ldo = p->o->cols };
}

/* ---- runs of sequences ---- */

/* Of these sequences and heads; query, key: the rows before them. */
typedef struct run {
    sheaf__attention shape;
    int64_t query, key;
} run;

static int64_t keys_of(const attention_params *p, int64_t sequence)
{
    if (p->cache == NULL)
        return p->heads.queries;
    return p->in->keys_of == NULL ? p->in->keys : p->in->keys_of[sequence];
}

/* Place of sequence i's keys and values in the cache, or in the run. */
static int64_t place_of(const attention_params *p, int64_t sequence)
{
    const bool named = p->cache != NULL && p->places != NULL && p->places->place_of != NULL;
    return named ? p->places->place_of[sequence] : sequence;
}

/* The end of the neighbours of sequence i, in the cache too, that have as many. */
static int64_t equal_end(const attention_params *p, int64_t i)
{
    int64_t end = i + 1;
    while (end < p->heads.batch && keys_of(p, end) == keys_of(p, i) &&
           place_of(p, end) == place_of(p, i) + end - i)
        end++;
    return end;
}

/* Of causal attention: neighbours that have as many keys, from sequence i on. */
static run causal_run(const sheaf__context *c, const attention_params *p, int64_t i, int64_t *end)
{
    const sheaf__heads *h = &p->heads;
    const bool cached = p->cache != NULL;
    sheaf__attention s = shape_of(c, p);
    *end = equal_end(p, i);
    s.batch = *end - i;
    s.queries = h->queries;
    s.keys = keys_of(p, i);
    s.window = h->window;
    s.cap = h->cap;
    s.mask_ld = p->in->mask_ld;
    s.key_mask = p->in->key_mask == NULL ? NULL : p->in->key_mask + i * s.mask_ld;
    s.by_head = cached;
    s.kv_rows = cached ? p->cache->length : s.keys;
    s.segment = cached ? NULL : p->in->segment;
    s.segments = p->in->segments;
    if (cached)
        s.ldk = s.ldv = s.head_dim;
    return (run){ s, i * s.queries, place_of(p, i) * s.kv_rows * (cached ? s.kv_heads : 1) };
}

/* How pictures, or their windows, follow one another in a run. */
typedef struct layout {
    sheaf__picture_at *at;
    sheaf__row_groups windows; /* count 0: pictures are whole */
} layout;

static sheaf_status *find_layout(layout *out, const sheaf__pictures *p)
{
    *out = (layout){ 0 };
    return p->windows ? sheaf__windows_groups(&out->windows, p)
                      : sheaf__pictures_layout(&out->at, p);
}

static void release(layout *l)
{
    free(l->at);
    free(l->windows.begin);
}

static int64_t count_of(const layout *l, const sheaf__pictures *p)
{
    return p->windows ? l->windows.count : sheaf__pictures_count(p);
}

/* Rows of all pictures before picture i. */
static int64_t rows_before(const layout *l, const sheaf__pictures *p, int64_t i)
{
    if (p->windows)
        return l->windows.begin != NULL ? l->windows.begin[i] : p->patches * i / l->windows.count;
    return sheaf__patches_before(l->at, p, i) + (p->class_row ? i : 0);
}

/* Queries of their own do not see what lies behind a picture's own patches. */
static bool sees_own(const attention_params *p)
{
    return p->of.tower.padded && p->queries_each > 0;
}

/* Of these, those that are seen. */
static int64_t keys_seen(const layout *l, const attention_params *p, int64_t i)
{
    return l->at != NULL && sees_own(p) ? l->at[i].down * l->at[i].across
                                        : rows_before(l, &p->of, i + 1) - rows_before(l, &p->of, i);
}

/* The run that begins with sequence i, or with picture i: of equally large ones; and its end. */
static run run_from(const sheaf__context *c, const attention_params *p, const layout *l, int64_t i,
                    int64_t *end)
{
    if (p->in != NULL)
        return causal_run(c, p, i, end);
    const int64_t before = rows_before(l, &p->of, i), rows = rows_before(l, &p->of, i + 1) - before,
                  n = count_of(l, &p->of);
    /* the cache has as many rows of each sequence */
    run r = { shape_of(c, p), 0, p->cache == NULL ? before : place_of(p, i) * rows };
    int64_t last = i + 1;
    r.shape.full = true;
    r.shape.kv_rows = rows;
    r.shape.keys = keys_seen(l, p, i);
    r.shape.queries = p->queries_each > 0 ? p->queries_each : r.shape.keys;
    r.query = p->queries_each > 0 ? i * p->queries_each : before;
    while (last < n && keys_seen(l, p, last) == r.shape.keys &&
           rows_before(l, &p->of, last + 1) - rows_before(l, &p->of, last) == rows &&
           place_of(p, last) == place_of(p, i) + last - i)
        last++;
    r.shape.batch = last - i;
    *end = last;
    return r;
}

/* Address of row `row` of a value. */
static void *row_of(const sheaf__context *c, void *data, int64_t row, int64_t cols)
{
    return sheaf__at(data, row * cols, c->dtype);
}

static float *stats_of(const attention_params *p, int64_t row)
{
    return p->stats == NULL ? NULL : (float *)p->stats->data + row * p->stats->cols;
}

/* ---- forward ---- */

/* New rows of x, the keys or the values, go behind the old ones of each sequence and head. */
static void append(const sheaf__context *c, const attention_params *p, void *cache,
                   const sheaf__value *x)
{
    const sheaf__heads *h = &p->heads;
    const int64_t n = h->queries, d = h->head_dim, length = p->cache->length;
    for (int64_t i = 0, end; i < h->batch; i = end) {
        end = equal_end(p, i);
        const int64_t at = place_of(p, i) * h->kv_heads * length + keys_of(p, i) - n;
        sheaf__op_copy_boxes(c->device,
                             (sheaf__boxes){ .dtype = c->dtype,
                                             .dst = sheaf__at(cache, at * d, c->dtype),
                                             .src = sheaf__at(x->data, i * n * x->cols, c->dtype),
                                             .count = { end - i, h->kv_heads, n },
                                             .ld_dst = { h->kv_heads * length * d, length * d, d },
                                             .ld_src = { n * x->cols, d, x->cols },
                                             .cols = d });
    }
}

static sheaf_status *forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const attention_params *p = op->params;
    const bool cached = p->cache != NULL;
    void *k = cached ? p->cache->k : p->k->data, *v = cached ? p->cache->v : p->v->data;
    layout l;
    if (cached && p->in != NULL) {
        append(c, p, k, p->k);
        append(c, p, v, p->v);
    }
    for (int64_t i = 0; cached && p->in == NULL && p->k != NULL && i < p->heads.batch; i++) {
        const int64_t each = p->k->rows / p->heads.batch * p->k->cols;
        const sheaf__value *from[] = { p->k, p->v };
        for (int j = 0; j < 2; j++)
            sheaf__copy(c, sheaf__at(j == 0 ? k : v, place_of(p, i) * each, c->dtype),
                        sheaf__at(from[j]->data, i * each, c->dtype), each, false);
    }
    sheaf_status *st = find_layout(&l, &p->of);
    for (int64_t i = 0, end; i < count_of(&l, &p->of) && st == NULL; i = end) {
        const run r = run_from(c, p, &l, i, &end);
        sheaf__attention_forward(c->device, &r.shape, row_of(c, p->o->data, r.query, r.shape.ldo),
                                 stats_of(p, r.query), row_of(c, p->q->data, r.query, r.shape.ldq),
                                 row_of(c, k, r.key, r.shape.ldk),
                                 row_of(c, v, r.key, r.shape.ldv));
    }
    release(&l);
    return st;
}

/* ---- backward ---- */

static void back_all(sheaf__context *c, const attention_params *p, const layout *l,
                     void *const grad[3])
{
    for (int64_t i = 0, end; i < count_of(l, &p->of); i = end) {
        const run r = run_from(c, p, l, i, &end);
        sheaf__attention_backward(
            c->device, &r.shape, row_of(c, grad[0], r.query, p->q->cols),
            row_of(c, grad[1], r.key, p->k->cols), row_of(c, grad[2], r.key, p->v->cols),
            row_of(c, p->o->grad, r.query, p->o->cols), row_of(c, p->o->data, r.query, p->o->cols),
            stats_of(p, r.query), row_of(c, p->q->data, r.query, p->q->cols),
            row_of(c, p->k->data, r.key, p->k->cols), row_of(c, p->v->data, r.key, p->v->cols));
    }
}

/* The kernel writes all three gradients, whether they are needed or not. */
static sheaf_status *backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const attention_params *p = op->params;
    sheaf__value *const to[3] = { p->q, p->k, p->v };
    void *grad[3] = { NULL };
    layout l;
    sheaf_status *st = find_layout(&l, &p->of);
    for (int i = 0; i < 3; i++)
        TRY(st, sheaf__gradient_begin(&grad[i], c, to[i]));
    for (int i = 1; i < 3 && st == NULL && sees_own(p); i++)
        sheaf__op_zero(c->device, grad[i], to[i]->rows * to[i]->cols, c->dtype);
    if (st == NULL)
        back_all(c, p, &l, grad);
    for (int i = 0; i < 3; i++)
        sheaf__gradient_end(c, to[i], grad[i], st == NULL);
    release(&l);
    return st;
}

/* ---- recording ---- */

static sheaf__value *record(sheaf__tape *tape, attention_params how, bool flows)
{
    sheaf__op *op = sheaf__tape_op(tape, "attention", forward, flows ? backward : NULL, sizeof how);
    attention_params *p = op->params;
    sheaf__value *const from[] = { how.q, how.k, how.v };
    op->kind = SHEAF__WORK_ATTENTION;
    *p = how;
    p->o = sheaf__tape_value(tape, "attention output", how.q->rows, how.q->cols, how.q->dtype);
    sheaf__cut_as(p->o, how.q);
    p->o->needs_grad = flows;
    for (int i = 0; i < 3 && from[i] != NULL; i++)
        sheaf__op_arg(op, from[i], SHEAF__READ | SHEAF__KEEP | SHEAF__GRAD_WRITE);
    sheaf__op_arg(op, p->o, SHEAF__MAKE | SHEAF__KEEP | SHEAF__GRAD_READ);
    if (flows) {
        p->stats = sheaf__tape_value(tape, "softmax statistics", how.q->rows,
                                     how.heads.kv_heads * how.heads.group * 2, SHEAF_F32);
        p->stats->statistic = true;
        sheaf__op_arg(op, p->stats, SHEAF__MAKE | SHEAF__KEEP);
    }
    return p->o;
}

static bool any_needs(const sheaf__value *q, const sheaf__value *k, const sheaf__value *v)
{
    return q->needs_grad || k->needs_grad || v->needs_grad;
}

sheaf__value *sheaf__record_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                      sheaf__value *v, const sheaf__heads *heads,
                                      const sheaf__rows_in *in, const sheaf__cache *cache)
{
    /* Linear layers give all three or none a gradient; a norm between may be trained alone. */
    const bool flows = cache == NULL && any_needs(q, k, v);
    if (flows)
        q->needs_grad = k->needs_grad = v->needs_grad = true;
    return record(tape,
                  (attention_params){ .heads = *heads,
                                      .in = in,
                                      .cache = cache,
                                      .places = in,
                                      .of = { .images = heads->batch },
                                      .q = q,
                                      .k = k,
                                      .v = v },
                  flows);
}

sheaf__value *sheaf__record_full_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                           sheaf__value *v, const sheaf__heads *heads, int64_t keys,
                                           const sheaf__rows_in *in, const sheaf__cache *cache)
{
    return record(
        tape,
        (attention_params){ .heads = *heads,
                            .cache = cache,
                            .places = in,
                            .of = { .images = heads->batch, .patches = heads->batch * keys },
                            .queries_each = heads->queries,
                            .q = q,
                            .k = k,
                            .v = v },
        cache == NULL && any_needs(q, k, v));
}

sheaf__value *sheaf__record_picture_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                              sheaf__value *v, const sheaf__heads *heads,
                                              const sheaf__pictures *pictures, int64_t queries_each)
{
    return record(tape,
                  (attention_params){ .heads = *heads,
                                      .of = *pictures,
                                      .queries_each = queries_each,
                                      .q = q,
                                      .k = k,
                                      .v = v },
                  any_needs(q, k, v));
}
