/* watch.c - see watch.h: the watching thread. The first process hears of all ranks, judges, and
 * reports what happened, once. Any other holds a connection to the first, and ends when that one
 * says so or is not heard any more. All but opening and closing happens in the thread. */
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
#include "comm/watch/self.h"
#include "comm/watch/verdict.h"

/* STRANGERS: connections to the first that need not be of this run, beside a place for each that
 * is: they cannot keep those out. */
enum { TICK_MS = 100, BEAT_MS = 250, STRANGERS = 32, STRANGER_S = 5 };
enum { APART_MS = 2000, SILENT_S = 3, LAST_WORDS_MS = 300 };
enum { GREET_MS = 5000, TURN_MS = 1000, LOOK_MS = 50, TURNS = 3, CALLS = 3 };

/* From the others to the first: HELLO, BEAT, BYE; from the first: WELCOME, BEAT, END, BYE. */
enum { HELLO = 1, WELCOME, BEAT, END, BYE };
enum { MAGIC = 0x77686173 };

typedef struct frame {
    uint32_t magic, kind;
    union {
        struct hello {
            unsigned char token[16];
            int32_t process;
            sheaf__self self;
        } hello;            /* and WELCOME */
        sheaf__report beat; /* what the rank of the sender does */
        sheaf__self victim; /* of END: is to be killed; pid 0: none */
    };
} frame;

/* A connection: of the first process one for each of the others, of another that to the first. */
typedef struct peer {
    int fd;       /* -1: none */
    int process;  /* -1: it has not said */
    double heard; /* when */
    double died;  /* when; 0: it lives */
    bool silent;  /* before that, for long: it was stopped, and another process killed it */
    bool bye;
    sheaf__self self;
    frame in;
    size_t used; /* bytes of it that came */
} peer;

struct sheaf__watch {
    sheaf__watch_options o;
    int listens, wake;
    pthread_t thread;
    sheaf__self self;
    sheaf__line_place place;
    peer *peer; /* [peers] */
    int peers;
    sheaf__ranks ranks;
    double looked, beaten; /* when */
    uint64_t progress;     /* of all ranks, when it last changed, and when that was */
    double progressed;
    atomic_bool closing;
};

static bool is_first(const sheaf__watch *w)
{
    return w->o.process == 0;
}

/* ---- what is known of ranks ---- */

/* The records of this process: of all ranks where it is alone, of its own where not. */
static const sheaf__report *look_at_own(sheaf__watch *w)
{
    const bool alone = w->o.processes == 1;
    uint64_t busy = 0;
    sheaf__report *own = &w->ranks.report[alone ? 0 : w->o.process];
    for (int i = 0; i < (alone ? w->o.ranks : 1); i++) {
        sheaf__activity_report(&own[i], &w->o.activity[i]);
        w->ranks.known[own + i - w->ranks.report] = true;
        if (own[i].call[0] == '\0' && own[i].op[0] == '\0')
            busy = sheaf__self_busy();
    }
    own->ticks += busy;
    return own;
}

static void take_report(sheaf__watch *w, int rank, const sheaf__report *from)
{
    sheaf__report *report = &w->ranks.report[rank];
    if (rank >= w->o.ranks)
        return;
    *report = *from;
    report->host[sizeof report->host - 1] = report->call[sizeof report->call - 1] = '\0';
    report->phase[sizeof report->phase - 1] = report->op[sizeof report->op - 1] = '\0';
    report->item[sizeof report->item - 1] = '\0';
    if (report->group < 0 || report->group >= SHEAF__GROUP_KINDS)
        report->group = SHEAF__ANY_RANKS;
    w->ranks.known[rank] = true;
}

static bool send_frame(const peer *p, const frame *f)
{
    return p->fd >= 0 && sheaf__line_send(p->fd, f, sizeof *f);
}

static frame own_beat(sheaf__watch *w)
{
    frame f = { .magic = MAGIC, .kind = BEAT };
    f.beat = *look_at_own(w);
    return f;
}

/* ---- the end ---- */

/* Kills a process that does not answer, if it is on this machine. */
static void kill_here(const sheaf__watch *w, const sheaf__self *victim)
{
    if (victim->machine == w->self.machine && victim->pid != w->self.pid)
        sheaf__self_kill(victim);
}

/* The first process ends the run in all. p: the one that is gone or silent; NULL: all hang. */
static void end_all(sheaf__watch *w, sheaf__verdict_kind kind, const peer *p, double now)
{
    sheaf_text text = { 0 };
    frame f = { .magic = MAGIC, .kind = END };
    f.victim = p == NULL ? (sheaf__self){ 0 } : p->self;
    sheaf__verdict_text(&text, kind, &w->ranks, p == NULL ? -1 : p->process,
                        now - (p == NULL ? w->progressed : p->heard), &f.victim, w->o.cure);
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].process > 0)
            send_frame(&w->peer[i], &f);
    kill_here(w, &f.victim);
    w->o.hooks->end(w->o.hooks->self, text.at == NULL ? "sheaf: the run cannot go on\n" : text.at);
    sheaf__text_release(&text);
}

static bool asked_to_stop(const sheaf__watch *w)
{
    return w->o.stop != NULL && atomic_load(w->o.stop) != 0;
}

/* Most launchers end the others when one ends, and Open MPI's asks them to stop before that: they
 * take turns, so that one of them says why. False: another has. */
static bool is_its_turn(const sheaf__watch *w)
{
    const int before = w->o.process - 1;
    const bool asked = asked_to_stop(w);
    for (int ms = TURN_MS * (before < TURNS ? before : TURNS); ms > 0; ms -= LOOK_MS) {
        poll(NULL, 0, LOOK_MS);
        if (!asked && asked_to_stop(w))
            return false;
    }
    return true;
}

/* `p` is gone or silent. Where it is the first, no other process can send the reason. */
static void lost(sheaf__watch *w, sheaf__verdict_kind kind, const peer *p, double now)
{
    sheaf_text text = { 0 };
    look_at_own(w);
    if (is_first(w)) {
        end_all(w, kind, p, now);
        return;
    }
    sheaf__verdict_text(&text, kind, &w->ranks, 0, now - p->heard, &p->self, w->o.cure);
    if (kind == SHEAF__STOPPED)
        kill_here(w, &p->self);
    w->o.hooks->end(w->o.hooks->self, is_its_turn(w) ? text.at : NULL);
    sheaf__text_release(&text);
}

/* ---- a hang ---- */

/* Is what is known of all ranks of the same moment? */
static bool all_heard(const sheaf__watch *w, double now)
{
    int heard = 0;
    for (int i = 0; i < w->peers; i++)
        heard += w->peer[i].process > 0 && w->peer[i].fd >= 0 && !w->peer[i].bye &&
                 now - w->peer[i].heard <= 2e-3 * BEAT_MS;
    return heard == w->o.processes - 1;
}

static void judge_hang(sheaf__watch *w, double now)
{
    uint64_t progress = 0;
    bool idle = false;
    int a, b;
    for (int i = 0; i < w->o.ranks; i++) {
        progress += w->ranks.report[i].ticks;
        idle |= w->ranks.report[i].idle != 0;
    }
    if (idle || progress != w->progress || w->progressed == 0) {
        w->progress = progress;
        w->progressed = now;
        return;
    }
    const double still = now - w->progressed;
    const bool all = all_heard(w, now);
    if (all && sheaf__deadlock(&w->ranks, APART_MS, &a, &b))
        end_all(w, SHEAF__DEADLOCK, NULL, now);
    /* a silent process is about to be reported as that, and killed */
    if (w->o.hang_after > 0 &&
        still >= sheaf__hang_limit(&w->ranks, w->o.hang_after) + (all ? 0 : SILENT_S))
        end_all(w, SHEAF__HANGS, NULL, now);
}

/* ---- connections ---- */

static frame greeting(const sheaf__watch *w, uint32_t kind)
{
    frame f = { .magic = MAGIC, .kind = kind };
    memcpy(f.hello.token, w->place.token, sizeof f.hello.token);
    f.hello.process = w->o.process;
    f.hello.self = w->self;
    return f;
}

/* Knows the other side the run's token? Then it is process `number`. */
static bool greeted(const sheaf__watch *w, peer *p, uint32_t kind)
{
    const struct hello *h = &p->in.hello;
    if (p->in.magic != MAGIC || p->in.kind != kind || h->process < 0 ||
        h->process >= w->o.processes || h->process == w->o.process ||
        memcmp(h->token, w->place.token, sizeof h->token) != 0)
        return false;
    p->process = h->process;
    p->self = h->self;
    p->self.host[sizeof p->self.host - 1] = '\0';
    return true;
}

static void take_frame(sheaf__watch *w, peer *p)
{
    if (p->process < 0) {
        if (greeted(w, p, HELLO)) {
            const frame f[2] = { greeting(w, WELCOME), own_beat(w) };
            send_frame(p, &f[0]);
            send_frame(p, &f[1]);
        }
    } else if (p->in.kind == BYE) {
        p->bye = true;
    } else if (p->in.kind == BEAT) {
        take_report(w, p->process, &p->in.beat);
    } else if (p->in.kind == END && !is_first(w)) {
        kill_here(w, &p->in.victim);
        /* a launcher that sees this process end may kill the first before it has said why */
        poll(NULL, 0, LAST_WORDS_MS);
        w->o.hooks->end(w->o.hooks->self, NULL);
    }
}

static void drop(peer *p)
{
    close(p->fd);
    p->fd = -1;
}

static void hear(sheaf__watch *w, peer *p, double now)
{
    int got;
    p->silent = now - p->heard > w->o.heartbeat / 2;
    p->heard = now;
    while ((got = sheaf__line_read(p->fd, &p->in, sizeof p->in, &p->used)) > 0 &&
           p->in.magic == MAGIC)
        take_frame(w, p);
    if (got == 0)
        return;
    drop(p);
    if (!p->bye && p->process >= 0) /* else the end of a run that is done, or a stranger */
        p->died = now;
}

/* A caller. Of those that have not said who they are the oldest makes place for the next. */
static void welcome(sheaf__watch *w, double now)
{
    const int fd = sheaf__line_accept(w->listens);
    peer *place = NULL;
    for (int i = 0; i < w->peers && fd >= 0; i++) {
        peer *p = &w->peer[i];
        if (p->process < 0 &&
            (place == NULL || (place->fd >= 0 && (p->fd < 0 || p->heard < place->heard))))
            place = p;
    }
    if (place != NULL) {
        if (place->fd >= 0)
            close(place->fd);
        *place = (peer){ .fd = fd, .process = -1, .heard = now };
    } else if (fd >= 0) {
        close(fd);
    }
}

/* Is it the first process that answers there? */
static bool is_welcome(sheaf__watch *w, peer *p)
{
    const frame f = greeting(w, HELLO);
    int got = 0;
    if (!send_frame(p, &f))
        return false;
    while (got == 0 && poll(&(struct pollfd){ .fd = p->fd, .events = POLLIN }, 1, GREET_MS) == 1)
        got = sheaf__line_read(p->fd, &p->in, sizeof p->in, &p->used);
    p->heard = sheaf__seconds();
    return got > 0 && greeted(w, p, WELCOME);
}

static sheaf_status *call_first(sheaf__watch *w)
{
    peer *p = &w->peer[0];
    const int places = w->place.count < SHEAF__LINE_PLACES ? w->place.count : SHEAF__LINE_PLACES;
    for (int i = 0; i < CALLS * places; i++) { /* again, where strangers were in the way */
        if (i >= places)
            poll(NULL, 0, LOOK_MS);
        p->fd = sheaf__line_connect(&w->place, i % places);
        if (p->fd >= 0 && is_welcome(w, p)) { /* what it does from the beginning, however short */
            const frame f = own_beat(w);
            send_frame(p, &f);
            return NULL;
        }
        if (p->fd >= 0)
            close(p->fd);
        *p = (peer){ .fd = -1, .process = -1 };
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "watching the processes");
    sheaf_expected(st, "a connection from %s to the first process", w->self.host);
    sheaf_found(st, "none at any of its %d addresses", (int)w->place.count);
    return sheaf_try_this(st, "let the hosts of the run connect to each other on any TCP port");
}

/* ---- the thread ---- */

static void beat(sheaf__watch *w, double now)
{
    const frame f = own_beat(w);
    w->beaten = now;
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0 && !w->peer[i].bye && w->peer[i].process >= 0)
            send_frame(&w->peer[i], &f);
}

/* What closed the connection? */
static sheaf__verdict_kind closed_by(const sheaf__watch *w, const peer *p)
{
    if (p->silent)
        return SHEAF__STOPPED;
    return p->self.machine == w->self.machine && !sheaf__self_lives(&p->self) ? SHEAF__DIED
                                                                              : SHEAF__LOST;
}

static void judge_peers(sheaf__watch *w, double now)
{
    /* A thread that did not run for long, as the whole process was stopped or the machine slept,
     * has no right to judge which was silent meanwhile. */
    const bool late = now - w->looked > 1 + w->o.heartbeat / 4;
    if (late)
        w->progressed = now;
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        /* the others say once more where they are, and that they wait; it comes to be dead */
        if (p->died > 0 && now - p->died >= 1e-3 * LAST_WORDS_MS) {
            p->died = 0;
            lost(w, closed_by(w, p), p, now);
        }
        if (p->fd < 0 || p->bye)
            continue;
        if (late)
            p->heard = now;
        if (p->process < 0 && now - p->heard > STRANGER_S)
            drop(p);
        if (p->process >= 0 && now - p->heard >= w->o.heartbeat)
            lost(w, SHEAF__STOPPED, p, now);
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
            welcome(w, now);
        if (now - w->beaten >= 1e-3 * BEAT_MS)
            beat(w, now);
        judge_peers(w, now);
        if (is_first(w))
            judge_hang(w, now);
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
        w->peer[i] = (peer){ .fd = -1, .process = -1, .heard = sheaf__seconds() };
    if (place != NULL)
        w->place = *place;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sheaf__self_look(&w->self);
    sheaf_status *st = is_first(w) ? NULL : call_first(w);
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
    const frame bye = { .magic = MAGIC, .kind = BYE };
    if (w == NULL)
        return;
    atomic_store(&w->closing, true);
    if (write(w->wake, &one, sizeof one) < 0) {
        /* it looks up by itself soon */
    }
    pthread_join(w->thread, NULL);
    for (int i = 0; i < w->peers; i++)
        send_frame(&w->peer[i], &bye);
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
    sheaf__process_record(o->all, out->activity);
    return NULL;
}

/* All learn where the first process listens. */
static sheaf_status *meet(int *listens, sheaf__line_place *place, const sheaf__watch_options *o)
{
    uint64_t machine[SHEAF_MAX_SLICES];
    sheaf__self self;
    bool here = true;
    *listens = -1;
    if (sheaf__all_count(o->all) == 1)
        return NULL;
    sheaf__self_look(&self);
    machine[sheaf__all_number(o->all)] = self.machine;
    sheaf_status *st = sheaf__all_gather(o->all, machine, sizeof *machine);
    for (int i = 0; i < sheaf__all_count(o->all) && st == NULL; i++)
        here = here && machine[i] == self.machine &&
               strcmp(sheaf__all_host(o->all, i), sheaf__all_host(o->all, 0)) == 0;
    if (st == NULL && sheaf__all_first(o->all))
        st = sheaf__line_listen(listens, place, here);
    st = sheaf__all_agree(o->all, st);
    return st == NULL ? sheaf__all_broadcast(o->all, place, sizeof *place) : st;
}

static sheaf_status *open_watch(sheaf__watched *out, const sheaf__watch_options *o)
{
    sheaf__watch_options how = *o;
    sheaf__line_place place = { 0 };
    int listens;
    *out = (sheaf__watched){ .all = o->all };
    sheaf_status *st = sheaf__all_agree(o->all, begin_records(out, o));
    if (st != NULL || o->hooks == NULL ||
        (o->hang_after == 0 && (sheaf__all_count(o->all) == 1 || o->heartbeat == 0)))
        return st;
    how.process = sheaf__all_number(o->all);
    how.processes = sheaf__all_count(o->all);
    how.activity = out->activity;
    st = meet(&listens, &place, o);
    TRY(st, sheaf__watch_open(&out->watch, listens, &place, &how));
    st = sheaf__all_agree(o->all, st);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_IO) {
        if (sheaf__all_first(o->all))
            sheaf_warn(o->events,
                       "%s: %s; a process that dies or stops is noticed by what started it alone: "
                       "%s",
                       sheaf_status_where(st), sheaf_status_found(st), sheaf_status_try(st));
        sheaf_status_free(st);
        sheaf__watch_close(out->watch); /* where only some are watched, all would seem to hang */
        out->watch = NULL;
        st = NULL;
    }
    return st;
}

sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf__watch_options *o)
{
    sheaf_status *st = open_watch(out, o);
    if (st == NULL && o->hooks != NULL && o->hooks->begun != NULL)
        o->hooks->begun();
    return st;
}

void sheaf__watched_close(sheaf__watched *watched)
{
    sheaf__watch_close(watched->watch);
    sheaf__process_record(watched->all, NULL);
    free(watched->activity);
    *watched = (sheaf__watched){ 0 };
}
