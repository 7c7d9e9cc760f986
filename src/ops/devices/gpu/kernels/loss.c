/* loss.c - kernels on logits: what cross-entropy and its gradient are made of. */
#include "ops/devices/gpu/kernels/loss.h"

#include "ops/devices/gpu/kernels/lanes.h"

/* A block has a row. */
KERNEL(row_max, sheaf__of_rows, ROW_MAX_THREADS)
{
    const int64_t row = blockIdx.x, cols = a->l.cols, at = row * cols;
    int32_t most = sheaf__order(-INFINITY);
    for (int64_t c = (int64_t)threadIdx.x * 8; c < cols; c += (int64_t)blockDim.x * 8) {
        float x[2][MOST];
        UNROLL
        for (int i = 0; i < 2; i++)
            load_some(x[i], a->l.at, at + c + i * 4, at + cols, SHEAF_F32, 4);
        UNROLL
        for (int e = 0; e < 8; e++)
            if (c + e < cols && sheaf__order(x[e / 4][e % 4]) > most)
                most = sheaf__order(x[e / 4][e % 4]);
    }
    most = most_of_block(most, (int32_t *)shared_memory);
    if (threadIdx.x == 0)
        a->out[row] = sheaf__float((uint32_t)(most ^ (most >> 31 & 0x7fffffff)));
}

/* ---- sums of exponentials ---- */

/* The eight logits of a thread in a chunk; n: columns from the chunk on. */
DEVICE void row_sums_load(float *x, const float *logits, int32_t own, int64_t n)
{
    UNROLL
    for (int i = 0; i < 2; i++) /* warps read 512 bytes at once */
        load_some(x + 4 * i, logits, (int64_t)(own + i * ROW_SUMS_MAKERS) * 4, n, SHEAF_F32, 4);
}

DEVICE void row_sums_make(float *exponential, float *logit, const float *x, float max, int32_t own)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int32_t c = (own + i * ROW_SUMS_MAKERS) * 4;
        float made[4];
        UNROLL
        for (int e = 0; e < 4; e++)
            made[e] = sheaf__exp_of(x[4 * i + e] - max);
        lanes_put(exponential + c, made, 4);
        if (logit != NULL)
            lanes_put(logit + c, x + 4 * i, 4);
    }
}

KERNEL(row_sums, row_sums_arguments, ROW_SUMS_THREADS)
{
    const int64_t row = blockIdx.x, slice = blockIdx.y, cols = a->extent[slice];
    const float *logits = a->l.at + row * a->l.cols + a->begin[slice];
    const int32_t own = (int32_t)threadIdx.x - 32, lane = (int32_t)threadIdx.x % LANES;
    const bool adds = own < 0, of_logits = adds && threadIdx.x >= LANES;
    const int each = a->logits != NULL ? 2 : 1;
    float *made = (float *)shared_memory, x[8], sum[2] = { 0, 0 };
    if (cols == 0)
        return;
    if (!adds)
        row_sums_load(x, logits, own, cols);
    for (int64_t k = 0, at = 0; at < cols + ROW_SUMS_CHUNK; k++, at += ROW_SUMS_CHUNK) {
        float *next = made + k % 2 * each * ROW_SUMS_CHUNK;
        const float *last = made + (k + 1) % 2 * each * ROW_SUMS_CHUNK;
        const int64_t before = cols - at + ROW_SUMS_CHUNK; /* columns from the last chunk on */
        if (!adds && at < cols) {
            row_sums_make(next, each > 1 ? next + ROW_SUMS_CHUNK : NULL, x, a->max[row], own);
            if (at + ROW_SUMS_CHUNK < cols)
                row_sums_load(x, logits + at + ROW_SUMS_CHUNK, own, cols - at - ROW_SUMS_CHUNK);
        } else if (adds && k > 0 && (!of_logits || each > 1)) {
            const float *from = last + (of_logits ? ROW_SUMS_CHUNK : 0);
            lanes_add(sum, from, from, 0,
                      before < ROW_SUMS_CHUNK ? (int32_t)before : ROW_SUMS_CHUNK, lane, LANES_SUM);
        }
        sync_threads();
    }
    if (!adds)
        return;
    sum[0] = lanes_join(sum[0]);
    if (threadIdx.x == 0)
        a->exponentials[slice * a->ld + row] = sum[0];
    if (threadIdx.x == LANES && each > 1)
        a->logits[slice * a->ld + row] = sum[0];
}

/* ---- the gradient ---- */

KERNELS(row_gradient, sheaf__gradient_call, GRADIENT_THREADS)
{
    const sheaf__row_gradient *g = &a->g;
    const int per = PER(dtype);
    const int64_t row = blockIdx.x, cols = a->l.cols, at = row * cols, end = at + cols;
    const int32_t label = g->label[row];
    const int64_t target = label < 0 ? -1 : label - a->l.first;
    const float max = g->max[row], sum = g->sum[row], weight = g->how.weight[row];
    for (int i = 0; i < GRADIENT_COLUMNS / GRADIENT_THREADS / per; i++) {
        const int64_t c = (int64_t)blockIdx.y * GRADIENT_COLUMNS +
                          (int64_t)(i * GRADIENT_THREADS + (int32_t)threadIdx.x) * per;
        float d[MOST];
        if (c >= cols)
            return;
        if (label >= 0)
            load_some(d, a->l.at, at + c, end, SHEAF_F32, per);
        UNROLL
        for (int e = 0; e < per; e++) {
            const float keep = c + e == target ? g->how.keep : 0.0f;
            const float p = label < 0 ? 0 : sheaf__exp_of(d[e] - max) / sum;
            d[e] = label < 0 ? 0 : ((p - keep) - g->how.even) * weight;
        }
        store_some(g->d, at + c, end, d, dtype, per);
    }
}

/* ---- losses ---- */

KERNEL(losses, losses_arguments, 256)
{
    const int64_t i = own_index();
    if (i >= a->of.rows)
        return;
    a->loss[i] = sheaf__losses_row(&a->of, i);
    a->loss[a->of.rows + i] = a->of.first == NULL ? 0 : a->of.first[i];
}
