/* signals.c - see signals.h. A handler can reach nothing but static memory. */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "comm/process.h"

static sheaf_signals asked;
static atomic_int interrupts;
static _Atomic(const char *) unfinished;

void cli_signals_remove_unfinished(void)
{
    const char *path = atomic_load(&unfinished);
    if (path != NULL)
        unlink(path);
}

static void on_signal(int number)
{
    const int error = errno;
    if (number == SIGINT && atomic_fetch_add(&interrupts, 1) > 0) {
        cli_signals_remove_unfinished();
        signal(SIGINT, SIG_DFL); /* impatient: taken when this handler returns */
        raise(SIGINT);
    }
    sheaf_signals_note(&asked, number);
    errno = error;
}

sheaf_status *cli_signals_install(void)
{
    static const int handled[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ, SIGUSR2 };
    const size_t count = sizeof handled / sizeof *handled;
    for (size_t i = 0; i < (sheaf__process_launched(NULL, NULL) != NULL ? count : count - 1); i++) {
        struct sigaction action = { .sa_flags = SA_RESTART }, before;
        action.sa_handler = handled[i] == SIGPIPE || handled[i] == SIGXFSZ ? SIG_IGN : on_signal;
        sigemptyset(&action.sa_mask);
        if (handled[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 &&
            before.sa_handler == SIG_IGN)
            continue; /* under nohup */
        if (sigaction(handled[i], &action, NULL) != 0)
            return sheaf_found(sheaf_fail(SHEAF_E_IO, "installing signal handlers"), "%s",
                               strerror(errno));
    }
    return NULL;
}

sheaf_signals *cli_signals(void)
{
    return &asked;
}

void cli_signals_unfinished(const char *path)
{
    atomic_store(&unfinished, path);
}

const char *cli_signals_stopped_by(void)
{
    const int number = atomic_load(&asked.stop);
    return number == 0         ? NULL
           : number == SIGINT  ? "SIGINT"
           : number == SIGHUP  ? "SIGHUP"
           : number == SIGUSR2 ? "SIGUSR2"
                               : "SIGTERM";
}

sheaf_status *cli_signals_stop(const atomic_int **stop)
{
    *stop = &asked.stop;
    return cli_signals_install();
}

sheaf_status *cli_signals_explain(sheaf_status *st)
{
    const char *by = cli_signals_stopped_by();
    return st != NULL && by != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED
               ? sheaf_in(st, "%s", by)
               : st;
}
