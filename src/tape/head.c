/* head.c - see head.h. */
#include "tape/head.h"

#include "base/base.h"
#include "tape/layers.h"
#include "tape/linear_inner.h"
#include "tape/rows.h"
#include "tape/head_rows.h"
#include "tape/transfer.h"

typedef struct head_params {
    sheaf__linear *head;
    sheaf__head_run *run;
    bool training;
    sheaf__value *x, *dx; /* dx: gradient of x, made in forward, NULL when x needs none */
    const int32_t *place; /* the host's; NULL: x has all rows */
} head_params;

typedef struct far_params {
    sheaf__head_run *run;
    int64_t rows, vocab;
} far_params;

/* One block of rows: lists of the host's, and buffers. */
typedef struct block {
    sheaf__context *c;
    const head_params *p;
    int64_t n, most; /* rows in this block, in the largest */
    int32_t row[SHEAF__HEAD_BLOCK], label[SHEAF__HEAD_BLOCK]; /* [n] numbers and labels of rows */
    int32_t at[SHEAF__HEAD_BLOCK];                            /* [n] the rows of x that they are */
    float weight[SHEAF__HEAD_BLOCK], each[SHEAF__HEAD_BLOCK]; /* [n] of head_run, of these rows */
    struct {
        int32_t *label, *at; /* as the device has them */
        float *weight;
    } list;
    /* All rows of x. Where they are divided this is scratch memory, and this rank's roots of the
     * sum over slices of their gradient, dense, of the rows taken, come to lie there: the first in
     * place of rows that were read. */
    void *all_rows;
    float *root[SHEAF_MAX_SLICES], *now[SHEAF_MAX_SLICES]; /* and of this block */
    sheaf__value x_value, h_value;                         /* x, with dx, and h as values */
    void *x;                                               /* [n, hidden] gathered */
    void *h;             /* [n, rank] LoRA's inner value or NULL */
    float *logits;       /* [n, owned] */
    void *dlogits;       /* [n, owned] compute dtype */
    void *dx;            /* [n, hidden] */
    float *max, *target; /* [n] */
    float *sums;         /* [slices, n] per-slice sums; the total ends in *total */
    float *logit_sums;   /* [slices, n] the same of the logits themselves, for smoothing */
    float *total, *logit_total;
    float *first; /* [n] minus the column of the first largest logit, to judge */
    float *all;   /* gathered logits of all ranks, when wanted */
    bool over;    /* dlogits lie where the logits do */
} block;

static void give_block(block *b)
{
    if (b->over)
        b->dlogits = NULL;
    void *const held[] = { b->list.label, b->list.at,    b->list.weight, b->x,   b->h,
                           b->logits,     b->dlogits,    b->dx,          b->max, b->target,
                           b->sums,       b->logit_sums, b->first,       b->all };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sheaf__free(b->c, held[i]);
    for (int i = 0; i < SHEAF_MAX_SLICES; i++)
        sheaf__free(b->c, b->root[i]);
}

/* The softmax of one number is 1, so that with a label that counts 2 the gradient of cross-entropy
 * is 1 - 2 = -1, that of minus the number; and the loss itself is that with a maximum of 0. */
enum { LABEL_OF_SCORE = 2 };

static bool smooths(const sheaf__head_run *run)
{
    return run->smoothing > 0;
}

static bool cools(const sheaf__head_run *run)
{
    return run->temperature > 0 && run->temperature != 1;
}

static float coldness(const sheaf__head_run *run)
{
    return (float)(1 / run->temperature);
}

/* Of all ranks together. */
static int64_t rows_of(const head_params *p)
{
    return p->x->shards == NULL ? p->x->rows : p->x->shards->rows;
}

/* May the gradient of the logits lie where they do, as nothing reads them later? */
static bool writes_over(const block *b)
{
    return b->c->dtype == SHEAF_F32 && b->p->head->cap == 0 && b->p->run->take == NULL;
}

static int64_t candidates_of(const sheaf__head_run *run, int64_t rows)
{
    return run->pick != NULL ? run->npick : rows;
}

/* Rows of the largest block, at most: in whole units, so that a plan that knows no more than those
 * of the data comes to the same number. */
static int64_t most_rows(const head_params *p)
{
    const int64_t n =
        p->run->pick != NULL ? p->run->npick : sheaf__head_rows_count(rows_of(p), p->run);
    return n < 1 ? 1 : n < SHEAF__HEAD_BLOCK ? n : SHEAF__HEAD_BLOCK;
}

static sheaf_status *take_block(block *b, bool training, bool gathered)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    b->most = most_rows(b->p);
    const size_t rows = (size_t)b->most, whole = SHEAF__HEAD_BLOCK,
                 one = sheaf_dtype_bytes(c->dtype);
    const size_t owned = (size_t)l->owned, in = (size_t)l->in;
    const struct {
        void *out;
        size_t bytes;
        bool wanted;
    } need[] = {
        { &b->list.label, whole * 4, true },
        { &b->list.at, whole * 4, true },
        { &b->list.weight, whole * 4, training },
        { &b->x, rows * in * one, true },
        { &b->h, rows * (size_t)(l->lora == NULL ? 0 : l->lora->rank) * one, l->lora != NULL },
        { &b->logits, rows * owned * 4, true },
        { &b->dlogits, rows * owned * one, training && !writes_over(b) },
        { &b->dx, rows * in * one, b->p->dx != NULL },
        { &b->max, whole * 4, true },
        { &b->target, whole * 4, true },
        { &b->sums, whole * 4 * SHEAF_MAX_SLICES, true },
        { &b->logit_sums, whole * 4 * SHEAF_MAX_SLICES, smooths(b->p->run) || b->p->run->scores },
        { &b->first, whole * 4, b->p->run->judge },
        { &b->all, rows * (size_t)l->out * 4 * (c->ranks > 1 ? 2 : 1), gathered },
    };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof need / sizeof *need && st == NULL; i++)
        if (need[i].wanted)
            st = sheaf__alloc(need[i].out, c, need[i].bytes, SHEAF_MEM_SCRATCH);
    b->over = training && writes_over(b);
    if (b->over)
        b->dlogits = b->logits;
    return st;
}

/* ---- rows that are divided ---- */

/* Does the gradient wait for all blocks? */
static bool waits(const block *b)
{
    return b->p->x->shards != NULL && b->p->dx != NULL;
}

static sheaf_status *take_all_rows(block *b)
{
    enum { ALIGN = 64 };
    sheaf__context *c = b->c;
    const sheaf__value *x = b->p->x;
    const int64_t rows = sheaf__all_rows(x),
                  read = sheaf__head_rows_count(rows_of(b->p), b->p->run);
    const size_t n = (size_t)(rows * x->cols), one = sheaf_dtype_bytes(x->dtype),
                 taken = (size_t)((read < rows ? read : rows) * x->cols),
                 before = waits(b) ? (n * (sizeof(float) - one) + ALIGN - 1) / ALIGN * ALIGN : 0;
    int own = 1;
    b->all_rows = x->data;
    if (x->shards == NULL)
        return NULL;
    if (waits(b))
        sheaf_tree_own(&b->p->head->tree, c->rank, &own);
    sheaf_status *st = sheaf__alloc(&b->root[0], c, before + n * one, SHEAF_MEM_EXCHANGE);
    for (int i = 1; i < own; i++)
        TRY(st, sheaf__alloc(&b->root[i], c, taken * sizeof(float), SHEAF_MEM_EXCHANGE));
    if (st != NULL)
        return st;
    b->all_rows = (char *)b->root[0] + before;
    return sheaf__gather_shards_to(b->all_rows, c, x, x->data);
}

/* ---- one block ---- */

static sheaf__logits logits_of(const block *b)
{
    const sheaf__linear *l = b->p->head;
    return (sheaf__logits){ b->logits, b->n, l->owned, l->logical0 };
}

/* The block's rows in x, and in its gradient. */
static sheaf__row_map rows_in_x(const block *b)
{
    return sheaf__row_map_listed(b->list.at, sheaf__all_rows(b->p->x));
}

static sheaf_status *block_logits(block *b)
{
    const sheaf__linear *l = b->p->head;
    const int64_t rank = l->lora == NULL ? 0 : l->lora->rank;
    const sheaf_dtype t = b->c->dtype;
    b->x_value = (sheaf__value){ .rows = b->n,
                                 .cols = l->in,
                                 .dtype = t,
                                 .data = b->x,
                                 .grad = b->dx,
                                 .needs_grad = b->p->x->needs_grad,
                                 .roots = waits(b) ? b->now : NULL,
                                 .grad_fresh = true };
    b->h_value = (sheaf__value){ .rows = b->n, .cols = rank, .dtype = t, .data = b->h };
    sheaf__value y = { .rows = b->n, .cols = l->owned, .dtype = SHEAF_F32, .data = b->logits };
    sheaf_status *st = sheaf__columns_forward(b->c, &y, &b->x_value, &b->h_value, b->p->head);
    if (st == NULL && l->cap > 0)
        sheaf__op_softcap(b->c->device, b->logits, l->cap, b->n, l->owned, t);
    if (st == NULL && cools(b->p->run))
        sheaf__op_scale_round(b->c->device, b->logits, b->logits, coldness(b->p->run), b->n,
                              l->owned, l->owned, SHEAF_F32);
    return st;
}

/* Of sums by slice, [slices, n]: over all slices and ranks, in *total. */
static sheaf_status *sum_slices(const block *b, float *sums, float **total)
{
    const sheaf__linear *l = b->p->head;
    float *part[SHEAF_MAX_SLICES];
    for (int s = 0; s < l->count; s++)
        part[s] = sums + (int64_t)s * SHEAF__HEAD_BLOCK;
    return sheaf__sum_partials(b->c, &l->tree, part, l->first, sums, b->n, 1, total);
}

/* Maximum and sum of exponentials of every row, over all ranks; to smooth labels, the sum of its
 * logits too. */
static sheaf_status *block_statistics(block *b)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    const sheaf__row_sums sums = { b->sums,
                                   smooths(b->p->run) ? b->logit_sums : NULL,
                                   SHEAF__HEAD_BLOCK,
                                   l->count,
                                   l->begin + l->first,
                                   l->extent + l->first };
    sheaf__op_row_max(c->device, b->max, logits_of(b));
    sheaf_status *st = sheaf__max_among(c, c->comm, b->max, b->n);
    if (st != NULL)
        return st;
    sheaf__op_row_sums(c->device, &sums, b->max, logits_of(b));
    st = sum_slices(b, b->sums, &b->total);
    return st == NULL && smooths(b->p->run) ? sum_slices(b, b->logit_sums, &b->logit_total) : st;
}

static sheaf_status *block_targets(block *b)
{
    sheaf__context *c = b->c;
    const sheaf_cut cut = { .slices = c->slices, .nparts = 1, .part = { { b->p->head->out, 1 } } };
    int32_t owner[SHEAF__HEAD_BLOCK];
    sheaf__op_row_labels(c->device, b->target, b->list.label, logits_of(b));
    sheaf__owners(c, owner, &cut, b->p->run->unknown ? NULL : b->label, b->n);
    return sheaf__select_among(c, c->comm, b->target, sizeof(float), b->n, owner);
}

/* The first largest logit of every row, over all ranks: a maximum again, of numbers that a float32
 * holds, as a vocabulary has fewer than 2^24 words. */
static sheaf_status *block_first(block *b)
{
    sheaf__op_row_first(b->c->device, b->first, b->max, logits_of(b));
    return sheaf__max_among(b->c, b->c->comm, b->first, b->n);
}

static void add_losses(block *b)
{
    sheaf__head_run *run = b->p->run;
    if (run->scores)
        sheaf__op_zero(b->c->device, b->logit_sums, b->n, SHEAF_F32);
    const sheaf__losses of = { .max = run->scores ? b->logit_sums : b->max,
                               .sum = b->total,
                               .target = b->target,
                               .logits = b->logit_total,
                               .first = b->first,
                               .label = b->label,
                               .rows = b->n,
                               .vocab = b->p->head->out,
                               .smoothing = run->smoothing,
                               .each = run->each == NULL ? NULL : b->each,
                               .loss = &run->loss_sum,
                               .labels = &run->labels,
                               .correct = &run->correct };
    sheaf__op_losses(b->c->device, &of);
    for (int64_t i = 0; i < b->n && run->each != NULL; i++)
        if (b->label[i] != SHEAF__IGNORED)
            run->each[b->row[i]] = b->each[i];
}

static sheaf_status *block_gradients(block *b)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    const sheaf__head_run *run = b->p->run;
    const sheaf__row_gradient how = {
        .d = b->dlogits,
        .max = b->max,
        .sum = b->total,
        .label = b->list.label,
        .how = { b->list.weight, run->scores ? LABEL_OF_SCORE : (float)(1 - run->smoothing),
                 (float)(run->smoothing / (double)l->out) },
        .dtype = c->dtype
    };
    sheaf__op_row_gradient(c->device, &how, logits_of(b));
    if (l->cap > 0)
        sheaf__op_softcap_back(c->device, b->dlogits, b->logits,
                               l->cap * (cools(run) ? coldness(run) : 1), b->n, l->owned, c->dtype);
    sheaf__value y = { .rows = b->n, .cols = l->owned, .dtype = c->dtype, .grad = b->dlogits };
    sheaf__set_purpose(c, SHEAF__TRAFFIC_BACKWARD);
    sheaf_status *st = sheaf__columns_backward(c, &y, &b->x_value, &b->h_value, b->p->head);
    sheaf__set_purpose(c, SHEAF__TRAFFIC_FORWARD);
    if (st == NULL && b->p->x->needs_grad && !waits(b))
        sheaf__scatter(c, b->p->dx->data, b->dx, rows_in_x(b), b->n, l->in, false);
    return st;
}

/* Bytes of the host, from the stage of the head to all. */
static sheaf_status *share(const sheaf__context *c, void *bytes, size_t size)
{
    return c->stages > 1 ? sheaf__transfer(c, bytes, size, c->head_stage) : NULL;
}

static sheaf_status *give_loss(const sheaf__context *c, sheaf__head_run *run, int64_t rows)
{
    double loss[3] = { run->loss_sum, (double)run->labels, (double)run->correct };
    sheaf_status *st = share(c, loss, sizeof loss);
    run->loss_sum = loss[0];
    run->labels = (int64_t)loss[1];
    run->correct = (int64_t)loss[2];
    return run->each == NULL ? st : TRY(st, share(c, run->each, (size_t)rows * sizeof(float)));
}

/* logits: of the device, full rows. */
static sheaf_status *give_rows(const block *b, int64_t done, float *logits)
{
    const sheaf__head_run *run = b->p->run;
    const size_t bytes = (size_t)(b->n * b->p->head->out) * sizeof(float);
    float *host;
    sheaf_status *st = sheaf__borrow(&host, b->c->device, logits, bytes, true);
    TRY(st, share(b->c, host, bytes));
    TRY(st, run->take(run->self, done, b->row, b->n, host));
    return sheaf__first_of(st, sheaf__return(host, b->c->device, logits, bytes, false));
}

/* Full rows on every rank: each rank's columns one rank after the other, then put side by side. */
static sheaf_status *block_take(block *b, int64_t done)
{
    sheaf__context *c = b->c;
    const int64_t out = b->p->head->out;
    if (c->comm == NULL)
        return give_rows(b, done, b->logits);
    const sheaf_cut cut = { .slices = c->slices, .nparts = 1, .part = { { out, 1 } } };
    size_t size[SHEAF_MAX_SLICES];
    float *at = b->all, *full = b->all + b->most * out;
    int64_t cols[SHEAF_MAX_SLICES];
    for (int r = 0; r < c->ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(c->slices, c->ranks, r);
        cols[r] = 0;
        for (int64_t s = own.begin; s < own.end; s++)
            cols[r] += sheaf_cut_slice_rows(&cut, (int)s);
        size[r] = (size_t)(cols[r] * b->n) * sizeof(float);
        if (r == c->rank)
            sheaf__op_convert(c->device, at, SHEAF_F32, b->logits, SHEAF_F32, cols[r] * b->n);
        at += cols[r] * b->n;
    }
    sheaf_status *st = sheaf__gather_among(c, c->comm, b->all, size);
    if (st != NULL)
        return st;
    at = b->all;
    for (int64_t r = 0, col = 0; r < c->ranks; at += cols[r] * b->n, col += cols[r++])
        sheaf__op_copy_box(c->device, full + col, out, at, cols[r], b->n, cols[r], SHEAF_F32);
    return give_rows(b, done, full);
}

static void set_weights(block *b)
{
    const sheaf__head_run *run = b->p->run;
    for (int64_t i = 0; i < b->n; i++) {
        b->weight[i] = run->weight == NULL ? run->gradient_scale : run->weight[b->row[i]];
        if (cools(run))
            b->weight[i] *= coldness(run);
    }
}

/* weigh: weights follow from losses, and those of this block's rows from what is known now. */
static sheaf_status *run_block(sheaf__tape *tape, block *b, bool training, bool weigh, int64_t done)
{
    const sheaf__head_run *run = b->p->run;
    const size_t bytes = (size_t)b->n * sizeof(int32_t);
    sheaf_status *st = sheaf__upload(b->c->device, b->list.label, b->label, bytes);
    TRY(st, sheaf__upload(b->c->device, b->list.at, b->at, bytes));
    if (st == NULL)
        sheaf__gather(b->c, b->x, b->all_rows, rows_in_x(b), b->n, b->p->head->in, false);
    TRY(st, block_logits(b));
    if (st == NULL)
        sheaf__tape_check_values(tape, b->logits, b->n * b->p->head->owned, SHEAF_F32);
    if (st == NULL && run->label != NULL) {
        st = block_statistics(b);
        TRY(st, block_targets(b));
        if (st == NULL && run->judge)
            st = block_first(b);
        if (st == NULL)
            add_losses(b);
    }
    if (weigh)
        TRY(st, run->weigh(run->self));
    if (st == NULL && training) {
        set_weights(b);
        for (int r = 0; r < SHEAF_MAX_SLICES && b->root[r] != NULL; r++)
            b->now[r] = b->root[r] + done * b->p->head->in;
        st = sheaf__upload(b->c->device, b->list.weight, b->weight, bytes);
        TRY(st, block_gradients(b));
    }
    if (st == NULL && run->take != NULL)
        st = block_take(b, done);
    return st;
}

/* Of a plan every full block is as the one before it: what it cost is counted as often as there are
 * more. Returns the first candidate behind them. */
static int64_t count_rest(sheaf__context *c, int64_t i, int64_t candidates,
                          const sheaf__costs *before)
{
    const int64_t rest = (candidates - i) / SHEAF__HEAD_BLOCK;
    sheaf__costs_repeat(c, before, rest);
    return i + rest * SHEAF__HEAD_BLOCK;
}

/* The rows of the next block, from candidate i on; returns the one to go on from. */
static int64_t next_block(block *b, const sheaf__head_run *run, int64_t i, int64_t candidates)
{
    const int32_t *place = b->p == NULL ? NULL : b->p->place;
    for (b->n = 0; i < candidates && b->n < SHEAF__HEAD_BLOCK; i++) {
        const int32_t row = run->pick == NULL || run->unknown ? (int32_t)i : run->pick[i];
        const int32_t label = run->label == NULL || run->unknown ? SHEAF__IGNORED : run->label[row];
        if (!run->all_rows && !run->unknown && label == SHEAF__IGNORED)
            continue;
        b->row[b->n] = row;
        b->label[b->n] = label;
        b->at[b->n++] = place == NULL ? row : place[row];
    }
    return i;
}

/* Those of the block's rows that are this rank's, by their number there. */
static void keep_own(block *b)
{
    const sheaf__row_shards *shards = b->p->x->shards;
    const int64_t begin = shards->first[b->c->rank], end = shards->first[b->c->rank + 1];
    int64_t n = 0;
    for (int64_t i = 0; i < b->n; i++)
        if (b->at[i] >= begin && b->at[i] < end)
            b->at[n++] = b->at[i] - (int32_t)begin;
    b->n = n;
}

/* The gradient of this rank's rows, of the roots of all. */
static sheaf_status *sum_roots(block *b)
{
    sheaf__context *c = b->c;
    const head_params *p = b->p;
    const int64_t in = p->x->cols,
                  candidates = p->run->unknown ? 0 : candidates_of(p->run, rows_of(p));
    int64_t first[SHEAF_MAX_SLICES + 1] = { 0 };
    for (int r = 1; r <= c->ranks && p->run->unknown; r++) /* each has a label */
        first[r] = p->x->shards->first[r];
    for (int64_t i = 0; i < candidates;) {
        i = next_block(b, p->run, i, candidates);
        for (int r = 1; r <= c->ranks; r++)
            for (int64_t k = 0; k < b->n; k++)
                first[r] += b->at[k] < p->x->shards->first[r];
    }
    sheaf__set_purpose(c, SHEAF__TRAFFIC_BACKWARD);
    sheaf_status *st =
        sheaf__sum_among(c, c->comm, &p->head->tree, b->root, first[c->ranks], in, first);
    sheaf__set_purpose(c, SHEAF__TRAFFIC_FORWARD);
    const float *sum = b->root[0] + first[c->rank] * in;
    for (int64_t i = 0; i < candidates && st == NULL; sum += b->n * in) {
        i = next_block(b, p->run, i, candidates);
        keep_own(b);
        if (b->n == 0)
            continue;
        st = sheaf__upload(c->device, b->list.at, b->at, (size_t)b->n * sizeof *b->at);
        sheaf__op_finish(c->device, b->dx, sum, NULL, NULL, NULL, b->n, in, c->dtype);
        sheaf__scatter(c, p->dx->data, b->dx,
                       sheaf__row_map_listed(b->list.at, sheaf__rows_present(p->x)), b->n, in,
                       false);
    }
    return st;
}

/* *late: there are weights to follow from losses; then: no gradients were made, as these need those
 * of all blocks. */
static sheaf_status *run_blocks(bool *late, sheaf__tape *tape, block *b)
{
    sheaf__head_run *run = b->p->run;
    const int64_t candidates = candidates_of(run, rows_of(b->p));
    const bool follow = *late;
    int64_t done = 0;
    sheaf_status *st = NULL;
    run->loss_sum = 0;
    run->labels = run->correct = 0;
    for (int64_t i = 0; i < candidates && st == NULL;) {
        sheaf__costs before;
        sheaf__costs_of(&before, b->c);
        i = next_block(b, run, i, candidates);
        const bool weigh = follow && b->n > 0 && (run->by_block || (i == candidates && done == 0));
        *late = *late && !weigh;
        if (b->n > 0)
            st = run_block(tape, b, b->p->training && !*late, weigh, done);
        done += b->n;
        if (run->unknown && b->n == SHEAF__HEAD_BLOCK)
            i = count_rest(b->c, i, candidates, &before);
    }
    return st;
}

static sheaf_status *head_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const head_params *p = op->params;
    sheaf__head_run *run = p->run;
    bool late = p->training && run->weigh != NULL;
    block b = { .c = c, .p = p };
    sheaf_status *st = take_all_rows(&b); /* first: its size depends on no label */
    TRY(st, take_block(&b, p->training, run->take != NULL));
    if (p->dx != NULL)
        sheaf__op_zero(c->device, p->dx->data, sheaf__rows_present(p->x) * p->x->cols, c->dtype);
    TRY(st, run_blocks(&late, tape, &b));
    if (st == NULL && late) {
        late = false;
        st = run->weigh(run->self);
        TRY(st, run_blocks(&late, tape, &b));
    }
    if (waits(&b))
        TRY(st, sum_roots(&b));
    TRY(st, give_loss(c, run, rows_of(p)));
    give_block(&b);
    return st;
}

/* For a stage without the head: the same blocks. */
static sheaf_status *far_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const far_params *p = op->params;
    sheaf__head_run *run = p->run;
    const int64_t candidates = candidates_of(run, p->rows),
                  most = candidates < SHEAF__HEAD_BLOCK ? candidates : SHEAF__HEAD_BLOCK;
    const bool takes = run->take != NULL;
    block b = { .c = c };
    void *all = NULL; /* the host's: a block's logits */
    sheaf_status *st =
        takes ? sheaf__host_alloc(&all, c->device, (size_t)(most * p->vocab) * sizeof(float),
                                  SHEAF_MEM_SCRATCH)
              : NULL;
    for (int64_t i = 0, done = 0; i < candidates && st == NULL && takes; done += b.n) {
        i = next_block(&b, run, i, candidates);
        if (b.n == 0)
            break;
        st = share(c, all, (size_t)(b.n * p->vocab) * sizeof(float));
        TRY(st, run->take(run->self, done, b.row, b.n, all));
    }
    TRY(st, give_loss(c, run, p->rows));
    sheaf__host_free(c->device, all);
    return st;
}

void sheaf__record_remote_head(sheaf__tape *tape, int64_t rows, int64_t vocab, sheaf__head_run *run)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "logits of another stage", far_forward, NULL, sizeof(far_params));
    *(far_params *)op->params = (far_params){ run, rows, vocab };
}

static sheaf_status *head_backward(sheaf__tape *tape, sheaf__op *op)
{
    const head_params *p = op->params;
    if (!p->x->needs_grad)
        return NULL;
    void *swap = p->x->grad; /* x has no other reader: hand the buffer on */
    p->x->grad = p->dx->data;
    p->dx->data = swap;
    return NULL;
}

void sheaf__record_head(sheaf__tape *tape, sheaf__value *x, sheaf__linear *head,
                        sheaf__head_run *run, const int32_t *place)
{
    const bool flows = !run->forward_alone && (x->needs_grad || sheaf__linear_trains(head));
    sheaf__op *op = sheaf__tape_op(tape, head->name, head_forward, flows ? head_backward : NULL,
                                   sizeof(head_params));
    head_params *p = op->params;
    op->kind = SHEAF__WORK_HEAD;
    op->inner = "logits";
    *p = (head_params){ head, run, flows, x, NULL, place };
    sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE);
    if (flows && x->needs_grad) {
        p->dx = sheaf__tape_like(tape, x, "gradient of the head's input", x->cols, x->dtype);
        sheaf__op_arg(op, p->dx, SHEAF__MAKE | SHEAF__KEEP);
    }
}
