/* pictures_inner.h - what the files of the pictures' ops share; private to them. */
#pragma once

#include "ops/tensor/tensor.h"
#include "tape/pictures.h"

/* sheaf__pictures_count - pictures, or groups of them that attention sees as one. */
static inline int64_t sheaf__pictures_count(const sheaf__pictures *p)
{
    return p->groups > 0 ? p->groups : p->images;
}
/* sheaf__pictures_layout - of all pictures or groups of a run, to free(); the last entry is the end
 * of all; a group is of one row.
 * NULL where nothing is known of them: they are equally large. Errors: SHEAF_E_ARG for sizes that
 * do not fit (see sheaf__record_picture_patches), SHEAF_E_MEMORY. */
sheaf_status *sheaf__pictures_layout(sheaf__picture_at **out, const sheaf__pictures *p);
/* sheaf__patches_before - those of picture i; at: as the layout has it. */
static inline int64_t sheaf__patches_before(const sheaf__picture_at *at, const sheaf__pictures *p,
                                            int64_t i)
{
    return at != NULL ? at[i].first : p->patches * i / sheaf__pictures_count(p);
}

/* Groups of neighbouring rows that attention keeps apart. */
typedef struct sheaf__row_groups {
    int64_t count;
    int64_t *begin; /* [count + 1] to free(); NULL: all are equally large */
} sheaf__row_groups;

/* sheaf__windows_groups - the windows of all pictures. Errors: those of the layout. */
sheaf_status *sheaf__windows_groups(sheaf__row_groups *out, const sheaf__pictures *pictures);
/* sheaf__windows_order - [patches] the patch, row by row over all pictures, that stands at each
 * place in the order of windows; or, joined, [patches / merge^2] the square. NULL, with bytes all
 * the same, where nothing is known of the pictures; at: their layout. */
sheaf_status *sheaf__windows_order(int32_t **out, const sheaf__context *context,
                                   const sheaf__picture_at *at, const sheaf__pictures *pictures,
                                   bool joined);
