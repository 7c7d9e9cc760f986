/* schedule.h - the learning rate of each step, by one of two rules, in double and with our own
 * cosine, so that every machine gets the same rate.
 *
 * The Trainer's (constant, linear, cosine, wsd): the rate of a step is lr * factor(s), s the number
 * of steps already done. During warm-up the factor rises from 0: the first of W warm-up steps has
 * rate 0, as in the schedulers of Hugging Face (get_*_schedule_with_warmup).
 *
 * SAT's (sat-constant, sat-linear, sat-cosine; its sat/training/learning_rates.py): steps count
 * from 1, the decay is spread over all N steps, not only those after warm-up, the cosine ends at a
 * share of lr, and the first steps of a fine-tuning have a reduced rate whatever W is. */
#pragma once

#include "base/base.h"

typedef enum sheaf_schedule_kind {
    SHEAF_SCHEDULE_CONSTANT,
    SHEAF_SCHEDULE_LINEAR,
    SHEAF_SCHEDULE_COSINE,
    SHEAF_SCHEDULE_WSD, /* warm-up, stable, decay */
    SHEAF_SCHEDULE_SAT_CONSTANT,
    SHEAF_SCHEDULE_SAT_LINEAR,
    SHEAF_SCHEDULE_SAT_COSINE,
    SHEAF_SCHEDULE_KINDS
} sheaf_schedule_kind;

typedef struct sheaf_schedule {
    sheaf_schedule_kind kind;
    int64_t warmup;      /* W, steps; 0 where there is a ratio */
    int64_t steps;       /* N, of the whole run, warm-up included */
    double warmup_ratio; /* when above 0, W = this * N instead: rounded up by the Trainer's rule,
                            unrounded by SAT's */
    double min_ratio;    /* of cosine and wsd: where they end, as a share of lr */
    int64_t decay;       /* D, of wsd: its last steps */
    /* SAT's rule only */
    double decay_ratio; /* end of the cosine, as a share of lr; above 0 */
    int64_t held_steps; /* "auto warm-up": first steps, whose rate is at most held_rate * lr */
    double held_rate;
} sheaf_schedule;

bool sheaf_schedule_is_sat(sheaf_schedule_kind kind);

/* sheaf_schedule_factor - of the Trainer's rule, with s = `done`:
 *   s < W      s / W
 *   constant   1
 *   linear     (N - s) / max(1, N - W)
 *   cosine     (1 + cos(pi * (s - W) / max(1, N - W))) / 2, as a share c of the way to min_ratio m:
 *              c * (1 - m) + m (Hugging Face's cosine_with_min_lr)
 *   wsd        1 until s = N - D, then as cosine over D steps; its warm-up begins at m
 *              (warmup_stable_decay)
 * never below 0; m (linear: 0) at and after s = N, but 1 for constant. */
double sheaf_schedule_factor(const sheaf_schedule *schedule, int64_t done);

/* sheaf_schedule_rate - the rate of the step after `done` ones. The Trainer's rule: lr * factor.
 * SAT's, with t = done + 1 and in SAT's order of operations:
 *   t <= held_steps  min(held_rate * lr, lr * t / W)
 *   t <= W           lr * t / W
 *   sat-constant     lr
 *   sat-linear       lr * ((N - (t - W)) / N)
 *   sat-cosine       lr * d * ((cos(pi * min(1, (t - W) / N)) + 1) / 2 * (1/d - 1) + 1), d =
 *                    decay_ratio */
double sheaf_schedule_rate(const sheaf_schedule *schedule, double lr, int64_t done);

/* sheaf_schedule_learns - does any of its steps have a rate above 0? */
bool sheaf_schedule_learns(const sheaf_schedule *schedule);
/* sheaf_schedule_rises - steps before the rate reaches lr: W, or SAT's held_steps. */
int64_t sheaf_schedule_rises(const sheaf_schedule *schedule);

/* "constant", "sat-cosine", ... */
const char *sheaf_schedule_name(sheaf_schedule_kind kind);
