/* signals_test.c - what each signal asks for; children, as handlers are for a process's life. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/signals.h"
#include "tests/check.h"

/* Raises the signals in a child, which exits with the bits it polled after the last one
 * plus 10 times those before; minus the number of the signal that ended it. */
static int child(const int *number, int n)
{
    const pid_t pid = fork();
    if (pid == 0) {
        int bits = 0, before = 0;
        sheaf_status_free(driver_signals_install());
        for (int i = 0; i < n; i++) {
            before = bits;
            raise(number[i]);
            bits = sheaf__control_poll(driver_signals());
        }
        _exit(bits + 10 * before);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static const struct {
    const char *name;
    int number[4], n, want;
} by_hand[] = {
    { "SIGTERM stops", { SIGTERM }, 1, 2 },
    { "SIGINT stops", { SIGINT }, 1, 2 },
    { "SIGHUP stops", { SIGHUP }, 1, 2 },
    { "SIGUSR2 stops", { SIGUSR2 }, 1, 2 },
    { "SIGXCPU stops, again each second", { SIGXCPU, SIGXCPU }, 2, 22 },
    { "SIGXFSZ is a failed write", { SIGXFSZ }, 1, 0 },
    { "SIGUSR1 saves", { SIGUSR1 }, 1, 1 },
    { "a save is handed out once", { SIGUSR1, SIGPIPE }, 2, 10 },
    { "a stop stays, a scheduler may repeat it", { SIGTERM, SIGTERM }, 2, 22 },
    { "save while stopping", { SIGTERM, SIGUSR1 }, 2, 23 },
    { "a second interrupt ends at once", { SIGINT, SIGINT }, 2, -SIGINT },
    { "the first interrupt after SIGTERM only asks", { SIGTERM, SIGINT }, 2, 22 },
    { "the second interrupt counts with SIGTERM between", { SIGINT, SIGTERM, SIGINT }, 3, -SIGINT },
};

TEST(test_signals__each_asks_for_its_own)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++)
        if (child(by_hand[i].number, by_hand[i].n) != by_hand[i].want)
            fail_msg("%s", by_hand[i].name);
}

TEST(test_signals__nohup_stays)
{
    static const int hangup[] = { SIGHUP };
    signal(SIGHUP, SIG_IGN);
    assert_int_equal(child(hangup, 1), 0);
    signal(SIGHUP, SIG_DFL);
}

TEST(test_signals__the_second_interrupt_removes_what_is_unfinished)
{
    static const int interrupt[] = { SIGINT, SIGINT };
    for (int n = 1; n <= 2; n++)
        for (int told = 0; told < 2; told++) {
            char path[] = "/tmp/sheaf-signals.XXXXXX";
            const int fd = mkstemp(path);
            assert_true(fd >= 0 && close(fd) == 0);
            driver_signals_unfinished(path);
            if (told == 0)
                driver_signals_unfinished(NULL);
            assert_int_equal(child(interrupt, n), n == 2 ? -SIGINT : 2);
            assert_int_equal(access(path, F_OK) != 0, n == 2 && told);
            unlink(path);
        }
    driver_signals_unfinished(NULL);
}

/* A child that such a signal ends, after driver_signals_end() or also after what takes signals
 * over: its exit code, minus the number of a signal that ended it, and all that it said. */
static int last_words(char said[512], int number, bool json, bool taken_over)
{
    int to[2], status;
    assert_int_equal(pipe(to), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(to[1], STDOUT_FILENO);
        dup2(to[1], STDERR_FILENO);
        driver_signals_end("info", json);
        if (taken_over)
            sheaf_status_free(driver_signals_install_stops());
        raise(number);
        _exit(sheaf__control_poll(driver_signals()));
    }
    close(to[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(to[0], said + n, 511 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(to[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(test_signals__what_has_nothing_to_save_ends_at_once)
{
    char said[512];
    assert_int_equal(last_words(said, SIGTERM, false, false), 3);
    assert_string_equal(said, "sheaf: SIGTERM: info\n  found:    a request to stop\n");
    assert_int_equal(last_words(said, SIGINT, true, false), 3);
    assert_string_equal(
        said,
        "{\"error\": {\"code\": \"stopped\", \"where\": \"SIGINT: info\", \"expected\": \"\", \"found\": \"a request to stop\", \"try\": \"\"}}\n"
        "sheaf: SIGINT: info\n  found:    a request to stop\n");
    assert_int_equal(last_words(said, SIGHUP, false, false), 3);
    assert_int_equal(last_words(said, SIGINT, false, true), SHEAF__CONTROL_STOP);
    assert_string_equal(said, "");
    assert_int_equal(last_words(said, SIGPIPE, false, true), -SIGPIPE);
    for (int taken_over = 0; taken_over < 2; taken_over++)
        assert_int_equal(last_words(said, SIGUSR1, false, taken_over), SHEAF__CONTROL_SAVE);
    assert_int_equal(last_words(said, SIGUSR2, false, true), SHEAF__CONTROL_STOP);
    assert_int_equal(last_words(said, SIGUSR2, false, false), 3);
    assert_string_equal(said, "sheaf: SIGUSR2: info\n  found:    a request to stop\n");
    assert_int_equal(last_words(said, SIGXCPU, false, false), 3);
    assert_string_equal(said, "sheaf: SIGXCPU: info\n  found:    a request to stop\n");
}

TEST(test_signals__the_name_is_for_the_last_line)
{
    sheaf_control *flags = driver_signals();
    assert_int_equal(sheaf__control_poll(NULL), 0);
    assert_null(driver_signals_stopped_by());
    sheaf__control_note(flags, SIGUSR1);
    assert_null(driver_signals_stopped_by());
    sheaf__control_note(flags, SIGTERM);
    assert_string_equal(driver_signals_stopped_by(), "SIGTERM");
    sheaf__control_note(flags, SIGINT);
    assert_string_equal(driver_signals_stopped_by(), "SIGINT");
}

static int begin(void **state)
{
    signal(SIGHUP, SIG_DFL); /* whoever runs the tests may have it ignored, as nohup does */
    return 0;
}

FIXTURE(begin, NULL);
