/* launch.c - see launch.h. */
#include "driver/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "base/temporary.h"
#include "comm/plugins.h"
#include "driver/hosts.h"
#include "driver/signals.h"
#include "train/rank.h"
#include "train/train.h"

extern char **environ;

/* PATIENCE_S: for mpirun, once a process has reported that the run cannot go on; END_S: once the
 * first one ends, whose MPI has ten of them (member.c). Open MPI's may wait for ever for its own
 * process on a host that is gone. REACH_S: for a process on a host. */
enum {
    NAP_MS = 20,
    PATIENCE_S = 10,
    END_S = 20,
    REACH_S = 15,
    KILL_MS = 3000,
    MOST_MS = 8000,
    NO_MPIRUN = 127
};

/* ---- the words of the command ---- */

typedef struct launcher {
    const char *const *names; /* of mpirun, the first on PATH counts; NULL: none, sheaf by itself */
    bool is_open;             /* Open MPI's, else MPICH's */
    char self[PATH_MAX];      /* this program */
    char note[PATH_MAX];      /* DRIVER_NOTE */
    int fd;                   /* of it */
} launcher;

typedef struct words {
    const char **at; /* borrowed; ends with NULL */
    int count;
    char processes[16];
    char *names; /* of variables, one after the other */
} words;

static void add(words *w, const char *first, const char *second)
{
    w->at[w->count++] = first;
    if (second != NULL)
        w->at[w->count++] = second;
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

/* Open MPI keeps the environment to itself on other hosts. By name: a value may hold characters
 * that mpirun parses. */
static void add_environment(words *w)
{
    static const char *const kept[] = { "LD_LIBRARY_PATH=", "OMP_", "SHEAF_" };
    char *name = w->names;
    for (char **e = environ; *e != NULL; e++)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (strncmp(*e, kept[i], strlen(kept[i])) == 0) {
                const size_t n = strcspn(*e, "=");
                memcpy(name, *e, n);
                name[n] = '\0';
                add(w, "-x", name);
                name += n + 1;
            }
}

static void add_mpirun(words *w, const launcher *l, const driver_launch_options *o)
{
    snprintf(w->processes, sizeof w->processes, "%d", o->processes);
    add(w, l->names[0], "-n");
    add(w, w->processes, NULL);
    if (l->is_open) {
        add(w, "-q", NULL); /* it would report an exit code that sheaf has reported */
        add(w, "--bind-to", "none");
        if (!sheaf__is_given(o->hosts) && !sheaf__is_given(o->hostfile) && !is_scheduled())
            add(w, "--oversubscribe", NULL);
        add_environment(w);
    }
    if (sheaf__is_given(o->hosts))
        add(w, l->is_open ? "--host" : "-hosts", o->hosts);
    if (sheaf__is_given(o->hostfile))
        add(w, l->is_open ? "--hostfile" : "-f", o->hostfile);
}

static sheaf_status *command_of(words *w, const launcher *l, const driver_launch_options *o)
{
    size_t bytes = 0, names = 0;
    for (char **e = environ; *e != NULL; e++, names++)
        bytes += strlen(*e) + 1;
    *w = (words){ .at = calloc((size_t)o->argc + 2 * names + 24, sizeof *w->at),
                  .names = malloc(bytes + 1) };
    if (w->at == NULL || w->names == NULL)
        return sheaf__no_memory("the command of a process");
    if (l->names != NULL)
        add_mpirun(w, l, o);
    add(w, l->self, NULL);
    bool given = l->names == NULL || o->argc == 1; /* of --version */
    for (int i = 0; i < o->argc; i++) {
        add(w, o->argv[i], NULL);
        given |= strncmp(o->argv[i], "--transport", 11) == 0;
    }
    if (!given) /* a recipe, or the resumed run, may have it: they are read later */
        add(w, "--transport", "mpi");
    return NULL;
}

/* The names of mpirun, and the note. */
static sheaf_status *find(launcher *l, const driver_launch_options *o)
{
    static const char *const mpich[] = { "mpirun.mpich", "mpiexec.hydra", "mpirun", NULL },
                             *const open[] = { "mpirun.openmpi", "orterun", "mpirun", NULL };
    char *module = NULL;
    const ssize_t n = readlink("/proc/self/exe", l->self, sizeof l->self - 1);
    if ((o->processes > 0 && driver_is_launched()) || n <= 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi"),
                                          "a launcher that numbers its processes"),
                           "neither OMPI_COMM_WORLD_RANK, PMIX_RANK nor PMI_RANK");
    l->self[n] = '\0';
    sheaf_status *st = o->processes > 0 ? sheaf__plugin_find(&module, o->mpi) : NULL;
    l->is_open = module != NULL && strstr(module, "mpich") == NULL;
    l->names = module == NULL ? NULL : l->is_open ? open : mpich;
    free(module);
    TRY(st, sheaf__temporary_make(l->note, sizeof l->note, &l->fd, "note", false));
    if (st == NULL)
        setenv(DRIVER_NOTE, l->note, 1);
    return st;
}

static void forget(const launcher *l)
{
    unsetenv(DRIVER_NOTE);
    if (l->fd < 0)
        return;
    unlink(l->note);
    close(l->fd);
}

/* ---- one start ---- */

/* Becomes the program of this name on PATH, by its whole path: an MPI looks there for its part on
 * other hosts. Returns where there is none. */
static void try_path(const words *w, const char *name)
{
    char path[PATH_MAX];
    for (const char *at = getenv("PATH"); at != NULL && *at != '\0'; at += *at == ':') {
        const size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)n, at, name);
        w->at[0] = path;
        execv(path, (char *const *)w->at);
        at += n;
    }
}

/* In the new process, which ends with this one. */
static void exec_child(const words *w, const launcher *l, bool is_quiet, pid_t parent)
{
    if (l->names != NULL)
        setpgid(0, 0); /* a Ctrl-C is for the caller, which passes it on in its own way */
    if (!sheaf__child_begin(parent, l->names != NULL ? SIGTERM : SIGKILL))
        _exit(NO_MPIRUN);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (l->names != NULL)
        dup2(nothing, STDIN_FILENO);
    for (int fd = 1; is_quiet && fd <= 2; fd++)
        dup2(nothing, fd);
    if (l->names == NULL)
        execv(w->at[0], (char *const *)w->at);
    for (int i = 0; l->names != NULL && l->names[i] != NULL; i++)
        try_path(w, l->names[i]);
    _exit(NO_MPIRUN);
}

static sheaf_status *start(pid_t *child, const launcher *l, const driver_launch_options *o,
                           bool is_quiet)
{
    words w;
    sheaf_status *st = command_of(&w, l, o);
    const pid_t parent = getpid();
    sigset_t every, before; /* signals wait until the child has reset its handlers */
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before);
    *child = st == NULL ? fork() : -1;
    if (*child == 0)
        exec_child(&w, l, is_quiet, parent);
    const int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (st == NULL && *child < 0)
        st = sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "starting %s", w.at[0]), error);
    free(w.at);
    free(w.names);
    return st;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * 1000000 }, NULL);
}

static void kill_children(void)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *list = fopen(path, "re");
    while (list != NULL && fscanf(list, "%d", &child) == 1)
        kill(child, SIGKILL);
    if (list != NULL)
        fclose(list);
}

/* Waits for the processes that an mpirun leaves, ranks and connections to other hosts, which end by
 * themselves soon, and kills the remainder after three seconds: the next run must not find them, as
 * they hold the lock. They are this process's children, as it is their subreaper. */
static void leave_none(void)
{
    for (int ms = 0; ms < MOST_MS; ms += NAP_MS) {
        pid_t ended;
        while ((ended = waitpid(-1, NULL, WNOHANG)) > 0 || (ended < 0 && errno == EINTR))
            ;
        if (ended < 0)
            return;
        if (ms >= KILL_MS)
            kill_children();
        nap();
    }
}

/* The exit code of the first process; -1: it has not left the others. */
static int code_of_first(const launcher *l)
{
    char mark;
    return pread(l->fd, &mark, 1, 1) == 1 ? mark - 1 : -1;
}

/* Waits for its end, until `until` or (0) as long as it takes; false: it was killed. */
static bool wait_for(int *status, bool *stopped, pid_t child, const launcher *l, double until)
{
    pid_t ended;
    double touched = 0;
    while ((ended = waitpid(child, status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        if (sheaf__seconds() > touched) { /* cleaners of /tmp go by age */
            futimens(l->fd, NULL);
            touched = sheaf__seconds() + 3600;
        }
        const int requests = sheaf__control_poll(driver_signals());
        const int number = atomic_load(&driver_signals()->stop);
        if (requests & SHEAF__CONTROL_SAVE)
            kill(child, SIGUSR1);
        if ((requests & SHEAF__CONTROL_STOP) && !*stopped) {
            const char mark = (char)number;
            const bool kept = pwrite(l->fd, &mark, 1, 0) == 1;
            (void)kept; /* else they report the signal that mpirun passed on */
            *stopped = true;
            /* Open MPI's mpirun ends everything at SIGTERM, MPICH's at SIGUSR2; a program by itself
             * may have the terminal's SIGINT already, and a second one ends it at once */
            kill(child, l->is_open ? SIGUSR2 : SIGTERM);
        }
        if (until == 0 && access(l->note, F_OK) != 0)
            until = sheaf__seconds() + PATIENCE_S;
        if (until == 0 && code_of_first(l) >= 0)
            until = sheaf__seconds() + END_S;
        if (until > 0 && sheaf__seconds() > until) {
            kill(l->names == NULL ? child : -child, SIGKILL);
            waitpid(child, status, 0);
            return false;
        }
        nap();
    }
    return true;
}

/* How a run ended. */
typedef struct ending {
    int code;      /* for the user */
    int killed_by; /* a program by itself: the signal; 0: none */
    bool again;    /* is it worth another one? */
    bool stopped;
} ending;

/* The first process was killed, or mpirun ended all before a report, or could start none. */
static sheaf_status *cut_short(void)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "the processes that mpirun started");
    sheaf_expected(st, "each to begin, and to come to its end");
    sheaf_found(st,
                "one that could not be started, was killed, or whose machine is gone; all ended");
    return sheaf_try_this(st, "the lines above; --hosts, and ssh to each without a password; the "
                              "kernel's log, where memory ran out");
}

static sheaf_status *no_mpirun(const launcher *l)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi");
    sheaf_expected(st, "mpirun of %s on PATH", l->is_open ? "Open MPI" : "MPICH");
    sheaf_found(st, "none");
    return sheaf_try_this(st, "install %s", l->is_open ? "openmpi-bin" : "mpich");
}

/* mpirun ends with the code of a process that failed; a code that sheaf does not have means
 * only that. `explained`: a process has reported why the run does not go on; Hydra, when it passed
 * on a signal, may end with 0 all the same. */
static sheaf_status *conclude(ending *out, int status, bool ended, bool explained,
                              const launcher *l)
{
    const int first = code_of_first(l),
              said = ended && WIFEXITED(status) ? WEXITSTATUS(status)
                     : !ended && first >= 0     ? first
                                                : DRIVER_AGAIN + 1,
              code = said == DRIVER_DONE && explained ? DRIVER_FAILED : said;
    const bool known = code <= DRIVER_FAILED && (l->names == NULL || code != DRIVER_NO);
    out->code = known ? code : DRIVER_FAILED;
    out->again = !known && !out->stopped;
    if (l->names == NULL) {
        out->killed_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        out->again = out->again && out->killed_by != SIGINT;
        return NULL;
    }
    if (code == NO_MPIRUN) {
        out->again = false;
        return no_mpirun(l);
    }
    if (known || code == DRIVER_AGAIN || explained)
        return NULL;
    return out->stopped
               ? sheaf_fail(SHEAF_E_STOPPED, "asked to stop before the processes had started")
               : cut_short();
}

static sheaf_status *run_once(ending *out, const driver_launch_options *o)
{
    static launcher l; /* a handler of signals reads its note */
    pid_t child = -1;
    int status = 0;
    *out = (ending){ .code = DRIVER_FAILED };
    l = (launcher){ .fd = -1 };
    sheaf_status *st = find(&l, o);
    TRY(st, driver_signals_install());
    if (l.fd >= 0) /* an impatient second Ctrl-C ends this process at once */
        driver_signals_unfinished(l.note);
    TRY(st, start(&child, &l, o, false));
    if (st == NULL) {
        const bool ended = wait_for(&status, &out->stopped, child, &l, 0),
                   explained = access(l.note, F_OK) != 0;
        leave_none();
        st = conclude(out, status, ended, explained, &l);
    }
    driver_signals_unfinished(NULL);
    forget(&l);
    return st;
}

/* ---- and again ---- */

/* In the environment of a restarted run. */
static const char spent_before[] = "SHEAF_SPENT_BEFORE";

double driver_spent_before(void)
{
    const char *text = getenv(spent_before);
    const double s = text == NULL ? 0 : strtod(text, NULL);
    return s > 0 ? s : 0;
}

void driver_fewer_ranks(int *tp, int *dp, int left, int accumulators)
{
    int d = *dp;
    while (d > 1 && (d > left || accumulators % d != 0))
        d--;
    *dp = d;
    *tp = left / d < *tp ? left / d : *tp;
    *tp = *tp < 1 ? 1 : *tp;
}

/* A run between two starts. */
typedef struct again {
    driver *driver;
    driver_launch_options o; /* of the next start */
    char **argv;             /* its words */
    char tp[24], dp[24];     /* the remaining ranks; empty: as in the words */
    driver_hosts hosts;      /* all that were given */
    char *left;              /* the hosts of the next start; NULL: all */
    int64_t before;          /* the first step of the last try */
    unsigned pause;          /* seconds */
} again;

static bool is_flag(const char *word, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0 &&
           (word[n + 2] == '\0' || word[n + 2] == '=');
}

/* The number of words to leave out from word i on. */
static int left_out(const again *a, const driver_launch_options *o, int i)
{
    const char *word = o->argv[i];
    if (strcmp(word, "--resume") == 0)
        return 1;
    if (a->tp[0] == '\0' || (!is_flag(word, "tp") && !is_flag(word, "dp")))
        return 0;
    return strchr(word, '=') == NULL && i + 1 < o->argc ? 2 : 1;
}

static sheaf_status *write_words(again *a, const driver_launch_options *o)
{
    static char resume[] = "--resume";
    char **words = calloc((size_t)o->argc + 4, sizeof *words);
    int n = 0;
    if (words == NULL)
        return sheaf__no_memory("--restarts");
    for (int i = 0, skip; i<o->argc; i += skip> 0 ? skip : 1)
        if ((skip = left_out(a, o, i)) == 0)
            words[n++] = o->argv[i];
    if (o->run->resume || sheaf__path_kind(o->run->out) == SHEAF_PATH_DIR)
        words[n++] = resume;
    if (a->tp[0] != '\0') {
        words[n++] = a->tp;
        words[n++] = a->dp;
    }
    free(a->argv);
    a->o.argv = a->argv = words;
    a->o.argc = n;
    return NULL;
}

/* Can mpirun start a process there now? */
static bool is_reachable(const char *host, const char *mpi)
{
    char version[] = "--version", *argv[] = { version };
    const driver_launch_options o = {
        .processes = 1, .mpi = mpi, .hosts = host, .argc = 1, .argv = argv
    };
    launcher l = { .fd = -1 };
    bool stopped = false;
    int status = -1;
    pid_t child;
    sheaf_status *st = find(&l, &o);
    TRY(st, start(&child, &l, &o, true));
    const bool yes = st == NULL &&
                     wait_for(&status, &stopped, child, &l, sheaf__seconds() + REACH_S) &&
                     status == 0;
    leave_none();
    forget(&l);
    sheaf_status_free(st);
    return yes;
}

/* The reachable hosts; one that is back is used again. If none is, the cause is another one. */
static sheaf_status *choose_hosts(again *a, const driver_launch_options *o)
{
    int tp = o->run->tp, dp = o->run->dp, lost = 0;
    a->tp[0] = '\0';
    for (int i = 0; i < a->hosts.count; i++) {
        driver_host *h = &a->hosts.host[i];
        h->lost = !is_reachable(h->name, o->mpi);
        lost += h->lost;
    }
    for (int i = 0; i < a->hosts.count && lost == a->hosts.count; i++)
        a->hosts.host[i].lost = false;
    a->o.processes = o->processes;
    a->o.hosts = o->hosts;
    a->o.hostfile = o->hostfile;
    if (lost == 0 || lost == a->hosts.count)
        return NULL;
    driver_fewer_ranks(&tp, &dp, driver_hosts_left(&a->hosts, tp * dp),
                       sheaf__accumulators_of(o->run));
    snprintf(a->tp, sizeof a->tp, "--tp=%d", tp);
    snprintf(a->dp, sizeof a->dp, "--dp=%d", dp);
    free(a->left);
    a->left = driver_hosts_words(&a->hosts, o->run->tp * o->run->dp);
    a->o.processes = tp * dp > 1 ? tp * dp : 0;
    a->o.hosts = a->left;
    a->o.hostfile = NULL;
    return a->left == NULL ? sheaf__no_memory("--restarts") : NULL;
}

/* Newest checkpoint, 0: none. */
static int64_t newest(const char *out)
{
    char *settings = NULL;
    int64_t step = 0;
    sheaf_status_free(sheaf_train_peek(&settings, &step, out));
    free(settings);
    return step;
}

static void announce(const again *a, const ending *end, int64_t n, int64_t step)
{
    sheaf_text line = { 0 };
    sheaf__text_add(&line, "restart %" PRId64 " of %" PRId64 ": the run %s %d; it goes on ", n,
                    a->o.run->restarts,
                    end->killed_by > 0 ? "was killed by signal" : "ended with code",
                    end->killed_by > 0 ? end->killed_by : end->code);
    if (step > 0)
        sheaf__text_add(&line, "after step %" PRId64, step);
    else
        sheaf__text_add(&line, "from the start");
    if (a->tp[0] != '\0')
        sheaf__text_add(&line, ", with %s %s", a->tp, a->dp);
    for (int i = 0, count = 0; i < a->hosts.count; i++)
        if (a->hosts.host[i].lost)
            sheaf__text_add(&line, "%s%s",
                            count++ == 0 ? ", without hosts that do not answer: " : ", ",
                            a->hosts.host[i].name);
    if (!line.failed)
        sheaf_note(&a->driver->events, "%s", line.at);
    sheaf__text_release(&line);
}

/* Restart number n. */
static sheaf_status *prepare(again *a, const ending *end, int64_t n, const driver_launch_options *o)
{
    sheaf_status *st = choose_hosts(a, o);
    TRY(st, write_words(a, o));
    if (st != NULL)
        return st;
    const int64_t step = newest(o->run->out);
    announce(a, end, n, step);
    a->pause = step > a->before ? 1 : 2 * a->pause; /* no progress: the cause may pass with time */
    a->before = step;
    if (a->pause > 1)
        sleep(a->pause < 60 ? a->pause : 60);
    return NULL;
}

sheaf_status *driver_launch(int *code, driver *d, const driver_launch_options *o)
{
    const double began = sheaf__seconds();
    const int64_t restarts = o->run == NULL ? 0 : o->run->restarts;
    again a = { .driver = d, .o = *o, .before = -1, .pause = 1 };
    bool again = true;
    prctl(PR_SET_CHILD_SUBREAPER, 1UL); /* processes of a killed mpirun become this one's */
    sheaf_status *st = driver_hosts_read(&a.hosts, o->hosts, o->hostfile);
    for (int64_t n = 0; again && st == NULL; n++) {
        ending end;
        char spent[32];
        snprintf(spent, sizeof spent, "%.3f", sheaf__seconds() - began);
        setenv(spent_before, spent, 1);
        fflush(d->out);
        st = run_once(&end, &a.o);
        *code = end.code;
        again = (st == NULL ? end.again : sheaf_status_code(st) == SHEAF_E_PEER) && n < restarts;
        if (end.killed_by > 0 && !again)
            sheaf__print(d->err, "sheaf: the run was killed by signal %d%s\n", end.killed_by,
                         n == restarts ? ", and no restart is left" : "");
        if (!again)
            break;
        if (st != NULL)
            sheaf_status_print(sheaf__status_spell(st, NULL), d->err);
        sheaf_status_free(st);
        st = prepare(&a, &end, n + 1, o);
        if (st == NULL && atomic_load(&driver_signals()->stop) != 0)
            st = sheaf_fail(SHEAF_E_STOPPED, "asked to stop between two starts");
    }
    free(a.argv);
    free(a.left);
    driver_hosts_release(&a.hosts);
    return st;
}
