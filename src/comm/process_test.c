/* process_test.c - what only ranks that are processes have: messages in pieces, waiting that takes
 * no processor, groups of processes, what the first one tells. With one process, as the unit tests
 * run it, the same calls are trivial. */
#include "tests/check.h"

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "comm/grid.h"
#include "comm/plugins.h"
#include "tests/comm_run.h"
#include "base/status.h"

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
    sheaf_status *st = bytes == NULL ? sheaf__no_memory("test") : NULL;
    for (size_t i = 0; st == NULL && i < much; i++)
        bytes[i] = rank == 1 ? byte_of(i, 1) : 0;
    TRY(st, sheaf_comm_broadcast(comm, bytes, much, 1));
    if (st == NULL && !is_pattern(bytes, much, 1))
        st = sheaf_fail(SHEAF_E_NUMBER, "broadcast, rank %d", rank);
    for (size_t n = (16 << 10) - 64; st == NULL && n <= 16 << 10; n++) /* as fits a message */
        st = sheaf_comm_broadcast(comm, bytes, n, 1);
    for (size_t i = 0; st == NULL && i < size[rank]; i++)
        bytes[mine + i] = byte_of(i, rank);
    TRY(st, sheaf_comm_gather(comm, bytes, size));
    for (int r = 0, from = 0; r < ranks && st == NULL; from += (int)size[r++])
        if (!is_pattern(bytes + from, size[r], r))
            st = sheaf_fail(SHEAF_E_NUMBER, "gather of rank %d, rank %d", r, rank);
    free(bytes);
    return st;
}

TEST(test_process__messages_of_several_pieces)
{
    const int ranks = sheaf__all_count(met.all) > 1 ? sheaf__all_count(met.all) : 2;
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
    TRY(st, sheaf_comm_barrier(comm));
    *spent = (processor_seconds() - before) / late;
    return st;
}

TEST(test_process__waiting_takes_no_processor)
{
    double spent = 0;
    if (sheaf__all_count(met.all) == 1)
        return;
    CHECK_OK(run_ranks(sheaf__all_count(met.all), true, late_body, &spent));
    print_message("process %d: %.2f %% of a core while it waits\n", sheaf__all_number(met.all),
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
    return agree_in_grid(grid, st);
}

TEST(test_process__a_grid_of_groups)
{
    const int count = sheaf__all_count(met.all) > 1 ? sheaf__all_count(met.all) : 4;
    for (int ranks = 1; ranks <= count; ranks++) {
        sheaf__grid_options o = { .processes = met.all,
                                  .transport = sheaf__all_count(met.all) > 1
                                                   ? SHEAF_TRANSPORT_MPI
                                                   : SHEAF_TRANSPORT_THREADS,
                                  .groups = count / ranks,
                                  .ranks = ranks };
        if (count % ranks == 0)
            CHECK_OK(sheaf__grid_run(&o, grid_body, &o));
    }
    if (sheaf__all_count(met.all) > 1) {
        sheaf__grid_options o = {
            .processes = met.all, .transport = SHEAF_TRANSPORT_MPI, .groups = 1, .ranks = count + 1
        };
        CHECK_FAILS(sheaf__grid_run(&o, grid_body, &o), SHEAF_E_ARG, "one for each rank");
    }
}

TEST(test_process__what_the_first_tells)
{
    const int last = sheaf__all_count(met.all) - 1;
    /* as long as the memory that is taken for it, so that its end has to be sent, too */
    char *text =
        strdup(sheaf__all_first(met.all) ? "told by the first one" : "told by another one, x");
    CHECK_OK(sheaf__all_share(met.all, &text));
    assert_string_equal(text, "told by the first one");
    free(text);
    text = sheaf__all_first(met.all) ? NULL : strdup("of another");
    CHECK_OK(sheaf__all_share(met.all, &text));
    assert_null(text);
    CHECK_OK(sheaf__all_agree(met.all, NULL));
    if (last == 0)
        return;
    sheaf_status *mine = sheaf__all_number(met.all) != last
                             ? NULL
                             : sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%02000d", 7), ESTALE);
    char want[200]; /* a text that is too long for a message is cut, and names rank and host */
    snprintf(want, sizeof want, "rank %d on %s: 0000", last, sheaf__all_host(met.all, last));
    sheaf_status *st = sheaf__all_agree(met.all, mine);
    if (sheaf__all_number(met.all) != last)
        assert_int_equal(strlen(sheaf_status_where(st)), strlen(want) - 4 + 1000);
    assert_int_equal(sheaf_status_errno(st), ESTALE);
    CHECK_FAILS(st, SHEAF_E_IO, sheaf__all_number(met.all) == last ? "0000" : want);
}

/* Messages to the next process and from the one before, in the order of their tags; one that is
 * too large for its room is an error, and not the end. */
TEST(test_process__what_a_module_does)
{
    static const int tags[] = { 30002, 30001, 30003 };
    static const char bytes[] = "abcdefgh";
    const int count = sheaf__all_count(met.all), next = (sheaf__all_number(met.all) + 1) % count,
              before = (sheaf__all_number(met.all) + count - 1) % count;
    const sheaf__mpi *mpi = NULL;
    char *path = NULL, got[3][8] = { "" }, text[SHEAF__MPI_TEXT] = "";
    sheaf__mpi_request to[3], from[3];
    if (count == 1)
        return;
    CHECK_OK(sheaf__plugin_find(&path, NULL));
    CHECK_OK(sheaf__plugin_load(&mpi, path));
    free(path);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mpi->receive(&from[i], got[i], 5, before, tags[i]), 0);
    bool done = true;
    int size = -1, error = 0;
    assert_int_equal(mpi->test(&done, &size, &from[0]), 0);
    assert_true(!done && size == 0); /* nothing has been sent */
    CHECK_OK(sheaf__all_agree(met.all, NULL));
    for (int i = 0; i < 3; i++) /* 1, 5 and 8 bytes */
        assert_int_equal(mpi->send(&to[i], bytes, i == 0 ? 1 : 3 * i + 2, next, 30001 + i), 0);
    for (int i = 0; i < 6; i++) {
        do
            error = mpi->test(&done, &size, i < 3 ? &from[i] : &to[i - 3]);
        while (!done && error == 0);
        assert_true((error != 0) == (i == 2)); /* of tag 30003 */
        if (i < 2)
            assert_int_equal(size, i == 0 ? 5 : 1);
        if (i == 2)
            mpi->explain(text, error);
    }
    assert_memory_equal(got[0], "abcde", 5);
    assert_string_equal(got[1], "a");
    assert_true(text[0] != '\0');
}

/* All on one machine, as here, with the same cores. The last test: it leaves each its own. */
TEST(test_process__neighbours_share_cores)
{
    cpu_set_t cores;
    int number = -1;
    const int count = sheaf__all_count(met.all), mine = sheaf__all_number(met.all);
    assert_int_equal(sheaf__process_local(met.all, &number), count);
    assert_int_equal(number, mine);
    assert_int_equal(sheaf__process_threads(met.all, 1), 1);
    assert_int_equal(sheaf__process_threads(met.all, 2 * count + 1), mine == count - 1 ? 3 : 2);
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    const int all = CPU_COUNT(&cores);
    assert_int_equal(sheaf__process_pin(met.all), count > 1 && all >= count);
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    assert_int_equal(CPU_COUNT(&cores), count == 1 || all < count
                                            ? all
                                            : all * (mine + 1) / count - all * mine / count);
}

static int begin(void **state)
{
    alarm(120); /* nothing here may hang */
    meet_for_test();
    return 0;
}

FIXTURE(begin, NULL);
