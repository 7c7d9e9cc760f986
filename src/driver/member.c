/* member.c - see member.h. The watching thread takes no lock here that a waiting rank
 * could hold: no stdio, no exit handlers. */
#include "driver/member.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/spell.h"
#include "comm/plugins.h"
#include "driver/signals.h"

/* ---- an end while ranks still wait ---- */

static void leave(void)
{
    driver_signals_remove_unfinished();
    driver_give_up();
    _exit(driver_is_launched() ? DRIVER_AGAIN : DRIVER_FAILED);
}

void driver_member_end(void *self, const char *text)
{
    const driver *d = self;
    char *spelled = text != NULL ? sheaf__spell_fields(text, NULL) : NULL;
    driver_write_all(STDERR_FILENO, spelled != NULL ? spelled : text);
    free(spelled);
    if (text != NULL && d->json) {
        sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "%.*s", (int)strcspn(text, "\n"), text);
        char *line = driver_error_json(st);
        sheaf_status_free(st);
        driver_write_all(STDOUT_FILENO, line);
        free(line);
    }
    leave();
}

/* ---- joining the others ---- */

/* The first process reports it; the others only if they are not ended by then. */
enum { LONGEST_S = 300, TURN_S = 2, TURNS = 3, MOST_S = 1 << 30 };

static bool in_json;
static char *json_line, *in_words; /* text for the handler; NULL: none */

static unsigned seconds(void)
{
    const char *given = getenv("SHEAF_MEET_WITHIN");
    const double s = given == NULL ? 0 : strtod(given, NULL);
    return s >= MOST_S ? MOST_S : s >= 1 ? (unsigned)s : s > 0 ? 1 : LONGEST_S;
}

static void on_alarm(int number)
{
    (void)number;
    driver_write_all(STDOUT_FILENO, json_line);
    driver_write_all(STDERR_FILENO, in_words);
    leave();
}

void driver_member_joining(void)
{
    const struct sigaction action = { .sa_handler = on_alarm };
    const unsigned within = seconds();
    char host[64] = "";
    const sheaf__launcher launcher = sheaf__launcher_look();
    const int number = launcher.number;
    if (launcher.name == NULL || sigaction(SIGALRM, &action, NULL) != 0)
        return;
    gethostname(host, sizeof host - 1);
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "rank %d on %s: the processes that %s started",
                                  number, host, launcher.name);
    sheaf_expected(st, "all together within %u s (SHEAF_MEET_WITHIN)", within);
    sheaf_found(st, "one at least that did not come: it was stopped, or its host is lost; all end");
    sheaf_try_this(st, "each host must be up, and reach the others");
    in_words = driver_error_text(st);
    json_line = in_json && number == 0 ? driver_error_json(st) : NULL;
    sheaf_status_free(st);
    alarm(within + TURN_S * (unsigned)(number < TURNS ? number : TURNS));
}

void driver_member_json(bool json)
{
    in_json = json;
}

void driver_member_joined(void)
{
    alarm(0);
}

/* ---- the rank is another process ---- */

/* Seconds for the other processes: they notice within a tick of the watch and exchange their last
 * reports, and the first one looks for other deaths. */
enum { MOMENT_S = 2 };

static void unblock(int number)
{
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, number);
    sigprocmask(SIG_UNBLOCK, &it, NULL);
}

/* The launcher's signals go to both, as one session: the rank handles them. Dies by the
 * same signal: Hydra may take a process that exits for a complete one, and leave the others
 * running. */
static void wait_for(pid_t rank)
{
    int status = 0;
    while (waitpid(rank, &status, 0) < 0)
        if (errno != EINTR)
            _exit(DRIVER_FAILED);
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    struct timespec left = { .tv_sec = MOMENT_S };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* the rank has left one */
    signal(WTERMSIG(status), SIG_DFL);
    unblock(WTERMSIG(status));
    raise(WTERMSIG(status));
    _exit(DRIVER_FAILED);
}

void driver_member_split(void)
{
    sigset_t all, before;
    const pid_t self = getpid();
    if (!sheaf__launcher_is_hydra())
        return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t rank = fork();
    if (rank > 0)
        wait_for(rank);
    if (rank == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self))
        _exit(DRIVER_FAILED);                /* no process of a run remains */
    sigprocmask(SIG_SETMASK, &before, NULL); /* no process could be made: goes on as before */
}

/* ---- the end of its MPI ---- */

/* Seconds that an MPI has for its own end. MPICH over UCX was seen to wait in it for ever, for a
 * peer that had gone on to the launcher's barrier. */
enum { FINISH_S = 10 };

static atomic_int ending = DRIVER_FAILED; /* until the code of the command is known */

static void end_anyway(int number)
{
    (void)number;
    _exit(atomic_load(&ending));
}

void driver_member_finishing(void)
{
    fflush(NULL);
    if (sheaf__launcher_look().number == 0)
        driver_finished(atomic_load(&ending));
    signal(SIGALRM, end_anyway);
    unblock(SIGALRM);
    alarm(FINISH_S);
}

void driver_member_code(int code)
{
    atomic_store(&ending, code);
}
