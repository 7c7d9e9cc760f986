/* transfer.h - values computed by another stage (inference with layers placed over stages), or
 * by another run. No gradients. */
#pragma once

#include "tape/tape.h"

/* sheaf__record_transfer - the value x [rows, cols] of `stage`, whole on each of its ranks, on
 * every rank of every stage; x is NULL on the others. All ranks record the same transfers in the
 * same order.
 */
sheaf__value *sheaf__record_transfer(sheaf__tape *tape, sheaf__value *x, int stage,
                                     const char *name, int64_t rows, int64_t cols);
/* sheaf__transfer - bytes of the host's, of the first rank of `stage`, to all; in place. Counts
 * them on dry. */
sheaf_status *sheaf__transfer(const sheaf__context *context, void *bytes, size_t size, int stage);

/* sheaf__record_store - copies x to `buffer` when the tape runs: of the device, as large as x,
 * borrowed until the tape is freed. */
void sheaf__record_store(sheaf__tape *tape, sheaf__value *x, void *buffer);
/* sheaf__record_recall - a value [rows, cols] with what the buffer holds when the tape runs. */
sheaf__value *sheaf__record_recall(sheaf__tape *tape, const void *buffer, const char *name,
                                   int64_t rows, int64_t cols);
