/* row_map.h - rows of a dense matrix and where they lie in a wider one: patches among the tokens of
 * an image, an image's rows in a sequence, a stream's rows in all.
 *
 * Groups of n rows have `before` and `after` other rows around each; a list, if there is one, then
 * names the rows of the wide matrix. No row may lie in two places. */
#pragma once

#include "tape/tape.h"

typedef struct sheaf__row_map {
    const int32_t *list;
    int64_t n, before, after;
} sheaf__row_map;

/* sheaf__row_map_listed - row i of the dense matrix lies at list[i]; NULL: at i. */
static inline sheaf__row_map sheaf__row_map_listed(const int32_t *list)
{
    return (sheaf__row_map){ list, 1, 0, 0 };
}

/* sheaf__row_map_at - the row of the wide matrix where row `row` of the dense one lies. */
int64_t sheaf__row_map_at(const sheaf__row_map *map, int64_t row);

/* `rows` rows of the dense matrix, `cols` columns of the compute dtype; with `add` rounded sums,
 * else copies. */
void sheaf__gather(const sheaf__context *context, void *dense, const void *wide, sheaf__row_map map,
                   int64_t rows, int64_t cols, bool add);
void sheaf__scatter(const sheaf__context *context, void *wide, const void *dense,
                    sheaf__row_map map, int64_t rows, int64_t cols, bool add);
/* sheaf__scatter_gradient - to the gradient of x, of which the rows that the map does not name are
 * zero where it is fresh. */
void sheaf__scatter_gradient(const sheaf__context *context, const sheaf__value *x,
                             const void *dense, sheaf__row_map map, int64_t rows);
/* sheaf__set_rows - sets rows of `wide` to `row` (float32, rounded), or to zero when it is NULL. */
void sheaf__set_rows(const sheaf__context *context, void *wide, const float *row,
                     sheaf__row_map map, int64_t rows, int64_t cols);
/* sheaf__sum_mapped - grad[cols] += the sum of the rows of `wide` that the map names. */
sheaf_status *sheaf__sum_mapped(sheaf__context *context, float *grad, const void *wide,
                                sheaf__row_map map, int64_t rows, int64_t cols);
