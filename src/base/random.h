/* random.h - counter-based random numbers: a function of what the number is for,
 * never of a stream, so that ranks, threads and resumes cannot disagree. */
#pragma once

#include <stdint.h>

/* Philox 4x32, 10 rounds (Salmon et al. 2011): 128-bit counter, 64-bit key. */
void sheaf__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* sheaf__random_u32 - one number for (seed, purpose, a, b, c, d): purpose, step,
 * sample, position, channel, in the order of the numeric contract.
 *
 * Philox three times: k1 = (purpose, a) under seed, k2 = (b, c) under k1, and
 * then blocks under k2. A block is four words; channels go through them in groups
 * of 64 so that 16 blocks side by side give 64 channels in order: channel d is
 * word (d / 16) % 4 of block (d / 64) * 16 + d % 16. */
uint32_t sheaf__random_u32(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b, uint64_t c,
                           uint64_t d);
/* sheaf__random_row_key - k2 of the above, for kernels that draw a row of channels. */
void sheaf__random_row_key(uint32_t key[2], uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b,
                           uint64_t c);

/* sheaf__random_tensor_u32 - for element `index` of the logical tensor `name`:
 * word 0 of Philox at (index, name_key) under seed xor "tensor". */
uint64_t sheaf__name_key(const char *name); /* 64-bit FNV-1a */
uint32_t sheaf__random_tensor_u32(uint64_t seed, uint64_t name_key, uint64_t index);
/* Strictly inside (0, 1) and exact: (u >> 9) + 0.5 over 2^23. (With 24 bits the
 * half would not fit a float, and the largest would round to 1.) */
float sheaf__unit_float(uint32_t u);
/* sheaf__random_normal - standard normal for element `index` (Box-Muller on our own log, cos). */
float sheaf__random_normal(uint64_t seed, uint64_t name_key, uint64_t index);
/* sheaf__random_normals - those of n elements from `first`, the same bits. */
void sheaf__random_normals(float *out, uint64_t seed, uint64_t name_key, uint64_t first, int64_t n);
/* sheaf__permute - position of element i in a pseudo-random permutation of n, a function of
 * (seed, epoch) alone (a Feistel network walked until inside n). i < n, n <= 2^62. */
uint64_t sheaf__permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
/* sheaf__permute_back - its inverse: which element is at position `at`. */
uint64_t sheaf__permute_back(uint64_t at, uint64_t n, uint64_t seed, uint64_t epoch);
