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

static int slice_of(const sheaf_cut *cut, int64_t row)
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
        owner[i] = known == NULL  ? (int32_t)(i * c->ranks / n)
                   : known[i] < 0 ? 0
                                  : sheaf_owner_rank(c->slices, c->ranks, slice_of(cut, known[i]));
}

/* ---- rows by token ---- */

typedef struct embedding_params {
    const sheaf__table *table;
    const sheaf__rows_in *in;
    sheaf__value *x, *h, *y; /* h, y: of LoRA */
} embedding_params;

/* The rows of the owned slices. */
static sheaf__pieces pieces_of(const sheaf__context *c, const sheaf__table *table)
{
    sheaf__pieces p = { .count = (int)(c->own.end - c->own.begin) };
    for (int i = 0; i < p.count; i++) {
        const sheaf_range rows = slice_rows(&table->cut, (int)c->own.begin + i);
        p.begin[i] = rows.begin;
        p.begin[i + 1] = rows.end;
    }
    return p;
}

static sheaf__tokens tokens_of(const embedding_params *p)
{
    return (sheaf__tokens){ p->in->ids, p->x->rows, p->table->padding - 1 };
}

/* Each rank has made the rows of its tokens: all get them. Of a plan that does not know them, many
 * are counted as one, as there may be any number. */
static sheaf_status *select_rows(const sheaf__context *c, const embedding_params *p,
                                 const sheaf__value *to)
{
    enum { PARTS = 1 << 16 };
    const int32_t *ids = p->in->host.ids;
    int64_t n = to->rows;
    size_t row_bytes = (size_t)to->cols * sheaf_dtype_bytes(c->dtype);
    if (c->comm == NULL)
        return NULL;
    if (ids == NULL && n > PARTS) { /* even shares: a part stands for many rows */
        row_bytes = (size_t)((double)row_bytes * (double)n / PARTS);
        n = PARTS;
    }
    int32_t *owner = malloc((size_t)n * sizeof *owner + 1);
    if (owner == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "owners of %lld rows", (long long)n);
    sheaf__owners(c, owner, &p->table->cut, ids, n);
    sheaf_status *st = sheaf__select_among(c, c->comm, to->data, row_bytes, n, owner);
    free(owner);
    return st;
}

/* ---- the table ---- */

/* Rows read from the model's files, to the host's x. */
typedef struct reading {
    const sheaf__context *c;
    const sheaf__table *table;
    const int32_t *ids;
    void *x;
    sheaf__lowest failed;
} reading;

static void read_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    reading *a = arg;
    const sheaf__context *c = a->c;
    sheaf_status *st = NULL;
    for (int64_t r = begin; r < end && st == NULL; r++) {
        st = sheaf__stored_row(sheaf__at(a->x, r * a->table->width, c->dtype), c, &a->table->stored,
                               a->ids[r], c->device->scratch[worker]);
        if (st != NULL)
            sheaf__lowest_note(&a->failed, r, st);
    }
}

static sheaf_status *stored_rows(const sheaf__context *c, const embedding_params *p)
{
    const size_t bytes = (size_t)(p->x->rows * p->x->cols) * sheaf_dtype_bytes(c->dtype);
    reading a = { .c = c, .table = p->table, .ids = p->in->host.ids };
    sheaf_status *st = sheaf__borrow(&a.x, c->device, p->x->data, bytes, false);
    if (a.x != NULL) {
        sheaf__lowest_begin(&a.failed);
        sheaf__pool_rows(c->device->pool, p->x->rows, 32, read_rows, &a);
        st = sheaf__lowest_end(&a.failed);
    }
    return sheaf__first_of(st, sheaf__return(a.x, c->device, p->x->data, bytes, st == NULL));
}

static sheaf_status *embedding_forward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    const sheaf__table *t = p->table;
    const sheaf__context *c = sheaf__tape_context(tape);
    const sheaf__tokens tokens = tokens_of(p);
    sheaf__pieces pieces = pieces_of(c, t);
    if (t->stored.print != NULL) /* every rank reads all of them */
        return stored_rows(c, p);
    if (t->trained != NULL && t->rows == NULL && !t->panels) {
        for (int i = 0; i < pieces.count; i++)
            pieces.at[i] = t->trained->master[c->own.begin + i];
        sheaf__op_table_rows(c->device, p->x->data, c->dtype, &pieces, SHEAF_F32, t->width, tokens);
    } else if (t->packed != NULL) {
        sheaf__op_packed_rows(c->device, p->x->data, c->dtype, t->packed + c->own.begin, &pieces,
                              tokens);
    } else {
        const sheaf__pieces whole = { 1,
                                      { pieces.begin[0], pieces.begin[pieces.count] },
                                      { t->rows } };
        sheaf__op_table_rows(c->device, p->x->data, c->dtype, &whole, c->dtype, t->width, tokens);
    }
    return select_rows(c, p, p->x);
}

void sheaf__table_refresh(sheaf__context *c, const sheaf__table *t)
{
    for (int64_t s = c->own.begin, at = 0; s < c->own.end && t->rows != NULL; s++) {
        const int64_t n = t->trained == NULL ? 0 : t->trained->numel[s];
        if (n > 0)
            sheaf__op_convert(c->device, sheaf__at(t->rows, at, c->dtype), c->dtype,
                              t->trained->weight[s], SHEAF_F32, n);
        at += n;
    }
    sheaf__lora_refresh(c, t->lora);
}

static sheaf_status *embedding_backward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__pieces grad = pieces_of(c, p->table);
    for (int i = 0; i < grad.count; i++)
        grad.at[i] = p->table->trained->grad[c->own.begin + i];
    sheaf__op_table_gradient(c->device, &grad, p->x->grad, c->dtype, p->table->width, tokens_of(p));
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

static sheaf_status *lora_forward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t width = p->table->width;
    sheaf__context *c = sheaf__tape_context(tape);
    sheaf__pieces a = pieces_of(c, p->table);
    sheaf__batch *b = NULL;
    for (int i = 0; i < a.count; i++)
        a.at[i] = lora->a_copy[c->own.begin + i];
    sheaf__op_factor_columns(c->device, p->h->data, &a, c->dtype, lora->rank, lora->scale,
                             tokens_of(p));
    sheaf_status *st = select_rows(c, p, p->h);
    TRY(st, sheaf__batch_new(&b, c));
    if (st != NULL)
        return st;
    sheaf__product *job = sheaf__batch_job(b, p->x->rows, width, p->y->data, width, c->dtype,
                                           sheaf__term_of(p->h->data, lora->rank, SHEAF__B_NK,
                                                          lora->b_copy[0], lora->rank, lora->rank));
    job->residual = p->x->data;
    job->ldr = width;
    sheaf__batch_run(c, b);
    sheaf__batch_free(b);
    return NULL;
}

static sheaf_status *lora_backward(sheaf__tape *tape, sheaf__op *op)
{
    const embedding_params *p = op->params;
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t rows = p->x->rows, width = p->table->width;
    sheaf__context *c = sheaf__tape_context(tape);
    sheaf__pieces grad = pieces_of(c, p->table);
    sheaf__batch *b;
    void *g = NULL;
    sheaf_status *st = sheaf__batch_new(&b, c);
    if (st != NULL)
        return st;
    st = sheaf__alloc_scratch(&g, c, rows * lora->rank);
    if (st == NULL) {
        sheaf__batch_job(
            b, rows, lora->rank, g, lora->rank, c->dtype,
            sheaf__term_of(p->y->grad, width, SHEAF__B_KN, lora->b_copy[0], lora->rank, width))
            ->alpha = lora->scale;
        st = sheaf__batch_weight_gradient(b, lora->b->grad[0], width, lora->rank, p->y->grad, width,
                                          p->h->data, lora->rank, p->x);
    }
    if (st == NULL) {
        sheaf__batch_run(c, b);
        for (int i = 0; i < grad.count; i++)
            grad.at[i] = lora->a->grad[c->own.begin + i];
        sheaf__op_factor_gradient(c->device, &grad, g, c->dtype, lora->rank, tokens_of(p));
    }
    sheaf__free(c, g);
    sheaf__batch_free(b);
    if (st == NULL)
        sheaf__pass_gradient(c, p->x, p->y);
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

static sheaf_status *noise_forward(sheaf__tape *tape, sheaf__op *op)
{
    const noise_params *p = op->params;
    const sheaf__step_info *info = p->in->info;
    const sheaf__noise how = { .seed = info->seed,
                               .purpose = sheaf__name_key("neftune"),
                               .step = info->step,
                               .sample = info->sample,
                               .position = info->position,
                               .half = p->in->half };
    sheaf__op_noise(sheaf__tape_context(tape)->device, p->x->data, sheaf__rows_present(p->x),
                    p->x->cols, &how, p->x->dtype);
    return NULL;
}

void sheaf__record_noise(sheaf__tape *tape, sheaf__value *x, const sheaf__noise_in *in)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "noise on the embedding", noise_forward, NULL, sizeof(noise_params));
    *(noise_params *)op->params = (noise_params){ in, x };
    sheaf__op_arg(op, x, SHEAF__CHANGE);
}

float sheaf__noise_half(double alpha, int64_t tokens, int64_t width)
{
    return tokens <= 0 ? 0 : (float)(alpha / sqrt((double)tokens * (double)width));
}
