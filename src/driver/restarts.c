/* restarts.c - see launch.h. */
#include "driver/launch.h"

#include <signal.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "comm/plugins.h"
#include "driver/launched.h"
#include "train/rank.h"
#include "train/train.h"

typedef struct supervised {
    driver *driver;
    const sheaf_train_options *o;
    int argc;
    char **argv;
    int tp, dp;         /* of the next run; 0: as the words say */
    driver_hosts hosts; /* all that were given */
    char *left;         /* those of the next run; NULL: all */
} supervised;

bool driver_is_supervised(void)
{
    const char *path = getenv(DRIVER_NOTE);
    return path != NULL && *path != '\0';
}

/* In the environment of a run that is begun again: --max-time is of all its tries together. */
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
    const char *word = s->argv[i];
    if (strcmp(word, "--resume") == 0)
        return 1;
    if (s->tp == 0 || (!is_flag(word, "tp") && !is_flag(word, "dp")))
        return 0;
    return strchr(word, '=') == NULL && i + 1 < s->argc ? 2 : 1;
}

/* One run, to its end. */
static sheaf_status *run(driver_launch_result *out, const supervised *s, bool resume, double began)
{
    const sheaf_train_options *o = s->o;
    const int ranks = s->tp > 0 ? s->tp * s->dp : o->tp * o->dp;
    char tp[24], dp[24], spent[32], flag[] = "--resume";
    char **words = calloc((size_t)s->argc + 4, sizeof *words);
    int n = 0;
    if (words == NULL)
        return sheaf__no_memory("--restarts");
    for (int i = 0, skip; i<s->argc; i += skip> 0 ? skip : 1)
        if ((skip = left_out(s, i)) == 0)
            words[n++] = s->argv[i];
    if (resume)
        words[n++] = flag;
    snprintf(tp, sizeof tp, "--tp=%d", s->tp);
    snprintf(dp, sizeof dp, "--dp=%d", s->dp);
    if (s->tp > 0) {
        words[n++] = tp;
        words[n++] = dp;
    }
    snprintf(spent, sizeof spent, "%.3f", sheaf__seconds() - began);
    setenv(spent_before, spent, 1);
    fflush(s->driver->out);
    const bool mpi = o->transport == SHEAF_TRANSPORT_MPI && ranks > 1;
    sheaf_status *st = driver_launch(
        out, &(driver_launch_options){ .processes = mpi ? ranks : 0,
                                       .mpi = o->mpi,
                                       .hosts = s->left != NULL ? s->left : o->hosts,
                                       .hostfile = s->left != NULL ? NULL : o->hostfile,
                                       .argc = n,
                                       .argv = words });
    free(words);
    return st;
}

/* ---- and again? ---- */

/* Is its end worth another run? One without a verdict was killed. */
static bool worth_another(const driver_launch_result *end, const sheaf_status *st)
{
    if (end->stopped || (st == NULL && end->code <= DRIVER_USAGE))
        return false;
    if (st != NULL) /* whatever its processes made of that */
        return sheaf_status_code(st) == SHEAF_E_PEER;
    return end->verdict != 0 ? end->verdict == DRIVER_AGAIN : end->killed_by != SIGINT;
}

/* The hosts that answer; one that is back is used again. */
static sheaf_status *choose_hosts(supervised *s)
{
    int tp = s->o->tp, dp = s->o->dp;
    free(s->left);
    s->left = NULL;
    s->tp = s->dp = 0;
    if (s->hosts.count == 0 || driver_hosts_ask(&s->hosts, s->o->mpi) == 0)
        return NULL;
    driver_fewer_ranks(&tp, &dp, driver_hosts_left(&s->hosts, tp * dp),
                       sheaf__accumulators_of(s->o));
    s->tp = tp;
    s->dp = dp;
    s->left = driver_hosts_words(&s->hosts, s->o->tp * s->o->dp);
    return s->left == NULL ? sheaf__no_memory("--restarts") : NULL;
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

static void say(const supervised *s, const driver_launch_result *end, int64_t n, int64_t step)
{
    sheaf_text line = { 0 };
    sheaf__text_add(&line, "restart %" PRId64 " of %" PRId64 ": the run %s %d; it goes on ", n,
                    s->o->restarts, end->killed_by > 0 ? "was killed by signal" : "ended with code",
                    end->killed_by > 0 ? end->killed_by : end->code);
    if (step > 0)
        sheaf__text_add(&line, "after step %" PRId64, step);
    else
        sheaf__text_add(&line, "from the start");
    if (s->tp > 0)
        sheaf__text_add(&line, ", with --tp %d --dp %d", s->tp, s->dp);
    for (int i = 0, count = 0; i < s->hosts.count; i++)
        if (s->hosts.host[i].lost)
            sheaf__text_add(&line, "%s%s", count++ == 0 ? ", without what does not answer: " : ", ",
                            s->hosts.host[i].name);
    if (!line.failed)
        sheaf_note(&s->driver->events, "%s", line.at);
    sheaf__text_release(&line);
}

static sheaf_status *supervise(int *code, supervised *s)
{
    const double began = sheaf__seconds();
    bool resume = s->o->resume;
    int64_t before = -1;
    unsigned pause = 1;
    for (int64_t n = 0;; n++) {
        driver_launch_result end;
        sheaf_status *st = run(&end, s, resume, began);
        const bool again = worth_another(&end, st);
        *code = end.code;
        if (end.killed_by > 0 && (!again || n == s->o->restarts))
            sheaf__print(s->driver->err, "sheaf: the run was killed by signal %d%s\n",
                         end.killed_by, n == s->o->restarts ? ", and no restart is left" : "");
        if (!again || n == s->o->restarts)
            return st;
        if (st != NULL)
            sheaf_status_print(st, s->driver->err);
        sheaf_status_free(st);
        if ((st = choose_hosts(s)) != NULL)
            return st;
        const int64_t step = newest(s->o->out);
        resume = s->o->resume || sheaf__path_kind(s->o->out) == SHEAF_PATH_DIR;
        say(s, &end, n + 1, step);
        pause = step > before ? 1 : 2 * pause; /* it got nowhere: whatever it is may pass */
        before = step;
        if (pause > 1)
            sleep(pause < 60 ? pause : 60);
    }
}

sheaf_status *driver_supervise(int *code, driver *d, const sheaf_train_options *o, int argc,
                               char **argv)
{
    supervised s = { .driver = d, .o = o, .argc = argc, .argv = argv };
    const char *launcher = sheaf__launcher_look().name;
    if (launcher != NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--restarts");
        sheaf_expected(st, "a run whose processes sheaf begins itself");
        sheaf_found(st, "one that %s began, and ends with a process that dies", launcher);
        return sheaf_try_this(st,
                              "sheaf train --transport mpi --restarts N without %s, or a script "
                              "that runs it again with --resume",
                              launcher);
    }
    sheaf_status *st = driver_hosts_read(&s.hosts, o->hosts, o->hostfile);
    TRY(st, supervise(code, &s));
    free(s.left);
    driver_hosts_release(&s.hosts);
    return st;
}
