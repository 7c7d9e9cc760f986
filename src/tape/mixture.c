/* mixture.c - see mixture.h. */
#include "tape/mixture.h"

#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "tape/row_map.h"
#include "tape/rows.h"

enum { PART = 256 };

/* ---- the choice ---- */

typedef struct choice_params {
    sheaf__value *logits, *weights;
    int64_t chosen;
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

/* Marks the `chosen` largest of w by a minus sign, gives their sum. */
static float choose(float *w, int64_t n, int64_t chosen)
{
    float sum = 0;
    for (int64_t k = 0; k < chosen; k++) {
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
        const float sum = choose(w, n, p->chosen);
        for (int64_t i = 0; i < n; i++)
            w[i] = signbit(w[i]) ? -w[i] / sum : 0;
    }
}

static sheaf_status *choice_forward(sheaf__tape *tape, sheaf__op *op)
{
    const choice_params *p = op->params;
    return sheaf__op_rows(tape, op, p->logits->rows, 32, choice_rows);
}

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

/* The logits are read here alone, so that their gradient is always fresh. */
static sheaf_status *choice_backward(sheaf__tape *tape, sheaf__op *op)
{
    const choice_params *p = op->params;
    return sheaf__op_rows(tape, op, p->logits->rows, 32, choice_back_rows);
}

sheaf__value *sheaf__record_choice(sheaf__tape *tape, sheaf__value *logits, int64_t chosen)
{
    const bool flows = logits->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "choice of experts", choice_forward,
                                   flows ? choice_backward : NULL, sizeof(choice_params));
    choice_params *p = op->params;
    *p = (choice_params){
        logits,
        sheaf__tape_value(tape, "weights of experts", logits->rows, logits->cols, SHEAF_F32), chosen
    };
    p->weights->needs_grad = flows;
    sheaf__op_arg(op, logits, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, p->weights, SHEAF__MAKE | (flows ? SHEAF__KEEP | SHEAF__GIVES : 0));
    return p->weights;
}

/* ---- the sum ---- */

static sheaf_status *nothing_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *sum = op->arg[0].value;
    if (sheaf__tape_context(tape)->device->kind != SHEAF_DRY)
        memset(sum->data, 0, (size_t)(sum->rows * sum->cols) * sheaf_dtype_bytes(sum->dtype));
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
    return sheaf__op_makes(op, sum, NULL, flows, 0);
}

enum { BLOCK = 256 }; /* rows of a sum that are added by themselves */

typedef struct taken_params {
    sheaf__value *x, *y, *which, *weights;
    int64_t expert, count; /* rows that took it in this run; on dry all */
    sheaf__row_blocks blocks;
    int64_t *begin; /* of the blocks, where rows are summed */
} taken_params;

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

/* Blocks that no row is of add nothing. */
static void lay_blocks(taken_params *p)
{
    int32_t *which = p->which->data;
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (i == 0 || which[i] / BLOCK != which[i - 1] / BLOCK)
            p->begin[n++] = i;
    p->begin[n] = p->count;
    p->blocks.n = n;
    for (int64_t k = 0; k < n && p->x->dtype == SHEAF_BF16; k++)
        order_by_pairs(which + p->begin[k], p->begin[k + 1] - p->begin[k]);
}

/* Every rank has the same weights, and so the same rows. */
static sheaf_status *taken_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    taken_params *p = op->params;
    if (c->device->kind == SHEAF_DRY)
        return NULL;
    int32_t *which = p->which->data;
    p->count = 0;
    for (int64_t r = 0; r < p->x->rows; r++)
        if (((const float *)p->weights->data)[r * p->weights->cols + p->expert] != 0)
            which[p->count++] = (int32_t)r;
    if (p->y->blocks != NULL)
        lay_blocks(p);
    sheaf__gather(c, p->y->data, p->x->data, sheaf__row_map_listed(which), p->count, p->x->cols,
                  false);
    return NULL;
}

static sheaf_status *taken_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const taken_params *p = op->params;
    if (p->x->grad_fresh)
        sheaf__set_rows(c, p->x->grad, NULL, sheaf__row_map_listed(NULL), p->x->rows, p->x->cols);
    sheaf__scatter(c, p->x->grad, p->y->grad, sheaf__row_map_listed(p->which->data), p->count,
                   p->x->cols, true);
    return NULL;
}

sheaf__value *sheaf__record_taken(sheaf__tape *tape, sheaf__value **which, sheaf__value *x,
                                  sheaf__value *weights, int64_t expert, bool summed)
{
    const bool flows = x->needs_grad;
    const int64_t blocks = summed ? (x->rows + BLOCK - 1) / BLOCK + 1 : 0;
    sheaf__op *op = sheaf__tape_op(tape, "rows of an expert", taken_forward,
                                   flows ? taken_backward : NULL, sizeof(taken_params));
    taken_params *p = op->params;
    p->x = x;
    p->y = sheaf__tape_value(tape, "rows of an expert", x->rows, x->cols, x->dtype);
    p->which = sheaf__tape_value(tape, "numbers of rows", x->rows, 1, SHEAF_F32);
    p->weights = weights;
    p->expert = expert;
    p->count = x->rows;
    p->begin = blocks == 0 ? NULL : sheaf__tape_hold(tape, (size_t)blocks * sizeof *p->begin);
    p->blocks = (sheaf__row_blocks){ 0, p->begin, false };
    p->y->blocks = summed ? &p->blocks : NULL;
    p->y->there = p->which->there = &p->count;
    p->y->needs_grad = flows;
    sheaf__op_arg(op, x, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, weights, SHEAF__READ);
    sheaf__op_arg(op, p->which, SHEAF__MAKE | (flows ? SHEAF__KEEP : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    *which = p->which;
    return p->y;
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
        for (int64_t i = 0; i < m; i++)
            part[i] *= w;
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

static sheaf_status *share_forward(sheaf__tape *tape, sheaf__op *op)
{
    const share_params *p = op->params;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->y), 32, share_rows);
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
    /* Each expert writes its own column: rows that did not take it are not left out. */
    for (int64_t r = 0; p->which != NULL && p->weights->needs_grad && r < p->sum->rows &&
                        sheaf__tape_context(tape)->device->kind != SHEAF_DRY;
         r++)
        ((float *)p->weights->grad)[r * p->weights->cols + p->expert] = 0;
    return sheaf__op_rows(tape, op, sheaf__rows_there(p->y), 32, share_back_rows);
}

void sheaf__record_share(sheaf__tape *tape, sheaf__value *sum, sheaf__value *y, sheaf__value *which,
                         sheaf__value *weights, int64_t expert)
{
    const bool flows = y->needs_grad || weights->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "share of an expert", share_forward,
                                   flows ? share_backward : NULL, sizeof(share_params));
    *(share_params *)op->params = (share_params){ sum, y, which, weights, expert };
    sheaf__op_arg(op, sum, SHEAF__CHANGE | (flows ? SHEAF__TURNS : 0));
    sheaf__op_arg(op, y,
                  SHEAF__READ | (y->needs_grad ? SHEAF__TAKES : 0) |
                      (weights->needs_grad ? SHEAF__KEEP : 0));
    if (which != NULL)
        sheaf__op_arg(op, which, SHEAF__READ | (flows ? SHEAF__KEEP : 0));
    sheaf__op_arg(op, weights,
                  SHEAF__READ | (flows ? SHEAF__KEEP : 0) |
                      (weights->needs_grad ? SHEAF__TAKES : 0));
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
    const int64_t n = sum->rows * sum->cols;
    if (!residual->needs_grad || c->device->kind == SHEAF_DRY)
        return NULL;
    if (residual->grad_fresh)
        memcpy(residual->grad, sum->grad, (size_t)n * sheaf_dtype_bytes(sum->dtype));
    else
        sheaf__accumulate(c, residual->grad, sum->grad, n, sum->dtype);
    return NULL;
}

void sheaf__record_mixed(sheaf__tape *tape, sheaf__value *sum, sheaf__value *residual)
{
    const bool flows = residual->needs_grad;
    sheaf__op *op =
        sheaf__tape_op(tape, "sum of experts", mixed_forward, flows ? mixed_backward : NULL, 0);
    sheaf__op_arg(op, sum, SHEAF__CHANGE | SHEAF__TURNS);
    sheaf__op_arg(op, residual, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
}
