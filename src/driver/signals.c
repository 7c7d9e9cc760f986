/* signals.c - see signals.h. A handler can reach nothing but static memory. */
#include "driver/signals.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "driver/driver.h"
#include "base/base.h"
#include "comm/plugins.h"
#include "driver/launched.h"

static sheaf_control asked;
static atomic_int interrupts;
static _Atomic(const char *) unfinished;

static const char *name_of(int number)
{
    return number == SIGINT    ? "SIGINT"
           : number == SIGHUP  ? "SIGHUP"
           : number == SIGUSR2 ? "SIGUSR2"
                               : "SIGTERM";
}

void driver_signals_remove_unfinished(void)
{
    const char *path = atomic_load(&unfinished);
    if (path != NULL)
        unlink(path);
}

static void on_signal(int number)
{
    const int error = errno;
    if (number == SIGINT && atomic_fetch_add(&interrupts, 1) > 0) {
        driver_signals_remove_unfinished();
        signal(SIGINT, SIG_DFL); /* impatient: taken when this handler returns */
        raise(SIGINT);
    }
    sheaf__control_note(&asked, number);
    errno = error;
}

/* The message for each signal that ends the process at once: a handler only writes it. */
static struct {
    int number;
    char *text, *json;
} last_words[] = { { .number = SIGTERM }, { .number = SIGINT }, { .number = SIGHUP } };
enum { LAST_WORDS = sizeof last_words / sizeof *last_words };

void driver_write_all(int fd, const char *text)
{
    for (size_t left = text == NULL ? 0 : strlen(text); left > 0;) {
        const ssize_t n = write(fd, text, left);
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0) {
            text += n;
            left -= (size_t)n;
        }
    }
}

static void on_end(int number)
{
    driver_signals_remove_unfinished();
    for (int i = 0; i < LAST_WORDS; i++)
        if (last_words[i].number == number) {
            driver_write_all(STDOUT_FILENO, last_words[i].json);
            if (isatty(STDERR_FILENO)) /* below a progress line, and the ^C that is shown */
                driver_write_all(STDERR_FILENO, "\n");
            driver_write_all(STDERR_FILENO, last_words[i].text);
        }
    _exit(DRIVER_FAILED);
}

bool driver_under_nohup(void)
{
    struct sigaction before;
    return sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
}

/* The first `count` of what is handled. */
static sheaf_status *install(size_t count, void (*handler)(int number))
{
    static const int handled[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ, SIGUSR2 };
    for (size_t i = 0; i < count && i < sizeof handled / sizeof *handled; i++) {
        struct sigaction action = { .sa_flags = SA_RESTART };
        if (handler == on_end) /* whose words may find no reader: another one does not wait */
            action.sa_flags = SA_RESETHAND | SA_NODEFER;
        action.sa_handler = handled[i] == SIGPIPE || handled[i] == SIGXFSZ ? SIG_IGN : handler;
        sigemptyset(&action.sa_mask);
        if (handled[i] == SIGHUP && driver_under_nohup())
            continue;
        if (sigaction(handled[i], &action, NULL) != 0)
            return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "installing signal handlers"), errno);
    }
    return NULL;
}

enum { STOPS = 3, UNLAUNCHED = 6, ALL = 7 };

sheaf_status *driver_signals_install(void)
{
    return install(sheaf__launcher_look().name != NULL ? ALL : UNLAUNCHED, on_signal);
}

sheaf_status *driver_signals_install_stops(void)
{
    return install(STOPS, on_signal);
}

void driver_signals_end(const char *command, bool json)
{
    for (int i = 0; i < LAST_WORDS; i++) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_STOPPED, "%s: %s", name_of(last_words[i].number), command);
        sheaf_found(st, "a request to stop");
        free(last_words[i].text);
        free(last_words[i].json);
        last_words[i].text = driver_error_text(st);
        last_words[i].json = json ? driver_error_json(st) : NULL;
        sheaf_status_free(st);
    }
    sheaf_status_free(install(STOPS, on_end)); /* else they end it as ever */
}

sheaf_control *driver_signals(void)
{
    return &asked;
}

void driver_signals_unfinished(const char *path)
{
    atomic_store(&unfinished, path);
}

const char *driver_signals_stopped_by(void)
{
    const int came = atomic_load(&asked.stop), sent = came == 0 ? 0 : driver_launch_stopped_by();
    return came == 0 ? NULL : name_of(sent != 0 ? sent : came);
}

sheaf_status *driver_signals_control(sheaf_control **control)
{
    *control = &asked;
    return driver_signals_install();
}

sheaf_status *driver_signals_explain(sheaf_status *st)
{
    const char *by = driver_signals_stopped_by();
    return st != NULL && by != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED
               ? sheaf_in(st, "%s", by)
               : st;
}
