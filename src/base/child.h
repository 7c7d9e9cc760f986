/* child.h - what a new process does before it becomes another program. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* sheaf__child_begin - after fork() or vfork(), before which all signals were blocked: process
 * `parent` is its parent, with whose end it gets signal `ends`; it handles and blocks none. False:
 * the parent has ended already. */
static inline bool sheaf__child_begin(pid_t parent, int ends)
{
    static const int taken[] = { SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                                 SIGUSR2, SIGXCPU, SIGPIPE, SIGXFSZ };
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, ends) != 0 || getppid() != parent)
        return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaction(taken[i], &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return true;
}
