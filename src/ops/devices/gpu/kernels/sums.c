/* sums.c - kernels that give the host numbers. */
#include "ops/devices/gpu/kernels/sums.h"

#include "ops/devices/gpu/kernels/lanes.h"

/* ---- squares, in double ---- */

DEVICE void squares_make(double *to, const float *x, int32_t own, int64_t n)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int32_t at = (own + i * SQUARES_MAKERS) * 4;
        float v[4];
        double square[4];
        load_some(v, x, at, n, SHEAF_F32, 4);
        UNROLL
        for (int e = 0; e < 4; e++)
            square[e] = (double)v[e] * (double)v[e];
        lanes_put_d(to + at, square, 4);
    }
}

/* The first warp adds up what the others have made of a chunk, while they make the next. */
KERNEL(squares, squares_arguments, SQUARES_THREADS)
{
    const float *x = a->item[blockIdx.x].x;
    const int64_t n = a->item[blockIdx.x].n;
    const int32_t own = (int32_t)threadIdx.x - 32;
    double *made = (double *)shared_memory, sum = 0;
    for (int64_t k = 0, at = 0; at < n + SQUARES_CHUNK; k++, at += SQUARES_CHUNK) {
        const int64_t before = n - at + SQUARES_CHUNK; /* elements from the last chunk on */
        if (own >= 0 && at < n)
            squares_make(made + k % 2 * SQUARES_CHUNK, x + at, own, n - at);
        else if (own < LANES - 32 && k > 0)
            sum = lanes_add_d(sum, made + (k + 1) % 2 * SQUARES_CHUNK,
                              before < SQUARES_CHUNK ? (int32_t)before : SQUARES_CHUNK,
                              (int32_t)threadIdx.x, LANES);
        sync_threads();
    }
    if (own >= 0)
        return;
    UNROLL
    for (int by = LANES / 2; by > 0; by /= 2)
        sum += shuffle_xor_d(sum, by);
    if (threadIdx.x == 0)
        a->sum[blockIdx.x] = sum == sum ? sum : (double)sheaf__float(SHEAF__NAN_BITS);
}

/* ---- finite or not ---- */

KERNELS(finite, finite_arguments, 256)
{
    const sheaf__look *of = &a->of;
    const int per = PER(dtype);
    const int64_t step = (int64_t)gridDim.x * blockDim.x * per;
    int32_t found = 0;
    for (int64_t i = own_index() * per; i < of->n; i += step) {
        float x[MOST];
        load_some(x, of->x, i, of->n, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            found |= (sheaf__bits(sheaf__rounded(x[e], of->to)) & 0x7f800000) == 0x7f800000;
    }
    found = most_of_block(found, (int32_t *)shared_memory);
    if (threadIdx.x == 0)
        a->found[blockIdx.x] = found;
}
