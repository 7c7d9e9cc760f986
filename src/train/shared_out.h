/* shared_out.h - do all processes of a run see the same OUT? Asked before anything is loaded, so
 * that a run on hosts with a disk each ends at its start and not when it saves. */
#ifndef SHEAF_TRAIN_SHARED_OUT_H
#define SHEAF_TRAIN_SHARED_OUT_H

#include "comm/comm.h"

/* sheaf__out_shared - in OUT or, before that is there, in the nearest folder above it, the first
 * rank writes a file with a name and bytes that nobody can guess, the others look for it, and it
 * goes away again. Collective. all   every rank out   as this rank names it host  this rank's, for
 * messages wait  seconds that a file may take to be seen (network file systems) Errors: SHEAF_E_IO
 * on all ranks, naming the host that does not see it. */
sheaf_status *sheaf__out_shared(sheaf_comm *all, const char *out, const char *host, double wait);

#endif
