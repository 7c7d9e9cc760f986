/* watched.h - a training run whose processes and ranks are watched (comm/watch/watch.h). */
#ifndef SHEAF_LIBRARY_WATCHED_H
#define SHEAF_LIBRARY_WATCHED_H

#include "comm/watch/watch.h"
#include "train/train.h"

/* What only the program can do; see sheaf__watch_options. */
typedef struct sheaf__watch_hooks {
    void (*end)(void *self, const sheaf__watch_end *why);
    void (*say)(void *self, const char *text);
    size_t (*stack)(void *self, int thread, char *to, size_t size);
    void *self;
} sheaf__watch_hooks;

typedef struct sheaf__watched {
    sheaf__watch *watch;
    sheaf__doing *doing; /* of the ranks of this process, for sheaf_train_hooks.doing */
} sheaf__watched;

/* sheaf__watched_open - collective over the processes. Where the first cannot be reached, `events`
 * are warned, and the run goes on without. Release also after a failure. */
sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf_train_options *options,
                                  const sheaf__watch_hooks *hooks, const sheaf_signals *signals,
                                  const sheaf_events *events);
void sheaf__watched_close(sheaf__watched *watched);

#endif
