/* slices.h - a picture as MiniCPM-V sees it: whole, and in slices where it is large.
 *
 * The whole is resized to an area of about resolution x resolution pixels that keeps its shape (the
 * overview). One of more pixels is also laid on a grid of columns x rows slices, each of about that
 * area: of all grids with about as many slices as that takes, the one nearest in shape. All sides
 * are multiples of the tower's patch. Upstream's slice_image(), bit for bit; docs/images.md. */
#pragma once

#include "inputs/image.h"

typedef struct sheaf__slicing {
    int64_t resolution, patch; /* 448, 14 */
    int64_t most;              /* slices; below 2: the overview alone */
} sheaf__slicing;

/* Of one picture. Its pieces: the overview, then the slices, row by row. */
typedef struct sheaf__sliced {
    int64_t width, height;             /* of the overview */
    int64_t columns, rows;             /* of slices; 0: there are none */
    int64_t slice_width, slice_height; /* of each */
} sheaf__sliced;

/* sheaf__slice - of a picture of this size, whose sides are from 1 to SHEAF_IMAGE_MAX_SIDE. Errors:
 * SHEAF_E_UNSUPPORTED for one so long that the overview or the slices would have a larger side. */
sheaf_status *sheaf__slice(sheaf__sliced *out, int64_t width, int64_t height,
                           const sheaf__slicing *how);

static inline int64_t sheaf__sliced_count(const sheaf__sliced *s)
{
    return 1 + s->columns * s->rows;
}
static inline int64_t sheaf__sliced_width(const sheaf__sliced *s, int64_t piece)
{
    return piece == 0 ? s->width : s->slice_width;
}
static inline int64_t sheaf__sliced_height(const sheaf__sliced *s, int64_t piece)
{
    return piece == 0 ? s->height : s->slice_height;
}
/* sheaf__sliced_pixels - of all pieces together. */
static inline int64_t sheaf__sliced_pixels(const sheaf__sliced *s)
{
    return s->width * s->height + s->columns * s->rows * s->slice_width * s->slice_height;
}

/* sheaf__slice_image - the pieces, one behind the other, each [height, width, 3]; `s` is of this
 * picture. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__slice_image(uint8_t *out, const sheaf_image *image, const sheaf__sliced *s);
