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
#define PIECE ((size_t)16 << 20)

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
    size_t size;
    int rank;
    bool sends;
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
    piece *piece; /* of the exchange at hand; kept between calls */
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

/* From now on nothing is sent any more. */
static sheaf_status *broken(mesh *m, sheaf_status *st)
{
    if (m->broken == NULL)
        m->broken = sheaf_status_copy(st);
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
    return broken(m, sheaf_found(st, "%s", text));
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

static int pack(const mesh *m, const sheaf__heading *mine, peer *to, int rank)
{
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
    for (int i = 0; w.with_them && i < m->nsend; i++)
        if (is_for(&m->send[i], rank) && m->send[i].size > 0) {
            memcpy(at, m->send[i].bytes, m->send[i].size);
            at += m->send[i].size;
        }
    to->sends_more = !w.with_them && w.total > 0;
    memcpy(to->out, &w, sizeof w);
    return (int)(at - to->out);
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
    const int size = pack(m, mine, l, rank);
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
    for (int i = 0; at != NULL && i < count; i++)
        if (receive[i].peer == rank && receive[i].size > 0) {
            memcpy(receive[i].bytes, at, receive[i].size);
            at += receive[i].size;
        }
    return NULL;
}

static sheaf_status *begin_piece(mesh *m, int rank, bool sends, char *bytes, size_t size)
{
    if (!SHEAF_GROW(&m->piece, &m->capacity, m->pieces + 1))
        return broken(m, sheaf__no_memory("messages of a group"));
    piece *p = &m->piece[m->pieces++];
    *p = (piece){ .size = size, .rank = rank, .sends = sends };
    const int error =
        sends ? m->mpi->send(&p->request, bytes, (int)size, m->process[rank], m->tag + 1)
              : m->mpi->receive(&p->request, bytes, (int)size, m->process[rank], m->tag + 1);
    return error == 0 ? NULL : lose(m, rank, error, sends ? "sending to it" : "receiving from it");
}

static sheaf_status *begin_pieces(mesh *m, const sheaf__move *move, int count, int rank, bool sends)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < count && st == NULL; i++)
        for (size_t at = 0; at < move[i].size && is_for(&move[i], rank) && st == NULL;
             at += m->most) {
            const size_t left = move[i].size - at;
            st = begin_piece(m, rank, sends, (char *)move[i].bytes + at,
                             left < m->most ? left : m->most);
        }
    return st;
}

/* Those of one pair come in their order: to wait for one after the other loses nothing. */
static sheaf_status *wait_for_pieces(mesh *m)
{
    patience patience = { .most = 200e-6 };
    for (int64_t i = 0; i < m->pieces;) {
        piece *p = &m->piece[i];
        bool done = false;
        int got = 0;
        const int error = m->mpi->test(&done, &got, &p->request);
        if (error != 0)
            return lose(m, p->rank, error, p->sends ? "sending to it" : "receiving from it");
        if (!done) {
            rest(&patience, m->oversubscribed);
            continue;
        }
        if (!p->sends && (size_t)got != p->size)
            return wrong_size(m, p->rank, p->size, (uint64_t)got);
        refresh(&patience);
        i++;
    }
    return NULL;
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    mesh *m = comm->state;
    sheaf_status *st = m->broken == NULL ? NULL : sheaf_status_copy(m->broken);
    for (int r = 0; r < comm->ranks && st == NULL; r++)
        st = take(m, receive, count, r);
    m->pieces = 0;
    for (int sends = 0; sends < 2; sends++) /* receives first, so that they have a place */
        for (int i = 1; i < comm->ranks && st == NULL; i++) {
            const int r = (comm->rank + i) % comm->ranks;
            if (sends && m->peer[r].sends_more)
                st = begin_pieces(m, m->send, m->nsend, r, true);
            else if (!sends && m->peer[r].receives_more)
                st = begin_pieces(m, receive, count, r, false);
        }
    return st == NULL ? wait_for_pieces(m) : st;
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
    m->most = o->piece > 0 ? o->piece : PIECE;
    m->oversubscribed = o->oversubscribed;
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
