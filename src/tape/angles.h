/* angles.h - rotary embedding of rows whose positions have several axes: each pair of channels
 * turns by the position on one of them. Tokens have (time, row, column), patches of a picture (row,
 * column). */
#pragma once

#include "tape/layers.h"
#include "tape/pictures.h"

typedef struct sheaf__angles {
    int64_t pairs; /* of a head; 0: none turn */
    float frequency[SHEAF_MAX_ROPE_PAIRS];
    uint8_t axis[SHEAF_MAX_ROPE_PAIRS]; /* that it turns by */
    float attention;                    /* cos and sin are multiplied by it, */
    sheaf_dtype dtype;                  /* and rounded to this */
} sheaf__angles;

/* Of each row, float32 [rows, pairs]. */
typedef struct sheaf__turns {
    sheaf__value *cos, *sin;
} sheaf__turns;

/* sheaf__record_token_turns - of `rows` tokens; in->host.position is [axes, rows], and in->position
 * is not read. `angles` is borrowed. */
sheaf__turns sheaf__record_token_turns(sheaf__tape *tape, const sheaf__angles *angles,
                                       const sheaf__rows_in *in, int64_t rows);
/* sheaf__record_patch_turns - of the patches of pictures, in the order of
 * sheaf__record_windows(). */
sheaf__turns sheaf__record_patch_turns(sheaf__tape *tape, const sheaf__angles *angles,
                                       const sheaf__pictures *pictures);
/* sheaf__record_turned - x [rows, heads * head_dim], in place. */
void sheaf__record_turned(sheaf__tape *tape, sheaf__value *x, sheaf__turns turns, int64_t head_dim);
