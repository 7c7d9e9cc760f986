/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "base/elementary.h"

static const char *const names[] = { "constant", "linear", "cosine" };

int sheaf_schedule_from_name(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

const char *sheaf_schedule_name(sheaf_schedule_kind kind) { return names[kind]; }

sheaf_status *sheaf_schedule_check(const sheaf_schedule *schedule)
{
    const int64_t warmup = schedule->warmup, steps = schedule->steps;
    if (steps < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--steps"), "0 or more"),
                           "%" PRId64, steps);
    if (warmup < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--warmup"), "0 or more"),
                           "%" PRId64, warmup);
    if (warmup > steps) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--warmup");
        sheaf_expected(st, "at most %" PRId64 ", the value of --steps", steps);
        sheaf_found(st, "%" PRId64, warmup);
        return sheaf_try_this(st, "the rate would never reach --lr; give fewer warm-up steps");
    }
    return NULL;
}

double sheaf_schedule_factor(const sheaf_schedule *schedule, int64_t done)
{
    static const double pi = 3.14159265358979323846;
    const int64_t warmup = schedule->warmup, steps = schedule->steps;
    if (done < warmup)
        return (double)done / (double)warmup;
    if (schedule->kind == SHEAF_SCHEDULE_CONSTANT)
        return 1.0;
    if (done >= steps) /* the cosine would rise again */
        return 0.0;
    const double span = (double)(steps - warmup); /* at least 1: warmup <= done < steps */
    if (schedule->kind == SHEAF_SCHEDULE_LINEAR)
        return (double)(steps - done) / span;
    return 0.5 * (1.0 + sheaf__cos_d(pi * ((double)(done - warmup) / span)));
}
