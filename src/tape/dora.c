/* dora.c - the magnitudes of a linear layer with DoRA: norms of rows, forward, backward; formulas
 * in linear.h.
 *
 * The squares of the rows of W + s B A, W frozen, are
 *     |W|^2 + sum over r of B[o,r] (2 s (A W^T)[r,o]) + sum over r of B[o,r] s^2 ((A A^T) B^T)[r,o]
 * The first is made once, of the layer's own product with unit vectors, so that it is that of the
 * weights as they are met: codes, panels or rows, wherever they lie. The others are products of as
 * many rows as A has, so that a step pays for as many tokens more; W + s B A itself would be a
 * tile of memory and as many products as W has columns. Sums over r and over the columns of W are
 * sums over rows of docs/contract.md, section 1.4; over slices of W's inputs they meet in the tree.
 */
#include <math.h>

#include "base/base.h"
#include "tape/linear_inner.h"
#include "tape/rows.h"

enum { UNITS = 256 }; /* unit vectors at a time: a block of section 1.4 */

static sheaf_status *alloc_floats(float **out, sheaf__context *c, int64_t n)
{
    return sheaf__alloc(out, c, (size_t)n * sizeof(float), SHEAF_MEM_SCRATCH);
}

/* n ones: of sums of nothing, 1 / sqrt(0 + 1). */
static sheaf_status *ones(float **out, sheaf__context *c, int64_t n)
{
    float *zeros = NULL;
    sheaf_status *st = alloc_floats(out, c, n);
    TRY(st, alloc_floats(&zeros, c, n));
    if (st == NULL) {
        sheaf__op_zero(c->device, zeros, n, SHEAF_F32);
        const sheaf__layer_norm one = { .rstd = *out, .rows = n, .width = 1, .eps = 1 };
        sheaf__op_layernorm_statistics(c->device, &one, zeros, SHEAF__SUMS_SQUARES);
    }
    sheaf__free(c, zeros);
    return st;
}

/* to[cols] += sum over rows of a * (x * by), float32; `by` of each row. */
static void add_dots(const sheaf__context *c, float *to, const float *a, const float *x,
                     const float *by, int64_t ld, int64_t rows, int64_t cols)
{
    sheaf__op_norm_weight(c->device, (sheaf__norm_weight){ .dw = to,
                                                           .dy = a,
                                                           .x = x,
                                                           .rstd = by,
                                                           .ld = ld,
                                                           .rows = rows,
                                                           .cols = cols,
                                                           .dtype = SHEAF_F32 });
}

/* ---- the norms ---- */

/* Rows [first, first + UNITS) of the unit matrix of width n, of which there are `rows`. */
static sheaf_status *unit_rows(sheaf__context *c, void *to, float *host, int64_t first,
                               int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        host[r * n + first + r] = 1;
    sheaf_status *st = sheaf__upload_rounded(c->device, to, c->dtype, host, SHEAF_F32, rows * n);
    for (int64_t r = 0; r < rows; r++)
        host[r * n + first + r] = 0;
    return st;
}

/* squares[out] = those of the rows of W [out, in]. */
static sheaf_status *squares_of(sheaf__context *c, const sheaf__packed *w, float *squares,
                                int64_t out, int64_t in, sheaf__batch *b)
{
    float *product = NULL, *one = NULL, *host = calloc((size_t)(UNITS * in) + 1, sizeof *host);
    void *unit = NULL;
    sheaf_status *st = host == NULL ? sheaf__no_memory("unit vectors") : NULL;
    TRY(st, sheaf__alloc_scratch(&unit, c, UNITS * in));
    TRY(st, alloc_floats(&product, c, UNITS * out));
    TRY(st, ones(&one, c, UNITS));
    if (st == NULL)
        sheaf__op_zero(c->device, squares, out, SHEAF_F32);
    for (int64_t k = 0; k < in && st == NULL && out > 0; k += UNITS) {
        const int64_t rows = in - k < UNITS ? in - k : UNITS;
        st = unit_rows(c, unit, host, k, rows, in);
        sheaf__batch_job(b, rows, out, product, out, SHEAF_F32,
                         sheaf__term_packed(unit, in, SHEAF__B_AHEAD, w, in));
        sheaf__batch_run(c, b);
        add_dots(c, squares, product, product, one, out, rows, out);
    }
    sheaf__free(c, product);
    sheaf__free(c, one);
    sheaf__free(c, unit);
    free(host);
    return st;
}

/* Of a layer that is cut along its inputs: the tree over slices. */
static sheaf_status *squares_of_rows(sheaf__context *c, const sheaf__linear *l, sheaf__batch *b)
{
    float *part[SHEAF_MAX_SLICES] = { 0 }, *spare = NULL, *total = NULL;
    sheaf_status *st = alloc_floats(&spare, c, l->out);
    for (int i = 0; i < l->count && st == NULL; i++) {
        st = alloc_floats(&part[i], c, l->out);
        if (st == NULL && l->extent[l->first + i] > 0)
            st = squares_of(c, &l->w[l->first + i], part[i], l->out, l->extent[l->first + i], b);
    }
    TRY(st, sheaf__sum_partials(c, &l->tree, part, l->first, spare, 1, l->out, &total));
    if (st == NULL)
        sheaf__op_convert(c->device, l->lora->dora->squares, SHEAF_F32, total, SHEAF_F32, l->out);
    for (int i = 0; i < l->count; i++)
        sheaf__free(c, part[i]);
    sheaf__free(c, spare);
    return st;
}

/* A W^T [rank, n], and behind it A A^T [rank, rank], of one slice of the inputs. */
static void add_products(sheaf__batch *b, float *to, const sheaf__lora_part *lora, const void *a,
                         const sheaf__packed *w, int64_t n, int64_t in)
{
    const int64_t r = lora->rank;
    if (n > 0)
        sheaf__batch_job(b, r, n, to, n, SHEAF_F32,
                         sheaf__term_packed(a, in, SHEAF__B_AHEAD, w, in));
    sheaf__batch_job(b, r, r, to + r * n, r, SHEAF_F32,
                     sheaf__term_of(a, in, SHEAF__B_NK, a, in, in));
}

/* The same of the layer; *total is one of `part` or `spare`. */
static sheaf_status *all_products(sheaf__context *c, const sheaf__linear *l, float **part,
                                  float *spare, float **total, sheaf__batch *b)
{
    const sheaf__lora_part *lora = l->lora;
    const int64_t n = lora->dora->n, r = lora->rank;
    *total = part[0];
    for (int s = l->first; s < l->first + l->count && l->rows; s++)
        if (l->extent[s] > 0)
            add_products(b, part[s - l->first], lora, lora->a_copy[s], &l->w[s], n, l->extent[s]);
    if (!l->rows)
        add_products(b, part[0], lora, lora->a_copy[0], &l->all, n, l->in);
    sheaf__batch_run(c, b);
    return l->rows ? sheaf__sum_partials(c, &l->tree, part, l->first, spare, r, n + r, total)
                   : NULL;
}

/* dora->now, from what all_products() made: by way of B^T [rank, n], and (A A^T) B^T. */
static sheaf_status *add_factors(sheaf__context *c, const sheaf__linear *l, const float *total,
                                 sheaf__batch *b)
{
    const sheaf__lora_part *lora = l->lora;
    const struct sheaf__dora *d = lora->dora;
    const int64_t n = d->n, r = lora->rank;
    float *wide = NULL, *turned = NULL, *product = NULL;
    sheaf_status *st = alloc_floats(&wide, c, n * r);
    TRY(st, alloc_floats(&turned, c, n * r));
    TRY(st, alloc_floats(&product, c, n * r));
    if (st == NULL) {
        sheaf__op_convert(c->device, wide, SHEAF_F32, lora->b_copy[l->rows ? 0 : l->first],
                          c->dtype, n * r);
        sheaf__op_transpose(c->device, turned, wide, n, r);
        sheaf__batch_job(b, r, n, product, n, SHEAF_F32,
                         sheaf__term_of(total + r * n, r, SHEAF__B_NK, wide, r, r))
            ->dtype = SHEAF_F32;
        sheaf__batch_run(c, b);
        sheaf__op_convert(c->device, d->now, SHEAF_F32, d->squares, SHEAF_F32, n);
        add_dots(c, d->now, turned, total, d->weigh, n, r, n);
        add_dots(c, d->now, turned, product, d->weigh + r, n, r, n);
    }
    sheaf__free(c, wide);
    sheaf__free(c, turned);
    sheaf__free(c, product);
    return st;
}

static sheaf_status *make_norms(sheaf__context *c, const sheaf__linear *l)
{
    const int64_t n = l->lora->dora->n, r = l->lora->rank, all = r * (n + r);
    float *part[SHEAF_MAX_SLICES] = { 0 }, *spare = NULL, *total = NULL;
    sheaf__batch *b = NULL;
    sheaf_status *st = sheaf__batch_new(&b, c);
    TRY(st, alloc_floats(&spare, c, all));
    for (int i = 0; i < (l->rows ? l->count : 1) && st == NULL; i++)
        st = alloc_floats(&part[i], c, all);
    TRY(st, all_products(c, l, part, spare, &total, b));
    if (n > 0)
        TRY(st, add_factors(c, l, total, b));
    for (int i = 0; i < SHEAF_MAX_SLICES; i++)
        sheaf__free(c, part[i]);
    sheaf__free(c, spare);
    sheaf__batch_free(b);
    return st;
}

sheaf_status *sheaf__dora_norms(sheaf__context *c, sheaf__linear *l)
{
    struct sheaf__dora *d = l->lora == NULL ? NULL : l->lora->dora;
    if (d == NULL || !d->stale)
        return NULL;
    sheaf_status *st = make_norms(c, l);
    if (st == NULL)
        sheaf__op_magnitudes(c->device,
                             (sheaf__magnitudes){ d->factor, d->inverse,
                                                  l->lora->m_copy[l->rows ? 0 : l->first], d->now,
                                                  d->n });
    d->stale = st != NULL;
    return st;
}

/* The magnitudes that are trained become the norms. */
static sheaf_status *take_norms(sheaf__context *c, const sheaf__linear *l)
{
    const struct sheaf__dora *d = l->lora->dora;
    const sheaf__trained *m = d->m;
    sheaf_status *st = make_norms(c, l);
    for (int s = m->first; s < m->first + m->count && st == NULL; s++) {
        const int64_t at = m->cut.nparts == 0 ? 0 : l->begin[s],
                      n = m->cut.nparts == 0 ? d->n : l->extent[s];
        const size_t bytes = (size_t)n * sizeof(float);
        float *norm, *to = m->master[s] + d->m_at[s];
        st = sheaf__borrow(&norm, c->device, d->now + at, bytes, true);
        for (int64_t i = 0; i < n && norm != NULL; i++)
            norm[i] = sqrtf(norm[i]);
        if (norm != NULL)
            TRY(st, sheaf__upload(c->device, to, norm, bytes));
        TRY(st, sheaf__return(norm, c->device, (void *)(d->now + at), bytes, false));
    }
    return st;
}

sheaf_status *sheaf__dora_begin(sheaf__context *c, sheaf__linear *l, bool fresh)
{
    const struct sheaf__dora *d = sheaf__dora_of(l);
    const int64_t r = d == NULL ? 0 : l->lora->rank;
    const float scale = d == NULL ? 0 : l->lora->scale;
    sheaf__batch *b = NULL;
    float *weigh = NULL;
    if (d == NULL)
        return NULL;
    sheaf_status *st =
        sheaf__borrow(&weigh, c->device, d->weigh, (size_t)(2 * r) * sizeof(float), false);
    for (int64_t i = 0; i < r && weigh != NULL; i++) {
        weigh[i] = 2 * scale;
        weigh[r + i] = scale * scale;
    }
    TRY(st, sheaf__return(weigh, c->device, d->weigh, (size_t)(2 * r) * sizeof(float), true));
    TRY(st, sheaf__batch_new(&b, c));
    TRY(st,
        l->rows ? squares_of_rows(c, l, b) : squares_of(c, &l->all, d->squares, d->n, l->in, b));
    sheaf__batch_free(b);
    if (st == NULL && fresh) {
        sheaf__lora_refresh(c, l->lora);
        st = take_norms(c, l);
    }
    return st;
}

/* ---- forward and backward ---- */

void sheaf__dora_apply(sheaf__context *c, const sheaf__linear *l, void *y, const float *u,
                       const void *residual, int64_t rows)
{
    const struct sheaf__dora *d = l->lora->dora;
    sheaf__op_finish(c->device, y, u, d->factor, l->bias, residual, rows, d->n, c->dtype);
}

sheaf_status *sheaf__dora_back(sheaf__context *c, const sheaf__linear *l, void *g, const void *dy,
                               const sheaf__value *u, int64_t rows)
{
    const struct sheaf__dora *d = l->lora->dora;
    const sheaf__trained *bias = l->bias_trained;
    const int first = l->rows ? 0 : l->first, count = l->rows ? 1 : l->count;
    float *wide = NULL, *one = NULL;
    sheaf_status *st = alloc_floats(&wide, c, rows * d->n);
    TRY(st, ones(&one, c, rows));
    for (int s = first; s < first + count && st == NULL && bias != NULL; s++)
        sheaf__column_sums(c, bias->grad[s] + l->bias_at[s],
                           sheaf__at(dy, l->rows ? 0 : l->begin[s], c->dtype), d->n, rows,
                           l->rows ? d->n : l->extent[s]);
    if (st == NULL) {
        sheaf__op_convert(c->device, wide, SHEAF_F32, dy, c->dtype, rows * d->n);
        sheaf__op_finish(c->device, g, wide, d->factor, NULL, NULL, rows, d->n, c->dtype);
    }
    if (st == NULL && d->m != NULL) {
        sheaf__op_finish(c->device, wide, wide, d->inverse, NULL, NULL, rows, d->n, SHEAF_F32);
        for (int s = first; s < first + count && st == NULL; s++) {
            const int64_t at = l->rows ? 0 : l->begin[s];
            st = sheaf__sum_shards(
                c,
                &(sheaf__norm_weight){ .dw = d->m->grad[s] + d->m_at[s],
                                       .dy = wide + sheaf__first_row(c, u) * d->n + at,
                                       .x = (const float *)u->data + at,
                                       .rstd = one,
                                       .ld = d->n,
                                       .cols = l->rows ? d->n : l->extent[s],
                                       .dtype = SHEAF_F32 },
                u);
        }
    }
    sheaf__free(c, wide);
    sheaf__free(c, one);
    return st;
}
