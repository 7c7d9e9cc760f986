/* elapsed.c - see elapsed.h. */
#include "library/elapsed.h"

#include <errno.h>
#include <math.h>

#include "base/clock.h"
#include "base/thread.h"

#define MOST_BETWEEN 60.0 /* seconds */

static struct timespec moment(double seconds)
{
    const double whole = floor(seconds);
    return (struct timespec){ (time_t)whole, (long)((seconds - whole) * 1e9) };
}

static void *tell(void *arg)
{
    sheaf__elapsed *e = arg;
    const double began = sheaf__seconds();
    double next = e->first;
    pthread_mutex_lock(&e->lock);
    while (!e->ended) {
        const struct timespec until = moment(began + next);
        if (pthread_cond_timedwait(&e->over, &e->lock, &until) != ETIMEDOUT || e->ended)
            continue;
        sheaf_note(e->events, "%s, %.*f s so far", e->what, next < 1 ? 2 : 0, next);
        next += next < MOST_BETWEEN ? next : MOST_BETWEEN;
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

void sheaf__elapsed_begin(sheaf__elapsed *out, const char *what, double first,
                          const sheaf_events *events)
{
    pthread_condattr_t how;
    *out = (sheaf__elapsed){ .what = what, .first = first, .events = events };
    pthread_mutex_init(&out->lock, NULL);
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC); /* that of sheaf__seconds() */
    pthread_cond_init(&out->over, &how);
    pthread_condattr_destroy(&how);
    out->started = sheaf__thread_start(&out->thread, tell, out) == 0;
}

void sheaf__elapsed_end(sheaf__elapsed *e)
{
    pthread_mutex_lock(&e->lock);
    e->ended = true;
    pthread_cond_signal(&e->over);
    pthread_mutex_unlock(&e->lock);
    if (e->started)
        pthread_join(e->thread, NULL);
    pthread_cond_destroy(&e->over);
    pthread_mutex_destroy(&e->lock);
}
