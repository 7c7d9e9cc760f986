/* relay.c - see relay.h. */
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

static atomic_int presses; /* a handler reaches nothing but static memory */

static void on_interrupt(int number)
{
    (void)number;
    atomic_fetch_add(&presses, 1);
}

const char *cli_relay_kind(void)
{
    _Static_assert(CLI_RELAYS_FILE == 1 && CLI_RELAYS_TERMINAL == 2 && CLI_RELAYS_BOTH == 3,
                   "as written here");
    return !isatty(STDIN_FILENO) ? "1" : !isatty(STDOUT_FILENO) ? "2" : "3";
}

sheaf_status *cli_relay_open(cli_relay *r)
{
    struct sigaction action = { .sa_flags = SA_RESTART };
    int fd[2];
    *r = (cli_relay){ .from = -1, .to = -1 };
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, &action, NULL) != 0 || pipe2(fd, O_CLOEXEC) != 0)
        return sheaf__io_fail(errno, "standard input", "passing it on");
    r->from = fd[0];
    r->to = fd[1];
    if (fcntl(r->to, F_SETFL, O_NONBLOCK) == 0) /* signals are passed on all the same */
        return NULL;
    sheaf_status *st = sheaf__io_fail(errno, "standard input", "passing it on");
    cli_relay_close(r);
    return st;
}

bool cli_relay_take(const cli_relay *r)
{
    return dup2(r->from, STDIN_FILENO) == STDIN_FILENO;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void fill(cli_relay *r)
{
    const ssize_t got = read(STDIN_FILENO, r->buffer, sizeof r->buffer);
    r->begin = 0;
    r->end = got > 0 ? (size_t)got : 0;
    r->over = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

static void drain(cli_relay *r)
{
    const ssize_t put = write(r->to, r->buffer + r->begin, r->end - r->begin);
    if (put > 0)
        r->begin += (size_t)put;
    else if (put < 0 && errno != EINTR && errno != EAGAIN) { /* nobody reads any more */
        r->begin = r->end;
        r->over = true;
    }
}

void cli_relay_pass(cli_relay *r, pid_t child, int ms)
{
    for (int n = atomic_exchange(&presses, 0); n > 0; n--) {
        r->pressed[2] = r->pressed[1];
        r->pressed[1] = r->pressed[0];
        r->pressed[0] = sheaf__seconds();
        kill(child, SIGUSR1);
    }
    close_one(&r->from); /* the child has its own */
    if (r->over && r->begin == r->end)
        close_one(&r->to);
    const bool waits = r->begin < r->end;
    struct pollfd look = { .fd = waits ? r->to : STDIN_FILENO, .events = waits ? POLLOUT : POLLIN };
    if (poll(&look, r->over && !waits ? 0 : 1, ms) <= 0)
        return;
    if (waits)
        drain(r);
    else
        fill(r);
}

bool cli_relay_insists(const cli_relay *r)
{
    return r->pressed[2] > 0 && r->pressed[0] - r->pressed[2] <= 2;
}

void cli_relay_close(cli_relay *r)
{
    close_one(&r->from);
    close_one(&r->to);
}
