/* team.h - a team of T ranks that load a model for inference: evaluation and generation. */
#pragma once

#include "models/model.h"
#include "models/open.h"

typedef struct sheaf__team_options {
    sheaf_comm *all;           /* the processes; NULL: a single process */
    sheaf_transport transport; /* MPI: each rank is a process, which has joined the others */
    int ranks, threads;        /* threads in all, 0 = all available cores */
    int groups;                /* each of which loads the model; 0 is 1 */
    sheaf_dtype dtype;
    sheaf_sums sums;          /* of 16 bits */
    const char *isa, *device; /* NULL: the best, and cpu */
    int64_t positions;        /* length of the rotary table */
    int64_t sequences;        /* generated together at most; see sheaf__model_options */
    const char *place; /* pipeline stages of `ranks` ranks each, as sheaf__placement_read() takes
                          them; NULL = one stage */
    const sheaf_events *events; /* get a note on heads divided unevenly; may be NULL */
} sheaf__team_options;

/* sheaf__team_run - with `ranks` ranks, or with that many in each stage, in each group: opens a
 * device and loads the model on every rank, then calls body on each; the first failure by rank
 * number. opened->schema decides the slices. */
sheaf_status *sheaf__team_run(const sheaf__opened *opened, const sheaf__team_options *options,
                              sheaf_status *(*body)(void *self, sheaf__model *model), void *self);

/* sheaf__team_keeps_result - does the caller get the result from this rank? From the first rank of
 * all; where every rank is a process, from each. */
bool sheaf__team_keeps_result(const sheaf__context *context);

/* sheaf__threads_of - compute threads of `rank` when `total` (0 = all cores this process may use)
 * are shared by `ranks`: an even share, at least one each. A rank that is a process shares the
 * cores of its machine (comm/process.h). */
int sheaf__threads_of(const sheaf_comm *processes, int total, int ranks, int rank);
