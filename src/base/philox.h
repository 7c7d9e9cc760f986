/* philox.h - the numbers of random.h as kernels for GPUs draw them, too. */
#pragma once

#include <stdint.h>

#include "base/shared_fn.h"

/* Philox 4x32, 10 rounds (Salmon et al. 2011): 128-bit counter, 64-bit key. */
SHEAF__SHARED_FN void sheaf__philox_of(uint32_t out[4], const uint32_t counter[4],
                                       const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9; /* golden ratio */
        k1 += 0xBB67AE85; /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Four words for counter (low, high) under a 64-bit key. */
SHEAF__SHARED_FN void sheaf__philox_draw(uint32_t out[4], uint64_t low, uint64_t high, uint64_t key)
{
    const uint32_t counter[4] = { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                                  (uint32_t)(high >> 32) };
    const uint32_t words[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    sheaf__philox_of(out, counter, words);
}

/* The first two, as the key of the next. */
SHEAF__SHARED_FN uint64_t sheaf__philox_key(const uint32_t word[4])
{
    return (uint64_t)word[1] << 32 | word[0];
}

/* k2 of sheaf__random_u32() */
SHEAF__SHARED_FN uint64_t sheaf__philox_row(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b,
                                            uint64_t c)
{
    uint32_t word[4];
    sheaf__philox_draw(word, purpose, a, seed);
    sheaf__philox_draw(word, b, c, sheaf__philox_key(word));
    return sheaf__philox_key(word);
}
