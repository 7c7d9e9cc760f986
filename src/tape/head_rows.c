/* head_rows.c - see head_rows.h. */
#include "tape/head_rows.h"

#include <string.h>

#include "ops/matmul/mma.h"
#include "tape/rows.h"

enum { BLOCK = SHEAF__ROWS_BLOCK };

typedef struct list_params {
    const sheaf__head_run *run;
    sheaf__head_rows wanted;
    int64_t count;
    sheaf__row_blocks blocks;
    int64_t *begin;               /* of the blocks, and the end */
    int32_t *which, *place, *own; /* the host's */
    const sheaf__row_shards *all; /* of the rows, or NULL; and of those that are chosen */
    sheaf__row_shards shards;
} list_params;

int64_t *sheaf__blocks_alloc(sheaf__tape *tape, int64_t rows)
{
    return sheaf__tape_host_memory(tape,
                                   (size_t)((rows + BLOCK - 1) / BLOCK + 1) * sizeof(int64_t));
}

int64_t sheaf__blocks_fill(int64_t *begin, const int32_t *which, int64_t count,
                           const sheaf__context *c)
{
    const int32_t block = sheaf__by_mma(c->device->sums, c->dtype) ? SHEAF__MMA_CHAIN : BLOCK;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || which[i] / block != which[i - 1] / block)
            begin[n++] = i;
    begin[n] = count;
    return n;
}

static bool is_read(const sheaf__head_run *run, const int32_t *label, int64_t row)
{
    return run->all_rows || (label != NULL && label[row] != SHEAF__IGNORED);
}

/* Marks the unit of each row that is read in `place`, by 0; others are -1. */
static void mark_units(int32_t *place, int64_t rows, const sheaf__head_run *run)
{
    const int64_t candidates = run->pick != NULL ? run->npick : rows;
    memset(place, 0xff, (size_t)rows * sizeof *place);
    for (int64_t i = 0; i < candidates; i++) {
        const int64_t row = run->pick == NULL ? i : run->pick[i],
                      unit = row / SHEAF__HEAD_ROWS_UNIT * SHEAF__HEAD_ROWS_UNIT;
        for (int64_t r = unit;
             is_read(run, run->label, row) && r < unit + SHEAF__HEAD_ROWS_UNIT && r < rows; r++)
            place[r] = 0;
    }
}

int64_t sheaf__head_rows_count(int64_t rows, const sheaf__head_run *run)
{
    const int32_t *label = run->label;
    int64_t n = 0;
    const int64_t most = run->pick != NULL ? run->npick * SHEAF__HEAD_ROWS_UNIT : run->most;
    if (run->pick != NULL || (run->unknown && !run->all_rows && most > 0))
        return most < rows ? most : rows;
    if (run->unknown || label == NULL || run->all_rows)
        return rows;
    for (int64_t unit = 0, end; unit < rows; unit = end) {
        bool stays = false;
        end = unit + SHEAF__HEAD_ROWS_UNIT < rows ? unit + SHEAF__HEAD_ROWS_UNIT : rows;
        for (int64_t r = unit; r < end; r++)
            stays |= is_read(run, label, r);
        n += stays ? end - unit : 0;
    }
    return n;
}

/* Whose the chosen rows are: their owners'. A plan that does not know them gives this rank as many
 * as it may have, and the others the rest. */
static sheaf_status *list_shards(const sheaf__context *c, list_params *p)
{
    const sheaf__row_shards *all = p->all;
    sheaf__row_shards *shards = &p->shards;
    if (all == NULL)
        return NULL;
    const int64_t most = p->count < all->most ? p->count : all->most, rest = p->count - most;
    for (int r = 0, i = 0; r <= c->ranks; r++) {
        while (p->own != NULL && i < p->count && p->which[i] < all->first[r])
            i++;
        const int others = r <= c->rank ? r : r - 1;
        shards->first[r] =
            p->own != NULL ? i : rest * others / (c->ranks - 1) + (r > c->rank ? most : 0);
    }
    const int64_t mine = shards->first[c->rank];
    shards->here = shards->first[c->rank + 1] - mine;
    if (p->own == NULL)
        return NULL;
    for (int64_t i = 0; i < shards->here; i++)
        p->own[i] = p->which[mine + i] - (int32_t)all->first[c->rank];
    return sheaf__upload(c->device, p->wanted.own->data, p->own,
                         (size_t)shards->here * sizeof *p->own);
}

static sheaf_status *list_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    list_params *p = op->params;
    const int64_t rows = p->wanted.which->rows;
    p->count = p->blocks.n = 0;
    if (p->run->unknown || p->which == NULL) {
        p->count = sheaf__head_rows_count(rows, p->run);
        return list_shards(c, p);
    }
    mark_units(p->place, rows, p->run);
    for (int64_t r = 0; r < rows; r++) {
        if (p->place[r] < 0)
            continue;
        p->which[p->count] = (int32_t)r;
        p->place[r] = (int32_t)p->count++;
    }
    p->blocks.n = sheaf__blocks_fill(p->begin, p->which, p->count, c);
    sheaf_status *st = sheaf__upload(c->device, p->wanted.which->data, p->which,
                                     (size_t)p->count * sizeof(int32_t));
    return TRY(st, list_shards(c, p));
}

sheaf__head_rows sheaf__record_head_rows(sheaf__tape *tape, int64_t rows,
                                         const sheaf__row_shards *shards,
                                         const sheaf__head_run *run)
{
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    sheaf__op *op =
        sheaf__tape_op(tape, "rows that the head reads", list_forward, NULL, sizeof(list_params));
    list_params *p = op->params;
    p->run = run;
    p->count = rows;
    if (!run->unknown) { /* a plan may count more rows than there is memory for */
        p->begin = sheaf__blocks_alloc(tape, rows);
        p->which = sheaf__tape_host_memory(tape, bytes);
        p->place = sheaf__tape_host_memory(tape, bytes);
    }
    p->blocks = (sheaf__row_blocks){ 0, p->begin, true };
    p->wanted = (sheaf__head_rows){ sheaf__tape_value(tape, op->name, rows, 1, SHEAF_F32), p->place,
                                    &p->count, &p->blocks };
    p->wanted.which->statistic = true; /* whole numbers in the space of floats */
    sheaf__op_arg(op, p->wanted.which, SHEAF__MAKE);
    if (shards != NULL) {
        p->all = shards;
        p->shards = *shards;
        p->shards.there = &p->count;
        p->wanted.shards = &p->shards;
        p->own = run->unknown ? NULL : sheaf__tape_host_memory(tape, bytes);
        p->wanted.own = sheaf__tape_value(tape, op->name, shards->most, 1, SHEAF_F32);
        p->wanted.own->statistic = true;
        sheaf__op_arg(op, p->wanted.own, SHEAF__MAKE);
    }
    return p->wanted;
}

typedef struct taken_params {
    sheaf__value *x, *y, *which;
} taken_params;

static sheaf_status *taken_forward(sheaf__tape *tape, sheaf__op *op)
{
    const taken_params *p = op->params;
    sheaf__gather(sheaf__tape_context(tape), p->y->data, p->x->data,
                  sheaf__row_map_listed(p->which->data, p->x->rows), sheaf__rows_present(p->y),
                  p->x->cols, false);
    return NULL;
}

static sheaf_status *taken_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const taken_params *p = op->params;
    sheaf__scatter_gradient(c, p->x, p->y->grad, sheaf__row_map_listed(p->which->data, p->x->rows),
                            sheaf__rows_present(p->y));
    return NULL;
}

sheaf__value *sheaf__record_index_select(sheaf__tape *tape, const sheaf__head_rows *wanted,
                                         sheaf__value *x)
{
    sheaf__op *op = sheaf__tape_op(tape, wanted->which->name, taken_forward,
                                   x->needs_grad ? taken_backward : NULL, sizeof(taken_params));
    sheaf__value *y = sheaf__tape_value(tape, x->name, x->rows, x->cols, x->dtype),
                 *which = x->shards == NULL ? wanted->which : wanted->own;
    sheaf__cut_as(y, x);
    *(taken_params *)op->params = (taken_params){ x, y, which };
    y->there = wanted->count;
    y->blocks = wanted->blocks;
    if (x->shards != NULL)
        sheaf__value_shard(y, wanted->shards);
    sheaf__op_arg(op, which, SHEAF__READ | SHEAF__KEEP);
    return sheaf__op_makes(op, y, x, 0);
}
