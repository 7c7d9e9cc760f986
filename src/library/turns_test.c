/* turns_test.c - when what is timed has been timed enough. Nothing here is measured. */
#include "tests/check.h"

#include "library/turns.h"

/* Turns of one thing that each take so long: how many there are, and how long they took. */
static int turns_of(double *took, const double *seconds, int many, int n)
{
    sheaf__turns of[4] = { 0 };
    int turn = 0;
    *took = 0;
    for (bool over = false; !over; turn++) {
        const double each = seconds[turn < many ? turn : many - 1];
        for (int i = 0; i < n; i++) {
            *took += each;
            if (sheaf__turns_count(turn, each, n))
                sheaf__turns_add(&of[i], each);
        }
        over = sheaf__turns_enough(of, n, turn + 1, SHEAF__MOST_STEPS, *took);
    }
    for (int i = 0; i < n; i++)
        assert_true(/* one counts */ of[i].n > 0);
    return turn;
}

static void test_turns__bounded_in_time(void **state)
{
    static const struct {
        const char *what;
        double seconds[3];
        int many, n, turns;
        double took;
    } by_hand[] = {
        { "a minute each: one is enough", { 60 }, 1, 1, 1, 60 },
        { "seven seconds: the first counts", { 7 }, 1, 1, 2, 14 },
        { "five: it does not", { 5 }, 1, 1, 3, 15 },
        { "alike and short: two seconds", { 0.25 }, 1, 1, 8, 2 },
        { "alike, half a second: four turns", { 0.5 }, 1, 1, 4, 2 },
        { "very short: as many as there may be", { 0.01 }, 1, 1, 32, 0.32 },
        { "four of them, as many in all", { 0.01 }, 1, 4, 8, 0.32 },
        { "four of two seconds: all in the first turn", { 2 }, 1, 4, 2, 16 },
        { "a slow first one does not count", { 3, 1 }, 2, 1, 4, 6 },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        double took;
        const int turns = turns_of(&took, by_hand[i].seconds, by_hand[i].many, by_hand[i].n);
        CHECK_NEAR(by_hand[i].what, turns, by_hand[i].turns, 0);
        CHECK_NEAR(by_hand[i].what, took, by_hand[i].took, 1e-9);
    }
}

static void test_turns__the_two_fastest_must_agree(void **state)
{
    sheaf__turns t = { 0 };
    assert_true(/* the first is the fastest */ sheaf__turns_add(&t, 3));
    assert_true(
        /* one turn is not two that agree */ !sheaf__turns_enough(&t, 1, 4, SHEAF__MOST_STEPS, 4));
    assert_true(/* a faster one */ sheaf__turns_add(&t, 1));
    assert_true(/* a slower one */ !sheaf__turns_add(&t, 1.04));
    CHECK_NEAR("second", t.second, 1.04, 0);
    assert_true(/* 4 % apart */ !sheaf__turns_enough(&t, 1, 4, SHEAF__MOST_STEPS, 4));
    assert_true(/* another */ !sheaf__turns_add(&t, 1.02));
    assert_true(/* 2 % apart */ sheaf__turns_enough(&t, 1, 4, SHEAF__MOST_STEPS, 4));
    assert_true(/* but three turns are few */ !sheaf__turns_enough(&t, 1, 3, SHEAF__MOST_STEPS, 4));
    CHECK_NEAR("the middle of 1, 1.02, 1.04, 3", sheaf__turns_middle(&t), 1.04, 0);
}

/* float16 skips steps until its scale is low enough: that ends too. */
static void test_turns__none_that_counts(void **state)
{
    const sheaf__turns none = { 0 };
    assert_true(/* goes on */ !sheaf__turns_enough(&none, 1, 3, SHEAF__MOST_STEPS, 20));
    assert_true(/* not for ever */ sheaf__turns_enough(&none, 1, 3, SHEAF__MOST_STEPS, 60));
    assert_true(/* nor so often */ sheaf__turns_enough(&none, 1, 32, SHEAF__MOST_STEPS, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns__bounded_in_time),
        cmocka_unit_test(test_turns__the_two_fastest_must_agree),
        cmocka_unit_test(test_turns__none_that_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
