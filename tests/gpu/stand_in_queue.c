/* stand_in_queue.c - see stand_in_queue.h. */
#include "tests/gpu/stand_in_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/stand_in_fence.h"

typedef struct item {
    struct item *next;
    sheaf__queue_fn *done;
    _Alignas(64) char with[];
} item;

struct sheaf__queue {
    pthread_mutex_t list, running; /* of those who add, of the one who does */
    item *first, **last;
    int64_t added;
    _Atomic int64_t finished;
};

struct sheaf__queue_mark {
    pthread_mutex_t lock;
    sheaf__queue *queue; /* NULL: never set */
    int64_t number;
    bool timed;
    _Atomic int64_t reached; /* nanoseconds, when it was last */
};

sheaf__queue *sheaf__queue_new(void)
{
    sheaf__queue *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    pthread_mutex_init(&q->list, NULL);
    pthread_mutex_init(&q->running, NULL);
    q->last = &q->first;
    return q;
}

bool sheaf__queue_add(sheaf__queue *q, sheaf__queue_fn *done, const void *with, size_t bytes)
{
    item *i = aligned_alloc(64, (sizeof *i + bytes + 63) / 64 * 64);
    if (i == NULL)
        return false;
    i->done = done;
    i->next = NULL;
    memcpy(i->with, with, bytes);
    pthread_mutex_lock(&q->list);
    *q->last = i;
    q->last = &i->next;
    q->added++;
    pthread_mutex_unlock(&q->list);
    return true;
}

/* Does the first item; the caller is the one who does. */
static void step(sheaf__queue *q)
{
    pthread_mutex_lock(&q->list);
    item *i = q->first;
    pthread_mutex_unlock(&q->list);
    i->done(i->with);
    pthread_mutex_lock(&q->list);
    q->first = i->next;
    if (q->first == NULL)
        q->last = &q->first;
    pthread_mutex_unlock(&q->list);
    atomic_fetch_add(&q->finished, 1);
    free(i);
}

static void finish_to(sheaf__queue *q, int64_t number)
{
    pthread_mutex_lock(&q->running);
    const bool behind = atomic_load(&q->finished) < number;
    if (behind) /* once for all: it takes longer than most of what is queued */
        sheaf__fence_enter();
    while (atomic_load(&q->finished) < number)
        step(q);
    if (behind)
        sheaf__fence_leave();
    pthread_mutex_unlock(&q->running);
}

static int64_t added_to(sheaf__queue *q)
{
    pthread_mutex_lock(&q->list);
    const int64_t number = q->added;
    pthread_mutex_unlock(&q->list);
    return number;
}

void sheaf__queue_finish(sheaf__queue *q)
{
    finish_to(q, added_to(q));
}

void sheaf__queue_free(sheaf__queue *q)
{
    sheaf__queue_finish(q);
    pthread_mutex_destroy(&q->list);
    pthread_mutex_destroy(&q->running);
    free(q);
}

/* ---- marks ---- */

sheaf__queue_mark *sheaf__mark_new(bool timed)
{
    sheaf__queue_mark *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->timed = timed;
    return m;
}

void sheaf__mark_free(sheaf__queue_mark *m)
{
    if (m->timed) /* the queue has it */
        sheaf__mark_finish(m);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void look_at_clock(void *with)
{
    sheaf__queue_mark *m = *(sheaf__queue_mark *const *)with;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&m->reached, now.tv_sec * INT64_C(1000000000) + now.tv_nsec);
}

bool sheaf__mark_set(sheaf__queue_mark *m, sheaf__queue *q)
{
    if (m->timed && !sheaf__queue_add(q, look_at_clock, &m, sizeof m))
        return false;
    pthread_mutex_lock(&m->lock);
    m->queue = q;
    m->number = added_to(q);
    pthread_mutex_unlock(&m->lock);
    return true;
}

int64_t sheaf__mark_time(sheaf__queue_mark *m)
{
    pthread_mutex_lock(&m->lock);
    const bool is = m->timed && m->queue != NULL && atomic_load(&m->queue->finished) >= m->number;
    pthread_mutex_unlock(&m->lock);
    return is ? atomic_load(&m->reached) : -1;
}

void sheaf__mark_finish(sheaf__queue_mark *m)
{
    pthread_mutex_lock(&m->lock);
    sheaf__queue *q = m->queue;
    const int64_t number = m->number;
    pthread_mutex_unlock(&m->lock);
    if (q != NULL)
        finish_to(q, number);
}
