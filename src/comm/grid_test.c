/* grid_test.c - every rank of a grid finds itself in the groups that grid.h says, at every shape;
 * a rank that fails reaches all others, whichever group they wait in (an alarm ends the test that
 * hangs). */
#include "tests/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "comm/grid.h"
#include "tests/comm_run.h"

#define EXPECT(what, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return sheaf_fail(SHEAF_E_NUMBER, "%s: line %d, rank %d", (what), __LINE__,            \
                              sheaf_comm_rank(grid->all));                                         \
    } while (0)

typedef struct shape {
    sheaf__grid_options o;
    int fails;       /* the rank that fails; -1: none */
    int where;       /* 0: before a call of its group, 1: of its peers, 2: of all */
    bool lives;      /* it agrees with the others; else it returns, or... */
    bool exits;      /* ...its thread ends */
    atomic_int told; /* ranks that got the reason */
} shape;

static sheaf_status *gathers(const sheaf__grid *grid, sheaf_comm *comm, int base, int stride,
                             int count)
{
    int world[SHEAF_MAX_SLICES] = { 0 };
    size_t size[SHEAF_MAX_SLICES];
    if (comm == NULL) {
        EXPECT("a group of one has none", count == 1);
        return NULL;
    }
    EXPECT("ranks of a group", sheaf_comm_ranks(comm) == count);
    for (int i = 0; i < count; i++)
        size[i] = sizeof *world;
    world[sheaf_comm_rank(comm)] = sheaf_comm_rank(grid->all);
    OR_RETURN(sheaf_comm_gather(comm, world, size));
    for (int i = 0; i < count; i++)
        EXPECT("who is in it", world[i] == base + i * stride);
    return NULL;
}

static sheaf_status *places_body(void *context, const sheaf__grid *grid)
{
    const sheaf__grid_options *o = &((shape *)context)->o;
    const int world = sheaf_comm_rank(grid->all), stages = o->stages == 0 ? 1 : o->stages,
              in_group = stages * o->ranks, mine = world % in_group;
    EXPECT("all", sheaf_comm_ranks(grid->all) == in_group * o->groups);
    EXPECT("groups", grid->groups == o->groups && grid->number == world / in_group);
    OR_RETURN(gathers(grid, grid->group, world - mine, 1, in_group));
    OR_RETURN(gathers(grid, grid->stage, world - world % o->ranks, 1, o->ranks));
    return gathers(grid, grid->peers, mine, in_group, o->groups);
}

TEST(test_grid__ranks_find_their_groups)
{
    for (int groups = 1; groups <= 4; groups++)
        for (int stages = 0; stages <= 3; stages++)
            for (int ranks = 1; ranks <= 3; ranks++)
                for (int messages = 0; messages < 2; messages++) {
                    shape s = { .o = { .groups = groups,
                                       .stages = stages,
                                       .ranks = ranks,
                                       .messages = messages } };
                    CHECK_OK(sheaf__grid_run(&s.o, places_body, &s));
                }
}

static sheaf_status *fails_here(shape *s, const sheaf__grid *grid, int where)
{
    if (sheaf_comm_rank(grid->all) != s->fails || s->where != where)
        return NULL;
    if (s->exits)
        pthread_exit(NULL);
    return sheaf_fail(SHEAF_E_DATA, "rank %d fails", s->fails);
}

static sheaf_status *calls(shape *s, const sheaf__grid *grid)
{
    for (int round = 0; round < 3; round++) {
        int value = grid->number;
        if (round == 1)
            OR_RETURN(fails_here(s, grid, 0));
        if (grid->group != NULL)
            OR_RETURN(sheaf_comm_broadcast(grid->group, &value, sizeof value, 0));
        EXPECT("within a group", value == grid->number);
        if (round == 1)
            OR_RETURN(fails_here(s, grid, 1));
        if (grid->peers != NULL)
            OR_RETURN(sheaf_comm_broadcast(grid->peers, &value, sizeof value, grid->groups - 1));
        EXPECT("among peers", value == grid->groups - 1);
        if (!s->lives) {
            if (round == 1)
                OR_RETURN(fails_here(s, grid, 2));
            OR_RETURN(sheaf_comm_barrier(grid->all));
        }
    }
    return NULL;
}

static sheaf_status *failing_body(void *context, const sheaf__grid *grid)
{
    shape *s = context;
    sheaf_status *st = calls(s, grid);
    if (s->lives)
        st = agree_in_grid(grid, st);
    if (st != NULL)
        atomic_fetch_add(&s->told, 1);
    if (!s->lives || st == NULL)
        return st;
    EXPECT("the reason", sheaf_status_code(st) == SHEAF_E_DATA);
    sheaf_status_free(st);
    return calls(&(shape){ .fails = -1 }, grid); /* all can go on */
}

TEST(test_grid__a_failure_reaches_every_group)
{
    static const sheaf__grid_options grids[] = { { .groups = 2, .ranks = 1 },
                                                 { .groups = 1, .ranks = 3 },
                                                 { .groups = 2, .ranks = 2 },
                                                 { .groups = 4, .ranks = 2 },
                                                 { .groups = 3, .ranks = 3 } };
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        const int all = grids[g].groups * grids[g].ranks;
        for (int fails = 0; fails < all; fails++)
            for (int how = 0; how < 14; how++) { /* 0-5 leaves, 6-9 lives, 10-13 its thread ends */
                shape s = { .o = grids[g], .fails = fails, .where = how / 2 % 3 };
                s.o.messages = how & 1;
                s.lives = how >= 6 && how < 10;
                s.exits = how >= 10 && fails > 0; /* the first is this thread */
                if (s.lives || s.exits)
                    s.where = how / 2 % 2;
                sheaf_status *st = sheaf__grid_run(&s.o, failing_body, &s);
                const int told = s.exits ? all - 1 : all;
                if (atomic_load(&s.told) != told)
                    fail_msg("grid %zu, rank %d, how %d: %d of %d know", g, fails, how,
                             atomic_load(&s.told), told);
                if (s.lives)
                    CHECK_OK(st);
                else
                    CHECK_FAILS(st, s.exits ? SHEAF_E_PEER : SHEAF_E_DATA, "rank");
            }
    }
}

TEST(test_grid__numbers_that_cannot_be)
{
    static const sheaf__grid_options bad[] = {
        { .groups = 33, .ranks = 2 },
        { .groups = 0, .ranks = 2 },
        { .groups = 1, .ranks = 0 },
        { .groups = 2, .ranks = 2, .stages = 17 },
        { .groups = 1, .ranks = 1 << 30, .stages = 1 << 30 },
        { .groups = 1, .ranks = 1, .stages = -1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(sheaf__grid_run(&bad[i], places_body, NULL), SHEAF_E_ARG, "1 to 64 in all");
}

static int begin(void **state)
{
    alarm(120); /* nothing here may hang */
    return 0;
}

FIXTURE(begin, NULL);
