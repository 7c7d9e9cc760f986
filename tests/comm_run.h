/* comm_run.h - the same tests on ranks that are threads and, where a launcher started the test, on
 * ranks that are processes: then those that take as many as there are. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "comm/grid.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "comm/transport.h"

/* Cmocka's assertions may not leave a rank's thread: bodies return a status instead. */
#define OR_RETURN(call)                                                                            \
    do {                                                                                           \
        sheaf_status *failed = call;                                                               \
        if (failed != NULL)                                                                        \
            return failed;                                                                         \
    } while (0)

typedef struct run_test {
    sheaf_status *(*body)(void *context, sheaf_comm *comm);
    void *context;
} run_test;

/* The processes that a launcher started together, once they have met. */
static sheaf__process_join met;

/* meet_for_test - before anything else. Returns whether ranks are processes. */
static inline bool meet_for_test(void)
{
    if (sheaf__launcher_look().name == NULL)
        return false;
    sheaf_status *st = sheaf__process_start(&met, NULL);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        abort();
    }
    return true;
}

/* can_run - is this one of the settings to be tested here? */
static inline bool can_run(int ranks, bool messages)
{
    return met.all == NULL || (messages && ranks == sheaf__all_count(met.all));
}

static inline sheaf_status *run_test_rank(void *context, sheaf_comm *const *comm)
{
    const run_test *t = context;
    return t->body(t->context, comm[0]);
}

/* run_ranks - as sheaf__run_threads(); NULL where it cannot run here. */
static inline sheaf_status *run_ranks(int ranks, bool messages,
                                      sheaf_status *(*body)(void *context, sheaf_comm *comm),
                                      void *context)
{
    static const int all[SHEAF_MAX_SLICES] = { 0 };
    if (met.all == NULL)
        return sheaf__run_threads(ranks, messages, body, context);
    return can_run(ranks, messages) ? sheaf__process_run(met.all, ranks, all, 1, run_test_rank,
                                                         &(run_test){ body, context })
                                    : NULL;
}

/* agree_in_grid - all ranks of the grid, also when some of them wait in a call of their group or
 * peers (comm/grid.h). */
static inline sheaf_status *agree_in_grid(const sheaf__grid *grid, sheaf_status *mine)
{
    if (grid->group != NULL)
        mine = sheaf_comm_agree(grid->group, mine);
    return grid->peers == NULL ? mine : sheaf_comm_agree(grid->peers, mine);
}
