/* process_test.c - what only ranks that are processes have: messages in pieces, waiting that takes
 * no processor, groups of processes, what the first one tells. With one process, as the unit tests
 * run it, the same calls are trivial. */
#include "tests/check.h"

#include <time.h>
#include <unistd.h>

#include "comm/grid.h"
#include "comm/run_test.h"

static unsigned char byte_of(size_t i, int rank)
{
    return (unsigned char)(i * 7 + i / 4099 + (size_t)rank * 31);
}

static bool is_pattern(const unsigned char *bytes, size_t size, int rank)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != byte_of(i, rank))
            return false;
    return true;
}

/* More than one piece from one rank to all, and from all to all. */
static sheaf_status *pieces_body(void *context, sheaf_comm *comm)
{
    const size_t much = ((size_t)17 << 20) + 5, little = 70001;
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    size_t size[SHEAF_MAX_SLICES], at = 0, mine = 0;
    for (int r = 0; r < ranks; r++) {
        size[r] = r == 1 ? much : little + (size_t)r;
        mine = r == rank ? at : mine;
        at += size[r];
    }
    unsigned char *bytes = malloc(at);
    sheaf_status *st = bytes == NULL ? sheaf_fail(SHEAF_E_MEMORY, "test") : NULL;
    for (size_t i = 0; st == NULL && i < much; i++)
        bytes[i] = rank == 1 ? byte_of(i, 1) : 0;
    if (st == NULL)
        st = sheaf_comm_broadcast(comm, bytes, much, 1);
    if (st == NULL && !is_pattern(bytes, much, 1))
        st = sheaf_fail(SHEAF_E_NUMBER, "broadcast, rank %d", rank);
    for (size_t i = 0; st == NULL && i < size[rank]; i++)
        bytes[mine + i] = byte_of(i, rank);
    if (st == NULL)
        st = sheaf_comm_gather(comm, bytes, size);
    for (int r = 0, from = 0; r < ranks && st == NULL; from += (int)size[r++])
        if (!is_pattern(bytes + from, size[r], r))
            st = sheaf_fail(SHEAF_E_NUMBER, "gather of rank %d, rank %d", r, rank);
    free(bytes);
    return st;
}

static void test_process__messages_of_several_pieces(void **state)
{
    const int ranks = sheaf__process_count() > 1 ? sheaf__process_count() : 2;
    CHECK_OK(run_ranks(ranks, true, pieces_body, NULL));
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 0 comes late; what the others spend meanwhile is theirs alone, as they are processes. */
static sheaf_status *late_body(void *context, sheaf_comm *comm)
{
    const double late = 1.0;
    double *spent = context;
    sheaf_status *st = sheaf_comm_barrier(comm);
    const double before = processor_seconds();
    if (sheaf_comm_rank(comm) == 0)
        usleep((useconds_t)(late * 1e6));
    if (st == NULL)
        st = sheaf_comm_barrier(comm);
    *spent = (processor_seconds() - before) / late;
    return st;
}

static void test_process__waiting_takes_no_processor(void **state)
{
    double spent = 0;
    if (sheaf__process_count() == 1)
        return;
    CHECK_OK(run_ranks(sheaf__process_count(), true, late_body, &spent));
    print_message("process %d: %.2f %% of a core while it waits\n", sheaf__process_number(),
                  100 * spent);
    assert_true(spent < 0.05);
}

/* Groups of one and two ranks, two groups or more: the world's number of each member. */
static sheaf_status *grid_body(void *context, const sheaf__grid *grid)
{
    const sheaf__grid_options *o = context;
    const int world = sheaf_comm_rank(grid->all);
    sheaf_status *st = NULL;
    if (grid->number != world / o->ranks || grid->groups != o->groups ||
        (grid->group == NULL) != (o->ranks == 1) || (grid->peers == NULL) != (o->groups == 1))
        st = sheaf_fail(SHEAF_E_NUMBER, "the grid of rank %d", world);
    for (int round = 0; round < 3 && st == NULL; round++) {
        int first = world + 100 * round, same = world + 100 * round;
        if (grid->group != NULL)
            st = sheaf_comm_broadcast(grid->group, &first, sizeof first, 0);
        if (st == NULL && grid->peers != NULL)
            st = sheaf_comm_broadcast(grid->peers, &same, sizeof same, 0);
        if (st == NULL && (first != grid->number * o->ranks + 100 * round ||
                           same != world % o->ranks + 100 * round))
            st = sheaf_fail(SHEAF_E_NUMBER, "groups of rank %d", world);
    }
    return sheaf__grid_agree(grid, st);
}

static void test_process__a_grid_of_groups(void **state)
{
    const int count = sheaf__process_count() > 1 ? sheaf__process_count() : 4;
    for (int ranks = 1; ranks <= count; ranks++) {
        sheaf__grid_options o = { .transport = sheaf__process_count() > 1 ? SHEAF_TRANSPORT_MPI
                                                                          : SHEAF_TRANSPORT_THREADS,
                                  .groups = count / ranks,
                                  .ranks = ranks };
        if (count % ranks == 0)
            CHECK_OK(sheaf__grid_run(&o, grid_body, &o));
    }
    if (sheaf__process_count() > 1) {
        sheaf__grid_options o = { .transport = SHEAF_TRANSPORT_MPI,
                                  .groups = 1,
                                  .ranks = count + 1 };
        CHECK_FAILS(sheaf__grid_run(&o, grid_body, &o), SHEAF_E_ARG, "one for each rank");
    }
}

static void test_process__what_the_first_tells(void **state)
{
    const int last = sheaf__process_count() - 1;
    char *text = strdup(sheaf__process_first() ? "of the first" : "of another");
    CHECK_OK(sheaf__process_share(&text));
    assert_string_equal(text, "of the first");
    free(text);
    text = sheaf__process_first() ? NULL : strdup("of another");
    CHECK_OK(sheaf__process_share(&text));
    assert_null(text);
    CHECK_OK(sheaf__process_agree(NULL));
    if (last == 0)
        return;
    sheaf_status *mine =
        sheaf__process_number() == last ? sheaf_fail(SHEAF_E_IO, "%02000d", 7) : NULL;
    char want[200]; /* a text that is too long for a message is cut, and names rank and host */
    snprintf(want, sizeof want, "rank %d on %s: 0000", last, sheaf__process_host(last));
    CHECK_FAILS(sheaf__process_agree(mine), SHEAF_E_IO,
                sheaf__process_number() == last ? "0000" : want);
}

int main(void)
{
    alarm(120); /* nothing here may hang */
    meet_for_test();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process__what_the_first_tells),
        cmocka_unit_test(test_process__a_grid_of_groups),
        cmocka_unit_test(test_process__messages_of_several_pieces),
        cmocka_unit_test(test_process__waiting_takes_no_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
