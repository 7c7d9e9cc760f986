/* linear.c - what layers cut along their output (linear_columns.c) and along their input
 * (linear_rows.c) have in common, and the compute copies of both; see linear.h for the formulas:
 * names there are names here. */
#include "base/base.h"
#include "tape/linear_inner.h"

#include "tape/rows.h"

sheaf_status *sheaf__batch_new(sheaf__batch **out, const sheaf__context *c)
{
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return sheaf__no_memory("list of products");
    (*out)->dtype = c->dtype;
    (*out)->njobs = (*out)->nterms = (*out)->nslices = (*out)->nowned = 0;
    return NULL;
}

sheaf__product *sheaf__batch_job(sheaf__batch *b, int64_t m, int64_t n, void *y, int64_t ldy,
                                 sheaf_dtype out, sheaf__term term)
{
    sheaf__product *job = &b->job[b->njobs++];
    *job = (sheaf__product){ .m = m,
                             .n = n,
                             .dtype = b->dtype,
                             .nslices = 1,
                             .term = &b->term[b->nterms],
                             .y = y,
                             .ldy = ldy,
                             .out = out,
                             .alpha = 1,
                             .round_to = SHEAF_F32 };
    sheaf__batch_term(b, job, term);
    return job;
}

void sheaf__batch_term(sheaf__batch *b, sheaf__product *job, sheaf__term term)
{
    b->term[b->nterms++] = term;
    job->nterms++;
}

sheaf_status *sheaf__batch_weight_gradient(sheaf__batch *b, float *grad, int64_t m, int64_t n,
                                           const void *a, int64_t lda, const void *x, int64_t ldx,
                                           const sheaf__value *rows)
{
    const sheaf__row_blocks *of = rows->blocks;
    if (m == 0 || n == 0)
        return NULL;
    const sheaf__term whole = { .a = a,
                                .lda = lda,
                                .a_km = true,
                                .form = SHEAF__B_KN,
                                .b = x,
                                .ldb = ldx,
                                .k = sheaf__rows_present(rows) };
    sheaf__product *job = sheaf__batch_job(b, m, n, grad, n, SHEAF_F32, whole);
    job->add = true;
    if (of == NULL || of->n == 0)
        return NULL;
    /* A term for each block of all rows that some of these rows are of. */
    sheaf__term *term = malloc((size_t)of->n * sizeof *term);
    if (term == NULL)
        return sheaf__no_memory("list of products");
    for (int64_t i = 0; i < of->n; i++) {
        term[i] = whole;
        term[i].a = sheaf__at(a, of->begin[i] * lda, b->dtype);
        term[i].b = sheaf__at(x, of->begin[i] * ldx, b->dtype);
        term[i].k = of->begin[i + 1] - of->begin[i];
        term[i].apart = true;
    }
    b->owned[b->nowned++] = term;
    job->term = term;
    job->nterms = (int)of->n;
    return NULL;
}

static void free_terms(sheaf__batch *b)
{
    while (b->nowned > 0)
        free(b->owned[--b->nowned]);
}

void sheaf__batch_free(sheaf__batch *b)
{
    if (b != NULL)
        free_terms(b);
    free(b);
}

void sheaf__batch_run(sheaf__context *c, sheaf__batch *b)
{
    if (b->njobs > 0)
        sheaf__products(c->device, b->job, b->njobs);
    b->njobs = b->nterms = b->nslices = 0;
    free_terms(b);
}

void sheaf__lora_drop(sheaf__context *c, void *y, const void *x, int64_t rows, int64_t cols,
                      int64_t channel0, const sheaf__lora_part *lora, const sheaf__step_info *info,
                      sheaf_dtype dtype)
{
    const sheaf__dropout how = { .seed = info->seed,
                                 .purpose = lora->purpose,
                                 .step = info->step,
                                 .sample = info->sample,
                                 .position = info->position,
                                 .channel0 = channel0,
                                 .threshold = (uint32_t)(lora->dropout * 4294967296.0),
                                 .scale = (float)(1 / (1 - lora->dropout)) };
    sheaf__op_dropout(c->device, y, x, rows, cols, &how, dtype);
}

/* ---- a product whose slices meet in the tree, for this rank alone or with the others ---- */

void sheaf__batch_begin_tree(sheaf__batch *b)
{
    b->nslices = 0;
}

void sheaf__batch_slice(sheaf__batch *b, int slice)
{
    b->slice_of[b->nslices] = slice;
    b->first[b->nslices++] = b->nterms;
}

/* The next m rows of a job, whose terms then begin behind them; root: of these rows. */
static void run_rows(sheaf__context *c, sheaf__batch *b, const sheaf__product *job,
                     float *const *root, int64_t m)
{
    sheaf__product part = *job;
    part.m = m;
    part.roots = root;
    sheaf__products(c->device, &part, 1);
    for (int t = 0; t < b->nterms; t++)
        b->term[t].a = sheaf__at(b->term[t].a, m * b->term[t].lda, job->dtype);
}

/* Of a product that is exchanged while the next one runs; with quantised weights, whose values each
 * part makes again, fewer. */
enum { PARTS = 4, PARTS_OF_CODES = 2, LEAST_ROWS = 256 };

static int64_t most_parts(const sheaf__product *job)
{
    for (int t = 0; t < job->nterms; t++)
        if (job->term[t].w != NULL && job->term[t].w->quantised)
            return PARTS_OF_CODES;
    return PARTS;
}

/* The roots of each part are exchanged while the next part is computed, where that can be, and
 * where each part has as many rows of one rank as of another. */
static sheaf_status *sum_job(sheaf__context *c, sheaf__batch *b, const sheaf__product *job, int own,
                             float *const *root, const sheaf__row_shards *shards)
{
    const int64_t m = job->m,
                  most = shards == NULL && sheaf__exchanges_beside(c) && m >= 2 * LEAST_ROWS
                             ? m / LEAST_ROWS
                             : 1,
                  limit = most_parts(job), parts = most < limit ? most : limit;
    float *made[2][SHEAF_MAX_SLICES]; /* of the part that is computed, and of the one before */
    sheaf_status *st = NULL;
    for (int64_t p = 0; p <= parts && st == NULL; p++) {
        const int64_t begin = m * p / parts, before = p == 0 ? 0 : m * (p - 1) / parts;
        for (int i = 0; i < (own == 0 ? 1 : own); i++)
            made[p % 2][i] = root[i] + begin * job->n;
        if (p < parts && own > 0)
            run_rows(c, b, job, made[p % 2], m * (p + 1) / parts - begin);
        if (p < parts && parts > 1)
            sheaf__exchange_mark(c);
        if (p > 0)
            st = sheaf__sum_among(c, c->comm, job->tree, made[1 - p % 2], begin - before, job->n,
                                  shards == NULL ? NULL : shards->first);
    }
    return st;
}

sheaf_status *sheaf__batch_finish_tree(sheaf__context *c, sheaf__batch *b, const sheaf_tree *tree,
                                       bool whole, int64_t m, int64_t n, void *y, sheaf_dtype out,
                                       const float *bias, const void *residual,
                                       const sheaf__row_shards *shards, float *const *roots)
{
    int own;
    sheaf_tree_own(tree, c->rank, &own);
    b->first[b->nslices] = b->nterms;
    sheaf__product job = { .m = m,
                           .n = n,
                           .dtype = c->dtype,
                           .nslices = b->nslices,
                           .slice_of = b->slice_of,
                           .first = b->first,
                           .term = b->term,
                           .nterms = b->nterms,
                           .tree = whole ? NULL : tree,
                           .rank = c->rank,
                           .alpha = 1,
                           .out = out,
                           .round_to = SHEAF_F32 };
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
    if (roots != NULL) {
        if (own > 0)
            run_rows(c, b, &job, roots, m);
        b->nterms = 0;
        return NULL;
    }
    float *root[SHEAF_MAX_SLICES] = { 0 };
    sheaf_status *st = NULL;
    for (int i = 0; i < (own == 0 ? 1 : own) && st == NULL; i++)
        st = sheaf__alloc(&root[i], c, (size_t)(m * n) * sizeof(float), SHEAF_MEM_EXCHANGE);
    const int64_t first = shards == NULL ? 0 : shards->first[c->rank],
                  end = shards == NULL ? m : shards->first[c->rank + 1];
    TRY(st, sum_job(c, b, &job, own, root, shards));
    if (st == NULL)
        sheaf__op_finish(c->device, y, root[0] + first * n, NULL, bias, residual, end - first, n,
                         out);
    for (int i = 0; i < SHEAF_MAX_SLICES; i++)
        sheaf__free(c, root[i]);
    b->nterms = 0;
    return st;
}

/* ---- LoRA's inner values ---- */

void sheaf__lora_back_free(sheaf__context *c, sheaf__lora_back *l)
{
    for (int i = 0; i < SHEAF_MAX_SLICES; i++)
        sheaf__free(c, l->part[i]);
    sheaf__free(c, l->spare);
    sheaf__free(c, l->g);
}

sheaf_status *sheaf__lora_back_alloc(sheaf__context *c, sheaf__lora_back *l, int count, int64_t m)
{
    const size_t n = (size_t)(m * l->width), half = sheaf_dtype_bytes(c->dtype);
    sheaf_status *st = sheaf__alloc(&l->g, c, n * half, SHEAF_MEM_SCRATCH);
    for (int i = 0; i < count && st == NULL; i++)
        st = sheaf__alloc(&l->part[i], c, n * sizeof(float), SHEAF_MEM_SCRATCH);
    return st == NULL ? sheaf__alloc(&l->spare, c, n * sizeof(float), SHEAF_MEM_SCRATCH) : st;
}

int sheaf__lora_slice(const sheaf__linear *l)
{
    int lowest = 0;
    while (!l->whole && !l->tree.present[lowest])
        lowest++;
    return lowest;
}

void sheaf__scaled_round(sheaf__context *c, void *dst, const float *src, int64_t rows, int64_t ld,
                         int64_t col, int64_t cols, float scale)
{
    sheaf__op_scale_round(c->device, sheaf__at(dst, col, c->dtype), src + col, scale, rows, ld,
                          cols, c->dtype);
}

bool sheaf__linear_trains(const sheaf__linear *l)
{
    return l->weight_trained != NULL || l->bias_trained != NULL ||
           (l->lora != NULL && l->lora->a != NULL);
}

bool sheaf__linear_trains_dora(const sheaf__linear *l)
{
    const struct sheaf__dora *d = sheaf__dora_of(l);
    return d != NULL && d->m != NULL;
}

bool sheaf__linear_drops(const sheaf__linear *l, const sheaf__step_info *info)
{
    return l->lora != NULL && l->lora->dropout > 0 && info != NULL && info->training;
}

/* ---- weights that are away ---- */

/* The slices of rows lie one after the other. */
static size_t bytes_of_slice(const sheaf__packed *w)
{
    return w->n > 0 && w->k > 0 ? sheaf__device_needs(sheaf__packed_size(w)) : 0;
}

size_t sheaf__linear_bytes(const sheaf__linear *l)
{
    size_t bytes = l->rows ? 0 : bytes_of_slice(&l->all);
    for (int s = l->first; s < l->first + l->count && l->rows; s++)
        bytes += bytes_of_slice(&l->w[s]);
    return bytes;
}

static void place(sheaf__away *away, void *at)
{
    sheaf__linear *l = (sheaf__linear *)((char *)away - offsetof(sheaf__linear, away));
    char *next = at;
    l->all.ahead = l->rows ? NULL : at;
    for (int s = l->first; s < l->first + l->count; s++) {
        l->w[s].ahead = next;
        if (l->rows && at != NULL)
            next += bytes_of_slice(&l->w[s]);
    }
}

void sheaf__linear_away(sheaf__linear *l, int64_t block)
{
    l->away = (sheaf__away){ block, place };
}

/* ---- compute copies ---- */

void sheaf__linear_refresh(sheaf__context *c, sheaf__linear *l)
{
    const sheaf__trained *w = l->weight_trained, *bias = l->bias_trained;
    for (int s = l->first; s < l->first + l->count; s++) {
        if (w != NULL)
            sheaf__weight_refresh(c->device, &l->w[s], w->weight[s] + l->weight_at[s]);
        if (bias != NULL && !l->rows)
            sheaf__refresh(c, l->bias + l->begin[s], bias->weight[s] + l->bias_at[s], l->extent[s],
                           false);
    }
    if (bias != NULL && l->rows)
        sheaf__refresh(c, l->bias, bias->weight[0], l->out, false);
    sheaf__lora_refresh(c, l->lora);
}

void sheaf__lora_refresh(sheaf__context *c, sheaf__lora_part *lora)
{
    sheaf__conversion list[2 * SHEAF_MAX_SLICES] = { { 0 } },
                               magnitudes[SHEAF_MAX_SLICES] = { { 0 } };
    int count = 0, m = 0;
    struct sheaf__dora *dora = lora == NULL ? NULL : lora->dora;
    for (int s = 0; lora != NULL && s < SHEAF_MAX_SLICES; s++) {
        if (lora->a != NULL && lora->a_copy[s] != NULL && lora->first == NULL)
            list[count++] = (sheaf__conversion){ lora->a_copy[s], lora->a->weight[s] + lora->a_at,
                                                 lora->a_numel[s] };
        if (lora->b != NULL && lora->b_copy[s] != NULL)
            list[count++] =
                (sheaf__conversion){ lora->b_copy[s], lora->b->weight[s] + lora->b_at[s],
                                     lora->b_numel[s] };
        if (dora != NULL && dora->m != NULL && lora->m_copy[s] != NULL)
            magnitudes[m++] =
                (sheaf__conversion){ lora->m_copy[s], dora->m->weight[s] + dora->m_at[s],
                                     lora->b_numel[s] / lora->rank };
    }
    sheaf__op_convert_list(c->device, c->dtype, SHEAF_F32, list, count);
    sheaf__op_convert_list(c->device, SHEAF_F32, SHEAF_F32, magnitudes, m);
    if (dora != NULL)
        dora->stale = true;
}
