/* watch_test.c - processes that watch each other: one that dies, one that is stopped, the first
 * one, a hang, and a run in which nothing of that happens. Each is a process of its own, which
 * makes its calls in name only. */
#include "tests/check.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/watch/verdict.h"
#include "comm/watch/watch.h"

enum { PROCESSES = 3, ENDED = 3, TEXT = 8192, MOST_S = 30 };

typedef enum what { NOTHING, DIES, STOPS, STOPS_UNHEARD, HANGS, SLOW, WAITS } what;

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
static void be(int me, int listens, const sheaf__line_place *place, what w, int victim)
{
    static const sheaf__watch_hooks hooks = { .end = end };
    sheaf__watch *watch = NULL;
    sheaf__activity activity;
    sheaf__activity_init(&activity, me);
    CHECK_OK(sheaf__watch_open(&watch, listens, place,
                               &(sheaf__watch_options){ .process = me,
                                                        .processes = PROCESSES,
                                                        .ranks = PROCESSES,
                                                        .in_group = PROCESSES,
                                                        .activity = &activity,
                                                        .heartbeat = w == STOPS           ? 1.5
                                                                     : w == STOPS_UNHEARD ? 0
                                                                                          : 60,
                                                        .hang_after = w == HANGS           ? 1
                                                                      : w == STOPS_UNHEARD ? 2
                                                                      : w == WAITS         ? 0.5
                                                                                           : 0,
                                                        .cure = w == DIES ? "a cure" : NULL,
                                                        .hooks = &hooks }));
    sheaf__activity_idle(&activity, w == WAITS && me == victim);
    doze(0.3); /* all have met */
    sheaf__activity_step(&activity, 7, 2);
    sheaf__activity_op(&activity, "forward", "attention", 5);
    if (me == victim && w != SLOW)
        doze(0.7); /* the others are in the call, and all have said so */
    else
        sheaf__activity_call(&activity, "sum", SHEAF__ALL_RANKS, 1);
    if (me == victim && w == DIES)
        raise(SIGKILL);
    if (me == victim && (w == STOPS || w == STOPS_UNHEARD))
        raise(SIGSTOP);
    const double begin = sheaf__seconds();
    while ((w == HANGS || w == DIES || w == STOPS || w == STOPS_UNHEARD) &&
           sheaf__seconds() - begin < 60)
        doze(0.1);
    doze(w == WAITS || (w == SLOW && me == victim) ? 1.5 : 0.5);
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

/* Runs them; codes: how each ended, as waitpid() has it. */
static void run(int *codes, what w, int victim)
{
    int listens = -1;
    sheaf__line_place place;
    pid_t pid[PROCESSES];
    const double begin = sheaf__seconds();
    CHECK_OK(sheaf__line_listen(&listens, &place, true));
    assert_int_equal(pipe(told), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            if (i != 0)
                close(listens);
            be(i, i == 0 ? listens : -1, &place, w, victim);
        }
    }
    close(listens);
    close(told[1]);
    for (int i = 0; i < PROCESSES; i++)
        await(pid[i], &codes[i], begin + MOST_S);
    size_t size = 0;
    for (ssize_t n; (n = read(told[0], said + size, TEXT - 1 - size)) > 0; size += (size_t)n)
        ;
    said[size] = '\0';
    close(told[0]);
    assert_true(sheaf__seconds() - begin < MOST_S);
}

static bool ended(int code)
{
    return WIFEXITED(code) && WEXITSTATUS(code) == ENDED;
}

static void says(const char *text)
{
    if (strstr(said, text) == NULL)
        fail_msg("no '%s' in:\n%s", text, said);
}

static void test_watch__nothing_happens(void **state)
{
    static const struct {
        what kind;
        int victim;
    } kinds[] = { { NOTHING, 1 }, { SLOW, 1 }, { WAITS, 2 } };
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        int code[PROCESSES];
        run(code, kinds[k].kind, kinds[k].victim);
        for (int i = 0; i < PROCESSES; i++)
            assert_int_equal(code[i], 0);
        assert_string_equal(said, "");
    }
}

static void test_watch__one_dies(void **state)
{
    for (int victim = 1; victim < PROCESSES; victim++) {
        int code[PROCESSES];
        char line[128];
        run(code, DIES, victim);
        for (int i = 0; i < PROCESSES; i++)
            assert_true(i == victim ? WIFSIGNALED(code[i]) : ended(code[i]));
        snprintf(line, sizeof line, "rank %d of 3 (host ", victim);
        says(line);
        says(") has died\n");
        says("step 7, micro-batch 2, layer 5, forward of attention\n");
        says("in sum, call 1 (with all ranks), for ");
        snprintf(line, sizeof line, "; waits for rank %d\n", victim);
        says(line);
        says("  try:      a cure (docs/my-run-died.md)\n");
        assert_null(strstr(strstr(said, "sheaf: ") + 1, "sheaf: ")); /* once */
    }
}

static void test_watch__one_is_stopped(void **state)
{
    int code[PROCESSES];
    static const what kinds[] = { STOPS, STOPS_UNHEARD }; /* without a heartbeat it is a hang */
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        run(code, kinds[k], 2);
        assert_true(ended(code[0]) && ended(code[1]));
        assert_true(WIFSIGNALED(code[2]) && WTERMSIG(code[2]) == SIGKILL); /* nothing is left */
        says("rank 2 of 3 (host ");
        says(") is silent: it was stopped, or its host is gone; it is killed (");
    }
    run(code, STOPS_UNHEARD, 0);
    assert_true(ended(code[1]) && ended(code[2]));
}

static void test_watch__the_first(void **state)
{
    int code[PROCESSES];
    run(code, DIES, 0);
    assert_true(ended(code[1]) && ended(code[2]));
    says("the first process (rank 0, host ");
    says(") has died\n");
    says("  last:     rank 0 (host ");
    says("step 7, micro-batch 2, layer 5, forward of attention\n");
    says("  rank 1 (host ");
    says("  rank 2 (host ");
    run(code, STOPS, 0);
    assert_true(ended(code[1]) && ended(code[2]));
    assert_true(WIFSIGNALED(code[0]) && WTERMSIG(code[0]) == SIGKILL);
    says("is silent: it was stopped");
}

static void test_watch__a_hang(void **state)
{
    int code[PROCESSES];
    run(code, HANGS, 1);
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ended(code[i]));
    says("the run hangs: no rank got on for ");
    says(": others wait for rank 1 (host ");
    says("  rank 1 (host ");
    says("in no call, after call 0, for ");
}

/* ---- who waits for whom ---- */

static void test_watch__who_waits_for_whom(void **state)
{
    /* Two groups of two: 0 1, 2 3; peers 0 2, 1 3. */
    sheaf__ranks r = { .count = 4, .in_group = 2 };
    int a = -1, b = -1;
    for (int i = 0; i < 4; i++) {
        const sheaf__group_kind kind = i < 2 ? SHEAF__ITS_GROUP : SHEAF__ITS_PEERS;
        r.known[i] = true;
        r.report[i].made[SHEAF__ITS_GROUP] = r.report[i].made[SHEAF__ITS_PEERS] = 5;
        r.report[i].for_ms = 1000 * i;
        strcpy(r.report[i].call, i == 3 ? "" : "sum");
        r.report[i].group = (int32_t)kind;
    }
    r.report[3].made[SHEAF__ITS_PEERS] = 4;
    assert_false(sheaf__waits_for(&r, 0, 1)); /* in the same call */
    assert_false(sheaf__waits_for(&r, 0, 3)); /* of another group */
    assert_false(sheaf__waits_for(&r, 2, 3)); /* no peer */
    assert_false(sheaf__waits_for(&r, 3, 0)); /* in no call */
    assert_false(sheaf__deadlock(&r, 0, &a, &b));
    r.report[0].made[SHEAF__ITS_PEERS] = 4;
    assert_true(sheaf__waits_for(&r, 2, 0)); /* however many calls it has made with others */
    assert_false(sheaf__waits_for(&r, 1, 0));
    assert_true(sheaf__blocking(&r, 0));
    assert_false(sheaf__blocking(&r, 3)); /* no rank waits for it */
    r.report[0].group = SHEAF__ALL_RANKS;
    assert_false(sheaf__waits_for(&r, 0, 3)); /* it is where 0 is */
    r.report[0].made[SHEAF__ALL_RANKS] = 1;
    assert_true(sheaf__waits_for(&r, 0, 3));
    assert_false(sheaf__blocking(&r, 0));
    assert_true(sheaf__blocking(&r, 3));
    assert_true(sheaf__hang_limit(&r, 10) == 10);
    strcpy(r.report[0].phase, "finishing"); /* but it is in a call */
    assert_true(sheaf__hang_limit(&r, 10) == 10);
    strcpy(r.report[3].phase, "finishing");
    assert_true(sheaf__hang_limit(&r, 10) == 60 && sheaf__hang_limit(&r, 0) == 0);
    r.known[1] = false;
    assert_true(sheaf__waits_for(&r, 0, 1));
    /* 0 waits for 2 among all ranks, 2 for 0 among its peers. */
    assert_true(sheaf__deadlock(&r, 0, &a, &b));
    assert_true((a == 0 && b == 2) || (a == 2 && b == 0));
    assert_false(sheaf__deadlock(&r, 1000, &a, &b)); /* 0 has just begun to */
}

/* Where all processes are on one host no other can reach the port; else it is that of the interface
 * that mpirun was given. */
static void test_watch__where_it_listens(void **state)
{
    static const struct {
        bool here;
        const char *given;
    } cases[] = {
        { true, NULL }, { true, "eth7" }, { false, "eth7,lo" }, { false, "127.0.0.0/8" }
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__line_place place;
        struct sockaddr_in own;
        socklen_t size = sizeof own;
        int listens = -1;
        if (cases[i].given != NULL)
            setenv("OMPI_MCA_btl_tcp_if_include", cases[i].given, 1);
        CHECK_OK(sheaf__line_listen(&listens, &place, cases[i].here));
        assert_int_equal(getsockname(listens, (struct sockaddr *)&own, &size), 0);
        assert_int_equal(own.sin_family, AF_INET);
        assert_int_equal(ntohl(own.sin_addr.s_addr) >> 24, 127);
        assert_int_equal(place.count, 1);
        assert_memory_equal(&place.address[0].v4.sin_addr, &own.sin_addr, 4);
        const int fd = sheaf__line_connect(&place, 0);
        assert_true(fd >= 0);
        close(fd);
        close(listens);
        unsetenv("OMPI_MCA_btl_tcp_if_include");
    }
}

/* A stranger who does not know the token is no process of the run, and does no harm. */
static void test_watch__strangers(void **state)
{
    int listens = -1, code = 0;
    sheaf__line_place place, wrong;
    sheaf__watch *watch = NULL, *stranger = NULL;
    sheaf__activity activity[2];
    static const sheaf__watch_hooks hooks = { .end = end };
    sheaf__watch_options o = { .processes = 2,
                               .ranks = 2,
                               .in_group = 2,
                               .activity = activity,
                               .heartbeat = 60,
                               .hooks = &hooks };
    sheaf__activity_init(&activity[0], 0);
    sheaf__activity_init(&activity[1], 1);
    CHECK_OK(sheaf__line_listen(&listens, &place, true));
    assert_int_equal(pipe(told), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(sheaf__watch_open(&watch, listens, &place, &o));
        doze(1);
        sheaf__watch_close(watch);
        _exit(0);
    }
    close(listens);
    for (int i = 0; i < place.count; i++) {
        const int fd = sheaf__line_connect(&place, i);
        assert_true(fd < 0 || write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
        if (fd >= 0)
            close(fd);
    }
    int crowd[100]; /* more than there are places, who say nothing and stay */
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++)
        crowd[i] = sheaf__line_connect(&place, 0);
    o.process = 1;
    o.activity = &activity[1];
    CHECK_OK(sheaf__watch_open(&watch, -1, &place, &o));
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++)
        close(crowd[i]);
    wrong = place;
    wrong.token[3] ^= 1;
    wrong.count = 1;
    CHECK_FAILS(sheaf__watch_open(&stranger, -1, &wrong, &o), SHEAF_E_IO, "watching the processes");
    sheaf__watch_close(watch);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    close(told[0]);
    close(told[1]);
}

int main(void)
{
    alarm(300); /* nothing here may hang */
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch__nothing_happens),
        cmocka_unit_test(test_watch__one_dies),
        cmocka_unit_test(test_watch__one_is_stopped),
        cmocka_unit_test(test_watch__the_first),
        cmocka_unit_test(test_watch__a_hang),
        cmocka_unit_test(test_watch__who_waits_for_whom),
        cmocka_unit_test(test_watch__where_it_listens),
        cmocka_unit_test(test_watch__strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
