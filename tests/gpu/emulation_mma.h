/* emulation_mma.h - tensor cores of the emulation. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* sheaf__emu_mma_tile - c += a b of m16n8k16, by the rule of ops/matmul/mma.h; pairs of elements as
 * words, the first in the low bits: a [row][pair], b [pair][column]. group: 8 or 16. */
void sheaf__emu_mma_tile(float c[16][8], const uint32_t a[16][8], const uint32_t b[8][8], int group,
                         bool f16);
