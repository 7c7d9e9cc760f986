/* columns.c - kernels that sum columns. */
#include "ops/devices/gpu/kernels/columns.h"

#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/tensor/images.h"

enum { AHEAD = 8 };

/* A step of `count` rows from row t. */
DEVICE void columns_step(float sum[2], const columns_arguments *a, int64_t c, int64_t row_of_head,
                         int64_t t, int count, sheaf_dtype dtype)
{
    float dy[AHEAD], x[AHEAD], mean[AHEAD], rstd[AHEAD];
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        if (i >= count)
            continue;
        dy[i] = load_one(a->dy, (t + i) * a->ld + c, dtype);
        if (a->x == NULL)
            continue;
        x[i] = load_one(a->x, (t + i) * a->ld + c, dtype);
        mean[i] = a->mean == NULL ? 0 : a->mean[row_of_head + t + i];
        rstd[i] = a->rstd[row_of_head + t + i];
    }
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        if (i >= count)
            continue;
        if (a->x != NULL)
            sum[0] = fmaf(dy[i], (x[i] - mean[i]) * rstd[i], sum[0]);
        sum[1] += dy[i];
    }
}

KERNELS(columns, columns_arguments, 256)
{
    const int64_t c = own_index(), block = blockIdx.y, begin = block * COLUMN_ROWS,
                  end = a->rows - begin < COLUMN_ROWS ? a->rows : begin + COLUMN_ROWS;
    if (c >= a->cols)
        return;
    const int64_t row_of_head = a->x == NULL ? 0 : c / a->head * a->rows;
    float sum[2] = { 0, 0 };
    int64_t t = begin;
    for (; t + AHEAD <= end; t += AHEAD)
        columns_step(sum, a, c, row_of_head, t, AHEAD, dtype);
    for (; t < end; t++)
        columns_step(sum, a, c, row_of_head, t, 1, dtype);
    if (a->sum != NULL)
        a->sum[block * a->cols + c] = sum[0];
    if (a->plain != NULL)
        a->plain[block * a->cols + c] = sum[1];
}

KERNEL(columns_add, columns_add_arguments, 256)
{
    const int64_t c = own_index();
    if (c >= a->cols)
        return;
    float to = a->to[c];
    for (int64_t b = 0; b < a->blocks; b++)
        to = sheaf__one_nan(to + a->sum[b * a->cols + c]);
    a->to[c] = to;
}

KERNEL(heads_add, heads_add_arguments, 256)
{
    const int64_t i = own_index();
    if (i >= a->slices * a->width)
        return;
    const int64_t s = i / a->width, c = i % a->width, end = a->begin[s] + a->extent[s];
    float to = 0;
    for (int64_t head = a->begin[s]; head < end; head += a->width)
        for (int64_t b = 0; b < a->blocks; b++)
            to = sheaf__one_nan(to + a->sum[b * a->ld + head + c]);
    a->to[i] = to;
}

/* Sums of an element's copies, in the same order. */
KERNELS(sum_copies, sheaf__repeats, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per, n = a->n;
    if (i >= n)
        return;
    float sum[MOST], part[MOST], v[MOST];
    UNROLL
    for (int e = 0; e < per; e++)
        sum[e] = part[e] = 0;
    for (int64_t copy = 0; copy < a->copies; copy++) {
        load_some(v, a->from, copy * n + i, copy * n + n, dtype, per);
        const bool last = copy + 1 == a->copies || (copy + 1) % COLUMN_ROWS == 0;
        UNROLL
        for (int e = 0; e < per; e++) {
            part[e] += v[e];
            if (last) {
                sum[e] = sheaf__one_nan(sum[e] + part[e]);
                part[e] = 0;
            }
        }
    }
    if (a->add) {
        load_some(v, a->x, i, n, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            sum[e] += v[e];
    }
    store_some(a->x, i, n, sum, dtype, per);
}
