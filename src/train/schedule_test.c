/* schedule_test.c - factors worked by hand, and the rates of the recorded runs. */
#include "tests/check.h"
#include "tests/golden.h"

#include <jansson.h>

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

TEST(test_schedule__factors_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) /* tolerance: the cosine's last bit */
        CHECK_NEAR(by_hand[i].name, sheaf_schedule_factor(&by_hand[i].schedule, by_hand[i].done),
                   by_hand[i].want, 3e-16);
}

/* Rates that get_scheduler() of transformers 5.24 gave for lr 1, of every step and one after the
 * last. */
static const struct {
    const char *name;
    sheaf_schedule schedule;
    double want[14];
} of_transformers[] = {
    { "cosine_with_min_lr, min_lr_rate 0.1",
      { SHEAF_SCHEDULE_COSINE, 2, 10, .min_ratio = 0.1 },
      { 0.0, 0.5, 1.0, 0.9657457896300791, 0.8681980515339464, 0.7222075445642904, 0.55,
        0.3777924554357096, 0.23180194846605365, 0.13425421036992097, 0.1 } },
    { "warmup_stable_decay, min_lr_ratio 0.2",
      { SHEAF_SCHEDULE_WSD, 3, 12, .min_ratio = 0.2, .decay = 5 },
      { 0.2, 0.4666666666666667, 0.7333333333333334, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9236067977499791,
        0.7236067977499789, 0.4763932022500211, 0.27639320225002106, 0.2 } },
    { "warmup_stable_decay, nothing but decay",
      { SHEAF_SCHEDULE_WSD, 0, 6, .decay = 6 },
      { 1.0, 0.9330127018922194, 0.75, 0.5, 0.2500000000000001, 0.06698729810778065, 0.0 } },
    { "warmup_stable_decay, decay begins before the warm-up is over",
      { SHEAF_SCHEDULE_WSD, 4, 6, .min_ratio = 0.5, .decay = 4 },
      { 0.5, 0.625, 0.75, 0.875, 0.75, 0.5732233047033631, 0.5 } },
};

TEST(test_schedule__agrees_with_transformers_where_it_ends_above_zero)
{
    for (size_t i = 0; i < ARRAY_LEN(of_transformers); i++)
        for (int64_t s = 0; s <= of_transformers[i].schedule.steps; s++) /* the cosine's last bit */
            CHECK_NEAR(of_transformers[i].name,
                       sheaf_schedule_factor(&of_transformers[i].schedule, s),
                       of_transformers[i].want[s], 3e-16);
}

/* The rates that transformers logged, from the recordings' log.json. */
TEST(test_schedule__agrees_with_the_recorded_runs)
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

/* SAT's rule: W 4 of N 40, d 0.5, or W 2.6 from a ratio. */
#define SAT(KIND, ...)                                                                             \
    {                                                                                              \
        .kind = SHEAF_SCHEDULE_SAT_##KIND, .steps = 40, .decay_ratio = 0.5, __VA_ARGS__            \
    }
static const struct {
    const char *name;
    sheaf_schedule schedule;
    int64_t done;
    double want; /* of a rate of 8 */
} sat_by_hand[] = {
    { "the first step learns", SAT(CONSTANT, .warmup = 4), 0, 2 },
    { "warm-up ends at the W-th step", SAT(CONSTANT, .warmup = 4), 3, 8 },
    { "constant", SAT(CONSTANT, .warmup = 4), 30, 8 },
    { "linear falls over all N", SAT(LINEAR, .warmup = 4), 23, 4 },
    { "linear does not reach 0", SAT(LINEAR, .warmup = 4), 39, 0.8 },
    { "cosine, half of N after W", SAT(COSINE, .warmup = 4), 23, 6 },
    { "cosine, beyond the end", SAT(COSINE, .warmup = 4), 99, 4 },
    { "held down whatever W is", SAT(CONSTANT, .warmup = 4, .held_steps = 6, .held_rate = 0.125), 5,
      1 },
    { "held, but warm-up is lower still",
      SAT(CONSTANT, .warmup = 16, .held_steps = 6, .held_rate = 0.125), 0, 0.5 },
    { "held without warm-up", SAT(LINEAR, .held_steps = 6, .held_rate = 0.125), 0, 1 },
    { "after that as if it had not been",
      SAT(LINEAR, .warmup = 4, .held_steps = 6, .held_rate = 0.125), 7, 7.2 },
    { "a ratio need not be whole steps", SAT(CONSTANT, .warmup_ratio = 0.0625), 0, 3.2 },
    { "no warm-up, no hold", SAT(CONSTANT), 0, 8 },
};

TEST(test_schedule__sats_rates_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(sat_by_hand); i++) /* tolerance: the cosine's last bit */
        CHECK_NEAR(sat_by_hand[i].name,
                   sheaf_schedule_rate(&sat_by_hand[i].schedule, 8, sat_by_hand[i].done),
                   sat_by_hand[i].want, 2e-15);
    const sheaf_schedule up = { .kind = SHEAF_SCHEDULE_CONSTANT,
                                .steps = 10,
                                .warmup_ratio = 0.31 };
    CHECK_NEAR("the Trainer rounds a ratio up", sheaf_schedule_rate(&up, 8, 2), 4, 0);
}

/* Rates that SAT's own scheduler gave, one table per key. */
static int check_tables(const char *path)
{
    const char *name;
    json_t *tables = json_load_file(path, 0, NULL), *t;
    int n = 0;
    json_object_foreach(tables, name, t)
    {
        const json_t *rates = json_object_get(t, "lr_used_at_step_1based");
        char kind[64];
        snprintf(kind, sizeof kind, "sat-%s", json_string_value(json_object_get(t, "style")));
        const double lr = json_number_value(json_object_get(t, "base_lr"));
        int number = SHEAF_SCHEDULE_SAT_CONSTANT;
        while (number < SHEAF_SCHEDULE_KINDS - 1 && strcmp(sheaf_schedule_name(number), kind) != 0)
            number++;
        assert_string_equal(sheaf_schedule_name(number), kind);
        const sheaf_schedule s = {
            .kind = number,
            .steps = json_integer_value(json_object_get(t, "train_iters")),
            .warmup_ratio = json_number_value(json_object_get(t, "warmup")),
            .decay_ratio = json_number_value(json_object_get(t, "decay_ratio")),
            .held_steps = json_integer_value(json_object_get(t, "auto_warmup_steps")),
            .held_rate = json_number_value(json_object_get(t, "auto_warmup_rate"))
        };
        assert_true(sheaf_schedule_is_sat(s.kind) && json_array_size(rates) > 0);
        for (size_t i = 0; i < json_array_size(rates); i++, n++) {
            const double want = json_number_value(json_array_get(rates, i)),
                         slack = s.kind == SHEAF_SCHEDULE_SAT_COSINE
                                     ? 2.3e-16 * lr
                                     : 0; /* the cosine's last bit */
            CHECK_NEAR(name, sheaf_schedule_rate(&s, lr, (int64_t)i), want, slack);
        }
    }
    json_decref(tables);
    return n;
}

TEST(test_schedule__agrees_with_sats_tables)
{
    assert_true(golden_each("*/lr_schedules.json", check_tables) > 0 || !golden_is_full());
}

TEST(test_schedule__some_rate_is_above_zero)
{
    static const struct {
        sheaf_schedule of;
        bool learns;
        int64_t rises;
    } cases[] = {
        { { SHEAF_SCHEDULE_LINEAR, 0, 1 }, true, 0 },
        { { SHEAF_SCHEDULE_LINEAR, 1, 1 }, false, 1 },
        { { SHEAF_SCHEDULE_COSINE, .steps = 1, .warmup_ratio = 0.03 }, false, 1 },
        { { SHEAF_SCHEDULE_CONSTANT, 9, 2 }, true, 9 },
        { { SHEAF_SCHEDULE_COSINE, .steps = 34, .warmup_ratio = 0.03 }, true, 2 },
        { { SHEAF_SCHEDULE_WSD, 1, 1, .decay = 1 }, false, 1 },
        { { SHEAF_SCHEDULE_WSD, 1, 1, .decay = 1, .min_ratio = 0.1 }, true, 1 },
        { { SHEAF_SCHEDULE_SAT_CONSTANT, .steps = 7, .held_steps = 7 }, false, 7 },
        { { SHEAF_SCHEDULE_SAT_CONSTANT, .steps = 8, .held_steps = 7 }, true, 7 },
        { { SHEAF_SCHEDULE_SAT_CONSTANT, .steps = 8, .held_steps = 7, .warmup = 8 }, true, 8 },
        { { SHEAF_SCHEDULE_SAT_LINEAR, .steps = 8, .held_steps = 7 }, false, 7 },
        { { SHEAF_SCHEDULE_SAT_LINEAR, .steps = 8, .held_steps = 7, .held_rate = 0.1 }, true, 7 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool any = false;
        for (int64_t s = 0; s < cases[i].of.steps; s++)
            any |= sheaf_schedule_rate(&cases[i].of, 1, s) > 0;
        assert_int_equal(any, cases[i].learns);
        assert_int_equal(sheaf_schedule_learns(&cases[i].of), cases[i].learns);
        assert_int_equal(sheaf_schedule_rises(&cases[i].of), cases[i].rises);
    }
}
