/* embedding.c - rows of a vocabulary table by token, and LoRA on it as PEFT has it: A [rank, vocab]
 * is looked up, B [width, rank] is a product.
 *
 *   h = round(scale * A[:, id]),  y = round(round(h B^T) + x),  x the table's row of id
 *   g = round(scale * dy B),  dB = dy^T h,  dA[:, id] += g, tokens ascending
 *
 * A is cut as the table is, by tokens: h is a selection, like x, and no sum. PEFT drops nothing
 * here. */
#include "tape/layers.h"

#include <math.h>

#include "base/base.h"
#include "base/lowest.h"
#include "base/random.h"
#include "tape/linear_inner.h"
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

/* ---- a selection ---- */

typedef struct lookup {
    sheaf__context *c;
    const sheaf__table *table;
    const sheaf__rows_in *in;
    sheaf__value *to;
    int32_t *owner;
    /* Writes row r of `to`: row `id` of the table, which is row `inside` of its slice. */
    sheaf_status *(*row)(const struct lookup *l, int64_t r, int64_t id, int slice, int64_t inside,
                         int worker);
    sheaf__lowest failed;
    int64_t row0;  /* first row of table->rows */
    const void *g; /* backward, of LoRA */
} lookup;

static void look_up(void *arg, int64_t begin, int64_t end, int worker)
{
    lookup *l = arg;
    sheaf_status *st = NULL;
    for (int64_t r = begin; r < end && st == NULL; r++) {
        const int64_t id = l->in->host.ids[r];
        const int slice = sheaf__cut_slice_of(&l->table->cut, id);
        l->owner[r] = sheaf_owner_rank(l->c->slices, l->c->ranks, slice);
        if (l->owner[r] == l->c->rank)
            st = l->row(l, r, id, slice, id - slice_rows(&l->table->cut, slice).begin, worker);
        if (st != NULL)
            sheaf__lowest_note(&l->failed, r, st);
    }
}

/* On dry, of rows that are not known, many are counted as one: a planner may plan any
 * number. */
static sheaf_status *select_rows(lookup *l)
{
    enum { PARTS = 1 << 16 };
    sheaf__context *c = l->c;
    const bool dry = c->device->class->counts;
    int64_t n = l->to->rows;
    size_t row_bytes = (size_t)l->to->cols * sheaf_dtype_bytes(c->dtype);
    if (dry && c->comm == NULL)
        return NULL;
    if (dry && l->in->host.ids == NULL &&
        n > PARTS) { /* even shares: a part stands for many rows */
        row_bytes = (size_t)((double)row_bytes * (double)n / PARTS);
        n = PARTS;
    }
    l->owner = malloc((size_t)n * sizeof *l->owner + 1);
    if (l->owner == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "owners of %lld rows", (long long)n);
    if (dry)
        sheaf__owners(c, l->owner, &l->table->cut, l->in->host.ids, n);
    sheaf__lowest_begin(&l->failed);
    sheaf__rows(c, n, 32, look_up, l);
    sheaf_status *st = sheaf__lowest_end(&l->failed);
    if (c->comm != NULL)
        TRY(st, sheaf_comm_select(c->comm, l->to->data, row_bytes, n, l->owner));
    free(l->owner);
    return st;
}

/* Where the gradient of row r's token goes: row `inside` of `slice`; false: to no slice of this
 * rank. */
static bool takes_gradient(const lookup *l, int64_t r, int *slice, int64_t *inside)
{
    const int64_t id = l->in->host.ids[r];
    *slice = sheaf__cut_slice_of(&l->table->cut, id);
    *inside = id - slice_rows(&l->table->cut, *slice).begin;
    return *slice >= l->c->own.begin && *slice < l->c->own.end && id != l->table->padding - 1;
}

/* ---- the table ---- */

typedef struct embedding_params {
    const sheaf__table *table;
    const sheaf__rows_in *in;
    sheaf__value *x, *h, *y; /* h, y: of LoRA */
} embedding_params;

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

static sheaf_status *table_row(const lookup *l, int64_t r, int64_t id, int slice, int64_t inside,
                               int worker)
{
    const sheaf__table *t = l->table;
    sheaf__context *c = l->c;
    char *x = sheaf__at(l->to->data, r * t->width, c->dtype);
    if (t->trained != NULL && t->rows == NULL && !t->panels)
        c->device->kernels->round(x, c->dtype, t->trained->master[slice] + inside * t->width,
                                  t->width);
    else if (t->packed != NULL)
        packed_row(c, x, &t->packed[slice], inside);
    else if (t->stored.print != NULL)
        return sheaf__stored_row(x, c, &t->stored, id, c->device->scratch[worker]);
    else
        memcpy(x, sheaf__at(t->rows, (id - l->row0) * t->width, c->dtype),
               (size_t)t->width * sheaf_dtype_bytes(c->dtype));
    return NULL;
}

static lookup lookup_of(sheaf__tape *tape, const embedding_params *p, sheaf__value *to)
{
    return (lookup){ .c = sheaf__tape_context(tape), .table = p->table, .in = p->in, .to = to };
}

static sheaf_status *embedding_forward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    lookup l = lookup_of(tape, p, p->x);
    l.row = table_row;
    l.row0 = slice_rows(&p->table->cut, (int)l.c->own.begin).begin;
    return select_rows(&l);
}

void sheaf__table_refresh(sheaf__context *c, const sheaf__table *t)
{
    for (int64_t s = c->own.begin, at = 0; s < c->own.end && t->rows != NULL; s++) {
        const int64_t n = t->trained == NULL ? 0 : t->trained->numel[s];
        if (n > 0)
            sheaf__convert(c, sheaf__at(t->rows, at, c->dtype), c->dtype, t->trained->weight[s],
                           SHEAF_F32, n);
        at += n;
    }
    sheaf__lora_refresh(c, t->lora);
}

/* Each table row receives its tokens in ascending order; threads share columns. */
static void scatter(void *arg, int64_t begin, int64_t end, int worker)
{
    const lookup *l = arg;
    const int64_t width = l->table->width;
    sheaf__context *c = l->c;
    float part[256];
    for (int64_t r = 0, inside; r < l->to->rows; r++) {
        int slice;
        if (!takes_gradient(l, r, &slice, &inside))
            continue;
        float *grad = l->table->trained->grad[slice] + inside * width;
        for (int64_t col = begin; col < end; col += 256) {
            const int64_t n = end - col < 256 ? end - col : 256;
            c->device->kernels->widen(part, sheaf__at(l->to->grad, r * width + col, c->dtype),
                                      c->dtype, n);
            c->device->kernels->add(grad + col, grad + col, part, n);
        }
    }
}

static sheaf_status *embedding_backward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    lookup l = lookup_of(tape, p, p->x);
    sheaf__rows(l.c, p->table->width, 256, scatter, &l);
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
    *(embedding_params *)op->params = (embedding_params){ .table = table, .in = in, .x = x };
    return sheaf__op_makes(op, x, NULL, 0);
}

/* ---- LoRA ---- */

static int64_t rows_of(const lookup *l, int slice)
{
    const sheaf_range rows = slice_rows(&l->table->cut, slice);
    return rows.end - rows.begin;
}

static sheaf_status *inner_row(const lookup *l, int64_t r, int64_t id, int slice, int64_t inside,
                               int worker)
{
    const sheaf__lora_part *lora = l->table->lora;
    const sheaf__kernels *k = l->c->device->kernels;
    const sheaf_dtype t = l->c->dtype;
    for (int64_t j = 0; j < lora->rank; j++) {
        float v;
        k->widen(&v, sheaf__at(lora->a_copy[slice], j * rows_of(l, slice) + inside, t), t, 1);
        v *= lora->scale;
        k->round(sheaf__at(l->to->data, r * lora->rank + j, t), t, &v, 1);
    }
    return NULL;
}

static sheaf_status *lora_forward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t width = p->table->width;
    lookup l = lookup_of(tape, p, p->h);
    sheaf__batch *b = NULL;
    l.row = inner_row;
    sheaf_status *st = select_rows(&l);
    TRY(st, sheaf__batch_new(&b, l.c));
    if (st != NULL)
        return st;
    sheaf__product *job = sheaf__batch_job(b, p->x->rows, width, p->y->data, width, l.c->dtype,
                                           sheaf__term_of(p->h->data, lora->rank, SHEAF__B_NK,
                                                          lora->b_copy[0], lora->rank, lora->rank));
    job->residual = p->x->data;
    job->ldr = width;
    sheaf__batch_run(l.c, b);
    sheaf__batch_free(b);
    return NULL;
}

/* Threads share the rows of A; each column receives its tokens in ascending order. */
static void scatter_inner(void *arg, int64_t begin, int64_t end, int worker)
{
    const lookup *l = arg;
    const sheaf__lora_part *lora = l->table->lora;
    const sheaf__kernels *k = l->c->device->kernels;
    const sheaf_dtype t = l->c->dtype;
    for (int64_t r = 0, inside; r < l->to->rows; r++) {
        int slice;
        if (!takes_gradient(l, r, &slice, &inside))
            continue;
        for (int64_t j = begin; j < end; j++) {
            float v, *grad = lora->a->grad[slice] + j * rows_of(l, slice) + inside;
            k->widen(&v, sheaf__at(l->g, r * lora->rank + j, t), t, 1);
            k->add(grad, grad, &v, 1);
        }
    }
}

static sheaf_status *lora_backward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    lookup l = lookup_of(tape, p, p->h);
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t rows = p->x->rows, width = p->table->width;
    sheaf__batch *b;
    void *g = NULL;
    sheaf_status *st = sheaf__batch_new(&b, l.c);
    if (st != NULL)
        return st;
    st = sheaf__alloc_scratch(&g, l.c, rows * lora->rank);
    if (st == NULL) {
        sheaf__batch_job(
            b, rows, lora->rank, g, lora->rank, l.c->dtype,
            sheaf__term_of(p->y->grad, width, SHEAF__B_KN, lora->b_copy[0], lora->rank, width))
            ->alpha = lora->scale;
        st = sheaf__batch_weight_gradient(b, lora->b->grad[0], width, lora->rank, p->y->grad, width,
                                          p->h->data, lora->rank, p->x);
    }
    if (st == NULL) {
        sheaf__batch_run(l.c, b);
        l.g = g;
        sheaf__rows(l.c, lora->rank, 1, scatter_inner, &l);
    }
    sheaf__free(l.c, g);
    sheaf__batch_free(b);
    if (st == NULL)
        sheaf__pass_gradient(l.c, p->x, p->y);
    return st;
}

sheaf__value *sheaf__record_embedding_lora(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__table *table, const sheaf__rows_in *in)
{
    sheaf__op *op =
        sheaf__tape_op(tape, table->name, lora_forward,
                       table->lora->a != NULL ? lora_backward : NULL, sizeof(embedding_params));
    embedding_params *p = op->params;
    *p = (embedding_params){
        table, in, x, sheaf__tape_like(tape, x, "lora inner value", table->lora->rank, x->dtype),
        sheaf__tape_like(tape, x, table->name, x->cols, x->dtype)
    };
    sheaf__op_makes(op, p->y, x, 0);
    sheaf__op_arg(op, p->h, SHEAF__MAKE | SHEAF__KEEP);
    return p->y;
}

/* ---- noise on the rows ---- */

typedef struct noise_params {
    const sheaf__noise_in *in;
    sheaf__value *x;
} noise_params;

static void noise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const noise_params *p = a->params;
    const sheaf__step_info *info = p->in->info;
    const sheaf__noise how = { .seed = info->seed,
                               .purpose = sheaf__name_key("neftune"),
                               .step = info->step,
                               .sample = info->sample + begin,
                               .position = info->position + begin,
                               .half = p->in->half + begin };
    a->c->device->kernels->noise(sheaf__at(p->x->data, begin * p->x->cols, p->x->dtype), p->x->cols,
                                 end - begin, p->x->cols, &how, p->x->dtype);
}

void sheaf__record_noise(sheaf__tape *tape, sheaf__value *x, const sheaf__noise_in *in)
{
    sheaf__op *op = sheaf__tape_each(tape, "noise on the embedding", sizeof(noise_params), x, 32,
                                     noise_rows, NULL);
    *(noise_params *)op->params = (noise_params){ in, x };
    sheaf__op_arg(op, x, SHEAF__CHANGE);
}

float sheaf__noise_half(double alpha, int64_t tokens, int64_t width)
{
    return tokens <= 0 ? 0 : (float)(alpha / sqrt((double)tokens * (double)width));
}
