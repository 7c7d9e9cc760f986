/* threads.h - a group of ranks that are threads of this process but were not started as that
 * group: a grid (grid.h) is made of several. Private to comm. */
#pragma once

#include "comm/transport.h"

typedef struct sheaf__threads sheaf__threads;

/* sheaf__threads_new - NULL: no memory. messages: as in sheaf__run_threads(). all: threads that run
 * at once, in this group and beside it. Free it when all ranks have left. */
sheaf__threads *sheaf__threads_new(int ranks, bool messages, int all);
void sheaf__threads_free(sheaf__threads *group);
/* sheaf__threads_comm - what the thread that is to be `rank` calls with. */
sheaf_comm *sheaf__threads_comm(sheaf__threads *group, int rank);
/* sheaf__threads_leave - `rank` makes no more calls; why: what its peers are told, NULL: it came to
 * its end. Consumes it. Call it exactly once for each rank. */
void sheaf__threads_leave(sheaf__threads *group, int rank, sheaf_status *why);
