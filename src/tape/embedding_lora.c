/* embedding_lora.c - LoRA on a vocabulary table, as PEFT has it: A [rank, vocab] is looked up, B
 * [width, rank] is a product.
 *
 *   h = round(scale * A[:, id]),  y = round(round(h B^T) + x),  x the table's row of id
 *   g = round(scale * dy B),  dB = dy^T h,  dA[:, id] += g, tokens ascending
 *
 * A is cut as the table is, by tokens: h is a selection, like x, and no sum. PEFT drops nothing
 * here. */
#include "tape/embedding_lora.h"

#include <stdlib.h>

#include "tape/linear_inner.h"
#include "tape/rows.h"
#include "base/status.h"

typedef struct lora_params {
    const sheaf__table *table;
    const sheaf__rows_in *in;
    sheaf__value *x, *h, *y;
} lora_params;

typedef struct lora_args {
    sheaf__context *c;
    const lora_params *p;
    int32_t *owner;
    const void *g;
} lora_args;

static sheaf_range rows_of(const sheaf_cut *cut, int slice)
{
    sheaf_range rows = { 0, 0 };
    sheaf_status_free(sheaf_cut_rows(&rows, cut, 0, slice)); /* checked when the schema was made */
    return rows;
}

static void look_up(void *arg, int64_t begin, int64_t end, int worker)
{
    const lora_args *a = arg;
    const sheaf__table *t = a->p->table;
    const sheaf__lora_part *lora = t->lora;
    sheaf__context *c = a->c;
    for (int64_t r = begin; r < end; r++) {
        const int64_t id = a->p->in->ids[r];
        const int slice = sheaf__cut_slice_of(&t->cut, id);
        const sheaf_range rows = rows_of(&t->cut, slice);
        a->owner[r] = sheaf_owner_rank(c->slices, c->ranks, slice);
        for (int64_t j = 0; j < lora->rank && a->owner[r] == c->rank; j++) {
            float v;
            c->device->kernels->widen(&v,
                                      sheaf__at(lora->a_copy[slice],
                                                j * (rows.end - rows.begin) + id - rows.begin,
                                                c->dtype),
                                      c->dtype, 1);
            v *= lora->scale;
            c->device->kernels->round(sheaf__at(a->p->h->data, r * lora->rank + j, c->dtype),
                                      c->dtype, &v, 1);
        }
    }
}

/* h of every row, on every rank. */
static sheaf_status *select_rows(lora_args *a)
{
    sheaf__context *c = a->c;
    const int64_t rows = a->p->x->rows;
    const size_t row = (size_t)a->p->table->lora->rank * sheaf_dtype_bytes(c->dtype);
    const bool dry = c->device->kind == SHEAF_DRY;
    if (dry)
        return sheaf__select_counted(c, a->p->h->data, row, &a->p->table->cut, a->p->in->known,
                                     rows);
    a->owner = malloc((size_t)rows * sizeof *a->owner + 1);
    if (a->owner == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "owners of %lld rows", (long long)rows);
    sheaf__rows(c, rows, 32, look_up, a);
    sheaf_status *st =
        c->comm == NULL ? NULL : sheaf_comm_select(c->comm, a->p->h->data, row, rows, a->owner);
    free(a->owner);
    return st;
}

static sheaf_status *lora_forward(sheaf__tape *tape, sheaf__op *op)
{
    lora_args a = { sheaf__tape_context(tape), op->params, NULL, NULL };
    const lora_params *p = a.p;
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t width = p->table->width;
    sheaf__batch *b = NULL;
    sheaf_status *st = select_rows(&a);
    TRY(st, sheaf__batch_new(&b));
    if (st != NULL)
        return st;
    sheaf__product *job =
        sheaf__batch_job(b, p->x->rows, width, a.c->dtype, p->y->data, width, a.c->dtype);
    job->residual = p->x->data;
    job->ldr = width;
    sheaf__batch_term(b, job,
                      (sheaf__term){ .a = p->h->data,
                                     .lda = lora->rank,
                                     .form = SHEAF__B_NK,
                                     .b = lora->b_copy[0],
                                     .ldb = lora->rank,
                                     .k = lora->rank });
    sheaf__batch_run(a.c, b);
    sheaf__batch_free(b);
    return NULL;
}

/* Threads share the rows of A; each column receives its tokens in ascending order. */
static void scatter(void *arg, int64_t begin, int64_t end, int worker)
{
    const lora_args *a = arg;
    const sheaf__table *t = a->p->table;
    const sheaf__lora_part *lora = t->lora;
    sheaf__context *c = a->c;
    for (int64_t r = 0; r < a->p->x->rows; r++) {
        const int64_t id = a->p->in->ids[r];
        const int slice = sheaf__cut_slice_of(&t->cut, id);
        if (slice < c->own.begin || slice >= c->own.end || id == t->padding - 1)
            continue;
        const sheaf_range rows = rows_of(&t->cut, slice);
        for (int64_t j = begin; j < end; j++) {
            float v, *grad = lora->a->grad[slice] + j * (rows.end - rows.begin) + id - rows.begin;
            c->device->kernels->widen(&v, sheaf__at(a->g, r * lora->rank + j, c->dtype), c->dtype,
                                      1);
            c->device->kernels->add(grad, grad, &v, 1);
        }
    }
}

static sheaf_status *lora_backward(sheaf__tape *tape, sheaf__op *op)
{
    lora_args a = { sheaf__tape_context(tape), op->params, NULL, NULL };
    const lora_params *p = a.p;
    const sheaf__lora_part *lora = p->table->lora;
    const int64_t rows = p->x->rows, width = p->table->width;
    sheaf__batch *b;
    void *g = NULL;
    sheaf_status *st = sheaf__batch_new(&b);
    if (st != NULL)
        return st;
    st = sheaf__take(&g, a.c, (size_t)(rows * lora->rank) * sheaf_dtype_bytes(a.c->dtype),
                     SHEAF_MEM_SCRATCH);
    if (st == NULL) {
        sheaf__product *job =
            sheaf__batch_job(b, rows, lora->rank, a.c->dtype, g, lora->rank, a.c->dtype);
        job->alpha = lora->scale;
        sheaf__batch_term(b, job,
                          (sheaf__term){ .a = p->y->grad,
                                         .lda = width,
                                         .form = SHEAF__B_KN,
                                         .b = lora->b_copy[0],
                                         .ldb = lora->rank,
                                         .k = width });
        st = sheaf__batch_weight_gradient(b, lora->b->grad[0], width, lora->rank, p->y->grad, width,
                                          p->h->data, lora->rank, p->x);
    }
    if (st == NULL) {
        sheaf__batch_run(a.c, b);
        a.g = g;
        sheaf__rows(a.c, lora->rank, 1, scatter, &a);
    }
    sheaf__give(a.c, g);
    sheaf__batch_free(b);
    if (st == NULL && p->x->needs_grad)
        sheaf__hand_on(a.c, p->x, p->y);
    return st;
}

sheaf__value *sheaf__record_embedding_lora(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__table *table, const sheaf__rows_in *in)
{
    const bool flows = table->lora->a != NULL;
    sheaf__op *op = sheaf__tape_op(tape, table->name, lora_forward, flows ? lora_backward : NULL,
                                   sizeof(lora_params));
    lora_params *p = op->params;
    *p = (lora_params){ table, in, x,
                        sheaf__tape_value(tape, "lora inner value", x->rows, table->lora->rank,
                                          x->dtype),
                        sheaf__tape_value(tape, table->name, x->rows, x->cols, x->dtype) };
    sheaf__op_makes(op, p->y, x, flows, 0);
    sheaf__op_arg(op, p->h, SHEAF__MAKE | (flows ? SHEAF__KEEP : 0));
    return p->y;
}
