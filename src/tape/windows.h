/* windows.h - pictures whose patches are joined in squares, and towers whose blocks see windows of
 * such squares: the order of their rows, and what is made of it.
 *
 * The patches of a picture come row by row from a convolution. In the order of windows those of a
 * square follow one another, row by row in it, then the squares of a window, then windows. So
 * joining is no move, and a window is a sequence of its own. Pictures stay one behind the other. */
#pragma once

#include "tape/pictures.h"

/* sheaf__record_windows - x [patches, width], row by row, in the order of windows. */
sheaf__value *sheaf__record_windows(sheaf__tape *tape, sheaf__value *x,
                                    const sheaf__pictures *pictures);
/* sheaf__record_joined - [patches / merge^2, width * merge^2]: the squares of rows in that order.
 */
sheaf__value *sheaf__record_joined(sheaf__tape *tape, sheaf__value *x, int64_t merge);
/* sheaf__record_squares - rows of squares in the order of windows, row by row again; x itself where
 * the tower has no windows. */
sheaf__value *sheaf__record_squares(sheaf__tape *tape, sheaf__value *x,
                                    const sheaf__pictures *pictures);

/* sheaf__record_beside - the columns of n <= SHEAF__MOST_BESIDE values, one beside the other; of
 * one x[0] itself. */
enum { SHEAF__MOST_BESIDE = 15 };
sheaf__value *sheaf__record_beside(sheaf__tape *tape, sheaf__value *const *x, int64_t n);
/* sheaf__record_part - columns [first, first + cols) of x; all: x itself. */
sheaf__value *sheaf__record_part(sheaf__tape *tape, sheaf__value *x, int64_t first, int64_t cols);
/* sheaf__record_add_images - round(x + y) in the rows of x that in->image_row names, in place; y
 * has a row for each. Nothing may keep x as it was. */
void sheaf__record_add_images(sheaf__tape *tape, sheaf__value *x, sheaf__value *y,
                              const sheaf__images_in *in);
