/* mixture.c - see mixture.h. */
#include "tape/mixture.h"

#include "tape/rows.h"
#include "tape/head_rows.h"

/* ---- the choice ---- */

typedef struct choice_params {
    sheaf__value *logits, *weights, *all; /* all: NULL where nothing reads it */
    int64_t top_k;
    bool of_all;
    sheaf__balance *balance; /* or NULL */
} choice_params;

static sheaf__choice choice_of(const sheaf__context *c, const choice_params *p)
{
    return (sheaf__choice){ .logits = p->logits->data,
                            .weights = p->weights->data,
                            .all = p->all == NULL ? NULL : p->all->data,
                            .of_all = p->of_all,
                            .rows = sheaf__rows_present(p->logits),
                            .experts = p->logits->cols,
                            .top_k = p->top_k,
                            .dtype = c->dtype };
}

static sheaf_status *choice_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__op_choice(c->device, choice_of(c, op->params));
    return NULL;
}

/* With the gradient that the router's own loss gives the probabilities. */
static sheaf_status *choice_back_balanced(sheaf__context *c, const sheaf__balance *b,
                                          sheaf__choice choice)
{
    const size_t bytes = (size_t)b->experts * sizeof(float);
    float *add, *host = NULL;
    sheaf_status *st = sheaf__alloc(&add, c, bytes, SHEAF_MEM_SCRATCH);
    if (st != NULL)
        return st;
    st = sheaf__borrow(&host, c->device, add, bytes, false);
    if (host != NULL)
        sheaf__balance_gradient(host, b);
    st = sheaf__first_of(st, sheaf__return(host, c->device, add, bytes, true));
    choice.add = add;
    choice.mask = b->in->key_mask;
    choice.queries = b->queries;
    choice.mask_ld = b->in->mask_ld;
    if (st == NULL)
        sheaf__op_choice_back(c->device, choice);
    sheaf__free(c, add);
    return st;
}

/* The logits are read here alone, so that their gradient is always fresh. */
static sheaf_status *choice_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const choice_params *p = op->params;
    sheaf__choice choice = choice_of(c, p);
    choice.logits = p->logits->grad;
    choice.grad = p->weights->grad;
    if (p->balance != NULL)
        return choice_back_balanced(c, p->balance, choice);
    sheaf__op_choice_back(c->device, choice);
    return NULL;
}

sheaf__value *sheaf__record_router(sheaf__tape *tape, sheaf__value *logits, int64_t top_k,
                                   bool of_all, sheaf__balance *balance, int64_t layer)
{
    const bool flows = logits->needs_grad, reads_all = (of_all && flows) || balance != NULL;
    sheaf__op *op = sheaf__tape_op(tape, "choice of experts", choice_forward,
                                   flows ? choice_backward : NULL, sizeof(choice_params));
    sheaf__value *weights =
        sheaf__tape_like(tape, logits, "weights of experts", logits->cols, SHEAF_F32);
    sheaf__value *all = reads_all ? sheaf__tape_like(tape, logits, "probabilities of experts",
                                                     logits->cols, SHEAF_F32)
                                  : NULL;
    *(choice_params *)op->params = (choice_params){ logits, weights, all, top_k, of_all, balance };
    weights->needs_grad = flows;
    sheaf__op_arg(op, logits, SHEAF__READ | SHEAF__GRAD_WRITE);
    sheaf__op_arg(op, weights, SHEAF__MAKE | SHEAF__KEEP | SHEAF__GRAD_READ);
    if (all != NULL)
        sheaf__op_arg(op, all, SHEAF__MAKE | SHEAF__KEEP);
    if (balance != NULL)
        sheaf__record_balance(tape, balance, layer, weights, all);
    return weights;
}

/* ---- the sum ---- */

static sheaf_status *nothing_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *sum = op->arg[0].value;
    sheaf__op_zero(sheaf__tape_context(tape)->device, sum->data, sum->rows * sum->cols, sum->dtype);
    return NULL;
}

static sheaf_status *nothing_backward(sheaf__tape *tape, sheaf__op *op)
{
    return NULL;
}

sheaf__value *sheaf__record_mixture(sheaf__tape *tape, int64_t rows, int64_t cols, bool flows)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "sum of experts", nothing_forward, flows ? nothing_backward : NULL, 0);
    sheaf__value *sum =
        sheaf__tape_value(tape, "sum of experts", rows, cols, sheaf__tape_context(tape)->dtype);
    return sheaf__op_makes(op, sum, NULL, 0);
}

typedef struct list_params {
    sheaf__value *which, *weights;
    int64_t expert, count; /* rows that took it in this run; on dry a bound */
    sheaf__row_blocks blocks;
    int64_t *begin; /* of the blocks, where rows are summed; else NULL */
} list_params;

/* Rows of one block, which[0..n), ascending. A chain by pairs takes of each pair the odd row first;
 * rows 0, 1, 2, ... of the rest are taken as 1, 0, 3, 2, ... again. */
static void order_by_pairs(int32_t *which, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i++)
        if (which[i] % 2 == 0 && which[i + 1] == which[i] + 1) {
            const int32_t even = which[i];
            which[i] = which[i + 1];
            which[++i] = even;
        }
    for (int64_t i = 0; i + 1 < n; i += 2) {
        const int32_t first = which[i];
        which[i] = which[i + 1];
        which[i + 1] = first;
    }
}

/* Without weights, on dry, the bound stays. */
static void list_rows(list_params *p, int32_t *which, const float *weights, const sheaf__context *c)
{
    if (weights == NULL || which == NULL)
        return;
    p->count = 0;
    for (int64_t r = 0; r < p->weights->rows; r++)
        if (weights[r * p->weights->cols + p->expert] != 0)
            which[p->count++] = (int32_t)r;
    p->blocks.n = p->begin == NULL ? 0 : sheaf__blocks_fill(p->begin, which, p->count, c);
    for (int64_t k = 0; k < p->blocks.n && c->dtype == SHEAF_BF16; k++)
        order_by_pairs(which + p->begin[k], p->begin[k + 1] - p->begin[k]);
}

/* Every rank has the same weights, and so the same rows. The host lists them. */
static sheaf_status *list_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    list_params *p = op->params;
    void *const list = p->which->data, *const weights_at = p->weights->data;
    const size_t rows = (size_t)p->weights->rows, bytes = rows * sizeof(int32_t),
                 bytes_of_weights = rows * (size_t)p->weights->cols * sizeof(float);
    int32_t *which = NULL;
    float *weights = NULL;
    sheaf_status *st = sheaf__borrow(&which, c->device, list, bytes, false);
    TRY(st, sheaf__borrow(&weights, c->device, weights_at, bytes_of_weights, true));
    list_rows(p, which, weights, c);
    st =
        sheaf__first_of(st, sheaf__return(weights, c->device, weights_at, bytes_of_weights, false));
    return sheaf__first_of(st, sheaf__return(which, c->device, list, bytes, st == NULL));
}

sheaf__value *sheaf__record_expert_rows(sheaf__tape *tape, sheaf__value **which, sheaf__value *x,
                                        sheaf__value *weights, int64_t expert, int64_t unknown,
                                        bool summed)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "rows of an expert", list_forward, NULL, sizeof(list_params));
    list_params *p = op->params;
    *which = sheaf__tape_value(tape, op->name, x->rows, 1, SHEAF_F32);
    *p = (list_params){ .which = *which,
                        .weights = weights,
                        .expert = expert,
                        .count = unknown,
                        .begin = summed ? sheaf__blocks_alloc(tape, x->rows) : NULL };
    p->blocks = (sheaf__row_blocks){ 0, p->begin, true };
    (*which)->there = &p->count;
    sheaf__op_arg(op, weights, SHEAF__READ);
    sheaf__op_arg(op, *which, SHEAF__MAKE);
    return sheaf__record_index_select(
        tape, &(sheaf__head_rows){ *which, NULL, &p->count, &p->blocks }, x);
}

int64_t sheaf__expert_rows(int64_t rows, int64_t top_k, int64_t experts, int64_t expert)
{
    const int64_t others = experts - 1, rest = (top_k - 1) * rows;
    return expert == others ? rows : (rest + others - 1) / others;
}

typedef struct share_params {
    sheaf__value *sum, *y, *which, *weights;
    int64_t expert;
} share_params;

/* Forward; backward the gradients are those of what needs them. */
static sheaf__share share_of(const sheaf__context *c, const share_params *p)
{
    return (sheaf__share){ .sum = p->sum->data,
                           .y = p->y->data,
                           .which = p->which == NULL ? NULL : p->which->data,
                           .weights = p->weights->data,
                           .rows = sheaf__rows_present(p->y),
                           .wide = p->sum->rows,
                           .cols = p->sum->cols,
                           .experts = p->weights->cols,
                           .expert = p->expert,
                           .dtype = c->dtype };
}

static sheaf_status *share_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    sheaf__op_share(c->device, share_of(c, op->params));
    return NULL;
}

/* An expert's output is read here alone, so that its gradient is always fresh. */
static sheaf_status *share_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const share_params *p = op->params;
    const sheaf__value *w = p->weights;
    sheaf__share share = share_of(c, p);
    share.sum = p->sum->grad;
    share.dy = p->y->needs_grad ? p->y->grad : NULL;
    share.dweights = w->needs_grad ? w->grad : NULL;
    if (share.dweights == NULL)
        share.y = NULL;
    else if (w->grad_fresh) /* each expert writes its own column */
        sheaf__op_zero(c->device, w->grad, w->rows * w->cols, SHEAF_F32);
    sheaf__op_share_back(c->device, share);
    return NULL;
}

void sheaf__record_add_expert(sheaf__tape *tape, sheaf__value *sum, sheaf__value *y,
                              sheaf__value *which, sheaf__value *weights, int64_t expert)
{
    const bool flows = y->needs_grad || weights->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "share of an expert", share_forward,
                                   flows ? share_backward : NULL, sizeof(share_params));
    *(share_params *)op->params = (share_params){ sum, y, which, weights, expert };
    sheaf__op_arg(op, sum, SHEAF__CHANGE | SHEAF__GRAD_CHANGE);
    sheaf__op_arg(op, y, SHEAF__READ | SHEAF__GRAD_WRITE | (weights->needs_grad ? SHEAF__KEEP : 0));
    if (which != NULL)
        sheaf__op_arg(op, which, SHEAF__READ | SHEAF__KEEP);
    sheaf__op_arg(op, weights, SHEAF__READ | SHEAF__KEEP | SHEAF__GRAD_WRITE);
}

static sheaf_status *mixed_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *sum = op->arg[0].value, *residual = op->arg[1].value;
    sheaf__op_accumulate(sheaf__tape_context(tape)->device, sum->data, residual->data,
                         sum->rows * sum->cols, sum->dtype);
    return NULL;
}

static sheaf_status *mixed_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const sheaf__value *sum = op->arg[0].value, *residual = op->arg[1].value;
    sheaf__copy(c, residual->grad, sum->grad, sum->rows * sum->cols, !residual->grad_fresh);
    return NULL;
}

void sheaf__record_mixture_end(sheaf__tape *tape, sheaf__value *sum, sheaf__value *residual)
{
    sheaf__op *op = sheaf__tape_op(tape, "sum of experts", mixed_forward,
                                   residual->needs_grad ? mixed_backward : NULL, 0);
    sheaf__op_arg(op, sum, SHEAF__CHANGE | SHEAF__GRAD_CHANGE);
    sheaf__op_arg(op, residual, SHEAF__READ | SHEAF__GRAD_WRITE);
}
