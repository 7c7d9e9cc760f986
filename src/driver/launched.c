/* launched.c - see launched.h. What the watching thread does here takes no lock that a waiting rank
 * could hold: no stdio, no exit handlers. */
#include "driver/launched.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "driver/driver.h"
#include "driver/signals.h"

/* ---- the note ---- */

char driver_note_read(int note, driver_note at)
{
    char mark = 0;
    return pread(note, &mark, 1, at) == 1 ? mark : 0;
}

void driver_note_write(int note, driver_note at, char with)
{
    const bool kept = note >= 0 && lseek(note, at, SEEK_SET) == at && write(note, &with, 1) == 1;
    (void)kept; /* else mpirun's code counts, and the signal that came */
}

/* -1: it was not launched, or on another host. */
static int open_note(void)
{
    const char *path = getenv(DRIVER_NOTE);
    return path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
}

static void mark(driver_note at, char with)
{
    const int note = open_note();
    driver_note_write(note, at, with);
    if (note >= 0)
        close(note);
}

static char marked(driver_note at)
{
    const int note = open_note();
    const char mark = driver_note_read(note, at);
    if (note >= 0)
        close(note);
    return mark;
}

int driver_launch_stopped_by(void)
{
    return marked(DRIVER_NOTE_STOPPED_BY);
}

/* Once they have met, they fail as one. */
void driver_launch_note_code(const sheaf_comm *all, int code)
{
    if (all != NULL ? sheaf__all_first(all) : sheaf__launcher_look().number == 0)
        mark(DRIVER_NOTE_CODE, (char)('0' + code));
    else if (all != NULL && code != DRIVER_DONE)
        mark(DRIVER_NOTE_CODE_ELSE, (char)('0' + code));
}

/* Of ranks the first one to write counts: what the others find is its consequence. */
static void note_verdict(driver_verdict_kind kind)
{
    if (marked(DRIVER_NOTE_VERDICT) == 0)
        mark(DRIVER_NOTE_VERDICT, (char)kind);
}

/* Errors of the system that may pass: not a file that is missing, nor a disk that is full. */
static bool may_pass(const sheaf_status *st)
{
    static const int passing[] = { EIO,       ESTALE,      ETIMEDOUT,    ECONNRESET,
                                   EHOSTDOWN, ENETUNREACH, EHOSTUNREACH, ENODEV };
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (sheaf_status_errno(st) == passing[i])
            return true;
    return false;
}

void driver_verdict(const sheaf_status *st)
{
    const sheaf_code code = st == NULL ? SHEAF_E_ARG : sheaf_status_code(st);
    const bool again =
        code == SHEAF_E_PEER || code == SHEAF_E_MEMORY || (code == SHEAF_E_IO && may_pass(st));
    note_verdict(again ? DRIVER_AGAIN : DRIVER_FINAL);
}

/* ---- an end while ranks still wait ---- */

/* Its first line. */
static void print_json(const char *text)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "%.*s", (int)strcspn(text, "\n"), text);
    char *line = driver_error_json(st);
    sheaf_status_free(st);
    driver_write_all(STDOUT_FILENO, line);
    free(line);
}

static void leave(void)
{
    driver_signals_remove_unfinished();
    mark(DRIVER_NOTE_ENDED, 1);
    _exit(DRIVER_FAILED);
}

void driver_end(void *self, const char *text)
{
    const driver *d = self;
    if (text != NULL) {
        driver_write_all(STDERR_FILENO, text);
        if (d->json)
            print_json(text);
        note_verdict(DRIVER_AGAIN);
    }
    driver_launch_note_code(driver_all(d), DRIVER_FAILED);
    leave();
}

/* ---- joining the others ---- */

/* The first says it; the others after it, and where nothing ended them by then. */
enum { LONGEST_S = 300, TURN_S = 2, TURNS = 3, MOST_S = 1 << 30 };

static bool in_json;
static char *json_line, *in_words; /* what the handler writes; NULL: nothing */

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
    driver_launch_note_code(NULL, DRIVER_FAILED);
    leave();
}

void driver_join_timeout(void)
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

void driver_join_json(bool json)
{
    in_json = json;
}

void driver_joined(void)
{
    alarm(0);
}

/* ---- the rank is another process ---- */

/* Seconds that the others have: they notice within a tick of the watch, wait for each other's last
 * words, and the first one looks for what else died. */
enum { MOMENT = 2 };

static void unblock(int number)
{
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, number);
    sigprocmask(SIG_UNBLOCK, &it, NULL);
}

/* As the rank did: a process that ends by itself the launcher may take for one that was done, and
 * leave the others alone. */
static void die_of(int number)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* the rank has left one */
    signal(number, SIG_DFL);
    unblock(number);
    raise(number);
    _exit(DRIVER_FAILED);
}

/* The launcher's signals go to both, as one session: the rank is the one that minds them. */
static void wait_for(pid_t rank)
{
    int status = 0;
    while (waitpid(rank, &status, 0) < 0)
        if (errno != EINTR)
            _exit(DRIVER_FAILED);
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    struct timespec left = { .tv_sec = MOMENT };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    die_of(WTERMSIG(status));
}

void driver_split_rank(void)
{
    sigset_t all, before;
    const pid_t self = getpid();
    if (!sheaf__launcher_kills_all())
        return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t rank = fork();
    if (rank > 0)
        wait_for(rank);
    if (rank == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self))
        _exit(DRIVER_FAILED);                /* nothing of a run is left over */
    sigprocmask(SIG_SETMASK, &before, NULL); /* where no process can be made: as before */
}

void driver_fail_by_signal(void)
{
    if (sheaf__launcher_kills_all()) /* which leaves the others alone when one ends with a code */
        die_of(SIGKILL);
}

/* ---- the end of its MPI ---- */

/* Seconds that an MPI has for its own end. MPICH over UCX was seen to wait in it for ever: one
 * process for a peer that had gone on to the launcher's barrier. */
enum { FINISH_S = 10 };

static atomic_int ending = DRIVER_FAILED; /* until the code of the command is known */

static void end_anyway(int number)
{
    (void)number;
    _exit(atomic_load(&ending));
}

void driver_finish_timeout(void)
{
    fflush(NULL);
    signal(SIGALRM, end_anyway);
    unblock(SIGALRM);
    alarm(FINISH_S);
}

void driver_finish_code(int code)
{
    atomic_store(&ending, code);
}
