/* fewer_ranks_test.c - how many ranks are left for a run when a host is gone. */
#include "tests/check.h"

#include "restarts.h"

static void test_restarts__fewer_ranks(void **state)
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
        cli_fewer_ranks(&tp, &dp, by_hand[i].left, by_hand[i].accumulators);
        assert_int_equal(tp, by_hand[i].want_tp);
        assert_int_equal(dp, by_hand[i].want_dp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_restarts__fewer_ranks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
