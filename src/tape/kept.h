/* kept.h - activations that backward reads, in 8 bits between forward and backward
 * (ops/shrink/shrink.h), elsewhere (ops/offload.h), or both. Those in 8 bits come back rounded, for
 * any number of ranks in the same way: blocks lie within the columns of a slice. */
#pragma once

#include "tape/tape.h"

/* sheaf__value_rows - rows that it has memory for. */
int64_t sheaf__value_rows(const sheaf__value *value);
/* sheaf__value_kept_most - bytes that it takes in between, if all its rows are there. */
size_t sheaf__value_kept_most(const sheaf__value *value);
/* sheaf__value_store - of one that shrinks or leaves, after the last step forward that reads it:
 * its data is the caller's to give back then. sheaf__value_restore - before the first step that
 * reads it again: its data, for which there is memory. */
sheaf_status *sheaf__value_store(const sheaf__context *context, sheaf__value *value);
sheaf_status *sheaf__value_restore(const sheaf__context *context, sheaf__value *value);
