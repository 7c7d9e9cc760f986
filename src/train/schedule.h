/* schedule.h - how the learning rate changes over a run.
 *
 * The rate of a step is lr * factor(s), s the number of steps already done, in
 * double and with our own cosine, so that every machine gets the same rate.
 * During warm-up the factor rises from 0: the first of W warm-up steps learns
 * nothing, as in the schedulers of Hugging Face (reference: their
 * get_*_schedule_with_warmup). */
#ifndef SHEAF_TRAIN_SCHEDULE_H
#define SHEAF_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "sheaf/status.h"

typedef enum sheaf_schedule_kind {
    SHEAF_SCHEDULE_CONSTANT, SHEAF_SCHEDULE_LINEAR, SHEAF_SCHEDULE_COSINE
} sheaf_schedule_kind;

typedef struct sheaf_schedule {
    sheaf_schedule_kind kind;
    int64_t warmup; /* W, steps */
    int64_t steps;  /* N, of the whole run, warm-up included */
} sheaf_schedule;

/* sheaf_schedule_check - SHEAF_E_ARG when a count is negative or W > N. */
sheaf_status *sheaf_schedule_check(const sheaf_schedule *schedule);

/* sheaf_schedule_factor - with s = `done`:
 *   s < W      s / W
 *   constant   1
 *   linear     (N - s) / max(1, N - W)
 *   cosine     (1 + cos(pi * (s - W) / max(1, N - W))) / 2
 * never below 0; 0 at and after s = N, but 1 for constant. */
double sheaf_schedule_factor(const sheaf_schedule *schedule, int64_t done);

/* "constant", "linear", "cosine"; -1 for any other name. */
int sheaf_schedule_from_name(const char *name);
const char *sheaf_schedule_name(sheaf_schedule_kind kind);

#endif
