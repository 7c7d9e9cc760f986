/* products_finish.h - what all kernels of products do with tiles and sums (products.h). */
#pragma once

#include "ops/devices/cuda/kernel.h"
#include "ops/devices/cuda/kernels/products.h"
#include "ops/math/round.h"

/* The job that a tile belongs to. */
DEVICE const sheaf__products_job *products_job(const sheaf__products_table *table, int32_t tile)
{
    int32_t low = 0, high = table->jobs;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (table->job[middle].tile0 <= tile)
            low = middle;
        else
            high = middle;
    }
    return &table->job[low];
}

typedef struct products_tile {
    int32_t row, col;
} products_tile;

/* Number `tile` of a job's tiles, in numbers of tiles: bands of eight rows, so that tiles that run
 * at once share operands. */
DEVICE products_tile products_tile_at(const sheaf__products_job *job, int32_t tile)
{
    const int32_t band = 8, first = tile / (band * job->cols) * band,
                  left = job->rows - first < band ? job->rows - first : band,
                  at = tile - first * job->cols;
    products_tile t;
    t.row = first + at % left;
    t.col = at / left;
    return t;
}

/* A stored result that is NaN is the product's one: matmul.h. */
DEVICE float products_quiet(float x)
{
    return x == x ? x : sheaf__float(0xffc00000u);
}

DEVICE uint16_t products_half(float x, int out)
{
    if (out == SHEAF_F16)
        return x == x ? sheaf__f16(x) : (uint16_t)0xfe00;
    return x == x ? sheaf__bf16(x) : (uint16_t)0xffc0;
}

/* round(alpha * sum + bias), + residual, or y + alpha * sum; not yet rounded to `out`. */
DEVICE float products_finish(const sheaf__products_job *job, int32_t row, int32_t col, float sum)
{
    if (job->out == SHEAF_F32)
        sum = sheaf__rounded(sum, (sheaf_dtype)job->round_to);
    float v = job->alpha * sum;
    if (job->add)
        return ((const float *)job->y)[row * job->ldy + col] + v;
    if (job->bias != NULL)
        v = v + job->bias[col];
    if (job->residual != NULL)
        v = sheaf__rounded(v, (sheaf_dtype)job->out) +
            sheaf__load(job->residual, row * job->ldr + col, (sheaf_dtype)job->out);
    return v;
}

/* One result. `root`: where it goes instead, or NULL. */
DEVICE void products_store(const sheaf__products_job *job, float *root, int32_t row, int32_t col,
                           float sum)
{
    if (root != NULL) {
        root[(int64_t)row * job->n + col] = products_quiet(sum);
        return;
    }
    const float v = products_finish(job, row, col, sum);
    const int64_t at = row * job->ldy + col;
    if (job->out == SHEAF_F32)
        ((float *)job->y)[at] = products_quiet(v);
    else
        ((uint16_t *)job->y)[at] = products_half(v, job->out);
}
