/* emulation_mma.c - see emulation_mma.h: by the kernel of mma8 and mma16 of processors, a vector of
 * columns wide. That goes on with its own sums: none is -0, or another NaN than 0x7fffffff. */
#include "ops/matmul/matmul_mma_vec256.h"

#undef ISA
#define ISA(x) x##_emulated
#include "ops/matmul/matmul_mma_kernel.h"

#include "tests/gpu/emulation_mma.h"

enum { ROWS = 16, STEPS = 8 };

WIDTH(8, tile, 1)
WIDTH(16, tile, 1)

void sheaf__emu_mma_tile(float c[16][8], const uint32_t a[16][8], const uint32_t b[8][8], int group,
                         bool f16)
{
    static void (*const into[2][2])(right *, const uint32_t *, int64_t,
                                    int64_t) = { { right_8_tile_0, right_8_tile_1 },
                                                 { right_16_tile_0, right_16_tile_1 } };
    static _Thread_local struct {
        mma_left left;
        right right;
        float sums[ROWS * MM_PANEL];
    } own; /* larger than a fibre's stack */
    const mm_pass pass = { .steps = STEPS };
    const mm_band band = { .a = a, .words = STEPS, .pass = &pass, .passes = 1, .rows = ROWS };
    const meeting m = { &own.left,
                        &own.right,
                        own.sums,
                        ROWS,
                        0,
                        2 * STEPS,
                        group == 8 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16,
                        f16 ? SHEAF_F16 : SHEAF_BF16,
                        *a,
                        *b,
                        STEPS,
                        LANES,
                        STEPS };
    for (int i = 0; i < ROWS; i++) {
        const ivec x = ILOAD(c[i]);
        const vec nan = _mm256_cmp_ps(FLOATS(x), FLOATS(x), _CMP_UNORD_Q);
        const ivec sum = _mm256_andnot_si256(_mm256_cmpeq_epi32(SLL(x, 1), ISET(0)), x);
        STORE(own.sums + i * MM_PANEL,
              _mm256_blendv_ps(FLOATS(sum), FLOATS(ISET(0x7fffffff)), nan));
    }
    sheaf__mma_left(&own.left, &band, f16, group, SUMS);
    into[group == 16][f16](&own.right, *b, LANES, STEPS);
    const unsigned before = sheaf__mode_set(sheaf__mode() | SHEAF__TOWARD_ZERO);
    (group == 8 ? meet_8_tile : meet_16_tile)(&m);
    sheaf__mode_set(before);
    for (int i = 0; i < ROWS; i++)
        memcpy(c[i], own.sums + i * MM_PANEL, sizeof c[i]);
}
