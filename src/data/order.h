/* order.h - private: which rows come one after the other.
 *
 * An epoch visits every row once, in the order of the file or permuted by (seed, epoch). With
 * `by_length` the rows of that order are taken in groups of some tens of micro-batches; within a
 * group they are sorted, longest first (of equals the one that comes first in the data), cut into
 * micro-batches, and these are permuted by (seed, epoch, group): so a micro-batch has rows of like
 * length, and the lengths of steps still change at random. */
#pragma once

#include "data/data_rows.h"

enum { SHEAF__GROUP_MOST = 1024 }; /* rows */

/* sheaf__data_group - rows that are sorted together: a multiple of the micro-batch, or 0 where one
 * is too large to gain. */
int64_t sheaf__data_group(int64_t micro_batch);
