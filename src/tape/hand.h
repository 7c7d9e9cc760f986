/* hand.h - a value that one stage has made, given to all others: inference with layers placed over
 * stages. */
#pragma once

#include "tape/tape.h"

/* sheaf__record_hand - the value x [rows, cols] of `stage`, whole on each of its ranks, on every
 * rank of every stage; x is NULL on the others. All ranks record the same hands in the same order.
 * No gradient. */
sheaf__value *sheaf__record_hand(sheaf__tape *tape, sheaf__value *x, int stage, const char *name,
                                 int64_t rows, int64_t cols);

/* sheaf__hand - the bytes of the first rank of `stage` to all; in place. Counts them on dry. */
sheaf_status *sheaf__hand(sheaf__context *context, void *bytes, size_t size, int stage);
