/* watch.h - the watchdog: reports when a run cannot go on: a process that died, one that is stopped
 * or whose host is gone, ranks that make no progress. No rank could report it: they wait.
 *
 * One small thread in each process. With several processes each holds a connection to the first,
 * beside the transport, and sends four times a second what its rank is doing. A connection that
 * closes without a goodbye is a process that died; one that is silent for `heartbeat` seconds was
 * stopped, or its host is gone; beats without any progress for `hang_after` seconds are a hang. A
 * rank that is slow makes progress, and is left alone. The first process reports what happened,
 * once, and all end; the rest of a silent process is killed by processes on its machine.
 *
 * With one process it looks for hangs alone. Progress is an op of the tape or a call that ends;
 * where a rank does neither (it loads, writes, tokenizes), processor time that its process takes.
 */
#pragma once

#include "base/events.h"
#include "comm/all.h"
#include "comm/activity.h"
#include "comm/watch/self.h"

typedef struct sheaf__watch sheaf__watch;

/* Callbacks into the program. */
typedef struct sheaf__watch_hooks {
    /* Called once, in the watching thread: ends the process at once. text: why the run cannot go
     * on, to be shown; NULL: another process shows it. */
    void (*end)(void *self, const char *text);
    void (*started)(void); /* the processes are watched, or are not to be; may be NULL */
    void *self;
} sheaf__watch_hooks;

typedef struct sheaf__watch_options {
    sheaf_comm *all;                 /* the processes; NULL: this one is alone */
    int ranks;                       /* T * D; with several processes there is one to a rank */
    double heartbeat;                /* seconds; 0 = hang_after */
    double hang_after;               /* seconds, 0 = never */
    const sheaf__watch_hooks *hooks; /* NULL: nothing can end the program, nothing is watched */
    const char *cure;                /* advice after all has ended; NULL: that of a training run */
    const char *phase;               /* of comm/activity.h, to begin with; may be NULL */
    const sheaf_events *events;
} sheaf__watch_options;

typedef struct sheaf__watched {
    sheaf_comm *all;
    sheaf__watch *watch;
    sheaf__activity
        *activity; /* of the ranks of this process: all, or with several processes one */
} sheaf__watched;

/* sheaf__watched_open - work whose processes and ranks are watched. Collective over the processes.
 * Where the first cannot be reached, `events` are warned, and the work goes on without. Release
 * also after a failure. */
sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf__watch_options *options);
void sheaf__watched_close(sheaf__watched *watched);

/* sheaf__watch_open - begins to watch.
 *   activity          of this process's ranks, borrowed
 *   self              [processes] their identities; copied
 *   fd                [processes] connections of the first process to the others; of another one
 *                     fd[0] is that to the first. Taken, also where it fails
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__watch_open(sheaf__watch **out, sheaf__activity *activity, int process,
                                int processes, const sheaf__self *self, const int *fd,
                                const sheaf__watch_options *options);
/* sheaf__watch_close - says goodbye. Accepts NULL. */
void sheaf__watch_close(sheaf__watch *watch);
