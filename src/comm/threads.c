/* threads.c - ranks as threads of one process.
 *
 * One word, the gate, is all that ranks wait on:
 *     generation << 16 | ranks that arrived << 8 | ranks that left for good
 * The rank that completes the count opens the gate by raising the generation. A rank
 * that leaves is counted in every later generation, so no rank waits for it.
 *
 * Headings alternate between two buffers. A rank that writes its heading of
 * meeting m + 2 has passed meeting m + 1, to which all others came, having read what
 * they wanted of meeting m: one wait per exchange is enough where no bytes move.
 * Bytes are copied by the receiver, between the wait in post and the one in collect. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "base/base.h"
#include "base/spin.h"
#include "base/thread.h"
#include "comm/transport.h"

typedef struct posting {
    sheaf__heading heading;
    const sheaf__move *send;
    int nsend;
    sheaf_status *copy; /* of the poster's status, so that it may free its own at once */
} posting;

typedef struct member {
    _Alignas(64) posting posting[2];
    uint64_t meetings; /* its own count; the same on all ranks that meet */
    sheaf__spin patience;
    _Atomic uint64_t left_from; /* first meeting it does not come to */
    sheaf__heading left;        /* heading that peers read from then on */
    struct sheaf__threads *group;
    sheaf_comm comm;
    sheaf_status *result;
    pthread_t thread;
} member;

typedef struct sheaf__threads {
    int ranks;
    bool cores; /* every rank can have one */
    sheaf_status *(*body)(void *context, sheaf_comm *comm);
    void *context;
    member *member;
    _Alignas(64) _Atomic uint32_t gate;
    _Alignas(64) _Atomic uint32_t sleepers;
} group;

#define ARRIVED 0x100u
#define GENERATION 0x10000u

/* With fewer cores than ranks a rank that looks only keeps away the one it waits for. Giving the
 * core away a few times before going to sleep halves the cost of a small sum at 8 ranks on 2 cores
 * (55 to 25 us), also on a loaded machine; more times gain nothing. */
#define YIELDS 3

/* ---- the gate ---- */

static bool complete(const group *g, uint32_t gate)
{
    return (int)(gate >> 8 & 0xff) + (int)(gate & 0xff) == g->ranks;
}

static uint32_t opened(uint32_t gate)
{
    return (gate & 0xffff0000u) + GENERATION + (gate & 0xff);
}

static void wake_all(group *g)
{
    if (atomic_load(&g->sleepers) != 0)
        sheaf__wake(&g->gate, INT_MAX);
}

typedef struct closed_gate {
    group *g;
    uint32_t generation;
} closed_gate;

static bool is_open(void *of)
{
    const closed_gate *closed = of;
    return atomic_load(&closed->g->gate) / GENERATION != closed->generation;
}

static void sleep_until_opened(group *g, uint32_t generation, sheaf__spin *patience)
{
    closed_gate gate = { g, generation };
    if (g->cores && sheaf__spin_wait(patience, is_open, &gate))
        return;
    for (int i = 0; i < YIELDS; i++) {
        if (is_open(&gate))
            return;
        sched_yield();
    }
    atomic_fetch_add(&g->sleepers, 1);
    for (;;) {
        const uint32_t now = atomic_load(&g->gate);
        if (now / GENERATION != generation)
            break;
        sheaf__sleep_while(&g->gate, now);
    }
    atomic_fetch_sub(&g->sleepers, 1);
}

static void arrive(member *self)
{
    group *g = self->group;
    uint32_t before = atomic_load(&g->gate), after;
    do {
        after = before + ARRIVED;
        if (complete(g, after))
            after = opened(after);
    } while (!atomic_compare_exchange_weak(&g->gate, &before, after));
    if (after / GENERATION != before / GENERATION)
        wake_all(g);
    else
        sleep_until_opened(g, before / GENERATION, &self->patience);
}

static void leave(group *g)
{
    uint32_t before = atomic_load(&g->gate), after;
    do {
        after = before + 1;
        if ((after >> 8 & 0xff) != 0 && complete(g, after))
            after = opened(after);
    } while (!atomic_compare_exchange_weak(&g->gate, &before, after));
    wake_all(g);
}

/* ---- the transport ---- */

static member *member_of(const sheaf_comm *comm, int rank)
{
    const member *self = comm->state;
    return &self->group->member[rank];
}

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    member *self = comm->state;
    self->meetings++;
    posting *p = &self->posting[self->meetings & 1];
    sheaf_status_free(p->copy);
    p->copy = sheaf_status_copy(mine->status);
    p->heading = *mine;
    p->heading.status = p->copy;
    p->send = send;
    p->nsend = count;
    arrive(self);
    return NULL;
}

static const posting *posting_of(const sheaf_comm *comm, int rank)
{
    const member *self = comm->state;
    return &member_of(comm, rank)->posting[self->meetings & 1];
}

static const sheaf__heading *heading(const sheaf_comm *comm, int rank)
{
    const member *self = comm->state, *peer = member_of(comm, rank);
    if (atomic_load(&peer->left_from) <= self->meetings)
        return &peer->left;
    return &posting_of(comm, rank)->heading;
}

static const sheaf__move *posted(const sheaf_comm *comm, int rank)
{
    return posting_of(comm, rank)->send;
}

/* Index of the next move for `rank` in what `peer` posted. */
static int next_for(const posting *peer, int from, int rank)
{
    while (from < peer->nsend && peer->send[from].peer != rank &&
           peer->send[from].peer != SHEAF__ALL)
        from++;
    return from;
}

static sheaf_status *copy_of(const sheaf_comm *comm, void *to, const void *from, size_t bytes)
{
    if (bytes != 0 && comm->mover != NULL)
        return comm->mover->copy(comm->moved, to, from, bytes);
    if (bytes != 0)
        memcpy(to, from, bytes);
    return NULL;
}

static sheaf_status *copy_in(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    int next[SHEAF_MAX_SLICES] = { 0 };
    for (int i = 0; i < count; i++) {
        const int from = receive[i].peer;
        const posting *peer = posting_of(comm, from);
        const int at = next_for(peer, next[from], comm->rank);
        if (at == peer->nsend || peer->send[at].size != receive[i].size) {
            sheaf_status *st =
                sheaf_fail(SHEAF_E_PEER, "rank %d: piece %d for rank %d", from, i, comm->rank);
            sheaf_expected(st, "%zu bytes", receive[i].size);
            return at == peer->nsend ? sheaf_found(st, "none")
                                     : sheaf_found(st, "%zu bytes", peer->send[at].size);
        }
        sheaf_status *st = copy_of(comm, receive[i].bytes, peer->send[at].bytes, receive[i].size);
        if (st != NULL)
            return st;
        next[from] = at + 1;
    }
    return NULL;
}

/* Arrives whatever happened: the others must not wait for ever. */
static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    member *self = comm->state;
    sheaf_status *st = copy_in(comm, receive, count);
    if (comm->mover != NULL && count > 0)
        st = sheaf__first_of(st, comm->mover->wait(comm->moved));
    arrive(self);
    return st;
}

static const sheaf__transport threads_transport = { "threads", post, heading, posted, collect };
static const sheaf__transport messages_transport = { "threads", post, heading, NULL, collect };

/* ---- life of a group ---- */

/* For a rank that did not come to its end (pthread_exit in its body) `result` is already
 * set; see rank_main. */
static void member_leave(void *argument)
{
    member *self = argument;
    self->left = (sheaf__heading){ .op = SHEAF__OP_LEFT, .status = self->result };
    atomic_store(&self->left_from, self->meetings + 1);
    leave(self->group);
}

static void *rank_main(void *argument)
{
    member *self = argument;
    self->result =
        sheaf_fail(SHEAF_E_PEER, "rank %d: its thread ended before its work", self->comm.rank);
    pthread_cleanup_push(member_leave, self);
    sheaf_status *result = self->group->body(self->group->context, &self->comm);
    sheaf_status_free(self->result);
    self->result = result;
    pthread_cleanup_pop(1);
    return NULL;
}

static group *group_new(int ranks, bool messages)
{
    group *g = aligned_alloc(_Alignof(group), sizeof *g);
    member *members = aligned_alloc(_Alignof(member), (size_t)ranks * sizeof *members);
    if (g == NULL || members == NULL) {
        free(g);
        free(members);
        return NULL;
    }
    memset(g, 0, sizeof *g);
    memset(members, 0, (size_t)ranks * sizeof *members);
    g->ranks = ranks;
    g->cores = ranks <= sheaf__cores(0);
    g->member = members;
    for (int r = 0; r < ranks; r++) {
        member *m = &members[r];
        atomic_store(&m->left_from, UINT64_MAX);
        m->group = g;
        m->comm = (sheaf_comm){ .transport = messages ? &messages_transport : &threads_transport,
                                .counters.purpose = SHEAF__TRAFFIC_OTHER,
                                .state = m,
                                .rank = r,
                                .ranks = ranks };
    }
    return g;
}

static void group_free(group *g)
{
    for (int r = 0; r < g->ranks; r++) {
        sheaf__comm_release(&g->member[r].comm);
        sheaf_status_free(g->member[r].posting[0].copy);
        sheaf_status_free(g->member[r].posting[1].copy);
        sheaf_status_free(g->member[r].result);
    }
    free(g->member);
    free(g);
}

/* Signals reach the calling thread only, where the program expects them. Returns how many
 * ranks have a thread or are the caller; the others have failed and left. */
static int start(group *g)
{
    sigset_t all, before;
    int started = 1, error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; started < g->ranks; started++) {
        error = sheaf__thread_start(&g->member[started].thread, rank_main, &g->member[started]);
        if (error != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int r = started; r < g->ranks; r++) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_MEMORY, "starting a thread for rank %d of %d", r, g->ranks);
        sheaf__found_errno(st, error);
        g->member[r].result =
            sheaf_try_this(st, "a higher limit on processes (ulimit -u) or memory, or fewer ranks");
        member_leave(&g->member[r]);
    }
    return started;
}

/* The first by number that is not a mere echo of another's. */
static sheaf_status *take_result(group *g)
{
    member *first = NULL;
    for (int r = 0; r < g->ranks; r++) {
        member *m = &g->member[r];
        if (m->result == NULL)
            continue;
        if (first == NULL || (sheaf_status_code(first->result) == SHEAF_E_PEER &&
                              sheaf_status_code(m->result) != SHEAF_E_PEER))
            first = m;
    }
    if (first == NULL)
        return NULL;
    sheaf_status *st = first->result;
    first->result = NULL;
    return st;
}

static sheaf_status *run_alone(sheaf_status *(*body)(void *context, sheaf_comm *comm),
                               void *context)
{
    sheaf__heading heading = { 0 };
    sheaf_comm comm = { .transport = &sheaf__self_transport,
                        .counters.purpose = SHEAF__TRAFFIC_OTHER,
                        .state = &heading,
                        .rank = 0,
                        .ranks = 1 };
    sheaf_status *st = body(context, &comm);
    sheaf__comm_release(&comm);
    return st;
}

sheaf_status *sheaf__run_threads(int ranks, bool messages,
                                 sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                 void *context)
{
    if (ranks < 1 || ranks > SHEAF_MAX_SLICES) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "ranks");
        sheaf_expected(st, "1 to %d", SHEAF_MAX_SLICES);
        return sheaf_found(st, "%d", ranks);
    }
    if (ranks == 1)
        return run_alone(body, context);
    group *g = group_new(ranks, messages);
    if (g == NULL)
        return sheaf__no_memory("out of memory");
    g->body = body;
    g->context = context;
    const int started = start(g);
    rank_main(&g->member[0]);
    for (int r = 1; r < started; r++)
        pthread_join(g->member[r].thread, NULL);
    sheaf_status *st = take_result(g);
    group_free(g);
    return st;
}

sheaf_status *sheaf_comm_run_threads(int ranks,
                                     sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                     void *context)
{
    return sheaf__run_threads(ranks, false, body, context);
}

/* ---- a group of threads that were started otherwise ---- */

sheaf__threads *sheaf__threads_new(int ranks, bool messages, int all)
{
    group *g = group_new(ranks, messages);
    if (g != NULL && all > sheaf__cores(0))
        g->cores = false;
    return g;
}

void sheaf__threads_free(sheaf__threads *g)
{
    if (g != NULL)
        group_free(g);
}

sheaf_comm *sheaf__threads_comm(sheaf__threads *g, int rank)
{
    return &g->member[rank].comm;
}

void sheaf__threads_leave(sheaf__threads *g, int rank, sheaf_status *why)
{
    g->member[rank].result = why;
    member_leave(&g->member[rank]);
}
