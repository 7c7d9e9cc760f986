/* probe.c - kernels that ask a GPU how it computes: where results are flushed to zero, and in what
 * order its tensor cores add. */
#include "ops/devices/gpu/kernels/probe.h"
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/math/denormals.h"

KERNEL(probe_floats, sheaf__probe_floats, 256)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    const float *x = a->in + i * 3;
    float *y = a->out + i * SHEAF__PROBE_RESULTS;
    y[SHEAF__PROBE_SUM] = x[0] + x[1];
    y[SHEAF__PROBE_PRODUCT] = x[0] * x[1];
    y[SHEAF__PROBE_FMA] = fmaf(x[0], x[1], x[2]);
    y[SHEAF__PROBE_QUOTIENT] = x[0] / x[1];
    y[SHEAF__PROBE_ROOT] = sqrtf(x[2] < 0 ? -x[2] : x[2]);
    y[SHEAF__PROBE_KEPT] = sheaf__kept_product(x[0], x[1]);
    y[SHEAF__PROBE_BF16] = sheaf__from_bf16((uint16_t)halves_of(x[0], x[1], SHEAF_BF16));
    y[SHEAF__PROBE_F16] = sheaf__from_f16((uint16_t)(halves_of(x[1], x[0], SHEAF_F16) >> 16));
}

/* A warp's part of one instruction. */
DEVICE void probe_group(const sheaf__probe_groups *a, bool f16)
{
    const sheaf__probe_group *in = a->in + blockIdx.x;
    const int t = (int)threadIdx.x % 4;
    uint32_t row[2], x[4], y[2];
    float d[4];
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int k = t * 2 + half * 8;
        row[half] = in->a[k] | (uint32_t)in->a[k + 1] << 16;
        y[half] = in->b[k] | (uint32_t)in->b[k + 1] << 16;
    }
    x[0] = x[1] = row[0];
    x[2] = x[3] = row[1];
    UNROLL
    for (int i = 0; i < 4; i++)
        d[i] = sheaf__float(in->c);
    if (f16)
        mma_f16(d, x, y);
    else
        mma_bf16(d, x, y);
    UNROLL
    for (int i = 0; i < 4; i++)
        a->out[(int64_t)blockIdx.x * 128 + (int)threadIdx.x * 4 + i] = sheaf__bits(d[i]);
}

KERNEL(probe_bf16, sheaf__probe_groups, 32)
{
    probe_group(a, false);
}

KERNEL(probe_f16, sheaf__probe_groups, 32)
{
    probe_group(a, true);
}
