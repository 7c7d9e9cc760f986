/* watch.c - see watch.h: the watching thread, which is on one of two sides (inner.h). All but
 * opening and closing happens in it. */
#include "comm/watch/inner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"

/* STRANGERS: connections to the first that need not be of this run, beside a place for each that
 * is: they cannot keep those out. */
enum { TICK_MS = 100, STRANGERS = 32, STRANGER_S = 5 };

/* ---- frames ---- */

static void take_frame(sheaf__watch *w, sheaf__watch_peer *p, int kind, const void *bytes,
                       size_t size)
{
    if (kind == SHEAF__BYE)
        p->bye = true;
    else if (sheaf__watch_is_first(w))
        sheaf__watch_hear_other(w, p, kind, bytes, size);
    else
        sheaf__watch_hear_first(w, kind, bytes, size);
}

static void drop(sheaf__watch_peer *p)
{
    close(p->fd);
    p->fd = -1;
}

static void hear(sheaf__watch *w, sheaf__watch_peer *p, double now)
{
    const void *bytes = NULL;
    size_t size = 0;
    int kind;
    const bool open = sheaf__line_read(p->fd, &p->in);
    p->silent = now - p->heard > w->o.heartbeat / 2;
    p->heard = now;
    while ((kind = sheaf__line_next(&p->in, &bytes, &size)) > 0)
        take_frame(w, p, kind, bytes, size);
    if (open && kind == 0)
        return;
    drop(p);
    if (p->bye || p->process < 0) /* the end of a run that is done, or a stranger */
        return;
    p->died = now;
}

static void beat(sheaf__watch *w, double now)
{
    w->beaten = now;
    sheaf__watch_tell_own(w);
    for (int i = 0; i < w->peers; i++) {
        sheaf__watch_peer *p = &w->peer[i];
        if (p->fd < 0 || p->bye || p->process < 0)
            continue;
        sheaf__line_send(p->fd, SHEAF__BEAT, &w->ranks.told[sheaf__watch_first_rank(w)],
                         sizeof(sheaf__told));
    }
}

/* ---- the thread ---- */

/* What closed the connection? */
static sheaf__verdict_kind closed_by(const sheaf__watch *w, const sheaf__watch_peer *p)
{
    if (p->silent)
        return SHEAF__STOPPED;
    return p->self.machine == w->self.machine && !sheaf__self_lives(&p->self) ? SHEAF__DIED
                                                                              : SHEAF__LOST;
}

static void judge_peers(sheaf__watch *w, double now)
{
    /* A thread that did not run for long, as the whole process was stopped or the machine slept,
     * has no right to judge who was silent meanwhile. */
    const bool late = now - w->looked > 1 + w->o.heartbeat / 4;
    if (late)
        w->progressed = now;
    for (int i = 0; i < w->peers; i++) {
        sheaf__watch_peer *p = &w->peer[i];
        /* the others say once more where they are, and that they wait; it comes to be dead */
        if (p->died > 0 && now - p->died >= 1e-3 * SHEAF__LAST_WORDS_MS) {
            p->died = 0;
            if (sheaf__watch_is_first(w))
                sheaf__watch_lost(w, closed_by(w, p), p, now);
            else
                sheaf__watch_lost_first(w, closed_by(w, p));
        }
        if (p->fd < 0 || p->bye)
            continue;
        if (late)
            p->heard = now;
        if (p->process < 0 && now - p->heard > STRANGER_S)
            drop(p);
        if (p->process < 0 || now - p->heard < w->o.heartbeat)
            continue;
        if (sheaf__watch_is_first(w))
            sheaf__watch_lost(w, SHEAF__STOPPED, p, now);
        else
            sheaf__watch_lost_first(w, SHEAF__STOPPED);
    }
}

static void *watch_main(void *argument)
{
    sheaf__watch *w = argument;
    struct pollfd wait[SHEAF_MAX_SLICES + STRANGERS + 2];
    w->looked = sheaf__seconds();
    while (!atomic_load(&w->closing)) {
        wait[0] = (struct pollfd){ .fd = w->wake, .events = POLLIN };
        wait[1] = (struct pollfd){ .fd = w->listens, .events = POLLIN };
        for (int i = 0; i < w->peers; i++)
            wait[i + 2] = (struct pollfd){ .fd = w->peer[i].fd, .events = POLLIN };
        if (poll(wait, (nfds_t)w->peers + 2, TICK_MS) < 0 && errno != EINTR)
            break;
        if (atomic_load(&w->closing))
            break;
        const double now = sheaf__seconds();
        for (int i = 0; i < w->peers; i++)
            if (w->peer[i].fd >= 0 && wait[i + 2].revents != 0)
                hear(w, &w->peer[i], now);
        if (w->listens >= 0 && wait[1].revents != 0)
            sheaf__watch_welcome(w, now);
        if (now - w->beaten >= 1e-3 * SHEAF__BEAT_MS)
            beat(w, now);
        judge_peers(w, now);
        if (sheaf__watch_is_first(w))
            sheaf__watch_judge_hang(w, now);
        w->looked = now;
    }
    return NULL;
}

/* ---- life ---- */

static void release(sheaf__watch *w)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0)
            close(w->peer[i].fd);
    if (w->wake >= 0)
        close(w->wake);
    if (w->listens >= 0)
        close(w->listens);
    free(w->peer);
    free(w);
}

static sheaf_status *start(sheaf__watch *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = sheaf__thread_start(&w->thread, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? NULL
                      : sheaf__found_errno(sheaf__no_memory("starting the watching thread"), error);
}

sheaf_status *sheaf__watch_open(sheaf__watch **out, int listens, const sheaf__line_place *place,
                                const sheaf__watch_options *options)
{
    sheaf__watch *w = calloc(1, sizeof *w);
    const int peers = options->process > 0     ? 1
                      : options->processes > 1 ? options->processes - 1 + STRANGERS
                                               : 0;
    *out = NULL;
    if (w != NULL)
        w->peer = calloc((size_t)peers + 1, sizeof *w->peer);
    if (w == NULL || w->peer == NULL) {
        free(w);
        if (listens >= 0)
            close(listens);
        return sheaf__no_memory("watching the processes");
    }
    w->o = *options;
    if (w->o.heartbeat <= 0) /* silence alone is no reason, and no progress either */
        w->o.heartbeat = w->o.hang_after;
    w->ranks.count = options->ranks;
    w->ranks.in_group = options->in_group;
    w->listens = listens;
    w->peers = peers;
    for (int i = 0; i < peers; i++)
        w->peer[i] = (sheaf__watch_peer){ .fd = -1, .process = -1, .heard = sheaf__seconds() };
    if (place != NULL)
        w->place = *place;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sheaf__self_look(&w->self);
    sheaf_status *st = sheaf__watch_is_first(w) ? NULL : sheaf__watch_call_first(w);
    TRY(st, start(w));
    if (st != NULL) {
        release(w);
        return st;
    }
    *out = w;
    return NULL;
}

void sheaf__watch_close(sheaf__watch *w)
{
    const uint64_t one = 1;
    if (w == NULL)
        return;
    atomic_store(&w->closing, true);
    if (write(w->wake, &one, sizeof one) < 0) {
        /* it looks up by itself soon */
    }
    pthread_join(w->thread, NULL);
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0)
            sheaf__line_send(w->peer[i].fd, SHEAF__BYE, NULL, 0);
    release(w);
}
