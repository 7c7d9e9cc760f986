/* inside.h - how the caller's program computes and writes numbers is its own affair: rounding mode,
 * traps, denormals, decimal point. Files and results must not follow it, and it must be as it was
 * when a call returns.
 *
 * Every exported function that reads, writes or computes numbers begins with SHEAF__INSIDE, every
 * thread with sheaf__thread_start(); what the program gave to be called is called between
 * sheaf__callback_begin() and sheaf__numbers_restore(). */
#pragma once

#include <fenv.h>
#include <locale.h>

/* Of one thread. */
typedef struct sheaf__numbers {
    fenv_t mode;
    locale_t locale, own; /* own: to be freed, or 0 */
} sheaf__numbers;

/* sheaf__numbers_inside - the default mode and the locale "C"; returns those that there were. */
sheaf__numbers sheaf__numbers_inside(void);
/* sheaf__callback_begin - the locale that the program has chosen for all of its threads. The mode
 * is what it is: what a callback makes of it ends with it. */
sheaf__numbers sheaf__callback_begin(void);
void sheaf__numbers_restore(sheaf__numbers *before);

/* Until the end of the function. */
#define SHEAF__INSIDE                                                                              \
    sheaf__numbers numbers_outside __attribute__((unused, cleanup(sheaf__numbers_restore))) =      \
        sheaf__numbers_inside()
