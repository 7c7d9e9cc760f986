/* products_finish.h - what all kernels of products do with tiles and sums (products.h). */
#pragma once

#include "ops/devices/gpu/kernel.h"
#include "ops/devices/gpu/kernels/products.h"
#include "ops/matmul/matmul_round.h"

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

DEVICE uint16_t products_half(float x, int out)
{
    return out == SHEAF_F16 ? sheaf__f16(mm_quiet(x)) : mm_to_bf16(x);
}

/* round(alpha * sum + bias) + residual, or y + alpha * sum, not yet rounded to `out`. other: the
 * element of y or of residual, of whichever is added. */
DEVICE float products_value(const sheaf__products_job *job, float sum, float bias, float other)
{
    if (job->out == SHEAF_F32)
        sum = sheaf__rounded(sum, (sheaf_dtype)job->round_to);
    float v = job->alpha * sum;
    if (job->add)
        return other + v;
    if (job->bias != NULL)
        v = v + bias;
    if (job->residual != NULL)
        v = sheaf__rounded(v, (sheaf_dtype)job->out) + other;
    return v;
}

/* One result. `root`: where it goes instead, or NULL. */
DEVICE void products_store(const sheaf__products_job *job, float *root, int32_t row, int32_t col,
                           float sum)
{
    if (root != NULL) {
        root[(int64_t)row * job->root_ld + col] = mm_quiet(sum);
        return;
    }
    const int64_t at = row * job->ldy + col;
    float other = 0.0f;
    if (job->add)
        other = ((const float *)job->y)[at];
    else if (job->residual != NULL)
        other = sheaf__load(job->residual, row * job->ldr + col, (sheaf_dtype)job->out);
    const float v = products_value(job, sum, job->bias != NULL ? job->bias[col] : 0.0f, other);
    if (job->out == SHEAF_F32)
        ((float *)job->y)[at] = mm_quiet(v);
    else
        ((uint16_t *)job->y)[at] = products_half(v, job->out);
}

/* ---- eight results at once ---- */

typedef struct products_16 {
    uint32_t x[4];
} __attribute__((aligned(16))) products_16; /* bytes */

DEVICE bool products_even(const void *at)
{
    return ((uintptr_t)at & 15) == 0;
}

DEVICE void products_floats(float *x, const float *at)
{
    const products_16 low = ((const products_16 *)at)[0], high = ((const products_16 *)at)[1];
    UNROLL
    for (int e = 0; e < 4; e++) {
        x[e] = sheaf__float(low.x[e]);
        x[4 + e] = sheaf__float(high.x[e]);
    }
}

DEVICE void products_halves(float *x, const uint16_t *at, sheaf_dtype dtype)
{
    const products_16 two = *(const products_16 *)at;
    UNROLL
    for (int e = 0; e < 8; e++) {
        const uint16_t half = (uint16_t)(two.x[e / 2] >> e % 2 * 16);
        x[e] = dtype == SHEAF_F16 ? sheaf__from_f16(half) : sheaf__from_bf16(half);
    }
}

/* Those of out == F32, and sums for a root. */
DEVICE void products_put_floats(float *at, const float *v)
{
    products_16 low, high;
    UNROLL
    for (int e = 0; e < 4; e++) {
        low.x[e] = sheaf__bits(mm_quiet(v[e]));
        high.x[e] = sheaf__bits(mm_quiet(v[4 + e]));
    }
    ((products_16 *)at)[0] = low;
    ((products_16 *)at)[1] = high;
}

/* All of them there, and all that is read or written at multiples of 16 bytes. */
DEVICE void products_store_even(const sheaf__products_job *job, int32_t row, int32_t col,
                                const float *sum)
{
    const int64_t at = row * job->ldy + col, other_at = row * job->ldr + col;
    float bias[8] = { 0 }, other[8] = { 0 }, v[8];
    if (job->bias != NULL)
        products_floats(bias, job->bias + col);
    if (job->add)
        products_floats(other, (const float *)job->y + at);
    else if (job->residual != NULL && job->out == SHEAF_F32)
        products_floats(other, (const float *)job->residual + other_at);
    else if (job->residual != NULL)
        products_halves(other, (const uint16_t *)job->residual + other_at, (sheaf_dtype)job->out);
    products_floats(v, sum);
    UNROLL
    for (int e = 0; e < 8; e++)
        v[e] = products_value(job, v[e], bias[e], other[e]);
    if (job->out == SHEAF_F32) {
        products_put_floats((float *)job->y + at, v);
        return;
    }
    products_16 halves;
    UNROLL
    for (int e = 0; e < 4; e++)
        halves.x[e] = products_half(v[e * 2], job->out) |
                      (uint32_t)products_half(v[e * 2 + 1], job->out) << 16;
    *(products_16 *)((uint16_t *)job->y + at) = halves;
}

/* Results of columns [col, col + 8) of a row, of those that the job has; `sum` at a multiple of 16
 * bytes. */
DEVICE void products_store_8(const sheaf__products_job *job, float *root, int32_t row, int32_t col,
                             const float *sum)
{
    if (row >= job->m || col >= job->n)
        return;
    const int size = job->out == SHEAF_F32 ? 4 : 2;
    const bool even = root == NULL && col + 8 <= job->n && products_even(job->bias) &&
                      products_even((char *)job->y + row * job->ldy * size) &&
                      products_even((const char *)job->residual + row * job->ldr * size);
    if (even) {
        products_store_even(job, row, col, sum);
        return;
    }
    ROLLED
    for (int e = 0; e < 8 && col + e < job->n; e++)
        products_store(job, root, row, col + e, sum[e]);
}
