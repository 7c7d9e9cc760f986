/* fewer_ranks_test.c - which hosts and how many ranks are left for a run when a host is gone. */

#include "driver/hosts.h"
#include "driver/launch.h"
#include "tests/files.h"

TEST(test_restarts__fewer_ranks)
{
    static const struct {
        int tp, dp, left, accumulators, want_tp, want_dp;
    } by_hand[] = {
        { 8, 1, 6, 4, 6, 1 }, /* T is any number */
        { 4, 2, 4, 4, 2, 2 }, /* D stays */
        { 2, 4, 7, 4, 1, 4 }, /* T * D at most what is left */
        { 1, 4, 3, 4, 1, 2 }, /* D divides the accumulators */
        { 3, 4, 1, 4, 1, 1 }, { 8, 1, 8, 1, 8, 1 }, { 1, 1, 0, 4, 1, 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        int tp = by_hand[i].tp, dp = by_hand[i].dp;
        driver_fewer_ranks(&tp, &dp, by_hand[i].left, by_hand[i].accumulators);
        assert_int_equal(tp, by_hand[i].want_tp);
        assert_int_equal(dp, by_hand[i].want_dp);
    }
}

/* Host `lost` of the list is gone: what is left of it, and of `ranks`. */
static void leaves(const char *list, const char *file, int lost, int ranks, const char *words,
                   int left)
{
    driver_hosts hosts;
    CHECK_OK(driver_hosts_read(&hosts, list, file));
    if (lost >= 0)
        hosts.host[lost].lost = true;
    char *got = driver_hosts_words(&hosts, ranks);
    assert_string_equal(got, words);
    assert_int_equal(driver_hosts_left(&hosts, ranks), left);
    free(got);
    driver_hosts_release(&hosts);
}

TEST(test_restarts__hosts_that_are_left)
{
    leaves("a:2,b:2", NULL, 1, 4, "a:2", 2);
    leaves("a:2,b:2,10.0.0.3:4", "", 0, 8, "b:2,10.0.0.3:4", 6);
    leaves("a:8,b:8", NULL, 0, 4, "b:8", 4);      /* more slots than ranks */
    leaves("a,b,c", NULL, 2, 6, "a:2,b:2", 4);    /* their share */
    leaves("a,a,b", NULL, 1, 3, "a:2", 2);        /* a name counts as often as it is there */
    leaves("a:2,b:2", NULL, -1, 4, "a:2,b:2", 4); /* all are there */
    const char *path = at("hosts");
    put(path, "# ours\n\nn1 slots=2 max_slots=4\n  n2 slots=3\nn3:1\r\n");
    leaves(NULL, path, 0, 6, "n2:3,n3:1", 4);
    leaves("", path, 1, 6, "n1:2,n3:1", 3);
    put(path, "n1\nn2\n");
    leaves("", path, 0, 4, "n2:2", 2);
    put(path, "n1 slots=2\nn2 slots=3\nn3:1\n");
    driver_hosts hosts;
    CHECK_OK(driver_hosts_read(&hosts, NULL, path));
    assert_string_equal(hosts.host[0].name, "n1");
    assert_string_equal(hosts.host[2].name, "n3");
    driver_hosts_release(&hosts);
    CHECK_OK(driver_hosts_read(&hosts, NULL, NULL));
    assert_int_equal(hosts.count, 0);
    CHECK_FAILS(driver_hosts_read(&hosts, NULL, "/nowhere/hosts"), SHEAF_E_IO, "/nowhere/hosts");
    CHECK_FAILS(driver_hosts_read(&hosts, ",,", NULL), SHEAF_E_ARG, "--hosts ',,'");
    put(path, "# none yet\n\n");
    CHECK_FAILS(driver_hosts_read(&hosts, NULL, path), SHEAF_E_ARG, "--hostfile");
}

FIXTURE(make_scratch, remove_scratch);
