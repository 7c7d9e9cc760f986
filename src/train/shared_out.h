/* shared_out.h - do all processes of a run see the same OUT, and who has a run in it? Asked before
 * anything is read: where hosts have a disk each, the first process keeps what is saved. */
#pragma once

#include "comm/comm.h"

/* Seconds within which hosts that share a file system see what one of them has written. */
enum { SHEAF__OUT_SEEN_WITHIN = 10 };

/* sheaf__out_shared - the first rank writes a file into OUT with a name and bytes that nobody can
 * guess, the others look for it, and it goes away again, as do the folders that were made for it.
 * Collective.
 *   seen   out, the same on all: which ranks see what the first has written
 *   all    every rank
 *   out    as this rank names it
 *   wait   seconds that a file may take to be seen (network file systems)
 * Errors: SHEAF_E_IO on all ranks, where nothing can be written. */
sheaf_status *sheaf__out_shared(bool seen[SHEAF_MAX_SLICES], sheaf_comm *all, const char *out,
                                double wait);

/* sheaf__out_kept - which ranks have a run in OUT? The first looks again for `wait` seconds where
 * another has one and it has none. Collective.
 *   kept  out, the same on all */
sheaf_status *sheaf__out_kept(bool kept[SHEAF_MAX_SLICES], sheaf_comm *all, const char *out,
                              double wait);
