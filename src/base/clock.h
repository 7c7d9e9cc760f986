/* clock.h - seconds that have passed, for measuring how long something took. */
#pragma once

#include <time.h>

/* sheaf__seconds - since some fixed moment; never goes backwards. */
static inline double sheaf__seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
