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
    return sheaf__rows_present(p->x);
}

typedef struct norm_args {
    sheaf__context *c;
    const norm_params *p;
    float *part;  /* cut: [slices held][rows], a and a*n one after the other backward */
    float *total; /* the sum over slices: [rows], or [2 * rows] */
    int slice;
    bool squares, back; /* which sums */
} norm_args;

/* Where row `row` of x, y or their gradients lies, from column `first` on. */
static void *at(const norm_args *a, void *data, int64_t row, int64_t first)
{
    return sheaf__at(data, row * a->p->x->cols + first, a->c->dtype);
}

/* Sums of rows [begin, end), columns [first, first + cols): of x, or with `squares` of
 * (x - mean)^2. */
static void sums_of(const norm_args *a, float *sum, int64_t first, int64_t cols, int64_t begin,
                    int64_t end)
{
    const norm_params *p = a->p;
    const sheaf__kernels *k = a->c->device->kernels;
    const void *x = at(a, p->x->data, begin, first);
    if (a->squares)
        k->layernorm_squares(sum, x, p->x->cols, (float *)p->mean->data + begin, end - begin, cols,
                             a->c->dtype);
    else
        k->layernorm_sum(sum, x, p->x->cols, end - begin, cols, a->c->dtype);
}

static void back_sums_of(const norm_args *a, float *sum_a, float *sum_an, int64_t first,
                         int64_t cols, int64_t begin, int64_t end)
{
    const norm_params *p = a->p;
    a->c->device->kernels->layernorm_back_sums(
        sum_a, sum_an, at(a, p->y->grad, begin, first), p->x->cols, at(a, p->x->data, begin, first),
        p->x->cols, (float *)p->mean->data + begin, (float *)p->rstd->data + begin,
        p->norm->weight + first, end - begin, cols, a->c->dtype);
}

/* Means from the sums of rows [begin, end), or with `squares` 1 / deviations. */
static void set_statistics(const norm_args *a, const float *sum, int64_t begin, int64_t end)
{
    const sheaf__layernorm *norm = a->p->norm;
    float *mean = a->p->mean->data, *rstd = a->p->rstd->data;
    for (int64_t r = begin; r < end; r++)
        if (a->squares)
            rstd[r] = 1.0f / sqrtf(sum[r - begin] / (float)norm->width + norm->eps);
        else
            mean[r] = norm->plain ? 0 : sum[r - begin] / (float)norm->width;
}

static void normalise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const norm_params *p = a->p;
    const int64_t ld = p->x->cols;
    a->c->device->kernels->layernorm(
        at(a, p->y->data, begin, 0), ld, at(a, p->x->data, begin, 0), ld,
        (float *)p->mean->data + begin, (float *)p->rstd->data + begin, p->norm->weight,
        p->norm->bias, p->residual == NULL ? NULL : at(a, p->residual->data, begin, 0), end - begin,
        ld, a->c->dtype);
}

/* dx from the sums of a and a*n, which become their means. */
static void back_from_sums(const norm_args *a, float *sum_a, float *sum_an, int64_t begin,
                           int64_t end)
{
    const norm_params *p = a->p;
    const int64_t ld = p->x->cols;
    for (int64_t r = 0; r < end - begin; r++) {
        sum_a[r] = p->norm->plain ? 0 : sum_a[r] / (float)p->norm->width;
        sum_an[r] /= (float)p->norm->width;
    }
    a->c->device->kernels->layernorm_back(
        at(a, p->x->grad, begin, 0), at(a, p->y->grad, begin, 0), ld, at(a, p->x->data, begin, 0),
        ld, (float *)p->mean->data + begin, (float *)p->rstd->data + begin, p->norm->weight, sum_a,
        sum_an, end - begin, ld, !p->x->grad_fresh, a->c->dtype);
}

/* ---- a whole width ---- */

static void whole_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    norm_args a = *(const norm_args *)arg;
    float sum[GRAIN] = { 0 };
    for (int i = 0; i < 2; i++) {
        a.squares = i == 1;
        if (a.squares || !a.p->norm->plain)
            sums_of(&a, sum, 0, a.p->norm->width, begin, end);
        set_statistics(&a, sum, begin, end);
    }
    normalise_rows(arg, begin, end, worker);
}

static void whole_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    float sum_a[GRAIN], sum_an[GRAIN];
    back_sums_of(arg, sum_a, sum_an, 0, ((const norm_args *)arg)->p->norm->width, begin, end);
    back_from_sums(arg, sum_a, sum_an, begin, end);
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

static void slice_sums(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    const sheaf__layernorm *norm = a->p->norm;
    const int64_t rows = rows_of(a->p);
    for (int s = norm->first; s < norm->first + norm->count; s++) {
        float *part = a->part + (s - norm->first) * (a->back ? 2 : 1) * rows + begin;
        if (norm->extent[s] == 0)
            continue;
        if (a->back)
            back_sums_of(a, part, part + rows, norm->begin[s], norm->extent[s], begin, end);
        else
            sums_of(a, part, norm->begin[s], norm->extent[s], begin, end);
    }
}

static void statistics_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    set_statistics(a, a->total == NULL ? NULL : a->total + begin, begin, end);
}

static void cut_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const norm_args *a = arg;
    back_from_sums(a, a->total + begin, a->total + rows_of(a->p) + begin, begin, end);
}

/* Sums of all rows over slices and ranks, in a->total. */
static sheaf_status *sum_rows(norm_args *a)
{
    const int64_t rows = rows_of(a->p);
    sheaf__rows(a->c, rows, GRAIN, slice_sums, a);
    return sum_slices(a, a->back ? 2 * rows : rows);
}

static sheaf_status *cut_pass(norm_args *a)
{
    const int64_t rows = rows_of(a->p);
    sheaf_status *st = sheaf__alloc(
        &a->part, a->c, (size_t)(a->p->norm->count * (a->back ? 2 : 1) * rows) * sizeof(float),
        SHEAF_MEM_SCRATCH);
    if (a->back)
        TRY(st, sum_rows(a));
    for (int i = 0; i < 2 && st == NULL && !a->back; i++) {
        a->squares = i == 1;
        if (a->squares || !a->p->norm->plain)
            st = sum_rows(a);
        if (st == NULL)
            sheaf__rows(a->c, rows, 1 << 10, statistics_rows, a);
    }
    if (st == NULL)
        sheaf__rows(a->c, rows, GRAIN, a->back ? cut_back_rows : normalise_rows, a);
    sheaf__free(a->c, a->part);
    return st;
}

/* ---- the op ---- */

static sheaf_status *norm_forward(sheaf__tape *tape, sheaf__op *op)
{
    norm_args a = { .c = sheaf__tape_context(tape), .p = op->params };
    if (a.p->norm->cut)
        return cut_pass(&a);
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
        a->c->device->kernels->layernorm_dw(norm->weight_trained->grad[a->slice], db, dy, ld,
                                            sheaf__at(p->x->data, first, t), ld, p->mean->data,
                                            p->rstd->data, rows, begin, end, t);
    else
        a->c->device->kernels->column_sums(db + begin, sheaf__at(dy, begin, t), ld, rows,
                                           end - begin, t);
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    norm_args a = { .c = sheaf__tape_context(tape), .p = op->params, .back = true };
    const norm_params *p = a.p;
    const sheaf__layernorm *norm = p->norm;
    sheaf_status *st = NULL;
    if (norm->weight_trained != NULL || norm->bias_trained != NULL)
        for (a.slice = norm->first; a.slice < norm->first + norm->count; a.slice++)
            sheaf__rows(a.c, norm->extent[a.slice], 64, weight_columns, &a);
    if (p->x->needs_grad && norm->cut)
        st = cut_pass(&a);
    else if (p->x->needs_grad)
        sheaf__rows(a.c, rows_of(p), GRAIN, whole_back_rows, &a);
    if (st == NULL)
        sheaf__pass_gradient(a.c, p->residual, p->y);
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
                        sheaf__tape_like(tape, x, norm->name, x->cols, x->dtype),
                        sheaf__tape_like(tape, x, "norm mean", 1, SHEAF_F32),
                        sheaf__tape_like(tape, x, "norm scale", 1, SHEAF_F32) };
    op->cheap = !norm->cut; /* a cut one sums over ranks */
    const unsigned keep = reads_x ? SHEAF__KEEP : 0;
    sheaf__op_makes(op, p->y, x, keep);
    sheaf__op_arg(op, p->mean, SHEAF__MAKE | keep);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | keep);
    if (residual != NULL)
        sheaf__op_arg(op, residual, SHEAF__READ | SHEAF__GRAD_WRITE);
    return p->y;
}

void sheaf__layernorm_refresh(sheaf__context *c, sheaf__layernorm *norm)
{
    for (int s = norm->first; s < norm->first + norm->count; s++) {
        if (norm->weight_trained != NULL)
            sheaf__refresh(c, norm->weight + norm->begin[s], norm->weight_trained->weight[s],
                           norm->extent[s], norm->one);
        if (norm->bias_trained != NULL)
            sheaf__refresh(c, norm->bias + norm->begin[s], norm->bias_trained->weight[s],
                           norm->extent[s], false);
    }
}
