/* comm.h - how ranks talk. One interface, several carriers (self, threads; mpi and
 * nccl come as plug-ins later).
 *
 * Every call is collective: all ranks make the same calls in the same order, from
 * one thread each. Each exchange carries (sequence number, operation, status): a
 * rank that failed calls sheaf_comm_fail() and goes on answering with that status;
 * every other rank then gets SHEAF_E_PEER naming it from its next call. A mismatch
 * of operation or size is an error that names both ranks. Nothing hangs: a rank
 * that leaves without failing (its thread ended) counts as failed. */
#ifndef SHEAF_COMM_COMM_H
#define SHEAF_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "sheaf/owner.h"
#include "sheaf/status.h"

typedef struct sheaf_comm sheaf_comm;

int sheaf_comm_rank(const sheaf_comm *comm);
int sheaf_comm_ranks(const sheaf_comm *comm);

/* The add kernel that sums are made with: dst = a + b, n float32 (comm knows no ops),
 * and a way to run it on a rank's threads. */
typedef struct sheaf_comm_adder {
    void (*add)(float *dst, const float *a, const float *b, int64_t n);
} sheaf_comm_adder;

/* sheaf_comm_sum - the one function that combines values of several slices.
 *   out    [rows, cols] float32 dense, the same bytes on every rank afterwards
 *   roots  this rank's subtree roots, in the order of sheaf_tree_own(); dense
 *          [rows, cols]; their content is destroyed; out may be roots[0]
 * Each rank sums a share of the rows along the tree, then all gather. */
sheaf_status *sheaf_comm_sum(sheaf_comm *comm, const sheaf_tree *tree, float *out,
                             float *const *roots, int64_t rows, int64_t cols,
                             const sheaf_comm_adder *adder);
/* sheaf_comm_max - element-wise maximum over ranks, in place. */
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
 * of lowest number, with "rank N" as context. Consumes `mine`. The group is usable
 * again afterwards. */
sheaf_status *sheaf_comm_agree(sheaf_comm *comm, sheaf_status *mine);
/* sheaf_comm_any - true on all ranks when `flag` is set on any (signals). */
sheaf_status *sheaf_comm_any(sheaf_comm *comm, int *flag);
/* sheaf_comm_barrier */
sheaf_status *sheaf_comm_barrier(sheaf_comm *comm);

/* sheaf_comm_run_threads - runs body(context, comm) on `ranks` threads of this process
 * and waits for all. ranks == 1 runs on the calling thread with the `self` carrier.
 * Returns the first failure by rank number (others are freed), NULL if none. */
sheaf_status *sheaf_comm_run_threads(int ranks, sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                     void *context);

/* Bytes this rank has sent so far in sums, selections and gathers (for plan and metrics). */
double sheaf_comm_sent(const sheaf_comm *comm);

#endif
