/* rows.h - arguments of operations that move rows and add them up, see tensor.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared_fn.h"
#include "sheaf/dtype.h"

/* Rows of a dense matrix and where they lie in a wider one: patches among the tokens of an image,
 * an image's rows in a sequence, a stream's rows in all. Groups of n rows have `before` and `after`
 * other rows around each; a list, if there is one, then names the rows of the wide matrix. No row
 * may lie in two places. */
typedef struct sheaf__row_map {
    const int32_t *list;
    int64_t n, before, after;
    int64_t wide; /* with a list: rows of the wide matrix */
} sheaf__row_map;

/* sheaf__row_map_listed - row i of the dense matrix lies at list[i] of `wide`; NULL: at i. */
static inline sheaf__row_map sheaf__row_map_listed(const int32_t *list, int64_t wide)
{
    sheaf__row_map map = { list, 1, 0, 0, wide };
    return map;
}

/* A copy of `rows` rows of `cols` columns. */
typedef struct sheaf__move {
    sheaf_dtype dtype;
    void *to;
    const void *from; /* NULL: zeros, or */
    const float *row; /* this in each, rounded */
    int64_t rows, cols;
    sheaf__row_map map;
    bool gather; /* `from` is the wide one; otherwise `to` */
    bool add;    /* rounded sums; else copies */
} sheaf__move;

/* Row r of the dense matrix in the wide one. */
SHEAF__SHARED_FN int64_t sheaf__row_map_at(const sheaf__row_map *map, int64_t r)
{
    const int64_t n = map->n, /* in 32 bits where they fit: faster on some devices */
        group = (r | n) >> 32 == 0 ? (uint32_t)r / (uint32_t)n : r / n;
    const int64_t at = group * (map->before + n + map->after) + map->before + r - group * n;
    return map->list == NULL ? at : map->list[at];
}

/* count[0] times count[1] boxes of count[2] rows of `cols` columns, and how far one of each is from
 * the next, in dst and in src. */
typedef struct sheaf__boxes {
    sheaf_dtype dtype;
    void *dst;
    const void *src;
    int64_t count[3], ld_dst[3], ld_src[3], cols;
} sheaf__boxes;

typedef struct sheaf__columns {
    float *grad; /* [cols] */
    const void *dy;
    int64_t ld, rows, cols;
    sheaf_dtype dtype;
} sheaf__columns;

typedef struct sheaf__transposed {
    float *to;         /* [cols, rows] */
    const float *from; /* [rows, cols] */
    int64_t rows, cols;
} sheaf__transposed;
