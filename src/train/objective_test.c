/* objective_test.c - losses of pairs and their slopes: those that TRL computes
 * (preference/dpo/weights.json), central differences of every loss, what holds exactly; and what
 * flags are refused. */
#include "tests/check.h"
#include "tests/recordings.h"

#include "base/file.h"
#include "base/json.h"
#include "train/objective.h"

static sheaf__objective_options of(const char *name, const char *losses)
{
    return (sheaf__objective_options){ name, losses };
}

/* ---- against TRL ---- */

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *x = json_object_get(object, key);
    return x == NULL ? otherwise : json_number_value(x);
}

/* TRL's numbers are float32; tests/data has the digits that tell them apart. */
static double nth(const json_t *object, const char *key, size_t i)
{
    return (float)json_number_value(json_array_get(json_object_get(object, key), i));
}

/* A list with commas; NULL: none. */
static const char *list_of(char text[200], const json_t *list)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        n += json_is_string(one) ? sprintf(text + n, ",%s", json_string_value(one))
                                 : sprintf(text + n, ",%.17g", json_number_value(one));
    }
    return n == 0 ? NULL : text + 1;
}

static void read_setting(sheaf__objective *out, const json_t *setting)
{
    char losses[200], weights[200];
    sheaf__objective_options options = of("dpo", list_of(losses, json_object_get(setting, "loss")));
    options.loss_weights = list_of(weights, json_object_get(setting, "weights"));
    options.beta = number(setting, "beta", 0);
    options.ld_alpha = number(setting, "ld", 1);
    options.weighting = json_is_true(json_object_get(setting, "wpo"));
    options.divergence = json_string_value(json_object_get(setting, "f"));
    CHECK_OK(sheaf__objective_read(out, &options, number(setting, "e", 0)));
}

static sheaf__pair pair_of(const json_t *batch, size_t i, size_t n)
{
    sheaf__pair pair = { .certainty = 0 };
    for (size_t side = 0; side < 2; side++) {
        pair.sum[side] = nth(batch, "policy", side * n + i);
        pair.reference[side] = nth(batch, "reference", side * n + i);
        pair.tokens[side] = (int64_t)nth(batch, "tokens", side * n + i);
    }
    return pair;
}

/* Float32 numbers near 10 are 1e-6 apart. */
static void check_loss(const char *name, double got, double want)
{
    CHECK_NEAR(name, got, want, 1e-6 * (fabs(want) > 1 ? fabs(want) : 1));
}

static void check_batch(const char *name, const sheaf__objective *o, const json_t *batch)
{
    const size_t rows = json_array_size(json_object_get(batch, "policy")), n = rows / 2;
    double loss = 0, nll = 0, tokens = 0, largest = 0, w[16] = { 0 };
    assert_true(n > 0 && rows <= ARRAY_LEN(w));
    for (size_t i = 0; i < n; i++) {
        sheaf__pair pair = pair_of(batch, i, n);
        if (o->weighting) /* is not given, but all of the pair's numbers have it */
            pair.certainty =
                log((double)n * nth(batch, "w", i) / sheaf__objective_pair(o, &pair).slope[0]);
        const sheaf__pair_loss one = sheaf__objective_pair(o, &pair);
        loss += one.loss / (double)n;
        nll -= pair.sum[0];
        tokens += (double)pair.tokens[0];
        for (size_t side = 0; side < 2; side++) {
            w[side * n + i] = one.slope[side] / (double)n;
            CHECK_NEAR(name, one.reward[side], o->beta * (pair.sum[side] - pair.reference[side]),
                       1e-12);
        }
    }
    check_loss(name, loss + o->nll * nll / tokens,
               json_number_value(json_object_get(batch, "loss")));
    for (size_t i = 0; i < rows; i++)
        largest = fmax(largest, fabs(nth(batch, "w", i)));
    for (size_t i = 0; i < rows; i++)
        CHECK_NEAR(name, w[i] - (i < n ? o->nll / tokens : 0), nth(batch, "w", i), 1e-6 * largest);
}

/* Of ld each token has a weight, and sums are not given. From the weight of a pair's first tokens
 * follows its margin, from that the loss; others count the share that sheaf__objective_sum() gives
 * them. */
static void check_shares(const sheaf__objective *o, const json_t *batch)
{
    uint8_t answer[64];
    const json_t *w = json_object_get(batch, "w");
    const size_t n = json_array_size(w) / 2;
    double loss = 0;
    memset(answer, 1, sizeof answer);
    for (size_t i = 0; i < n; i++) {
        sheaf__pair pair = pair_of(batch, i, n);
        const int64_t shorter = pair.tokens[pair.tokens[1] < pair.tokens[0]];
        const json_t *rows[] = { json_array_get(w, i), json_array_get(w, n + i) };
        const int even = json_is_array(rows[0]); /* the shorter answer's row is one number */
        const double first = fabs(json_number_value(rows[even])), s = (double)n * first / o->beta;
        pair = (sheaf__pair){ { log((1 - s) / s) / o->beta, 0 }, { 0, 0 }, { 1, 1 } };
        loss += sheaf__objective_pair(o, &pair).loss / (double)n;
        for (int side = 0; side < 2; side++)
            for (size_t t = 0; t < json_array_size(rows[side]); t++) {
                float each[64] = { 0 };
                each[t] = 1;
                CHECK_NEAR("share of a token",
                           -sheaf__objective_sum(o, answer, each, 64, shorter) *
                               (side == 0 ? -first : first),
                           json_number_value(json_array_get(rows[side], t)), 1e-6 * first);
            }
    }
    check_loss("ld", loss, json_number_value(json_object_get(batch, "loss")));
}

TEST(test_objective__losses_and_weights_are_those_of_trl)
{
    char *text;
    size_t size;
    json_t *all;
    int64_t checked = 0, shares = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, recording("preference/dpo/weights.json"), 1 << 20));
    CHECK_OK(sheaf__json_parse_line(&all, text, size));
    free(text);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *setting = json_object_get(one, "setting"),
                     *batches = json_object_get(one, "batches");
        char *name = json_dumps(setting, 0);
        const bool ld = json_object_get(setting, "ld") != NULL;
        sheaf__objective o;
        read_setting(&o, setting);
        assert_true(json_array_size(batches) > 0);
        for (size_t b = 0; b < json_array_size(batches); b++) {
            if (ld)
                check_shares(&o, json_array_get(batches, b));
            else
                check_batch(name, &o, json_array_get(batches, b));
        }
        shares += ld;
        checked += !ld;
        free(name);
    }
    json_decref(all);
    assert_true(checked >= 21 && shares >= 1);
}

/* ---- every loss ---- */

/* Calls `check` for every loss of every objective, with and without smoothed labels where it takes
 * them; the names are those that an unknown one is answered with. */
static void for_each_loss(void (*check)(const char *name, const sheaf__objective *o))
{
    static const char *const objectives[] = { "dpo", "cpo", "orpo" };
    int seen = 0;
    for (size_t k = 0; k < ARRAY_LEN(objectives); k++) {
        sheaf__objective o;
        sheaf__objective_options options = of(objectives[k], "none");
        sheaf_status *unknown = sheaf__objective_read(&o, &options, 0);
        assert_non_null(unknown);
        char names[400], *rest = names;
        snprintf(names, sizeof names, "%s", sheaf_status_expected(unknown));
        sheaf_status_free(unknown);
        for (char *name; (name = strsep(&rest, ", ")) != NULL;) {
            if (*name == '\0')
                continue;
            int taken = 0;
            options.loss_type = name;
            for (int smooth = 0; smooth < 2; smooth++) {
                sheaf_status *st = sheaf__objective_read(&o, &options, 0.1 * smooth);
                if (st == NULL)
                    check(name, &o);
                taken += st == NULL;
                sheaf_status_free(st);
            }
            assert_true(taken > 0);
            seen++;
        }
    }
    assert_int_equal(seen, 13 + 5 + 1);
}

static double loss_at(const sheaf__objective *o, sheaf__pair pair, int side, double by)
{
    pair.sum[side] += by;
    return sheaf__objective_pair(o, &pair).loss;
}

/* The third derivative is largest of discopop, 100 at these margins of its sigmoid, and beta^3 of
 * that by a sum; doubles near 30 give 1e-9 at this step. */
static void check_slopes(const char *name, const sheaf__objective *o)
{
    static const sheaf__pair pairs[] = {
        { { -16.1, -23.9 }, { -16.5, -24.4 }, { 3, 5 } },
        { { -31.25, -40.5 }, { -30, -38.75 }, { 9, 4 } },
        { { -12, -12 }, { -19, -11 }, { 7, 7 } },                      /* chosen far ahead */
        { { -20, -9 }, { -11, -16 }, { 2, 6 } },                       /* rejected far ahead */
        { { -14, -15 }, { -14, -15 }, { 5, 8 } },                      /* the start */
        { { -1.5, -0.25 }, { -1.5, -1.25 }, { 1, 1 }, .margin = 1.5 }, /* as scores are */
    };
    const double step = 1e-5;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        const sheaf__pair_loss got = sheaf__objective_pair(o, &pairs[i]);
        assert_true(isfinite(got.loss));
        for (int side = 0; side < 2; side++) {
            const double want =
                (loss_at(o, pairs[i], side, step) - loss_at(o, pairs[i], side, -step)) / (2 * step);
            CHECK_NEAR(name, got.slope[side], want, 2e-8 + 1e-8 * fabs(want));
        }
    }
}

TEST(test_objective__slopes_are_central_differences)
{
    sheaf__objective o;
    sheaf__objective_options reward = of("reward", NULL);
    for_each_loss(check_slopes);
    for (int k = 0; k < 2; k++) {
        reward.center = 0.01 * k;
        CHECK_OK(sheaf__objective_read(&o, &reward, 0));
        assert_true(o.pairs && o.scores && !o.reference && o.beta == 1);
        check_slopes("reward", &o);
    }
}

/* Of other divergences, and where pairs have weights: the score's slope stands between the two. */
TEST(test_objective__slopes_through_scores)
{
    static const char *const names[] = { "reverse_kl", "forward_kl", "js_divergence",
                                         "alpha_divergence" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int alpha = 0; alpha < (i == 3 ? 3 : 1); alpha++) {
            sheaf__objective o;
            sheaf__objective_options options = of("dpo", "sigmoid,sigmoid_norm");
            options.divergence = names[i];
            options.divergence_alpha = alpha * 1.0; /* 0: the default; 1: reverse_kl */
            options.weighting = alpha == 2;
            CHECK_OK(sheaf__objective_read(&o, &options, 0));
            check_slopes(names[i], &o);
        }
}

/* AlphaPO's, of means as simpo and ipo have them and of sums; worked out as TRL does. */
TEST(test_objective__probabilities_have_a_shape)
{
    static const sheaf__pair pair = { { -4.5, -7 }, { 0 }, { 3, 4 } };
    static const double alpha[] = { 0.25, -0.5 };
    static const char *const losses[] = { "alphapo", "simpo", "ipo", "sigmoid" };
    for (size_t i = 0; i < ARRAY_LEN(losses); i++)
        for (int k = 0; k < 2; k++) {
            sheaf__objective o;
            sheaf__objective_options options = of("cpo", losses[i]);
            options.simpo_alpha = alpha[k];
            options.beta = 0.4;
            options.simpo_gamma = i < 2 ? 0.3 : 0;
            CHECK_OK(sheaf__objective_read(&o, &options, 0));
            assert_true(o.nll == (i > 0));
            check_slopes(losses[i], &o);
            double r[2];
            for (int side = 0; side < 2; side++) {
                const double n = i == 3 ? 1 : (double)pair.tokens[side];
                r[side] = (1 - pow(exp(pair.sum[side] / n), -alpha[k])) / alpha[k];
            }
            const double x = r[0] - r[1] - (i < 2 ? 0.3 / 0.4 : 0), off = x - 1 / 0.8;
            const sheaf__pair_loss got = sheaf__objective_pair(&o, &pair);
            CHECK_NEAR(losses[i], got.loss, i == 2 ? off * off : log1p(exp(-0.4 * x)), 1e-14);
            CHECK_NEAR("reward", got.reward[1], 0.4 * r[1], 1e-14);
            CHECK_NEAR("logp", got.logp[1], i == 3 ? -7 : -1.75, 0);
        }
}

/* TRL's sigmoid, which never reads it, beside losses that do. */
TEST(test_objective__smoothing_is_that_of_the_losses_that_need_it)
{
    static const char *const lists[][3] = { { "robust", "sigmoid", "robust,sigmoid" },
                                            { "exo_pair", "sigmoid_norm",
                                              "exo_pair,sigmoid_norm" } };
    static const sheaf__pair pair = { { -3, -5 }, { -4, -4.5 }, { 2, 3 } };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        double loss[3];
        for (int k = 0; k < 3; k++) {
            sheaf__objective o;
            const sheaf__objective_options options = of("dpo", lists[i][k]);
            CHECK_OK(sheaf__objective_read(&o, &options, k == 1 ? 0 : 0.2));
            loss[k] = sheaf__objective_pair(&o, &pair).loss;
        }
        CHECK_NEAR(lists[i][2], loss[2], loss[0] + loss[1], 1e-15);
    }
}

TEST(test_objective__discopop_has_a_temperature)
{
    static const sheaf__pair pair = { { -3, -5 }, { -4, -4.5 }, { 1, 1 } };
    sheaf__objective o;
    sheaf__objective_options options = of("dpo", "discopop");
    options.discopop_tau = 0.3;
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    check_slopes("discopop", &o);
    const double x = 0.1 * 1.5, g = 1 / (1 + exp(-x / 0.3));
    CHECK_NEAR("loss", sheaf__objective_pair(&o, &pair).loss,
               log1p(exp(-x)) * (1 - g) + exp(-x) * g, 1e-15);
}

/* Of one answer, desirable or not, ahead of the drift or behind it. */
TEST(test_objective__slopes_of_single_answers)
{
    static const char *const losses[] = { "kto", "apo_zero_unpaired" };
    const double step = 1e-5;
    for (size_t k = 0; k < ARRAY_LEN(losses); k++)
        for (int way = 0; way < 4; way++) {
            sheaf__objective o;
            sheaf__objective_options options = of("kto", losses[k]);
            options.beta = 0.3;
            options.desirable = 1.25;
            options.undesirable = 0.5;
            CHECK_OK(sheaf__objective_read(&o, &options, 0));
            const bool good = way & 1;
            sheaf__pair at = { { way & 2 ? -14 : -20 }, { -17 }, { 4 } }, up = at, down = at;
            up.sum[0] += step;
            down.sum[0] -= step;
            const double drift = 0.75;
            const sheaf__pair_loss got = sheaf__objective_single(&o, &at, good, drift);
            const double slope = (sheaf__objective_single(&o, &up, good, drift).loss -
                                  sheaf__objective_single(&o, &down, good, drift).loss) /
                                 (2 * step),
                         r = at.sum[0] - at.reference[0], sign = good ? 1 : -1,
                         x = 0.3 * sign * (k == 0 ? r - drift : r);
            CHECK_NEAR(losses[k], got.slope[0], slope, 2e-9);
            CHECK_NEAR(losses[k], got.loss, (good ? 1.25 : 0.5) * (1 - 1 / (1 + exp(-x))), 1e-15);
            CHECK_NEAR("reward", got.reward[0], 0.3 * r, 1e-15);
        }
}

/* Of certain answers, and of margins beyond what exp() holds. */
TEST(test_objective__stays_finite_far_out)
{
    sheaf__objective o;
    const sheaf__objective_options orpo = of("orpo", NULL), disco = of("dpo", "discopop");
    static const sheaf__pair pairs[] = {
        { { 0, -3 }, { 0 }, { 2, 2 } },
        { { -3, 0 }, { 0 }, { 2, 2 } },
        { { -9000, -1 }, { -1, -1 }, { 4, 4 } },
        { { -1, -9000 }, { -1, -1 }, { 4, 4 } },
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        CHECK_OK(sheaf__objective_read(&o, i < 2 ? &orpo : &disco, 0));
        const sheaf__pair_loss got = sheaf__objective_pair(&o, &pairs[i]);
        assert_true(isfinite(got.loss) && isfinite(got.slope[0]) && isfinite(got.slope[1]));
    }
}

/* What is learnt of a pair whose answers are equal: w_c + w_j of the same tokens, nothing where a
 * loss knows only the difference. */
static void check_equal(const char *name, const sheaf__objective *o)
{
    static const char *const differences[] = { "sigmoid",      "hinge", "ipo",      "robust",
                                               "sigmoid_norm", "sft",   "exo_pair", "discopop",
                                               "apo_zero",     "simpo", "alphapo",  "orpo" };
    const sheaf__pair pair = { { -21.3, -21.3 }, { -20.7, -20.7 }, { 6, 6 } };
    const sheaf__pair_loss got = sheaf__objective_pair(o, &pair);
    bool none = false;
    for (size_t i = 0; i < ARRAY_LEN(differences); i++)
        none = none || strcmp(name, differences[i]) == 0;
    if ((got.slope[0] + got.slope[1] == 0) != none)
        fail_msg("%s: slopes %g and %g of equal answers", name, got.slope[0], got.slope[1]);
    assert_true(got.reward[0] == got.reward[1]);
}

TEST(test_objective__equal_answers_teach_no_difference)
{
    for_each_loss(check_equal);
}

/* Through the sigmoid loss at beta 1, which is -log_sigmoid(margin). */
TEST(test_objective__log_sigmoid_holds_to_the_last_bit)
{
    static const double at[] = { 1e-300, 1e-17, 3e-9, 0.1, 0.7, 1,   2.5,
                                 17,     36.7,  37,   40,  300, 745, 1e4 };
    sheaf__objective o;
    sheaf__objective_options options = of("dpo", NULL);
    options.beta = 1;
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    const sheaf__pair start = { { -3.7, -41.9 }, { -3.7, -41.9 }, { 2, 9 } };
    assert_true(sheaf__objective_pair(&o, &start).loss == 0x1.62e42fefa39efp-1); /* log 2 */
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        const double x = at[i];
        const sheaf__pair ahead = { { x, 0 }, { 0, 0 }, { 1, 1 } },
                          behind = { { 0, x }, { 0, 0 }, { 1, 1 } };
        const double up = -sheaf__objective_pair(&o, &ahead).loss,
                     down = -sheaf__objective_pair(&o, &behind).loss;
        CHECK_NEAR("ls(x) - ls(-x)", up - down, x, 0x1p-52 * (1 + x)); /* a rounding of ls(-x) */
        if (x < 708) /* where exp(-x) is a normal number; tolerance: roundings of it and libm's */
            CHECK_NEAR("ls(x)", up / -log1p(exp(-x)), 1, 0x1p-50);
    }
}

/* Where one loss of a list is of means, so are its rewards and sums, wherever it stands. */
TEST(test_objective__rewards_are_of_what_is_reported)
{
    const sheaf__pair pair = { .sum = { -6, -8 }, .tokens = { 3, 2 } };
    for (int k = 0; k < 3; k++) {
        sheaf__objective o;
        sheaf__objective_options options =
            of("cpo", ((const char *[]){ "ipo,sigmoid", "sigmoid,ipo", "sigmoid" })[k]);
        CHECK_OK(sheaf__objective_read(&o, &options, 0));
        const sheaf__pair_loss got = sheaf__objective_pair(&o, &pair);
        for (int side = 0; side < 2; side++) {
            CHECK_NEAR("logp", got.logp[side], k == 2 ? pair.sum[side] : -2 - 2 * side, 0);
            CHECK_NEAR("reward", got.reward[side], o.beta * got.logp[side], 1e-12);
        }
    }
}

/* ---- flags ---- */

TEST(test_objective__reads_what_flags_give)
{
    sheaf__objective o;
    sheaf__objective_options options = { 0 };
    CHECK_OK(sheaf__objective_read(&o, &options, 0.3)); /* the smoothing is the cross-entropy's */
    assert_true(!o.pairs && !o.reference && o.smoothing == 0);
    options = of("dpo", "sigmoid,sft,hinge");
    options.loss_weights = "0.8,1e-1,2";
    options.reference = "base";
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    assert_true(o.pairs && o.reference && o.base && o.beta == 0.1 && o.losses == 2);
    assert_true(o.share[0] == 0.8 && o.share[1] == 2 && o.nll == 0.1);
    static const struct {
        const char *name;
        double cpo_alpha, beta, nll;
        bool reference;
    } rows[] = { { "ipo", 0, 0.1, 0, true },  { "hinge", 0, 0.1, 0, true },
                 { "cpo", 0, 0.1, 1, false }, { "cpo", -1, 0.1, 0, false },
                 { "simpo", 0, 2, 0, false }, { "simpo", 0.5, 2, 0.5, false },
                 { "dpo", 0, 0.1, 0, true } };
    options = (sheaf__objective_options){
        .name = "dpo", .ld_alpha = -1, .divergence_alpha = -1, .divergence = "alpha_divergence"
    };
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    assert_true(o.ld_alpha == 0 && o.divergence_alpha == 0 && o.tau == 0.05 && o.gamma == 0.5);
    options = (sheaf__objective_options){ .name = "kto", .desirable = -1, .undesirable = 2 };
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    assert_true(o.weight[0] == 0 && o.weight[1] == 2);
    options = (sheaf__objective_options){ .name = "simpo", .simpo_gamma = -1 };
    CHECK_OK(sheaf__objective_read(&o, &options, 0));
    assert_true(o.gamma == 0 && o.beta == 2);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        options = of(rows[i].name, NULL);
        options.cpo_alpha = rows[i].cpo_alpha;
        CHECK_OK(sheaf__objective_read(&o, &options, 0));
        if (o.beta != rows[i].beta || o.nll != rows[i].nll || o.reference != rows[i].reference ||
            o.base)
            fail_msg("%s: beta %g, nll %g", rows[i].name, o.beta, o.nll);
    }
}

TEST(test_objective__refuses_what_has_no_meaning)
{
    static const struct {
        sheaf__objective_options options;
        double smoothing;
        const char *part;
    } rows[] = {
        { { "dpp" },
          0,
          "`objective` | sft, dpo, ipo, hinge, robust, cpo, simpo, orpo, kto, grpo, rloo or reward | 'dpp'" },
        { { "dpo", "sigmoid,aot" }, 0, "discopop | 'aot'" },
        { { "dpo", "sigmoid," }, 0, "discopop | ''" },
        { { "dpo", "sig" }, 0, "`loss-type` | sigmoid, hinge, ipo, robust, sigmoid_norm, sft, " },
        { { "dpo", "simpo" }, 0, "'simpo'" },
        { { "cpo", "robust" }, 0, "`loss-type` | sigmoid, hinge, ipo, simpo, alphapo | 'robust'" },
        { { "dpo", "ipo,ipo,ipo,ipo,ipo,ipo,ipo,ipo,ipo" }, 0, "at most 8 losses" },
        { { "dpo", "sigmoid,sft", "1" },
          0,
          "a number for each loss of `loss-type`, with commas | '1'" },
        { { "dpo", "sigmoid,sft", "1,2,3" }, 0, "`loss-weights`" },
        { { "dpo", "sigmoid,sft", "1,2," }, 0, "`loss-weights`" },
        { { "dpo", "sigmoid,sft", "1;2" }, 0, "`loss-weights`" },
        { { "dpo", "sigmoid", "inf" }, 0, "`loss-weights`" },
        { { "dpo", "sigmoid", "one" }, 0, "`loss-weights`" },
        { { "dpo", .loss_weights = "1,1" }, 0, "`loss-weights`" },
        { { "dpo", "hinge,sft" }, 0.1, "0: no loss of this objective reads it | 0.1" },
        { { "dpo", "exo_pair" }, 0, "`label-smoothing` | above 0 for the loss 'exo_pair' | 0" },
        { { "dpo" }, 0.5, "below 0.5: the share of pairs in the wrong order | 0.5" },
        { { "cpo", .reference = "base" }, 0, "`reference` | none with `objective cpo`" },
        { { "simpo", .reference = "start" }, 0, "`reference` | none with `objective simpo`" },
        { { "dpo", .simpo_alpha = 1 }, 0, "`simpo-alpha` | none with `objective dpo`" },
        { { "dpo", .discopop_tau = 1 }, 0, "`discopop-tau` | none with `objective dpo`" },
        { { "dpo", "sigmoid,nca_pair", .divergence = "forward_kl" },
          0,
          "`f-divergence-type` | reverse_kl for the loss 'nca_pair' | 'forward_kl'" },
        { { "dpo", .beta = -1 }, 0, "`beta` | above 0 | 0" },
        { { "dpo", .simpo_gamma = 1 }, 0, "`simpo-gamma` | none with `objective dpo`" },
        { { "dpo", .cpo_alpha = 1 }, 0, "`cpo-alpha` | none with `objective dpo`" },
        { { "cpo", .answers = true }, 0, "`orpo-answers` | none with `objective cpo`" },
        { { "orpo", .desirable = 2 }, 0, "`desirable-weight` | none with `objective orpo`" },
        { { "kto", .ld_alpha = 0.5 }, 0, "`ld-alpha` | none with `objective kto`" },
        { { "reward", .beta = 0.5 }, 0, "`beta` | none with `objective reward`" },
        { { "reward", "sigmoid" }, 0, "`loss-type` | reward | 'sigmoid'" },
        { { "reward", .reference = "base" }, 0, "`reference` | none with `objective reward`" },
        { { "dpo", .center = 0.5 }, 0, "`center-rewards-coefficient` | none with `objective dpo`" },
        { { "dpo", .reference = "adapter" },
          0,
          "`reference` | start or base, or the folder of a model or an adapter | 'adapter'" },
        /* of answers alone */
        { { NULL, "sigmoid" }, 0, "`loss-type` | none with `objective sft`" },
        { { "sft", .loss_weights = "1" }, 0, "`loss-weights` | " },
        { { "", .beta = 0.1 }, 0, "`beta` | " },
        { { "sft", .simpo_gamma = 1 }, 0, "`simpo-gamma` | " },
        { { "sft", .cpo_alpha = -1 }, 0, "`cpo-alpha` | " },
        { { "sft", .desirable = 2 }, 0, "`desirable-weight` | " },
        { { "sft", .undesirable = 2 }, 0, "`undesirable-weight` | " },
        { { "sft", .answers = true }, 0, "`orpo-answers` | " },
        { { "sft", .ld_alpha = 0.5 }, 0, "`ld-alpha` | " },
        { { "sft", .reference = "base" }, 0, "`reference` | " },
    };
    sheaf__objective o;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(sheaf__objective_read(&o, &rows[i].options, rows[i].smoothing), SHEAF_E_ARG,
                    rows[i].part);
}
