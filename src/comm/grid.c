/* grid.c - see grid.h. */
#include "comm/grid.h"

#include <pthread.h>

#include "base/base.h"
#include "comm/process.h"
#include "comm/transport.h"

enum { GROUP, STAGE, PEERS, KINDS }; /* beside that of all ranks */

/* The parts of a grid on threads; lists hold NULL where a group has one rank. */
typedef struct parts {
    const sheaf__grid_options *options;
    int ranks, stages; /* of a stage; of a group */
    sheaf__threads *of[KINDS][SHEAF_MAX_SLICES];
    sheaf_status *(*body)(void *context, const sheaf__grid *grid);
    void *context;
} parts;

/* The groups of a rank, and its number in each. */
typedef struct seat {
    sheaf__threads *of[KINDS];
    int rank[KINDS];
    sheaf_status *why; /* for its peers */
} seat;

static void leave(void *argument)
{
    seat *s = argument;
    for (int i = 0; i < KINDS; i++)
        if (s->of[i] != NULL)
            sheaf__threads_leave(s->of[i], s->rank[i], sheaf_status_copy(s->why));
    sheaf_status_free(s->why);
}

static sheaf_comm *comm_of(const seat *s, int i)
{
    return s->of[i] == NULL ? NULL : sheaf__threads_comm(s->of[i], s->rank[i]);
}

static sheaf_status *rank_main(void *argument, sheaf_comm *all)
{
    const parts *p = argument;
    const int in_group = p->ranks * p->stages, world = sheaf_comm_rank(all),
              number = world / in_group, mine = world % in_group, stage = world / p->ranks;
    seat s = { .of = { p->of[GROUP][number], p->of[STAGE][stage], p->of[PEERS][mine] },
               .rank = { mine, world % p->ranks, number } };
    sheaf_status *volatile result = NULL;
    const sheaf__grid grid = { .all = all,
                               .group = comm_of(&s, GROUP),
                               .stage = comm_of(&s, p->stages > 1 ? STAGE : GROUP),
                               .peers = comm_of(&s, PEERS),
                               .groups = p->options->groups,
                               .number = number };
    s.why = sheaf_fail(SHEAF_E_PEER, "rank %d: its thread ended before its work", world);
    pthread_cleanup_push(leave, &s);
    result = p->body(p->context, &grid);
    sheaf_status_free(s.why);
    s.why = sheaf_status_copy(result);
    pthread_cleanup_pop(1);
    return result;
}

static sheaf_status *make(sheaf__threads **out, const parts *p, int count, int ranks)
{
    const int all = p->ranks * p->stages * p->options->groups;
    for (int i = 0; i < count && ranks > 1; i++) {
        out[i] = sheaf__threads_new(ranks, p->options->messages, all);
        if (out[i] == NULL)
            return sheaf__no_memory("out of memory");
    }
    return NULL;
}

static sheaf_status *check(const sheaf__grid_options *o, int stages)
{
    const int most = SHEAF_MAX_SLICES;
    if (o->groups >= 1 && o->ranks >= 1 && stages >= 1 && o->ranks <= most &&
        stages <= most / o->ranks && o->groups <= most / (o->ranks * stages))
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "ranks"), "1 to %d in all", most);
    if (stages != 1)
        return sheaf_found(st, "%d groups of %d stages of %d", o->groups, stages, o->ranks);
    return sheaf_found(st, "%d groups of %d", o->groups, o->ranks);
}

/* ---- one process to a rank ---- */

static sheaf_status *process_main(void *argument, sheaf_comm *const *comm)
{
    const parts *p = argument;
    const sheaf__grid grid = { .processes = p->options->processes,
                               .all = comm[0],
                               .group = comm[1],
                               .stage = comm[2],
                               .peers = comm[3],
                               .groups = p->options->groups,
                               .number = sheaf_comm_rank(comm[0]) / (p->ranks * p->stages) };
    return p->body(p->context, &grid);
}

static sheaf_status *run_processes(const parts *p)
{
    enum { GROUPS = 4 };
    int color[GROUPS * SHEAF_MAX_SLICES];
    const int in_group = p->ranks * p->stages, all = in_group * p->options->groups;
    for (int r = 0; r < all; r++) {
        color[r] = 0;
        color[all + r] = r / in_group;
        color[2 * all + r] = r / p->ranks;
        color[3 * all + r] = r % in_group;
    }
    return sheaf__process_run(p->options->processes, all, color, GROUPS, process_main, (void *)p);
}

sheaf_status *sheaf__grid_run(const sheaf__grid_options *options,
                              sheaf_status *(*body)(void *context, const sheaf__grid *grid),
                              void *context)
{
    parts p = { .options = options,
                .ranks = options->ranks,
                .stages = options->stages == 0 ? 1 : options->stages,
                .body = body,
                .context = context };
    const int groups = options->groups;
    sheaf_status *st = check(options, p.stages);
    if (st != NULL)
        return st;
    const int in_group = p.ranks * p.stages;
    if (options->transport == SHEAF_TRANSPORT_MPI && in_group * groups > 1)
        return run_processes(&p);
    st = make(p.of[GROUP], &p, groups, in_group);
    if (st == NULL && p.stages > 1)
        st = make(p.of[STAGE], &p, groups * p.stages, p.ranks);
    TRY(st, make(p.of[PEERS], &p, in_group, groups));
    TRY(st, sheaf__run_threads(in_group * groups, options->messages, rank_main, &p));
    for (int i = 0; i < KINDS * SHEAF_MAX_SLICES; i++)
        sheaf__threads_free(p.of[i / SHEAF_MAX_SLICES][i % SHEAF_MAX_SLICES]);
    return st;
}

void sheaf__grid_record(const sheaf__grid *grid, sheaf__activity *activity)
{
    sheaf_comm_record(grid->all, activity);
    if (grid->group != NULL)
        sheaf_comm_record(grid->group, activity);
    if (grid->stage != NULL && grid->stage != grid->group)
        sheaf_comm_record(grid->stage, activity);
    if (grid->peers != NULL)
        sheaf_comm_record(grid->peers, activity);
}
