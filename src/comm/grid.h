/* grid.h - groups of ranks, each of which holds a copy of the model: D groups of T ranks. With
 * layers placed over stages a group has so many stages of T ranks.
 *
 *   rank of `all` = (number * stages + stage) * ranks + rank of the stage
 *
 * A rank that returns from the body leaves all its groups at once, so every rank that waits for it
 * in any of them gets the failure. Ranks that failed and continue agree within each group, and then
 * among peers: after a group's agreement each of its ranks has the failure, so every group of peers
 * has a rank that knows it. An agreement within one group does not reach ranks that wait in
 * another.
 */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"

typedef struct sheaf__grid {
    sheaf_comm *processes; /* of which each is a rank; NULL: ranks are threads of one */
    sheaf_comm *all;       /* every rank */
    sheaf_comm *group;     /* those that hold one copy of the model; NULL: one */
    sheaf_comm *stage;     /* those of them that hold the same layers; NULL: one */
    sheaf_comm *peers;  /* those of other groups with the same slices and layers, and this one, in
                           the order of groups; NULL with one group */
    int groups, number; /* D, and which group this is */
} sheaf__grid;

typedef struct sheaf__grid_options {
    sheaf_comm *processes; /* all of the run; NULL: this one is alone */
    sheaf_transport transport;
    int groups, ranks; /* D and T, at least 1 */
    int stages;        /* 0 or 1: layers are not placed */
    bool messages;     /* as in sheaf__run_threads(), for tests */
} sheaf__grid_options;

/* sheaf__grid_run - calls body on every rank and waits for all; the first failure by rank number,
 * as sheaf_comm_run_threads() has it. Errors: SHEAF_E_ARG: more than SHEAF_MAX_SLICES ranks. */
sheaf_status *sheaf__grid_run(const sheaf__grid_options *options,
                              sheaf_status *(*body)(void *context, const sheaf__grid *grid),
                              void *context);

/* sheaf__grid_record - this rank's calls in all of its groups are written into its record; see
 * sheaf_comm_record(). */
void sheaf__grid_record(const sheaf__grid *grid, sheaf__activity *activity);
