/* launch.c - see launch.h. */
#include "driver/launch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/temporary.h"
#include "comm/plugins.h"
#include "driver/launched.h"
#include "driver/signals.h"

extern char **environ;

/* ---- the words of the command ---- */

typedef struct words {
    const char **at; /* borrowed words; ends with NULL */
    int64_t count, capacity;
    char **name; /* [names] of variables, owned */
    int64_t names, room;
    char processes[16];
    bool failed;
} words;

static void add(words *w, const char *word)
{
    if (!SHEAF_GROW(&w->at, &w->capacity, w->count + 2)) {
        w->failed = true;
        return;
    }
    w->at[w->count++] = word;
    w->at[w->count] = NULL;
}

static void add_two(words *w, const char *first, const char *second)
{
    add(w, first);
    add(w, second);
}

/* Has a scheduler given this job its machines? Then the MPI knows how many may run where. */
static bool is_scheduled(void)
{
    static const char *const marks[] = { "SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE",
                                         "LSB_HOSTS" };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]) != NULL)
            return true;
    return false;
}

/* Open MPI keeps the environment to itself on other hosts. */
static void add_environment(words *w)
{
    static const char *const kept[] = { "LD_LIBRARY_PATH=", "OMP_", "SHEAF_" };
    for (char **e = environ; *e != NULL; e++)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (strncmp(*e, kept[i], strlen(kept[i])) == 0) {
                if (!SHEAF_GROW(&w->name, &w->room, w->names + 1) ||
                    (w->name[w->names] = strndup(*e, strcspn(*e, "="))) == NULL) {
                    w->failed = true;
                    return;
                }
                add_two(w, "-x", w->name[w->names++]); /* a value may hold what mpirun parses */
            }
    add_two(w, "-x", DRIVER_NOTE); /* which is set for mpirun alone: see become() */
}

static void add_program(words *w, const char *program, const driver_launch_options *o)
{
    add(w, program);
    for (int i = 0; i < o->argc; i++)
        add(w, o->argv[i]);
}

static void command_of(words *w, const char *mpirun, bool is_open, const char *program,
                       const driver_launch_options *o)
{
    snprintf(w->processes, sizeof w->processes, "%d", o->processes);
    add(w, mpirun);
    add_two(w, "-n", w->processes);
    if (is_open) {
        add(w, "-q"); /* it would explain an exit code that sheaf has explained */
        add_two(w, "--bind-to", "none");
        if (!sheaf__is_given(o->hosts) && !sheaf__is_given(o->hostfile) && !is_scheduled())
            add(w, "--oversubscribe");
        add_environment(w);
    }
    if (sheaf__is_given(o->hosts))
        add_two(w, is_open ? "--host" : "-hosts", o->hosts);
    if (sheaf__is_given(o->hostfile))
        add_two(w, is_open ? "--hostfile" : "-f", o->hostfile);
    add_program(w, program, o);
    bool given_before = false;
    for (int i = 0; i < o->argc; i++)
        given_before |= strncmp(o->argv[i], "--transport", 11) == 0;
    if (!given_before) /* but by a recipe, or by the run that goes on, which are read later */
        add_two(w, "--transport", "mpi");
}

/* ---- which mpirun ---- */

/* Its path, if it is on PATH; NULL: it is not. */
static char *on_path(const char *name)
{
    const char *at = getenv("PATH");
    while (sheaf__is_given(at)) {
        const size_t n = strcspn(at, ":");
        char *path = NULL;
        if (asprintf(&path, "%.*s/%s", (int)n, at, name) < 0)
            return NULL;
        if (access(path, X_OK) == 0 && sheaf__path_kind(path) == SHEAF_PATH_FILE)
            return path;
        free(path);
        at += n + (at[n] == ':');
    }
    return NULL;
}

sheaf_status *driver_launch_mpirun(char **path, bool *is_open, const char *mpi)
{
    static const char *const names[2][3] = { { "mpirun.mpich", "mpiexec.hydra", "mpirun" },
                                             { "mpirun.openmpi", "orterun", "mpirun" } };
    char *module = NULL;
    *path = NULL;
    sheaf_status *missing = sheaf__plugin_find(&module, mpi);
    if (missing != NULL)
        return missing;
    *is_open = strstr(module, "mpich") == NULL;
    free(module);
    for (int i = 0; i < 3 && *path == NULL; i++)
        *path = on_path(names[*is_open][i]);
    if (*path != NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi");
    sheaf_expected(st, "mpirun of %s on PATH", *is_open ? "Open MPI" : "MPICH");
    sheaf_found(st, "none");
    return sheaf_try_this(st, "install %s", *is_open ? "openmpi-bin" : "mpich");
}

/* ---- its life ---- */

/* In the new process. It ends with this one, so that nothing is left over. */
static void become(const words *w, bool is_mpirun, const char *note, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    if (is_mpirun)
        setpgid(0, 0); /* a Ctrl-C is for the caller, which passes it on in its own way */
    if (prctl(PR_SET_PDEATHSIG, is_mpirun ? SIGTERM : SIGKILL) != 0 || getppid() != parent)
        _exit(127);
    setenv(DRIVER_NOTE, note, 1);
    static const int taken[] = { SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                                 SIGUSR2, SIGXCPU, SIGPIPE, SIGXFSZ };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        signal(taken[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!is_mpirun || freopen("/dev/null", "r", stdin) != NULL)
        execv(w->at[0], (char *const *)w->at);
    _exit(127);
}

enum { PATIENCE_S = 10 };

/* The parent of a process; 0: it is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const char *name_end = fgets(text, sizeof text, file) == NULL
                               ? NULL
                               : strrchr(text, ')'); /* a name may hold any */
    if (name_end == NULL || sscanf(name_end, ") %*c %d", &parent) != 1)
        parent = 0;
    fclose(file);
    return parent;
}

static int children_of(pid_t parent, pid_t *child, int most)
{
    DIR *list = opendir("/proc");
    const struct dirent *one;
    int count = 0;
    while (list != NULL && count < most && (one = readdir(list)) != NULL) {
        const pid_t pid = (pid_t)strtol(one->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == parent)
            child[count++] = pid;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

void driver_launch_kill(const pid_t *mpirun, int mpiruns)
{
    pid_t way[1024];
    int count = 0;
    for (int i = 0; i < mpiruns; i++) {
        if (mpirun[i] <= 0)
            continue;
        count += children_of(mpirun[i], way + count, 1024 - count);
        kill(-mpirun[i], SIGKILL);
        kill(mpirun[i], SIGKILL);
    }
    if (count > 0)
        sleep(1); /* in which what it began here ends by itself, with the processes of its own */
    for (int i = 0; i < count; i++)
        if (getpgid(way[i]) == way[i])
            kill(-way[i], SIGKILL);
}

/* Waits for its end; returns its status. Open MPI ends everything at SIGTERM, MPICH at SIGUSR2:
 * each passes on another signal. */
static int watch(bool *stopped, pid_t child, int stop_signal, int note)
{
    const struct timespec nap = { .tv_nsec = 20 * 1000000 };
    double ended_at = 0;
    bool killed = false;
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        const int asked = sheaf__control_poll(driver_signals());
        if (asked & SHEAF__CONTROL_SAVE)
            kill(child, SIGUSR1);
        if ((asked & SHEAF__CONTROL_STOP) && !*stopped) {
            driver_note_write(note, DRIVER_NOTE_STOPPED_BY,
                              (char)atomic_load(&driver_signals()->stop));
            kill(child, stop_signal);
            *stopped = true;
        }
        if (ended_at == 0 && driver_note_read(note, DRIVER_NOTE_ENDED) != 0)
            ended_at = sheaf__seconds();
        if (!killed && ended_at > 0 && sheaf__seconds() - ended_at > PATIENCE_S) {
            driver_launch_kill(&child, 1);
            killed = true;
        }
        nanosleep(&nap, NULL);
    }
    return ended > 0 && !killed ? status : DRIVER_FAILED << 8; /* as of exit(DRIVER_FAILED) */
}

/* Waits for all that an mpirun leaves as it is killed, which ends by itself soon, and kills after
 * three seconds what is still there: the next run must not find it, as it holds the lock. */
static void leave_none(void)
{
    enum { NAP_MS = 20, KILL_MS = 3000, MOST_MS = 8000 };
    const struct timespec nap = { .tv_nsec = NAP_MS * 1000000 };
    pid_t left[256];
    for (int ms = 0; ms < MOST_MS; ms += NAP_MS) {
        pid_t ended;
        while ((ended = waitpid(-1, NULL, WNOHANG)) > 0 || (ended < 0 && errno == EINTR))
            ;
        if (ended < 0)
            return;
        const int count = ms < KILL_MS ? 0 : children_of(getpid(), left, 256);
        for (int i = 0; i < count; i++)
            kill(left[i], SIGKILL);
        nanosleep(&nap, NULL);
    }
}

/* The first was killed itself, or mpirun ended all before one could say it, or began none. */
static sheaf_status *cut_short(const char *mpirun)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "the processes that %s started", mpirun);
    sheaf_expected(st, "each to begin, and to come to its end");
    sheaf_found(st,
                "one that could not be started, was killed, or whose machine is gone; all ended");
    return sheaf_try_this(st, "what stands above; --hosts, and ssh to each without a password; the "
                              "kernel's log, where memory ran out");
}

/* What came of it. Where the first process is on another host, another one here has failed with it,
 * or mpirun hands its code on; one that sheaf does not give, 1 (which may be mpirun's own) or that
 * of a signal, means nothing here but that it failed. mpirun NULL: there was none. */
static sheaf_status *conclude(driver_launch_result *out, int status, const char *mpirun, int note)
{
    const char first = driver_note_read(note, DRIVER_NOTE_CODE),
               other = driver_note_read(note, DRIVER_NOTE_CODE_ELSE);
    const bool killed = WIFSIGNALED(status);
    out->verdict = driver_note_read(note, DRIVER_NOTE_VERDICT);
    out->code = first != 0   ? first - '0'
                : other != 0 ? other - '0'
                : killed     ? -1
                             : WEXITSTATUS(status);
    const bool known = first != 0 || other != 0 || out->code == DRIVER_DONE ||
                       out->code == DRIVER_USAGE || out->code == DRIVER_FAILED;
    if (!known)
        out->code = DRIVER_FAILED;
    if (mpirun == NULL) {
        out->killed_by = killed ? WTERMSIG(status) : 0;
        return NULL;
    }
    if (out->stopped)
        return known || driver_note_read(note, DRIVER_NOTE_ENDED) != 0
                   ? NULL
                   : sheaf_fail(SHEAF_E_STOPPED, "asked to stop before the processes had begun");
    return killed || (!known && driver_note_read(note, DRIVER_NOTE_ENDED) == 0) ? cut_short(mpirun)
                                                                                : NULL;
}

/* mpirun says nothing of a list without hosts. */
static sheaf_status *find(char **mpirun, bool *is_open, const driver_launch_options *o)
{
    driver_hosts hosts;
    sheaf_status *st = driver_hosts_read(&hosts, o->hosts, o->hostfile);
    driver_hosts_release(&hosts);
    return st != NULL || o->processes == 0 ? st : driver_launch_mpirun(mpirun, is_open, o->mpi);
}

sheaf_status *driver_launch(driver_launch_result *out, const driver_launch_options *o)
{
    char *mpirun = NULL, self[PATH_MAX];
    static char note[PATH_MAX]; /* which a handler of signals reads */
    int fd = -1;
    words w = { 0 };
    bool is_open = false;
    const bool alone = o->processes == 0;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    *out = (driver_launch_result){ .code = DRIVER_FAILED };
    if ((!alone && getenv(DRIVER_NOTE) != NULL) || n <= 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi"),
                                          "a launcher that numbers its processes"),
                           "neither OMPI_COMM_WORLD_RANK, PMIX_RANK nor PMI_RANK");
    self[n] = '\0';
    sheaf_status *st = find(&mpirun, &is_open, o);
    if (alone)
        add_program(&w, self, o);
    else if (st == NULL)
        command_of(&w, mpirun, is_open, self, o);
    if (st == NULL && w.failed)
        st = sheaf__no_memory("the command of a process");
    TRY(st, driver_signals_install());
    TRY(st, sheaf__temporary_make(note, sizeof note, &fd, "note", false));
    driver_note_write(fd, DRIVER_NOTE_VERDICT,
                      0);               /* has its block on the disk, which may be full later */
    prctl(PR_SET_CHILD_SUBREAPER, 1UL); /* what an mpirun leaves as it is killed is this one's */
    const pid_t parent = getpid(), child = st == NULL ? fork() : -1;
    if (child == 0)
        become(&w, !alone, note, parent);
    if (fd >= 0) /* an impatient second Ctrl-C ends this process at once */
        driver_signals_unfinished(note);
    if (st == NULL && child < 0)
        st = sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "starting %s", w.at[0]), errno);
    if (st == NULL) {
        const int status = watch(&out->stopped, child, is_open ? SIGUSR2 : SIGTERM, fd);
        leave_none();
        st = conclude(out, status, mpirun, fd);
    }
    sheaf__segments_sweep(SHEAF__SEGMENTS);
    if (fd >= 0) {
        driver_signals_unfinished(NULL);
        unlink(note);
        close(fd);
    }
    while (w.names > 0)
        free(w.name[--w.names]);
    free(w.name);
    free(w.at);
    free(mpirun);
    return st;
}
