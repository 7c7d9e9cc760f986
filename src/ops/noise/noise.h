/* noise.h - the t of NEFTune (kernels.h) that random bits stand for: exact. */
#pragma once

#include <stdint.h>

#include "base/shared_fn.h"

SHEAF__SHARED_FN float sheaf__noise_of(uint32_t u)
{
    const int32_t odd = 2 * (int32_t)(u >> 9) + 1 - (1 << 23);
    return (float)odd * 0x1p-23f;
}
