/* shards.c - see shards.h. */
#include "tape/shards.h"

#include "tape/rows.h"

enum { BLOCK = SHEAF__ROWS_BLOCK };

static int64_t blocks_of(int64_t rows)
{
    return (rows + BLOCK - 1) / BLOCK;
}

const sheaf__row_shards *sheaf__row_shards_new(sheaf__tape *tape, int64_t rows, bool blocks)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__row_shards *shards = sheaf__tape_host_memory(tape, sizeof *shards);
    if (shards == NULL)
        return NULL;
    const int64_t most = (blocks_of(rows) + c->ranks - 1) / c->ranks * BLOCK;
    shards->blocks = blocks || most * c->ranks * 16 <= rows * 17;
    /* exchanges of GPUs begin at multiples of 4 elements */
    const int64_t unit = shards->blocks ? BLOCK : 4, units = (rows + unit - 1) / unit;
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
sheaf_status *sheaf__gather_shards_to(void *all, const sheaf__context *c, const sheaf__value *v,
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
    return TRY(st, sheaf__gather_shards_to(*all, c, v, own));
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
    TRY(st, sheaf__gather_shards_to(dx, c, p->own, p->own->grad));
    sheaf__gradient_end(c, p->whole, dx, st == NULL);
    return st;
}

static sheaf_status *whole_forward(sheaf__tape *tape, sheaf__op *op)
{
    const shard_params *p = op->params;
    return sheaf__gather_shards_to(p->whole->data, sheaf__tape_context(tape), p->own, p->own->data);
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
    y->all_ahead = shards == NULL ? NULL : x;
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

/* Begins of those of chosen rows, the end behind them; NULL: they are of all rows, or not known. */
static const int64_t *chosen_blocks(const sheaf__value *x)
{
    return x->blocks == NULL || x->blocks->n == 0 ? NULL : x->blocks->begin;
}

void sheaf__shard_blocks(int64_t *first, const sheaf__context *c, const sheaf__value *x)
{
    const int64_t *begin = chosen_blocks(x), *row = x->shards->first;
    first[0] = 0;
    for (int r = 0; r < c->ranks; r++) {
        first[r + 1] = first[r] + (begin == NULL ? blocks_of(row[r + 1] - row[r]) : 0);
        while (begin != NULL && begin[first[r + 1]] < row[r + 1])
            first[r + 1]++;
    }
}

sheaf_range sheaf__shard_block(const sheaf__context *c, const sheaf__value *x, const int64_t *first,
                               int64_t i)
{
    const int64_t *begin = chosen_blocks(x), mine = sheaf__first_row(c, x),
                  end = x->shards->first[c->rank + 1] - mine;
    if (begin != NULL)
        return (sheaf_range){ begin[first[c->rank] + i] - mine,
                              begin[first[c->rank] + i + 1] - mine };
    return (sheaf_range){ i * BLOCK, end < (i + 1) * BLOCK ? end : (i + 1) * BLOCK };
}

static void sum_rows(const sheaf__context *c, sheaf__norm_weight sums, sheaf_range rows)
{
    const int64_t at = rows.begin * sums.ld;
    sums.rows = rows.end - rows.begin;
    sums.dy = sheaf__at(sums.dy, at, sums.dtype);
    if (sums.dw == NULL) {
        sheaf__column_sums(c, sums.db, sums.dy, sums.ld, sums.rows, sums.cols);
        return;
    }
    sums.x = sheaf__at(sums.x, at, sums.dtype);
    if (sums.mean != NULL)
        sums.mean += rows.begin;
    sums.rstd += rows.begin;
    sheaf__op_norm_weight(c->device, sums);
}

sheaf_status *sheaf__sum_shards(sheaf__context *c, const sheaf__norm_weight *all_rows,
                                const sheaf__value *x)
{
    sheaf__norm_weight sums = *all_rows;
    float *const grad[] = { sums.dw, sums.db };
    const int64_t width = sums.cols, behind = sums.dw == NULL || sums.db == NULL ? 0 : width,
                  one = behind + width;
    if (x->shards == NULL) {
        sum_rows(c, sums, (sheaf_range){ 0, sheaf__rows_present(x) });
        return NULL;
    }
    sheaf__row_shards by_block;
    float *all = NULL;
    sheaf__shard_blocks(by_block.first, c, x);
    const int64_t before = by_block.first[c->rank], mine = by_block.first[c->rank + 1] - before,
                  blocks = by_block.first[c->ranks];
    sheaf_status *st =
        sheaf__alloc(&all, c, (size_t)(blocks * one) * sizeof *all, SHEAF_MEM_EXCHANGE);
    if (st == NULL)
        sheaf__op_zero(c->device, all, blocks * one, SHEAF_F32);
    for (int64_t b = 0; b < mine && st == NULL; b++) {
        float *to = all + (before + b) * one;
        sums.dw = grad[0] == NULL ? NULL : to;
        sums.db = grad[1] == NULL ? NULL : to + behind;
        sum_rows(c, sums, sheaf__shard_block(c, x, by_block.first, b));
    }
    TRY(st, gather(c, all, &by_block, one * (int64_t)sizeof *all));
    for (int64_t b = 0; b < blocks && st == NULL; b++)
        for (int i = 0; i < 2; i++)
            if (grad[i] != NULL)
                sheaf__op_add(c->device, grad[i], all + b * one + i * behind, width);
    sheaf__free(c, all);
    return st;
}
