/* elapsed.h - says how long something has been going on, for work that tells nothing itself: a
 * thread that sleeps between two notes. */
#ifndef SHEAF_LIBRARY_ELAPSED_H
#define SHEAF_LIBRARY_ELAPSED_H

#include <pthread.h>
#include <stdbool.h>

#include "base/events.h"

typedef struct sheaf__elapsed {
    const char *what;
    double first; /* seconds until the first note */
    const sheaf_events *events;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool started, ended;
} sheaf__elapsed;

/* sheaf__elapsed_begin - after `first` seconds `events` hear "WHAT, N s so far", and again whenever
 * twice as long has passed, or a minute. Where no thread can be had nothing is told. All are
 * borrowed; `out` stays where it is until sheaf__elapsed_end(), after which nothing more is said.
 */
void sheaf__elapsed_begin(sheaf__elapsed *out, const char *what, double first,
                          const sheaf_events *events);
void sheaf__elapsed_end(sheaf__elapsed *elapsed);

#endif
