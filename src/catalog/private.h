/* private.h - between the files of the catalog. */
#pragma once

#include "base/hash.h"
#include "catalog/catalog.h"
#include "formats/safetensors.h"

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows and columns of a tensor's view: one axis is rows of 1, of more all but the last are rows. */
static inline void sheaf__catalog_view(int64_t *rows, int64_t *cols, const sheaf_logical *t)
{
    sheaf__safetensors_view(rows, cols, t->entry.ndim, t->entry.shape);
}

/* A box of the view out of one piece alone; *elements is how many it gave. The rest of dst is
 * untouched. */
sheaf_status *sheaf__piece_read(int64_t *elements, const sheaf_catalog *catalog,
                                const sheaf_logical *tensor, const sheaf_piece *piece, int64_t row0,
                                int64_t rows, int64_t col0, int64_t cols, void *dst);
