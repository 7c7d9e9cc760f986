/* draw.h - random numbers of many channels at once, for fast kernels: sixteen Philox blocks side by
 * side give the numbers of 64 consecutive logical channels, in order (base/random.h). */
#pragma once

#include "ops/vec.h"

/* The words of channels 64*group .. 64*group + 63. */
SHEAF__INLINE void sheaf__draw_group(uint32_t word[64], uint64_t group, const uint32_t key[2])
{
    const uint64_t block = group * 16; /* a multiple of 16: the low word never carries */
    veci c0 = vi_add(vi_set((uint32_t)block), vi_counting());
    veci c1 = vi_set((uint32_t)(block >> 32)), c2 = vi_set(0), c3 = c2;
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        veci low0, high0, low1, high1;
        vi_multiply(&low0, &high0, c0, 0xD2511F53);
        vi_multiply(&low1, &high1, c2, 0xCD9E8D57);
        c0 = vi_xor(vi_xor(high1, c1), vi_set(k0));
        c1 = low1;
        c2 = vi_xor(vi_xor(high0, c3), vi_set(k1));
        c3 = low0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    vi_store(word, c0);
    vi_store(word + 16, c1);
    vi_store(word + 32, c2);
    vi_store(word + 48, c3);
}
