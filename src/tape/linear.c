/* linear.c - see linear.h for the formulas; names there are names here.
 *
 * Each function gathers its products as independent jobs and hands them to the matmul op
 * at once: many slices of small products then fill all threads. */
#include "tape/linear.h"

#include <stdlib.h>
#include <string.h>

#include "tape/rows.h"

enum { MAX_JOBS = SHEAF__MAX_TOGETHER * (SHEAF_MAX_SLICES + 1), MAX_TERMS = 2 * MAX_JOBS };

typedef struct columns_params {
    sheaf__linear *linear[SHEAF__MAX_TOGETHER];
    int n;
    const sheaf__step_info *info;
    sheaf__value *x, *y[SHEAF__MAX_TOGETHER];
    sheaf__value *h[SHEAF__MAX_TOGETHER];  /* LoRA's inner value, NULL without */
    sheaf__value *xd[SHEAF__MAX_TOGETHER]; /* x after dropout, NULL without */
} columns_params;

typedef struct rows_params {
    sheaf__linear *linear;
    const sheaf__step_info *info;
    sheaf__value *x, *y, *residual, *h, *xd;
} rows_params;

/* Products in the making. The terms of one job are added right after it was begun. */
typedef struct batch {
    sheaf__product job[MAX_JOBS];
    sheaf__term term[MAX_TERMS];
    int njobs, nterms;
    /* for one job with a tree: slices and where their terms begin */
    int slice_of[SHEAF_MAX_SLICES], first[SHEAF_MAX_SLICES + 1], nslices;
} batch;

static const char *at(const void *data, int64_t element, sheaf_dtype dtype)
{
    return (const char *)data + element * (int64_t)sheaf_dtype_bytes(dtype);
}

static sheaf_status *batch_new(batch **out)
{
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "list of products");
    (*out)->njobs = (*out)->nterms = (*out)->nslices = 0;
    return NULL;
}

/* A plain product y [m, n] = A * B with alpha 1; the caller changes what differs. */
static sheaf__product *begin_job(batch *b, int64_t m, int64_t n, sheaf_dtype dtype, void *y,
                                 int64_t ldy, sheaf_dtype out)
{
    sheaf__product *job = &b->job[b->njobs++];
    *job = (sheaf__product){ .m = m, .n = n, .dtype = dtype, .nslices = 1, .term = &b->term[b->nterms],
                             .y = y, .ldy = ldy, .out = out, .alpha = 1, .round_to = SHEAF_F32 };
    return job;
}

static void add_term(batch *b, sheaf__product *job, sheaf__term term)
{
    b->term[b->nterms++] = term;
    job->nterms++;
}

/* dW += dy^T x for activations stored by token: y [m, n] += a^T b over `tokens`. */
static void weight_gradient(batch *b, float *grad, int64_t m, int64_t n, const void *a, int64_t lda,
                            const void *x, int64_t ldx, int64_t tokens, sheaf_dtype dtype)
{
    if (m == 0 || n == 0)
        return;
    sheaf__product *job = begin_job(b, m, n, dtype, grad, n, SHEAF_F32);
    job->add = true;
    add_term(b, job, (sheaf__term){ .a = a, .lda = lda, .a_km = true, .form = SHEAF__B_KN, .b = x,
                                    .ldb = ldx, .k = tokens });
}

static void run(sheaf__context *c, batch *b)
{
    if (b->njobs > 0)
        sheaf__products(c->device, b->job, b->njobs);
    b->njobs = b->nterms = b->nslices = 0;
}

/* ---- small element-wise helpers over rows ---- */

typedef struct finish_args {
    const sheaf__kernels *k;
    void *y; int64_t ldy;
    const float *sum; int64_t lds;
    float alpha;
    const float *bias;
    const void *residual; int64_t ldr;
    int64_t cols;
    sheaf_dtype dtype;
} finish_args;

static void finish_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const finish_args *f = arg;
    f->k->finish((char *)at(f->y, begin * f->ldy, f->dtype), f->ldy, f->sum + begin * f->lds, f->lds,
                 f->alpha, f->bias, f->residual == NULL ? NULL : at(f->residual, begin * f->ldr, f->dtype),
                 f->ldr, end - begin, f->cols, f->dtype);
}

typedef struct column_args { const sheaf__kernels *k; float *out; const void *x; int64_t ldx, rows; sheaf_dtype dtype; } column_args;
static void column_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const column_args *a = arg;
    a->k->column_sums(a->out + begin, at(a->x, begin, a->dtype), a->ldx, a->rows, end - begin, a->dtype);
}

static void bias_gradient(sheaf__context *c, float *grad, const void *dy, int64_t ld, int64_t rows,
                          int64_t cols, sheaf_dtype dtype)
{
    sheaf__rows(c, cols, 256, column_rows, &(column_args){ c->device->kernels, grad, dy, ld, rows, dtype });
}

typedef struct dropout_args { const sheaf__kernels *k; void *y; const void *x; int64_t cols; sheaf__dropout how; sheaf_dtype dtype; } dropout_args;
static void dropout_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const dropout_args *d = arg;
    sheaf__dropout how = d->how;
    how.sample += begin;
    how.position += begin;
    d->k->dropout((char *)at(d->y, begin * d->cols, d->dtype), at(d->x, begin * d->cols, d->dtype),
                  d->cols, end - begin, d->cols, &how, d->dtype);
}

static void dropout(sheaf__context *c, void *y, const void *x, int64_t rows, int64_t cols,
                    int64_t channel0, const sheaf__lora_part *lora, const sheaf__step_info *info,
                    sheaf_dtype dtype)
{
    dropout_args args = { c->device->kernels, y, x, cols,
        { .seed = info->seed, .purpose = lora->purpose, .step = info->step, .sample = info->sample,
          .position = info->position, .channel0 = channel0,
          .threshold = (uint32_t)(lora->dropout * 4294967296.0), .scale = (float)(1 / (1 - lora->dropout)) },
        dtype };
    sheaf__rows(c, rows, 64, dropout_rows, &args);
}

/* ---- a product whose slices meet in the tree, for this rank alone or with the others ----
 * The job's terms are already in `b`; y in the compute dtype. */
static void begin_tree(batch *b) { b->nslices = 0; }

static void tree_slice(batch *b, int slice)
{
    b->slice_of[b->nslices] = slice;
    b->first[b->nslices++] = b->nterms;
}

static sheaf_status *finish_tree(sheaf__context *c, batch *b, const sheaf_tree *tree, bool whole, int64_t m,
                                 int64_t n, void *y, const float *bias, const void *residual)
{
    int own;
    sheaf_tree_own(tree, c->rank, &own);
    b->first[b->nslices] = b->nterms;
    sheaf__product job = { .m = m, .n = n, .dtype = c->dtype, .nslices = b->nslices, .slice_of = b->slice_of,
                           .first = b->first, .term = b->term, .nterms = b->nterms, .tree = whole ? NULL : tree,
                           .rank = c->rank, .alpha = 1, .out = c->dtype, .round_to = SHEAF_F32 };
    if (c->ranks == 1 || whole) {
        job.y = y;
        job.ldy = n;
        job.bias = bias;
        job.residual = residual;
        job.ldr = n;
        sheaf__products(c->device, &job, 1);
        b->nterms = 0;
        return NULL;
    }
    float *root[SHEAF_MAX_SLICES] = { 0 };
    sheaf_status *st = NULL;
    for (int i = 0; i < (own == 0 ? 1 : own) && st == NULL; i++)
        st = sheaf__take(&root[i], c, (size_t)(m * n) * sizeof(float), SHEAF_MEM_EXCHANGE);
    if (st == NULL) {
        job.roots = root;
        if (own > 0)
            sheaf__products(c->device, &job, 1);
        st = sheaf__sum_roots(c, tree, root, m, n);
    }
    if (st == NULL)
        sheaf__rows(c, m, 16, finish_rows, &(finish_args){ c->device->kernels, y, n, root[0], n, 1, bias,
                                                           residual, n, n, c->dtype });
    for (int i = 0; i < SHEAF_MAX_SLICES; i++)
        sheaf__give(c, root[i]);
    b->nterms = 0;
    return st;
}

/* ---- columns ---- */

static sheaf_status *columns_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const columns_params *p = op->params;
    const int64_t m = p->x->rows, in = p->x->cols;
    batch *b;
    sheaf_status *st = batch_new(&b);
    if (st != NULL)
        return st;
    for (int i = 0; i < p->n; i++) {
        const sheaf__lora_part *lora = p->linear[i]->lora;
        if (lora == NULL)
            continue;
        const void *x = p->x->data;
        if (p->xd[i] != NULL) {
            dropout(c, p->xd[i]->data, x, m, in, 0, lora, p->info, c->dtype);
            x = p->xd[i]->data;
        }
        sheaf__product *job = begin_job(b, m, lora->rank, c->dtype, p->h[i]->data, lora->rank, c->dtype);
        job->alpha = lora->scale;
        add_term(b, job, (sheaf__term){ .a = x, .lda = in, .form = SHEAF__B_NK, .b = lora->a_copy[0],
                                        .ldb = in, .k = in });
    }
    run(c, b);
    for (int i = 0; i < p->n; i++) {
        const sheaf__linear *l = p->linear[i];
        for (int s = l->first; s < l->first + l->count; s++) {
            if (l->extent[s] == 0)
                continue;
            sheaf__product *job = begin_job(b, m, l->extent[s], c->dtype,
                                            (char *)at(p->y[i]->data, l->begin[s], c->dtype), l->owned, c->dtype);
            job->bias = l->bias == NULL ? NULL : l->bias + l->begin[s];
            add_term(b, job, (sheaf__term){ .a = p->x->data, .lda = in, .form = SHEAF__B_AHEAD,
                                            .w = &l->w[s], .k = in });
            if (l->lora != NULL)
                add_term(b, job, (sheaf__term){ .a = p->h[i]->data, .lda = l->lora->rank, .form = SHEAF__B_NK,
                                                .b = l->lora->b_copy[s], .ldb = l->lora->rank, .k = l->lora->rank });
        }
    }
    run(c, b);
    free(b);
    return NULL;
}

/* LoRA's gradients of all layers of one op share one sum over slices: [m, width], the ranks
 * of the layers side by side. */
typedef struct lora_back {
    int64_t width, at[SHEAF__MAX_TOGETHER];
    float *part[SHEAF_MAX_SLICES], *spare; /* by owned slice */
    void *g_slice[SHEAF_MAX_SLICES];       /* g_s, compute dtype */
    void *g;                               /* g */
} lora_back;

static void give_lora(sheaf__context *c, lora_back *l)
{
    for (int i = 0; i < SHEAF_MAX_SLICES; i++) {
        sheaf__give(c, l->part[i]);
        sheaf__give(c, l->g_slice[i]);
    }
    sheaf__give(c, l->spare);
    sheaf__give(c, l->g);
}

static sheaf_status *take_lora(sheaf__context *c, lora_back *l, int count, int64_t m)
{
    const size_t n = (size_t)(m * l->width), half = sheaf_dtype_bytes(c->dtype);
    sheaf_status *st = sheaf__take(&l->g, c, n * half, SHEAF_MEM_SCRATCH);
    for (int i = 0; i < count && st == NULL; i++) {
        st = sheaf__take(&l->part[i], c, n * sizeof(float), SHEAF_MEM_SCRATCH);
        if (st == NULL)
            st = sheaf__take(&l->g_slice[i], c, n * half, SHEAF_MEM_SCRATCH);
    }
    return st == NULL ? sheaf__take(&l->spare, c, n * sizeof(float), SHEAF_MEM_SCRATCH) : st;
}

static void scaled_round(sheaf__context *c, void *dst, const float *src, int64_t rows, int64_t ld,
                         int64_t col, int64_t cols, float scale)
{
    sheaf__rows(c, rows, 256, finish_rows, &(finish_args){ c->device->kernels, (char *)at(dst, col, c->dtype),
                                                          ld, src + col, ld, scale, NULL, NULL, 0, cols, c->dtype });
}

/* g_s and g of every layer with LoRA. */
static sheaf_status *columns_lora_inner(sheaf__context *c, const columns_params *p, lora_back *l, batch *b)
{
    const int64_t m = p->x->rows;
    const sheaf__linear *first = p->linear[0];
    for (int i = 0; i < p->n; i++)
        for (int s = first->first; s < first->first + first->count && p->linear[i]->lora != NULL; s++) {
            const sheaf__linear *layer = p->linear[i];
            if (layer->extent[s] == 0)
                continue;
            sheaf__product *job = begin_job(b, m, layer->lora->rank, c->dtype,
                                            l->part[s - first->first] + l->at[i], l->width, SHEAF_F32);
            add_term(b, job, (sheaf__term){ .a = at(p->y[i]->grad, layer->begin[s], c->dtype), .lda = layer->owned,
                                            .form = SHEAF__B_KN, .b = layer->lora->b_copy[s],
                                            .ldb = layer->lora->rank, .k = layer->extent[s] });
        }
    run(c, b);
    for (int i = 0; i < p->n; i++)
        for (int s = 0; s < first->count && p->linear[i]->lora != NULL; s++)
            if (p->linear[i]->extent[first->first + s] > 0)
                scaled_round(c, l->g_slice[s], l->part[s], m, l->width, l->at[i], p->linear[i]->lora->rank,
                             p->linear[i]->lora->scale);
    float *total;
    sheaf_status *st = sheaf__sum_partials(c, &first->tree, l->part, first->first, l->spare, m, l->width, &total);
    for (int i = 0; i < p->n && st == NULL; i++)
        if (p->linear[i]->lora != NULL)
            scaled_round(c, l->g, total, m, l->width, l->at[i], p->linear[i]->lora->rank, p->linear[i]->lora->scale);
    return st;
}

static void columns_weight_gradients(sheaf__context *c, const columns_params *p, const lora_back *l, batch *b)
{
    const int64_t m = p->x->rows, in = p->x->cols;
    for (int i = 0; i < p->n; i++) {
        const sheaf__linear *layer = p->linear[i];
        const sheaf__lora_part *lora = layer->lora;
        if (lora != NULL && lora->a != NULL)
            weight_gradient(b, lora->a->grad[0] + lora->a_at, lora->rank, in, at(l->g, l->at[i], c->dtype), l->width,
                            p->xd[i] != NULL ? p->xd[i]->data : p->x->data, in, m, c->dtype);
        for (int s = layer->first; s < layer->first + layer->count; s++) {
            const void *dy = at(p->y[i]->grad, layer->begin[s], c->dtype);
            if (lora != NULL && lora->b != NULL)
                weight_gradient(b, lora->b->grad[s] + lora->b_at[s], layer->extent[s], lora->rank, dy, layer->owned,
                                p->h[i]->data, lora->rank, m, c->dtype);
            if (layer->weight_trained != NULL)
                weight_gradient(b, layer->weight_trained->grad[s] + layer->weight_at[s], layer->extent[s], in, dy, layer->owned,
                                p->x->data, in, m, c->dtype);
            if (layer->bias_trained != NULL)
                bias_gradient(c, layer->bias_trained->grad[s] + layer->bias_at[s], dy, layer->owned, m, layer->extent[s], c->dtype);
        }
    }
    run(c, b);
}

static sheaf_status *columns_input_gradient(sheaf__context *c, const columns_params *p, const lora_back *l, batch *b)
{
    const sheaf__linear *first = p->linear[0];
    const int64_t m = p->x->rows, in = p->x->cols;
    begin_tree(b);
    for (int s = first->first; s < first->first + first->count; s++) {
        if (first->extent[s] == 0)
            continue;
        tree_slice(b, s);
        for (int i = 0; i < p->n; i++) {
            const sheaf__linear *layer = p->linear[i];
            b->term[b->nterms++] = (sheaf__term){ .a = at(p->y[i]->grad, layer->begin[s], c->dtype),
                .lda = layer->owned, .form = SHEAF__B_BACK, .w = &layer->w[s], .k = layer->extent[s] };
            if (layer->lora != NULL && p->xd[i] == NULL)
                b->term[b->nterms++] = (sheaf__term){ .a = at(l->g_slice[s - first->first], l->at[i], c->dtype),
                    .lda = l->width, .form = SHEAF__B_KN, .b = layer->lora->a_copy[0], .ldb = in, .k = layer->lora->rank };
        }
    }
    void *dx = p->x->grad, *apart = NULL;
    sheaf_status *st = NULL;
    if (!p->x->grad_fresh) {
        st = sheaf__take(&apart, c, (size_t)(m * in) * sheaf_dtype_bytes(c->dtype), SHEAF_MEM_SCRATCH);
        dx = apart;
    }
    if (st == NULL)
        st = finish_tree(c, b, &first->tree, first->whole, m, in, dx, NULL, NULL);
    if (st == NULL && apart != NULL)
        sheaf__accumulate(c, p->x->grad, apart, m * in, c->dtype);
    sheaf__give(c, apart);
    return st;
}

/* With dropout: dx += dropout(round(g A)), layer after layer. */
static sheaf_status *columns_dropped_gradient(sheaf__context *c, const columns_params *p, const lora_back *l, batch *b)
{
    const int64_t m = p->x->rows, in = p->x->cols;
    for (int i = 0; i < p->n; i++) {
        const sheaf__lora_part *lora = p->linear[i]->lora;
        if (p->xd[i] == NULL)
            continue;
        void *part;
        sheaf_status *st = sheaf__take(&part, c, (size_t)(m * in) * sheaf_dtype_bytes(c->dtype), SHEAF_MEM_SCRATCH);
        if (st != NULL)
            return st;
        sheaf__product *job = begin_job(b, m, in, c->dtype, part, in, c->dtype);
        add_term(b, job, (sheaf__term){ .a = at(l->g, l->at[i], c->dtype), .lda = l->width, .form = SHEAF__B_KN,
                                        .b = lora->a_copy[0], .ldb = in, .k = lora->rank });
        run(c, b);
        dropout(c, part, part, m, in, 0, lora, p->info, c->dtype);
        sheaf__accumulate(c, p->x->grad, part, m * in, c->dtype);
        sheaf__give(c, part);
    }
    return NULL;
}

static sheaf_status *columns_back(sheaf__context *c, const columns_params *p)
{
    lora_back l = { 0 };
    for (int i = 0; i < p->n; i++) {
        l.at[i] = l.width;
        l.width += p->linear[i]->lora == NULL ? 0 : p->linear[i]->lora->rank;
    }
    batch *b;
    sheaf_status *st = batch_new(&b);
    if (st != NULL)
        return st;
    if (l.width > 0) {
        st = take_lora(c, &l, p->linear[0]->count, p->x->rows);
        if (st == NULL)
            st = columns_lora_inner(c, p, &l, b);
    }
    if (st == NULL)
        columns_weight_gradients(c, p, &l, b);
    if (st == NULL && p->x->needs_grad)
        st = columns_input_gradient(c, p, &l, b);
    if (st == NULL && p->x->needs_grad)
        st = columns_dropped_gradient(c, p, &l, b);
    give_lora(c, &l);
    free(b);
    return st;
}

static sheaf_status *columns_backward(sheaf__tape *tape, sheaf__op *op)
{
    return columns_back(sheaf__tape_context(tape), op->params);
}

sheaf_status *sheaf__columns_back(sheaf__context *c, sheaf__value **y, sheaf__value *x,
                                  sheaf__value **h, sheaf__linear *const *linear, int n)
{
    columns_params p = { .n = n, .x = x };
    for (int i = 0; i < n; i++) {
        p.linear[i] = linear[i];
        p.y[i] = y[i];
        p.h[i] = h[i];
    }
    return columns_back(c, &p);
}

bool sheaf__linear_trains(const sheaf__linear *l)
{
    return l->weight_trained != NULL || l->bias_trained != NULL || (l->lora != NULL && l->lora->a != NULL);
}

static bool dropping(const sheaf__linear *l, const sheaf__step_info *info)
{
    return l->lora != NULL && l->lora->dropout > 0 && info != NULL && info->training;
}

void sheaf__record_columns(sheaf__tape *tape, sheaf__value **y, sheaf__value *x,
                           sheaf__linear *const *linear, int n, const sheaf__step_info *info)
{
    sheaf__op *op = sheaf__tape_op(tape, linear[0]->name, columns_forward, NULL, sizeof(columns_params));
    columns_params *p = op->params;
    bool trains = false, keep_x = false;
    *p = (columns_params){ .n = n, .info = info, .x = x };
    for (int i = 0; i < n; i++) {
        const sheaf__linear *l = p->linear[i] = linear[i];
        trains |= sheaf__linear_trains(l);
        keep_x |= l->weight_trained != NULL || (l->lora != NULL && l->lora->a != NULL && !dropping(l, info));
    }
    const bool flows = trains || x->needs_grad;
    sheaf__op_arg(op, x, SHEAF__READ | (flows && keep_x ? SHEAF__KEEP : 0) | (flows ? SHEAF__TAKES : 0));
    for (int i = 0; i < n; i++) {
        const sheaf__linear *l = linear[i];
        y[i] = p->y[i] = sheaf__tape_value(tape, l->name, x->rows, l->owned, x->dtype);
        y[i]->needs_grad = flows;
        sheaf__op_arg(op, y[i], SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
        if (l->lora != NULL) {
            p->h[i] = sheaf__tape_value(tape, "lora inner value", x->rows, l->lora->rank, x->dtype);
            sheaf__op_arg(op, p->h[i], SHEAF__MAKE | (l->lora->b != NULL ? SHEAF__KEEP : 0));
        }
        if (dropping(l, info)) {
            p->xd[i] = sheaf__tape_value(tape, "dropped input", x->rows, x->cols, x->dtype);
            sheaf__op_arg(op, p->xd[i], SHEAF__MAKE | SHEAF__KEEP);
        }
    }
    if (flows)
        op->backward = columns_backward;
}

/* ---- rows ---- */

/* h_s for every owned slice (compute dtype), and h when it is wanted. */
static sheaf_status *rows_lora_inner(sheaf__context *c, const rows_params *p, lora_back *l, batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const int64_t m = p->x->rows;
    const void *x = p->xd != NULL ? p->xd->data : p->x->data;
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (layer->extent[s] == 0)
            continue;
        sheaf__product *job = begin_job(b, m, lora->rank, c->dtype, l->part[s - layer->first], lora->rank, SHEAF_F32);
        add_term(b, job, (sheaf__term){ .a = at(x, layer->begin[s], c->dtype), .lda = layer->owned, .form = SHEAF__B_NK,
                                        .b = lora->a_copy[s], .ldb = layer->extent[s], .k = layer->extent[s] });
    }
    run(c, b);
    for (int s = 0; s < layer->count; s++)
        if (layer->extent[layer->first + s] > 0)
            scaled_round(c, l->g_slice[s], l->part[s], m, lora->rank, 0, lora->rank, lora->scale);
    if (lora->b == NULL)
        return NULL; /* h itself serves only dB */
    float *total;
    sheaf_status *st = sheaf__sum_partials(c, &layer->tree, l->part, layer->first, l->spare, m, lora->rank, &total);
    if (st == NULL)
        scaled_round(c, p->h->data, total, m, lora->rank, 0, lora->rank, lora->scale);
    return st;
}

static sheaf_status *rows_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const rows_params *p = op->params;
    const sheaf__linear *layer = p->linear;
    const int64_t m = p->x->rows;
    lora_back l = { .width = layer->lora == NULL ? 0 : layer->lora->rank };
    batch *b;
    sheaf_status *st = batch_new(&b);
    if (st != NULL)
        return st;
    if (p->xd != NULL)
        dropout(c, p->xd->data, p->x->data, m, layer->owned, layer->logical0, layer->lora, p->info, c->dtype);
    if (layer->lora != NULL) {
        st = take_lora(c, &l, layer->count, m);
        if (st == NULL)
            st = rows_lora_inner(c, p, &l, b);
    }
    begin_tree(b);
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (layer->extent[s] == 0)
            continue;
        tree_slice(b, s);
        b->term[b->nterms++] = (sheaf__term){ .a = at(p->x->data, layer->begin[s], c->dtype), .lda = layer->owned,
                                              .form = SHEAF__B_AHEAD, .w = &layer->w[s], .k = layer->extent[s] };
        if (layer->lora != NULL)
            b->term[b->nterms++] = (sheaf__term){ .a = l.g_slice[s - layer->first], .lda = l.width, .form = SHEAF__B_NK,
                                                  .b = layer->lora->b_copy[0], .ldb = l.width, .k = l.width };
    }
    if (st == NULL)
        st = finish_tree(c, b, &layer->tree, false, m, layer->out, p->y->data, layer->bias,
                         p->residual == NULL ? NULL : p->residual->data);
    give_lora(c, &l);
    free(b);
    return st;
}

static void rows_weight_gradients(sheaf__context *c, const rows_params *p, const void *g, batch *b)
{
    const sheaf__linear *layer = p->linear;
    const sheaf__lora_part *lora = layer->lora;
    const int64_t m = p->x->rows;
    const void *dy = p->y->grad;
    for (int s = layer->first; s < layer->first + layer->count; s++) {
        if (lora != NULL && lora->a != NULL)
            weight_gradient(b, lora->a->grad[s], lora->rank, layer->extent[s], g, lora->rank,
                            at(p->xd != NULL ? p->xd->data : p->x->data, layer->begin[s], c->dtype), layer->owned, m, c->dtype);
        if (layer->weight_trained != NULL)
            weight_gradient(b, layer->weight_trained->grad[s], layer->out, layer->extent[s], dy, layer->out,
                            at(p->x->data, layer->begin[s], c->dtype), layer->owned, m, c->dtype);
    }
    if (lora != NULL && lora->b != NULL)
        weight_gradient(b, lora->b->grad[0], layer->out, lora->rank, dy, layer->out, p->h->data, lora->rank, m, c->dtype);
    run(c, b);
    if (layer->bias_trained != NULL)
        bias_gradient(c, layer->bias_trained->grad[0], dy, layer->out, m, layer->out, c->dtype);
}

static sheaf_status *rows_input_gradient(sheaf__context *c, const rows_params *p, const void *g, batch *b)
{
    const sheaf__linear *layer = p->linear;
    const int64_t m = p->x->rows;
    void *dx = p->x->grad, *apart = NULL;
    const size_t bytes = (size_t)(m * layer->owned) * sheaf_dtype_bytes(c->dtype);
    sheaf_status *st = p->x->grad_fresh ? NULL : sheaf__take(&apart, c, bytes, SHEAF_MEM_SCRATCH);
    if (st != NULL)
        return st;
    if (apart != NULL)
        dx = apart;
    for (int dropped = 0; dropped <= (p->xd != NULL); dropped++) {
        if (dropped) {
            st = apart == NULL ? sheaf__take(&apart, c, bytes, SHEAF_MEM_SCRATCH) : NULL;
            if (st != NULL)
                return st;
            dx = apart;
        }
        for (int s = layer->first; s < layer->first + layer->count; s++) {
            if (layer->extent[s] == 0)
                continue;
            sheaf__product *job = begin_job(b, m, layer->extent[s], c->dtype, (char *)at(dx, layer->begin[s], c->dtype),
                                            layer->owned, c->dtype);
            if (!dropped)
                add_term(b, job, (sheaf__term){ .a = p->y->grad, .lda = layer->out, .form = SHEAF__B_BACK,
                                                .w = &layer->w[s], .k = layer->out });
            if (layer->lora != NULL && dropped == (p->xd != NULL))
                add_term(b, job, (sheaf__term){ .a = g, .lda = layer->lora->rank, .form = SHEAF__B_KN,
                                                .b = layer->lora->a_copy[s], .ldb = layer->extent[s], .k = layer->lora->rank });
        }
        run(c, b);
        if (dropped)
            dropout(c, dx, dx, m, layer->owned, layer->logical0, layer->lora, p->info, c->dtype);
        if (dx != p->x->grad)
            sheaf__accumulate(c, p->x->grad, dx, m * layer->owned, c->dtype);
    }
    sheaf__give(c, apart);
    return NULL;
}

static sheaf_status *rows_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const rows_params *p = op->params;
    const sheaf__lora_part *lora = p->linear->lora;
    const int64_t m = p->y->rows;
    void *g = NULL;
    batch *b;
    sheaf_status *st = batch_new(&b);
    if (st != NULL)
        return st;
    if (lora != NULL) {
        st = sheaf__take(&g, c, (size_t)(m * lora->rank) * sheaf_dtype_bytes(c->dtype), SHEAF_MEM_SCRATCH);
        if (st == NULL) {
            sheaf__product *job = begin_job(b, m, lora->rank, c->dtype, g, lora->rank, c->dtype);
            job->alpha = lora->scale;
            add_term(b, job, (sheaf__term){ .a = p->y->grad, .lda = p->linear->out, .form = SHEAF__B_KN,
                                            .b = lora->b_copy[0], .ldb = lora->rank, .k = p->linear->out });
            run(c, b);
        }
    }
    if (st == NULL)
        rows_weight_gradients(c, p, g, b);
    if (st == NULL && p->x->needs_grad)
        st = rows_input_gradient(c, p, g, b);
    sheaf__give(c, g);
    free(b);
    if (st == NULL && p->residual != NULL && p->residual->needs_grad) {
        if (p->residual->grad_fresh) { /* dy dies here: hand the buffer on instead of copying */
            void *swap = p->residual->grad;
            p->residual->grad = p->y->grad;
            p->y->grad = swap;
        } else {
            sheaf__accumulate(c, p->residual->grad, p->y->grad, m * p->y->cols, c->dtype);
        }
    }
    return st;
}

sheaf__value *sheaf__record_rows(sheaf__tape *tape, sheaf__value *x, sheaf__linear *linear,
                                 sheaf__value *residual, const sheaf__step_info *info)
{
    sheaf__op *op = sheaf__tape_op(tape, linear->name, rows_forward, NULL, sizeof(rows_params));
    rows_params *p = op->params;
    *p = (rows_params){ .linear = linear, .info = info, .x = x, .residual = residual };
    const bool trains = sheaf__linear_trains(linear), drops = dropping(linear, info);
    const bool flows = trains || x->needs_grad || (residual != NULL && residual->needs_grad);
    const bool keep_x = linear->weight_trained != NULL || (linear->lora != NULL && linear->lora->a != NULL && !drops);
    p->y = sheaf__tape_value(tape, linear->name, x->rows, linear->out, x->dtype);
    p->y->needs_grad = flows;
    sheaf__op_arg(op, x, SHEAF__READ | (flows ? SHEAF__TAKES : 0) | (flows && keep_x ? SHEAF__KEEP : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    if (linear->lora != NULL && linear->lora->b != NULL) {
        p->h = sheaf__tape_value(tape, "lora inner value", x->rows, linear->lora->rank, x->dtype);
        sheaf__op_arg(op, p->h, SHEAF__MAKE | SHEAF__KEEP);
    }
    if (drops) {
        p->xd = sheaf__tape_value(tape, "dropped input", x->rows, x->cols, x->dtype);
        sheaf__op_arg(op, p->xd, SHEAF__MAKE | SHEAF__KEEP);
    }
    if (flows)
        op->backward = rows_backward;
    return p->y;
}

/* ---- compute copies ---- */

typedef struct repack { sheaf__packed *w; const float *master; } repack;
static void repack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const repack *r = arg;
    const int64_t row = begin * 32, last = end * 32 < r->w->n ? end * 32 : r->w->n;
    sheaf__pack(r->w, r->master + row * r->w->k, SHEAF_F32, r->w->k, row, last - row);
}

static void copy_of(sheaf__context *c, void *dst, const float *master, int64_t n)
{
    if (c->device->kind != SHEAF_DRY)
        c->device->kernels->round(dst, c->dtype, master, n);
}

void sheaf__linear_refresh(sheaf__context *c, sheaf__linear *l)
{
    const sheaf__trained *w = l->weight_trained, *bias = l->bias_trained;
    for (int s = l->first; s < l->first + l->count; s++) {
        if (w != NULL)
            sheaf__rows(c, (l->w[s].n + 31) / 32, 1, repack_rows, &(repack){ &l->w[s], w->master[s] + l->weight_at[s] });
        if (bias != NULL && !l->rows)
            sheaf__refresh(c, l->bias + l->begin[s], bias->master[s] + l->bias_at[s], l->extent[s]);
    }
    if (bias != NULL && l->rows)
        sheaf__refresh(c, l->bias, bias->master[0], l->out);
    const sheaf__lora_part *lora = l->lora;
    for (int s = 0; lora != NULL && s < SHEAF_MAX_SLICES; s++) {
        if (lora->a != NULL && lora->a_copy[s] != NULL)
            copy_of(c, lora->a_copy[s], lora->a->master[s] + lora->a_at, lora->a_numel[s]);
        if (lora->b != NULL && lora->b_copy[s] != NULL)
            copy_of(c, lora->b_copy[s], lora->b->master[s] + lora->b_at[s], lora->b_numel[s]);
    }
}
