/* emulation_cases.c - kernels for emulation_test.c; in a file of their own, which sanitizers leave
 * alone, as fibres have stacks that they do not know. */
#include "tests/gpu/emulation_cases.h"

#include <immintrin.h>

#include "ops/devices/gpu/kernel.h"

/* One thread an element, no waiting: 3/2 or 1/2 of x, fused; a denormal is zero. */
KERNEL(case_each, case_flat, 256)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a->n)
        a->y[i] = fmaf(a->x[i], i % 2 == 0 ? 0.5f : -0.5f, a->x[i]);
}

/* What a block finds in shared memory before it writes. */
KERNEL(case_garbage, case_flat, 256)
{
    a->y[threadIdx.x] = ((const float *)(const void *)shared_memory)[threadIdx.x];
}

/* A block takes what the block before it leaves: the order of blocks shows. */
KERNEL(case_blocks, case_flat, 32)
{
    if (threadIdx.x == 0)
        a->y[blockIdx.x] = blockIdx.x > 0 ? a->y[blockIdx.x - 1] + 1 : 1;
}

/* Where each block stands in a grid of three dimensions. */
KERNEL(case_grid, case_flat, 32)
{
    const uint32_t b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0)
        a->y[b] += (float)(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
}

KERNEL(case_reversed, case_reverse, 256)
{
    float *s = (float *)(void *)shared_memory;
    const int i = (int)threadIdx.x;
    s[i] = a->x[i];
    if (a->mistake != CASE_NO_BARRIER)
        sync_threads();
    a->y[i] = s[a->n - 1 - i];
}

/* Takes from the thread below, or above: without a barrier only one order of threads shows it. */
KERNEL(case_neighbour, case_reverse, 256)
{
    float *s = (float *)(void *)shared_memory;
    const int i = (int)threadIdx.x, from = a->mistake == CASE_BELOW ? i - 1 : i + 1;
    s[i] = a->x[i];
    a->y[i] = from >= 0 && from < a->n ? s[from] : 0;
}

/* case_reversed inside a warp. */
KERNEL(case_reversed_warp, case_reverse, 32)
{
    float *s = (float *)(void *)shared_memory;
    const int i = (int)threadIdx.x;
    s[i] = a->x[i];
    if (a->mistake != CASE_NO_BARRIER)
        sync_warp();
    a->y[i] = s[31 - i];
}

KERNEL(case_shuffled, case_shuffles, 64)
{
    const int lane = (int)threadIdx.x % 32;
    float x = a->x[lane];
    double d = x;
    int32_t n = lane * lane;
    for (int by = 16; by > 0; by /= 2) {
        x += shuffle_xor(x, by);
        d += shuffle_xor_d(d, by);
        n += shuffle_xor_i(n, by);
    }
    a->sum[threadIdx.x] = x;
    a->sum_d[threadIdx.x] = d;
    a->sum_i[threadIdx.x] = n;
}

/* All lanes overwrite the rows as soon as they have theirs. */
KERNEL(case_matrix, case_matrices, 32)
{
    uint16_t *s = (uint16_t *)(void *)shared_memory;
    const int lane = (int)threadIdx.x;
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 8; i++)
            s[lane * 8 + i] = a->x[lane * 8 + i];
        sync_warp();
        if (again == 0)
            load_matrices(a->plain + lane * 4, s + lane * 8);
        else
            load_transposed(a->transposed + lane * 4, s + lane * 8);
        for (int i = 0; i < 8; i++)
            s[lane * 8 + i] = 0;
    }
}

DEVICE uint32_t pair(const uint16_t *x, int next)
{
    return x[0] | (uint32_t)x[next] << 16;
}

KERNEL(case_product, case_mma, 128)
{
    const int64_t w = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint16_t *left = a->a + w * 256, *right = a->b + w * 128;
    float *c = a->c + w * 128, d[4];
    uint32_t x[4], y[2];
    for (int i = 0; i < 4; i++)
        x[i] = pair(left + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8, 1);
    for (int i = 0; i < 2; i++)
        y[i] = pair(right + (2 * t + 8 * i) * 8 + g, 8);
    for (int i = 0; i < 4; i++)
        d[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    if (a->f16)
        mma_f16(d, x, y);
    else
        mma_bf16(d, x, y);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

/* Two places in shared memory; a copy is under way while the one before is read. */
KERNEL(case_copied, case_ring, 128)
{
    const int threads = (int)blockDim.x, own = (int)threadIdx.x, other = threads - 1 - own;
    float *s = (float *)(void *)shared_memory, sum = 0;
    copy_16(s + own * 4, a->x + own * 4, true);
    copies_commit();
    for (int i = 0; i < a->stages; i++) {
        if (a->mistake != CASE_NO_BARRIER_BEFORE)
            sync_threads();
        copy_16(s + ((i + 1) % 2 * threads + own) * 4,
                a->x + ((int64_t)(i + 1) * threads + own) * 4, i + 1 < a->stages);
        copies_commit();
        if (a->mistake == CASE_WAIT_FOR_FEWER)
            copies_wait(2);
        else if (a->mistake != CASE_NO_WAIT)
            copies_wait(1);
        if (a->mistake != CASE_NO_BARRIER_AFTER)
            sync_threads();
        sum += s[(i % 2 * threads + other) * 4 + i % 4];
    }
    a->y[own] = sum;
}

typedef __m128i quad; /* as the compiler takes what is said to be aligned to 16 bytes */

/* A stack that has no end. */
static __attribute__((noinline)) int deeper(float *depth)
{
    volatile int place[1000];
    const int at = (int)++*depth % 1000;
    place[at] = at;
    return place[at] < 0 ? 0 : deeper(depth) + place[at];
}

static void odd_access(const case_odd *a, float *s)
{
    uint32_t r[4];
    switch (a->what) {
    case ODD_MATRICES_OUTSIDE: load_matrices(r, a->x); break;
    case ODD_MATRICES_UNALIGNED: load_matrices(r, s + 1); break;
    case ODD_COPY_UNALIGNED: copy_16(s, (const char *)a->x + 4, true); break;
    case ODD_COPY_OUTSIDE: copy_16((char *)s + a->shared / 16 * 16, a->x, false); break;
    case ODD_QUAD_UNALIGNED: *(volatile quad *)s = *(const quad *)(a->x + 2); break;
    case ODD_ONE_PAST_SHARED: ((char *)s)[a->shared] = 0; break;
    case ODD_FAR_PAST_SHARED: ((volatile char *)s)[a->shared + 1000] = 0; break;
    case ODD_BELOW_SHARED: s[-1] = 0; break;
    case ODD_NO_MEMORY: *(volatile float *)(uintptr_t)4096 = 0; break;
    case ODD_DEEP: deeper(a->x); break;
    default: break;
    }
}

KERNEL(case_odds, case_odd, 64)
{
    const int own = (int)threadIdx.x;
    float *s = (float *)(void *)shared_memory;
    s[own] = a->x[own];
    sync_threads();
    if (a->what != ODD_STUCK_AT_BARRIER || own != 37)
        sync_threads();
    if (a->what == ODD_LANES_PART && own == 40)
        sync_warp();
    else if (a->what != ODD_STUCK_AT_SHUFFLE || own != 33)
        s[own] = shuffle_xor(s[own], 1);
    odd_access(a, s);
    a->x[own] = s[own];
}
