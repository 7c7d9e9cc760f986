/* restarts.c - see restarts.h. */
#include "restarts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "base/temporary.h"
#include "comm/plugins.h"
#include "ending.h"
#include "hosts.h"
#include "launch.h"
#include "train/rank.h"
#include "train/train.h"

enum { MORE = 8 }; /* words beside those that were given */

typedef struct supervised {
    cli *cli;
    const sheaf_train_options *o;
    int argc;
    char **argv;
    char verdict[64]; /* the file that CLI_VERDICT names */
    int tp, dp;       /* of the next run; 0: as the words say */
    cli_hosts hosts;  /* all that were given */
    char *left;       /* those of the next run; NULL: all */
    bool stopped;     /* a signal asked for it */
    double began;     /* by sheaf__seconds() */
} supervised;

bool cli_is_supervised(void)
{
    const char *path = getenv(CLI_VERDICT);
    return path != NULL && *path != '\0';
}

/* In the environment of a run that is begun again: --max-time is of all its tries together. */
static const char spent_before[] = "SHEAF_SPENT_BEFORE";

double cli_spent_before(void)
{
    const char *text = getenv(spent_before);
    const double s = text == NULL ? 0 : strtod(text, NULL);
    return s > 0 ? s : 0;
}

void cli_fewer_ranks(int *tp, int *dp, int left, int accumulators)
{
    int d = *dp;
    while (d > 1 && (d > left || accumulators % d != 0))
        d--;
    *dp = d;
    *tp = left / d < *tp ? left / d : *tp;
    *tp = *tp < 1 ? 1 : *tp;
}

/* ---- the words of a run ---- */

static bool is_flag(const char *word, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0 &&
           (word[n + 2] == '\0' || word[n + 2] == '=');
}

/* How many words from word i on are to be left out. */
static int left_out(const supervised *s, int i)
{
    static const char *const replaced[] = { "tp", "dp", "hosts", "hostfile" };
    const char *word = s->argv[i];
    if (strcmp(word, "--resume") == 0)
        return 1;
    for (int k = s->tp > 0 ? 0 : 2; k < (s->left != NULL ? 4 : 2); k++)
        if (is_flag(word, replaced[k]))
            return strchr(word, '=') == NULL && i + 1 < s->argc ? 2 : 1;
    return 0;
}

static char **words_of(const supervised *s, bool resume, char (*number)[16])
{
    char **words = calloc((size_t)s->argc + MORE + 2, sizeof *words);
    int n = 0;
    if (words == NULL)
        return NULL;
    words[n++] = (char *)"sheaf";
    for (int i = 0, out; i < s->argc; i++) {
        if ((out = left_out(s, i)) == 0)
            words[n++] = s->argv[i];
        else
            i += out - 1;
    }
    if (resume)
        words[n++] = (char *)"--resume";
    if (s->tp > 0) {
        snprintf(number[0], sizeof *number, "%d", s->tp);
        snprintf(number[1], sizeof *number, "%d", s->dp);
        words[n++] = (char *)"--tp";
        words[n++] = number[0];
        words[n++] = (char *)"--dp";
        words[n++] = number[1];
    }
    if (s->left != NULL) {
        words[n++] = (char *)"--hosts";
        words[n++] = s->left;
    }
    return words;
}

/* ---- one run ---- */

/* In the new process. It ends with this one, so that nothing is left over. */
static void become(const supervised *s, char **words, pid_t parent, const sigset_t *before)
{
    signal(SIGPIPE, SIG_DFL);
    char spent[32];
    snprintf(spent, sizeof spent, "%.3f", sheaf__seconds() - s->began);
    setenv(spent_before, spent, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (getppid() == parent && setenv(CLI_VERDICT, s->verdict, 1) == 0)
        execv("/proc/self/exe", words);
    _exit(CLI_FAILED);
}

/* Waits for it; signals that are meant for the run are passed on, but for those of the terminal,
 * which it gets itself. */
static int wait_for(supervised *s, pid_t pid, const sigset_t *signals)
{
    int status = 0;
    for (;;) {
        siginfo_t about;
        if (sigwaitinfo(signals, &about) < 0)
            continue;
        if (about.si_signo == SIGCHLD) {
            if (waitpid(pid, &status, WNOHANG) == pid)
                return status;
            continue;
        }
        s->stopped |= about.si_signo != SIGUSR1;
        if (about.si_code != SI_KERNEL)
            kill(pid, about.si_signo);
    }
}

static sheaf_status *run(int *status, supervised *s, bool resume)
{
    char number[2][16];
    char **words = words_of(s, resume, number);
    static const int handled[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1 };
    sigset_t signals, before;
    if (words == NULL)
        return sheaf__no_memory("--restarts");
    const int fd = open(s->verdict, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&signals, handled[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    fflush(s->cli->out);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(s, words, parent, &before);
    const int error = errno;
    if (pid > 0)
        *status = wait_for(s, pid, &signals);
    if (pid > 0)
        cli_launch_leave_none();
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(words);
    return pid > 0 ? NULL
                   : sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "--restarts: beginning a process"),
                                        error);
}

/* ---- and again? ---- */

/* Was the process that launched the ranks killed? mpirun then stops them, which is no request of
 * the user. */
static bool lost_launcher(const supervised *s, int status)
{
    return s->o->transport == SHEAF_TRANSPORT_MPI && WIFSIGNALED(status) &&
           WTERMSIG(status) != SIGINT && WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGHUP;
}

/* Is its end, by the verdict that it wrote, worth another run? One without a verdict was killed. */
static bool worth_another(const supervised *s, int status, int *gone)
{
    char *text = NULL, word[16] = "";
    size_t size = 0;
    *gone = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, s->verdict, 4096);
    const bool known = st == NULL && sscanf(text, "%15s %d", word, gone) == 2;
    sheaf_status_free(st);
    free(text);
    if (s->stopped || (WIFEXITED(status) && WEXITSTATUS(status) == CLI_USAGE))
        return false;
    if (lost_launcher(s, status)) /* whatever its processes made of that */
        return true;
    if (known)
        return strcmp(word, "again") == 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) != SIGINT : true;
}

/* The hosts that answer; one that is back is used again. */
static sheaf_status *choose_hosts(supervised *s)
{
    int tp = s->o->tp, dp = s->o->dp;
    free(s->left);
    s->left = NULL;
    s->tp = s->dp = 0;
    if (cli_hosts_ask(&s->hosts, s->o->mpi) == 0)
        return NULL;
    cli_fewer_ranks(&tp, &dp, cli_hosts_left(&s->hosts, tp * dp), sheaf__accumulators_of(s->o));
    s->tp = tp;
    s->dp = dp;
    s->left = cli_hosts_words(&s->hosts, s->o->tp * s->o->dp);
    return s->left == NULL ? sheaf__no_memory("--restarts") : NULL;
}

static sheaf_status *lessen(supervised *s, int gone)
{
    int tp = s->tp > 0 ? s->tp : s->o->tp, dp = s->tp > 0 ? s->dp : s->o->dp;
    if (s->hosts.count > 0)
        return choose_hosts(s);
    if (gone == 0)
        return NULL;
    cli_fewer_ranks(&tp, &dp, tp * dp - gone, sheaf__accumulators_of(s->o));
    s->tp = tp;
    s->dp = dp;
    return NULL;
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

static void say(const supervised *s, int status, int64_t n, int64_t step)
{
    char how[64];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "ended with code %d", WEXITSTATUS(status));
    sheaf__print(s->cli->err, "restart %" PRId64 " of %" PRId64 ": the run %s; it goes on ", n,
                 s->o->restarts, how);
    if (step > 0)
        sheaf__print(s->cli->err, "after step %" PRId64, step);
    else
        sheaf__print(s->cli->err, "from the start");
    if (s->tp > 0)
        sheaf__print(s->cli->err, ", with --tp %d --dp %d", s->tp, s->dp);
    for (int i = 0, count = 0; i < s->hosts.count; i++)
        if (s->hosts.host[i].lost)
            sheaf__print(s->cli->err, "%s%s",
                         count++ == 0 ? ", without what does not answer: " : ", ",
                         s->hosts.host[i].name);
    sheaf__print(s->cli->err, "\n");
}

static sheaf_status *supervise(int *code, supervised *s)
{
    bool resume = s->o->resume;
    int64_t before = -1;
    unsigned pause = 1;
    for (int64_t n = 0;; n++) {
        int status = 0, gone = 0;
        sheaf_status *st = run(&status, s, resume);
        if (st != NULL)
            return st;
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
        if (*code <= CLI_NO || n == s->o->restarts || !worth_another(s, status, &gone)) {
            if (WIFSIGNALED(status))
                sheaf__print(s->cli->err, "sheaf: the run was killed by signal %d%s\n",
                             WTERMSIG(status),
                             n == s->o->restarts ? ", and no restart is left" : "");
            return NULL;
        }
        if ((st = lessen(s, gone)) != NULL)
            return st;
        const int64_t step = newest(s->o->out);
        resume = s->o->resume || sheaf__path_kind(s->o->out) == SHEAF_PATH_DIR;
        say(s, status, n + 1, step);
        pause = step > before ? 1 : 2 * pause; /* it got nowhere: whatever it is may pass */
        before = step;
        if (pause > 1)
            sleep(pause < 60 ? pause : 60);
    }
}

sheaf_status *cli_supervise(int *code, cli *cli, const sheaf_train_options *o, int argc,
                            char **argv)
{
    supervised s = { .cli = cli, .o = o, .argc = argc, .argv = argv, .began = sheaf__seconds() };
    const char *launcher = sheaf__launched(NULL, NULL);
    if (launcher != NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--restarts");
        sheaf_expected(st, "a run whose processes sheaf begins itself");
        sheaf_found(st, "one that %s began, and ends with a process that dies", launcher);
        return sheaf_try_this(st,
                              "sheaf train --transport mpi --restarts N without %s, or a script "
                              "that runs it again with --resume",
                              launcher);
    }
    int lock;
    cli_launch_reap();
    signal(SIGPIPE, SIG_IGN); /* who read what it says may be gone: the run goes on, as it would */
    sheaf_status *st = sheaf__temporary_make(s.verdict, sizeof s.verdict, &lock, "verdict", false);
    if (st != NULL)
        return st;
    st = cli_hosts_read(&s.hosts, o->hosts, o->hostfile);
    TRY(st, supervise(code, &s));
    unlink(s.verdict);
    close(lock);
    free(s.left);
    cli_hosts_release(&s.hosts);
    return st;
}
