/* emulation_wide_cases.c - a product by wgmma and the copy engine, as small as it can be with all
 * that ops/devices/gpu/cuda/hopper.h has: a warpgroup that copies, two that multiply, tiles of w
 * shared by two blocks.
 */
#include "tests/gpu/emulation_wide_cases.h"

#include "ops/devices/gpu/cuda/hopper.h"

#ifdef __CUDACC__
#define MISTAKE(which) false /* nvcc shows what it makes of the right one */
#else
#define MISTAKE(which) (a->mistake == (which))
#endif

/* A ring of stages, each with a barrier that says it is full and one that says it is empty. */
typedef struct ring {
    char *stages;
    uint64_t *full, *empty;
    int stage, phase;
} ring;

DEVICE void next_stage(ring *r)
{
    if (++r->stage == WIDE_STAGES) {
        r->stage = 0;
        r->phase ^= 1;
    }
}

DEVICE void make_ring(ring *r, bool made)
{
    r->stages = shared_memory;
    r->full = (uint64_t *)(void *)(shared_memory + WIDE_STAGES * WIDE_STAGE);
    r->empty = r->full + WIDE_STAGES;
    r->stage = r->phase = 0;
    if (threadIdx.x == 0 && made) {
        for (int s = 0; s < WIDE_STAGES; s++) {
            mbarrier_init(r->full + s, 1);
            mbarrier_init(r->empty + s, 4); /* two warpgroups of each block that w goes to */
        }
        mbarriers_made();
    }
    sync_cluster();
}

DEVICE void copy_all(const case_wide *a, ring *r, int rank)
{
    const int bytes = WIDE_STAGE - (MISTAKE(WIDE_TOO_FEW_BYTES) ? WIDE_A : 0) +
                      (MISTAKE(WIDE_TOO_MANY_BYTES) ? 16 : 0);
    for (int k = 0; k < a->k; k += WIDE_ROW, next_stage(r)) {
        char *to = r->stages + r->stage * WIDE_STAGE;
        uint64_t *full = r->full + r->stage;
        mbarrier_wait(r->empty + r->stage, r->phase ^ (!MISTAKE(WIDE_WRONG_PARITY)));
        mbarrier_expect(full, bytes);
        copy_box(to + (MISTAKE(WIDE_UNALIGNED) ? 128 : 0), &a->x, full, k, rank * 128, 0);
        copy_box(to + WIDE_A + rank * (WIDE_B / 2), &a->w, full, k, rank * 128, 3);
    }
}

DEVICE void give_back(const ring *r, int stage, int thread)
{
    if (thread < 2)
        mbarrier_arrive(r->empty + stage, thread);
}

/* One stage's products. */
DEVICE void multiply_stage(const case_wide *a, const ring *r, float *d, int half, bool keep,
                           bool f16)
{
    const char *stage = r->stages + r->stage * WIDE_STAGE;
    wide_begin();
    UNROLL
    for (int k = 0; k < WIDE_ROW; k += 16) {
        const bool other = MISTAKE(WIDE_OTHER_OPERANDS) && threadIdx.x == 133;
        const uint64_t left = wide_operand(stage + half * (WIDE_A / 2), k),
                       right = wide_operand(stage + WIDE_A, other ? 0 : k);
        if (MISTAKE(WIDE_WARPS_PART) && threadIdx.x / 32 == 5 && k == 48)
            continue;
        if (f16)
            wide_f16_256(d, left, right, keep || k > 0, false, false);
        else
            wide_bf16_256(d, left, right, keep || k > 0, false, false);
    }
    wide_commit();
}

DEVICE void put_sums(const case_wide *a, float *d, int row)
{
    const int lane = (int)threadIdx.x % 32;
    wide_sums(d, 128);
    UNROLL
    for (int i = 0; i < 128; i++)
        a->y[(row + lane / 4 + i / 2 % 2 * 8) * 256 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

DEVICE void multiply_all(const case_wide *a, ring *r, int rank, bool f16)
{
    const int half = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128;
    const int row = rank * 128 + half * 64 + thread / 32 * 16;
    float d[128];
    int before = -1;
    UNROLL
    for (int i = 0; i < 128; i++)
        d[i] = 7;
    for (int k = 0; k < a->k; k += WIDE_ROW, next_stage(r)) {
        if (!MISTAKE(WIDE_NO_WAIT_FOR_STAGE))
            mbarrier_wait(r->full + r->stage, r->phase);
        multiply_stage(a, r, d, half, k > 0, f16);
        if (MISTAKE(WIDE_GIVEN_BACK_TOO_SOON)) {
            give_back(r, r->stage, thread);
        } else if (before >= 0) {
            wide_wait(1);
            give_back(r, before, thread);
        }
        before = r->stage;
    }
    if (MISTAKE(WIDE_SUMS_TOO_SOON))
        put_sums(a, d, row);
    if (!MISTAKE(WIDE_NO_LAST_WAIT))
        wide_wait(0);
    if (!MISTAKE(WIDE_SUMS_TOO_SOON))
        put_sums(a, d, row);
}

DEVICE void product(const case_wide *a, bool f16)
{
    ring r;
    const int rank = cluster_rank();
    make_ring(&r, !MISTAKE(WIDE_NOT_MADE));
    if (threadIdx.x < 128) {
        registers_fewer(40);
        if (threadIdx.x == 0)
            copy_all(a, &r, rank);
    } else {
        registers_more(232);
        multiply_all(a, &r, rank, f16);
    }
    sync_warp();
    sync_cluster();
}

KERNEL_OF_CLUSTERS(case_wide_bf16, case_wide, 384, 2)
{
    product(a, false);
}

KERNEL_OF_CLUSTERS(case_wide_f16, case_wide, 384, 2)
{
    product(a, true);
}

/* One thread waits, the others for it. */
KERNEL_OF_CLUSTERS(case_boxes, case_box, 128, 1)
{
    uint64_t *barrier = (uint64_t *)(void *)(shared_memory + 2048);
    if (threadIdx.x == 127) {
        mbarrier_init(barrier, 1);
        mbarriers_made();
        mbarrier_expect(barrier, 2048);
        copy_box(shared_memory, &a->map, barrier, a->column, a->row, 0);
        mbarrier_wait(barrier, 0);
    }
    sync_threads();
    for (int i = (int)threadIdx.x; i < 1024; i += 128)
        a->to[i] = ((const uint16_t *)(const void *)shared_memory)[i];
}
