/* groups_test.c - advantages worked by hand, slopes against differences of the losses. What TRL
 * computes is in tests/parity/preference_test.c. */
#include "train/groups.h"

#include <math.h>

#include "tests/check.h"

static sheaf__group_loss loss_of(const char *name, const char *type, double beta,
                                 const sheaf__group_options *o)
{
    sheaf__group_loss out;
    CHECK_OK(sheaf__groups_read(&out, name, type, beta, o));
    return out;
}

/* ---- advantages ---- */

/* Deviations by n - 1: of { 1, 3 } sqrt 2, of { 0, 0, 6 } sqrt 12, of all five sqrt 6.5. */
static const struct {
    const char *name, *objective, *scale;
    double reward[5], want[5];
} by_hand[] = {
    { "by the group's deviation",
      "grpo",
      "group",
      { 1, 3, 0, 0, 6 },
      { -1 / (1.41421356237 + 1e-4), 1 / (1.41421356237 + 1e-4), -2 / (3.46410161514 + 1e-4),
        -2 / (3.46410161514 + 1e-4), 4 / (3.46410161514 + 1e-4) } },
    { "by that of all",
      "grpo",
      "batch",
      { 1, 3, 0, 0, 6 },
      { -1 / (2.54950975680 + 1e-4), 1 / (2.54950975680 + 1e-4), -2 / (2.54950975680 + 1e-4),
        -2 / (2.54950975680 + 1e-4), 4 / (2.54950975680 + 1e-4) } },
    { "as they are", "grpo", "none", { 1, 3, 0, 0, 6 }, { -1, 1, -2, -2, 4 } },
    { "no reward, no advantage, nor a place in the mean",
      "grpo",
      "none",
      { 1, 3, 0, NAN, 6 },
      { -1, 1, -3, 0, 3 } },
    { "one reward is no spread", "grpo", "group", { 1, NAN, NAN, NAN, NAN }, { 0, 0, 0, 0, 0 } },
    { "equal rewards have none, to the last bit",
      "grpo",
      "group",
      { 0.1, 0.1, 0.7, 0.7, 0.7 },
      { 0, 0, 0, 0, 0 } },
    { "beside the mean of the others", "rloo", NULL, { 1, 3, 0, 0, 6 }, { -2, 2, -3, -3, 6 } },
    { "alone in its group", "rloo", NULL, { 1, NAN, 0.3, 0.3, 0.3 }, { 0, 0, 0, 0, 0 } },
};

TEST(test_groups__advantages_worked_by_hand)
{
    /* one group's members need not follow each other */
    static const int at[2][5] = { { 0, 1, 2, 3, 4 }, { 2, 0, 3, 1, 4 } };
    static const int64_t group[5] = { 7, 7, 2, 2, 2 };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++)
        for (int order = 0; order < 2; order++) {
            const sheaf__group_loss o =
                loss_of(by_hand[i].objective, NULL, 0,
                        &(sheaf__group_options){ .scale_rewards = by_hand[i].scale });
            double reward[5], got[5];
            int64_t of[5];
            for (int k = 0; k < 5; k++) {
                reward[k] = by_hand[i].reward[at[order][k]];
                of[k] = group[at[order][k]];
            }
            sheaf__groups_advantages(got, &o, reward, of, NULL, 5);
            for (int k = 0; k < 5; k++) {
                CHECK_NEAR(by_hand[i].name, got[k], by_hand[i].want[at[order][k]], 1e-10);
                if (by_hand[i].want[at[order][k]] == 0)
                    assert_true(got[k] == 0);
            }
        }
}

/* Of rloo the distance from the reference is part of the reward, of normalised ones the mean is 0
 * and the deviation nearly 1. */
TEST(test_groups__a_reward_is_less_what_it_costs)
{
    static const double reward[] = { 1, 3, 2 }, kl[] = { 10, 0, 20 };
    static const int64_t group[3] = { 0 };
    double got[3];
    sheaf__group_loss o = loss_of("rloo", NULL, 0.1, &(sheaf__group_options){ 0 });
    sheaf__groups_advantages(got, &o, reward, group, kl, 3); /* of 0, 3, 0 */
    CHECK_NEAR("0 beside 3 and 0", got[0], -1.5, 1e-12);
    CHECK_NEAR("3 beside 0 and 0", got[1], 3, 1e-12);
    o.normalize = true;
    sheaf__groups_advantages(got, &o, reward, group, kl, 3);
    CHECK_NEAR("mean", got[0] + got[1] + got[2], 0, 1e-12);
    CHECK_NEAR("deviation", got[1], 3 / (sqrt(6.75) + 1e-4), 1e-12);
}

/* ---- losses ---- */

enum { TOKENS = 4 };

static double loss_at(double *weight, const sheaf__group_loss *o, const double *lp,
                      const float *old, const float *reference, double advantage)
{
    static const sheaf__group_counts counts = { 6, 20, 3, 9 };
    float now[TOKENS];
    sheaf__group_sums sums = { 0 };
    for (int t = 0; t < TOKENS; t++)
        now[t] = (float)lp[t];
    return sheaf__groups_weigh(
        weight, &sums, o,
        &(sheaf__completion){
            .lp = now, .old = old, .reference = reference, .n = TOKENS, .advantage = advantage },
        &counts);
}

/* Log-probabilities are float32: steps of 2^-8, exact there; the error of the difference is that of
 * its second order, below 1e-4 of the slope here. */
static void check_slopes(const char *name, const sheaf__group_loss *o, double advantage)
{
    static const double lp[TOKENS] = { -1.0, -2.25, -0.5, -3.0 };
    static const float old[TOKENS] = { -1.125f, -2.0f, -0.5625f, -2.875f },
                       reference[TOKENS] = { -1.5f, -2.125f, -0.25f, -3.25f };
    const double step = 1.0 / 1024;
    double weight[TOKENS], unused[TOKENS];
    loss_at(weight, o, lp, old, o->beta > 0 ? reference : NULL, advantage);
    for (int t = 0; t < TOKENS; t++) {
        double near[2][TOKENS];
        for (int k = 0; k < 2; k++) {
            memcpy(near[k], lp, sizeof lp);
            near[k][t] += k == 0 ? step : -step;
        }
        const float *r = o->beta > 0 ? reference : NULL;
        const double slope = (loss_at(unused, o, near[0], old, r, advantage) -
                              loss_at(unused, o, near[1], old, r, advantage)) /
                             (2 * step);
        CHECK_NEAR(name, weight[t], -slope, 1e-5);
    }
}

TEST(test_groups__weights_are_the_slopes_of_losses)
{
    static const char *const types[] = { "dapo", "grpo", "bnpo", "dr-grpo", "sapo", "gspo" };
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int k = 0; k < 12; k++) {
            const sheaf__group_loss o =
                loss_of("grpo", types[i], k % 3 == 0 ? 0 : 0.3,
                        &(sheaf__group_options){ .max_new = 16,
                                                 .epsilon = i == 4 ? 0 : 0.1,
                                                 .epsilon_high = k % 2 == 0 ? 0 : 0.4,
                                                 .delta = k > 5 && i != 4 ? 1.05 : 0,
                                                 .plain_kl = k % 3 == 1 });
            check_slopes(types[i], &o, 1.5);
            check_slopes(types[i], &o, -0.75);
        }
    const sheaf__group_loss rloo = loss_of("rloo", NULL, 0, &(sheaf__group_options){ 0 });
    check_slopes("rloo", &rloo, 1.5);
    check_slopes("rloo", &rloo, -0.75);
}

/* Of cispo the ratio is a factor without slope: the weight is that of the log-probability alone. */
TEST(test_groups__cispo_keeps_what_others_clip)
{
    static const float lp[] = { -1, -2 }, old[] = { -3, -2 };
    double weight[2];
    sheaf__group_sums sums = { 0 };
    const sheaf__group_loss o =
        loss_of("grpo", "cispo", 0, &(sheaf__group_options){ .epsilon_high = 4 });
    const double loss = sheaf__groups_weigh(
        weight, &sums, &o, &(sheaf__completion){ .lp = lp, .old = old, .n = 2, .advantage = 0.5 },
        &(sheaf__group_counts){ .rows = 1, .tokens = 10 });
    CHECK_NEAR("weights", weight[0], 4 * 0.5 / 10, 1e-12);
    CHECK_NEAR("weights", weight[1], 0.5 / 10, 1e-12);
    CHECK_NEAR("loss", loss, (4 * 0.5 * 1 + 0.5 * 2) / 10, 1e-12);
    CHECK_NEAR("clipped", sums.clipped, 1, 0);
}

/* On policy the ratio is 1 to the last bit, and a completion's weights are its advantage's. */
TEST(test_groups__on_policy_nothing_is_clipped)
{
    static const float lp[] = { -1.7f, -0.3f, -12.1f };
    double weight[3];
    sheaf__group_sums sums = { 0 };
    const sheaf__group_loss o = loss_of("grpo", NULL, 0, &(sheaf__group_options){ 0 });
    const double loss = sheaf__groups_weigh(
        weight, &sums, &o, &(sheaf__completion){ .lp = lp, .old = lp, .n = 3, .advantage = 0.25 },
        &(sheaf__group_counts){ .rows = 2, .tokens = 8 });
    assert_true(sums.off == 0 && sums.clipped == 0 && loss == -3 * (0.25 / 8));
    for (int t = 0; t < 3; t++)
        assert_true(weight[t] == 0.25 / 8);
}

/* ---- flags ---- */

static const struct {
    const char *name, *type;
    sheaf__group_options o;
    const char *says;
} refused[] = {
    { "grpo", "ppo", { 0 }, "`loss-type` | dapo, grpo" },
    { "grpo", "dr_grpo", { 0 }, "`max-new` beside it" },
    { "grpo", NULL, { .scale_rewards = "all" }, "`scale-rewards`" },
    { "grpo", NULL, { .level = "word" }, "`importance-sampling-level`" },
    { "grpo", NULL, { .normalize = true }, "`normalize-advantages`" },
    { "grpo", NULL, { .plain_kl = true }, "`no-bias-correction-kl`" },
    { "grpo", "sapo", { .epsilon = 0.1 }, "`epsilon`" },
    { "rloo", "dapo", { 0 }, "`loss-type`" },
    { "rloo", NULL, { .scale_rewards = "group" }, "`scale-rewards`" },
    { "rloo", NULL, { .delta = 2 }, "`delta`" },
    { "rloo", NULL, { .level = "sequence" }, "`importance-sampling-level`" },
};

TEST(test_groups__flags_without_effect_are_refused)
{
    sheaf__group_loss out;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        CHECK_FAILS(sheaf__groups_read(&out, refused[i].name, refused[i].type, 0, &refused[i].o),
                    SHEAF_E_ARG, refused[i].says);
}
