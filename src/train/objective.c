/* objective.c - see objective.h. */
#include "train/objective.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/elementary.h"
#include "base/file.h"
#include "base/number.h"

/* ---- functions ---- */

static double sigmoid(double x)
{
    const double e = sheaf__exp_d(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)), the latter exact to a few ulp also where 1 + e
 * is rounded. */
static double log_sigmoid(double x)
{
    const double e = sheaf__exp_d(-fabs(x)), one = 1 + e;
    return (x < 0 ? x : 0) - (one == 1 ? e : sheaf__log_d(one) * (e / (one - 1)));
}

/* ---- losses of a pair ---- */

/* The arguments of a loss: r, or its substitute, of both answers. */
typedef struct scores {
    double beta, e; /* e: smoothing of labels */
    double r[2], n[2];
    double margin, center, tau;
} scores;

/* A loss and its slopes by r. */
typedef struct result {
    double loss, d[2];
} result;

/* Of a loss of the margin z = beta (r_c - r_j) and its slope by z. */
static result of_margin(const scores *s, double loss, double slope)
{
    return (result){ loss, { s->beta * slope, -s->beta * slope } };
}

static double margin(const scores *s)
{
    return s->beta * (s->r[0] - s->r[1]);
}

/* With labels smoothed: of the conservative DPO. */
static result of_sigmoid(const scores *s)
{
    const double z = margin(s), e = s->e;
    return e == 0 ? of_margin(s, -log_sigmoid(z), -sigmoid(-z))
                  : of_margin(s, -(1 - e) * log_sigmoid(z) - e * log_sigmoid(-z),
                              -(1 - e) * sigmoid(-z) + e * sigmoid(z));
}

static result of_hinge(const scores *s)
{
    const double z = margin(s);
    return z < 1 ? of_margin(s, 1 - z, -1) : of_margin(s, 0, 0);
}

static result of_averages(const scores *s, result (*loss)(const scores *s))
{
    const scores mean = { s->beta, s->e, { s->r[0] / s->n[0], s->r[1] / s->n[1] }, { 1, 1 } };
    result out = loss(&mean);
    out.d[0] /= s->n[0];
    out.d[1] /= s->n[1];
    return out;
}

static result square(const scores *s)
{
    const double x = s->r[0] - s->r[1] - 1 / (2 * s->beta);
    return (result){ x * x, { 2 * x, -2 * x } };
}

static result of_ipo(const scores *s)
{
    return of_averages(s, square);
}

static result of_sigmoid_norm(const scores *s)
{
    return of_averages(s, of_sigmoid);
}

static result of_robust(const scores *s)
{
    const double z = margin(s), e = s->e, by = 1 / (1 - 2 * e);
    return of_margin(s, (-(1 - e) * log_sigmoid(z) + e * log_sigmoid(-z)) * by,
                     (-(1 - e) * sigmoid(-z) - e * sigmoid(z)) * by);
}

static result of_apo_zero(const scores *s)
{
    const double c = sigmoid(s->beta * s->r[0]), j = sigmoid(s->beta * s->r[1]);
    return (result){ 1 - c + j, { -s->beta * c * (1 - c), s->beta * j * (1 - j) } };
}

static result of_apo_down(const scores *s)
{
    const double c = sigmoid(s->beta * s->r[0]), d = sigmoid(margin(s)), down = d * (1 - d);
    return (result){ c + 1 - d, { s->beta * (c * (1 - c) - down), s->beta * down } };
}

static result of_nca_pair(const scores *s)
{
    const double c = s->beta * s->r[0], j = s->beta * s->r[1];
    return (result){ -log_sigmoid(c) - log_sigmoid(-c) / 2 - log_sigmoid(-j) / 2,
                     { s->beta * (-sigmoid(-c) + sigmoid(c) / 2), s->beta * sigmoid(j) / 2 } };
}

static result of_bco_pair(const scores *s)
{
    const double c = s->beta * s->r[0], j = s->beta * s->r[1];
    return (result){ -log_sigmoid(c) - log_sigmoid(-j),
                     { -s->beta * sigmoid(-c), s->beta * sigmoid(j) } };
}

static result of_sppo_hard(const scores *s)
{
    const double half = 1 / (2 * s->beta), c = s->r[0] - half, j = s->r[1] + half;
    return (result){ c * c + j * j, { 2 * c, 2 * j } };
}

static result of_exo_pair(const scores *s)
{
    const double z = margin(s), p = sigmoid(z), q = sigmoid(-z),
                 a = log_sigmoid(z) - sheaf__log_d(1 - s->e),
                 b = log_sigmoid(-z) - sheaf__log_d(s->e);
    return of_margin(s, p * a + q * b, p * q * (a - b));
}

static result of_discopop(const scores *s)
{
    const double z = margin(s), g = sigmoid(z / s->tau), slope = g * (1 - g) / s->tau,
                 l = log_sigmoid(z), e = g == 0 ? 0 : sheaf__exp_d(-z); /* else inf * 0 */
    return of_margin(s, -l * (1 - g) + e * g,
                     -sigmoid(-z) * (1 - g) + l * slope - e * g + e * slope);
}

/* log(1 - exp(a)), a < 0, and its slope. */
static double log_rest(double *slope, double a)
{
    a = a < -0x1p-24 ? a : -0x1p-24; /* a certain answer: one step of float32 from that */
    const double e = sheaf__exp_d(a), half = -0.6931471805599453;
    /* 1 - e without loss where e is near 1: -expm1(a) by (e - 1) a / log e */
    const double rest = e == 1 ? -a : a > half ? (1 - e) * (a / sheaf__log_d(e)) : 1 - e;
    *slope = -e / rest;
    return sheaf__log_d(rest);
}

/* r: means of log-probabilities. */
static result odds_ratio(const scores *s)
{
    double c, j;
    const double z = s->r[0] - s->r[1] - (log_rest(&c, s->r[0]) - log_rest(&j, s->r[1])),
                 slope = -s->beta * sigmoid(-z);
    return (result){ -s->beta * log_sigmoid(z), { slope * (1 - c), -slope * (1 - j) } };
}

static result of_orpo(const scores *s)
{
    return of_averages(s, odds_ratio);
}

/* Bradley and Terry's; r: scores. */
static result of_reward(const scores *s)
{
    const double z = s->r[0] - s->r[1] - s->margin, sum = s->r[0] + s->r[1], slope = -sigmoid(-z),
                 off = 2 * s->center * sum;
    return (result){ s->center * sum * sum - log_sigmoid(z), { slope + off, off - slope } };
}

/* Of one answer: r[0] is its own, with its sign; r[1] that of the mismatched ones. */
static result of_kto(const scores *s)
{
    const double p = sigmoid(margin(s));
    return (result){ 1 - p, { -s->beta * p * (1 - p), 0 } };
}

static result of_apo_zero_unpaired(const scores *s)
{
    const double p = sigmoid(s->beta * s->r[0]);
    return (result){ 1 - p, { -s->beta * p * (1 - p), 0 } };
}

/* The chosen answers' cross-entropy, a mean over tokens of the whole step: sheaf__objective.nll. */
static result of_sft(const scores *s)
{
    (void)s;
    return (result){ 0 };
}

/* ---- scores of the ratio exp(r) ---- */

/* f'(exp(r)) of a divergence, and its slope by r. */
static double reverse_kl(double *slope, double r, double alpha)
{
    (void)alpha;
    *slope = 1;
    return r;
}

static double forward_kl(double *slope, double r, double alpha)
{
    (void)alpha;
    *slope = sheaf__exp_d(-r);
    return 1 - *slope;
}

static double jensen_shannon(double *slope, double r, double alpha)
{
    (void)alpha;
    *slope = sigmoid(-r);
    return 0.6931471805599453 + log_sigmoid(r);
}

/* The exponent ends where TRL's does; of alpha 1 it is reverse_kl. */
static double of_alpha(double *slope, double r, double alpha)
{
    static const double most = 80;
    const double by = alpha - 1, x = by * r;
    if (fabs(by) < 1e-6)
        return reverse_kl(slope, r, alpha);
    const double e = sheaf__exp_d(x < most ? x : most);
    *slope = x < most ? e : 0;
    return (e - 1) / by;
}

static const struct {
    const char *name;
    double (*score)(double *slope, double r, double alpha);
} divergences[] = {
    { "reverse_kl", reverse_kl },
    { "forward_kl", forward_kl },
    { "js_divergence", jensen_shannon },
    { "alpha_divergence", of_alpha },
};
enum { DIVERGENCES = sizeof divergences / sizeof *divergences, ALPHA_DIVERGENCE = 3 };

enum {
    SMOOTHS = 1,
    SMOOTHED = 2,
    IS_SFT = 4,
    OF_DPO = 8,
    OF_CPO = 16,
    BY_AVERAGE = 32,
    LOWERED = 64,
    OF_ORPO = 128,
    OF_KTO = 256,
    OF_GROUPS = 512,
    OF_REWARD = 1024,
    OF_RATIO = 2048,
    MODULATED = 4096,
    ALONE = 8192,
    FLIPS = 16384
};

static const struct {
    const char *name;
    result (*of)(const scores *s);
    /* SMOOTHS: reads the smoothing; SMOOTHED: needs it; FLIPS: beside it others do without, as in
     * TRL; LOWERED: by gamma; OF_RATIO: of no other divergence; MODULATED: by tau; ALONE: without
     * cpo's cross-entropy */
    unsigned is;
} table[] = {
    { "sigmoid", of_sigmoid, SMOOTHS | OF_DPO | OF_CPO },
    { "hinge", of_hinge, OF_DPO | OF_CPO },
    { "ipo", of_ipo, OF_DPO | OF_CPO | BY_AVERAGE },
    { "robust", of_robust, SMOOTHS | FLIPS | OF_DPO },
    { "sigmoid_norm", of_sigmoid_norm, SMOOTHS | OF_DPO | BY_AVERAGE },
    { "sft", of_sft, IS_SFT | OF_DPO },
    { "apo_zero", of_apo_zero, OF_DPO | OF_RATIO },
    { "apo_down", of_apo_down, OF_DPO | OF_RATIO },
    { "nca_pair", of_nca_pair, OF_DPO | OF_RATIO },
    { "bco_pair", of_bco_pair, OF_DPO | OF_RATIO },
    { "sppo_hard", of_sppo_hard, OF_DPO | OF_RATIO },
    { "exo_pair", of_exo_pair, SMOOTHS | SMOOTHED | FLIPS | OF_DPO },
    { "discopop", of_discopop, OF_DPO | MODULATED },
    { "kto", of_kto, OF_KTO },
    { "apo_zero_unpaired", of_apo_zero_unpaired, OF_KTO },
    { "orpo", of_orpo, OF_ORPO | BY_AVERAGE },
    { "reward", of_reward, OF_REWARD },
    { "simpo", of_sigmoid_norm, SMOOTHS | OF_CPO | BY_AVERAGE | LOWERED },
    { "alphapo", of_sigmoid_norm, SMOOTHS | OF_CPO | BY_AVERAGE | LOWERED | ALONE },
};
enum { TABLE = sizeof table / sizeof *table };

/* ---- objectives ---- */

/* loss: the default; of: which losses it takes. */
static const struct {
    const char *name, *loss;
    unsigned of;
    bool reference;
    double beta, nll;
} objectives[] = {
    { "sft", NULL, 0, false, 0, 0 },
    { "dpo", "sigmoid", OF_DPO, true, 0.1, 0 },
    { "ipo", "ipo", OF_DPO, true, 0.1, 0 },
    { "hinge", "hinge", OF_DPO, true, 0.1, 0 },
    { "robust", "robust", OF_DPO, true, 0.1, 0 },
    { "cpo", "sigmoid", OF_CPO, false, 0.1, 1 },
    { "simpo", "simpo", OF_CPO, false, 2, 0 },
    { "orpo", "orpo", OF_ORPO, false, 0.1, 1 },
    { "kto", "kto", OF_KTO, true, 0.1, 0 },
    { "grpo", NULL, OF_GROUPS, false, 0, 0 },
    { "rloo", NULL, OF_GROUPS, false, 0, 0 },
    { "reward", "reward", OF_REWARD, false, 1, 0 },
};
enum { OBJECTIVES = sizeof objectives / sizeof *objectives };

static bool named(const char *name, const char *at, size_t n)
{
    return strlen(name) == n && strncmp(name, at, n) == 0;
}

static sheaf_status *bad(const char *flag, const char *expected, const char *at, size_t n)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", flag), "%s", expected),
                       "'%.*s'", (int)n, at);
}

static sheaf_status *unknown(const char *flag, unsigned of, const char *at, size_t n)
{
    sheaf_text known = { 0 };
    for (int i = 0; i < TABLE; i++)
        if (table[i].is & of)
            sheaf__text_add(&known, "%s%s", known.size > 0 ? ", " : "", table[i].name);
    sheaf_status *st = bad(flag, known.at == NULL ? "a loss" : known.at, at, n);
    sheaf__text_release(&known);
    return st;
}

static sheaf_status *read_losses(sheaf__objective *out, const char *list, unsigned of)
{
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        int found = 0;
        while (found < TABLE && !((table[found].is & of) && named(table[found].name, at, n)))
            found++;
        if (found == TABLE)
            return unknown("`loss-type`", of, at, n);
        if (out->losses == SHEAF__MOST_LOSSES)
            return bad("`loss-type`", "at most 8 losses", list, strlen(list));
        out->share[out->losses] = 1;
        out->loss[out->losses++] = found;
        at += n;
        if (*at == '\0')
            return NULL;
    }
}

static sheaf_status *read_shares(sheaf__objective *out, const char *list)
{
    return sheaf__numbers_read(out->share, out->losses, list)
               ? NULL
               : bad("`loss-weights`", "a number for each loss of `loss-type`, with commas", list,
                     strlen(list));
}

/* What any of the losses is. */
static unsigned kinds(const sheaf__objective *o)
{
    unsigned is = 0;
    for (int i = 0; i < o->losses; i++)
        is |= table[o->loss[i]].is;
    return is;
}

static sheaf_status *check_smoothing(const sheaf__objective *o)
{
    for (int i = 0; i < o->losses; i++)
        if ((table[o->loss[i]].is & SMOOTHED) && o->smoothing <= 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`label-smoothing`"),
                                              "above 0 for the loss '%s'", table[o->loss[i]].name),
                               "0");
    if (o->smoothing == 0)
        return NULL;
    if (!(kinds(o) & SMOOTHS))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`label-smoothing`"),
                                          "0: no loss of this objective reads it"),
                           "%g", o->smoothing);
    return o->smoothing < 0.5
               ? NULL
               : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`label-smoothing`"),
                                            "below 0.5: the share of pairs in the wrong order"),
                             "%g", o->smoothing);
}

/* The cross-entropy among the losses goes into nll. */
static void take_out_sft(sheaf__objective *o)
{
    int kept = 0;
    for (int i = 0; i < o->losses; i++) {
        if (table[o->loss[i]].is & IS_SFT) {
            o->nll += o->share[i];
            continue;
        }
        o->loss[kept] = o->loss[i];
        o->share[kept++] = o->share[i];
    }
    o->losses = kept;
}

/* Settings that the objective does not read. */
static sheaf_status *no_effect(const sheaf__objective *o, unsigned of,
                               const sheaf__objective_options *options)
{
    const struct {
        const char *flag;
        bool given, read;
    } all[] = {
        { "`loss-type`", sheaf__is_given(options->loss_type), of != 0 && of != OF_REWARD },
        { "`loss-weights`", sheaf__is_given(options->loss_weights),
          of != 0 && of != OF_REWARD && of != OF_GROUPS },
        { "`beta`", options->beta != 0, of != 0 && of != OF_REWARD },
        { "`center-rewards-coefficient`", options->center > 0, of == OF_REWARD },
        { "`simpo-gamma`", options->simpo_gamma != 0, kinds(o) & LOWERED },
        { "`simpo-alpha`", options->simpo_alpha != 0, of == OF_CPO },
        { "`discopop-tau`", options->discopop_tau > 0, kinds(o) & MODULATED },
        { "`cpo-alpha`", options->cpo_alpha != 0, of == OF_CPO },
        { "`ld-alpha`", options->ld_alpha != 0, of == OF_DPO },
        { "`use-weighting`", options->weighting, of == OF_DPO },
        { "`f-divergence-type`", sheaf__is_given(options->divergence), of == OF_DPO },
        { "`f-alpha-divergence-coef`", options->divergence_alpha != 0,
          o->divergence == ALPHA_DIVERGENCE },
        { "`reference`", sheaf__is_given(options->reference), o->reference },
        { "`reference-cache`", sheaf__is_given(options->cache), o->reference && of != OF_GROUPS },
        { "`orpo-answers`", options->answers, of == OF_ORPO },
        { "`desirable-weight`", options->desirable != 0, of == OF_KTO },
        { "`undesirable-weight`", options->undesirable != 0, of == OF_KTO },
        { sheaf__groups_given(&options->group), sheaf__groups_given(&options->group) != NULL,
          of == OF_GROUPS },
        { "`label-smoothing`", of == OF_GROUPS && o->smoothing > 0, false },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !all[i].read)
            return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", all[i].flag),
                                                 "none with `objective %s`, which does not read it",
                                                 o->name),
                                  "leave it out");
    return NULL;
}

static sheaf_status *read_divergence(sheaf__objective *out, const char *name)
{
    while (sheaf__is_given(name) && out->divergence < DIVERGENCES &&
           strcmp(divergences[out->divergence].name, name) != 0)
        out->divergence++;
    if (out->divergence == DIVERGENCES)
        return bad("`f-divergence-type`",
                   "reverse_kl, forward_kl, js_divergence or alpha_divergence", name, strlen(name));
    for (int i = 0; i < out->losses && out->divergence != 0; i++)
        if (table[out->loss[i]].is & OF_RATIO)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`f-divergence-type`"),
                                              "reverse_kl for the loss '%s'",
                                              table[out->loss[i]].name),
                               "'%s'", name);
    return NULL;
}

static sheaf_status *read_reference(sheaf__objective *out, const char *name)
{
    if (!sheaf__is_given(name))
        return NULL;
    out->base = strcmp(name, "base") == 0;
    out->folder = out->base || strcmp(name, "start") == 0 ? NULL : name;
    if (out->folder == NULL || (!out->grouped && sheaf__path_kind(name) == SHEAF_PATH_DIR))
        return NULL;
    return bad("`reference`",
               out->grouped ? "start or base"
                            : "start or base, or the folder of a model or an adapter",
               name, strlen(name));
}

/* Of an objective that learns from rewards. */
static sheaf_status *read_groups(sheaf__objective *out, const sheaf__objective_options *options)
{
    out->grouped = true;
    sheaf_status *st = sheaf__groups_read(&out->group, out->name, options->loss_type, options->beta,
                                          &options->group);
    out->reference = st == NULL && out->group.beta > 0;
    TRY(st, no_effect(out, OF_GROUPS, options));
    return TRY(st, read_reference(out, options->reference));
}

/* A number that is given (below 0: it is 0), else the objective's own. */
static double given_or(double given, double own)
{
    return given > 0 ? given : given < 0 ? 0 : own;
}

sheaf_status *sheaf__objective_read(sheaf__objective *out, const sheaf__objective_options *options,
                                    double smoothing)
{
    const char *name = sheaf__is_given(options->name) ? options->name : "sft";
    int k = 0;
    while (k < OBJECTIVES && strcmp(objectives[k].name, name) != 0)
        k++;
    if (k == OBJECTIVES)
        return bad("`objective`",
                   "sft, dpo, ipo, hinge, robust, cpo, simpo, orpo, kto, grpo, rloo or reward",
                   name, strlen(name));
    *out = (sheaf__objective){ .name = objectives[k].name,
                               .pairs = k > 0 && !(objectives[k].of & (OF_KTO | OF_GROUPS)),
                               .judged = objectives[k].of == OF_KTO,
                               .weight = { given_or(options->desirable, 1),
                                           given_or(options->undesirable, 1) },
                               .reference = objectives[k].reference,
                               .cache = options->cache,
                               .scores = objectives[k].of == OF_REWARD,
                               .center = options->center,
                               .beta = options->beta > 0 ? options->beta : objectives[k].beta,
                               .smoothing = k > 0 ? smoothing : 0,
                               .ld_alpha = given_or(options->ld_alpha, 1),
                               .tau = given_or(options->discopop_tau, 0.05),
                               .weighting = options->weighting,
                               .divergence_alpha = given_or(options->divergence_alpha, 0.5),
                               .gamma = given_or(options->simpo_gamma, 0.5),
                               .nll = objectives[k].nll,
                               .prompts = objectives[k].of == OF_ORPO && !options->answers };
    if (k == 0)
        return no_effect(out, 0, options);
    if (objectives[k].of == OF_GROUPS)
        return read_groups(out, options);
    if (options->beta < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`beta`"), "above 0"),
                           "0 or less");
    sheaf_status *st = read_losses(
        out, sheaf__is_given(options->loss_type) ? options->loss_type : objectives[k].loss,
        objectives[k].of);
    if (st == NULL && sheaf__is_given(options->loss_weights))
        st = read_shares(out, options->loss_weights);
    TRY(st, st == NULL ? check_smoothing(out) : NULL);
    if (st != NULL)
        return st;
    if ((st = read_divergence(out, options->divergence)) != NULL ||
        (st = no_effect(out, objectives[k].of, options)) != NULL)
        return st;
    take_out_sft(out);
    if (out->weighting && out->nll > 0)
        return bad("`loss-type`", "no sft with `use-weighting`: it is no loss of a pair",
                   options->loss_type, strlen(options->loss_type));
    out->mismatched = out->judged && table[out->loss[0]].of == of_kto;
    if (out->judged && out->losses > 1)
        return bad("`loss-type`", "one loss of kto", options->loss_type,
                   strlen(options->loss_type));
    if ((st = read_reference(out, options->reference)) != NULL)
        return st;
    if (objectives[k].of == OF_CPO)
        out->nll = given_or(options->cpo_alpha, kinds(out) & ALONE ? 0 : out->nll);
    if (options->simpo_alpha !=
        0) { /* AlphaPO's score of a probability p = exp(S): (1 - p^-alpha) / alpha */
        out->divergence = ALPHA_DIVERGENCE;
        out->divergence_alpha = 1 - options->simpo_alpha;
    }
    return NULL;
}

/* ---- pairs ---- */

sheaf__pair_loss sheaf__objective_pair(const sheaf__objective *o, const sheaf__pair *pair)
{
    const double weight = o->weighting ? sheaf__exp_d(pair->certainty) : 1;
    const unsigned all = kinds(o);
    sheaf__pair_loss out = { 0 };
    double r[2];
    for (int k = 0; k < 2; k++) {
        r[k] = pair->sum[k] - (o->reference ? pair->reference[k] : 0);
        out.reward[k] = o->beta * r[k];
        out.logp[k] = pair->sum[k];
    }
    for (int i = 0; i < o->losses; i++) {
        const unsigned is = table[o->loss[i]].is;
        const bool averages = !o->reference && (is & BY_AVERAGE),
                   smooths = (is & SMOOTHS) && ((is & FLIPS) || !(all & FLIPS));
        scores s = { .beta = o->beta,
                     .e = smooths ? o->smoothing : 0,
                     .margin = pair->margin,
                     .center = o->center,
                     .tau = o->tau };
        double by_r[2];
        for (int k = 0; k < 2; k++) {
            /* without a reference it is the mean that has another score; n times that is averaged
             */
            const double n = averages && o->divergence != 0 ? (double)pair->tokens[k] : 1;
            s.n[k] = (double)pair->tokens[k];
            s.r[k] = n * divergences[o->divergence].score(&by_r[k], r[k] / n, o->divergence_alpha);
            if (!o->reference && (averages || !(all & BY_AVERAGE)))
                out.reward[k] = o->beta * s.r[k] / (averages ? s.n[k] : 1);
            if (averages)
                out.logp[k] = pair->sum[k] / s.n[k];
        }
        if (is & LOWERED)
            s.r[0] -= o->gamma / o->beta * s.n[0];
        const result one = table[o->loss[i]].of(&s);
        out.loss += o->share[i] * weight * one.loss;
        for (int k = 0; k < 2; k++)
            out.slope[k] += o->share[i] * weight * by_r[k] * one.d[k];
    }
    return out;
}

sheaf__pair_loss sheaf__objective_single(const sheaf__objective *o, const sheaf__pair *of,
                                         bool desirable, double drift)
{
    const double sign = desirable ? 1 : -1, r = of->sum[0] - of->reference[0],
                 weight = o->weight[desirable ? 0 : 1] * o->share[0];
    const scores s = { .beta = o->beta, .r = { sign * r, sign * drift } };
    const result one = table[o->loss[0]].of(&s);
    return (sheaf__pair_loss){ .loss = weight * one.loss,
                               .slope = { sign * weight * one.d[0] },
                               .reward = { o->beta * r },
                               .logp = { of->sum[0] } };
}

double sheaf__objective_sum(const sheaf__objective *o, const uint8_t *answer, const float *each,
                            int64_t n, int64_t shorter)
{
    double sum = 0;
    int64_t token = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!answer[i])
            continue;
        sum -= (token++ < shorter ? 1 : o->ld_alpha) * (double)each[i];
    }
    return sum;
}
