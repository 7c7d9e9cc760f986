/* timed_test.c - what a list of ops becomes when the middle turn counts. Nothing here is measured.
 */
#include "tests/check.h"

#include "library/timed.h"

/* Two ops of a fastest turn, 6 and 2 s, half of which waited; turns of 10 s, and then `others`. */
static void begin(sheaf__timed *out, const double *others, int n)
{
    *out = (sheaf__timed){ 0 };
    sheaf__work_add(&out->work,
                    &(sheaf__work_entry){ .name = "a", .count = 1, .seconds = 6, .waiting = 3 });
    sheaf__work_add(&out->work,
                    &(sheaf__work_entry){ .name = "b", .count = 1, .seconds = 2, .waiting = 1 });
    sheaf__turns_add(&out->turns, 10);
    for (int i = 0; i < n; i++)
        sheaf__turns_add(&out->turns, others[i]);
}

static void test_timed__the_middle_turn_by_hand(void **state)
{
    static const struct {
        const char *what;
        double listed[2], plain[3], first, second, beside;
    } by_hand[] = {
        { "all turns alike", { 10, 10 }, { 9, 9, 9 }, 6, 2, 1 },
        { "the middle takes half more", { 15, 90 }, { 15, 8, 90 }, 9, 3, 3 },
        { "no more than a turn without a list", { 10, 10 }, { 4, 3, 90 }, 3, 1, 0 },
        { "nor than the middle one of those", { 15, 90 }, { 1, 10, 90 }, 7.5, 2.5, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        sheaf__timed timed;
        sheaf__turns plain = { 0 };
        begin(&timed, by_hand[i].listed, 2);
        for (int k = 0; k < 3; k++)
            sheaf__turns_add(&plain, by_hand[i].plain[k]);
        const double beside = sheaf__timed_as_middle(&timed, &plain);
        CHECK_NEAR(by_hand[i].what, timed.work.entry[0].seconds, by_hand[i].first, 1e-12);
        CHECK_NEAR(by_hand[i].what, timed.work.entry[1].seconds, by_hand[i].second, 1e-12);
        CHECK_NEAR(by_hand[i].what, timed.work.entry[0].waiting, by_hand[i].first / 2, 1e-12);
        CHECK_NEAR(by_hand[i].what, beside, by_hand[i].beside, 1e-12);
        sheaf__work_release(&timed.work);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timed__the_middle_turn_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
