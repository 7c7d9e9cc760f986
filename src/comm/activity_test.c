/* activity_test.c - a record says what its rank is doing while it does it, in all its groups. */
#include "tests/check.h"

#include <unistd.h>

#include "comm/comm.h"
#include "comm/activity.h"

static sheaf__activity record[3];

/* Waits for the others to be in `call`: a minute at most. */
static bool all_are_in(const char *call, int but)
{
    for (int tries = 0; tries < 60000; tries++) {
        bool there = true;
        for (int r = 0; r < 3; r++) {
            const char *is = atomic_load(&record[r].call);
            there = there && (r == but || (is != NULL && strcmp(is, call) == 0));
        }
        if (there)
            return true;
        usleep(1000);
    }
    return false;
}

static sheaf_status *body(void *context, sheaf_comm *comm)
{
    const int me = sheaf_comm_rank(comm);
    size_t size[3] = { 1, 1, 1 };
    char all[3] = { 0 };
    int flag = 0;
    bool seen = true;
    sheaf__activity_init(&record[me], me);
    sheaf_comm_record(comm, &record[me]);
    sheaf_status *st = sheaf_comm_barrier(comm); /* no rank reads a record before it is begun */
    const char *const call[] = { "barrier", "gather", "any", "broadcast", "agree" };
    for (int i = 0; i < 5 && st == NULL; i++) {
        if (me == i % 3)
            seen = seen && all_are_in(call[i], me);
        st = i == 0   ? sheaf_comm_barrier(comm)
             : i == 1 ? sheaf_comm_gather(comm, all, size)
             : i == 2 ? sheaf_comm_any(comm, &flag)
             : i == 3 ? sheaf_comm_broadcast(comm, all, 3, 1)
                      : sheaf_comm_agree(comm, NULL);
        if (st == NULL && (atomic_load(&record[me].call) != NULL ||
                           atomic_load(&record[me].calls) != (uint64_t)i + 2))
            st = sheaf_fail(SHEAF_E_NUMBER, "rank %d after %s", me, call[i]);
    }
    if (st == NULL && !seen)
        st = sheaf_fail(SHEAF_E_NUMBER, "rank %d saw no others in their call", me);
    return st;
}

TEST(test_doing__calls_are_told_while_they_last)
{
    CHECK_OK(sheaf_comm_run_threads(3, body, NULL));
}

/* Until the next call. */
static const char *shown(const sheaf__report *report)
{
    static char line[512];
    sheaf_text text = { 0 };
    sheaf__report_show(&text, report);
    snprintf(line, sizeof line, "%s", text.at);
    sheaf__text_release(&text);
    return line;
}

TEST(test_doing__shown)
{
    sheaf__activity d;
    sheaf__report report;
    sheaf__activity_init(&d, 3);
    memcpy(d.host, "n2", 3);
    sheaf__activity_report(&report, &d);
    assert_string_equal(shown(&report), "rank 3 (host n2): in no call, after call 0, for 0 s");
    sheaf__activity_step(&d, 12, 2);
    sheaf__activity_op(&d, "backward", "attention", 5);
    sheaf__activity_call(&d, "sum");
    sheaf__activity_report(&report, &d);
    report.for_ms = 61999;
    assert_string_equal(shown(&report), "rank 3 (host n2): in sum, call 1, for 61 s; step 12, "
                                        "micro-batch 2, layer 5, backward of attention");
    sheaf__activity_return(&d);
    sheaf__activity_phase(&d, "saving");
    sheaf__activity_step(&d, 12, 0);
    sheaf__activity_report(&report, &d);
    assert_string_equal(shown(&report),
                        "rank 3 (host n2): in no call, after call 1, for 0 s; step 12, saving");
    assert_int_equal(report.ticks, 6);
    sheaf__activity_step(&d, 0, 0);
    sheaf__activity_number(&d, "row", 17);
    sheaf__activity_report(&report, &d);
    assert_string_equal(shown(&report),
                        "rank 3 (host n2): in no call, after call 1, for 0 s; saving, row 17");
    sheaf__activity_phase(&d, NULL);
    sheaf__activity_item(&d, "a\033[2Jb"); /* as a file may name it */
    sheaf__activity_report(&report, &d);
    assert_string_equal(shown(&report),
                        "rank 3 (host n2): in no call, after call 1, for 0 s; a?[2Jb");
    char longest[2 * SHEAF__ITEM];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    sheaf__activity_item(&d, longest);
    sheaf__activity_report(&report, &d);
    assert_int_equal(strlen(report.item), SHEAF__ITEM - 1);
    sheaf__activity_item(&d, NULL);
    sheaf__activity_report(&report, &d);
    assert_string_equal(report.item, "");
    sheaf__activity_item(NULL, "nobody watches");
    sheaf__activity_idle(NULL, true);
    sheaf__activity_call(NULL, "sum");
    sheaf__activity_return(NULL);
    sheaf__activity_op(NULL, "forward", NULL, 0);
    sheaf__activity_step(NULL, 1, 1);
}

static int begin(void **state)
{
    alarm(120); /* nothing here may hang */
    return 0;
}

FIXTURE(begin, NULL);
