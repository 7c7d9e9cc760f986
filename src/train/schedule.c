/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

#include "base/base.h"
#include "base/elementary.h"

static const double pi = 3.14159265358979323846;

static const char *const names[SHEAF_SCHEDULE_KINDS] = { "constant",  "linear",       "cosine",
                                                         "wsd",       "sat-constant", "sat-linear",
                                                         "sat-cosine" };

const char *sheaf_schedule_name(sheaf_schedule_kind kind)
{
    return names[kind];
}

bool sheaf_schedule_is_sat(sheaf_schedule_kind kind)
{
    return kind >= SHEAF_SCHEDULE_SAT_CONSTANT;
}

/* The Trainer counts whole steps: get_warmup_steps() rounds up. */
static int64_t warmup_steps(const sheaf_schedule *s)
{
    return s->warmup_ratio > 0 ? (int64_t)ceil((double)s->steps * s->warmup_ratio) : s->warmup;
}

/* By each rule a step has a rate above 0 only if the first, the second or the first after
 * held_steps has. */
bool sheaf_schedule_learns(const sheaf_schedule *schedule)
{
    const int64_t done[] = { 0, 1, schedule->held_steps };
    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        if (done[i] < schedule->steps && sheaf_schedule_rate(schedule, 1, done[i]) > 0)
            return true;
    return false;
}

int64_t sheaf_schedule_rises(const sheaf_schedule *schedule)
{
    const int64_t warmup = warmup_steps(schedule);
    return sheaf_schedule_is_sat(schedule->kind) && schedule->held_steps > warmup
               ? schedule->held_steps
               : warmup;
}

double sheaf_schedule_factor(const sheaf_schedule *schedule, int64_t done)
{
    const int64_t warmup = warmup_steps(schedule), steps = schedule->steps;
    const bool wsd = schedule->kind == SHEAF_SCHEDULE_WSD;
    const double least = schedule->min_ratio;
    if (done < warmup)
        return (double)done / (double)warmup * (wsd ? 1.0 - least : 1.0) + (wsd ? least : 0.0);
    if (schedule->kind == SHEAF_SCHEDULE_CONSTANT)
        return 1.0;
    if (done >= steps) /* the cosine would rise again */
        return least;
    const int64_t begin = wsd ? steps - schedule->decay : warmup;
    if (done < begin)
        return 1.0;
    const double span = (double)(steps - begin); /* at least 1: begin <= done < steps */
    if (schedule->kind == SHEAF_SCHEDULE_LINEAR)
        return (double)(steps - done) / span;
    const double left = 0.5 * (1.0 + sheaf__cos_d(pi * ((double)(done - begin) / span)));
    return left * (1.0 - least) + least;
}

static double sat_rate(const sheaf_schedule *s, double lr, int64_t done)
{
    const double t = (double)(done + 1), n = (double)s->steps;
    const double w = s->warmup_ratio > 0 ? s->warmup_ratio * n : (double)s->warmup;
    if (t <= (double)s->held_steps) { /* without warm-up lr*t/w is infinite */
        const double held = s->held_rate * lr, rising = w > 0 ? lr * t / w : held;
        return rising < held ? rising : held;
    }
    if (w > 0 && t <= w)
        return lr * t / w;
    if (s->kind == SHEAF_SCHEDULE_SAT_CONSTANT || n == 0)
        return lr;
    if (s->kind == SHEAF_SCHEDULE_SAT_LINEAR)
        return lr * ((n - (t - w)) / n);
    const double share = (t - w) / n, most = 1 / s->decay_ratio;
    return lr / most * ((sheaf__cos_d(pi * (share < 1 ? share : 1)) + 1) * (most - 1) / 2 + 1);
}

double sheaf_schedule_rate(const sheaf_schedule *schedule, double lr, int64_t done)
{
    return sheaf_schedule_is_sat(schedule->kind) ? sat_rate(schedule, lr, done)
                                                 : lr * sheaf_schedule_factor(schedule, done);
}
