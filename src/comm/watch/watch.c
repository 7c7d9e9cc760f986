/* watch.c - see watch.h: the watching thread. The first process hears of all ranks, judges, and
 * reports what happened, once. Any other ends when that one says so or its frames stop. All
 * but opening and closing happens in the thread. */
#include "comm/watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/process.h"
#include "comm/watch/line.h"

enum { TICK_MS = 100, BEAT_MS = 250, LAST_WORDS_MS = 300 };
enum { TURN_MS = 2500, TURNS = 3 };
enum { FINISHING = 6 }; /* times as long: a system may write for long what it has kept back */

enum { BEAT = 1, END, BYE };
enum { NONE = -1 };

typedef struct frame {
    int32_t kind;
    int32_t victim;     /* of END: the process that is to be killed, or NONE */
    sheaf__report beat; /* the activity of the sender's rank */
} frame;

/* A connection: of the first process one for each of the others, of another that to the first. */
typedef struct peer {
    int fd; /* -1: none any more */
    int process;
    double last_frame; /* when */
    double died;       /* when its connection closed; 0: it lives */
    double quiet; /* seconds before that: one that was stopped may be killed by another process */
    bool bye;
    frame in;
    size_t used; /* bytes of it that came */
} peer;

struct sheaf__watch {
    sheaf__watch_options o;
    sheaf__activity *activity;
    int process, processes;
    int wake;
    pthread_t thread;
    int peers;
    peer peer[SHEAF_MAX_SLICES];
    sheaf__self self[SHEAF_MAX_SLICES];
    sheaf__report report[SHEAF_MAX_SLICES]; /* of ranks; without a host: nothing is known of it */
    double looked, beaten;                  /* when */
    uint64_t progress; /* of all ranks, when it last changed, and when that was */
    double progressed;
    atomic_bool closing;
};

/* ---- what is known of ranks ---- */

/* The records of this process: of all ranks where it is alone, of its own where not. */
static const sheaf__report *look_at_own(sheaf__watch *w)
{
    const bool alone = w->processes == 1;
    uint64_t busy = 0;
    sheaf__report *own = &w->report[alone ? 0 : w->process];
    for (int i = 0; i < (alone ? w->o.ranks : 1); i++) {
        sheaf__activity_report(&own[i], &w->activity[i]);
        if (own[i].call[0] == '\0' && own[i].op[0] == '\0')
            busy = sheaf__self_busy();
    }
    own->ticks += busy;
    return own;
}

/* ---- the message ---- */

static void show_ranks(sheaf_text *out, const sheaf__watch *w, int but)
{
    for (int i = 0; i < w->o.ranks; i++)
        if (i != but && w->report[i].host[0] != '\0') {
            sheaf__text_add(out, "  ");
            sheaf__report_show(out, &w->report[i]);
            sheaf__text_add(out, "\n");
        }
}

/* victim: the rank that is gone (`died`) or silent for s seconds; NONE: no rank makes progress. */
static void explain(sheaf_text *out, const sheaf__watch *w, int victim, bool died, double s)
{
    if (victim == NONE) {
        sheaf__text_add(out, "sheaf: the run hangs: no rank got on for %.0f s\n", s);
    } else {
        sheaf__text_add(out, "sheaf: rank %d of %d (host %s, process %" PRId64 ") ", victim,
                        w->o.ranks, w->self[victim].host, w->self[victim].pid);
        if (died)
            sheaf__text_add(out, "has died, or its host or the network failed\n");
        else
            sheaf__text_add(out,
                            "is silent: it was stopped, or its host is gone; it is killed "
                            "(%.0f s)\n",
                            s);
        if (w->report[victim].host[0] != '\0') {
            sheaf__text_add(out, "  last:     ");
            sheaf__report_show(out, &w->report[victim]);
            sheaf__text_add(out, "\n");
        }
    }
    show_ranks(out, w, victim);
    sheaf__text_add(out, "  try:      %s (docs/my-run-died.md)\n",
                    w->o.cure != NULL ? w->o.cure
                                      : "the newest checkpoint is whole: go on with `resume`, or "
                                        "begin with `restarts N`");
}

/* ---- the end ---- */

static void send_all(sheaf__watch *w, const frame *f)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0 && !w->peer[i].bye)
            sheaf__line_send(w->peer[i].fd, f, sizeof *f);
}

/* Ends all, if this is the first process, else this one. */
static void end_all(sheaf__watch *w, int victim, bool died, double s)
{
    sheaf_text text = { 0 };
    look_at_own(w);
    explain(&text, w, victim, died, s);
    if (w->process == 0)
        send_all(w, &(frame){ .kind = END, .victim = died ? NONE : victim });
    if (!died && victim != NONE)
        sheaf__self_kill(&w->self[victim]);
    /* Without the first process the others report one after the other: launchers end all when one
     * ends, so that only one reports. */
    if (w->process > 1)
        poll(NULL, 0, TURN_MS * (w->process - 1 < TURNS ? w->process - 1 : TURNS));
    w->o.hooks->end(w->o.hooks->self, text.at == NULL ? "sheaf: the run cannot go on\n" : text.at);
    sheaf__text_release(&text);
}

/* ---- beats ---- */

static void take_frame(sheaf__watch *w, peer *p)
{
    if (p->in.kind == BYE) {
        p->bye = true;
    } else if (p->in.kind == BEAT) {
        w->report[p->process] = p->in.beat;
    } else if (p->in.kind == END) {
        if (p->in.victim != NONE)
            sheaf__self_kill(&w->self[p->in.victim]);
        /* a launcher that sees this process end may kill the first before it has reported the
         * reason */
        poll(NULL, 0, LAST_WORDS_MS);
        w->o.hooks->end(w->o.hooks->self, NULL);
    }
}

static void hear(sheaf__watch *w, peer *p, double now)
{
    int got;
    p->quiet = now - p->last_frame;
    p->last_frame = now;
    while ((got = sheaf__line_read(p->fd, &p->in, sizeof p->in, &p->used)) > 0)
        take_frame(w, p);
    if (got == 0)
        return;
    close(p->fd);
    p->fd = -1;
    p->died = p->bye ? 0 : now;
}

static void beat(sheaf__watch *w, double now)
{
    w->beaten = now;
    send_all(w, &(frame){ .kind = BEAT, .beat = *look_at_own(w) });
}

/* ---- judging ---- */

static void judge_peers(sheaf__watch *w, double now)
{
    /* A thread that did not run for long, as the whole process was stopped or the machine slept,
     * has no right to judge which was silent meanwhile. */
    const bool late = now - w->looked > 1 + w->o.heartbeat / 4;
    if (late)
        w->progressed = now;
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        /* the others say once more where they are */
        if (p->died > 0 && now - p->died >= 1e-3 * LAST_WORDS_MS) {
            p->died = 0;
            end_all(w, p->process, p->quiet < w->o.heartbeat / 2, p->quiet);
        }
        if (late)
            p->last_frame = now;
        if (p->fd >= 0 && !p->bye && now - p->last_frame >= w->o.heartbeat)
            end_all(w, p->process, false, now - p->last_frame);
    }
}

/* Else one is about to be found silent, and killed. */
static bool all_heard(const sheaf__watch *w, double now)
{
    bool all = true;
    for (int i = 0; i < w->peers; i++)
        all = all && (w->peer[i].fd < 0 || w->peer[i].bye || now - w->peer[i].last_frame < 1);
    return all;
}

static void judge_hang(sheaf__watch *w, double now)
{
    uint64_t progress = 0;
    bool idle = w->o.hang_after == 0;
    int times = 1;
    for (int i = 0; i < w->o.ranks; i++) {
        const sheaf__report *r = &w->report[i];
        progress += r->ticks;
        idle |= r->idle != 0;
        if (r->call[0] == '\0' && strcmp(r->phase, "finishing") == 0)
            times = FINISHING;
    }
    if (idle || progress != w->progress || w->progressed == 0) {
        w->progress = progress;
        w->progressed = now;
    } else if (now - w->progressed >= times * w->o.hang_after && all_heard(w, now)) {
        end_all(w, NONE, false, now - w->progressed);
    }
}

/* ---- the thread ---- */

static void *watch_main(void *argument)
{
    sheaf__watch *w = argument;
    struct pollfd wait[SHEAF_MAX_SLICES + 1];
    w->looked = sheaf__seconds();
    while (!atomic_load(&w->closing)) {
        for (int i = 0; i < w->peers; i++)
            wait[i] = (struct pollfd){ .fd = w->peer[i].fd, .events = POLLIN };
        wait[w->peers] = (struct pollfd){ .fd = w->wake, .events = POLLIN };
        if (poll(wait, (nfds_t)w->peers + 1, TICK_MS) < 0 && errno != EINTR)
            break;
        if (atomic_load(&w->closing))
            break;
        const double now = sheaf__seconds();
        for (int i = 0; i < w->peers; i++)
            if (w->peer[i].fd >= 0 && wait[i].revents != 0)
                hear(w, &w->peer[i], now);
        if (now - w->beaten >= 1e-3 * BEAT_MS)
            beat(w, now);
        judge_peers(w, now);
        if (w->process == 0)
            judge_hang(w, now);
        w->looked = now;
    }
    return NULL;
}

static void release(sheaf__watch *w)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0)
            close(w->peer[i].fd);
    if (w->wake >= 0)
        close(w->wake);
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

sheaf_status *sheaf__watch_open(sheaf__watch **out, sheaf__activity *activity, int process,
                                int processes, const sheaf__self *self, const int *fd,
                                const sheaf__watch_options *options)
{
    sheaf__watch *w = calloc(1, sizeof *w);
    const int peers = process > 0 ? 1 : processes - 1;
    *out = NULL;
    for (int i = 0; w == NULL && i < peers; i++)
        close(fd[process > 0 ? 0 : i + 1]);
    if (w == NULL)
        return sheaf__no_memory("watching the processes");
    w->o = *options;
    if (w->o.heartbeat <= 0) /* silence alone is no reason, and no progress either */
        w->o.heartbeat = w->o.hang_after;
    w->activity = activity;
    w->process = process;
    w->processes = processes;
    memcpy(w->self, self, (size_t)processes * sizeof *self);
    w->peers = peers;
    for (int i = 0; i < peers; i++) {
        const int other = process > 0 ? 0 : i + 1;
        w->peer[i] = (peer){ .fd = fd[other], .process = other, .last_frame = sheaf__seconds() };
    }
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    beat(w, sheaf__seconds()); /* the first activity is recorded, however short */
    sheaf_status *st = start(w);
    if (st != NULL)
        release(w);
    else
        *out = w;
    return st;
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
    send_all(w, &(frame){ .kind = BYE });
    release(w);
}

/* ---- the processes of a run ---- */

static sheaf_status *begin_records(sheaf__watched *out, const sheaf__watch_options *o)
{
    const bool alone = sheaf__all_count(o->all) == 1;
    const int count = alone ? o->ranks : 1;
    out->activity = aligned_alloc(_Alignof(sheaf__activity), (size_t)count * sizeof *out->activity);
    if (out->activity == NULL)
        return sheaf__no_memory("watching the ranks");
    for (int i = 0; i < count; i++) {
        sheaf__activity_init(&out->activity[i], alone ? i : sheaf__all_number(o->all));
        sheaf__activity_phase(&out->activity[i], o->phase);
    }
    return NULL;
}

/* All learn their number and the address of the first process, and connect to it; fd, self: see
 * sheaf__watch_open(). An SHEAF_E_IO in one of them is one of all. */
static sheaf_status *meet(int *fd, sheaf__self *self, sheaf_comm *all)
{
    const int number = sheaf__all_number(all), count = sheaf__all_count(all);
    sheaf__line_place place = { 0 };
    bool here = true;
    int listens = -1;
    sheaf__self_look(&self[number]);
    if (count == 1)
        return NULL;
    sheaf_status *st = sheaf__all_gather(all, self, sizeof *self);
    for (int i = 0; i < count; i++)
        here =
            here && self[i].machine == self[0].machine && strcmp(self[i].host, self[0].host) == 0;
    if (st == NULL && number == 0)
        st = sheaf__line_listen(&listens, &place, here);
    st = sheaf__all_agree(all, st);
    TRY(st, sheaf__all_broadcast(all, &place, sizeof place));
    if (st != NULL)
        return st;
    st = number == 0 ? sheaf__line_accept(fd, listens, &place, count)
                     : sheaf__line_connect(&fd[0], &place, number);
    st = sheaf__all_agree(all, st);
    for (int i = 0; st != NULL && i < (number == 0 ? count : 1); i++)
        if (fd[i] >= 0) /* some unwatched processes would make all seem to hang */
            close(fd[i]);
    return st;
}

static sheaf_status *open_watch(sheaf__watched *out, const sheaf__watch_options *o)
{
    int fd[SHEAF_MAX_SLICES];
    sheaf__self self[SHEAF_MAX_SLICES];
    *out = (sheaf__watched){ .all = o->all };
    sheaf_status *st = sheaf__all_agree(o->all, begin_records(out, o));
    if (st != NULL || o->hooks == NULL ||
        (o->hang_after == 0 && (sheaf__all_count(o->all) == 1 || o->heartbeat == 0)))
        return st;
    st = meet(fd, self, o->all);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_IO) {
        if (sheaf__all_first(o->all))
            sheaf_warn(o->events,
                       "%s: %s; a process that dies or stops is noticed only by its launcher: "
                       "let the hosts of the run connect to each other on any TCP port",
                       sheaf_status_where(st), sheaf_status_found(st));
        sheaf_status_free(st);
        return NULL;
    }
    TRY(st, sheaf__watch_open(&out->watch, out->activity, sheaf__all_number(o->all),
                              sheaf__all_count(o->all), self, fd, o));
    return sheaf__all_agree(o->all, st);
}

sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf__watch_options *o)
{
    sheaf_status *st = open_watch(out, o);
    if (st == NULL)
        sheaf__process_record(o->all, out->activity);
    if (st == NULL && o->hooks != NULL && o->hooks->started != NULL)
        o->hooks->started();
    return st;
}

void sheaf__watched_close(sheaf__watched *watched)
{
    sheaf__watch_close(watched->watch);
    sheaf__process_record(watched->all, NULL);
    free(watched->activity);
    *watched = (sheaf__watched){ 0 };
}
