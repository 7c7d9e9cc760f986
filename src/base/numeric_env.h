/* numeric_env.h - how the caller's program computes and writes numbers is its own affair: rounding
 * mode, traps, denormals, decimal point. Files and results must not follow it, and it must be as it
 * was when a call returns.
 *
 * Every exported function that reads, writes or computes numbers begins with SHEAF__NUMERIC_ENV,
 * every thread with sheaf__thread_start(); what the program gave to be called is called between
 * sheaf__callback_env() and sheaf__numeric_env_restore(). */
#pragma once

#include <fenv.h>
#include <locale.h>

/* Of one thread. */
typedef struct sheaf__numeric_env {
    fenv_t mode;
    locale_t locale, own; /* own: to be freed, or 0 */
} sheaf__numeric_env;

/* sheaf__numeric_env_enter - the default mode and the locale "C"; returns those that there were. */
sheaf__numeric_env sheaf__numeric_env_enter(void);
/* sheaf__callback_env - the locale that the program has chosen for all of its threads. The mode
 * is what it is: what a callback makes of it ends with it. */
sheaf__numeric_env sheaf__callback_env(void);
void sheaf__numeric_env_restore(sheaf__numeric_env *before);

/* Until the end of the function. */
#define SHEAF__NUMERIC_ENV                                                                         \
    sheaf__numeric_env numbers_outside                                                             \
        __attribute__((unused, cleanup(sheaf__numeric_env_restore))) = sheaf__numeric_env_enter()
