/* pictures_inner.h - what the files of the pictures' ops share; private to them. */
#pragma once

#include "tape/pictures.h"

/* Where a picture lies among the patches of all, and its grid. */
typedef struct sheaf__picture_at {
    int64_t first, down, across;
} sheaf__picture_at;

/* sheaf__pictures_layout - of all pictures of a run, to free(); the last entry is the end of all.
 * NULL on the dry device and where p->in is NULL: they are equally large. Errors: SHEAF_E_ARG for
 * sizes that do not fit (see sheaf__record_picture_patches), SHEAF_E_MEMORY. */
sheaf_status *sheaf__pictures_layout(sheaf__picture_at **out, const sheaf__context *context,
                                     const sheaf__pictures *p);
/* sheaf__patches_before - those of picture i; at: as the layout has it. */
static inline int64_t sheaf__patches_before(const sheaf__picture_at *at, const sheaf__pictures *p,
                                            int64_t i)
{
    return at != NULL ? at[i].first : p->patches * i / p->images;
}
/* sheaf__picture_of - the picture that holds row `row` of values with p's class rows; *patch is the
 * patch in it, -1: its class row. */
int64_t sheaf__picture_of(const sheaf__picture_at *at, const sheaf__pictures *p, int64_t row,
                          int64_t *patch);
