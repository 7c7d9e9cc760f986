/* reward.c - see reward.h. */
#include "library/reward.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/number.h"

/* ---- the list ---- */

static const char regex[] = "regex:";

sheaf_status *sheaf__reward_entry(char **text, bool *rule, const char **list)
{
    const char *at = *list;
    size_t n = strcspn(at, ";");
    *list = at + n;
    for (; n > 0 && isspace((unsigned char)*at); n--)
        at++;
    const bool is_regex = n >= sizeof regex - 1 && memcmp(at, regex, sizeof regex - 1) == 0;
    while (n > 0 && !is_regex && isspace((unsigned char)at[n - 1])) /* a pattern's are its own */
        n--;
    *text = strndup(at, n);
    *rule = is_regex || (*text != NULL && strcmp(*text, "exact") == 0);
    return *text == NULL ? sheaf__no_memory("rewards") : NULL;
}

static sheaf_status *read_one(struct sheaf__reward *out, const char **list)
{
    bool rule;
    sheaf_status *st = sheaf__reward_entry(&out->text, &rule, list);
    if (st != NULL)
        return st;
    const bool is_regex = rule && out->text[0] == regex[0];
    out->weight = 1;
    out->kind = SHEAF__REWARD_PROGRAM;
    if (rule)
        out->kind = SHEAF__REWARD_EXACT;
    else if (sheaf__path_kind(out->text) == SHEAF_PATH_DIR)
        out->kind = SHEAF__REWARD_MODEL;
    else if ((out->text[0] == '\0' || strncasecmp(out->text, "regex", 5) == 0 ||
              strncasecmp(out->text, "exact", 5) == 0))
        return sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward`"),
                               "exact, regex:PATTERN, a reward model's folder or a command, with "
                               "\";\" between several"),
                "'%s'", out->text),
            "./ before the name of a command that begins so");
    if (!is_regex)
        return NULL;
    if (regcomp(&out->pattern, out->text + sizeof regex - 1, REG_EXTENDED | REG_NOSUB) != 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward`"), "an extended regular expression"),
            "'%s'", out->text);
    out->kind = SHEAF__REWARD_REGEX;
    return NULL;
}

static sheaf_status *read_weights(sheaf__rewards *r, const char *list)
{
    double weight[SHEAF__MOST_REWARDS];
    if (!sheaf__numbers_read(weight, r->count, list))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward-weights`"),
                                          "a number for each of `reward`, with commas"),
                           "'%s'", list);
    for (int i = 0; i < r->count; i++)
        r->of[i].weight = weight[i];
    return NULL;
}

sheaf_status *sheaf__rewards_open(sheaf__rewards *r, const char *list, const char *weights,
                                  double seconds)
{
    sheaf_status *st = NULL;
    *r = (sheaf__rewards){ .seconds = seconds > 0 ? seconds : 60 };
    for (const char *at = list; st == NULL; at++) {
        if (r->count == SHEAF__MOST_REWARDS)
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward`"), "8 at most");
        st = read_one(&r->of[r->count++], &at);
        if (*at == '\0')
            break;
    }
    return st == NULL && sheaf__is_given(weights) ? read_weights(r, weights) : st;
}

void sheaf__rewards_close(sheaf__rewards *r)
{
    for (int i = 0; i < r->count; i++) {
        if (r->of[i].kind == SHEAF__REWARD_REGEX)
            regfree(&r->of[i].pattern);
        free(r->of[i].text);
    }
    *r = (sheaf__rewards){ 0 };
}

/* ---- a program ---- */

static sheaf_status *failed(const char *program, const char *what, int64_t number)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`reward %s`", program),
                                      "a number, or null, on a line for each completion, and exit "
                                      "code 0"),
                       what, (long long)number);
}

/* What it reads, in a file, whose reader is at its beginning. */
static sheaf_status *write_input(int fd, const sheaf__judged *of, int64_t n)
{
    sheaf_json_writer j = { 0 };
    for (int64_t i = 0; i < n; i++) {
        sheaf__json_begin(&j);
        sheaf__json_put(&j, "prompt:s completion:s expected:s truncated:b step:d", of[i].prompt,
                        of[i].completion, of[i].expected, of[i].truncated, of[i].step);
        if (of[i].nviewed > 0) {
            sheaf__json_open(&j, "images", '[');
            for (int64_t k = 0; k < of[i].nviewed; k++)
                sheaf__json_put_text(&j, NULL, of[i].viewed[k].path);
            sheaf__json_close(&j, ']');
        }
        sheaf__json_end(&j);
        sheaf__text_bytes(&j.text, "\n", 1);
    }
    sheaf_status *st = j.text.failed ? sheaf__no_memory("rewards") : NULL;
    TRY(st, sheaf__file_write_at(&(sheaf_file){ .fd = fd, .path = "a reward's input" }, j.text.at,
                                 j.text.size, 0));
    sheaf__text_release(&j.text);
    return st;
}

/* In the new process, which ends with this one and whose memory is this one's until it is another
 * program: a copy of a large one takes long. */
static _Noreturn void become(const char *command, int in, int out, pid_t parent)
{
    setpgid(0, 0);
    if (sheaf__child_begin(parent, SIGKILL) && dup2(in, 0) == 0 && dup2(out, 1) == 1) {
        fcntl(0, F_SETFD, 0); /* dup2() leaves a number that is right as it is */
        fcntl(1, F_SETFD, 0);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    }
    _Exit(127); /* the new process alone */
}

/* Starts the command in a group of its own. */
static sheaf_status *start(pid_t *child, const char *command, int in, int out)
{
    const pid_t parent = getpid();
    sigset_t every, before; /* signals wait until the child has reset its handlers */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    *child = vfork();
    if (*child == 0)
        become(command, in, out, parent);
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return *child > 0 ? NULL : failed(command, "it cannot be started: error %lld", error);
}

static bool is_stopped(const sheaf__rewards *r)
{
    bool stopped = false;
    for (int i = 0; i < 2; i++)
        stopped = stopped || (r->stop[i] != NULL && atomic_load(r->stop[i]) != 0);
    return stopped;
}

/* Nothing of its group is left, whatever it has put in the background. */
static sheaf_status *wait_for(const sheaf__rewards *r, const char *command, pid_t child)
{
    const double began = sheaf__seconds();
    bool stopped = false, late = false;
    siginfo_t info = { 0 };
    int status = 0;
    while (info.si_pid != child && !stopped && !late) {
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != EINTR)
            return failed(command, "it is gone: error %lld", errno);
        if (info.si_pid == child)
            break;
        stopped = is_stopped(r);
        late = sheaf__seconds() - began > r->seconds;
        usleep(1000);
    }
    kill(-child, SIGKILL); /* before its number may be another one's */
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (stopped)
        return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "`reward %s`", command),
                           "a request to stop");
    if (late)
        return sheaf_try_this(failed(command, "nothing within %lld s", (long long)r->seconds),
                              "a larger `reward-time`");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? NULL
               : failed(command, WIFEXITED(status) ? "exit code %lld" : "a signal ended it: %lld",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static sheaf_status *read_output(double *value, const char *command, const char *text, size_t size,
                                 int64_t n)
{
    const char *at = text;
    for (int64_t i = 0; i < n; i++) {
        const char *stop = memchr(at, '\n', (size_t)(text + size - at));
        json_t *line = NULL;
        if (stop == NULL && at == text + size)
            return failed(command, "%lld lines", i);
        stop = stop == NULL ? text + size : stop;
        sheaf_status_free(sheaf__json_parse_line(&line, at, (size_t)(stop - at)));
        const bool number = json_is_number(line), none = json_is_null(line);
        value[i] = number ? json_number_value(line) : NAN;
        json_decref(line);
        if (!number && !none)
            return failed(command, "another thing on line %lld", i + 1);
        at = stop < text + size ? stop + 1 : stop;
    }
    return at == text + size ? NULL : failed(command, "more than %lld lines", n);
}

static sheaf_status *run(double *value, const sheaf__rewards *r, const char *command,
                         const sheaf__judged *of, int64_t n)
{
    const int in = memfd_create("completions", MFD_CLOEXEC),
              out = memfd_create("rewards", MFD_CLOEXEC);
    char *text = NULL;
    pid_t child = 0;
    sheaf_status *st = in < 0 || out < 0 ? sheaf_fail(SHEAF_E_IO, "files of a reward") : NULL;
    TRY(st, write_input(in, of, n));
    TRY(st, start(&child, command, in, out));
    TRY(st, wait_for(r, command, child));
    const off_t size = st == NULL ? lseek(out, 0, SEEK_END) : 0;
    text = malloc((size_t)size + 1);
    if (st == NULL && text == NULL)
        st = sheaf__no_memory("rewards");
    TRY(st, sheaf__file_read_at(out, text, (size_t)size, 0, command));
    TRY(st, read_output(value, command, text, (size_t)size, n));
    free(text);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return st;
}

/* ---- all of them ---- */

sheaf_status *sheaf__rewards_judge(double *out, const sheaf__rewards *r, const sheaf__judged *of,
                                   int64_t n, const double *score)
{
    double *value = malloc((size_t)n * sizeof *value);
    sheaf_status *st = value == NULL ? sheaf__no_memory("rewards") : NULL;
    for (int64_t i = 0; i < n; i++)
        out[i] = NAN;
    for (int k = 0; k < r->count && st == NULL; k++) {
        const struct sheaf__reward *one = &r->of[k];
        for (int64_t i = 0; i < n && one->kind != SHEAF__REWARD_PROGRAM; i++)
            value[i] = one->kind == SHEAF__REWARD_MODEL ? *score++
                       : one->kind == SHEAF__REWARD_EXACT
                           ? of[i].equal
                           : of[i].completion != NULL &&
                                 regexec(&one->pattern, of[i].completion, 0, NULL, 0) == 0;
        for (int64_t i = 0; i < n && one->kind == SHEAF__REWARD_MODEL && st == NULL; i++)
            if (!isfinite(value[i]))
                st =
                    sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "`reward %s`", one->text),
                                               "finite scores"),
                                "%g of completion %" PRId64, value[i], i + 1);
        if (one->kind == SHEAF__REWARD_PROGRAM)
            st = run(value, r, one->text, of, n);
        for (int64_t i = 0; i < n && st == NULL; i++)
            if (!isnan(value[i]))
                out[i] = (isnan(out[i]) ? 0 : out[i]) + one->weight * value[i];
    }
    free(value);
    return st;
}
