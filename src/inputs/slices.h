/* slices.h - a picture as MiniCPM-V reads it: whole, and in slices if it is large.
 *
 * The whole is resized to about resolution x resolution pixels with the same aspect ratio (the
 * overview). A picture with more pixels is also divided into a grid of columns x rows slices of
 * about that area each: of the grids with about the necessary number of slices, the one with the
 * nearest aspect ratio. All sides are multiples of the tower's patch. Upstream's slice_image(), bit
 * for bit; docs/images.md. */
#pragma once

#include "inputs/image.h"

typedef struct sheaf__slicing {
    int64_t resolution, patch; /* 448, 14 */
    int64_t most;              /* slices at most; below 2: the overview alone */
} sheaf__slicing;

/* The pieces of one picture: the overview, then the slices, row by row. */
typedef struct sheaf__sliced {
    int64_t width, height;             /* of the overview */
    int64_t columns, rows;             /* the grid of slices; 0: none */
    int64_t slice_width, slice_height; /* of each */
} sheaf__sliced;

/* sheaf__slice - for a picture of this size, each side from 1 to SHEAF_IMAGE_MAX_SIDE. Errors:
 * SHEAF_E_UNSUPPORTED if the overview or the slices would have a larger side. */
sheaf_status *sheaf__slice(sheaf__sliced *out, int64_t width, int64_t height,
                           const sheaf__slicing *how);

/* Python's round() of what is not negative: halves to the even neighbour. */
static inline int64_t sheaf__rounded(double x)
{
    const int64_t below = (int64_t)x;
    const double rest = x - (double)below;
    return below + (rest > 0.5 || (rest == 0.5 && below % 2 != 0));
}

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

/* Sides that are multiples of `unit`, of `least` to `most` pixels in all. */
typedef struct sheaf__fitting {
    int64_t unit, least, most;
    int64_t frames, group; /* of so many frames of a video together, in groups; 0: of a picture */
} sheaf__fitting;

/* sheaf__fit_pixels - the sides of a picture that keeps its shape about, as Qwen-VL's processors
 * have them (smart_resize()). Errors: SHEAF_E_UNSUPPORTED for a side more than 200 times the other,
 * or larger than SHEAF_IMAGE_MAX_SIDE. */
sheaf_status *sheaf__fit_pixels(sheaf__sliced *out, int64_t width, int64_t height,
                                const sheaf__fitting *how);

/* sheaf__slice_image - the pieces one after the other, each [height, width, 3]; `s` is from
 * sheaf__slice() for this picture. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__slice_image(uint8_t *out, const sheaf_image *image, const sheaf__sliced *s);
