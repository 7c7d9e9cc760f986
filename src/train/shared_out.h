/* shared_out.h - do all processes of a run see the same OUT? Asked before anything is read: where
 * hosts have a disk each, the first process keeps what is saved. */
#ifndef SHEAF_TRAIN_SHARED_OUT_H
#define SHEAF_TRAIN_SHARED_OUT_H

#include "comm/comm.h"

/* sheaf__out_shared - in OUT or, before that is there, in the nearest folder above it, the first
 * rank writes a file with a name and bytes that nobody can guess, the others look for it, and it
 * goes away again. Collective.
 *   blind  out, the same on all: the first rank that does not see it; -1: all do
 *   all    every rank
 *   out    as this rank names it
 *   wait   seconds that a file may take to be seen (network file systems)
 * Errors: SHEAF_E_IO on all ranks, where nothing can be written. */
sheaf_status *sheaf__out_shared(int *blind, sheaf_comm *all, const char *out, double wait);

#endif
