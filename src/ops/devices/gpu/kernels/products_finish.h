/* products_finish.h - what all kernels of products do with tiles and sums (products.h). */
#pragma once

#include "ops/devices/gpu/kernels/products.h"
#include "ops/devices/gpu/kernels/vectors.h"
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

/* Results to elements [at, at + 8) of y, of those before `end`. */
DEVICE void products_put_8(void *y, int64_t at, int64_t end, const float *v, sheaf_dtype out)
{
    float quiet[8];
    quad halves;
    UNROLL
    for (int e = 0; e < 8; e++)
        quiet[e] = mm_quiet(v[e]);
    if (out == SHEAF_F32) {
        move_some(y, at, end, quiet, SHEAF_F32, 8);
        return;
    }
    UNROLL
    for (int e = 0; e < 4; e++)
        halves.word[e] = products_half(v[e * 2], out) | (uint32_t)products_half(v[e * 2 + 1], out)
                                                            << 16;
    if (in_quads(y, at, end, out, 8)) {
        store_quad((uint16_t *)y + at, halves);
        return;
    }
    UNROLL
    for (int e = 0; e < 8; e++)
        if (at + e < end)
            ((uint16_t *)y)[at + e] = (uint16_t)(halves.word[e / 2] >> e % 2 * 16);
}

/* Results of columns [col, col + 8) of a row, of those that the job has. */
DEVICE void products_store_8(const sheaf__products_job *job, float *root, int32_t row, int32_t col,
                             const float *sum)
{
    const sheaf_dtype out = (sheaf_dtype)job->out;
    const int64_t at = row * job->ldy, beside = row * job->ldr, n = job->n;
    float v[8], bias[8] = { 0 }, other[8] = { 0 };
    if (row >= job->m || col >= n)
        return;
    load_some(v, sum, 0, 8, SHEAF_F32, 8);
    if (root != NULL) {
        products_put_8(root + (int64_t)row * job->root_ld, col, n, v, SHEAF_F32);
        return;
    }
    if (job->bias != NULL)
        load_some(bias, job->bias, col, n, SHEAF_F32, 8);
    if (job->add)
        load_some(other, job->y, at + col, at + n, SHEAF_F32, 8);
    else if (job->residual != NULL && out == SHEAF_F32)
        load_some(other, job->residual, beside + col, beside + n, SHEAF_F32, 8);
    else if (job->residual != NULL)
        load_some(other, job->residual, beside + col, beside + n, out, 8);
    UNROLL
    for (int e = 0; e < 8; e++)
        v[e] = products_value(job, v[e], bias[e], other[e]);
    products_put_8(job->y, at + col, at + n, v, out);
}
