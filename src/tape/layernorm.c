/* layernorm.c - LayerNorm as an op of the tape, see vision.h; formulas in ops/kernels.h.
 *
 * A whole width is one pass over each few rows. A cut one needs sums over slices: of x, of
 * (x - mean)^2, and backward of a and a*n together, a number for each row and slice. */
#include "tape/vision.h"

#include <assert.h>
#include <math.h>

#include "tape/rows.h"

enum { GRAIN = 16 };

typedef struct norm_params {
    sheaf__layernorm *norm;
    sheaf__value *x, *residual, *y, *mean, *rstd;
} norm_params;

static int64_t rows_of(const norm_params *p)
{
    return sheaf__rows_there(p->x);
}

typedef struct norm_args {
    sheaf__context *c;
    const norm_params *p;
    float *part;  /* cut: [slices held][rows], a and a*n one after the other backward */
    float *total; /* the sum over slices: [rows], or [2 * rows] */
    int slice;
} norm_args;

static const sheaf__kernels *kernels_of(const norm_args *a)
{
    return a->c->device->kernels;
}

/* Sums of rows [begin, end), whose columns start at `first` of x. */
static void squares_of(const norm_args *a, float *sum, int64_t first, int64_t cols, int64_t begin,
                       int64_t end)
{
    const norm_params *p = a->p;
    kernels_of(a)->layernorm_squares(
        sum, sheaf__at(p->x->data, begin * p->x->cols + first, a->c->dtype), p->x->cols,
        (float *)p->mean->data + begin, end - begin, cols, a->c->dtype);
}

static void sums_of(const norm_args *a, float *sum, int64_t first, int64_t cols, int64_t begin,
                    int64_t end)
{
    const norm_params *p = a->p;
    kernels_of(a)->layernorm_sum(sum,
                                 sheaf__at(p->x->data, begin * p->x->cols + first, a->c->dtype),
                                 p->x->cols, end - begin, cols, a->c->dtype);
}

static void back_sums_of(const norm_args *a, float *sum_a, float *sum_an, int64_t first,
                         int64_t cols, int64_t begin, int64_t end)
{
    const norm_params *p = a->p;
    const int64_t ld = p->x->cols, from = begin * ld + first;
    kernels_of(a)->layernorm_back_sums(
        sum_a, sum_an, sheaf__at(p->y->grad, from, a->c->dtype), ld,
        sheaf__at(p->x->data, from, a->c->dtype), ld, (float *)p->mean->data + begin,
        (float *)p->rstd->data + begin, p->norm->weight + first, end - begin, cols, a->c->dtype);
}

static void set_means(const norm_args *a, const float *sum, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        ((float *)a->p->mean->data)[r] =
            a->p->norm->plain ? 0 : sum[r - begin] / (float)a->p->norm->width;
}

static void set_rstds(const norm_args *a, const float *sum, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        ((float *)a->p->rstd->data)[r] =
            1.0f / sqrtf(sum[r - begin] / (float)a->p->norm->width + a->p->norm->eps);
}

static void normalise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const norm_params *p = a->p;
    const int64_t ld = p->x->cols;
    const sheaf_dtype t = a->c->dtype;
    kernels_of(a)->layernorm(
        sheaf__at(p->y->data, begin * ld, t), ld, sheaf__at(p->x->data, begin * ld, t), ld,
        (float *)p->mean->data + begin, (float *)p->rstd->data + begin, p->norm->weight,
        p->norm->bias, p->residual == NULL ? NULL : sheaf__at(p->residual->data, begin * ld, t),
        end - begin, ld, t);
}

/* dx from the means of a and a*n. */
static void turn_rows(const norm_args *a, const float *mean_a, const float *mean_an, int64_t begin,
                      int64_t end)
{
    const norm_params *p = a->p;
    const int64_t ld = p->x->cols;
    const sheaf_dtype t = a->c->dtype;
    kernels_of(a)->layernorm_back(
        sheaf__at(p->x->grad, begin * ld, t), sheaf__at(p->y->grad, begin * ld, t), ld,
        sheaf__at(p->x->data, begin * ld, t), ld, (float *)p->mean->data + begin,
        (float *)p->rstd->data + begin, p->norm->weight, mean_a, mean_an, end - begin, ld,
        !p->x->grad_fresh, t);
}

/* ---- a whole width ---- */

static void whole_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    float sum[GRAIN] = { 0 };
    if (!a->p->norm->plain)
        sums_of(a, sum, 0, a->p->norm->width, begin, end);
    set_means(a, sum, begin, end);
    squares_of(a, sum, 0, a->p->norm->width, begin, end);
    set_rstds(a, sum, begin, end);
    normalise_rows(arg, begin, end, worker);
}

static void whole_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const float width = (float)a->p->norm->width;
    float mean_a[GRAIN], mean_an[GRAIN];
    back_sums_of(a, mean_a, mean_an, 0, a->p->norm->width, begin, end);
    for (int64_t r = 0; r < end - begin; r++) {
        mean_a[r] = a->p->norm->plain ? 0 : mean_a[r] / width;
        mean_an[r] /= width;
    }
    turn_rows(a, mean_a, mean_an, begin, end);
}

/* ---- a cut width ---- */

/* The total over all slices and ranks of n floats; slice s has its own at part + (s - first) * n,
 * which is destroyed. A rank that holds no slice with columns gets the total in the first. */
static sheaf_status *sum_slices(norm_args *a, int64_t n)
{
    const sheaf__layernorm *norm = a->p->norm;
    float *part[SHEAF_MAX_SLICES];
    for (int s = 0; s < norm->count; s++)
        part[s] = a->part + s * n;
    return sheaf__sum_partials(a->c, &norm->tree, part, norm->first, a->part, n, 1, &a->total);
}

typedef void row_sums(const norm_args *a, float *sum, int64_t first, int64_t cols, int64_t begin,
                      int64_t end);

static void each_slice(const norm_args *a, row_sums *sums, int64_t begin, int64_t end)
{
    const sheaf__layernorm *norm = a->p->norm;
    for (int s = norm->first; s < norm->first + norm->count; s++)
        if (norm->extent[s] > 0)
            sums(a, a->part + (s - norm->first) * rows_of(a->p) + begin, norm->begin[s],
                 norm->extent[s], begin, end);
}

static void slice_sums(void *arg, int64_t begin, int64_t end, int worker)
{
    each_slice(arg, sums_of, begin, end);
}

static void slice_squares(void *arg, int64_t begin, int64_t end, int worker)
{
    each_slice(arg, squares_of, begin, end);
}

static void slice_back_sums(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const sheaf__layernorm *norm = a->p->norm;
    const int64_t rows = rows_of(a->p);
    for (int s = norm->first; s < norm->first + norm->count; s++) {
        float *part = a->part + (s - norm->first) * 2 * rows + begin;
        if (norm->extent[s] > 0)
            back_sums_of(a, part, part + rows, norm->begin[s], norm->extent[s], begin, end);
    }
}

static void mean_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    set_means(a, a->p->norm->plain ? NULL : a->total + begin, begin, end);
}

static void rstd_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    set_rstds(a, a->total + begin, begin, end);
}

static void cut_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const float width = (float)a->p->norm->width;
    float mean_a[GRAIN], mean_an[GRAIN];
    for (int64_t r = begin; r < end; r++) {
        mean_a[r - begin] = a->p->norm->plain ? 0 : a->total[r] / width;
        mean_an[r - begin] = a->total[rows_of(a->p) + r] / width;
    }
    turn_rows(a, mean_a, mean_an, begin, end);
}

static sheaf_status *take_parts(norm_args *a, int64_t n)
{
    const size_t bytes = (size_t)a->p->norm->count * (size_t)n * sizeof(float);
    return sheaf__take(&a->part, a->c, bytes, SHEAF_MEM_SCRATCH);
}

static sheaf_status *cut_forward(norm_args *a)
{
    const int64_t rows = rows_of(a->p);
    sheaf_status *st = take_parts(a, rows);
    if (st != NULL)
        return st;
    if (!a->p->norm->plain) {
        sheaf__rows(a->c, rows, GRAIN, slice_sums, a);
        st = sum_slices(a, rows);
    }
    if (st == NULL) {
        sheaf__rows(a->c, rows, 1 << 10, mean_rows, a);
        sheaf__rows(a->c, rows, GRAIN, slice_squares, a);
        st = sum_slices(a, rows);
    }
    if (st == NULL) {
        sheaf__rows(a->c, rows, 1 << 10, rstd_rows, a);
        sheaf__rows(a->c, rows, GRAIN, normalise_rows, a);
    }
    sheaf__give(a->c, a->part);
    return st;
}

static sheaf_status *cut_backward(norm_args *a)
{
    const int64_t rows = rows_of(a->p);
    sheaf_status *st = take_parts(a, 2 * rows);
    if (st != NULL)
        return st;
    sheaf__rows(a->c, rows, GRAIN, slice_back_sums, a);
    st = sum_slices(a, 2 * rows);
    if (st == NULL)
        sheaf__rows(a->c, rows, GRAIN, cut_back_rows, a);
    sheaf__give(a->c, a->part);
    return st;
}

/* ---- the op ---- */

static sheaf_status *norm_forward(sheaf__tape *tape, sheaf__op *op)
{
    norm_args a = { .c = sheaf__tape_context(tape), .p = op->params };
    if (a.p->norm->cut)
        return cut_forward(&a);
    sheaf__rows(a.c, rows_of(a.p), GRAIN, whole_rows, &a);
    return NULL;
}

static void weight_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const norm_params *p = a->p;
    const sheaf__layernorm *norm = p->norm;
    const int64_t ld = p->x->cols, first = norm->begin[a->slice], rows = rows_of(p);
    const sheaf_dtype t = a->c->dtype;
    float *db = norm->bias_trained == NULL ? NULL : norm->bias_trained->grad[a->slice];
    const char *dy = sheaf__at(p->y->grad, first, t);
    if (norm->weight_trained != NULL)
        kernels_of(a)->layernorm_dw(norm->weight_trained->grad[a->slice], db, dy, ld,
                                    sheaf__at(p->x->data, first, t), ld, p->mean->data,
                                    p->rstd->data, rows, begin, end, t);
    else
        kernels_of(a)->column_sums(db + begin, sheaf__at(dy, begin, t), ld, rows, end - begin, t);
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    norm_args a = { .c = sheaf__tape_context(tape), .p = op->params };
    const norm_params *p = a.p;
    const sheaf__layernorm *norm = p->norm;
    sheaf_status *st = NULL;
    if (norm->weight_trained != NULL || norm->bias_trained != NULL)
        for (a.slice = norm->first; a.slice < norm->first + norm->count; a.slice++)
            sheaf__rows(a.c, norm->extent[a.slice], 64, weight_columns, &a);
    if (p->x->needs_grad && norm->cut)
        st = cut_backward(&a);
    else if (p->x->needs_grad)
        sheaf__rows(a.c, rows_of(p), GRAIN, whole_back_rows, &a);
    if (st == NULL && p->residual != NULL && p->residual->needs_grad)
        sheaf__hand_on(a.c, p->residual, p->y);
    return st;
}

sheaf__value *sheaf__record_layernorm(sheaf__tape *tape, sheaf__value *x, sheaf__layernorm *norm,
                                      sheaf__value *residual)
{
    assert(residual == NULL || (!norm->cut && residual != x));
    const bool reads_x = x->needs_grad || norm->weight_trained != NULL;
    const bool flows =
        reads_x || norm->bias_trained != NULL || (residual != NULL && residual->needs_grad);
    sheaf__op *op = sheaf__tape_op(tape, norm->name, norm_forward, flows ? norm_backward : NULL,
                                   sizeof(norm_params));
    norm_params *p = op->params;
    *p = (norm_params){ norm,
                        x,
                        residual,
                        sheaf__tape_value(tape, norm->name, x->rows, x->cols, x->dtype),
                        sheaf__tape_value(tape, "norm mean", x->rows, 1, SHEAF_F32),
                        sheaf__tape_value(tape, "norm scale", x->rows, 1, SHEAF_F32) };
    sheaf__rows_as(p->y, x);
    sheaf__rows_as(p->mean, x);
    sheaf__rows_as(p->rstd, x);
    p->y->needs_grad = flows;
    op->cheap = !norm->cut; /* a cut one sums over ranks */
    const unsigned keep = reads_x ? SHEAF__KEEP : 0;
    sheaf__op_arg(op, x, SHEAF__READ | keep | (flows ? SHEAF__TAKES : 0));
    sheaf__op_arg(op, p->y, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    sheaf__op_arg(op, p->mean, SHEAF__MAKE | keep);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | keep);
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    return p->y;
}

void sheaf__layernorm_refresh(sheaf__context *c, sheaf__layernorm *norm)
{
    for (int s = norm->first; s < norm->first + norm->count; s++) {
        if (norm->weight_trained != NULL)
            sheaf__refresh(c, norm->weight + norm->begin[s], norm->weight_trained->weight[s],
                           norm->extent[s]);
        if (norm->weight_trained != NULL && norm->one)
            sheaf__add_one(c, norm->weight + norm->begin[s], norm->extent[s]);
        if (norm->bias_trained != NULL)
            sheaf__refresh(c, norm->bias + norm->begin[s], norm->bias_trained->weight[s],
                           norm->extent[s]);
    }
}
