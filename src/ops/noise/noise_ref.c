/* noise_ref.c - NEFTune (Jain et al. 2023): x = round(x + half[r] * t), t uniform in (-1, 1).
 *
 * Which t an element gets depends on its sample, position and channel, as with dropout, so noise is
 * the same at any number of devices, in any batch, and again where a pass is run twice. */
#include "ops/columns.h"

#include "base/random.h"
#include "ops/math/round.h"
#include "ops/noise/noise.h"

void sheaf__noise_ref(void *x, int64_t ldx, int64_t rows, int64_t cols, const sheaf__noise *how,
                      sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const uint32_t u =
                sheaf__random_u32(how->seed, how->purpose, how->step, (uint64_t)how->sample[r],
                                  (uint64_t)how->position[r], (uint64_t)c);
            const float value =
                sheaf__load(x, r * ldx + c, dtype) + how->half[r] * sheaf__noise_of(u);
            sheaf__store(x, r * ldx + c, value, dtype);
        }
}
