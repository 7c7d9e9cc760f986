/* comm.c - see comm.h: the calls, written once for all transports. The sum is in sum.c. */
#include "comm/comm.h"

#include "base/base.h"
#include "base/clock.h"
#include "comm/transport.h"

static const char *const op_names[] = {
    [SHEAF__OP_SUM] = "sum",       [SHEAF__OP_MAX] = "max",
    [SHEAF__OP_SELECT] = "select", [SHEAF__OP_BROADCAST] = "broadcast",
    [SHEAF__OP_GATHER] = "gather", [SHEAF__OP_AGREE] = "agree",
    [SHEAF__OP_ANY] = "any",       [SHEAF__OP_BARRIER] = "barrier",
    [SHEAF__OP_LEFT] = "no call",
};

int sheaf_comm_rank(const sheaf_comm *comm)
{
    return comm->rank;
}
int sheaf_comm_ranks(const sheaf_comm *comm)
{
    return comm->ranks;
}
sheaf__counters *sheaf_comm_counters(sheaf_comm *comm)
{
    return &comm->counters;
}

sheaf__traffic sheaf_comm_purpose(sheaf_comm *comm, sheaf__traffic purpose)
{
    if (comm == NULL)
        return SHEAF__TRAFFIC_OTHER;
    const sheaf__traffic before = comm->counters.purpose;
    comm->counters.purpose = purpose;
    return before;
}

void sheaf_comm_record(sheaf_comm *comm, sheaf__activity *activity)
{
    comm->activity = activity;
}

sheaf__activity *sheaf_comm_activity(const sheaf_comm *comm)
{
    return comm == NULL ? NULL : comm->activity;
}

void sheaf__comm_release(sheaf_comm *comm)
{
    free(comm->moves);
    free(comm->staging);
}

const char *sheaf__comm_name(char out[SHEAF__RANK_NAME], const sheaf_comm *comm, int rank)
{
    const int number = comm->world == NULL ? rank : comm->world[rank];
    snprintf(out, SHEAF__RANK_NAME, comm->host == NULL ? "rank %d" : "rank %d on %s", number,
             comm->host == NULL ? "" : comm->host[rank]);
    return out;
}

/* ---- do the headings fit together? ---- */

static const sheaf__heading *heading_of(const sheaf_comm *comm, int rank)
{
    return comm->transport->heading(comm, rank);
}

static bool failed(const sheaf__heading *heading)
{
    return heading->op == SHEAF__OP_LEFT || heading->status != NULL;
}

/* The rank whose failure explains the others': the lowest that has a reason of its own. A
 * reason that only repeats a peer's, or none at all (it left), is second best.
 * -1: none failed. */
static int first_failed(const sheaf_comm *comm)
{
    int repeats = -1, silent = -1;
    for (int r = 0; r < comm->ranks; r++) {
        const sheaf__heading *h = heading_of(comm, r);
        if (!failed(h))
            continue;
        if (h->status == NULL)
            silent = silent < 0 ? r : silent;
        else if (sheaf_status_code(h->status) != SHEAF_E_PEER)
            return r;
        else
            repeats = repeats < 0 ? r : repeats;
    }
    return repeats >= 0 ? repeats : silent;
}

static sheaf_status *peer_failed(const sheaf_comm *comm, int rank)
{
    const sheaf_status *why = heading_of(comm, rank)->status;
    char name[SHEAF__RANK_NAME], mine[SHEAF__RANK_NAME];
    sheaf__comm_name(name, comm, rank);
    if (why == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "%s", name);
        sheaf_expected(st, "call %" PRIu64 " of the run, like on %s", comm->call,
                       sheaf__comm_name(mine, comm, comm->rank));
        return sheaf_found(st, "it has ended without an error");
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "%s: %s", name, sheaf_status_where(why));
    sheaf_expected(st, "%s", sheaf_status_expected(why));
    sheaf_found(st, "%s", sheaf_status_found(why));
    return sheaf_try_this(st, "%s", sheaf_status_try(why));
}

static bool same_call(const sheaf__heading *a, const sheaf__heading *b)
{
    return a->call == b->call && a->op == b->op && a->size == b->size && a->digest == b->digest;
}

static sheaf_status *mismatch(const sheaf_comm *comm, int other)
{
    const sheaf__heading *a = heading_of(comm, 0), *b = heading_of(comm, other);
    const bool hidden = a->call == b->call && a->op == b->op && a->size == b->size;
    char first[SHEAF__RANK_NAME], second[SHEAF__RANK_NAME];
    sheaf__comm_name(first, comm, 0);
    sheaf__comm_name(second, comm, other);
    sheaf_status *st =
        sheaf_fail(SHEAF_E_PEER, "%s and %s do not make the same call", first, second);
    sheaf_expected(st, "call %" PRIu64 ", %s of %" PRIu64 " bytes, as on %s", a->call,
                   op_names[a->op], a->size, first);
    return sheaf_found(st, "call %" PRIu64 ", %s of %" PRIu64 " bytes%s on %s", b->call,
                       op_names[b->op], b->size, hidden ? " with other arguments" : "", second);
}

/* All ranks see the same headings, so all come to the same conclusion. */
static sheaf_status *compare(const sheaf_comm *comm)
{
    const int culprit = first_failed(comm);
    if (culprit >= 0)
        return peer_failed(comm, culprit);
    for (int r = 1; r < comm->ranks; r++)
        if (!same_call(heading_of(comm, 0), heading_of(comm, r)))
            return mismatch(comm, r);
    return NULL;
}

/* ---- exchanges, counted ---- */

static void count_sends(sheaf_comm *comm, sheaf__count *count, const sheaf__move *send, int n)
{
    for (int i = 0; i < n; i++)
        for (int r = 0; r < comm->ranks; r++)
            if (r != comm->rank && (send[i].peer == SHEAF__ALL || send[i].peer == r)) {
                comm->counters.to[r] += send[i].size;
                count->sent += send[i].size;
            }
}

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *heading, const sheaf__move *send,
                          int n)
{
    sheaf__count *count = sheaf__comm_count(comm, heading->op);
    count->exchanges++;
    if (comm->transport->counts_only)
        return comm->transport->post(comm, heading, send, n);
    const double began = sheaf__seconds();
    sheaf_status *st = comm->transport->post(comm, heading, send, n);
    count->waiting += sheaf__seconds() - began;
    return st;
}

/* Operands lent for sums in place are no messages; sum.c counts them. */
static bool is_lent(const sheaf_comm *comm, sheaf__comm_op op)
{
    return comm->transport->posted != NULL && (op == SHEAF__OP_SUM || op == SHEAF__OP_MAX);
}

sheaf_status *sheaf__comm_again(sheaf_comm *comm, sheaf__heading *heading, const sheaf__move *send,
                                int count)
{
    heading->call = comm->call;
    if (!is_lent(comm, heading->op))
        count_sends(comm, sheaf__comm_count(comm, heading->op), send, count);
    sheaf_status *st = post(comm, heading, send, count);
    return st != NULL ? st : compare(comm);
}

bool sheaf_comm_sees_memory(const sheaf_comm *comm)
{
    return comm->transport->posted != NULL;
}

void sheaf_comm_move_by(sheaf_comm *comm, const sheaf__mover *mover, void *self)
{
    comm->mover = mover;
    comm->moved = self;
    comm->pinned_bytes = 0;
}

bool sheaf_comm_reads_gpus(const sheaf_comm *comm)
{
    return comm->reads_gpus;
}

void sheaf_comm_would_move(sheaf_comm *comm)
{
    sheaf__comm_would_pin(comm, 0);
}

size_t sheaf_comm_pinned(const sheaf_comm *comm)
{
    return comm == NULL ? 0 : comm->would_pin;
}

sheaf_status *sheaf__comm_pin(sheaf_comm *comm, size_t bytes)
{
    bytes += sheaf__comm_ring(comm);
    if (bytes <= comm->pinned_bytes)
        return NULL;
    sheaf_status *st = comm->mover->pinned(&comm->pinned, comm->moved, bytes);
    comm->pinned_bytes = st == NULL ? bytes : 0;
    return st;
}

sheaf_status *sheaf__comm_collect(sheaf_comm *comm, sheaf__comm_op op, const sheaf__move *receive,
                                  int n)
{
    sheaf__count *count = sheaf__comm_count(comm, op);
    for (int i = 0; i < n; i++) {
        comm->counters.from[receive[i].peer] += receive[i].size;
        count->received += receive[i].size;
    }
    if (comm->transport->counts_only)
        return comm->transport->collect(comm, receive, n);
    const double began = sheaf__seconds();
    sheaf_status *st = comm->transport->collect(comm, receive, n);
    /* with nothing to fetch it only waits until the others have done so */
    *(n == 0 ? &count->waiting : &count->moving) += sheaf__seconds() - began;
    return st;
}

sheaf_status *sheaf__comm_enter(sheaf_comm *comm, sheaf__heading *heading, const sheaf__move *send,
                                int count)
{
    comm->call++;
    sheaf__activity_call(comm->activity, op_names[heading->op]);
    sheaf__comm_count(comm, heading->op)->calls++;
    sheaf_status *st = NULL;
    if (comm->mover != NULL && comm->transport->posted == NULL)
        st = sheaf__comm_pin(comm, 0);
    if (comm->mover != NULL)
        TRY(st, comm->mover->lend(comm->moved));
    return TRY(st, sheaf__comm_again(comm, heading, send, count));
}

sheaf_status *sheaf__comm_left(sheaf_comm *comm, sheaf_status *st)
{
    sheaf__activity_return(comm->activity);
    return st;
}

/* ---- calls that move bytes ---- */

static sheaf_status *move_bytes(sheaf_comm *comm, sheaf__heading *heading, const sheaf__move *send,
                                int nsend, const sheaf__move *receive, int nreceive)
{
    sheaf_status *st = sheaf__comm_enter(comm, heading, send, nsend);
    TRY(st, sheaf__comm_collect(comm, heading->op, receive, nreceive));
    return sheaf__comm_left(comm, st);
}

sheaf_status *sheaf_comm_broadcast(sheaf_comm *comm, void *bytes, size_t size, int root)
{
    if (root < 0 || root >= comm->ranks)
        return sheaf_found(sheaf_fail(SHEAF_E_ARG, "broadcast from a rank below %d", comm->ranks),
                           "%d", root);
    sheaf__heading heading = { .op = SHEAF__OP_BROADCAST,
                               .size = size,
                               .digest = sheaf__comm_digest(0, (uint64_t)root) };
    const bool mine = root == comm->rank;
    const sheaf__move move = { mine ? SHEAF__ALL : root, bytes, size };
    return move_bytes(comm, &heading, &move, mine, &move, !mine);
}

sheaf_status *sheaf_comm_gather(sheaf_comm *comm, void *all, const size_t *size)
{
    sheaf__heading heading = { .op = SHEAF__OP_GATHER };
    sheaf__move send = { SHEAF__ALL, NULL, 0 }, receive[SHEAF_MAX_SLICES];
    int count = 0;
    for (int r = 0; r < comm->ranks; r++) {
        char *place = (char *)all + heading.size;
        if (r == comm->rank)
            send = (sheaf__move){ SHEAF__ALL, place, size[r] };
        else
            receive[count++] = (sheaf__move){ r, place, size[r] };
        heading.size += size[r];
        heading.digest = sheaf__comm_digest(heading.digest, size[r]);
    }
    return move_bytes(comm, &heading, &send, 1, receive, count);
}

/* ---- select ---- */

/* Neighbouring rows of one owner go as one piece. Both lists have space for `nrows`. */
static void select_moves(const sheaf_comm *comm, char *rows, size_t row_bytes, int64_t nrows,
                         const int32_t *owner, sheaf__move *send, int *nsend, sheaf__move *receive,
                         int *nreceive)
{
    *nsend = *nreceive = 0;
    for (int64_t begin = 0, end; begin < nrows; begin = end) {
        const bool mine = owner[begin] == comm->rank;
        for (end = begin + 1; end < nrows && owner[end] == owner[begin];)
            end++;
        *(mine ? &send[(*nsend)++] : &receive[(*nreceive)++]) =
            (sheaf__move){ mine ? SHEAF__ALL : owner[begin], rows + (size_t)begin * row_bytes,
                           (size_t)(end - begin) * row_bytes };
    }
}

static sheaf_status *check_owners(const sheaf_comm *comm, int64_t nrows, const int32_t *owner,
                                  uint64_t *digest)
{
    for (int64_t r = 0; r < nrows; r++) {
        if (owner[r] < 0 || owner[r] >= comm->ranks) {
            sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "select: owner of row %" PRId64, r);
            sheaf_expected(st, "a rank below %d", comm->ranks);
            return sheaf_found(st, "%d", (int)owner[r]);
        }
        *digest = sheaf__comm_digest(*digest, (uint64_t)owner[r]);
    }
    return NULL;
}

sheaf_status *sheaf_comm_select(sheaf_comm *comm, void *rows, size_t row_bytes, int64_t nrows,
                                const int32_t *owner)
{
    sheaf__heading heading = { .op = SHEAF__OP_SELECT,
                               .size = (uint64_t)nrows * row_bytes,
                               .digest = sheaf__comm_digest(0, row_bytes) };
    sheaf_status *st = check_owners(comm, nrows, owner, &heading.digest);
    if (st == NULL && !SHEAF_GROW(&comm->moves, &comm->moves_capacity, 2 * nrows))
        st = sheaf__no_memory("the pieces of a select");
    if (st != NULL)
        return st;
    int nsend, nreceive;
    sheaf__move *receive = nrows == 0 ? NULL : comm->moves + nrows;
    select_moves(comm, rows, row_bytes, nrows, owner, comm->moves, &nsend, receive, &nreceive);
    return move_bytes(comm, &heading, comm->moves, nsend, receive, nreceive);
}

/* ---- calls that move nothing but their heading ---- */

sheaf_status *sheaf_comm_barrier(sheaf_comm *comm)
{
    sheaf__heading heading = { .op = SHEAF__OP_BARRIER };
    return sheaf__comm_left(comm, sheaf__comm_enter(comm, &heading, NULL, 0));
}

sheaf_status *sheaf_comm_any(sheaf_comm *comm, int *flag)
{
    sheaf__heading heading = { .op = SHEAF__OP_ANY, .flag = *flag };
    sheaf_status *st = sheaf__comm_enter(comm, &heading, NULL, 0);
    for (int r = 0; st == NULL && r < comm->ranks; r++)
        heading.flag |= heading_of(comm, r)->flag;
    if (st == NULL)
        *flag = heading.flag;
    return sheaf__comm_left(comm, st);
}

/* ---- agree ---- */

static bool any_op(const sheaf_comm *comm, sheaf__comm_op op, bool is)
{
    for (int r = 0; r < comm->ranks; r++)
        if ((heading_of(comm, r)->op == op) == is)
            return true;
    return false;
}

/* All are at agree, or one has left for good. */
static sheaf_status *conclude(sheaf_comm *comm, sheaf_status *mine)
{
    /* Failed ranks may have skipped calls: count on from the same number. */
    for (int r = 0; r < comm->ranks; r++)
        if (heading_of(comm, r)->call > comm->call)
            comm->call = heading_of(comm, r)->call;
    const int culprit = first_failed(comm);
    if (culprit < 0 || culprit == comm->rank ||
        (mine != NULL && sheaf_status_code(mine) != SHEAF_E_PEER))
        return mine;
    const sheaf_status *why = heading_of(comm, culprit)->status;
    if (mine != NULL && (why == NULL || sheaf_status_code(why) == SHEAF_E_PEER))
        return mine;
    sheaf_status_free(mine);
    return why == NULL ? peer_failed(comm, culprit)
                       : sheaf_in(sheaf_status_copy(why), "%s",
                                  sheaf__comm_name((char[SHEAF__RANK_NAME]){ 0 }, comm, culprit));
}

sheaf_status *sheaf_comm_agree(sheaf_comm *comm, sheaf_status *mine)
{
    const sheaf__heading heading = { .call = ++comm->call, .op = SHEAF__OP_AGREE, .status = mine };
    sheaf__activity_call(comm->activity, op_names[SHEAF__OP_AGREE]);
    sheaf__comm_count(comm, SHEAF__OP_AGREE)->calls++;
    for (;;) {
        sheaf_status *st = post(comm, &heading, NULL, 0);
        if (st != NULL) {
            sheaf_status_free(mine);
            return sheaf__comm_left(comm, st);
        }
        if (any_op(comm, SHEAF__OP_LEFT, true) || !any_op(comm, SHEAF__OP_AGREE, false))
            return sheaf__comm_left(comm, conclude(comm, mine));
        /* Some are elsewhere. They have just learned that a rank failed, or that their call
         * and this one do not match, and will come here too, or leave. */
    }
}
