/* comm.h - communication between ranks. One interface, several transports (self, threads, mpi).
 *
 * Every call is collective: all ranks make the same calls in the same order, from
 * one thread each. Each exchange carries (sequence number, operation, size, digest of
 * the other arguments, status).
 *
 * A rank that failed skips to its next sheaf_comm_agree() and gives its status there. Until the
 * others reach sheaf_comm_agree() too, each of their calls returns SHEAF_E_PEER, with the failed
 * rank and its reason. Calls that differ in operation, size or arguments return SHEAF_E_PEER on all
 * ranks and name two that differ (a rank waiting in sheaf_comm_agree() gets it from there).
 * Nothing hangs: a rank whose body has returned, with a status or without, counts as failed for
 * all that still call. After a failed call the contents of its buffers are undefined. */
#pragma once

#include "base/base.h"
#include "base/combining.h"
#include "comm/counters.h"
#include "comm/activity.h"
#include "sheaf/owner.h"
#include "sheaf/status.h"

typedef struct sheaf_comm sheaf_comm;

typedef enum sheaf_transport { SHEAF_TRANSPORT_THREADS, SHEAF_TRANSPORT_MPI } sheaf_transport;

int sheaf_comm_rank(const sheaf_comm *comm);
int sheaf_comm_ranks(const sheaf_comm *comm);

/* The add kernel that sums are made with: dst = a + b, n float32, dst may be a or b
 * (comm knows no ops). `run` is optional: a way to run tasks on this rank's threads,
 * with the meaning of sheaf__pool_run; NULL adds on the calling thread. */
typedef struct sheaf_comm_adder {
    void (*add)(float *dst, const float *a, const float *b, int64_t n);
    void (*run)(void *pool, int64_t tasks, void (*task)(void *context, int64_t index, int worker),
                void *context);
    void *pool;
} sheaf_comm_adder;

/* sheaf_comm_sees_memory - are the ranks threads of one process, which may look into each other's
 * buffers? */
bool sheaf_comm_sees_memory(const sheaf_comm *comm);
/* sheaf_comm_move_by - buffers of the calls to come lie in the mover's memory, `self` is its own;
 * NULL: in the processor's again. All ranks do the same. Only sums, broadcasts and gathers go this
 * way: from memory to memory where ranks see each other's, else as messages, out of the mover's
 * memory itself where the MPI reads it, or through a ring of pinned blocks. Borrowed. */
void sheaf_comm_move_by(sheaf_comm *comm, const sheaf__mover *mover, void *self);

/* sheaf_comm_reads_gpus - are messages sent out of, and received into, the memory of GPUs? */
bool sheaf_comm_reads_gpus(const sheaf_comm *comm);

/* sheaf_comm_sum - the one function that combines values of several slices.
 *   out    [rows, cols] float32 dense, the same bytes on every rank afterwards
 *   roots  this rank's subtree roots, in the order of sheaf_tree_own(); dense
 *          [rows, cols]; their content is destroyed; out may be roots[0]. NULL is
 *          fine for a rank without roots.
 *   first  [ranks + 1] whose rows they are: rank r gets rows [first[r], first[r + 1]), the rest of
 *          its out is undefined; NULL: all get all
 * Each rank sums a share of the elements along the tree, then all gather. Denormals
 * count as zero. If no slice is present, out becomes +0. */
sheaf_status *sheaf_comm_sum(sheaf_comm *comm, const sheaf_tree *tree, float *out,
                             float *const *roots, int64_t rows, int64_t cols, const int64_t *first,
                             const sheaf_comm_adder *adder);
/* sheaf_comm_chain - ((part 0 + part 1) + part 2) + ..., parts numbered over two ranks or more.
 *   out    [n] float32, the same bytes on every rank afterwards; scratch between exchanges
 *   part   this rank's, sheaf_comm_part(n) floats apart; NULL is fine for a rank without parts
 *   first  [ranks + 1]: rank r has the parts [first[r], first[r + 1]), possibly none; none at all:
 *          out stays
 * NaN gives NaN, denormals count as zero, as in sheaf_comm_sum; a single part is copied. */
sheaf_status *sheaf_comm_chain(sheaf_comm *comm, float *out, float *part, const int64_t *first,
                               int64_t n, const sheaf_comm_adder *adder);
/* sheaf_comm_part - n, up to a multiple of 4. */
static inline int64_t sheaf_comm_part(int64_t n)
{
    return (n + 3) / 4 * 4;
}
/* sheaf_comm_max - element-wise maximum over ranks, in place. NaN on any rank gives
 * 0x7fc00000, zeros of either sign and denormals give +0, also with one rank: the
 * result never shows how the columns were spread over ranks. */
sheaf_status *sheaf_comm_max(sheaf_comm *comm, float *x, int64_t n);
/* sheaf_comm_select - row r of `rows` (row_bytes each) is taken from rank owner[r];
 * in place, all ranks have all rows afterwards. */
sheaf_status *sheaf_comm_select(sheaf_comm *comm, void *rows, size_t row_bytes, int64_t nrows,
                                const int32_t *owner);
/* sheaf_comm_broadcast - bytes of rank `root` to all. */
sheaf_status *sheaf_comm_broadcast(sheaf_comm *comm, void *bytes, size_t size, int root);
/* sheaf_comm_gather - every rank gives size[rank] bytes placed at its offset in `all`
 * (offset = sum of the sizes before it); all ranks have all afterwards. */
sheaf_status *sheaf_comm_gather(sheaf_comm *comm, void *all, const size_t *size);
/* sheaf_comm_agree - takes this rank's status (may be NULL); returns NULL when all
 * are NULL; otherwise each rank gets a status: its own, or a copy of the failing rank's
 * of lowest number, with "rank N" as context. A status that only repeats another's
 * failure (SHEAF_E_PEER) gives way to the failure itself. Consumes `mine`. The group is
 * usable again afterwards, unless a rank has left. */
sheaf_status *sheaf_comm_agree(sheaf_comm *comm, sheaf_status *mine);
/* sheaf_comm_any - *flag becomes, on all ranks, what is set in it on any (signals). */
sheaf_status *sheaf_comm_any(sheaf_comm *comm, int *flag);
/* sheaf_comm_barrier */
sheaf_status *sheaf_comm_barrier(sheaf_comm *comm);

/* sheaf_comm_run_threads - runs body(context, comm) on `ranks` threads of this process
 * and waits for all. Rank 0 is the calling thread; ranks == 1 uses the `self` transport.
 * Returns the first failure by rank number (others are freed), NULL if none; one that
 * only repeats another rank's failure (SHEAF_E_PEER) comes last. At most
 * SHEAF_MAX_SLICES ranks. */
sheaf_status *sheaf_comm_run_threads(int ranks,
                                     sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                     void *context);

/* sheaf_comm_record - from now on its calls are recorded in this rank's record (activity.h;
 * borrowed; NULL: no longer). */
void sheaf_comm_record(sheaf_comm *comm, sheaf__activity *activity);
/* sheaf_comm_activity - that record; NULL where there is none, or no comm. */
sheaf__activity *sheaf_comm_activity(const sheaf_comm *comm);

/* sheaf_comm_counters - what this rank's calls have cost so far (counters.h). */
sheaf__counters *sheaf_comm_counters(sheaf_comm *comm);
/* sheaf_comm_purpose - what the calls to come are made for; returns the previous purpose. Local;
 * comm may be NULL. */
sheaf__traffic sheaf_comm_purpose(sheaf_comm *comm, sheaf__traffic purpose);

/* sheaf_comm_dry_new - one rank of a group that is only planned: calls count as those of a real one
 * and return at once, without touching a buffer. sheaf_comm_dry_free() accepts NULL. */
sheaf_status *sheaf_comm_dry_new(sheaf_comm **out, int rank, int ranks);
void sheaf_comm_dry_free(sheaf_comm *comm);
/* sheaf_comm_would_move - of a planned group, in place of sheaf_comm_move_by(): the next call moves
 * a GPU's memory. */
void sheaf_comm_would_move(sheaf_comm *comm);
/* sheaf_comm_pinned - bytes of the host's memory that the planned sums and moves pin, where ranks
 * are processes on GPUs; comm may be NULL. */
size_t sheaf_comm_pinned(const sheaf_comm *comm);
