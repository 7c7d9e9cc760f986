/* rates.c - see rates.h. */
#include "train/rates.h"

#include "base/base.h"

/* Of so few the first step, which a warm-up begins at a rate of 0, is a third or more. */
enum { FEW = 3 };

/* What makes the rate rise late. */
static void name_rise(char name[64], const sheaf_train_options *o, const sheaf_schedule *s)
{
    if (sheaf_schedule_is_sat(s->kind) && sheaf_schedule_rises(s) == s->held_steps &&
        s->held_steps > 0)
        snprintf(name, 64, "SAT's auto-warmup of %" PRId64 " steps", s->held_steps);
    else if (o->warmup_ratio > 0)
        snprintf(name, 64, "--warmup-ratio %g", o->warmup_ratio);
    else
        snprintf(name, 64, "--warmup %" PRId64, o->warmup);
}

/* What makes more steps of which the rate is above 0. */
static void name_cure(char cure[160], const sheaf_train_options *o)
{
    snprintf(cure, 160, "fewer warm-up steps, or more steps");
    if (o->epochs > 0)
        snprintf(cure, 160,
                 "fewer warm-up steps, more epochs, or fewer rows a step than %" PRId64
                 ": --micro-batch times --accumulate",
                 o->micro_batch * o->accumulate);
}

static sheaf_status *never(const char *name, const char *cure, const sheaf_train_options *o)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", o->lr == 0 ? "--lr" : name);
    sheaf_expected(st, "a learning rate above 0, for nothing is trained without");
    if (o->lr == 0)
        return sheaf_found(st, "0");
    sheaf_found(st, "0 in %s, as a warm-up begins with it",
                o->steps == 1 ? "the one step there is" : "every step");
    return sheaf_try_this(st, "%s", cure);
}

sheaf_status *sheaf__rates_check(const sheaf_train_options *o, const sheaf_events *events)
{
    const sheaf_schedule s = sheaf_train_options_schedule(o);
    char name[64], cure[160];
    if (o->steps < 1)
        return NULL;
    name_rise(name, o, &s);
    name_cure(cure, o);
    if (o->lr == 0 || !sheaf_schedule_learns(&s))
        return never(name, cure, o);
    const double last = sheaf_schedule_rate(&s, 1, o->steps - 1);
    if (sheaf_schedule_rises(&s) >= o->steps && last < 1)
        sheaf_warn(events,
                   "%s is not over after %s%" PRId64
                   "%s: the learning rate ends at %.3g of --lr %g; %s",
                   name, o->epochs > 0 ? "" : "--steps ", o->steps, o->epochs > 0 ? " steps" : "",
                   last, o->lr, cure);
    else if (o->steps <= FEW && sheaf_schedule_rate(&s, 1, 0) == 0)
        sheaf_warn(events, "1 of %" PRId64 " steps trains nothing: %s begins at a rate of 0; %s",
                   o->steps, name, cure);
    return NULL;
}

void sheaf__rates_resumed(const sheaf_train_options *o, const sheaf_train_options *was,
                          int64_t done, const sheaf_events *events)
{
    const sheaf_schedule now = sheaf_train_options_schedule(o),
                         then = sheaf_train_options_schedule(was);
    if (o->steps < done)
        sheaf_warn(events,
                   "--steps %" PRId64 ": %" PRId64 " steps are done already, and are kept; a run "
                   "of fewer begins anew in another --out",
                   o->steps, done);
    if (o->steps <= done || done == 0 || o->steps == was->steps || was->steps < done)
        return;
    const double before = sheaf_schedule_rate(&then, o->lr, done - 1),
                 next = sheaf_schedule_rate(&now, o->lr, done);
    if (before != next && before != sheaf_schedule_rate(&now, o->lr, done - 1))
        sheaf_warn(events,
                   "--steps %" PRId64 ", after %" PRId64 " steps of a run of %" PRId64
                   ": --schedule %s follows the number of steps, so that the learning rate goes "
                   "from %g to %g; a run of %" PRId64 " steps from its start is another one",
                   o->steps, done, was->steps, sheaf_schedule_name(o->schedule), before, next,
                   o->steps);
}
