/* callers.c - see callers.h. */
#include "http/callers.h"

#include <math.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/thread.h"

struct sheaf__caller {
    sheaf__caller *next, **at; /* at: what points to it */
    int socket;
    unsigned char address[SHEAF__CALLER_ADDRESS];
    sheaf__caller_stage stage;
    double since; /* of its request, or of its reply */
    bool cut;
};

struct sheaf__callers {
    sheaf__callers_options o;
    pthread_t thread;
    pthread_mutex_t lock; /* for the members below */
    pthread_cond_t changed;
    sheaf__caller *first;
    bool closing;
};

/* The moment from which it may be cut; INFINITY: none. */
static double due(const sheaf__callers *c, const sheaf__caller *one)
{
    const double seconds = c->o.deadline[one->stage];
    return one->cut || seconds == 0 ? INFINITY : one->since + seconds;
}

/* Its thread of the HTTP library then finds the end of the connection, and closes it. */
static void cut(sheaf__caller *one)
{
    one->cut = true;
    shutdown(one->socket, SHUT_RDWR);
}

static void *watch(void *self)
{
    sheaf__callers *c = self;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        const double now = sheaf__seconds();
        double next = now + 1; /* stages change without a signal to this thread */
        for (sheaf__caller *one = c->first; one != NULL; one = one->next) {
            const double moment = due(c, one);
            if (moment <= now)
                cut(one);
            else if (moment < next)
                next = moment;
        }
        if (c->first == NULL)
            pthread_cond_wait(&c->changed, &c->lock);
        else
            pthread_cond_timedwait(
                &c->changed, &c->lock,
                &(struct timespec){ .tv_sec = (time_t)next,
                                    .tv_nsec = (long)((next - floor(next)) * 1e9) });
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

sheaf_status *sheaf__callers_open(sheaf__callers **out, const sheaf__callers_options *o)
{
    sheaf__callers *c = calloc(1, sizeof *c);
    pthread_condattr_t monotonic; /* the clock of sheaf__seconds() */
    *out = NULL;
    if (c == NULL)
        return sheaf__no_memory("connections");
    c->o = *o;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->lock, NULL);
    if (sheaf__thread_start(&c->thread, watch, c) == 0) {
        *out = c;
        return NULL;
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
    return sheaf__no_memory("a thread");
}

void sheaf__callers_close(sheaf__callers *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

/* Makes room for a new one: the one that is due first goes; where none is, the new one itself. */
static void make_room(sheaf__callers *c, sheaf__caller *fresh, bool of_address, int most)
{
    sheaf__caller *goes = NULL;
    int count = 0;
    for (sheaf__caller *one = c->first; one != NULL; one = one->next) {
        if (one->cut ||
            (of_address && memcmp(one->address, fresh->address, sizeof one->address) != 0))
            continue;
        count++;
        if (one != fresh && due(c, one) < (goes == NULL ? INFINITY : due(c, goes)))
            goes = one;
    }
    if (count > most)
        cut(goes == NULL ? fresh : goes);
}

sheaf__caller *sheaf__callers_add(sheaf__callers *c, int socket,
                                  const unsigned char address[SHEAF__CALLER_ADDRESS])
{
    sheaf__caller *one = calloc(1, sizeof *one);
    if (one == NULL) {
        shutdown(socket, SHUT_RDWR);
        return NULL;
    }
    one->socket = socket;
    one->since = sheaf__seconds();
    memcpy(one->address, address, sizeof one->address);
    pthread_mutex_lock(&c->lock);
    one->at = &c->first;
    one->next = c->first;
    if (one->next != NULL)
        one->next->at = &one->next;
    else
        pthread_cond_signal(&c->changed);
    c->first = one;
    make_room(c, one, true, c->o.most_of_address);
    make_room(c, one, false, c->o.most);
    pthread_mutex_unlock(&c->lock);
    return one;
}

void sheaf__callers_move(sheaf__callers *c, sheaf__caller *one, sheaf__caller_stage to)
{
    if (one == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    if (to != SHEAF__CALLER_BODY)
        one->since = sheaf__seconds();
    one->stage = to;
    pthread_mutex_unlock(&c->lock);
}

void sheaf__callers_remove(sheaf__callers *c, sheaf__caller *one)
{
    if (one == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    *one->at = one->next;
    if (one->next != NULL)
        one->next->at = one->at;
    pthread_mutex_unlock(&c->lock);
    free(one);
}
