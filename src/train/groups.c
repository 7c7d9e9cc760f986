/* groups.c - see groups.h. */
#include "train/groups.h"

#include <math.h>

#include "base/base.h"
#include "base/elementary.h"

/* ---- losses ---- */

/* The tokens over which the loss is a mean: a completion's and then over completions, those of the
 * step, of the micro-batch, or as many as there could be. */
typedef enum share { OF_ROWS, OF_STEP, OF_MICRO, OF_MOST } share;

/* A loss as a function of the ratio, and its slope by that. */
typedef struct point {
    double loss, slope;
    bool clipped;
} point;

/* -min(rho A, clip(rho) A); of equal ones torch takes the mean of both slopes. */
static point of_clip(const sheaf__group_loss *o, double rho, double a)
{
    const bool capped = o->delta > 0 && rho > o->delta,
               below = rho<1 - o->low, above = rho> 1 + o->high;
    const double first = (capped ? o->delta : rho) * a,
                 second = (below   ? 1 - o->low
                           : above ? 1 + o->high
                                   : rho) *
                          a,
                 slope[2] = { capped ? 0 : a, below || above ? 0 : a };
    return (point){ -(first < second ? first : second),
                    first < second   ? -slope[0]
                    : first > second ? -slope[1]
                                     : -(slope[0] + slope[1]) / 2,
                    (below && a < 0) || (above && a > 0) };
}

static point of_sapo(const sheaf__group_loss *o, double rho, double a)
{
    const double t = a > 0 ? 1 : 1.05, x = t * (rho - 1), e = sheaf__exp_d(-fabs(x)),
                 s = x >= 0 ? 1 / (1 + e) : e / (1 + e);
    (void)o;
    return (point){ -s * 4 / t * a, -s * (1 - s) * 4 * a, false };
}

static const struct {
    const char *name;
    point (*of)(const sheaf__group_loss *o, double rho, double a); /* NULL: cispo */
    share share;
    bool sequence;
} table[] = {
    { "dapo", of_clip, OF_STEP, false },  { "grpo", of_clip, OF_ROWS, false },
    { "bnpo", of_clip, OF_MICRO, false }, { "dr_grpo", of_clip, OF_MOST, false },
    { "cispo", NULL, OF_STEP, false },    { "sapo", of_sapo, OF_ROWS, false },
    { "gspo", of_clip, OF_ROWS, true },
};
enum { TABLE = sizeof table / sizeof *table };

static double share_of(const sheaf__group_loss *o, const sheaf__completion *one,
                       const sheaf__group_counts *c)
{
    const double rows = (double)c->rows, n = (double)(one->n > 0 ? one->n : 1);
    if (o->leave_one_out)
        return 1 / rows;
    switch (table[o->loss].share) {
    case OF_ROWS: return 1 / (rows * n);
    case OF_STEP: return 1 / (double)(c->tokens > 0 ? c->tokens : 1);
    case OF_MICRO:
        return (double)c->micro_rows / rows / (double)(c->micro_tokens > 0 ? c->micro_tokens : 1);
    default: return 1 / (rows * (double)o->max_new);
    }
}

/* ---- options ---- */

static bool same_name(const char *given, const char *name)
{
    for (; *given != '\0' && (*given == *name || (*given == '-' && *name == '_')); given++)
        name++;
    return *given == *name;
}

static sheaf_status *bad(const char *flag, const char *expected, const char *found)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", flag), "%s", expected), "'%s'",
                       found);
}

static sheaf_status *read_loss(sheaf__group_loss *out, const char *name)
{
    for (out->loss = 0; out->loss < TABLE; out->loss++)
        if (same_name(name, table[out->loss].name)) {
            out->sequence = table[out->loss].sequence;
            return NULL;
        }
    return bad("`loss-type`", "dapo, grpo, bnpo, dr_grpo, cispo, sapo or gspo", name);
}

static sheaf_status *read_scale(sheaf__group_loss *out, const char *name)
{
    static const char *const names[] = { "group", "batch", "none" };
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            out->scale = (sheaf__group_scale)i;
            return NULL;
        }
    return bad("`scale-rewards`", "group, batch or none", name);
}

static sheaf_status *read_level(sheaf__group_loss *out, const char *name)
{
    if (strcmp(name, "token") != 0 && strcmp(name, "sequence") != 0)
        return bad("`importance-sampling-level`", "token or sequence", name);
    out->sequence = name[0] == 's';
    return NULL;
}

static sheaf_status *no_effect(const char *flag, const char *name)
{
    return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", flag),
                                         "none with `objective` %s, which does not read it", name),
                          "leave it out");
}

/* Settings that the loss does not read, or lacks. */
static sheaf_status *check(const sheaf__group_loss *o, const char *name,
                           const sheaf__group_options *given)
{
    const bool rloo = o->leave_one_out, clips = rloo || table[o->loss].of == of_clip;
    if (rloo && sheaf__is_given(given->scale_rewards))
        return no_effect("`scale-rewards`", name);
    if (rloo && sheaf__is_given(given->level))
        return no_effect("`importance-sampling-level`", name);
    if (rloo && given->delta > 0)
        return no_effect("`delta`", name);
    if (!rloo && given->normalize)
        return no_effect("`normalize-advantages`", name);
    if (given->epsilon > 0 && !clips)
        return no_effect("`epsilon`", "grpo and this `loss-type`");
    if ((rloo || o->beta <= 0) && given->plain_kl)
        return no_effect("`no-bias-correction-kl`", rloo ? name : "grpo without `beta`");
    if (!rloo && table[o->loss].share == OF_MOST && o->max_new <= 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`loss-type dr_grpo`"),
                              "`max-new` beside it, the most tokens of a completion");
    return NULL;
}

sheaf_status *sheaf__groups_read(sheaf__group_loss *out, const char *name, const char *loss_type,
                                 double beta, const sheaf__group_options *o)
{
    const bool rloo = strcmp(name, "rloo") == 0;
    *out = (sheaf__group_loss){ .leave_one_out = rloo,
                                .beta = beta > 0            ? beta
                                        : rloo && beta == 0 ? 0.05
                                                            : 0,
                                .low = o->epsilon > 0 ? o->epsilon : 0.2,
                                .delta = o->delta,
                                .temperature = o->temperature > 0 ? o->temperature : 1,
                                .iterations = o->iterations > 0 ? o->iterations : 1,
                                .max_new = o->max_new,
                                .mask_truncated = o->mask_truncated,
                                .plain_kl = o->plain_kl,
                                .normalize = o->normalize };
    out->high = o->epsilon_high > 0 ? o->epsilon_high : out->low;
    sheaf_status *st = rloo && sheaf__is_given(loss_type) ? no_effect("`loss-type`", name) : NULL;
    if (st == NULL && sheaf__is_given(loss_type))
        st = read_loss(out, loss_type);
    if (st == NULL && sheaf__is_given(o->scale_rewards))
        st = read_scale(out, o->scale_rewards);
    if (st == NULL && sheaf__is_given(o->level))
        st = read_level(out, o->level);
    return TRY(st, check(out, name, o));
}

const char *sheaf__groups_given(const sheaf__group_options *o)
{
    return o->epsilon > 0                       ? "`epsilon`"
           : o->epsilon_high > 0                ? "`epsilon-high`"
           : o->delta > 0                       ? "`delta`"
           : sheaf__is_given(o->scale_rewards)  ? "`scale-rewards`"
           : sheaf__is_given(o->level)          ? "`importance-sampling-level`"
           : o->iterations > 0                  ? "`num-iterations`"
           : o->max_new > 0                     ? "`max-new`"
           : o->temperature > 0                 ? "`temperature`"
           : o->mask_truncated                  ? "`mask-truncated-completions`"
           : o->plain_kl                        ? "`no-bias-correction-kl`"
           : sheaf__is_given(o->reward)         ? "`reward`"
           : sheaf__is_given(o->reward_weights) ? "`reward-weights`"
           : o->generations > 0                 ? "`generations`"
           : o->top_p > 0                       ? "`top-p`"
           : o->reward_time > 0                 ? "`reward-time`"
           : o->normalize                       ? "`normalize-advantages`"
                                                : NULL;
}

/* ---- advantages ---- */

/* Mean and deviation (by n - 1) of what is not NaN, in order. */
typedef struct spread {
    double mean, deviation;
    int64_t n;
    bool even; /* all are equal */
} spread;

/* group NULL: of all. */
static spread spread_of(const double *x, const int64_t *group, int64_t of, int64_t n)
{
    spread s = { .even = true };
    double sum = 0, squares = 0, first = NAN;
    for (int64_t i = 0; i < n; i++)
        if ((group == NULL || group[i] == of) && !isnan(x[i])) {
            first = isnan(first) ? x[i] : first;
            s.even = s.even && x[i] == first;
            sum += x[i];
            s.n++;
        }
    s.mean = s.even ? first : sum / (double)s.n;
    for (int64_t i = 0; i < n; i++)
        if ((group == NULL || group[i] == of) && !isnan(x[i]))
            squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = sqrt(squares / (double)(s.n - 1));
    return s;
}

static double none_is_0(double x)
{
    return isnan(x) ? 0 : x;
}

static bool is_first(const int64_t *group, int64_t i)
{
    int64_t k = 0;
    while (group[k] != group[i])
        k++;
    return k == i;
}

static void leave_one_out(double *out, const sheaf__group_loss *o, const double *reward,
                          const int64_t *group, const double *kl, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = reward[i] - (kl == NULL ? 0 : o->beta * kl[i]);
    for (int64_t i = 0; i < n; i++) {
        if (!is_first(group, i))
            continue;
        const spread of = spread_of(out, group, group[i], n);
        const double sum = of.mean * (double)of.n;
        for (int64_t k = i; k < n; k++)
            if (group[k] == group[i])
                out[k] = of.even ? out[k] - out[k] : out[k] - (sum - out[k]) / (double)(of.n - 1);
    }
    const spread all = spread_of(out, NULL, 0, n);
    for (int64_t i = 0; i < n && o->normalize; i++)
        out[i] = (out[i] - all.mean) / (all.deviation + 1e-4);
}

void sheaf__groups_advantages(double *out, const sheaf__group_loss *o, const double *reward,
                              const int64_t *group, const double *kl, int64_t n)
{
    const spread all = spread_of(reward, NULL, 0, n);
    if (o->leave_one_out)
        leave_one_out(out, o, reward, group, kl, n);
    for (int64_t i = 0; i < n && !o->leave_one_out; i++) {
        const spread of = spread_of(reward, group, group[i], n);
        const double by = o->scale == SHEAF__BY_GROUP   ? of.deviation + 1e-4
                          : o->scale == SHEAF__BY_BATCH ? all.deviation + 1e-4
                                                        : 1;
        out[i] = (reward[i] - of.mean) / by;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = none_is_0(out[i]);
}

void sheaf__groups_rewards(sheaf__group_sums *sums, const double *reward, const int64_t *group,
                           int64_t n)
{
    const spread all = spread_of(reward, NULL, 0, n);
    double groups = 0, even = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!is_first(group, i))
            continue;
        groups++;
        even += spread_of(reward, group, group[i], n).even;
    }
    sums->reward = none_is_0(all.mean);
    sums->spread = none_is_0(all.deviation);
    sums->even = groups == 0 ? 0 : even / groups;
    sums->batches = 1;
}

/* ---- one completion ---- */

bool sheaf__groups_by_token(const sheaf__group_loss *o)
{
    return !o->leave_one_out && !o->sequence;
}

/* The logarithm of a ratio that all tokens share; NaN: each has its own. */
static double joint(const sheaf__group_loss *o, const sheaf__completion *c)
{
    double sum = 0;
    if (sheaf__groups_by_token(o))
        return NAN;
    for (int64_t t = 0; t < c->n; t++)
        sum += (double)c->lp[t] - (double)c->old[t];
    return o->leave_one_out || c->n == 0 ? sum : sum / (double)c->n;
}

/* The divergence from the reference of token t, its share of the loss: adds its slopes by the
 * token's own log-probability and by w. */
static double divergence(double *own, double *by_w, sheaf__group_sums *sums,
                         const sheaf__group_loss *o, const sheaf__completion *c, int64_t t,
                         double rho)
{
    if (c->reference == NULL || o->leave_one_out)
        return 0;
    const double q = (double)c->reference[t] - (double)c->lp[t], e = sheaf__exp_d(q),
                 kl = e - q - 1, by = o->plain_kl ? 1 : rho;
    *own += o->beta * by * (1 - e);
    *by_w += o->plain_kl ? 0 : o->beta * by * kl;
    sums->kl += kl;
    return o->beta * by * kl;
}

double sheaf__groups_weigh(double *weight, sheaf__group_sums *sums, const sheaf__group_loss *o,
                           const sheaf__completion *c, const sheaf__group_counts *counts)
{
    const double share = share_of(o, c, counts), w = joint(o, c), a = c->advantage;
    const bool cispo = !o->leave_one_out && table[o->loss].of == NULL;
    double loss = 0, shared = 0; /* shared: slopes by the w of all */
    for (int64_t t = 0; t < c->n; t++) {
        const double lp = c->lp[t], rho = sheaf__exp_d(isnan(w) ? lp - (double)c->old[t] : w),
                     cap = rho < o->high ? rho : o->high;
        const point p = o->leave_one_out ? of_clip(o, rho, a)
                        : cispo          ? (point){ -cap * a * lp, 0, rho > o->high && a > 0 }
                                         : table[o->loss].of(o, rho, a);
        double own = cispo ? -cap * a : 0, by_w = p.slope * rho;
        const double kl = divergence(&own, &by_w, sums, o, c, t, rho);
        loss += !o->leave_one_out || t == 0 ? p.loss + kl : 0;
        shared += isnan(w) ? 0 : by_w;
        weight[t] = -share * (isnan(w) ? own + by_w : own);
        sums->clipped += p.clipped;
        sums->off += rho != 1;
        sums->lp += lp;
    }
    if (!isnan(w) && c->n > 0) /* of rloo each token has the whole slope, of a mean its part */
        for (int64_t t = 0; t < c->n; t++)
            weight[t] -= share * shared / (double)c->n;
    sums->rows++;
    sums->tokens += (double)c->n;
    return share * loss;
}

int sheaf__groups_values(sheaf_event_value out[SHEAF_EVENT_VALUES], const sheaf__group_sums *s,
                         bool evaluated)
{
    const double tokens = s->tokens > 0 ? s->tokens : 1, rows = s->rows > 0 ? s->rows : 1;
    const sheaf_event_value all[] = {
        { "reward", s->reward },
        { "reward_std", s->spread },
        { "completions/mean_length", s->tokens / rows },
        { "completions/clipped_ratio", 1 - s->ended / rows },
        { "frac_reward_zero_std", s->even },
        { "entropy", -s->lp / tokens },
        { "clip_ratio/region_mean", s->clipped / tokens },
        { "kl", s->kl / tokens },
    };
    enum { ALL = sizeof all / sizeof *all, OF_ANSWERS = 4 };
    _Static_assert((int)ALL <= (int)SHEAF_EVENT_VALUES, "room for them");
    memcpy(out, all, sizeof all);
    return evaluated ? OF_ANSWERS : ALL;
}
