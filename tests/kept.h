/* kept.h - things that stay until the program ends. */
#pragma once

#include "tests/check.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    struct kept_thing {
        void *thing;
        void (*release)(void *thing);
    } * all;
    size_t n;
} keeping = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* kept - the thing itself. */
static inline void *kept(void *thing, void (*release)(void *thing))
{
    pthread_mutex_lock(&keeping.lock);
    keeping.all = realloc(keeping.all, (keeping.n + 1) * sizeof *keeping.all);
    if (keeping.all == NULL || thing == NULL)
        abort();
    keeping.all[keeping.n++] = (struct kept_thing){ thing, release };
    pthread_mutex_unlock(&keeping.lock);
    return thing;
}

/* room - so many bytes of 0. */
static inline void *room(size_t bytes)
{
    return kept(calloc(1, bytes + 1), free);
}

/* release_kept - all that was kept since so many things were (keeping.n). */
static inline void release_kept(size_t since)
{
    while (keeping.n > since) {
        const struct kept_thing last = keeping.all[--keeping.n];
        last.release(last.thing);
    }
    if (keeping.n == 0) {
        free(keeping.all);
        keeping.all = NULL;
    }
}
