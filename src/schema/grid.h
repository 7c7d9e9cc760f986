/* grid.h - places on a grid, and their positions as sines and cosines. */
#pragma once

#include <stdint.h>

/* sheaf__square_side - the largest whole number whose square is at most n. */
static inline int64_t sheaf__square_side(int64_t n)
{
    int64_t side = 0;
    while ((side + 1) * (side + 1) <= n)
        side++;
    return side;
}

/* sheaf__grid_angle - place / 10000^(j / quarter), each step in float32, as numpy has it. */
float sheaf__grid_angle(int64_t place, int64_t j, int64_t quarter);

/* sheaf__sincos - a number of the table of positions [rows * cols, width] of a grid: half of the
 * width for the column, half for the row, each sines, then cosines. */
float sheaf__sincos(int64_t index, int64_t cols, int64_t width);
