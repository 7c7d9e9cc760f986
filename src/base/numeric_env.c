/* numeric_env.c - see numeric_env.h, and thread.h. */
#include "base/numeric_env.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/thread.h"

sheaf__numeric_env sheaf__numeric_env_enter(void)
{
    sheaf__numeric_env before = { .own = newlocale(LC_ALL_MASK, "C", (locale_t)0) };
    before.locale = uselocale(before.own); /* 0, for want of memory: as it is */
    fegetenv(&before.mode);
    fesetenv(FE_DFL_ENV);
    return before;
}

sheaf__numeric_env sheaf__callback_env(void)
{
    sheaf__numeric_env before = { .locale = uselocale(LC_GLOBAL_LOCALE) };
    fegetenv(&before.mode);
    return before;
}

void sheaf__numeric_env_restore(sheaf__numeric_env *before)
{
    fesetenv(&before->mode);
    uselocale(before->locale);
    if (before->own != (locale_t)0)
        freelocale(before->own);
}

/* ---- threads ---- */

typedef struct beginning {
    void *(*run)(void *);
    void *context;
} beginning;

/* A thread begins with the mode of the one that started it, and the locale of the program. */
static void *begin(void *self)
{
    SHEAF__NUMERIC_ENV;
    const beginning b = *(beginning *)self;
    free(self);
    return b.run(b.context);
}

int sheaf__thread_start(pthread_t *out, void *(*run)(void *), void *context)
{
    pthread_attr_t how;
    size_t bytes = 0;
    beginning *b = malloc(sizeof *b);
    int error = b == NULL ? ENOMEM : pthread_attr_init(&how);
    if (error != 0) {
        free(b);
        return error;
    }
    *b = (beginning){ run, context };
    if (pthread_attr_getstacksize(&how, &bytes) != 0 || bytes < SHEAF__STACK_BYTES)
        error = pthread_attr_setstacksize(&how, SHEAF__STACK_BYTES);
    if (error == 0)
        error = pthread_create(out, &how, begin, b);
    if (error != 0)
        free(b);
    pthread_attr_destroy(&how);
    return error;
}

int sheaf__cores(int requested)
{
    cpu_set_t set;
    if (requested > 0)
        return requested;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}
