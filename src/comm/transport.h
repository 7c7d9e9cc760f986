/* transport.h - the interface of a transport, which moves bytes between ranks. Private to comm.
 *
 * An exchange has two halves, like a non-blocking message:
 *   post     waits until every rank has posted or left; then each rank's heading can be
 *            read by all. The memory named in `send` is lent to the peers.
 *   collect  fills `receive`; when it returns, this rank's lent memory is its own again.
 * The headings are compared in between; if they do not match, all ranks find
 * the same and none collects, so each has its memory back at once. An exchange that
 * moves nothing needs no collect at all.
 *
 * A transport whose ranks share an address space also shows the posted lists themselves
 * (`posted`), so that a sum can work where the operands lie. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "comm/activity.h"
#include "comm/mpi/plugin.h"

typedef enum sheaf__comm_op {
    SHEAF__OP_SUM = 1,
    SHEAF__OP_MAX,
    SHEAF__OP_SELECT,
    SHEAF__OP_BROADCAST,
    SHEAF__OP_GATHER,
    SHEAF__OP_AGREE,
    SHEAF__OP_ANY,
    SHEAF__OP_BARRIER,
    SHEAF__OP_LEFT /* no call: this rank's body has returned */
} sheaf__comm_op;

typedef struct sheaf__heading {
    uint64_t call; /* sequence number */
    sheaf__comm_op op;
    int flag;        /* of `any`; not compared */
    uint64_t size;   /* bytes of the operand */
    uint64_t digest; /* of the arguments that must agree */
    /* a failed rank's reason; a peer's is valid until this rank's next post */
    const sheaf_status *status;
} sheaf__heading;

#define SHEAF__ALL (-1)

/* Bytes for a peer or SHEAF__ALL, or from a peer. The k-th one received from a rank is
 * the k-th that it sends to this rank or to all. */
typedef struct sheaf__move {
    int peer;
    void *bytes;
    size_t size;
} sheaf__move;

typedef struct sheaf__transport {
    const char *name;
    sheaf_status *(*post)(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count);
    const sheaf__heading *(*heading)(const sheaf_comm *comm, int rank);
    /* NULL: ranks do not share memory */
    const sheaf__move *(*posted)(const sheaf_comm *comm, int rank);
    sheaf_status *(*collect)(sheaf_comm *comm, const sheaf__move *receive, int count);
    bool counts_only; /* the planner's: no memory may be touched, and no rank is waited for */
} sheaf__transport;

struct sheaf_comm {
    const sheaf__transport *transport;
    void *state; /* the transport's */
    int rank, ranks;
    uint64_t call; /* number of the call in progress or last made */
    sheaf__counters counters;
    const sheaf__mover *mover; /* NULL: buffers are the processor's */
    void *moved;               /* the mover's own */
    void *pinned;              /* the mover's: the ring, then operands of a sum */
    size_t pinned_bytes;       /* since sheaf_comm_move_by() */
    size_t would_pin;          /* of a plan: the most that a call takes, with the ring */
    bool reads_gpus;           /* its messages need no ring */
    sheaf__move *moves;        /* scratch of select, kept between calls */
    int64_t moves_capacity;
    float *staging;            /* scratch of sums by messages, kept between calls */
    size_t staging_capacity;   /* floats */
    const int *world;          /* [ranks] their numbers among all of the run; NULL: the same */
    const char *const *host;   /* [ranks] of processes: where they run; NULL: here */
    sheaf__activity *activity; /* records its calls; NULL: nothing does */
    struct sheaf__processes *processes; /* of a group of all processes: process.c */
};

/* sheaf__comm_enter - begins a call: numbers it, posts, compares. NULL: all ranks made the
 * same call and `send` is lent until collect. */
sheaf_status *sheaf__comm_enter(sheaf_comm *comm, sheaf__heading *heading, const sheaf__move *send,
                                int count);
/* sheaf__comm_left - the call ends: `st` is its result, which is returned. */
sheaf_status *sheaf__comm_left(sheaf_comm *comm, sheaf_status *st);
/* sheaf__comm_again - a further exchange inside the same call. */
sheaf_status *sheaf__comm_again(sheaf_comm *comm, sheaf__heading *heading, const sheaf__move *send,
                                int count);

/* Blocks of pinned memory through which messages go, of a piece each: half of them for what is
 * sent, half for what is received. */
enum { SHEAF__RING_BLOCKS = 4, SHEAF__PIECE = 1 << 20 };
#define SHEAF__RING ((size_t)2 * SHEAF__RING_BLOCKS * SHEAF__PIECE)
static inline size_t sheaf__comm_ring(const sheaf_comm *comm)
{
    return comm->reads_gpus ? 0 : SHEAF__RING;
}
/* sheaf__comm_pin - makes comm->pinned hold the ring and so many bytes behind it. */
sheaf_status *sheaf__comm_pin(sheaf_comm *comm, size_t bytes);
/* sheaf__comm_would_pin - of a plan: notes that. */
static inline void sheaf__comm_would_pin(sheaf_comm *comm, size_t bytes)
{
    bytes += sheaf__comm_ring(comm);
    comm->would_pin = bytes > comm->would_pin ? bytes : comm->would_pin;
}

/* sheaf__comm_collect - the second half of an exchange of call `op`: fills `receive`. */
sheaf_status *sheaf__comm_collect(sheaf_comm *comm, sheaf__comm_op op, const sheaf__move *receive,
                                  int count);
/* sheaf__comm_count - where the calls of that kind are counted now. */
static inline sheaf__count *sheaf__comm_count(sheaf_comm *comm, sheaf__comm_op op)
{
    return &comm->counters.of[op == SHEAF__OP_SELECT  ? SHEAF__TRAFFIC_SELECT
                              : op >= SHEAF__OP_AGREE ? SHEAF__TRAFFIC_OTHER
                                                      : comm->counters.purpose];
}

/* sheaf__comm_name - "rank 3", or of processes "rank 3 on n7", by its number in the run. Returns
 * out. */
enum { SHEAF__RANK_NAME = 96 };
const char *sheaf__comm_name(char out[SHEAF__RANK_NAME], const sheaf_comm *comm, int rank);

/* sheaf__comm_digest - goes on from `digest` with 8 more bytes; begin with 0. */
static inline uint64_t sheaf__comm_digest(uint64_t digest, uint64_t with)
{
    digest = (digest ^ with) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 29;
}

/* Frees the scratch of `comm`, not itself. */
void sheaf__comm_release(sheaf_comm *comm);

/* The transport of a group of one. */
extern const sheaf__transport sheaf__self_transport;

/* sheaf__run_threads - with `messages` the ranks do not look into each other's buffers but
 * pass bytes, as a transport between processes must: the same results by the other path. */
sheaf_status *sheaf__run_threads(int ranks, bool messages,
                                 sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                 void *context);

/* A group of ranks that are threads of this process but were not started as that group: a grid
 * (grid.h) is made of several. */
typedef struct sheaf__threads sheaf__threads;

/* sheaf__threads_new - NULL: no memory. messages: as in sheaf__run_threads(). all: threads that run
 * at once, in this group and beside it. Free it when all ranks have left. */
sheaf__threads *sheaf__threads_new(int ranks, bool messages, int all);
void sheaf__threads_free(sheaf__threads *group);
/* sheaf__threads_comm - the communicator of the thread that becomes `rank`. */
sheaf_comm *sheaf__threads_comm(sheaf__threads *group, int rank);
/* sheaf__threads_leave - `rank` makes no more calls; why: the status for its peers, NULL: it
 * ended. Consumes it. Call it exactly once for each rank. */
void sheaf__threads_leave(sheaf__threads *group, int rank, sheaf_status *why);

/* The transport `mpi`: ranks are processes that pass messages.
 *
 * An exchange is one message from each rank to each other one: its heading, a failure in words, and
 * what it sends there where that is little. The rest follows once the headings were compared,
 * in pieces; of a mover's memory that the MPI does not read through the ring, where one piece is
 * copied while others travel. A rank that waits polls, and sleeps in between: waiting takes no
 * processor time. */
typedef struct sheaf__messages_options {
    const sheaf__mpi *mpi;
    int rank, ranks;
    const int *process; /* [ranks] their numbers in the MPI; copied */
    const char *const
        *host;           /* [ranks] where they run: the texts are borrowed; NULL: not known yet */
    int tag;             /* this and the next one are the group's own */
    size_t piece;        /* bytes of a message, SHEAF__PIECE at most; 0: that */
    bool oversubscribed; /* more processes than cores: one that waits gives its core away at once */
} sheaf__messages_options;

/* sheaf__messages_open - of a group; ends with sheaf__messages_leave(), then _close(). */
sheaf_status *sheaf__messages_open(sheaf_comm **out, const sheaf__messages_options *options);
/* sheaf__messages_leave - this rank makes no further call: all others learn it, and why. */
void sheaf__messages_leave(sheaf_comm *comm, const sheaf_status *result);
/* sheaf__messages_close - waits until all have left all of these groups: of all at once, as who
 * sends to this rank in one of them may have to be rid of that before it leaves another. NULL: no
 * group. They are gone afterwards, unless a connection was lost. */
sheaf_status *sheaf__messages_close(sheaf_comm *const *comm, int groups);
