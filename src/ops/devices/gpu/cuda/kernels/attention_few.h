/* attention_few.h - attention forward of few queries over many keys, as in decoding, by tensor
 * cores: the argument of its kernels, which run one after the other.
 *
 * A unit is a key head of a sequence. Its rows are its queries, and of each the head's query heads:
 * they share what is read of k and v. Keys are those that some query sees, from a multiple of a
 * tile on, in whole tiles. */
#pragma once

#include "ops/devices/gpu/kernels/attention.h"

enum {
    FEW_ROWS = 64,    /* at most, a warp of each 16 */
    FEW_KEYS = 128,   /* of a tile of values */
    FEW_SCORES = 64,  /* of a block of scores: 16 of each warp */
    FEW_CHANNELS = 16 /* of a block of values */
};

typedef struct sheaf__attention_few {
    sheaf__attention_part part; /* per is 1: its blocks are sequences */
    int64_t unit, units;        /* the first one, and how many */
    float *score;               /* [units][rows][keys] */
    uint16_t *weight;           /* the same, exponentials */
    float *sum;                 /* [units][parts][rows][head_dim] */
    float *factor;              /* [units][rows][parts][FEW_BLOCKS] */
    attention_all *part_of;     /* [units][rows][parts] */
    int32_t rows, begin, keys;  /* keys [begin, begin + keys) */
    int32_t parts, first;       /* and the first one's number */
} sheaf__attention_few;

enum {
    FEW_BLOCKS = SHEAF__ATTENTION_PART / SHEAF__ATTENTION_KEYS,
    FEW_ROW_THREADS = FEW_BLOCKS * 16 /* two blocks of keys for each warp */
};

/* Shared memory of a row's part. */
typedef struct sheaf__attention_few_row {
    float e[SHEAF__ATTENTION_PART], max[FEW_BLOCKS];
} sheaf__attention_few_row;

/* Copies of tiles under way, one less than these: many where they are small. */
DEVICE int attention_few_stages(int32_t rows)
{
    return rows <= 16 ? 8 : 4;
}
/* 16-bit elements of a stage: values, then weights. */
DEVICE int attention_few_stage(int32_t rows)
{
    return FEW_KEYS * (FEW_CHANNELS + 8) + (rows + 15) / 16 * 16 * (FEW_KEYS + 8);
}
