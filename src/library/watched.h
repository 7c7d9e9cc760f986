/* watched.h - work whose processes and ranks are watched (comm/watch/watch.h): a training run, or
 * that of another command that several processes share. */
#pragma once

#include "base/events.h"
#include "comm/all.h"
#include "comm/watch/watch.h"

/* What only the program can do; see sheaf__watch_options. */
typedef struct sheaf__watch_hooks {
    void (*end)(void *self, const sheaf__watch_end *why);
    void (*begun)(void); /* the processes are watched, or are not to be; may be NULL */
    void *self;
} sheaf__watch_hooks;

typedef struct sheaf__watched_options {
    sheaf_comm *all;                 /* the processes; NULL: this one is alone */
    int ranks, in_group;             /* T * D, T; with several processes there is one to a rank */
    double heartbeat, hang_after;    /* seconds; see sheaf__watch_options */
    const sheaf__watch_hooks *hooks; /* NULL: nobody can end the program, nothing is watched */
    const atomic_int *stop;          /* a signal asked to stop; may be NULL */
    const char *cure;                /* see sheaf__watch_options */
    const char *phase;               /* of comm/doing.h, to begin with; may be NULL */
    const sheaf_events *events;
} sheaf__watched_options;

typedef struct sheaf__watched {
    sheaf_comm *all;
    sheaf__watch *watch;
    sheaf__doing *doing; /* of the ranks of this process */
} sheaf__watched;

/* sheaf__watched_open - collective over the processes. Where the first cannot be reached, `events`
 * are warned, and the work goes on without. Release also after a failure. */
sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf__watched_options *options);
void sheaf__watched_close(sheaf__watched *watched);
