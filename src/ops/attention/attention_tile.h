/* attention_tile.h - what a register tile of the attention kernels computes.
 *
 * The file that includes this defines for its instruction set
 *   TILE_ROWS, TILE_PANELS          of a tile at most; EACH_TILE lists the sizes it has, EACH_TILES
 *                                   those of kind TILES; tile_rows(panels, kind) is the most rows
 *   STEP_PAIRS(c, a, b)             c + a * b of pairs, where kind_of() gives PAIRS
 *   kind_of(call)                   how products of pairs are computed
 *   HAS_UNIT                        if that can be UNIT
 *   larger(a, b)                    a > b ? a : b, which is b when either is NaN
 *   any_less(a, b)                  whether a < b somewhere
 *   either(a, b)                    the bits of both
 *   power(x, y, n, shifted)         0 where x < -0x1.5d589ep+6, else y * 2^n, a normal number or
 *                                   NaN; shifted is n + 0x1.8p23
 *   round_pair(even, odd)           both rounded to bfloat16; no number in them is denormal, a
 *                                   NaN becomes any NaN
 *   PRODUCT_MMA                     the sheaf__mma_product of its instruction set
 *   KERNEL                          the name of its sheaf__attention_kernel */
#pragma once

#include "base/unroll.h"
#include "ops/attention/attention_parts.h"
#include "ops/matmul/mma_product.h"
#include "ops/vec.h"

#define CHUNK_WORDS (SHEAF__ATTENTION_CHUNK / 2)

/* The content of a tile's word, and the unit that multiplies it. */
typedef enum kind {
    FLOATS, /* a float; so too a bfloat16 in the order `pairs`, widened where it is packed */
    PAIRS,  /* a pair of bfloat16, in the order `pairs`, by the instruction for pairs */
    SPLIT,  /* the same by two float32 fma, where a pair meets few others */
    TILES,  /* a pair, in the order `tiles`, by two float32 fma */
    UNIT,   /* the same by the tile unit */
    MMA,    /* a pair of bfloat16 or float16, in the orders mma8 and mma16; with `add` c is not a
             * sum of chains but the chain, which goes on */
} kind;

/* One block of the contract: c = scale * sum, or c = c + sum, or c goes on, where sum is an
 * ascending chain over the steps. a is read where it lies: word (row, step) at
 * a + row * a_row + step * a_step bytes. */
typedef struct tile {
    float *c;
    int64_t c_row, c_panel; /* floats between rows, and between panels of 16 columns */
    const char *a;
    int64_t a_row, a_step; /* bytes */
    const uint32_t *b;     /* panels [steps][16] */
    int64_t b_panel;       /* words between panels */
    int64_t steps;
    float scale;  /* unless add */
    bool add, on; /* on: chains begin with c, in the order `tiles` */
    kind kind;
    const sheaf__attention_call *call;
} tile;

typedef struct rounded {
    __m256i even, odd; /* 16 bfloat16 each */
    veci words;        /* the same in pairs, even in the low half */
} rounded;

SHEAF__INLINE void end_tile(const tile *t, int row, int panel, vec sum)
{
    float *to = t->c + row * t->c_row + panel * t->c_panel;
    v_store(to, t->add ? v_add(v_load(to, 16), sum) : v_mul(v_set(t->scale), sum), 16);
}
