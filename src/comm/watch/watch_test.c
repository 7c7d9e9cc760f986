/* watch_test.c - processes that watch each other: one that dies, one that is stopped, the first
 * one, a hang, and a run in which nothing of that happens. Each is a process of its own, which
 * makes its calls in name only. */
#include "tests/check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/watch/line.h"
#include "comm/watch/watch.h"

enum { PROCESSES = 3, ENDED = 3, TEXT = 8192, MOST_S = 30 };

typedef enum what { NOTHING, DIES, STOPS, STOPS_UNHEARD, HANGS, FINISHES, SLOW, WAITS } what;

static const struct {
    double heartbeat, hang_after;
} limits[] = {
    [NOTHING] = { 60, 0 }, [DIES] = { 60, 0 },     [STOPS] = { 1.5, 0 }, [STOPS_UNHEARD] = { 0, 2 },
    [HANGS] = { 60, 1 },   [FINISHES] = { 60, 1 }, [SLOW] = { 60, 0 },   [WAITS] = { 60, 0.5 },
};

static int told[2]; /* a pipe for their output */
static char said[TEXT];

static void end(void *self, const char *text)
{
    if (text != NULL && write(told[1], text, strlen(text)) < 0)
        _exit(98);
    _exit(ENDED);
}

static void doze(double s)
{
    nanosleep(
        &(struct timespec){ .tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) },
        NULL);
}

/* A rank: its calls go on, but for the one to which it happens. */
static void be(int me, const int *fd, volatile sheaf__self *who, what w, int victim)
{
    static const sheaf__watch_hooks hooks = { .end = end };
    sheaf__watch *watch = NULL;
    sheaf__activity activity;
    who[me].pid = getpid();
    while (who[0].pid == 0 || who[1].pid == 0 || who[2].pid == 0)
        doze(0.01);
    sheaf__activity_init(&activity, me);
    CHECK_OK(sheaf__watch_open(&watch, &activity, me, PROCESSES, (const sheaf__self *)who, fd,
                               &(sheaf__watch_options){ .ranks = PROCESSES,
                                                        .heartbeat = limits[w].heartbeat,
                                                        .hang_after = limits[w].hang_after,
                                                        .cure = w == DIES ? "a cure" : NULL,
                                                        .hooks = &hooks }));
    sheaf__activity_idle(&activity, w == WAITS && me == victim);
    sheaf__activity_step(&activity, 7, 2);
    sheaf__activity_op(&activity, "forward", "attention", 5);
    if (w == FINISHES && me == victim)
        sheaf__activity_op(&activity, "finishing", "writing", -1);
    else if (me == victim && w != SLOW)
        doze(0.7); /* the others are in the call, and all have said so */
    else
        sheaf__activity_call(&activity, "sum");
    if (me == victim && w == DIES)
        raise(SIGKILL);
    if (me == victim && (w == STOPS || w == STOPS_UNHEARD))
        raise(SIGSTOP);
    doze(w == HANGS || w == DIES || w == STOPS || w == STOPS_UNHEARD  ? 60
         : w == WAITS || w == FINISHES || (w == SLOW && me == victim) ? 2.5
                                                                      : 0.5);
    sheaf__watch_close(watch);
    _exit(0);
}

/* One that is stopped, and that the watch does not kill, would not end. */
static void await(pid_t pid, int *code, double until)
{
    pid_t is;
    while ((is = waitpid(pid, code, WNOHANG)) == 0) {
        if (sheaf__seconds() > until)
            kill(pid, SIGKILL);
        doze(0.01);
    }
    assert_int_equal(is, pid);
}

/* Runs them; codes: how each ended, as waitpid() has it. Sockets stand for the connections. */
static void run(int *codes, what w, int victim)
{
    int first[PROCESSES] = { -1 }, other[PROCESSES] = { -1 };
    sheaf__self *who = mmap(NULL, PROCESSES * sizeof *who, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES];
    const double begin = sheaf__seconds();
    assert_int_equal(pipe(told), 0);
    for (int i = 0; i < PROCESSES; i++) {
        int pair[2];
        sheaf__self_look(&who[i]);
        who[i].pid = 0;
        if (i > 0) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            first[i] = pair[0];
            other[i] = pair[1];
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            for (int k = 1; k < PROCESSES; k++) {
                if (i != 0)
                    close(first[k]);
                if (i != k)
                    close(other[k]);
            }
            be(i, i == 0 ? first : &other[i], who, w, victim);
        }
    }
    for (int k = 1; k < PROCESSES; k++) {
        close(first[k]);
        close(other[k]);
    }
    close(told[1]);
    for (int i = 0; i < PROCESSES; i++)
        await(pid[i], &codes[i], begin + MOST_S);
    size_t size = 0;
    for (ssize_t n; (n = read(told[0], said + size, TEXT - 1 - size)) > 0; size += (size_t)n)
        ;
    said[size] = '\0';
    close(told[0]);
    munmap(who, PROCESSES * sizeof *who);
    assert_true(sheaf__seconds() - begin < MOST_S);
}

/* Exit codes and reports of the others; "%d" stands for the victim. */
static void test_watch__what_ends_a_run(void **state)
{
    static const struct {
        what what;
        int victim, code; /* of all but the victim */
        const char *says[4];
    } cases[] = {
        { NOTHING, 1, 0, { NULL } },
        { SLOW, 1, 0, { NULL } },
        { WAITS, 2, 0, { NULL } },
        { FINISHES, 2, 0, { NULL } },
        { DIES, 1, ENDED,
          LIST("sheaf: rank %d of 3 (host ", ") has died, or its host or the network failed\n",
               "in sum, call 1, for ", "  try:      a cure (docs/my-run-died.md)\n") },
        { DIES, 2, ENDED, { "sheaf: rank %d of 3 (host ", "  last:     rank %d (host " } },
        { DIES, 0, ENDED,
          LIST("sheaf: rank %d of 3 (host ",
               "step 7, micro-batch 2, layer 5, forward of attention\n", "  rank 1 (host ") },
        { STOPS, 0, ENDED, { "sheaf: rank %d of 3 (host ", ") is silent: it was stopped" } },
        { STOPS, 2, ENDED,
          LIST("sheaf: rank %d of 3 (host ", ") is silent: it was stopped, or its host is gone",
               "  rank 1 (host ") },
        { STOPS_UNHEARD, 2, ENDED, { ") is silent: it was stopped" } }, /* not a hang */
        { HANGS, 1, ENDED,
          LIST("sheaf: the run hangs: no rank got on for ", "  rank %d (host ",
               "in no call, after call 0, for ") },
    };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        int code[PROCESSES];
        char line[256];
        const what w = cases[k].what;
        const bool killed = w == DIES || w == STOPS || w == STOPS_UNHEARD;
        run(code, w, cases[k].victim);
        for (int i = 0; i < PROCESSES; i++)
            if (i == cases[k].victim && killed)
                assert_true(WIFSIGNALED(code[i])); /* nothing is left of it */
            else
                assert_true(WIFEXITED(code[i]) && WEXITSTATUS(code[i]) == cases[k].code);
        for (int i = 0; i < 4 && cases[k].says[i] != NULL; i++) {
            snprintf(line, sizeof line, cases[k].says[i], cases[k].victim);
            if (strstr(said, line) == NULL)
                fail_msg("case %zu: no '%s' in:\n%s", k, line, said);
        }
        if (cases[k].code == 0)
            assert_string_equal(said, "");
        else if (cases[k].victim != 0)
            assert_null(strstr(strstr(said, "sheaf: ") + 1, "sheaf: ")); /* once */
    }
}

/* Callers that do not know the token are no processes of the run, and do no harm. */
static void test_line__strangers(void **state)
{
    int listens = -1, fd[3], code = 0, crowd[20];
    sheaf__line_place place, wrong;
    CHECK_OK(sheaf__line_listen(&listens, &place, true));
    assert_int_equal(place.count, 1);
    assert_int_equal(ntohl(place.address[0].v4.sin_addr.s_addr), INADDR_LOOPBACK);
    wrong = place;
    wrong.token[3] ^= 1;
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
        crowd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(crowd[i], &place.address[0].any, sizeof place.address[0].v4), 0);
        assert_int_equal(write(crowd[i], "GET / HTTP/1.0\r\n\r\n\r\n", 20), 20);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        bool right = true;
        sheaf_status *st = sheaf__line_connect(&fd[0], &wrong, 1);
        right = st != NULL && sheaf_status_code(st) == SHEAF_E_IO && fd[0] == -1;
        sheaf_status_free(st);
        for (int i = 1; i < 3; i++) {
            st = sheaf__line_connect(&fd[i], &place, i);
            right = right && st == NULL && sheaf__line_send(fd[i], &i, sizeof i);
            sheaf_status_free(st);
        }
        _exit(right ? 0 : 1);
    }
    CHECK_OK(sheaf__line_accept(fd, listens, &place, 3));
    for (int i = 1; i < 3; i++) {
        int got = 0;
        size_t used = 0;
        while (sheaf__line_read(fd[i], &got, sizeof got, &used) == 0)
            doze(0.01);
        assert_int_equal(got, i);
        close(fd[i]);
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++)
        close(crowd[i]);
    CHECK_FAILS(sheaf__line_connect(&fd[0], &place, 1), SHEAF_E_IO, "watching the processes");
}

int main(void)
{
    alarm(300); /* nothing here may hang */
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch__what_ends_a_run),
        cmocka_unit_test(test_line__strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
