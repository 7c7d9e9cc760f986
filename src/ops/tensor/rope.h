/* rope.h - arguments of rotary embedding, see tensor.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"

typedef struct sheaf__rope {
    void *x;                 /* [rows, heads * head_dim] */
    const float *cos, *sin;  /* [positions, rot / 2], or of pairs [positions, rot] */
    const int32_t *position; /* [rows]; NULL: each row has angles of its own; of pairs: of a grid */
    int64_t ld, rows, heads, head_dim, rot, positions;
    bool inverse; /* turns back: the gradient */
    sheaf_dtype dtype;
} sheaf__rope;
