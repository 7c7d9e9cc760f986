/* mixture.c - see mixture.h. */
#include "tape/mixture.h"

#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "tape/rows.h"
#include "tape/head_rows.h"

enum { PART = 256 };

/* ---- the choice ---- */

typedef struct choice_params {
    sheaf__value *logits, *weights;
    int64_t top_k;
} choice_params;

/* p = softmax(x), in place; NaN stays NaN. */
static void softmax(float *x, int64_t n)
{
    float most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)sheaf__exp_d((double)(x[i] - most));
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* Marks the `top_k` largest of w by a minus sign, gives their sum. */
static float choose(float *w, int64_t n, int64_t top_k)
{
    float sum = 0;
    for (int64_t k = 0; k < top_k; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (!signbit(w[i]) && (best < 0 || w[i] > w[best]))
                best = i;
        sum += w[best];
        w[best] = -w[best];
    }
    return sum;
}

static void choice_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const choice_params *p = a->params;
    const int64_t n = p->logits->cols;
    for (int64_t r = begin; r < end; r++) {
        float *w = (float *)p->weights->data + r * n;
        a->c->device->kernels->widen(w, sheaf__at(p->logits->data, r * n, a->c->dtype), a->c->dtype,
                                     n);
        softmax(w, n);
        for (int64_t i = 0; i < n; i++)
            w[i] = fabsf(w[i]); /* of NaN too: the sign is the mark */
        const float sum = choose(w, n, p->top_k);
        for (int64_t i = 0; i < n; i++)
            w[i] = signbit(w[i]) ? -w[i] / sum : 0;
    }
}

/* The logits are read here alone, so that their gradient is always fresh. */
static void choice_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const choice_params *p = a->params;
    const int64_t n = p->logits->cols;
    for (int64_t r = begin; r < end; r++) {
        const float *w = (const float *)p->weights->data + r * n;
        float *d = (float *)p->weights->grad + r * n, mean = 0;
        for (int64_t i = 0; i < n; i++)
            mean += w[i] * d[i];
        for (int64_t i = 0; i < n; i++)
            d[i] = w[i] * (d[i] - mean);
        a->c->device->kernels->round(sheaf__at(p->logits->grad, r * n, a->c->dtype), a->c->dtype, d,
                                     n);
    }
}

sheaf__value *sheaf__record_router(sheaf__tape *tape, sheaf__value *logits, int64_t top_k)
{
    sheaf__op *op = sheaf__tape_each(tape, "choice of experts", sizeof(choice_params), logits, 32,
                                     choice_rows, logits->needs_grad ? choice_back_rows : NULL);
    sheaf__value *weights =
        sheaf__tape_like(tape, logits, "weights of experts", logits->cols, SHEAF_F32);
    *(choice_params *)op->params = (choice_params){ logits, weights, top_k };
    weights->needs_grad = logits->needs_grad;
    sheaf__op_arg(op, logits, SHEAF__READ | SHEAF__GRAD_WRITE);
    sheaf__op_arg(op, weights, SHEAF__MAKE | SHEAF__KEEP | SHEAF__GRAD_READ);
    return weights;
}

/* ---- the sum ---- */

static sheaf_status *nothing_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *sum = op->arg[0].value;
    sheaf__clear(sheaf__tape_context(tape), sum->data, sum->rows * sum->cols, sum->dtype);
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
    int64_t expert, count; /* rows that took it in this run; on dry all */
    sheaf__row_blocks blocks;
    int64_t *begin; /* of the blocks, where rows are summed; else NULL */
} list_params;

/* Rows of one block, which[0..n), ascending. A chain by pairs takes of each pair the odd row first;
 * rows 0, 1, 2, ... of what is left are taken as 1, 0, 3, 2, ... again. */
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

/* Every rank has the same weights, and so the same rows. */
static sheaf_status *list_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    list_params *p = op->params;
    if (c->device->class->counts)
        return NULL;
    int32_t *which = p->which->data;
    p->count = 0;
    for (int64_t r = 0; r < p->weights->rows; r++)
        if (((const float *)p->weights->data)[r * p->weights->cols + p->expert] != 0)
            which[p->count++] = (int32_t)r;
    p->blocks.n = p->begin == NULL ? 0 : sheaf__blocks_fill(p->begin, which, p->count);
    for (int64_t k = 0; k < p->blocks.n && c->dtype == SHEAF_BF16; k++)
        order_by_pairs(which + p->begin[k], p->begin[k + 1] - p->begin[k]);
    return NULL;
}

sheaf__value *sheaf__record_expert_rows(sheaf__tape *tape, sheaf__value **which, sheaf__value *x,
                                        sheaf__value *weights, int64_t expert, bool summed)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "rows of an expert", list_forward, NULL, sizeof(list_params));
    list_params *p = op->params;
    *which = sheaf__tape_value(tape, op->name, x->rows, 1, SHEAF_F32);
    *p = (list_params){ .which = *which,
                        .weights = weights,
                        .expert = expert,
                        .count = x->rows,
                        .begin = summed ? sheaf__blocks_alloc(tape, x->rows) : NULL };
    p->blocks.begin = p->begin;
    (*which)->there = &p->count;
    sheaf__op_arg(op, weights, SHEAF__READ);
    sheaf__op_arg(op, *which, SHEAF__MAKE);
    return sheaf__record_index_select(
        tape, &(sheaf__head_rows){ *which, NULL, &p->count, summed ? &p->blocks : NULL }, x);
}

typedef struct share_params {
    sheaf__value *sum, *y, *which, *weights;
    int64_t expert;
} share_params;

/* to = round(w * from), n elements of `dtype` */
static void scaled(const sheaf__context *c, void *to, const void *from, float w, int64_t n)
{
    float part[PART];
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < PART ? n - at : PART;
        c->device->kernels->widen(part, sheaf__at(from, at, c->dtype), c->dtype, m);
        c->device->kernels->scale(part, w, m);
        c->device->kernels->round(sheaf__at(to, at, c->dtype), c->dtype, part, m);
    }
}

static float weight_of(const share_params *p, int64_t row)
{
    return ((const float *)p->weights->data)[row * p->weights->cols + p->expert];
}

/* The row of the sequences that is row i of y. */
static int64_t row_of(const share_params *p, int64_t i)
{
    return p->which == NULL ? i : ((const int32_t *)p->which->data)[i];
}

static void share_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const share_params *p = a->params;
    const int64_t cols = p->sum->cols;
    const sheaf_dtype t = a->c->dtype;
    float part[PART]; /* space for any dtype */
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = row_of(p, i);
        const float w = weight_of(p, r);
        for (int64_t at = 0, n; at < cols && w != 0; at += n) {
            n = cols - at < PART ? cols - at : PART;
            scaled(a->c, part, sheaf__at(p->y->data, i * cols + at, t), w, n);
            a->c->device->kernels->accumulate(sheaf__at(p->sum->data, r * cols + at, t), part, n,
                                              t);
        }
    }
}

/* Sum of a * b, each product and sum in double, in ascending order. */
static float dot(const sheaf__context *c, const void *a, const void *b, int64_t n)
{
    float left[PART], right[PART];
    double sum = 0;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < PART ? n - at : PART;
        c->device->kernels->widen(left, sheaf__at(a, at, c->dtype), c->dtype, m);
        c->device->kernels->widen(right, sheaf__at(b, at, c->dtype), c->dtype, m);
        for (int64_t i = 0; i < m; i++)
            sum += (double)left[i] * right[i];
    }
    return (float)sum;
}

static void share_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const share_params *p = a->params;
    const int64_t cols = p->sum->cols, experts = p->weights->cols;
    const sheaf_dtype t = a->c->dtype;
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = row_of(p, i);
        const float w = weight_of(p, r);
        const void *ds = sheaf__at(p->sum->grad, r * cols, t);
        if (p->weights->needs_grad)
            ((float *)p->weights->grad)[r * experts + p->expert] =
                w != 0 ? dot(a->c, sheaf__at(p->y->data, i * cols, t), ds, cols) : 0;
        if (!p->y->needs_grad)
            continue;
        if (w != 0)
            scaled(a->c, sheaf__at(p->y->grad, i * cols, t), ds, w, cols);
        else
            memset(sheaf__at(p->y->grad, i * cols, t), 0, (size_t)cols * sheaf_dtype_bytes(t));
    }
}

/* What an expert made is read here alone, so that its gradient is always fresh. */
static sheaf_status *share_backward(sheaf__tape *tape, sheaf__op *op)
{
    const share_params *p = op->params;
    if (p->weights->needs_grad && p->weights->grad_fresh) /* each expert writes its own column */
        sheaf__clear(sheaf__tape_context(tape), p->weights->grad,
                     p->weights->rows * p->weights->cols, SHEAF_F32);
    return sheaf__op_each(tape, op, true);
}

void sheaf__record_add_expert(sheaf__tape *tape, sheaf__value *sum, sheaf__value *y,
                              sheaf__value *which, sheaf__value *weights, int64_t expert)
{
    const bool flows = y->needs_grad || weights->needs_grad;
    sheaf__op *op = sheaf__tape_each(tape, "share of an expert", sizeof(share_params), y, 32,
                                     share_rows, flows ? share_back_rows : NULL);
    if (flows)
        op->backward = share_backward;
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
    sheaf__accumulate(sheaf__tape_context(tape), sum->data, residual->data, sum->rows * sum->cols,
                      sum->dtype);
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
