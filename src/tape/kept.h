/* kept.h - activations that backward reads, in 8 bits between forward and backward
 * (ops/shrink/shrink.h). They come back rounded, for any number of ranks in the same way: blocks
 * lie within the columns of a slice. */
#pragma once

#include "tape/tape.h"

/* sheaf__value_rows - rows that it has memory for. */
int64_t sheaf__value_rows(const sheaf__value *value);
/* sheaf__value_shrink - after the last step forward that reads it: value->shrunk of its data, which
 * the caller gives back. sheaf__value_expand - before the first step that reads it again: its data,
 * for which there is memory; value->shrunk is given back. */
sheaf_status *sheaf__value_shrink(const sheaf__context *context, sheaf__value *value);
void sheaf__value_expand(const sheaf__context *context, sheaf__value *value);
