/* random.h - counter-based random numbers: a function of what the number is for,
 * never of a stream, so that ranks, threads and resumes cannot disagree. */
#ifndef SHEAF_BASE_RANDOM_H
#define SHEAF_BASE_RANDOM_H

#include <stdint.h>

/* Philox 4x32, 10 rounds (Salmon et al. 2011): 128-bit counter, 64-bit key. */
void sheaf__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* sheaf__random_u32 - one number for (seed, purpose, a, b, c, d): purpose, step,
 * sample, position, channel, in the order of the numeric contract. */
uint32_t sheaf__random_u32(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b, uint64_t c,
                           uint64_t d);
/* sheaf__random_tensor_u32 - for element `index` of the logical tensor `name`. */
uint64_t sheaf__name_key(const char *name);
uint32_t sheaf__random_tensor_u32(uint64_t seed, uint64_t name_key, uint64_t index);
/* (0, 1) from 32 bits, exactly representable: (u >> 8) + 0.5 over 2^24. */
float sheaf__unit_float(uint32_t u);
/* sheaf__random_normal - standard normal for element `index` (Box-Muller on our own log, cos). */
float sheaf__random_normal(uint64_t seed, uint64_t name_key, uint64_t index);
/* sheaf__permute - position of element i in a pseudo-random permutation of n, a function of
 * (seed, epoch) alone (a Feistel network walked until inside n). */
uint64_t sheaf__permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);

#endif
