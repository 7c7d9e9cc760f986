/* probe_wide.c - kernels that ask a GPU in what order wgmma adds (probe.h). */
#include "ops/devices/gpu/cuda/hopper.h"
#include "ops/devices/gpu/kernels/probe.h"
#include "ops/math/round.h"

enum { THREADS = 128, ROWS = 64, COLS = 128, SUMS = COLS / 2 };

/* The same 16 elements as each row of an operand, with the swizzle of 128 bytes. */
DEVICE void fill(char *tile, int rows, const uint16_t *x, bool across)
{
    for (int i = (int)threadIdx.x; i < rows * 16; i += THREADS) {
        const int row = i / 16, k = i % 16,
                  at = across ? row / 64 * WIDE_BOX + k * WIDE_ROW * 2 + row % 64 * 2
                              : row * WIDE_ROW * 2 + k * 2;
        *(uint16_t *)(void *)(tile + (at ^ (at >> 7 & 7) << 4)) = x[k];
    }
}

/* All sums are one: its bits; else those that no order gives. */
DEVICE uint32_t sum_of(const sheaf__probe_group *in, bool across, bool f16)
{
    char *a = shared_memory, *b = a + WIDE_BOX;
    float d[SUMS];
    sync_threads();
    fill(a, ROWS, in->a, across);
    fill(b, COLS, in->b, across);
    stores_seen();
    sync_threads();
    UNROLL
    for (int i = 0; i < SUMS; i++)
        d[i] = sheaf__float(in->c);
    const uint64_t left = across ? wide_across(a, 0) : wide_operand(a, 0),
                   right = across ? wide_across(b, 0) : wide_operand(b, 0);
    wide_begin();
    if (f16)
        wide_f16_128(d, left, right, 1, across, across);
    else
        wide_bf16_128(d, left, right, 1, across, across);
    wide_commit();
    wide_wait(0);
    wide_sums(d, SUMS);
    bool same = true;
    UNROLL
    for (int i = 1; i < SUMS; i++)
        same &= sheaf__bits(d[i]) == sheaf__bits(d[0]);
    return same ? sheaf__bits(d[0]) : SHEAF__PROBE_NO_SUM;
}

DEVICE void probe_wide(const sheaf__probe_groups *a, bool f16)
{
    const sheaf__probe_group *in = a->in + blockIdx.x;
    const uint32_t along = sum_of(in, false, f16), across = sum_of(in, true, f16);
    a->out[(int64_t)blockIdx.x * THREADS + threadIdx.x] =
        along == across ? along : SHEAF__PROBE_NO_SUM;
}

KERNEL(probe_wide_bf16, sheaf__probe_groups, THREADS)
{
    probe_wide(a, false);
}

KERNEL(probe_wide_f16, sheaf__probe_groups, THREADS)
{
    probe_wide(a, true);
}
