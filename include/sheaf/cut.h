/* cut.h - how one logical tensor falls into the slices of its model.
 *
 * A cut runs along one axis; "row" means an index of that axis. The axis may
 * hold parts end to end (a fused query/key/value weight has three); each part
 * is divided on its own, in units that stay whole (a head, a vocabulary row).
 * Slices may be uneven or empty. No I/O, no ranks: the owners of slices are
 * owner.h's business. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHEAF_MAX_PARTS 8
#define SHEAF_MAX_SLICES 64

typedef struct sheaf_range {
    int64_t begin, end; /* half open */
} sheaf_range;

typedef struct sheaf_part {
    int64_t units;         /* things that stay whole, for example heads */
    int64_t rows_per_unit; /* for example the width of a head */
} sheaf_part;

typedef struct sheaf_cut {
    int axis;   /* axis that is divided, counted from 0 */
    int slices; /* S of the model: a power of two, 1 .. SHEAF_MAX_SLICES */
    int nparts; /* 0 = replicated, 1 = plain weight, 3 = fused q, k, v */
    sheaf_part part[SHEAF_MAX_PARTS];
} sheaf_cut;

/* sheaf_cut_check - whether `cut` is sound for an axis of `rows` rows.
 * Errors: SHEAF_E_ARG naming the field; SHEAF_E_LAYOUT if the parts do not
 * add up to `rows`. */
SHEAF_API sheaf_status *sheaf_cut_check(const sheaf_cut *cut, int64_t rows);

/* sheaf_cut_rows - the rows of part `part` that belong to `slice`.
 *
 *   rows   out: rows of the logical tensor, possibly none; untouched on failure
 *   cut    borrowed; must satisfy sheaf_cut_check()
 *
 * Formula: with u units, slice s holds units [floor(u*s/S), floor(u*(s+1)/S)),
 *   shifted by the rows of the parts before it (docs/layouts.md).
 * Errors: SHEAF_E_ARG if part or slice is out of range. */
SHEAF_API sheaf_status *sheaf_cut_rows(sheaf_range *rows, const sheaf_cut *cut, int part,
                                       int slice);

/* sheaf_cut_slice_rows - rows of all parts together that `slice` holds (count). */
SHEAF_API int64_t sheaf_cut_slice_rows(const sheaf_cut *cut, int slice);

#ifdef __cplusplus
}
#endif
