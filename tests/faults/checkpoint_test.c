/* checkpoint_test.c - every single call of a save is once the one that fails.
 *
 * Before each case the folder holds the state of step 1; the case saves step 2 with one
 * fault. Afterwards the newest checkpoint is step 1 or step 2, bit for bit, at any number
 * of ranks; a save that reported success is step 2; and saving again without a fault
 * succeeds and leaves nothing unfinished behind. */
#include <signal.h>
#include <sys/wait.h>

#include "denied_memory.h"
#include "tests/faults/tiny_state.h"

static char folder[80];
static char *wanted; /* listing of a step 2 that was saved in peace */

static void start_with_step_1(void)
{
    if (folder[0] != '\0')
        CHECK_OK(sheaf__remove_tree(folder));
    new_folder(folder);
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 1, .step = 1, .ranks = 1 }));
}

static tiny_run step_2(int ranks, int keep, sheaf_faults *faults)
{
    return (tiny_run){
        .out = folder, .seed = 2, .step = 2, .ranks = ranks, .keep = keep, .faults = faults
    };
}

/* What must hold after any fault. */
static void check_after(const char *name, long n, bool succeeded, int ranks)
{
    char path[128];
    tiny_run load = { .out = folder, .ranks = 1 + (int)(n % TINY_SLICES) };
    sheaf_status *st = tiny_load(&load);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        fail_msg("%s %ld: the newest checkpoint cannot be loaded", name, n);
    }
    if (load.found_step != 2 && (load.found_step != 1 || succeeded))
        fail_msg("%s %ld: step %d is the newest after a save that %s", name, n,
                 (int)load.found_step, succeeded ? "succeeded" : "failed");
    const tiny_run again = step_2(ranks, 1, NULL);
    CHECK_OK(tiny_save(&again));
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002", folder);
    char *now = listing_of(path), **names = NULL;
    if (strcmp(now, wanted) != 0)
        fail_msg("%s %ld: the files of a repeated save differ", name, n);
    free(now);
    int64_t count = 0;
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    CHECK_OK(sheaf__list_dir(&names, &count, path));
    if (count != 2) /* lock and step 2 */
        fail_msg("%s %ld: %d things in the folder", name, n, (int)count);
    sheaf__names_free(names, count);
}

/* Calls that a save makes. */
static long calls_of(sheaf_fault_op op, int ranks)
{
    sheaf_faults count = { .op = op };
    start_with_step_1();
    const tiny_run run = step_2(ranks, 1, &count);
    CHECK_OK(tiny_save(&run));
    return (long)count.seen;
}

static int setup(void **state)
{
    char path[128];
    start_with_step_1();
    const tiny_run run = step_2(1, 0, NULL);
    CHECK_OK(tiny_save(&run));
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002", folder);
    wanted = listing_of(path);
    return 0;
}

static int teardown(void **state)
{
    free(wanted);
    sheaf_status_free(sheaf__remove_tree(folder));
    return 0;
}

/* ---- files ---- */

TEST(test_save__a_call_that_fails)
{
    static const struct {
        sheaf_fault_action action;
        const char *name;
    } actions[] = { { SHEAF_FAULT_FAIL, "input/output error at call" },
                    { SHEAF_FAULT_ENOSPC, "full disk at call" } };
    for (int ranks = 1; ranks <= 3; ranks++) {
        const long calls = calls_of(SHEAF_FAULT_ANY, ranks);
        assert_true(calls > 40);
        long failures = 0;
        for (long n = 1; n <= calls * 2; n += every(3)) {
            const int which = n > calls;
            sheaf_faults faults = { SHEAF_FAULT_ANY, actions[which].action, which ? n - calls : n,
                                    which, 0 };
            start_with_step_1();
            const tiny_run run = step_2(ranks, 0, &faults); /* a full disk stays full */
            sheaf_status *st = tiny_save(&run);
            failures += st != NULL;
            const bool ok = st == NULL;
            sheaf_status_free(st);
            check_after(actions[which].name, n, ok, ranks);
        }
        assert_true(failures > calls / every(3)); /* most of them do stop a save */
    }
}

/* Each of these, if it fails, must be told: a lost write or sync is a lost checkpoint. */
TEST(test_save__no_failure_to_write_is_swallowed)
{
    static const sheaf_fault_op ops[] = { SHEAF_FAULT_OPEN, SHEAF_FAULT_WRITE, SHEAF_FAULT_FSYNC,
                                          SHEAF_FAULT_RENAME, SHEAF_FAULT_MKDIR };
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        sheaf_faults count = { .op = ops[i] };
        start_with_step_1();
        tiny_run run = step_2(2, 0, &count); /* keep all: nothing after the commit */
        CHECK_OK(tiny_save(&run));
        for (long n = 1; n <= (long)count.seen; n++) {
            sheaf_faults faults = { ops[i], SHEAF_FAULT_FAIL, n, false, 0 };
            start_with_step_1();
            run.faults = &faults;
            sheaf_status *st = tiny_save(&run);
            if (st == NULL)
                fail_msg("operation %d: failing call %ld was not told", (int)ops[i], n);
            if (sheaf_status_code(st) != SHEAF_E_IO)
                fail_msg("operation %d: failing call %ld gave code %d", (int)ops[i], n,
                         (int)sheaf_status_code(st));
            sheaf_status_free(st);
        }
    }
}

/* One for each file, the manifest, the folder before its rename, and the parent after it;
 * two at open, for OUT and what it lies in. Killing cannot show a missing sync. */
TEST(test_save__everything_is_synced)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        sheaf_faults count = { .op = SHEAF_FAULT_FSYNC };
        start_with_step_1();
        const tiny_run run = step_2(ranks, 0, &count);
        CHECK_OK(tiny_save(&run));
        assert_int_equal(count.seen, TINY_SLICES + 1 + 1 + 2 + 2);
    }
}

static void kill_at(sheaf_fault_action action, long n, int ranks)
{
    start_with_step_1();
    const pid_t pid = fork();
    if (pid == 0) {
        sheaf_faults faults = { SHEAF_FAULT_ANY, action, n, false, 0 };
        const tiny_run run = step_2(ranks, 1, &faults);
        sheaf_status_free(tiny_save(&run));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) && ranks == 1 &&
        action == SHEAF_FAULT_KILL) /* more ranks may need a call less */
        fail_msg("call %ld was not reached", n);
    check_after(action == SHEAF_FAULT_KILL ? "killed at call" : "torn at call", n,
                !WIFSIGNALED(status), ranks);
}

TEST(test_save__a_process_that_dies)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        const long calls = calls_of(SHEAF_FAULT_ANY, ranks);
        for (long n = ranks; n <= calls; n += every(7)) {
            kill_at(SHEAF_FAULT_KILL, n, ranks);
            kill_at(SHEAF_FAULT_TORN, n, ranks);
        }
    }
}

TEST(test_save__interrupted_and_short_calls_are_continued)
{
    static const sheaf_fault_action legal[] = { SHEAF_FAULT_EINTR, SHEAF_FAULT_SHORT };
    for (int i = 0; i < 2; i++) {
        sheaf_faults faults = { SHEAF_FAULT_WRITE, legal[i], 1, false, 0 };
        for (faults.n = 1; faults.n <= 30; faults.n += (uint64_t)every(3)) {
            faults.seen = 0;
            start_with_step_1();
            const tiny_run run = step_2(2, 0, &faults);
            CHECK_OK(tiny_save(&run));
            check_after("interrupted", (long)faults.n, true, 2);
        }
    }
}

/* ---- memory ---- */

/* Allocations of one save, or of one load when `load`. With at > 0 that one fails; the
 * status is freed. *live: blocks that were not given back. */
static long allocations(long at, int ranks, bool load, bool *ok, long *live)
{
    sheaf_faults hook = { SHEAF_FAULT_MALLOC, at > 0 ? SHEAF_FAULT_FAIL : SHEAF_FAULT_NONE, at,
                          false, 0 };
    tiny_run run = step_2(ranks, 1, DENIED_MEMORY_WORKS ? NULL : &hook);
    deny_begin(at);
    sheaf_status *st = load ? tiny_load(&run) : tiny_save(&run);
    *ok = st == NULL;
    sheaf_status_free(st);
    deny_end();
    *live = atomic_load(&deny_live);
    return DENIED_MEMORY_WORKS ? atomic_load(&deny_seen) : (long)hook.seen;
}

TEST(test_save__an_allocation_that_fails)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        bool ok;
        long live, failures = 0;
        start_with_step_1();
        allocations(0, ranks, false, &ok, &live); /* thread stacks and the like are made once */
        start_with_step_1();
        const long calls = allocations(0, ranks, false, &ok, &live);
        assert_true(ok && calls >= (DENIED_MEMORY_WORKS ? 100 : 10));
        for (long n = 1; n <= calls; n += every(3)) {
            start_with_step_1();
            allocations(n, ranks, false, &ok, &live);
            failures += !ok;
            if (ranks == 1 && live != 0)
                fail_msg("allocation %ld denied: %ld blocks were not freed", n, live);
            check_after("denied allocation", n, ok, ranks);
        }
        assert_true(failures >
                    calls / 4 /
                        every(3)); /* many are made by the removal of step 1, after the commit */
    }
}

TEST(test_load__an_allocation_that_fails)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        bool ok;
        long live;
        start_with_step_1();
        allocations(0, ranks, true, &ok, &live);
        const long calls = allocations(0, ranks, true, &ok, &live);
        for (long n = 1; n <= calls; n++) {
            allocations(n, ranks, true, &ok, &live);
            if (ranks == 1 && live != 0)
                fail_msg("allocation %ld denied: %ld blocks were not freed", n, live);
        }
        check_after("denied allocation in a load", calls, false, ranks);
    }
}

FIXTURE(setup, teardown);
