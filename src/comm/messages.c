/* messages.c - see transport.h.
 *
 * A message begins with a `wire`; then the failure's four lines, each ended by NUL; then the bytes
 * of all moves for its receiver, in order, where they are few. All processes run on processors of
 * one kind: numbers travel as they lie. */
#include "comm/transport.h"

#include <sched.h>
#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"

enum {
    MESSAGE = 16 << 10, /* bytes at most */
    LINE = 1000,        /* of a line of a failure; what is longer is cut */
};

typedef struct wire {
    uint64_t call, size, digest;
    uint64_t total; /* bytes of all moves for the receiver */
    int32_t op, flag;
    int32_t code;      /* of the failure; 0: none */
    int32_t words;     /* bytes of its lines */
    int32_t with_them; /* are the moves in this message? */
    int32_t error;     /* errno of the failure */
} wire;

/* A part of a move that is a message of its own. */
typedef struct piece {
    sheaf__mpi_request request;
    char *bytes;
    size_t size;
    int rank;
    bool sends;
    bool fills;    /* its block; else an earlier one has filled it with the same bytes */
    int64_t block; /* of the ring, counted on; -1: it needs none */
} piece;

typedef struct peer {
    bool left;
    sheaf__heading heading; /* the newest; its status is owned */
    uint64_t total;
    const char *bytes; /* of the moves, in `in`; NULL: they follow */
    char *in, *out;    /* [MESSAGE] */
    sheaf__mpi_request receiving, sending;
    bool receives, sends;
    bool sends_more, receives_more; /* than what came with the message */
    size_t got;
} peer;

typedef struct mesh {
    sheaf_comm comm; /* first */
    int process[SHEAF_MAX_SLICES];
    const char *host[SHEAF_MAX_SLICES];
    const sheaf__mpi *mpi;
    int tag;
    size_t most;  /* bytes of a piece */
    piece *piece; /* of the exchange at hand, received ones first; kept between calls */
    int64_t pieces, capacity;
    bool oversubscribed, left;
    sheaf_status *broken; /* a connection is lost: nothing is sent any more */
    const sheaf__move *send;
    int nsend;
    peer peer[];
} mesh;

/* ---- waiting ---- */

#define SPIN 30e-6 /* seconds, where every process has a core */
enum { YIELDS = 3 };

typedef struct patience {
    double since; /* 0: nothing was waited for yet */
    int yields;
    double most; /* seconds of a sleep */
} patience;

/* Sleeps an eighth of the time that was waited so far: little is lost, and nothing is burnt. */
static void rest(patience *p, bool oversubscribed)
{
    const double now = sheaf__seconds();
    if (p->since == 0)
        p->since = now;
    const double waited = now - p->since;
    if (!oversubscribed && waited < SPIN) {
        sheaf__pause();
        return;
    }
    if (p->yields++ < YIELDS) {
        sched_yield();
        return;
    }
    double nap = waited / 8;
    nap = nap < 20e-6 ? 20e-6 : nap > p->most ? p->most : nap;
    nanosleep(&(struct timespec){ .tv_nsec = (long)(nap * 1e9) }, NULL);
}

static void refresh(patience *p)
{
    p->since = 0;
    p->yields = 0;
}

/* ---- failures of the MPI itself ---- */

/* From now on nothing is sent any more; what is under way may still be read and written. */
static sheaf_status *broken(mesh *m, sheaf_status *st)
{
    if (m->broken == NULL)
        m->broken = sheaf_status_copy(st);
    if (m->comm.mover != NULL)
        m->comm.mover->abandon(m->comm.moved);
    return st;
}

static sheaf_status *lose(mesh *m, int rank, int error, const char *doing)
{
    char text[SHEAF__MPI_TEXT] = "";
    m->mpi->explain(text, error);
    sheaf_status *st =
        sheaf_fail(SHEAF_E_PEER, "%s: %s",
                   sheaf__comm_name((char[SHEAF__RANK_NAME]){ 0 }, &m->comm, rank), doing);
    sheaf_expected(st, "a message");
    sheaf_found(st, "%s", text);
    if (m->comm.mover != NULL && m->comm.reads_gpus)
        sheaf_try_this(st, "SHEAF_PEERS=off: messages go through the host's memory");
    return broken(m, st);
}

static sheaf_status *wrong_size(mesh *m, int rank, uint64_t expected, uint64_t found)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_PEER, "%s: its message to rank %d",
                   sheaf__comm_name((char[SHEAF__RANK_NAME]){ 0 }, &m->comm, rank), m->comm.rank);
    sheaf_expected(st, "%llu bytes", (unsigned long long)expected);
    return broken(m, sheaf_found(st, "%llu bytes", (unsigned long long)found));
}

/* ---- a message ---- */

static bool is_for(const sheaf__move *move, int rank)
{
    return move->peer == rank || move->peer == SHEAF__ALL;
}

static uint64_t total_of(const sheaf__move *move, int count, int rank)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += is_for(&move[i], rank) ? move[i].size : 0;
    return sum;
}

static size_t put_words(char *to, const sheaf_status *st)
{
    const char *const line[] = { sheaf_status_where(st), sheaf_status_expected(st),
                                 sheaf_status_found(st), sheaf_status_try(st) };
    size_t n = 0;
    for (int i = 0; i < 4; i++) {
        const size_t size = strnlen(line[i], LINE);
        memcpy(to + n, line[i], size);
        to[n + size] = '\0';
        n += size + 1;
    }
    return n;
}

static sheaf_status *take_words(int code, int error, const char *at, size_t size)
{
    const char *line[4] = { "", "", "", "" };
    for (int i = 0; i < 4; i++) {
        const char *end = memchr(at, '\0', size);
        if (end == NULL)
            break;
        line[i] = at;
        size -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    sheaf_status *st = sheaf_fail((sheaf_code)code, "%s", line[0]);
    sheaf_expected(st, "%s", line[1]);
    if (error != 0)
        sheaf__found_errno(st, error);
    sheaf_found(st, "%s", line[2]);
    return sheaf_try_this(st, "%s", line[3]);
}

/* Is it memory of the processor? */
static bool is_near(const mesh *m, const void *at)
{
    return m->comm.mover == NULL ||
           (uintptr_t)at - (uintptr_t)m->comm.pinned < m->comm.pinned_bytes;
}

/* Between it and what a move names; done after finish_copies(). */
static sheaf_status *copy_out(const mesh *m, void *to, const void *from, size_t bytes)
{
    if (!is_near(m, from))
        return m->comm.mover->fetch(m->comm.moved, to, from, bytes);
    memcpy(to, from, bytes);
    return NULL;
}

static sheaf_status *copy_in(const mesh *m, void *to, const void *from, size_t bytes)
{
    if (!is_near(m, to))
        return m->comm.mover->place(m->comm.moved, to, from, bytes);
    memcpy(to, from, bytes);
    return NULL;
}

static sheaf_status *finish_copies(const mesh *m)
{
    return m->comm.mover == NULL ? NULL : m->comm.mover->wait(m->comm.moved);
}

static sheaf_status *pack(int *size, const mesh *m, const sheaf__heading *mine, peer *to, int rank)
{
    sheaf_status *st = NULL;
    wire w = { .call = mine->call,
               .size = mine->size,
               .digest = mine->digest,
               .total = total_of(m->send, m->nsend, rank),
               .op = mine->op,
               .flag = mine->flag };
    char *at = to->out + sizeof w;
    if (mine->status != NULL) {
        w.code = sheaf_status_code(mine->status);
        w.error = sheaf_status_errno(mine->status);
        w.words = (int32_t)put_words(at, mine->status);
        at += w.words;
    }
    w.with_them = w.total <= (uint64_t)(to->out + MESSAGE - at);
    for (int i = 0; w.with_them && i < m->nsend && st == NULL; i++)
        if (is_for(&m->send[i], rank) && m->send[i].size > 0) {
            st = copy_out(m, at, m->send[i].bytes, m->send[i].size);
            at += m->send[i].size;
        }
    if (w.with_them && w.total > 0)
        st = sheaf__first_of(st, finish_copies(m));
    to->sends_more = !w.with_them && w.total > 0;
    memcpy(to->out, &w, sizeof w);
    *size = (int)(at - to->out);
    return st;
}

static sheaf_status *unpack(mesh *m, peer *from, int rank)
{
    wire w;
    if (from->got < sizeof w)
        return wrong_size(m, rank, sizeof w, from->got);
    memcpy(&w, from->in, sizeof w);
    const uint64_t rest_of = from->got - sizeof w;
    if (w.words < 0 || (uint64_t)w.words + (w.with_them ? w.total : 0) != rest_of)
        return wrong_size(m, rank, (uint64_t)w.words + w.total, rest_of);
    sheaf_status_free((sheaf_status *)from->heading.status);
    from->heading = (sheaf__heading){ .call = w.call,
                                      .op = (sheaf__comm_op)w.op,
                                      .flag = w.flag,
                                      .size = w.size,
                                      .digest = w.digest };
    if (w.code != 0)
        from->heading.status = take_words(w.code, w.error, from->in + sizeof w, (size_t)w.words);
    from->total = w.total;
    from->bytes = w.with_them ? from->in + sizeof w + w.words : NULL;
    from->receives_more = !w.with_them && w.total > 0;
    from->left = w.op == SHEAF__OP_LEFT;
    return NULL;
}

static sheaf_status *begin_receive(mesh *m, int rank)
{
    peer *l = &m->peer[rank];
    const int error = m->mpi->receive(&l->receiving, l->in, MESSAGE, m->process[rank], m->tag);
    l->receives = error == 0;
    return error == 0 ? NULL : lose(m, rank, error, "waiting for a message");
}

static sheaf_status *begin_send(mesh *m, const sheaf__heading *mine, int rank)
{
    peer *l = &m->peer[rank];
    int size;
    sheaf_status *st = pack(&size, m, mine, l, rank);
    if (st != NULL)
        return broken(m, st);
    const int error = m->mpi->send(&l->sending, l->out, size, m->process[rank], m->tag);
    l->sends = error == 0;
    return error == 0 ? NULL : lose(m, rank, error, "sending it a message");
}

/* Looks once after what is under way with `rank`; *moved: something came to its end. */
static sheaf_status *look(mesh *m, int rank, bool *moved)
{
    peer *l = &m->peer[rank];
    bool done = false;
    int size = 0;
    if (l->sends) {
        const int error = m->mpi->test(&done, &size, &l->sending);
        if (error != 0)
            return lose(m, rank, error, "sending it a message");
        l->sends = !done;
        *moved |= done;
    }
    if (l->receives) {
        const int error = m->mpi->test(&done, &size, &l->receiving);
        if (error != 0)
            return lose(m, rank, error, "waiting for a message");
        l->receives = !done;
        *moved |= done;
        if (done) {
            l->got = (size_t)size;
            return unpack(m, l, rank);
        }
    }
    return NULL;
}

/* Until nothing is under way any more. */
static sheaf_status *wait_for_messages(mesh *m)
{
    patience p = { .most = 1e-3 };
    for (;;) {
        bool waits = false, moved = false;
        for (int r = 0; r < m->comm.ranks; r++) {
            sheaf_status *st = look(m, r, &moved);
            if (st != NULL)
                return st;
            waits |= m->peer[r].sends || m->peer[r].receives;
        }
        if (!waits)
            return NULL;
        if (moved)
            refresh(&p);
        else
            rest(&p, m->oversubscribed);
    }
}

/* ---- the transport ---- */

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    mesh *m = comm->state;
    sheaf_status *st = NULL;
    if (m->broken != NULL)
        return sheaf_status_copy(m->broken);
    peer *self = &m->peer[comm->rank];
    sheaf_status *copy = sheaf_status_copy(mine->status);
    sheaf_status_free((sheaf_status *)self->heading.status);
    self->heading = *mine;
    self->heading.status = copy;
    m->send = send;
    m->nsend = count;
    for (int i = 1; i < comm->ranks && st == NULL; i++) {
        const int r = (comm->rank + i) % comm->ranks;
        if (m->peer[r].left)
            continue;
        st = begin_receive(m, r);
        TRY(st, begin_send(m, &self->heading, r));
    }
    return st == NULL ? wait_for_messages(m) : st;
}

static const sheaf__heading *heading(const sheaf_comm *comm, int rank)
{
    const mesh *m = comm->state;
    return &m->peer[rank].heading;
}

/* Small contents came with the message. */
static sheaf_status *take(mesh *m, const sheaf__move *receive, int count, int rank)
{
    const peer *l = &m->peer[rank];
    const uint64_t expected = rank == m->comm.rank ? 0 : total_of(receive, count, rank);
    const char *at = l->bytes;
    if (rank == m->comm.rank)
        return NULL;
    if (expected != l->total)
        return wrong_size(m, rank, expected, l->total);
    sheaf_status *st = NULL;
    for (int i = 0; at != NULL && i < count && st == NULL; i++)
        if (receive[i].peer == rank && receive[i].size > 0) {
            st = copy_in(m, receive[i].bytes, at, receive[i].size);
            at += receive[i].size;
        }
    return st == NULL ? NULL : broken(m, st); /* the others wait for pieces of this rank */
}

/* ---- pieces ---- */

/* A place in the moves to a rank, or from it. */
typedef struct cursor {
    int move;
    size_t at;
} cursor;

static bool next_piece(piece *p, cursor *c, const mesh *m, const sheaf__move *move, int count)
{
    while (c->move < count && (!is_for(&move[c->move], p->rank) || c->at == move[c->move].size))
        *c = (cursor){ c->move + 1, 0 };
    if (c->move == count)
        return false;
    const size_t left = move[c->move].size - c->at;
    p->bytes = (char *)move[c->move].bytes + c->at;
    p->size = left < m->most ? left : m->most;
    c->at += p->size;
    return true;
}

/* Appends all pieces of a direction: the first of each rank, then the second, and so on, where the
 * i-th rank behind this one receives and the i-th before it sends. The lists of all ranks are
 * in one order so, and the first piece that is not through is at the head of both its lists: no
 * ring is too small. Bytes that go to several ranks follow each other, and share a block. */
static sheaf_status *list_pieces(mesh *m, const sheaf__move *move, int count, bool sends)
{
    const int ranks = m->comm.ranks;
    const bool ring = m->comm.mover != NULL && !m->comm.reads_gpus;
    cursor at[SHEAF_MAX_SLICES] = { 0 };
    piece last = { 0 };
    int64_t blocks = 0;
    for (bool any = true; any;) {
        any = false;
        for (int i = 1; i < ranks; i++) {
            const int r = (m->comm.rank + (sends ? i : ranks - i)) % ranks;
            const peer *l = &m->peer[r];
            piece p = { .rank = r, .sends = sends, .block = -1 };
            if (!(sends ? l->sends_more : l->receives_more) ||
                !next_piece(&p, &at[r], m, move, count))
                continue;
            if (ring && !is_near(m, p.bytes)) {
                p.fills = !sends || p.bytes != last.bytes || p.size != last.size;
                p.block = p.fills ? blocks++ : blocks - 1;
            }
            last = p;
            if (!SHEAF_GROW(&m->piece, &m->capacity, m->pieces + 1))
                return broken(m, sheaf__no_memory("messages of a group"));
            m->piece[m->pieces++] = p;
            any = true;
        }
    }
    return NULL;
}

/* Pieces of a direction: those from `done` to `begun` are under way. */
typedef struct flight {
    int64_t done, begun, end;
} flight;

static char *block_of(const mesh *m, const piece *p)
{
    const int64_t of = p->block % SHEAF__RING_BLOCKS + (p->sends ? SHEAF__RING_BLOCKS : 0);
    return (char *)m->comm.pinned + of * SHEAF__PIECE;
}

/* Is there a block for the next one, and not too much under way for an MPI? */
static bool has_room(const mesh *m, const flight *f)
{
    enum { UNDER_WAY = 128 };
    if (f->begun - f->done == UNDER_WAY)
        return false;
    const int64_t wants = m->piece[f->begun].block;
    for (int64_t i = f->done; i < f->begun && wants >= 0; i++)
        if (m->piece[i].block >= 0)
            return wants - m->piece[i].block < SHEAF__RING_BLOCKS;
    return true;
}

static sheaf_status *begin_piece(mesh *m, int64_t index)
{
    piece *p = &m->piece[index];
    char *bytes = p->block < 0 ? p->bytes : block_of(m, p);
    sheaf_status *st = NULL;
    if (p->sends && p->fills)
        st = copy_out(m, bytes, p->bytes, p->size);
    if (p->sends ? p->fills : p->block >= SHEAF__RING_BLOCKS) /* what came there has left it */
        TRY(st, finish_copies(m));
    if (st != NULL)
        return broken(m, st);
    const int error =
        p->sends
            ? m->mpi->send(&p->request, bytes, (int)p->size, m->process[p->rank], m->tag + 1)
            : m->mpi->receive(&p->request, bytes, (int)p->size, m->process[p->rank], m->tag + 1);
    return error == 0 ? NULL
                      : lose(m, p->rank, error, p->sends ? "sending to it" : "receiving from it");
}

/* Begins what can begin, and looks once after the oldest: those of one pair come in their order. */
static sheaf_status *advance(mesh *m, flight *f, bool *moved)
{
    sheaf_status *st = NULL;
    while (f->begun < f->end && has_room(m, f) && st == NULL)
        st = begin_piece(m, f->begun++);
    if (st != NULL || f->done == f->begun)
        return st;
    piece *p = &m->piece[f->done];
    bool done = false;
    int got = 0;
    const int error = m->mpi->test(&done, &got, &p->request);
    if (error != 0)
        return lose(m, p->rank, error, p->sends ? "sending to it" : "receiving from it");
    if (!done)
        return NULL;
    if (!p->sends && (size_t)got != p->size)
        return wrong_size(m, p->rank, p->size, (uint64_t)got);
    f->done++;
    *moved = true;
    if (!p->sends && p->block >= 0)
        st = copy_in(m, p->bytes, block_of(m, p), p->size);
    return st == NULL ? NULL : broken(m, st);
}

static sheaf_status *move_pieces(mesh *m, int64_t received)
{
    patience patience = { .most = 200e-6 };
    flight in = { 0, 0, received }, out = { received, received, m->pieces };
    sheaf_status *st = NULL;
    while (st == NULL && (in.done < in.end || out.done < out.end)) {
        bool moved = false;
        st = advance(m, &in, &moved); /* these first, so that they have a place */
        TRY(st, advance(m, &out, &moved));
        if (moved)
            refresh(&patience);
        else if (st == NULL)
            rest(&patience, m->oversubscribed);
    }
    return st;
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    mesh *m = comm->state;
    sheaf_status *st = m->broken == NULL ? NULL : sheaf_status_copy(m->broken);
    for (int r = 0; r < comm->ranks && st == NULL; r++)
        st = take(m, receive, count, r);
    m->pieces = 0;
    TRY(st, list_pieces(m, receive, count, false));
    const int64_t received = m->pieces;
    TRY(st, list_pieces(m, m->send, m->nsend, true));
    TRY(st, move_pieces(m, received));
    return st != NULL ? st : finish_copies(m);
}

static const sheaf__transport messages_transport = { "mpi", post, heading, NULL, collect };

/* ---- life of a group ---- */

static void mesh_free(mesh *m)
{
    for (int r = 0; r < m->comm.ranks; r++) {
        sheaf_status_free((sheaf_status *)m->peer[r].heading.status);
        free(m->peer[r].in);
        free(m->peer[r].out);
    }
    free(m->piece);
    sheaf_status_free(m->broken);
    sheaf__comm_release(&m->comm);
    free(m);
}

sheaf_status *sheaf__messages_open(sheaf_comm **out, const sheaf__messages_options *o)
{
    mesh *m = calloc(1, sizeof *m + (size_t)o->ranks * sizeof *m->peer);
    if (m == NULL)
        return sheaf__no_memory("messages of a group");
    m->comm = (sheaf_comm){ .transport = &messages_transport,
                            .counters.purpose = SHEAF__TRAFFIC_OTHER,
                            .state = m,
                            .rank = o->rank,
                            .ranks = o->ranks };
    m->mpi = o->mpi;
    m->tag = o->tag;
    m->most = o->piece > 0 && o->piece < SHEAF__PIECE ? o->piece : SHEAF__PIECE;
    m->oversubscribed = o->oversubscribed;
    m->comm.reads_gpus = m->mpi->reads_gpus() && !sheaf__peers_are_off();
    m->comm.world = m->process;
    m->comm.host = o->host == NULL ? NULL : m->host;
    bool failed = false;
    for (int r = 0; r < o->ranks; r++) {
        peer *l = &m->peer[r];
        m->process[r] = o->process[r];
        m->host[r] = o->host == NULL ? NULL : o->host[r];
        l->in = calloc(1, MESSAGE);
        l->out = calloc(1, MESSAGE);
        failed |= l->in == NULL || l->out == NULL;
    }
    if (failed) {
        mesh_free(m);
        return sheaf__no_memory("messages of a group");
    }
    *out = &m->comm;
    return NULL;
}

void sheaf__messages_leave(sheaf_comm *comm, const sheaf_status *result)
{
    mesh *m = comm->state;
    const sheaf__heading heading = { .op = SHEAF__OP_LEFT, .status = result };
    m->left = true;
    m->send = NULL;
    m->nsend = 0;
    for (int r = 0; r < comm->ranks && m->broken == NULL; r++)
        if (r != comm->rank) /* ranks that have left wait for it, too, in close */
            sheaf_status_free(begin_send(m, &heading, r));
}

/* Takes what the others of the group still send until each has left, without waiting. */
static sheaf_status *see_off(mesh *m, bool *waits, bool *moved)
{
    sheaf_status *st = m->broken == NULL ? NULL : sheaf_status_copy(m->broken);
    for (int r = 0; r < m->comm.ranks && st == NULL; r++) {
        peer *l = &m->peer[r];
        if (r == m->comm.rank)
            continue;
        if (!l->left && !l->receives)
            st = begin_receive(m, r);
        if (st == NULL) /* also what is still on its way from here */
            st = look(m, r, moved);
        *waits |= !l->left || l->sends;
    }
    return st;
}

sheaf_status *sheaf__messages_close(sheaf_comm *const *comm, int groups)
{
    sheaf_status *st = NULL;
    patience p = { .most = 1e-3 };
    bool waits = true;
    for (int k = 0; k < groups; k++)
        if (comm[k] != NULL && !((mesh *)comm[k]->state)->left)
            sheaf__messages_leave(comm[k], NULL);
    while (waits && st == NULL) {
        bool moved = false, oversubscribed = false;
        waits = false;
        for (int k = 0; k < groups && st == NULL; k++)
            if (comm[k] != NULL) {
                oversubscribed = ((mesh *)comm[k]->state)->oversubscribed;
                st = see_off(comm[k]->state, &waits, &moved);
            }
        if (moved)
            refresh(&p);
        else if (waits && st == NULL)
            rest(&p, oversubscribed);
    }
    for (int k = 0; k < groups && st == NULL; k++) /* else the MPI may still write into them */
        if (comm[k] != NULL)
            mesh_free(comm[k]->state);
    return st;
}
