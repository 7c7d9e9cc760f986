/* line.c - see line.h. */
#include "comm/watch/line.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "sheaf/cut.h"

/* ANSWER_MS: the first process may be busy with several strangers. */
enum { SEND_MS = 2000, CONNECT_MS = 1000, GREET_MS = 1000, ANSWER_MS = 5000 };

typedef union sheaf__line_address address;

/* The first bytes from a caller; the first process answers with the same. */
typedef struct hello {
    unsigned char token[16];
    int32_t process;
} hello;

static socklen_t size_of(const address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

static int new_socket(const address *a)
{
    return socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* IPv4 before IPv6. */
static void own_addresses(sheaf__line_place *place)
{
    static const sa_family_t families[] = { AF_INET, AF_INET6 };
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (int pass = 0; pass < 2; pass++)
        for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
            if (place->count < SHEAF__LINE_PLACES && i->ifa_addr != NULL &&
                (i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP &&
                i->ifa_addr->sa_family == families[pass])
                memcpy(&place->address[place->count++], i->ifa_addr,
                       pass == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    freeifaddrs(all);
}

static int bound(const address *a)
{
    const int off = 0, fd = new_socket(a);
    if (fd < 0)
        return -1;
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &a->any, size_of(a)) == 0 && listen(fd, SHEAF_MAX_SLICES) == 0)
        return fd;
    close(fd);
    return -1;
}

sheaf_status *sheaf__line_listen(int *fd, sheaf__line_place *place, bool here)
{
    address mine = { .v4 = { .sin_family = AF_INET } };
    socklen_t size = sizeof mine;
    memset(place, 0, sizeof *place);
    if (!here)
        own_addresses(place);
    if (place->count == 0) { /* containers without a network, too, may share that of their host */
        mine.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        place->address[place->count++] = mine;
        *fd = bound(&mine);
    } else {
        *fd = bound(&(address){ .v6 = { .sin6_family = AF_INET6 } });
        if (*fd < 0)
            *fd = bound(&mine);
    }
    if (*fd < 0 || getsockname(*fd, &mine.any, &size) != 0 ||
        getrandom(place->token, sizeof place->token, 0) != sizeof place->token) {
        sheaf_status *st =
            sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "watching the processes: listening"), errno);
        if (*fd >= 0)
            close(*fd);
        return st;
    }
    for (int i = 0; i < place->count; i++)
        place->address[i].v6.sin6_port = mine.v6.sin6_port; /* at the same place in both families */
    return NULL;
}

/* ---- they meet ---- */

/* A whole greeting with the token of the run. */
static bool greeted(hello *h, int fd, const sheaf__line_place *place, int within_ms)
{
    size_t used = 0;
    int got = 0;
    while (got == 0 && poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, within_ms) == 1)
        got = sheaf__line_read(fd, h, sizeof *h, &used);
    return got > 0 && memcmp(h->token, place->token, sizeof h->token) == 0;
}

static void without_delay(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sheaf_status *sheaf__line_accept(int *fd, int listens, const sheaf__line_place *place,
                                 int processes)
{
    const double until = sheaf__seconds() + 1e-3 * SHEAF__LINE_MEET_MS;
    int missing = processes - 1;
    hello h;
    for (int i = 0; i < processes; i++)
        fd[i] = -1;
    while (missing > 0 && sheaf__seconds() < until) {
        poll(&(struct pollfd){ .fd = listens, .events = POLLIN }, 1, GREET_MS);
        const int caller = accept4(listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (caller < 0)
            continue;
        if (greeted(&h, caller, place, GREET_MS) && h.process > 0 && h.process < processes &&
            fd[h.process] < 0 && sheaf__line_send(caller, &h, sizeof h)) {
            without_delay(caller);
            fd[h.process] = caller;
            missing--;
        } else {
            close(caller);
        }
    }
    close(listens);
    if (missing == 0)
        return NULL;
    return sheaf_found(sheaf_fail(SHEAF_E_IO, "watching the processes"),
                       "no connection from %d of them", missing);
}

static bool connected(int fd, const address *to)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct pollfd wait = { .fd = fd, .events = POLLOUT };
    if (connect(fd, &to->any, size_of(to)) == 0)
        return true;
    return errno == EINPROGRESS && poll(&wait, 1, CONNECT_MS) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

sheaf_status *sheaf__line_connect(int *fd, const sheaf__line_place *place, int process)
{
    hello h = { .process = process };
    memcpy(h.token, place->token, sizeof h.token);
    for (int i = 0; i < place->count && i < SHEAF__LINE_PLACES; i++) {
        *fd = new_socket(&place->address[i]);
        if (*fd >= 0 && connected(*fd, &place->address[i]) && sheaf__line_send(*fd, &h, sizeof h) &&
            greeted(&(hello){ { 0 } }, *fd, place, ANSWER_MS)) {
            without_delay(*fd);
            return NULL;
        }
        if (*fd >= 0)
            close(*fd);
    }
    *fd = -1;
    return sheaf_found(sheaf_fail(SHEAF_E_IO, "watching the processes"),
                       "no connection to the first one at any of its %d addresses",
                       (int)place->count);
}

/* ---- frames ---- */

bool sheaf__line_send(int fd, const void *frame, size_t size)
{
    for (const char *at = frame; size > 0;) {
        const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        struct pollfd wait = { .fd = fd, .events = POLLOUT };
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno != EAGAIN || poll(&wait, 1, SEND_MS) != 1))
            return false;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return true;
}

int sheaf__line_read(int fd, void *frame, size_t size, size_t *used)
{
    while (*used < size) {
        const ssize_t n = recv(fd, (char *)frame + *used, size - *used, MSG_DONTWAIT);
        if (n > 0)
            *used += (size_t)n;
        else if (n == 0)
            return -1;
        else if (errno != EINTR)
            return errno == EAGAIN ? 0 : -1;
    }
    *used = 0;
    return 1;
}
