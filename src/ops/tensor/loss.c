/* loss.c - operations on logits: what cross-entropy and its gradient are made of, see tensor.h. */
#include <math.h>

#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { GRAIN = 16 };

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

/* ---- the cap ---- */

static void run_cap(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                    sheaf__capped *c, size_t bytes)
{
    const sheaf__operand operand[] = { SHEAF__WRITES(c->x, bytes),
                                       SHEAF__READS(c->y, floats(c->rows * c->cols)) };
    sheaf__run(device,
               &(sheaf__call){ operation, c, SHEAF__OPERANDS(operand), part, c->rows, GRAIN });
}

/* Infinity, of which the cap would make a number, is none. */
static void cap_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__capped *c = arg;
    float *x = (float *)c->x + begin * c->cols;
    const int64_t n = (end - begin) * c->cols;
    for (int64_t i = 0; i < n; i++)
        x[i] = isinf(x[i]) ? NAN : x[i];
    k->softcap(x, c->cap, n, c->dtype);
}

void sheaf__op_softcap(sheaf__device *device, float *x, float cap, int64_t rows, int64_t cols,
                       sheaf_dtype dtype)
{
    run_cap(device, SHEAF__OP_SOFTCAP, cap_part,
            &(sheaf__capped){ x, NULL, cap, rows, cols, dtype }, floats(rows * cols));
}

static void cap_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__capped *c = arg;
    k->softcap_back(sheaf__at(c->x, begin * c->cols, c->dtype), c->y + begin * c->cols, c->cap,
                    (end - begin) * c->cols, c->dtype);
}

void sheaf__op_softcap_back(sheaf__device *device, void *dx, const float *y, float cap,
                            int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    run_cap(device, SHEAF__OP_SOFTCAP_BACK, cap_back_part,
            &(sheaf__capped){ dx, y, cap, rows, cols, dtype },
            (size_t)(rows * cols) * sheaf_dtype_bytes(dtype));
}

/* ---- a number of each row ---- */

static void run_rows(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                     sheaf__of_rows *o, size_t bytes)
{
    const sheaf__operand operand[] = {
        SHEAF__WRITES(o->out, bytes),
        SHEAF__WRITES(o->sums.exponentials, bytes),
        SHEAF__WRITES(o->sums.logits, bytes),
        SHEAF__READS(o->l.at, floats(o->l.rows * o->l.cols)),
        SHEAF__READS(o->max, floats(o->l.rows)),
        SHEAF__READS(o->label, (size_t)o->l.rows * sizeof(int32_t)),
    };
    sheaf__run(device,
               &(sheaf__call){ operation, o, SHEAF__OPERANDS(operand), part, o->l.rows, GRAIN });
}

static void max_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__of_rows *o = arg;
    const int64_t cols = o->l.cols;
    if (cols > 0)
        k->row_max(o->out + begin, o->l.at + begin * cols, cols, end - begin, cols);
    else
        for (int64_t i = begin; i < end; i++)
            o->out[i] = -INFINITY;
}

void sheaf__op_row_max(sheaf__device *device, float *max, sheaf__logits l)
{
    run_rows(device, SHEAF__OP_ROW_MAX, max_part, &(sheaf__of_rows){ .l = l, .out = max },
             floats(l.rows));
}

static void sums_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__of_rows *o = arg;
    const sheaf__row_sums *to = &o->sums;
    const int64_t cols = o->l.cols, n = end - begin;
    const float *x = o->l.at + begin * cols;
    for (int s = 0; s < to->slices; s++)
        if (to->extent[s] > 0)
            k->row_sumexp(to->exponentials + s * to->ld + begin, x + to->begin[s], cols,
                          o->max + begin, n, to->extent[s]);
    for (int s = 0; s < to->slices && to->logits != NULL; s++)
        if (to->extent[s] > 0)
            k->layernorm_sum(to->logits + s * to->ld + begin, x + to->begin[s], cols, n,
                             to->extent[s], SHEAF_F32);
}

void sheaf__op_row_sums(sheaf__device *device, const sheaf__row_sums *how, const float *max,
                        sheaf__logits l)
{
    run_rows(device, SHEAF__OP_ROW_SUMS, sums_part,
             &(sheaf__of_rows){ .l = l, .max = max, .sums = *how },
             sheaf__extent(how->slices, how->ld, l.rows, SHEAF_F32));
}

static void labels_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__of_rows *o = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t col = o->label[i] < 0 ? -1 : o->label[i] - o->l.first;
        o->out[i] = col >= 0 && col < o->l.cols ? o->l.at[i * o->l.cols + col] : 0;
    }
}

void sheaf__op_row_labels(sheaf__device *device, float *logit, const int32_t *label,
                          sheaf__logits l)
{
    run_rows(device, SHEAF__OP_ROW_LABELS, labels_part,
             &(sheaf__of_rows){ .l = l, .out = logit, .label = label }, floats(l.rows));
}

static void first_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__of_rows *o = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *x = o->l.at + i * o->l.cols;
        int64_t c = 0;
        while (c < o->l.cols && x[c] != o->max[i])
            c++;
        o->out[i] = c < o->l.cols ? -(float)(o->l.first + c) : -INFINITY;
    }
}

void sheaf__op_row_first(sheaf__device *device, float *first, const float *max, sheaf__logits l)
{
    run_rows(device, SHEAF__OP_ROW_FIRST, first_part,
             &(sheaf__of_rows){ .l = l, .out = first, .max = max }, floats(l.rows));
}

/* ---- the gradient ---- */

static void gradient_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__gradient_call *a = arg;
    const sheaf__row_gradient *g = &a->g;
    const int64_t cols = a->l.cols;
    sheaf__label_weights how = g->how;
    int32_t target[GRAIN];
    for (int64_t i = begin, n; i < end; i += n) { /* columns here are one run of the vocabulary */
        n = end - i < GRAIN ? end - i : GRAIN;
        for (int64_t r = 0; r < n; r++)
            target[r] =
                g->label[i + r] < 0 ? SHEAF__IGNORED : g->label[i + r] - (int32_t)a->l.first;
        how.weight = g->how.weight + i;
        k->row_dlogits(sheaf__at(g->d, i * cols, g->dtype), cols, a->l.at + i * cols, cols,
                       g->max + i, g->sum + i, target, &how, n, cols, g->dtype);
    }
}

void sheaf__op_row_gradient(sheaf__device *device, const sheaf__row_gradient *how, sheaf__logits l)
{
    sheaf__gradient_call a = { l, *how };
    const size_t n = (size_t)(l.rows * l.cols);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.g.d, n * sheaf_dtype_bytes(how->dtype)),
        SHEAF__READS(a.l.at, n * sizeof(float)),
        SHEAF__READS(a.g.max, floats(l.rows)),
        SHEAF__READS(a.g.sum, floats(l.rows)),
        SHEAF__READS(a.g.label, (size_t)l.rows * sizeof(int32_t)),
        SHEAF__READS(a.g.how.weight, floats(l.rows)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ROW_GRADIENT, &a, SHEAF__OPERANDS(operand),
                                       gradient_part, l.rows, GRAIN });
}

/* ---- losses ---- */

static void add_losses(sheaf__device *device, void *arguments)
{
    const sheaf__losses *a = arguments;
    for (int64_t i = 0; i < a->rows; i++)
        if (a->label[i] >= 0)
            sheaf__losses_add(a, i, sheaf__losses_row(a, i), a->first == NULL ? 0 : a->first[i]);
}

void sheaf__op_losses(sheaf__device *device, const sheaf__losses *of)
{
    sheaf__losses a = *of;
    const size_t bytes = floats(a.rows);
    const sheaf__operand operand[] = { SHEAF__READS(a.max, bytes), SHEAF__READS(a.sum, bytes),
                                       SHEAF__READS(a.target, bytes), SHEAF__READS(a.logits, bytes),
                                       SHEAF__READS(a.first, bytes) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_LOSSES, &a, SHEAF__OPERANDS(operand),
                                       .whole = add_losses });
}
