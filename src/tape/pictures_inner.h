/* pictures_inner.h - what the files of the pictures' ops share; private to them. */
#pragma once

#include "tape/pictures.h"

/* Where a picture lies among the patches of all, and its grid. */
typedef struct sheaf__picture_at {
    int64_t first, down, across;
} sheaf__picture_at;

/* sheaf__pictures_layout - of all pictures of a run, to free(); the last entry is the end of all.
 * Errors: SHEAF_E_ARG for sizes that do not fit (see sheaf__record_picture_patches),
 * SHEAF_E_MEMORY. Not for the dry device. */
sheaf_status *sheaf__pictures_layout(sheaf__picture_at **out, const sheaf__pictures *p);
/* sheaf__picture_of - the picture that holds row `row` of values with p's class rows; *patch is the
 * patch in it, -1: its class row. */
int64_t sheaf__picture_of(const sheaf__picture_at *at, const sheaf__pictures *p, int64_t row,
                          int64_t *patch);
