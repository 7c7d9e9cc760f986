/* exchange.c - the sum over ranks, of operands in the memory of several GPUs: this rank's share of
 * the elements, into the outputs of all. */
#include "ops/devices/gpu/kernels/exchange.h"

#include "ops/devices/gpu/kernel.h"
#include "ops/math/round.h"

typedef struct __attribute__((aligned(16))) four {
    float x[4];
} four;

/* One element of an operand, or what an earlier step left. */
DEVICE float one_of(const sheaf__exchange *a, const four *slot, int which, int64_t i, int e)
{
    return which < 0 ? slot[~which * blockDim.x].x[e] : a->operand[which][i + e];
}

/* Elements [i, i + n). All operands are read before an output is written, which may be one. */
DEVICE void combine(const sheaf__exchange *a, four *slot, int64_t i, int n)
{
    four *whole = &slot[SHEAF__EXCHANGE_SLOTS * blockDim.x];
    for (int e = 0; e < n; e++) {
        whole->x[e] = a->operands > 0 ? a->operand[0][i + e] : 0.0f;
        for (int s = 0; s < a->steps; s++)
            slot[~a->to[s] * blockDim.x].x[e] =
                sheaf__one_nan(one_of(a, slot, a->a[s], i, e) + one_of(a, slot, a->b[s], i, e));
    }
    for (int r = 0; r < a->ranks; r++)
        for (int e = 0; e < n; e++)
            a->out[r][i + e] = whole->x[e];
}

/* The same of four elements, 16 bytes at a time. */
DEVICE void combine_four(const sheaf__exchange *a, four *slot, int64_t i)
{
    four *whole = &slot[SHEAF__EXCHANGE_SLOTS * blockDim.x];
    *whole = (four){ { 0, 0, 0, 0 } };
    if (a->operands > 0)
        *whole = *(const four *)(a->operand[0] + i);
    for (int s = 0; s < a->steps; s++) {
        const four x = a->a[s] < 0 ? slot[~a->a[s] * blockDim.x]
                                   : *(const four *)(a->operand[a->a[s]] + i),
                   y = a->b[s] < 0 ? slot[~a->b[s] * blockDim.x]
                                   : *(const four *)(a->operand[a->b[s]] + i);
        four *to = &slot[~a->to[s] * blockDim.x];
        UNROLL
        for (int e = 0; e < 4; e++)
            to->x[e] = sheaf__one_nan(x.x[e] + y.x[e]);
    }
    for (int r = 0; r < a->ranks; r++)
        *(four *)(a->out[r] + i) = *whole;
}

KERNEL(exchange_sum, sheaf__exchange, 256)
{
    four *slot = (four *)shared_memory + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * 4;
    for (int64_t i = a->begin + ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < a->end;
         i += step) {
        if (a->aligned && a->end - i >= 4)
            combine_four(a, slot, i);
        else
            combine(a, slot, i, a->end - i < 4 ? (int)(a->end - i) : 4);
    }
}
