/* watch.c - see watch.h. All but opening and closing happens in the watching thread. */
#include "comm/watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/watch/self.h"
#include "comm/watch/verdict.h"

/* Frames. From the others to the first: HELLO, BEAT, STACK, BYE; from the first: WELCOME, ALIVE,
 * ASK (for STACK), END, BYE. */
enum { HELLO = 1, WELCOME, BEAT, ALIVE, ASK, STACK, END, BYE };

enum {
    TICK_MS = 100,
    BEAT_MS = 250,
    LAST_WORDS_MS = 300,
    ANSWER_MS = 3000,
    APART_MS = 2000,
    GREET_MS = 5000,
    STACK_BYTES = 6000,
    SLOW = 3, /* heartbeats that others wait for a rank that gets on, before it is told */
    NOTES_S = 60
};

typedef struct hello {
    unsigned char token[16];
    int32_t process;
    sheaf__self self;
} hello;

typedef struct ending {
    int32_t victims;
    sheaf__self victim[SHEAF_MAX_SLICES];
} ending;

/* A connection: of the first process one for each of the others, of another that to the first. */
typedef struct peer {
    int fd;       /* -1: none */
    int process;  /* -1: it has not said */
    double heard; /* when */
    double died;  /* when; 0: it lives */
    bool bye;
    sheaf__self self;
    sheaf__line_in in;
    char *stack; /* of its ranks; NULL: not told */
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
    uint64_t stopping_calls; /* since the stop was asked for: the calls of this rank then */
    double stopping;         /* when that was; 0: no stop, -1: told */
    double noted;            /* when a slow rank was told last; 0: never */
    atomic_bool closing;
};

/* ---- what happens ---- */

static bool is_first(const sheaf__watch *w)
{
    return w->o.process == 0;
}

static bool alone(const sheaf__watch *w)
{
    return w->o.processes == 1;
}

/* The records of this process: of all ranks where it is alone, of its own where not. */
static int first_rank(const sheaf__watch *w)
{
    return alone(w) ? 0 : w->o.process;
}

static int own_ranks(const sheaf__watch *w)
{
    return alone(w) ? w->o.ranks : 1;
}

static void tell_own(sheaf__watch *w)
{
    uint64_t busy = 0;
    for (int i = 0; i < own_ranks(w); i++) {
        sheaf__told *told = &w->ranks.told[first_rank(w) + i];
        sheaf__doing_tell(told, &w->o.doing[i]);
        w->ranks.known[first_rank(w) + i] = true;
        if (told->call[0] == '\0' && told->op[0] == '\0')
            busy = sheaf__self_busy();
    }
    w->ranks.told[first_rank(w)].ticks += busy;
}

/* Kills what is on this machine of those that do not answer. */
static void kill_here(const sheaf__watch *w, const ending *e)
{
    for (int i = 0; i < e->victims && i < SHEAF_MAX_SLICES; i++)
        if (e->victim[i].machine == w->self.machine && e->victim[i].pid != w->self.pid)
            sheaf__self_kill(&e->victim[i]);
}

/* The first process: nobody goes on. */
static void end_all(sheaf__watch *w, const sheaf_text *text, const ending *e, int gone)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].process > 0)
            sheaf__line_send(w->peer[i].fd, END, e, sizeof *e);
    kill_here(w, e);
    w->o.end(w->o.self, &(sheaf__watch_end){
                            .text = text->at == NULL ? "sheaf: the run cannot go on\n" : text->at,
                            .gone = gone });
}

/* How many processes of the machine of `p` there are, if all of them are silent; else 0. */
static int gone_with(const sheaf__watch *w, const peer *p, double now)
{
    int gone = 0;
    if (p->self.machine == w->self.machine)
        return 0;
    for (int i = 0; i < w->peers; i++) {
        const peer *other = &w->peer[i];
        if (other->process <= 0 || other->self.machine != p->self.machine)
            continue;
        if (now - other->heard < w->o.heartbeat / 2)
            return 0;
        gone++;
    }
    return gone;
}

static void lost(sheaf__watch *w, sheaf__verdict_kind kind, const peer *p, double now)
{
    sheaf_text text = { 0 };
    ending e = { .victims = 1, .victim = { p->self } };
    tell_own(w);
    sheaf__verdict_text(&text, kind, &w->ranks, p->process, now - p->heard, &p->self);
    end_all(w, &text, &e, kind == SHEAF__STOPPED ? gone_with(w, p, now) : 0);
    sheaf__text_release(&text);
}

/* What closed the connection? */
static sheaf__verdict_kind closed_by(const sheaf__watch *w, const peer *p)
{
    return p->self.machine == w->self.machine && !sheaf__self_lives(&p->self) ? SHEAF__DIED
                                                                              : SHEAF__LOST;
}

/* Another process: the first is gone, and nobody else can tell this one anything. */
static void lost_first(sheaf__watch *w, sheaf__verdict_kind kind)
{
    char line[512];
    sheaf_text text = { 0 };
    const ending e = { .victims = 1, .victim = { w->peer[0].self } };
    tell_own(w);
    sheaf__text_add(&text, "sheaf: the first process (rank 0, host %s, process %lld) %s\n  %s\n",
                    w->peer[0].self.host, (long long)w->peer[0].self.pid, sheaf__verdict_says(kind),
                    sheaf__told_show(line, sizeof line, &w->ranks.told[first_rank(w)]));
    if (kind == SHEAF__STOPPED)
        kill_here(w, &e);
    w->o.end(w->o.self, &(sheaf__watch_end){ .text = text.at });
    sheaf__text_release(&text);
}

/* ---- a hang ---- */

static void own_stacks(const sheaf__watch *w, sheaf_text *text)
{
    char *stack = w->o.stack == NULL ? NULL : calloc(1, STACK_BYTES + 1);
    for (int i = 0; i < own_ranks(w) && stack != NULL; i++) {
        const int thread = SHEAF__LOAD(w->o.doing[i].thread);
        if (thread == 0 || w->o.stack(w->o.self, thread, stack, STACK_BYTES) == 0)
            continue;
        sheaf__text_add(text, "  stack of rank %d:\n%s", first_rank(w) + i, stack);
    }
    free(stack);
}

static void hangs(sheaf__watch *w, sheaf__verdict_kind kind, double now)
{
    sheaf_text text = { 0 };
    const ending none = { 0 };
    sheaf__verdict_text(&text, kind, &w->ranks, -1, now - w->progressed, NULL);
    own_stacks(w, &text);
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].stack != NULL)
            sheaf__text_add(&text, "%s", w->peer[i].stack);
    end_all(w, &text, &none, 0);
    sheaf__text_release(&text);
}

/* Is what is known of all ranks of the same moment? */
static bool all_told(const sheaf__watch *w, double now)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd < 0 || w->peer[i].bye || now - w->peer[i].heard > 2e-3 * BEAT_MS)
            return false;
    return true;
}

static void judge_hang(sheaf__watch *w, double now)
{
    uint64_t progress = 0;
    int a, b;
    for (int i = 0; i < w->o.ranks; i++)
        progress += w->ranks.told[i].ticks;
    if (progress != w->progress || w->progressed == 0) {
        w->progress = progress;
        w->progressed = now;
        return;
    }
    const double still = now - w->progressed;
    if (all_told(w, now) && sheaf__apart(&w->ranks, APART_MS, &a, &b))
        hangs(w, SHEAF__APART, now);
    if (w->o.hang_after <= 0 || still < w->o.hang_after)
        return;
    int missing = 0;
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        if (p->process <= 0 || p->bye || p->fd < 0)
            continue;
        if (still < w->o.hang_after + 1e-3 * LAST_WORDS_MS)
            sheaf__line_send(p->fd, ASK, NULL, 0);
        missing += p->stack == NULL;
    }
    if (missing == 0 || still > w->o.hang_after + 1e-3 * ANSWER_MS)
        hangs(w, SHEAF__HANGS, now);
}

/* ---- frames ---- */

static void greet(sheaf__watch *w, peer *p, const void *bytes, size_t size)
{
    hello h;
    if (size != sizeof h)
        return;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.token, w->place.token, sizeof h.token) != 0 || h.process < 1 ||
        h.process >= w->o.processes)
        return;
    p->process = h.process;
    p->self = h.self;
    p->self.host[sizeof p->self.host - 1] = '\0';
    h.process = 0;
    h.self = w->self;
    sheaf__line_send(p->fd, WELCOME, &h, sizeof h);
}

static void take_told(sheaf__watch *w, const peer *p, const void *bytes, size_t size)
{
    sheaf__told *told = &w->ranks.told[p->process];
    if (size != sizeof *told || p->process >= w->o.ranks)
        return;
    memcpy(told, bytes, size);
    told->host[sizeof told->host - 1] = told->call[sizeof told->call - 1] = '\0';
    told->group[sizeof told->group - 1] = told->phase[sizeof told->phase - 1] = '\0';
    told->op[sizeof told->op - 1] = '\0';
    w->ranks.known[p->process] = true;
}

static void answer_stack(sheaf__watch *w, const peer *p)
{
    sheaf_text text = { 0 };
    own_stacks(w, &text);
    const size_t size = text.at == NULL ? 0 : strlen(text.at);
    sheaf__line_send(p->fd, STACK, text.at, size < STACK_BYTES ? size : STACK_BYTES);
    sheaf__text_release(&text);
}

static void take_frame(sheaf__watch *w, peer *p, int kind, const void *bytes, size_t size)
{
    ending e;
    if (kind == BYE) {
        p->bye = true;
    } else if (is_first(w) && p->process < 0) {
        if (kind == HELLO)
            greet(w, p, bytes, size);
    } else if (is_first(w) && kind == BEAT) {
        take_told(w, p, bytes, size);
    } else if (is_first(w) && kind == STACK && p->stack == NULL) {
        p->stack = calloc(1, size + 1);
        if (p->stack != NULL)
            memcpy(p->stack, bytes, size);
    } else if (!is_first(w) && kind == ASK) {
        answer_stack(w, p);
    } else if (!is_first(w) && kind == END && size == sizeof e) {
        memcpy(&e, bytes, size);
        kill_here(w, &e);
        /* a launcher that sees this process end may kill the first before it has told why */
        poll(NULL, 0, LAST_WORDS_MS);
        w->o.end(w->o.self, &(sheaf__watch_end){ 0 });
    }
}

static void drop(peer *p)
{
    close(p->fd);
    p->fd = -1;
}

static void hear(sheaf__watch *w, peer *p, double now)
{
    const void *bytes = NULL;
    size_t size = 0;
    int kind;
    const bool open = sheaf__line_read(p->fd, &p->in);
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

static void welcome_caller(sheaf__watch *w, double now)
{
    const int fd = sheaf__line_accept(w->listens);
    for (int i = 0; i < w->peers && fd >= 0; i++)
        if (w->peer[i].fd < 0 && w->peer[i].process < 0) {
            free(w->peer[i].stack);
            w->peer[i] = (peer){ .fd = fd, .process = -1, .heard = now };
            return;
        }
    if (fd >= 0)
        close(fd); /* more callers than processes */
}

/* ---- the thread ---- */

static void beat(sheaf__watch *w, double now)
{
    w->beaten = now;
    tell_own(w);
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        if (p->fd < 0 || p->bye || p->process < 0)
            continue;
        if (is_first(w))
            sheaf__line_send(p->fd, ALIVE, NULL, 0);
        else
            sheaf__line_send(p->fd, BEAT, &w->ranks.told[first_rank(w)], sizeof(sheaf__told));
    }
}

static void judge_peers(sheaf__watch *w, double now)
{
    /* A thread that did not run for long, as the whole process was stopped or the machine slept,
     * has no right to judge who was silent meanwhile. */
    const bool late = now - w->looked > 1 + w->o.heartbeat / 4;
    if (late)
        w->progressed = now;
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        /* the others say once more where they are, and that they wait */
        if (p->died > 0 && now - p->died >= 1e-3 * LAST_WORDS_MS) {
            p->died = 0;
            if (is_first(w))
                lost(w, closed_by(w, p), p, now);
            else
                lost_first(w, closed_by(w, p));
        }
        if (p->fd < 0 || p->bye)
            continue;
        if (late)
            p->heard = now;
        if (now - p->heard < w->o.heartbeat)
            continue;
        if (p->process < 0)
            drop(p); /* a stranger */
        else if (is_first(w))
            lost(w, SHEAF__STOPPED, p, now);
        else
            lost_first(w, SHEAF__STOPPED);
    }
}

/* A stop that a signal asked for comes at the end of a step. Where the launcher ends the processes
 * that are left of a run, no step ends any more: then this rank says where it is. */
static void judge_stop(sheaf__watch *w, double now)
{
    char line[512];
    const sheaf__told *own = &w->ranks.told[first_rank(w)];
    if (alone(w) || w->o.stop == NULL || atomic_load(w->o.stop) == 0 || w->stopping < 0)
        return;
    tell_own(w);
    if (w->stopping == 0 || w->stopping_calls != own->calls || own->call[0] == '\0') {
        w->stopping = now;
        w->stopping_calls = own->calls;
    } else if (now - w->stopping > 0.5) {
        sheaf_text text = { 0 };
        w->stopping = -1;
        sheaf__text_add(&text, "sheaf: asked to stop, and waits: %s\n",
                        sheaf__told_show(line, sizeof line, own));
        if (text.at != NULL && w->o.say != NULL)
            w->o.say(w->o.self, text.at);
        sheaf__text_release(&text);
    }
}

/* The first process: do others wait long for a rank that is there? It may read, write, or be slow.
 * The run goes on. */
static void judge_slow(sheaf__watch *w, double now)
{
    char line[512];
    if (w->o.heartbeat <= 0 || w->o.say == NULL || (w->noted > 0 && now - w->noted < NOTES_S))
        return;
    for (int r = 0; r < w->ranks.count; r++) {
        const double s = sheaf__longest_wait(&w->ranks, r);
        if (s < SLOW * w->o.heartbeat || !sheaf__blocking(&w->ranks, r))
            continue;
        sheaf_text text = { 0 };
        w->noted = now;
        sheaf__text_add(&text, "others have waited for %.0f s for %s\n", s,
                        w->ranks.known[r] ? sheaf__told_show(line, sizeof line, &w->ranks.told[r])
                                          : "a rank of which nothing is known");
        if (text.at != NULL)
            w->o.say(w->o.self, text.at);
        sheaf__text_release(&text);
        return;
    }
}

static void *watch_main(void *argument)
{
    sheaf__watch *w = argument;
    struct pollfd wait[SHEAF_MAX_SLICES + 2];
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
            welcome_caller(w, now);
        if (now - w->beaten >= 1e-3 * BEAT_MS)
            beat(w, now);
        judge_peers(w, now);
        if (is_first(w)) {
            judge_slow(w, now);
            judge_hang(w, now);
        }
        judge_stop(w, now);
        w->looked = now;
    }
    return NULL;
}

/* ---- life ---- */

static void release(sheaf__watch *w)
{
    for (int i = 0; i < w->peers; i++) {
        if (w->peer[i].fd >= 0)
            close(w->peer[i].fd);
        free(w->peer[i].stack);
    }
    if (w->wake >= 0)
        close(w->wake);
    if (w->listens >= 0)
        close(w->listens);
    free(w->peer);
    free(w);
}

/* Is it the first process that answers there? */
static bool is_welcome(const sheaf__watch *w, peer *p)
{
    hello h = { .process = w->o.process, .self = w->self };
    const void *bytes = NULL;
    size_t size = 0;
    int kind = 0;
    bool open = true;
    memcpy(h.token, w->place.token, sizeof h.token);
    if (!sheaf__line_send(p->fd, HELLO, &h, sizeof h))
        return false;
    while (kind == 0 && open && sheaf__line_wait(p->fd, GREET_MS)) {
        open = sheaf__line_read(p->fd, &p->in);
        kind = sheaf__line_next(&p->in, &bytes, &size);
    }
    if (kind != WELCOME || size != sizeof h)
        return false;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.token, w->place.token, sizeof h.token) != 0)
        return false;
    p->self = h.self;
    p->self.host[sizeof p->self.host - 1] = '\0';
    p->process = 0;
    p->heard = sheaf__seconds();
    return true;
}

static sheaf_status *call_first(sheaf__watch *w)
{
    peer *p = &w->peer[0];
    for (int i = 0; i < w->place.count && i < SHEAF__LINE_PLACES; i++) {
        p->fd = sheaf__line_connect(&w->place, i);
        if (p->fd >= 0 && is_welcome(w, p))
            return NULL;
        if (p->fd >= 0)
            close(p->fd);
        *p = (peer){ .fd = -1, .process = -1 };
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "watching the processes");
    sheaf_expected(st, "a connection from %s to the first process", w->self.host);
    sheaf_found(st, "none at any of its %d addresses", (int)w->place.count);
    return sheaf_try_this(st, "let the hosts of the run connect to each other on any TCP port");
}

static sheaf_status *start(sheaf__watch *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = sheaf__thread_start(&w->thread, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? NULL
                      : sheaf_found(sheaf_fail(SHEAF_E_MEMORY, "starting the watching thread"),
                                    "%s", strerror(error));
}

sheaf_status *sheaf__watch_open(sheaf__watch **out, int listens, const sheaf__line_place *place,
                                const sheaf__watch_options *options)
{
    sheaf__watch *w = calloc(1, sizeof *w);
    const int peers = options->process == 0 ? options->processes - 1 : 1;
    *out = NULL;
    if (w != NULL)
        w->peer = calloc((size_t)peers + 1, sizeof *w->peer);
    if (w == NULL || w->peer == NULL) {
        free(w);
        if (listens >= 0)
            close(listens);
        return sheaf_fail(SHEAF_E_MEMORY, "watching the processes");
    }
    w->o = *options;
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
    if (st == NULL)
        st = start(w);
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
            sheaf__line_send(w->peer[i].fd, BYE, NULL, 0);
    release(w);
}
