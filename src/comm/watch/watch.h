/* watch.h - tells when a run cannot go on: a process that died, one that is stopped or whose host
 * is gone, ranks that wait for each other for ever. No rank could tell it: they wait.
 *
 * One small thread in each process. With several processes each holds a connection to the first,
 * beside the transport, and sends every second what its ranks are doing. A connection that closes
 * without a goodbye is a process that died; one that is silent for `heartbeat` seconds was stopped,
 * or its host is gone; beats without any progress for `hang_after` seconds are a hang. A rank that
 * is slow makes progress, and is left alone. The first process tells what happened, once, and all
 * end; what is left of a silent process is killed by those on its machine.
 *
 * With one process it looks for hangs alone. Progress is an op of the tape or a call that ends;
 * where a rank does neither (it loads, writes, tokenizes), processor time that its process takes.
 */
#pragma once

#include <stdatomic.h>

#include "comm/doing.h"
#include "comm/watch/line.h"

typedef struct sheaf__watch sheaf__watch;

/* Why a run cannot go on. */
typedef struct sheaf__watch_end {
    const char *text; /* to be shown; NULL: the first process shows it */
    int gone;         /* ranks of a host of which nothing is heard any more, 0: all are there */
} sheaf__watch_end;

typedef struct sheaf__watch_options {
    int process, processes; /* this one's number; how many there are */
    int ranks, in_group;    /* of the run: T * D; T */
    sheaf__doing *doing;    /* of this process's ranks, borrowed: all, or with several
                               processes one */
    double heartbeat;       /* seconds; 0 = hang_after */
    double hang_after;      /* seconds, 0 = never */
    const atomic_int *stop; /* a signal asked to stop; may be NULL */
    const char *cure;       /* what to try when all has ended; NULL: as of a training run */
    /* Called once, in the watching thread: ends the process at once. */
    void (*end)(void *self, const sheaf__watch_end *why);
    void *self;
} sheaf__watch_options;

/* sheaf__watch_open - begins to watch. `listens`: the socket of sheaf__line_listen() on the first
 * of several processes, which takes it, else -1; `place`: where that is, for the others. Errors:
 * SHEAF_E_IO: the first process cannot be reached; SHEAF_E_MEMORY. */
sheaf_status *sheaf__watch_open(sheaf__watch **out, int listens, const sheaf__line_place *place,
                                const sheaf__watch_options *options);
/* sheaf__watch_close - says goodbye. Accepts NULL. */
void sheaf__watch_close(sheaf__watch *watch);
