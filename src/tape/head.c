/* head.c - see head.h. */
#include "tape/head.h"

#include <math.h>

#include "base/base.h"
#include "ops/math/math.h"
#include "tape/transfer.h"
#include "tape/layers.h"
#include "tape/linear_inner.h"
#include "tape/rows.h"
#include "tape/head_rows.h"

typedef struct head_params {
    sheaf__linear *head;
    sheaf__head_run *run;
    bool training;
    sheaf__value *x, *dx; /* dx: gradient of x, made in forward, NULL when x needs none */
    sheaf__value *place;  /* NULL: x has all rows */
} head_params;

typedef struct far_params {
    sheaf__head_run *run;
    int64_t rows, vocab;
} far_params;

/* Buffers of one block of rows. */
typedef struct block {
    sheaf__context *c;
    const head_params *p;
    int64_t n, most;               /* rows in this block, in the largest */
    int64_t from, to;              /* which are among these candidates */
    int32_t *row;                  /* [n] their numbers */
    int32_t *label;                /* [n] */
    int32_t at[SHEAF__HEAD_BLOCK]; /* [n] the rows of x that they are */
    sheaf__value x_value, h_value; /* x, with dx, and h as values */
    void *x;                       /* [n, hidden] gathered */
    void *h;                       /* [n, rank] LoRA's inner value or NULL */
    float *logits;                 /* [n, owned] */
    void *dlogits;                 /* [n, owned] compute dtype */
    void *dx;                      /* [n, hidden] */
    float *max, *target;           /* [n] */
    float *sums;                   /* [slices, n] per-slice sums; the total ends in *total */
    float *logit_sums; /* [slices, n] the same of the logits themselves, for smoothing */
    float *total, *logit_total;
    float *first; /* [n] minus the column of the first largest logit, to judge */
    float *all;   /* gathered logits of all ranks, when wanted */
    bool over;    /* dlogits lie where the logits do */
} block;

static void give_block(block *b)
{
    if (b->over)
        b->dlogits = NULL;
    void *const held[] = { b->row, b->label,  b->x,    b->h,          b->logits, b->dlogits, b->dx,
                           b->max, b->target, b->sums, b->logit_sums, b->first,  b->all };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sheaf__free(b->c, held[i]);
}

static bool smooths(const sheaf__head_run *run)
{
    return run->smoothing > 0;
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

/* Rows of the largest block, at most: in whole units, so that a dry device that knows no more than
 * those of the data comes to the same number. */
static int64_t most_rows(const head_params *p)
{
    const int64_t n =
        p->run->pick != NULL ? p->run->npick : sheaf__head_rows_count(p->x->rows, p->run);
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
        { &b->row, whole * 4, true },
        { &b->label, whole * 4, true },
        { &b->x, rows * in * one, true },
        { &b->h, rows * (size_t)(l->lora == NULL ? 0 : l->lora->rank) * one, l->lora != NULL },
        { &b->logits, rows * owned * 4, true },
        { &b->dlogits, rows * owned * one, training && !writes_over(b) },
        { &b->dx, rows * in * one, b->p->dx != NULL },
        { &b->max, whole * 4, true },
        { &b->target, whole * 4, true },
        { &b->sums, whole * 4 * SHEAF_MAX_SLICES, true },
        { &b->logit_sums, whole * 4 * SHEAF_MAX_SLICES, smooths(b->p->run) },
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

/* ---- per-row work, spread over threads ---- */

static void max_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    block *b = arg;
    const sheaf__linear *l = b->p->head;
    if (l->owned > 0)
        b->c->device->kernels->row_max(b->max + begin, b->logits + begin * l->owned, l->owned,
                                       end - begin, l->owned);
    else
        for (int64_t i = begin; i < end; i++)
            b->max[i] = -INFINITY;
}

static void sum_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    block *b = arg;
    const sheaf__linear *l = b->p->head;
    for (int s = l->first; s < l->first + l->count; s++)
        if (l->extent[s] > 0)
            b->c->device->kernels->row_sumexp(
                b->sums + (int64_t)(s - l->first) * SHEAF__HEAD_BLOCK + begin,
                b->logits + begin * l->owned + l->begin[s], l->owned, b->max + begin, end - begin,
                l->extent[s]);
    for (int s = l->first; s < l->first + l->count && smooths(b->p->run); s++)
        if (l->extent[s] > 0)
            b->c->device->kernels->layernorm_sum(
                b->logit_sums + (int64_t)(s - l->first) * SHEAF__HEAD_BLOCK + begin,
                b->logits + begin * l->owned + l->begin[s], l->owned, end - begin, l->extent[s],
                SHEAF_F32);
}

static void gradient_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    block *b = arg;
    const sheaf__linear *l = b->p->head;
    int32_t target[SHEAF__HEAD_BLOCK];
    for (int64_t i = begin; i < end; i++) /* owned columns are one run of the vocabulary */
        target[i - begin] = b->label[i] < 0 ? SHEAF__IGNORED : b->label[i] - (int32_t)l->logical0;
    const sheaf__head_run *run = b->p->run;
    void *d = sheaf__at(b->dlogits, begin * l->owned, b->c->dtype);
    const float *logits = b->logits + begin * l->owned;
    const sheaf__smoothing how = { run->gradient_scale, (float)(1 - run->smoothing),
                                   (float)(run->smoothing / (double)l->out) };
    b->c->device->kernels->row_dlogits(d, l->owned, logits, l->owned, b->max + begin,
                                       b->total + begin, target, &how, end - begin, l->owned,
                                       b->c->dtype);
}

/* Infinity, of which the cap would make a number, is none. */
static void cap_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const block *b = arg;
    const sheaf__linear *l = b->p->head;
    float *logits = b->logits + begin * l->owned;
    const int64_t n = (end - begin) * l->owned;
    for (int64_t i = 0; i < n; i++)
        logits[i] = isinf(logits[i]) ? NAN : logits[i];
    b->c->device->kernels->softcap(logits, l->cap, n, b->c->dtype);
}

static void cap_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const block *b = arg;
    const sheaf__linear *l = b->p->head;
    b->c->device->kernels->softcap_back(sheaf__at(b->dlogits, begin * l->owned, b->c->dtype),
                                        b->logits + begin * l->owned, l->cap,
                                        (end - begin) * l->owned, b->c->dtype);
}

/* ---- one block ---- */

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
                                 .grad_fresh = true };
    b->h_value = (sheaf__value){ .rows = b->n, .cols = rank, .dtype = t, .data = b->h };
    sheaf__value y = { .rows = b->n, .cols = l->owned, .dtype = SHEAF_F32, .data = b->logits };
    sheaf_status *st = sheaf__columns_forward(b->c, &y, &b->x_value, &b->h_value, b->p->head);
    if (st == NULL && l->cap > 0)
        sheaf__rows(b->c, b->n, 16, cap_rows, b);
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
    sheaf__rows(c, b->n, 16, max_rows, b);
    sheaf_status *st = c->comm == NULL ? NULL : sheaf_comm_max(c->comm, b->max, b->n);
    if (st != NULL)
        return st;
    sheaf__rows(c, b->n, 16, sum_rows, b);
    st = sum_slices(b, b->sums, &b->total);
    return st == NULL && smooths(b->p->run) ? sum_slices(b, b->logit_sums, &b->logit_total) : st;
}

/* Labels of the block's rows that are known on the dry device; NULL: none are. */
static const int32_t *known_labels(const block *b, int32_t *label)
{
    const sheaf__head_run *run = b->p->run;
    int64_t n = 0;
    if (run->unknown)
        return NULL;
    for (int64_t i = b->from; i < b->to; i++)
        if (run->all_rows || run->label[i] != SHEAF__IGNORED)
            label[n++] = run->label[i];
    return label;
}

static sheaf_status *block_targets(block *b)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    const bool dry = c->device->class->counts;
    const sheaf_cut cut = { .slices = c->slices, .nparts = 1, .part = { { l->out, 1 } } };
    int32_t owner[SHEAF__HEAD_BLOCK], label[SHEAF__HEAD_BLOCK];
    sheaf__owners(c, owner, &cut, dry ? known_labels(b, label) : b->label, b->n);
    for (int64_t i = 0; i < b->n && !dry; i++)
        b->target[i] = b->label[i] >= 0 && owner[i] == c->rank
                           ? b->logits[i * l->owned + b->label[i] - l->logical0]
                           : 0;
    return c->comm == NULL ? NULL
                           : sheaf_comm_select(c->comm, b->target, sizeof(float), b->n, owner);
}

static void first_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    block *b = arg;
    const sheaf__linear *l = b->p->head;
    for (int64_t i = begin; i < end; i++) {
        const float *x = b->logits + i * l->owned;
        int64_t c = 0;
        while (c < l->owned && x[c] != b->max[i])
            c++;
        b->first[i] = c < l->owned ? -(float)(l->logical0 + c) : -INFINITY;
    }
}

/* Where the first largest logit of every row is, over all ranks: a maximum again, of numbers that a
 * float32 holds, as a vocabulary has fewer than 2^24 words. */
static sheaf_status *block_first(block *b)
{
    sheaf__rows(b->c, b->n, 16, first_rows, b);
    return b->c->comm == NULL ? NULL : sheaf_comm_max(b->c->comm, b->first, b->n);
}

static void add_losses(block *b)
{
    sheaf__head_run *run = b->p->run;
    for (int64_t i = 0; i < b->n && !b->c->device->class->counts; i++) {
        if (b->label[i] < 0)
            continue;
        const float whole = sheaf__log(b->total[i]) + b->max[i];
        float loss = whole - b->target[i];
        if (smooths(run)) {
            const float even = whole - b->logit_total[i] / (float)b->p->head->out;
            loss = (float)(1 - run->smoothing) * loss + (float)run->smoothing * even;
        }
        run->loss_sum += (double)loss;
        run->labels++;
        run->correct += run->judge && b->first[i] == -(float)b->label[i];
    }
}

static sheaf_status *block_gradients(block *b)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    sheaf__rows(c, b->n, 16, gradient_rows, b);
    if (l->cap > 0)
        sheaf__rows(c, b->n, 16, cap_back_rows, b);
    sheaf__value y = { .rows = b->n, .cols = l->owned, .dtype = c->dtype, .grad = b->dlogits };
    sheaf__set_purpose(c, SHEAF__TRAFFIC_BACKWARD);
    sheaf_status *st = sheaf__columns_backward(c, &y, &b->x_value, &b->h_value, b->p->head);
    sheaf__set_purpose(c, SHEAF__TRAFFIC_FORWARD);
    if (st == NULL && b->p->x->needs_grad)
        sheaf__scatter(c, b->p->dx->data, b->dx, sheaf__row_map_listed(b->at, b->p->x->rows), b->n,
                       l->in, false);
    return st;
}

/* To the other stages too. */
static sheaf_status *give_rows(sheaf__context *c, const sheaf__head_run *run, int64_t done,
                               const int32_t *row, int64_t n, float *logits, int64_t vocab)
{
    sheaf_status *st =
        c->stages > 1
            ? sheaf__transfer(c, logits, (size_t)(n * vocab) * sizeof(float), c->head_stage)
            : NULL;
    return st == NULL ? run->take(run->self, done, row, n, logits) : st;
}

static sheaf_status *give_loss(sheaf__context *c, sheaf__head_run *run)
{
    double loss[3] = { run->loss_sum, (double)run->labels, (double)run->correct };
    sheaf_status *st = sheaf__transfer(c, loss, sizeof loss, c->head_stage);
    run->loss_sum = loss[0];
    run->labels = (int64_t)loss[1];
    run->correct = (int64_t)loss[2];
    return st;
}

/* Full rows on every rank: each rank's columns one rank after the other, then put side by side. */
static sheaf_status *block_take(block *b, int64_t done)
{
    sheaf__context *c = b->c;
    const sheaf__linear *l = b->p->head;
    const sheaf__head_run *run = b->p->run;
    const bool dry = c->device->class->counts;
    if (c->comm == NULL)
        return give_rows(c, run, done, b->row, b->n, b->logits, l->out);
    const sheaf_cut cut = { .slices = c->slices, .nparts = 1, .part = { { l->out, 1 } } };
    size_t size[SHEAF_MAX_SLICES];
    float *at = b->all, *full = b->all + b->most * l->out;
    int64_t cols[SHEAF_MAX_SLICES];
    for (int r = 0; r < c->ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(c->slices, c->ranks, r);
        cols[r] = 0;
        for (int64_t s = own.begin; s < own.end; s++)
            cols[r] += sheaf_cut_slice_rows(&cut, (int)s);
        size[r] = (size_t)(cols[r] * b->n) * sizeof(float);
        if (r == c->rank && !dry)
            memcpy(at, b->logits, size[r]);
        at += cols[r] * b->n;
    }
    sheaf_status *st = sheaf_comm_gather(c->comm, b->all, size);
    if (st != NULL)
        return st;
    at = b->all;
    for (int64_t r = 0, col = 0; r < c->ranks && !dry; col += cols[r++])
        for (int64_t i = 0; i < b->n; i++, at += cols[r])
            memcpy(full + i * l->out + col, at, (size_t)cols[r] * sizeof(float));
    return give_rows(c, run, done, b->row, b->n, full, l->out);
}

static sheaf_status *run_block(sheaf__tape *tape, block *b, bool training, int64_t done)
{
    const sheaf__head_run *run = b->p->run;
    sheaf__gather(b->c, b->x, b->p->x->data, sheaf__row_map_listed(b->at, b->p->x->rows), b->n,
                  b->p->head->in, false);
    sheaf_status *st = block_logits(b);
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
    if (st == NULL && training)
        st = block_gradients(b);
    if (st == NULL && run->take != NULL)
        st = block_take(b, done);
    return st;
}

/* On dry every full block is as the one before it: what it cost is counted as often as there are
 * more. Returns the first candidate behind them. */
static int64_t count_rest(sheaf__context *c, int64_t i, int64_t candidates,
                          const sheaf__costs *before)
{
    const int64_t rest = (candidates - i) / SHEAF__HEAD_BLOCK;
    sheaf__costs_repeat(c, before, rest);
    return i + rest * SHEAF__HEAD_BLOCK;
}

/* The rows of the next block, from candidate i on; returns the one to go on from. */
static int64_t next_block(block *b, const sheaf__head_run *run, int64_t i, int64_t candidates,
                          bool dry)
{
    const int32_t *labels = run->label;
    b->from = i;
    if (run->unknown) {
        b->n = candidates - i < SHEAF__HEAD_BLOCK ? candidates - i : SHEAF__HEAD_BLOCK;
        return i + b->n;
    }
    for (b->n = 0; i < candidates && b->n < SHEAF__HEAD_BLOCK; i++) {
        const int32_t row = dry || run->pick == NULL ? (int32_t)i : run->pick[i];
        const int32_t label = labels == NULL ? SHEAF__IGNORED : labels[row];
        if (!run->all_rows && label == SHEAF__IGNORED)
            continue;
        if (!dry) {
            const sheaf__value *place = b->p == NULL ? NULL : b->p->place;
            b->row[b->n] = row;
            b->label[b->n] = label;
            b->at[b->n] = place == NULL ? row : ((const int32_t *)place->data)[row];
        }
        b->n++;
    }
    b->to = i;
    return i;
}

static sheaf_status *head_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const head_params *p = op->params;
    sheaf__head_run *run = p->run;
    const bool training = p->training, dry = c->device->class->counts;
    block b = { .c = c, .p = p };
    sheaf_status *st = take_block(&b, training, run->take != NULL);
    run->loss_sum = 0;
    run->labels = run->correct = 0;
    if (p->dx != NULL)
        sheaf__clear(c, p->dx->data, sheaf__rows_present(p->x) * p->x->cols, c->dtype);
    const int64_t candidates = candidates_of(run, p->x->rows);
    int64_t done = 0;
    for (int64_t i = 0; i < candidates && st == NULL;) {
        sheaf__costs before;
        sheaf__costs_of(&before, c);
        i = next_block(&b, run, i, candidates, dry);
        if (b.n > 0)
            st = run_block(tape, &b, training, done);
        done += b.n;
        if (run->unknown && b.n == SHEAF__HEAD_BLOCK)
            i = count_rest(c, i, candidates, &before);
    }
    if (st == NULL && c->stages > 1)
        st = give_loss(c, run);
    give_block(&b);
    return st;
}

/* Where another stage computes: the blocks as it has them. */
static sheaf_status *far_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const far_params *p = op->params;
    sheaf__head_run *run = p->run;
    const int64_t candidates = candidates_of(run, p->rows),
                  most = candidates < SHEAF__HEAD_BLOCK ? candidates : SHEAF__HEAD_BLOCK;
    const bool dry = c->device->class->counts, takes = run->take != NULL;
    block b = { .c = c };
    sheaf_status *st = takes ? sheaf__alloc(&b.all, c, (size_t)(most * p->vocab) * sizeof(float),
                                            SHEAF_MEM_SCRATCH)
                             : NULL;
    TRY(st, sheaf__alloc(&b.row, c, SHEAF__HEAD_BLOCK * sizeof *b.row, SHEAF_MEM_SCRATCH));
    TRY(st, sheaf__alloc(&b.label, c, SHEAF__HEAD_BLOCK * sizeof *b.label, SHEAF_MEM_SCRATCH));
    for (int64_t i = 0, done = 0; i < candidates && st == NULL && takes && !dry; done += b.n) {
        i = next_block(&b, run, i, candidates, false);
        if (b.n > 0)
            st = give_rows(c, run, done, b.row, b.n, b.all, p->vocab);
    }
    TRY(st, give_loss(c, run));
    give_block(&b);
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
                        sheaf__head_run *run, sheaf__value *place)
{
    const bool flows = x->needs_grad || sheaf__linear_trains(head);
    sheaf__op *op = sheaf__tape_op(tape, head->name, head_forward, flows ? head_backward : NULL,
                                   sizeof(head_params));
    head_params *p = op->params;
    op->kind = SHEAF__WORK_HEAD;
    op->inner = "logits";
    *p = (head_params){ head, run, flows, x, NULL, place };
    sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE);
    if (place != NULL)
        sheaf__op_arg(op, place, SHEAF__READ);
    if (x->needs_grad) {
        p->dx = sheaf__tape_like(tape, x, "gradient of the head's input", x->cols, x->dtype);
        sheaf__op_arg(op, p->dx, SHEAF__MAKE | SHEAF__KEEP);
    }
}
