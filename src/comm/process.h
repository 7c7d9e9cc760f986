/* process.h - the processes of a run: one with the transport `threads`, T * D with `mpi`, each of
 * which is one rank. A caller that joins them gets their group, and hands it on as an argument
 * (all.h; NULL: alone). With one process nothing here waits or fails. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "comm/all.h"

/* sheaf__process_local - how many processes run on this machine; *number: which of them this is. */
int sheaf__process_local(const sheaf_comm *all, int *number);

/* sheaf__process_threads - compute threads of this process when `total` are shared by all that are
 * on this machine; 0: the cores at hand, by those that have the same. At least one. */
int sheaf__process_threads(const sheaf_comm *all, int total);
/* sheaf__process_pin - from now on this process runs on its share of the cores, if there are enough
 * of them; before it starts threads. False: it runs where it did. */
bool sheaf__process_pin(const sheaf_comm *all);
/* sheaf__process_settle - processes that may use the same cores take a share of them each, unless
 * `threads`, of all on a machine, says how many compute; events report where the processes are.
 * Before one starts threads. */
void sheaf__process_settle(const sheaf_comm *all, int threads, const sheaf_events *events);
/* sheaf__process_checks_memory - does this process check whether memory suffices, for all that are
 * on its machine? *share: the part of all ranks that runs there. */
bool sheaf__process_checks_memory(const sheaf_comm *all, double *share);
/* sheaf__process_record - from now on calls of all processes are written into `activity`; see
 * sheaf_comm_record(). */
void sheaf__process_record(sheaf_comm *all, sheaf__activity *activity);

/* sheaf__process_name_own - where several processes are, and this is the first: names it in a
 * failure of its own, of what its machine has, as sheaf_comm_agree() names any other. */
sheaf_status *sheaf__process_name_own(const sheaf_comm *all, sheaf_status *st);

/* How processes join each other, and the result. */
typedef struct sheaf__process_join {
    void (*joining)(void); /* before the MPI brings all together, which it may wait for for ever */
    void (*finishing)(void); /* as the program ends, once the others have been left and only the MPI
                                is to be ended */
    sheaf_comm *all; /* out: their group; NULL: this process is alone. Borrowed, to the end */
    bool mismatch;   /* out: its launcher is not its MPI's */
} sheaf__process_join;

/* sheaf__process_start - loads the module and joins the others, once in the life of a process: an
 * MPI can be started once. Nothing where how->all is set. It ends with the program.
 * Errors: SHEAF_E_UNSUPPORTED: no module; SHEAF_E_PEER: this MPI is not the launcher's. */
sheaf_status *sheaf__process_start(sheaf__process_join *how, const char *mpi);

/* sheaf__process_failed - this process ends by this failure: as the program ends, those of the
 * others that did not fail with it learn what it was, at their next exchange. */
void sheaf__process_failed(sheaf_comm *all, const sheaf_status *why);
/* sheaf__process_awaited - may others wait for this one, which has not joined? */
bool sheaf__process_awaited(const sheaf__process_join *join);

/* sheaf__process_check - are there as many processes as ranks? Errors: SHEAF_E_ARG, in all. */
sheaf_status *sheaf__process_check(const sheaf_comm *all, int ranks);
/* sheaf__process_run - one rank to a process: body runs once in each; the first failure by rank
 * number in all. `groups` of ranks are its communicators: group k is that of the processes with the
 * same `color[k]`, in the order of their numbers, NULL where it has one.
 *   ranks  how many processes it takes */
enum { SHEAF__MOST_GROUPS = 4 };
sheaf_status *sheaf__process_run(sheaf_comm *all, int ranks, const int *color, int groups,
                                 sheaf_status *(*body)(void *context, sheaf_comm *const *comm),
                                 void *context);
