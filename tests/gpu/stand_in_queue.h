/* stand_in_queue.h - streams and events of the stand-in driver: what is added to a queue is done
 * when someone waits for it, by the thread that waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sheaf__queue sheaf__queue;
typedef struct sheaf__queue_mark sheaf__queue_mark; /* an event */

/* One thing to do: done(with), whose `bytes` bytes are copied. */
typedef void sheaf__queue_fn(void *with);

/* NULL, false: no memory. */
sheaf__queue *sheaf__queue_new(void);
void sheaf__queue_free(sheaf__queue *queue); /* what it has is done first */
bool sheaf__queue_add(sheaf__queue *queue, sheaf__queue_fn *done, const void *with, size_t bytes);
void sheaf__queue_finish(sheaf__queue *queue);

sheaf__queue_mark *sheaf__mark_new(bool timed);
void sheaf__mark_free(sheaf__queue_mark *mark);
/* sheaf__mark_set - it now stands behind all that the queue has. */
bool sheaf__mark_set(sheaf__queue_mark *mark, sheaf__queue *queue);
void sheaf__mark_finish(sheaf__queue_mark *mark);
/* sheaf__mark_time - nanoseconds, when it was reached; -1: it was not yet, or is not timed. */
int64_t sheaf__mark_time(sheaf__queue_mark *mark);
