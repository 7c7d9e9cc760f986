/* norm.c - kernels of norms (ops/tensor/norm.h). */
#include "ops/devices/gpu/kernels/norm.h"

#include "ops/devices/gpu/kernels/lanes.h"

/* ---- sums of rows ---- */

/* n columns from `first` of the block's rows to shared memory: x, or a and n of backward. */
DEVICE void stage(const lanes_block *b, const sheaf__layer_norm *of, int64_t first, int32_t n,
                  bool back, sheaf_dtype dtype)
{
    const int per = PER(dtype), groups = (n + per - 1) / per;
    float *x = (float *)shared_memory, *second = x + b->rows * b->pitch;
    for (int32_t g = (int32_t)threadIdx.x; g < b->rows * groups; g += (int32_t)blockDim.x) {
        const int32_t row = g / groups, c = g % groups * per;
        const int64_t r = b->first + row, at = r * of->cols + first;
        float v[MOST], dy[MOST], w[MOST];
        load_some(v, of->x, at + c, at + n, dtype, per);
        if (back) {
            const float mean = of->mean == NULL ? 0 : of->mean[r], rstd = of->rstd[r];
            load_some(dy, of->y, at + c, at + n, dtype, per);
            load_some(w, of->weight, first + c, first + n, SHEAF_F32, per);
            UNROLL
            for (int e = 0; e < per; e++) {
                dy[e] = w[e] * dy[e];
                v[e] = (v[e] - mean) * rstd;
            }
        }
        lanes_put(x + row * b->pitch + c, v, per);
        if (back)
            lanes_put(second + row * b->pitch + c, dy, per);
    }
}

/* The sum of the row of each half warp over `cols` columns from `first`; of backward that of a, and
 * with n. All threads of the block come here, and may use shared memory afterwards. */
DEVICE void sums_of(float sum[2], const lanes_block *b, const sheaf__layer_norm *of,
                    sheaf__norm_sums which, float mean, int64_t first, int64_t cols,
                    sheaf_dtype dtype)
{
    const float *x = (const float *)shared_memory + b->own * b->pitch, *a = x + b->rows * b->pitch;
    sum[0] = sum[1] = 0;
    for (int64_t at = 0; at < cols; at += b->chunk) {
        const int32_t n = cols - at < b->chunk ? (int32_t)(cols - at) : b->chunk;
        stage(b, of, first + at, n, which == SHEAF__SUMS_BACK, dtype);
        sync_threads();
        if (b->own >= b->rows)
            ; /* no row */
        else if (which == SHEAF__SUMS_BACK)
            lanes_add(sum, a, x, 0, n, b->lane, LANES_BOTH);
        else
            lanes_add(sum, x, x, mean, n, b->lane,
                      which == SHEAF__SUMS_X ? LANES_SUM : LANES_SQUARES);
        sync_threads();
    }
    sum[0] = lanes_join(sum[0]);
    sum[1] = lanes_join(sum[1]);
}

KERNELS(norm_sums, norm_sums_arguments, 256)
{
    const sheaf__layer_norm *of = &a->of;
    const lanes_block b = lanes_of(&a->shape, of->rows);
    const int s = (int)blockIdx.y;
    const bool own = b.own < b.rows;
    const int64_t r = b.first + (own ? b.own : 0), first = a->begin[s], cols = a->extent[s];
    float sum[2];
    if (cols == 0)
        return;
    if (a->which == SHEAF__SUMS_SQUARES)
        sums_of(sum, &b, of, SHEAF__SUMS_SQUARES, of->mean[r], first, cols, dtype);
    else
        sums_of(sum, &b, of, SHEAF__SUMS_X, 0, first, cols, dtype);
    if (own && b.lane == 0)
        a->sum[s * of->rows + r] = sum[0];
}

KERNELS(norm_back_sums, norm_sums_arguments, 256)
{
    const sheaf__layer_norm *of = &a->of;
    const lanes_block b = lanes_of(&a->shape, of->rows);
    const int s = (int)blockIdx.y;
    float sum[2], *part = a->sum + 2 * s * of->rows + b.first + b.own;
    if (a->extent[s] == 0)
        return;
    sums_of(sum, &b, of, SHEAF__SUMS_BACK, 0, a->begin[s], a->extent[s], dtype);
    if (b.own < b.rows && b.lane == 0) {
        part[0] = sum[0];
        part[of->rows] = sum[1];
    }
}

KERNEL(norm_statistics, sheaf__layer_call, 256)
{
    const int64_t r = own_index();
    const sheaf__layer_norm *n = &a->of;
    if (r >= n->rows)
        return;
    if (a->which == SHEAF__SUMS_SQUARES)
        n->rstd[r] = sheaf__norm_rstd(a->sum[r], n->width, n->eps);
    else
        n->mean[r] = n->plain ? 0 : sheaf__norm_mean(a->sum[r], n->width);
}

/* ---- forward ---- */

/* A row's mean and 1 / deviation, made or given, at two floats of shared memory. */
DEVICE void statistics(float *of_row, const lanes_block *b, const norm_arguments *a, bool rms,
                       sheaf_dtype dtype)
{
    const sheaf__layer_norm *of = &a->of;
    const bool own = b->own < b->rows, writes = own && b->lane == 0;
    const int64_t r = b->first + (own ? b->own : 0);
    float sum[2], mean = 0, rstd = 0;
    if (!rms && a->sums && !of->plain) {
        sums_of(sum, b, of, SHEAF__SUMS_X, 0, 0, of->cols, dtype);
        mean = sheaf__norm_mean(sum[0], of->width);
    }
    if (rms || a->sums) {
        sums_of(sum, b, of, SHEAF__SUMS_SQUARES, mean, 0, of->cols, dtype);
        rstd = sheaf__norm_rstd(sum[0], of->width, of->eps);
        if (writes && !rms)
            of->mean[r] = mean;
        if (writes)
            of->rstd[r] = rstd;
    } else if (writes) {
        mean = of->mean[r];
        rstd = of->rstd[r];
    }
    if (writes) {
        of_row[2 * b->own] = mean;
        of_row[2 * b->own + 1] = rstd;
    }
    sync_threads();
}

DEVICE void finish(float *v, const norm_arguments *a, int64_t at, int64_t end, int64_t c,
                   float mean, float rstd, bool rms, sheaf_dtype dtype)
{
    const sheaf__layer_norm *of = &a->of;
    const int per = PER(dtype);
    float w[MOST], bias[MOST], residual[MOST];
    load_some(v, of->x, at, end, dtype, per);
    load_some(w, of->weight, c, of->cols, SHEAF_F32, per);
    if (rms) {
        UNROLL
        for (int e = 0; e < per; e++) {
            const float n = v[e] * rstd;
            v[e] = w[e] * (a->once ? n : rounded_one(n, dtype));
        }
        return;
    }
    UNROLL
    for (int e = 0; e < per; e++)
        v[e] = w[e] * ((v[e] - mean) * rstd);
    load_some(bias, of->bias, c, of->cols, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e++)
        v[e] += bias[e];
    if (of->residual == NULL)
        return;
    load_some(residual, of->residual, at, end, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        v[e] = rounded_one(v[e], dtype) + residual[e];
}

DEVICE void forward(const norm_arguments *a, bool rms, sheaf_dtype dtype)
{
    const sheaf__layer_norm *of = &a->of;
    const lanes_block b = lanes_of(&a->shape, of->rows);
    const int per = PER(dtype), groups = (int)((of->cols + per - 1) / per);
    float *of_row = (float *)shared_memory;
    statistics(of_row, &b, a, rms, dtype);
    for (int32_t g = (int32_t)threadIdx.x; g < b.rows * groups; g += (int32_t)blockDim.x) {
        const int32_t row = g / groups, c = g % groups * per;
        const int64_t at = (b.first + row) * of->cols;
        float v[MOST];
        finish(v, a, at + c, at + of->cols, c, of_row[2 * row], of_row[2 * row + 1], rms, dtype);
        store_some(of->y, at + c, at + of->cols, v, dtype, per);
    }
}

KERNELS(rmsnorm, norm_arguments, 256)
{
    forward(a, true, dtype);
}

KERNELS(layernorm, norm_arguments, 256)
{
    forward(a, false, dtype);
}

/* ---- backward ---- */

/* A row's means of a and of a * n at two floats of shared memory. */
DEVICE void means(float *of_row, const lanes_block *b, const norm_back_arguments *a,
                  sheaf_dtype dtype)
{
    const sheaf__layer_norm *of = &a->of;
    const bool writes = b->own < b->rows && b->lane == 0;
    const int64_t r = b->first + (b->own < b->rows ? b->own : 0);
    float sum[2] = { 0, 0 };
    if (a->total == NULL)
        sums_of(sum, b, of, SHEAF__SUMS_BACK, 0, 0, of->cols, dtype);
    UNROLL
    for (int i = 0; i < 2; i++) {
        if (!writes)
            continue;
        float *total = a->total == NULL ? NULL : a->total + i * of->rows + r;
        const float mean =
            i == 0 && of->plain ? 0 : sheaf__norm_mean(total == NULL ? sum[i] : *total, of->width);
        of_row[2 * b->own + i] = mean;
        if (total != NULL)
            *total = mean;
    }
    sync_threads();
}

KERNELS(norm_back, norm_back_arguments, 256)
{
    const sheaf__layer_norm *of = &a->of;
    const lanes_block b = lanes_of(&a->shape, of->rows);
    const int per = PER(dtype), groups = (int)((of->cols + per - 1) / per);
    float *of_row = (float *)shared_memory;
    means(of_row, &b, a, dtype);
    for (int32_t g = (int32_t)threadIdx.x; g < b.rows * groups; g += (int32_t)blockDim.x) {
        const int32_t row = g / groups, c = g % groups * per;
        const int64_t r = b.first + row, at = r * of->cols + c, end = (r + 1) * of->cols;
        const float mean = of->mean == NULL ? 0 : of->mean[r], rstd = of->rstd[r];
        float x[MOST], dy[MOST], w[MOST], dx[MOST];
        load_some(x, of->x, at, end, dtype, per);
        load_some(dy, of->y, at, end, dtype, per);
        load_some(w, of->weight, c, of->cols, SHEAF_F32, per);
        if (a->add)
            load_some(dx, a->dx, at, end, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++) {
            const float n = (x[e] - mean) * rstd;
            const float own = w[e] * dy[e] - of_row[2 * row];
            const float g = rstd * (own - n * of_row[2 * row + 1]);
            dx[e] = a->add ? dx[e] + g : g;
        }
        store_some(a->dx, at, end, dx, dtype, per);
    }
}
