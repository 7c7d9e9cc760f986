/* schedule_test.c - factors worked by hand, and the rates of the recorded runs. */
#include "tests/check.h"
#include "train/schedule.h"

static const struct {
    const char *name;
    sheaf_schedule schedule;
    int64_t done;
    double want;
} by_hand[] = {
    { "constant, no warm-up", { SHEAF_SCHEDULE_CONSTANT, 0, 10 }, 0, 1 },
    { "constant, late", { SHEAF_SCHEDULE_CONSTANT, 0, 10 }, 500, 1 },
    { "warm-up starts at 0", { SHEAF_SCHEDULE_CONSTANT, 4, 10 }, 0, 0 },
    { "warm-up is linear", { SHEAF_SCHEDULE_COSINE, 4, 10 }, 3, 0.75 },
    { "warm-up ends at 1", { SHEAF_SCHEDULE_LINEAR, 4, 10 }, 4, 1 },
    { "linear, middle", { SHEAF_SCHEDULE_LINEAR, 4, 10 }, 7, 0.5 },
    { "linear, last step still learns", { SHEAF_SCHEDULE_LINEAR, 0, 5 }, 4, 0.2 },
    { "linear, after the end", { SHEAF_SCHEDULE_LINEAR, 0, 5 }, 9, 0 },
    { "cosine, start", { SHEAF_SCHEDULE_COSINE, 0, 4 }, 0, 1 },
    { "cosine, quarter", { SHEAF_SCHEDULE_COSINE, 0, 4 }, 1, 0.85355339059327378 },
    { "cosine, half", { SHEAF_SCHEDULE_COSINE, 0, 4 }, 2, 0.5 },
    { "cosine does not rise again", { SHEAF_SCHEDULE_COSINE, 0, 4 }, 8, 0 },
    { "all warm-up, then over", { SHEAF_SCHEDULE_LINEAR, 3, 3 }, 3, 0 },
    { "no steps at all", { SHEAF_SCHEDULE_COSINE, 0, 0 }, 0, 0 },
};

static void test_schedule__factors_worked_by_hand(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) /* tolerance: the cosine's last bit */
        CHECK_NEAR(by_hand[i].name, sheaf_schedule_factor(&by_hand[i].schedule, by_hand[i].done),
                   by_hand[i].want, 3e-16);
}

/* The rates that transformers logged, from the recordings' log.json. */
static void test_schedule__agrees_with_the_recorded_runs(void **state)
{
    static const double full[] = { 0, 0.002, 0.0017071067811865474, 0.001, 0.00029289321881345256 };
    static const double lora[] = { 0.02, 0.016, 0.012, 0.008, 0.004 };
    const sheaf_schedule cosine = { SHEAF_SCHEDULE_COSINE, 1, 5 };
    const sheaf_schedule linear = { SHEAF_SCHEDULE_LINEAR, 0, 5 };
    for (int s = 0; s < 5; s++) {
        CHECK_NEAR("cosine, lr 2e-3", 2e-3 * sheaf_schedule_factor(&cosine, s), full[s], 1e-18);
        CHECK_NEAR("linear, lr 2e-2", 2e-2 * sheaf_schedule_factor(&linear, s), lora[s], 4e-18);
    }
}

static void test_schedule__names_and_limits(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        assert_int_equal(sheaf_schedule_from_name(sheaf_schedule_name(kind)), kind);
    assert_int_equal(sheaf_schedule_from_name("Linear"), -1);
    const sheaf_schedule good = { SHEAF_SCHEDULE_LINEAR, 5, 5 };
    const sheaf_schedule late = { SHEAF_SCHEDULE_LINEAR, 6, 5 };
    const sheaf_schedule negative = { SHEAF_SCHEDULE_LINEAR, -1, 5 };
    const sheaf_schedule backwards = { SHEAF_SCHEDULE_LINEAR, 0, -5 };
    CHECK_OK(sheaf_schedule_check(&good));
    CHECK_FAILS(sheaf_schedule_check(&late), SHEAF_E_ARG, "--warmup");
    CHECK_FAILS(sheaf_schedule_check(&negative), SHEAF_E_ARG, "--warmup");
    CHECK_FAILS(sheaf_schedule_check(&backwards), SHEAF_E_ARG, "--steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule__factors_worked_by_hand),
        cmocka_unit_test(test_schedule__agrees_with_the_recorded_runs),
        cmocka_unit_test(test_schedule__names_and_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
