/* dropout_ref.c - y = round(kept ? x * scale : 0), kept decided by a counter.
 *
 * Whether an element is kept depends on which sample, position and logical
 * channel it is, never on its place in a batch or on a device: the same mask
 * falls at any number of devices and again in the backward pass. */
#include "ops/columns.h"

#include "base/random.h"
#include "ops/math/round.h"

void sheaf__dropout_ref(void *y, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                        const sheaf__dropout *how, sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const uint32_t u =
                sheaf__random_u32(how->seed, how->purpose, how->step, (uint64_t)how->sample[r],
                                  (uint64_t)how->position[r], (uint64_t)(how->channel0 + c));
            const float value = sheaf__load(x, r * ldx + c, dtype) * how->scale;
            sheaf__store(y, r * ldx + c, u >= how->threshold ? value : 0.0f, dtype);
        }
}
