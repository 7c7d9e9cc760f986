/* shared_out.h - do all processes of a run see the same OUT? Asked before anything is read. */
#pragma once

#include "comm/comm.h"

/* Seconds within which hosts that share a file system see what one of them has written. */
enum { SHEAF__OUT_SEEN_WITHIN = 10 };

/* sheaf__out_shared - the first rank writes a file into OUT with a name that cannot be guessed, the
 * others look for it, and it goes away again, as do the folders that were made for it. Collective.
 *   all    every rank
 *   out    as this rank names it
 *   wait   seconds that a file may take to be seen (network file systems)
 * Errors, on all ranks: SHEAF_E_ARG of a rank that does not see it; SHEAF_E_IO where nothing can be
 * written. */
sheaf_status *sheaf__out_shared(sheaf_comm *all, const char *out, double wait);
