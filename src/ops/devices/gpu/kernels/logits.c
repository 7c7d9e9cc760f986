/* logits.c - kernels on logits that are no sums (ops/tensor/loss.h). */
#include "ops/devices/gpu/kernels/lanes.h"
#include "ops/softcap/softcap.h"
#include "ops/tensor/loss.h"

/* All of float32; infinity, of which the cap would make a number, is none. */
KERNELS(softcap, sheaf__capped, 256)
{
    const int64_t i = own_index() * 4, n = a->rows * a->cols;
    if (i >= n)
        return;
    float x[4];
    load_some(x, a->x, i, n, SHEAF_F32, 4);
    UNROLL
    for (int e = 0; e < 4; e++) {
        const bool infinite = (sheaf__bits(x[e]) & 0x7fffffff) == 0x7f800000;
        x[e] = sheaf__softcap_of(infinite ? sheaf__float(SHEAF__NAN_BITS) : x[e], a->cap, dtype);
    }
    store_some(a->x, i, n, x, SHEAF_F32, 4);
}

KERNELS(softcap_back, sheaf__capped, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per, n = a->rows * a->cols;
    if (i >= n)
        return;
    float dx[MOST], y[MOST];
    load_some(dx, a->x, i, n, dtype, per);
    load_some(y, a->y, i, n, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e++)
        dx[e] = sheaf__softcap_back_of(dx[e], y[e], a->cap);
    store_some(a->x, i, n, dx, dtype, per);
}

KERNEL(row_labels, sheaf__of_rows, 256)
{
    const int64_t i = own_index();
    if (i >= a->l.rows)
        return;
    const int64_t column = a->label[i] < 0 ? -1 : a->label[i] - a->l.first;
    const bool here = column >= 0 && column < a->l.cols;
    ((uint32_t *)a->out)[i] = here ? ((const uint32_t *)a->l.at)[i * a->l.cols + column] : 0;
}

/* A block a row. Each thread looks through its own columns up to the first that has the largest;
 * the first of these is the row's. */
KERNEL(row_first, sheaf__of_rows, 256)
{
    const int64_t row = blockIdx.x, cols = a->l.cols;
    const float *x = a->l.at + row * cols, max = a->max[row];
    int64_t c = threadIdx.x;
    while (c < cols && x[c] != max)
        c += blockDim.x;
    const int32_t best =
        -most_of_block(c < cols ? -(int32_t)c : -INT32_MAX, (int32_t *)shared_memory);
    if (threadIdx.x == 0)
        a->out[row] = best < INT32_MAX ? -(float)(a->l.first + best) : sheaf__float(0xff800000);
}
