/* norm.c - RMSNorm and LayerNorm, see tensor.h; formulas in ops/kernels.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { GRAIN = 16 };

/* ---- RMSNorm ---- */

static void rms_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__rmsnorm *n = &((const sheaf__rms_call *)arg)->of;
    const int64_t at = begin * n->width;
    k->rmsnorm(sheaf__at(n->y, at, n->dtype), n->rstd + begin, sheaf__at(n->x, at, n->dtype),
               n->weight, end - begin, n->width, n->eps, n->once, n->dtype);
}

/* Remade while the rows are in the cache. */
static void rms_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__rms_call *b = arg;
    const sheaf__rmsnorm *n = &b->of;
    const int64_t at = begin * n->width;
    if (b->dx != NULL)
        k->rmsnorm_back(sheaf__at(b->dx, at, n->dtype), sheaf__at(n->y, at, n->dtype),
                        sheaf__at(n->x, at, n->dtype), n->weight, n->rstd + begin, end - begin,
                        n->width, b->add, n->dtype);
    if (b->again)
        rms_part(k, arg, begin, end);
}

static void run_rms(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                    sheaf__rms_call *a, bool makes)
{
    sheaf__rmsnorm *n = &a->of;
    const size_t bytes = (size_t)(n->rows * n->width) * sheaf_dtype_bytes(n->dtype);
    const sheaf__operand operand[] = {
        { &n->y, bytes, makes },
        { &n->rstd, (size_t)n->rows * sizeof(float), makes },
        SHEAF__WRITES(a->dx, bytes),
        SHEAF__READS(n->x, bytes),
        SHEAF__READS(n->weight, (size_t)n->width * sizeof(float)),
    };
    sheaf__run(device, &(sheaf__call){ operation, a, SHEAF__OPERANDS(operand), part, n->rows,
                                       GRAIN * n->heads });
}

void sheaf__op_rmsnorm(sheaf__device *device, const sheaf__rmsnorm *norm)
{
    run_rms(device, SHEAF__OP_RMSNORM, rms_part, &(sheaf__rms_call){ .of = *norm }, true);
}

void sheaf__op_rmsnorm_back(sheaf__device *device, const sheaf__rmsnorm *norm, void *dx, bool add,
                            bool again)
{
    run_rms(device, SHEAF__OP_RMSNORM_BACK, rms_back_part,
            &(sheaf__rms_call){ *norm, dx, add, again }, again);
}

/* ---- the gradient of a weight ---- */

static void weight_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__norm_weight *w = arg;
    k->layernorm_dw(w->dw, w->db, w->dy, w->ld, w->x, w->ld, w->mean, w->rstd, w->rows, begin, end,
                    w->dtype);
}

void sheaf__op_norm_weight(sheaf__device *device, sheaf__norm_weight w)
{
    const size_t x = sheaf__extent(w.rows, w.ld, w.cols, w.dtype),
                 rows = (size_t)w.rows * sizeof(float), cols = (size_t)w.cols * sizeof(float);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(w.dw, cols), SHEAF__WRITES(w.db, cols),  SHEAF__READS(w.dy, x),
        SHEAF__READS(w.x, x),      SHEAF__READS(w.mean, rows), SHEAF__READS(w.rstd, rows),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_NORM_WEIGHT, &w, SHEAF__OPERANDS(operand),
                                       weight_part, w.cols, 64 });
}

enum { COLUMNS = 16 }; /* of the weight of heads that a thread sums at a time */

static int64_t blocks_of(const sheaf__heads_weight *w)
{
    return (w->width + COLUMNS - 1) / COLUMNS;
}

/* Items are blocks of columns, slice after slice. */
static void heads_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__heads_weight *w = arg;
    const int64_t width = w->width, blocks = blocks_of(w);
    for (int64_t i = begin; i < end; i++) {
        const int s = (int)(i / blocks);
        const int64_t first = i % blocks * COLUMNS,
                      last = first + COLUMNS < width ? first + COLUMNS : width;
        float *part = w->part + s * width;
        memset(part + first, 0, (size_t)(last - first) * sizeof *part);
        for (int64_t head = w->begin[s]; head < w->begin[s] + w->extent[s]; head += width)
            k->layernorm_dw(part, NULL, sheaf__at(w->dy, head, w->dtype), w->ld,
                            sheaf__at(w->x, head, w->dtype), w->ld, NULL,
                            w->rstd + head / width * w->rows, w->rows, first, last, w->dtype);
    }
}

void sheaf__op_heads_weight(sheaf__device *device, sheaf__heads_weight w)
{
    const size_t x = (size_t)(w.rows * w.ld) * sheaf_dtype_bytes(w.dtype);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(w.part, (size_t)(w.slices * w.width) * sizeof(float)),
        SHEAF__READS(w.dy, x),
        SHEAF__READS(w.x, x),
        SHEAF__READS(w.rstd, (size_t)(w.ld / w.width * w.rows) * sizeof(float)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_HEADS_WEIGHT, &w, SHEAF__OPERANDS(operand),
                                       heads_part, w.slices * blocks_of(&w), 1 });
}

/* ---- LayerNorm ---- */

static char *in_row(const sheaf__layer_call *a, const void *data, int64_t row, int64_t column)
{
    return sheaf__at(data, row * a->of.cols + column, a->of.dtype);
}

/* The sums of rows [begin, end), columns [first, first + cols); sum_an: BACK's second ones. */
static void sums_of(const sheaf__kernels *k, const sheaf__layer_call *a, sheaf__norm_sums which,
                    float *sum, float *sum_an, int64_t first, int64_t cols, int64_t begin,
                    int64_t end)
{
    const sheaf__layer_norm *n = &a->of;
    const void *x = in_row(a, n->x, begin, first);
    if (which == SHEAF__SUMS_BACK)
        k->layernorm_back_sums(sum, sum_an, in_row(a, n->y, begin, first), n->cols, x, n->cols,
                               n->mean + begin, n->rstd + begin, n->weight + first, end - begin,
                               cols, n->dtype);
    else if (which == SHEAF__SUMS_SQUARES)
        k->layernorm_squares(sum, x, n->cols, n->mean + begin, end - begin, cols, n->dtype);
    else
        k->layernorm_sum(sum, x, n->cols, end - begin, cols, n->dtype);
}

/* Means from the sums of rows [begin, end), or from those of squares 1 / deviations. */
static void set_statistics(const sheaf__layer_call *a, sheaf__norm_sums which, const float *sum,
                           int64_t begin, int64_t end)
{
    const sheaf__layer_norm *n = &a->of;
    for (int64_t r = begin; r < end; r++)
        if (which == SHEAF__SUMS_SQUARES)
            n->rstd[r] = sheaf__norm_rstd(sum[r - begin], n->width, n->eps);
        else
            n->mean[r] = n->plain ? 0 : sheaf__norm_mean(sum[r - begin], n->width);
}

static void given_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__layer_call *a = arg;
    const sheaf__layer_norm *n = &a->of;
    k->layernorm(in_row(a, n->y, begin, 0), n->cols, in_row(a, n->x, begin, 0), n->cols,
                 n->mean + begin, n->rstd + begin, n->weight, n->bias,
                 n->residual == NULL ? NULL : in_row(a, n->residual, begin, 0), end - begin,
                 n->cols, n->dtype);
}

static void whole_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__layer_call *a = arg;
    float sum[GRAIN] = { 0 };
    for (int i = 0; i < 2; i++) {
        const sheaf__norm_sums which = i == 0 ? SHEAF__SUMS_X : SHEAF__SUMS_SQUARES;
        if (which == SHEAF__SUMS_SQUARES || !a->of.plain)
            sums_of(k, a, which, sum, NULL, 0, a->of.cols, begin, end);
        set_statistics(a, which, sum, begin, end);
    }
    given_part(k, arg, begin, end);
}

/* dx from the sums of a and a*n, which become their means. */
static void back_from_sums(const sheaf__kernels *k, const sheaf__layer_call *a, float *sum_a,
                           float *sum_an, int64_t begin, int64_t end)
{
    const sheaf__layer_norm *n = &a->of;
    for (int64_t r = 0; r < end - begin; r++) {
        sum_a[r] = n->plain ? 0 : sheaf__norm_mean(sum_a[r], n->width);
        sum_an[r] = sheaf__norm_mean(sum_an[r], n->width);
    }
    k->layernorm_back(in_row(a, a->dx, begin, 0), in_row(a, n->y, begin, 0), n->cols,
                      in_row(a, n->x, begin, 0), n->cols, n->mean + begin, n->rstd + begin,
                      n->weight, sum_a, sum_an, end - begin, n->cols, a->add, n->dtype);
}

static void back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__layer_call *a = arg;
    float sum_a[GRAIN], sum_an[GRAIN];
    if (a->sum != NULL) {
        back_from_sums(k, a, a->sum + begin, a->sum + a->of.rows + begin, begin, end);
        return;
    }
    sums_of(k, a, SHEAF__SUMS_BACK, sum_a, sum_an, 0, a->of.cols, begin, end);
    back_from_sums(k, a, sum_a, sum_an, begin, end);
}

static int sums_a_row(const sheaf__layer_call *a)
{
    return a->which == SHEAF__SUMS_BACK ? 2 : 1;
}

static void sums_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__layer_call *a = arg;
    const sheaf__layer_norm *n = &a->of;
    for (int s = 0; s < n->slices; s++) {
        float *part = a->sum + s * sums_a_row(a) * n->rows + begin;
        if (n->extent[s] > 0)
            sums_of(k, a, a->which, part, part + n->rows, n->begin[s], n->extent[s], begin, end);
    }
}

static void statistics_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__layer_call *a = arg;
    set_statistics(a, a->which, a->sum == NULL ? NULL : a->sum + begin, begin, end);
}

/* Outputs of an operation. */
enum { Y = 1, MEAN = 2, RSTD = 4, DX = 8, SUM = 16 };

static void run_layer(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                      sheaf__layer_call *a, unsigned writes, int sums, int64_t grain)
{
    sheaf__layer_norm *n = &a->of;
    const size_t x = (size_t)(n->rows * n->cols) * sheaf_dtype_bytes(n->dtype),
                 rows = (size_t)n->rows * sizeof(float), cols = (size_t)n->cols * sizeof(float);
    const sheaf__operand operand[] = {
        { &n->y, x, writes & Y },
        { &n->mean, rows, writes & MEAN },
        { &n->rstd, rows, writes & RSTD },
        { &a->dx, x, writes & DX },
        { &a->sum, (size_t)(sums * sums_a_row(a)) * rows, writes & SUM },
        SHEAF__READS(n->x, x),
        SHEAF__READS(n->residual, x),
        SHEAF__READS(n->weight, cols),
        SHEAF__READS(n->bias, cols),
    };
    sheaf__run(device,
               &(sheaf__call){ operation, a, SHEAF__OPERANDS(operand), part, n->rows, grain });
}

void sheaf__op_layernorm(sheaf__device *device, const sheaf__layer_norm *norm)
{
    const bool given = norm->cut;
    run_layer(device, SHEAF__OP_LAYERNORM, given ? given_part : whole_part,
              &(sheaf__layer_call){ .of = *norm }, given ? Y : Y | MEAN | RSTD, 0, GRAIN);
}

void sheaf__op_layernorm_sums(sheaf__device *device, const sheaf__layer_norm *norm, float *part,
                              sheaf__norm_sums which)
{
    run_layer(device, SHEAF__OP_LAYERNORM_SUMS, sums_part,
              &(sheaf__layer_call){ .of = *norm, .sum = part, .which = which }, SUM, norm->slices,
              GRAIN);
}

void sheaf__op_layernorm_statistics(sheaf__device *device, const sheaf__layer_norm *norm,
                                    const float *total, sheaf__norm_sums which)
{
    /* it reads the total only */
    run_layer(device, SHEAF__OP_LAYERNORM_STATISTICS, statistics_part,
              &(sheaf__layer_call){ .of = *norm, .sum = (float *)total, .which = which },
              which == SHEAF__SUMS_SQUARES ? RSTD : MEAN, 1, 1 << 10);
}

void sheaf__op_layernorm_back(sheaf__device *device, const sheaf__layer_norm *norm, void *dx,
                              bool add, float *total)
{
    run_layer(device, SHEAF__OP_LAYERNORM_BACK, back_part,
              &(sheaf__layer_call){ *norm, total, dx, SHEAF__SUMS_BACK, add }, DX | SUM, 1, GRAIN);
}
