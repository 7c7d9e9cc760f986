/* private.h - between the files of the catalog. */
#pragma once

#include "catalog/catalog.h"

/* Rows and columns of a tensor's view: one axis is rows of 1, of more all but the last are rows. */
static inline void sheaf__catalog_view(int64_t *rows, int64_t *cols, const sheaf_logical *t)
{
    *rows = *cols = 1;
    for (int i = 0; i < t->told.ndim; i++)
        *(i > 0 && i == t->told.ndim - 1 ? cols : rows) *= t->told.shape[i];
}

/* sheaf__catalog_mix - FNV-1a of samples, begun with SHEAF__CATALOG_MIX: tells values apart, never
 * stored. */
#define SHEAF__CATALOG_MIX 0xcbf29ce484222325u
static inline uint64_t sheaf__catalog_mix(uint64_t h, const void *data, size_t size)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ byte[i]) * 0x100000001b3u;
    return h;
}

/* A box of the view out of one piece alone; *elements is how many it gave. The rest of dst is
 * untouched. */
sheaf_status *sheaf__piece_read(int64_t *elements, const sheaf_catalog *catalog,
                                const sheaf_logical *tensor, const sheaf_piece *piece, int64_t row0,
                                int64_t rows, int64_t col0, int64_t cols, void *dst);

/* sheaf__catalog_twins - a finding "duplicate" for each file of a part that has another's values in
 * most divided tensors. */
sheaf_status *sheaf__catalog_twins(sheaf_catalog *catalog);
