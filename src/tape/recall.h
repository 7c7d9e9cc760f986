/* recall.h - a value that one run leaves in a buffer for the runs of other tapes. No gradient.
 *
 * Buffers are of the device, in the compute dtype, row-major; they are borrowed until the tape is
 * freed. */
#pragma once

#include "tape/tape.h"

/* sheaf__record_store - copies x to `buffer`, as large as x, when the tape runs. */
void sheaf__record_store(sheaf__tape *tape, sheaf__value *x, void *buffer);
/* sheaf__record_recall - a value [rows, cols] with what the buffer holds when the tape runs. */
sheaf__value *sheaf__record_recall(sheaf__tape *tape, const void *buffer, const char *name,
                                   int64_t rows, int64_t cols);
