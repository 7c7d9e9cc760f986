/* images.h - arguments of the operations on the rows of pictures, see tensor.h, and how positions
 * are made of a table. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/shared_fn.h"
#include "sheaf/dtype.h"

/* Of ADD_ROWS, whose rows repeat, and SUM_COPIES. */
typedef struct sheaf__repeats {
    void *x;
    const void *from;
    int64_t n; /* before it begins again */
    int64_t copies;
    bool add;
    sheaf_dtype dtype;
} sheaf__repeats;

/* Place of a picture among the patches of all, and its grid. */
typedef struct sheaf__picture_at {
    int64_t first, down, across;
    int64_t line; /* of its first row in sheaf__positions; its columns follow its rows */
} sheaf__picture_at;

/* sheaf__picture_of - the picture that holds row `row` of values that have, with `class_row`, a row
 * before the patches of each; *patch is the patch in it, -1: its class row. */
SHEAF__SHARED_FN int64_t sheaf__picture_of(const sheaf__picture_at *at, int64_t images,
                                           bool class_row, int64_t row, int64_t *patch)
{
    int64_t low = 0, high = images;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (at[middle].first + (class_row ? middle : 0) <= row)
            low = middle;
        else
            high = middle;
    }
    *patch = row - at[low].first - (class_row ? low + 1 : 0);
    return low;
}

/* Positions of the patches of all pictures on their grids. Line l, a picture's row or column, is
 * made of rows or columns of a table's grid: with weight[k] of index[k], begin[l] <= k < begin[l +
 * 1]. Or, table NULL, of line c of `turned` for its column c, and of line r for its row r. */
typedef struct sheaf__positions {
    const sheaf__picture_at *at; /* [images + 1] */
    int64_t images;
    bool class_row; /* of the values */
    const float *table;
    int64_t rows, cols;           /* of the table's grid */
    bool first;                   /* a row for class rows lies before it */
    int64_t lines, taps;          /* lines: those of begin, or of turned */
    const int32_t *begin, *index; /* [lines + 1], [taps] */
    const float *weight;          /* [taps] */
    const float *turned;          /* [lines, width / 2] */
} sheaf__positions;

typedef struct sheaf__placed {
    sheaf__positions of;
    void *y;
    const void *x;
    float *grad;
    int64_t rows, width;
    sheaf_dtype dtype;
} sheaf__placed;

/* Of the position at row r, column c of a picture: how many rows of the table it is made of; the
 * k-th of them, and its weight. */
SHEAF__SHARED_FN int32_t sheaf__taps_of(const sheaf__positions *p, int64_t line)
{
    return p->begin[line + 1] - p->begin[line];
}
SHEAF__SHARED_FN int64_t sheaf__taps_count(const sheaf__positions *p, const sheaf__picture_at *at,
                                           int64_t r, int64_t c)
{
    return (int64_t)sheaf__taps_of(p, at->line + r) * sheaf__taps_of(p, at->line + at->down + c);
}
SHEAF__SHARED_FN int64_t sheaf__taps_row(float *weight, const sheaf__positions *p,
                                         const sheaf__picture_at *at, int64_t r, int64_t c,
                                         int64_t k)
{
    const int64_t across = at->line + at->down + c, each = sheaf__taps_of(p, across),
                  y = p->begin[at->line + r] + k / each, x = p->begin[across] + k % each;
    *weight = p->weight[y] * p->weight[x];
    return p->index[y] * p->cols + p->index[x];
}
