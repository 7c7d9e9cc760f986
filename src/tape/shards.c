/* shards.c - see shards.h. */
#include "tape/shards.h"

#include "tape/rows.h"

enum { BLOCK = SHEAF__ROWS_BLOCK };

const sheaf__row_shards *sheaf__row_shards_new(sheaf__tape *tape, int64_t rows, int64_t unit)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__row_shards *shards = sheaf__tape_host_memory(tape, sizeof *shards);
    if (shards == NULL)
        return NULL;
    const int64_t units = (rows + unit - 1) / unit;
    shards->rows = rows;
    for (int r = 0; r <= c->ranks; r++) {
        /* the first ranks have what is over: a plan is of rank 0 */
        const int64_t before = (units * r + c->ranks - 1) / c->ranks * unit;
        shards->first[r] = before < rows ? before : rows;
    }
    shards->most = shards->first[c->rank + 1] - shards->first[c->rank];
    return shards;
}

void sheaf__value_shard(sheaf__value *y, const sheaf__row_shards *shards)
{
    if (shards != NULL) {
        y->rows = shards->most;
        y->there = shards->there == NULL ? NULL : &shards->here;
    } else if (y->shards != NULL) {
        y->rows = y->shards->rows;
        y->there = y->shards->there;
    }
    y->shards = shards;
}

static int64_t row_bytes(const sheaf__value *v)
{
    return v->cols * (int64_t)sheaf_dtype_bytes(v->dtype);
}

/* Of `all`, in which own rows lie in their place. */
static sheaf_status *gather(const sheaf__context *c, void *all, const sheaf__row_shards *shards,
                            int64_t bytes_of_row)
{
    size_t bytes[SHEAF_MAX_SLICES];
    for (int r = 0; r < c->ranks; r++)
        bytes[r] = (size_t)((shards->first[r + 1] - shards->first[r]) * bytes_of_row);
    return sheaf__gather_among(c, c->comm, all, bytes);
}

/* Into `all`; own rows are copied there first. */
static sheaf_status *gather_into(const sheaf__context *c, void *all, const sheaf__value *v,
                                 const void *own)
{
    sheaf__op_convert(c->device, (char *)all + sheaf__first_row(c, v) * row_bytes(v), v->dtype, own,
                      v->dtype, sheaf__rows_present(v) * v->cols);
    return gather(c, all, v->shards, row_bytes(v));
}

sheaf_status *sheaf__gather_shards(void **all, sheaf__context *c, const sheaf__value *v,
                                   const void *own)
{
    *all = NULL;
    sheaf_status *st =
        sheaf__alloc(all, c, (size_t)(sheaf__all_rows(v) * row_bytes(v)), SHEAF_MEM_EXCHANGE);
    return TRY(st, gather_into(c, *all, v, own));
}

/* ---- from all rows to own ones, and back ---- */

typedef struct shard_params {
    sheaf__value *whole, *own;
} shard_params;

/* The rows of `whole` that are this rank's. */
static const void *own_rows(const sheaf__context *c, const shard_params *p, const void *whole)
{
    return (const char *)whole + sheaf__first_row(c, p->own) * row_bytes(p->own);
}

static sheaf_status *take_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const shard_params *p = op->params;
    sheaf__copy(c, p->own->data, own_rows(c, p, p->whole->data),
                sheaf__rows_present(p->own) * p->own->cols, false);
    return NULL;
}

static sheaf_status *take_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const shard_params *p = op->params;
    void *dx;
    sheaf_status *st = sheaf__gradient_begin(&dx, c, p->whole);
    TRY(st, gather_into(c, dx, p->own, p->own->grad));
    sheaf__gradient_end(c, p->whole, dx, st == NULL);
    return st;
}

static sheaf_status *whole_forward(sheaf__tape *tape, sheaf__op *op)
{
    const shard_params *p = op->params;
    return gather_into(sheaf__tape_context(tape), p->whole->data, p->own, p->own->data);
}

/* All ranks have the same gradient. */
static sheaf_status *whole_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const shard_params *p = op->params;
    sheaf__copy(c, p->own->grad, own_rows(c, p, p->whole->grad),
                sheaf__rows_present(p->own) * p->own->cols, !p->own->grad_fresh);
    return NULL;
}

static sheaf__value *record(sheaf__tape *tape, sheaf__op_fn *forward, sheaf__op_fn *backward,
                            sheaf__value *x, const sheaf__row_shards *shards)
{
    sheaf__op *op = sheaf__tape_op(tape, "rows of ranks", forward, x->needs_grad ? backward : NULL,
                                   sizeof(shard_params));
    sheaf__value *y = sheaf__tape_like(tape, x, x->name, x->cols, x->dtype);
    sheaf__value_shard(y, shards);
    *(shard_params *)op->params = shards == NULL ? (shard_params){ y, x } : (shard_params){ x, y };
    return sheaf__op_makes(op, y, x, 0);
}

sheaf__value *sheaf__record_shard(sheaf__tape *tape, sheaf__value *x,
                                  const sheaf__row_shards *shards)
{
    return shards == NULL ? x : record(tape, take_forward, take_backward, x, shards);
}

sheaf__value *sheaf__record_whole(sheaf__tape *tape, sheaf__value *x)
{
    return x->shards == NULL ? x : record(tape, whole_forward, whole_backward, x, NULL);
}

/* ---- sums over rows ---- */

sheaf_status *sheaf__sum_shards(sheaf__context *c, float *const *grad, int n, int64_t width,
                                const sheaf__value *x, sheaf__block_sums *sums, const void *of)
{
    const sheaf__row_shards *shards = x->shards;
    if (shards == NULL) {
        sums(c, of, grad, 0, sheaf__rows_present(x));
        return NULL;
    }
    const int64_t blocks = (shards->rows + BLOCK - 1) / BLOCK, one = n * width,
                  mine = shards->first[c->rank], end = shards->first[c->rank + 1];
    sheaf__row_shards by_block = { .rows = blocks };
    float *all = NULL;
    for (int r = 0; r <= c->ranks; r++)
        by_block.first[r] = (shards->first[r] + BLOCK - 1) / BLOCK;
    sheaf_status *st =
        sheaf__alloc(&all, c, (size_t)(blocks * one) * sizeof *all, SHEAF_MEM_EXCHANGE);
    if (st == NULL)
        sheaf__op_zero(c->device, all, blocks * one, SHEAF_F32);
    for (int64_t row = mine; row < end && st == NULL; row += BLOCK) {
        float *sum[2] = { NULL };
        for (int i = 0; i < n; i++)
            sum[i] = grad[i] == NULL ? NULL : all + row / BLOCK * one + i * width;
        sums(c, of, sum, row - mine, end - row < BLOCK ? end - row : BLOCK);
    }
    TRY(st, gather(c, all, &by_block, one * (int64_t)sizeof *all));
    for (int64_t b = 0; b < blocks && st == NULL; b++)
        for (int i = 0; i < n; i++)
            if (grad[i] != NULL)
                sheaf__op_add(c->device, grad[i], all + b * one + i * width, width);
    sheaf__free(c, all);
    return st;
}
