/* lanes_shape.h - what a launch chooses for a kernel that sums rows in 16 lanes (lanes.h). */
#pragma once

#include <stdint.h>

enum { LANES = 16 };

/* A block has `rows` rows at once, and of each `chunk` columns, a multiple of 16, in shared memory,
 * `pitch` floats from those of the next row. */
typedef struct lanes_shape {
    int32_t rows, chunk, pitch;
} lanes_shape;
