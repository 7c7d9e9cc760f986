/* lowest.h - of pieces of work that threads share, the status of the lowest one that fails, so that
 * the message never depends on timing. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef struct sheaf__lowest {
    atomic_bool failed; /* a piece has: the rest may be passed over */
    pthread_mutex_t lock;
    int64_t at;
    sheaf_status *status; /* NULL: none failed */
} sheaf__lowest;

static inline void sheaf__lowest_begin(sheaf__lowest *lowest)
{
    pthread_mutex_init(&lowest->lock, NULL);
    atomic_init(&lowest->failed, false);
    lowest->status = NULL;
}

/* Piece `at` failed; takes its status. Thread-safe. */
static inline void sheaf__lowest_note(sheaf__lowest *lowest, int64_t at, sheaf_status *status)
{
    pthread_mutex_lock(&lowest->lock);
    if (lowest->status == NULL || at < lowest->at) {
        sheaf_status *const other = lowest->status;
        lowest->status = status;
        lowest->at = at;
        status = other;
    }
    pthread_mutex_unlock(&lowest->lock);
    sheaf_status_free(status);
    atomic_store(&lowest->failed, true);
}

/* When all pieces have ended; the caller owns what it gives. */
static inline sheaf_status *sheaf__lowest_end(sheaf__lowest *lowest)
{
    pthread_mutex_destroy(&lowest->lock);
    return lowest->status;
}
