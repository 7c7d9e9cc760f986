/* lanes.h - sums of rows in 16 lanes, for kernels of norms and losses; the largest number of a
 * block.
 *
 * Lane i of a row adds elements i, i + 16, ... of it, one after the other: half a warp has a row.
 * That order leaves a row few threads, so all threads of the block bring elements to shared memory,
 * as float32, and half warps add what lies there. */
#pragma once

#include "ops/devices/gpu/kernels/lanes_shape.h"
#include "ops/devices/gpu/kernels/vectors.h"

/* The rows of this block. */
typedef struct lanes_block {
    int64_t first;
    int32_t rows, chunk, pitch;
    int32_t own, lane; /* the row of this thread's half warp, and its lane */
} lanes_block;

DEVICE lanes_block lanes_of(const lanes_shape *s, int64_t rows)
{
    lanes_block b;
    b.first = (int64_t)blockIdx.x * s->rows;
    b.rows = rows - b.first < s->rows ? (int32_t)(rows - b.first) : s->rows;
    b.chunk = s->chunk, b.pitch = s->pitch;
    b.own = (int32_t)threadIdx.x / LANES, b.lane = (int32_t)threadIdx.x % LANES;
    return b;
}

/* n floats to shared memory, in words of 16 bytes: one by one they would lie in few banks. */
DEVICE void lanes_put(float *to, const float *v, int n)
{
    UNROLL
    for (int i = 0; i < MOST; i += 4)
        if (i < n) {
            quad q;
            UNROLL
            for (int e = 0; e < 4; e++)
                q.word[e] = sheaf__bits(v[i + e]);
            store_quad(to + i, q);
        }
}

/* The same of n doubles. */
DEVICE void lanes_put_d(double *to, const double *v, int n)
{
    UNROLL
    for (int i = 0; i < MOST; i += 2)
        if (i < n) {
            quad q;
            memcpy(&q, v + i, sizeof q);
            store_quad(to + i, q);
        }
}

/* The sum of all lanes, for each of them. */
DEVICE float lanes_join(float x)
{
    UNROLL
    for (int by = LANES / 2; by > 0; by /= 2)
        x += shuffle_xor(x, by);
    return sheaf__one_nan(x);
}

/* The largest of the block's; of_warp: a number for each warp, in shared memory. */
DEVICE int32_t most_of_block(int32_t x, int32_t *of_warp)
{
    x = most_of_lanes(x);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = x;
    sync_threads();
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        x = of_warp[w] > x ? of_warp[w] : x;
    return x;
}

typedef enum lanes_what {
    LANES_SUM,     /* of x */
    LANES_SQUARES, /* of x - mean */
    LANES_BOTH     /* of x, and its products with y */
} lanes_what;

DEVICE void lanes_step(float sum[2], float x, float y, float mean, lanes_what what)
{
    if (what == LANES_SQUARES)
        sum[0] = fmaf(x - mean, x - mean, sum[0]);
    else
        sum[0] += x;
    if (what == LANES_BOTH)
        sum[1] = fmaf(x, y, sum[1]);
}

/* A lane goes on with n columns, which begin at lane 0. It loads some steps ahead: as long as these
 * take to be added, so that loads wait behind sums. */
DEVICE void lanes_add(float sum[2], const float *x, const float *y, float mean, int32_t n,
                      int32_t lane, lanes_what what)
{
    enum { AHEAD = 16 };
    const bool both = what == LANES_BOTH;
    const int ahead = both ? AHEAD / 2 : AHEAD;
    int32_t c = lane;
    for (; c + (ahead - 1) * LANES < n; c += ahead * LANES) {
        float u[AHEAD], v[AHEAD / 2];
        UNROLL
        for (int i = 0; i < AHEAD; i++)
            if (i < ahead)
                u[i] = x[c + i * LANES];
        UNROLL
        for (int i = 0; i < AHEAD / 2; i++)
            v[i] = both ? y[c + i * LANES] : 0;
        UNROLL
        for (int i = 0; i < AHEAD; i++)
            if (i < ahead)
                lanes_step(sum, u[i], both ? v[i % (AHEAD / 2)] : 0, mean, what);
    }
    for (; c < n; c += LANES)
        lanes_step(sum, x[c], both ? y[c] : 0, mean, what);
}

/* Goes on with the doubles first, first + hop, ... of n, one after the other; it loads ahead, too.
 */
DEVICE double lanes_add_d(double sum, const double *x, int32_t n, int32_t first, int hop)
{
    enum { AHEAD = 16 };
    int32_t c = first;
    for (; c + (AHEAD - 1) * hop < n; c += AHEAD * hop) {
        double u[AHEAD];
        UNROLL
        for (int i = 0; i < AHEAD; i++)
            u[i] = x[c + i * hop];
        UNROLL
        for (int i = 0; i < AHEAD; i++)
            sum += u[i];
    }
    for (; c < n; c += hop)
        sum += x[c];
    return sum;
}
