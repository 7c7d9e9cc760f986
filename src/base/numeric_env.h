/* numeric_env.h - the caller's numeric environment: rounding mode, traps, denormals,
 * decimal point. Files and results must not depend on it, and it must be unchanged
 * when a call returns.
 *
 * Every exported function that reads, writes or computes numbers begins with SHEAF__NUMERIC_ENV,
 * every thread with sheaf__thread_start(); the program's callbacks run between
 * sheaf__callback_env() and sheaf__numeric_env_restore(). */
#pragma once

#include <fenv.h>
#include <locale.h>

/* Of one thread. */
typedef struct sheaf__numeric_env {
    fenv_t mode;
    locale_t locale, own; /* own: to be freed, or 0 */
} sheaf__numeric_env;

/* sheaf__numeric_env_enter - the default mode and the locale "C"; returns the previous ones. */
sheaf__numeric_env sheaf__numeric_env_enter(void);
/* sheaf__callback_env - the locale that the program has chosen for all of its threads. The mode
 * is unchanged: what a callback sets ends with it. */
sheaf__numeric_env sheaf__callback_env(void);
void sheaf__numeric_env_restore(sheaf__numeric_env *before);

/* Until the end of the function. */
#define SHEAF__NUMERIC_ENV                                                                         \
    sheaf__numeric_env numbers_outside                                                             \
        __attribute__((unused, cleanup(sheaf__numeric_env_restore))) = sheaf__numeric_env_enter()
