/* shrink.h - arguments of operations on matrices in 8 bits, see tensor.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/cut.h"
#include "sheaf/dtype.h"

/* x [rows, cols], dense, in blocks of ops/shrink/shrink.h, none of which reaches over the end of a
 * row or of a part of it: a part is the columns of one slice, so blocks are the same whatever
 * slices a rank owns. codes [rows, cols]; scales [rows, blocks]. */
typedef struct sheaf__shrunk {
    void *x;
    int8_t *codes;
    uint8_t *scales;
    int64_t rows, cols, blocks;            /* blocks: of a row */
    int32_t parts, part[SHEAF_MAX_SLICES]; /* columns */
    sheaf_dtype dtype;
} sheaf__shrunk;
