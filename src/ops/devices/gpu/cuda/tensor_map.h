/* tensor_map.h - a matrix of 16-bit numbers as the copy engine of sm_90 knows it; a field of a
 * kernel's arguments.
 *
 * The driver makes it (cuTensorMapEncodeTiled): two dimensions, boxes of `box_rows` rows of 64
 * numbers, no interleave, swizzle of 128 bytes, zeros outside. Base and stride are multiples of 16
 * bytes, and a box has at most 256 rows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct sheaf__tensor_map {
    uint64_t word[16];
} __attribute__((aligned(128))) sheaf__tensor_map;
