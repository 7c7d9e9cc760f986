/* exchange.c - the sum over ranks, of operands in the memory of several GPUs: this rank's share of
 * the elements, into the outputs of all. */
#include "ops/devices/gpu/kernels/exchange.h"

#include "ops/devices/gpu/kernels/vectors.h"

typedef struct four {
    float x[4];
} __attribute__((aligned(16))) four;

/* Elements i and up of an operand, or what an earlier step left. */
DEVICE four take(const sheaf__exchange *a, const four *slot, int which, int64_t i)
{
    four x;
    if (which < 0)
        return slot[~which * blockDim.x];
    load_some(x.x, a->operand[which], i, a->end, SHEAF_F32, 4);
    return x;
}

/* Four elements of a thread: all operands are read before an output is written, which may be one.
 */
DEVICE void combine(const sheaf__exchange *a, four *slot, int64_t i)
{
    four *whole = &slot[SHEAF__EXCHANGE_SLOTS * blockDim.x];
    *whole = (four){ { 0, 0, 0, 0 } };
    if (a->operands > 0)
        *whole = take(a, slot, 0, i);
    for (int s = 0; s < a->steps; s++) {
        const four x = take(a, slot, a->a[s], i), y = take(a, slot, a->b[s], i);
        four *to = &slot[~a->to[s] * blockDim.x];
        UNROLL
        for (int e = 0; e < 4; e++)
            to->x[e] = sheaf__one_nan(x.x[e] + y.x[e]);
    }
    const four out = *whole;
    for (int r = 0; r < a->ranks; r++)
        move_some(a->out[r], i, a->end, out.x, SHEAF_F32, 4);
}

KERNEL(exchange_sum, sheaf__exchange, 256)
{
    four *slot = (four *)shared_memory + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * 4;
    for (int64_t i = a->begin + own_index() * 4; i < a->end; i += step)
        combine(a, slot, i);
}
