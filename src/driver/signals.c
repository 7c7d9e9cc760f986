/* signals.c - see signals.h. A handler can reach nothing but static memory. */
#include "driver/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "driver/driver.h"
#include "base/base.h"

static sheaf_control control_flags;
static atomic_int interrupts;
static _Atomic(const char *) unfinished;

/* The requests to stop. The texts are those of the handler, for a command that a signal ends at
 * once. */
static struct {
    int number;
    const char *name;
    char *text, *json;
} stops[] = { { SIGTERM, "SIGTERM" },
              { SIGINT, "SIGINT" },
              { SIGHUP, "SIGHUP" },
              { SIGUSR2, "SIGUSR2" },
              { SIGXCPU, "SIGXCPU" } };
enum { STOPS = sizeof stops / sizeof *stops };

static int stop_of(int number)
{
    int i = STOPS - 1;
    while (i > 0 && stops[i].number != number)
        i--;
    return i;
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
    sheaf__control_note(&control_flags, number);
    errno = error;
}

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
    driver_write_all(STDOUT_FILENO, stops[stop_of(number)].json);
    if (isatty(STDERR_FILENO)) /* below a progress line, and the ^C that is shown */
        driver_write_all(STDERR_FILENO, "\n");
    driver_write_all(STDERR_FILENO, stops[stop_of(number)].text);
    _exit(DRIVER_FAILED);
}

bool driver_under_nohup(void)
{
    struct sigaction before;
    return sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
}

static sheaf_status *handle(int number, void (*handler)(int number))
{
    struct sigaction action = { .sa_flags = SA_RESTART };
    if (handler == on_end) /* its text may find no reader: a second signal does not wait for that */
        action.sa_flags = SA_RESETHAND | SA_NODEFER;
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    if ((number == SIGHUP && driver_under_nohup()) || sigaction(number, &action, NULL) == 0)
        return NULL;
    return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "installing signal handlers"), errno);
}

/* SIGUSR1 never ends a command: schedulers send it as a warning to whatever runs. */
static sheaf_status *install(void (*stop)(int number))
{
    sheaf_status *st = handle(SIGUSR1, on_signal);
    for (int i = 0; i < STOPS; i++)
        TRY(st, handle(stops[i].number, stop));
    return st;
}

sheaf_status *driver_signals_install(void)
{
    sheaf_status *st = install(on_signal);
    TRY(st, handle(SIGPIPE, SIG_IGN));
    return TRY(st, handle(SIGXFSZ, SIG_IGN));
}

sheaf_status *driver_signals_install_stops(void)
{
    return install(on_signal);
}

void driver_signals_end(const char *command, bool json)
{
    for (int i = 0; i < STOPS; i++) {
        sheaf_status *st = sheaf_fail(SHEAF_E_STOPPED, "%s: %s", stops[i].name, command);
        sheaf_found(st, "a request to stop");
        free(stops[i].text);
        free(stops[i].json);
        stops[i].text = driver_error_text(st);
        stops[i].json = json ? driver_error_json(st) : NULL;
        sheaf_status_free(st);
    }
    sheaf_status_free(install(on_end)); /* else they end it as ever */
}

sheaf_control *driver_signals(void)
{
    return &control_flags;
}

void driver_signals_unfinished(const char *path)
{
    atomic_store(&unfinished, path);
}

/* The signal that launch.h received, which an mpirun passes on as another one; 0: unknown. */
static int sent_by(void)
{
    char number = 0;
    const int note = driver_is_launched() ? open(getenv(DRIVER_NOTE), O_RDONLY | O_CLOEXEC) : -1;
    const bool is_there = note >= 0 && read(note, &number, 1) == 1;
    if (note >= 0)
        close(note);
    return is_there ? number : 0;
}

const char *driver_signals_stopped_by(void)
{
    const int came = atomic_load(&control_flags.stop), sent = came == 0 ? 0 : sent_by();
    return came == 0 ? NULL : stops[stop_of(sent != 0 ? sent : came)].name;
}

sheaf_status *driver_signals_control(sheaf_control **control)
{
    *control = &control_flags;
    return driver_signals_install();
}

sheaf_status *driver_signals_explain(sheaf_status *st)
{
    const char *by = driver_signals_stopped_by();
    return st != NULL && by != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED
               ? sheaf_in(st, "%s", by)
               : st;
}
