/* columns.h - the owned columns of a value that is whole on every rank: what a layer cut along
 * its input reads where the layer before it was not cut. */
#pragma once

#include "tape/linear.h"

/* sheaf__record_own_columns - [rows, linear->owned]: the columns of x [rows, linear->in] that this
 * rank's slices of `linear` (cut along in) read. Backward gathers the columns of all ranks. */
sheaf__value *sheaf__record_own_columns(sheaf__tape *tape, sheaf__value *x,
                                        const sheaf__linear *linear);
