/* exchange.h - arguments of the kernel that sums over ranks in place. */
#pragma once

#include <stdint.h>

enum { SHEAF__EXCHANGE_RANKS = 64, SHEAF__EXCHANGE_SLOTS = 8 };

/* As sheaf__combining (base/combining.h); elements [begin, end), begin a multiple of 4. Pointers
 * may lie anywhere: in_quads() (vectors.h) decides for each how it is read and written. */
typedef struct sheaf__exchange {
    float *out[SHEAF__EXCHANGE_RANKS];
    const float *operand[SHEAF__EXCHANGE_RANKS];
    int8_t to[SHEAF__EXCHANGE_RANKS], a[SHEAF__EXCHANGE_RANKS], b[SHEAF__EXCHANGE_RANKS];
    int ranks, operands, steps;
    int64_t begin, end;
} sheaf__exchange;

/* Bytes of shared memory: results of a thread's four elements. */
#define SHEAF__EXCHANGE_SHARED(threads) ((size_t)(threads) * (SHEAF__EXCHANGE_SLOTS + 1) * 16)
