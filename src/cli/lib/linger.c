/* linger.c - see linger.h. */
#include "linger.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "comm/plugins.h"
#include "comm/process.h"

/* Seconds that the others have: they notice within a tick of the watch, wait for each other's last
 * words, and the first one looks for what else died. */
enum { MOMENT = 2 };

/* As the rank did: a process that ends by itself the launcher may take for one that was done, and
 * leave the others alone. */
static void die_of(int number)
{
    sigset_t it;
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* the rank has left one */
    signal(number, SIG_DFL);
    sigemptyset(&it);
    sigaddset(&it, number);
    sigprocmask(SIG_UNBLOCK, &it, NULL);
    raise(number);
    _exit(CLI_FAILED);
}

/* The launcher's signals go to both, as one session: the rank is the one that minds them. */
static void wait_for(pid_t rank)
{
    int status = 0;
    while (waitpid(rank, &status, 0) < 0)
        if (errno != EINTR)
            _exit(CLI_FAILED);
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    struct timespec left = { .tv_sec = MOMENT };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    die_of(WTERMSIG(status));
}

void cli_linger(void)
{
    sigset_t all, before;
    const pid_t self = getpid();
    if (!sheaf__launcher_hasty())
        return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t rank = fork();
    if (rank > 0)
        wait_for(rank);
    if (rank == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self))
        _exit(CLI_FAILED);                   /* nothing of a run is left over */
    sigprocmask(SIG_SETMASK, &before, NULL); /* where no process can be made: as before */
}

void cli_linger_fail(void)
{
    if (sheaf__launcher_hasty()) /* which leaves the others alone when one ends with a code */
        die_of(SIGKILL);
}

/* Seconds that an MPI has for its own end. MPICH over UCX was seen to wait in it for ever: one
 * process for a peer that had gone on to the launcher's barrier. */
enum { FINISH_S = 10 };

static atomic_int ending = CLI_FAILED; /* until the command has said how it ends */

static void end_anyway(int number)
{
    (void)number;
    _exit(atomic_load(&ending));
}

void cli_linger_end(void)
{
    sigset_t it;
    fflush(NULL);
    signal(SIGALRM, end_anyway);
    sigemptyset(&it);
    sigaddset(&it, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &it, NULL);
    alarm(FINISH_S);
}

void cli_linger_code(int code)
{
    atomic_store(&ending, code);
}
