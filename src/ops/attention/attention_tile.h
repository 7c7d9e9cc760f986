/* attention_tile.h - what a register tile of the attention kernels computes. */
#ifndef SHEAF_OPS_ATTENTION_TILE_H
#define SHEAF_OPS_ATTENTION_TILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Loops over the registers of a tile must vanish, or the tile lives in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* One block of the contract: c = scale * sum, or c = c + sum, where sum is an
 * ascending chain over the steps. a is read where it lies: word (row, step) at
 * a + row * a_row + step * a_step bytes. */
typedef struct tile {
    float *c;
    int64_t c_row, c_panel; /* floats between rows, and between panels of 16 columns */
    const char *a;
    int64_t a_row, a_step;  /* bytes */
    const uint32_t *b;      /* panels [steps][16] */
    int64_t b_panel;        /* words between panels */
    int64_t steps;
    float scale;            /* unless add */
    bool add;
    bool pairs;             /* a word is a pair of bfloat16, not a float */
} tile;

/* The word at p, which may be aligned to a half word only. */
static inline float word_at(const char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

#endif
