/* line.c - see line.h. */
#include "comm/watch/line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

enum { SEND_MS = 2000, CONNECT_MS = 2000 };

typedef union sheaf__line_address address;

static socklen_t size_of(const struct sockaddr *a)
{
    return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* ---- where ---- */

/* Does mpirun's list of interfaces ("eth1,10.1.0.0/16") name this one? */
static bool is_listed(const char *list, const struct ifaddrs *i)
{
    char word[64], at[64];
    while (list != NULL && *list != '\0') {
        struct in_addr net;
        int bits = 0;
        const size_t n = strcspn(list, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, list);
        if (strcmp(word, i->ifa_name) == 0)
            return true;
        if (i->ifa_addr->sa_family == AF_INET && sscanf(word, "%63[^/]/%d", at, &bits) == 2 &&
            inet_pton(AF_INET, at, &net) == 1 && bits > 0 && bits <= 32) {
            const uint32_t own = ntohl(((const struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr);
            if (((own ^ ntohl(net.s_addr)) >> (32 - bits)) == 0)
                return true;
        }
        list += n + (list[n] == ',');
    }
    return false;
}

/* By the flags that mpirun passes on, or its environment. */
static bool is_mpiruns(const struct ifaddrs *i)
{
    static const char *const lists[] = { "OMPI_MCA_btl_tcp_if_include",
                                         "OMPI_MCA_oob_tcp_if_include",
                                         "PRTE_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include",
                                         "HYDRA_IFACE" };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        if (is_listed(getenv(lists[k]), i))
            return true;
    return false;
}

/* Has this host's name, by which mpirun knows it, this address? */
static bool is_named(const struct addrinfo *named, const struct sockaddr *a)
{
    const address *x = (const address *)a;
    for (; named != NULL; named = named->ai_next) {
        const address *y = (const address *)named->ai_addr;
        if (named->ai_family == a->sa_family &&
            (a->sa_family == AF_INET ? memcmp(&x->v4.sin_addr, &y->v4.sin_addr, 4) == 0
                                     : memcmp(&x->v6.sin6_addr, &y->v6.sin6_addr, 16) == 0))
            return true;
    }
    return false;
}

/* Which addresses of this host the others get. */
typedef enum whose { LOOPBACK, MPIRUNS, NAMED, ALL } whose;

/* IPv4 before IPv6, others before the loopback. */
static void own_addresses(sheaf__line_place *place, whose wanted, const struct ifaddrs *all,
                          const struct addrinfo *named)
{
    place->count = 0;
    for (int pass = 0; pass < 4; pass++)
        for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
            const bool loops = (i->ifa_flags & IFF_LOOPBACK) != 0;
            if (place->count < SHEAF__LINE_PLACES && i->ifa_addr != NULL &&
                (i->ifa_flags & IFF_UP) != 0 && loops == (pass >= 2) &&
                i->ifa_addr->sa_family == (pass % 2 == 0 ? AF_INET : AF_INET6) &&
                (wanted == ALL || (wanted == LOOPBACK && loops) ||
                 (wanted == MPIRUNS && is_mpiruns(i)) ||
                 (wanted == NAMED && !loops && is_named(named, i->ifa_addr))))
                memcpy(&place->address[place->count++], i->ifa_addr, size_of(i->ifa_addr));
        }
}

/* `here`: all processes are on this host. */
static whose choose_addresses(sheaf__line_place *place, bool here)
{
    struct ifaddrs *all = NULL;
    struct addrinfo *named = NULL;
    char host[256] = "";
    whose wanted = here ? LOOPBACK : MPIRUNS;
    if (getifaddrs(&all) != 0)
        return ALL;
    own_addresses(place, wanted, all, NULL);
    if (place->count == 0 && !here && gethostname(host, sizeof host - 1) == 0 &&
        getaddrinfo(host, NULL, &(struct addrinfo){ .ai_socktype = SOCK_STREAM }, &named) == 0)
        own_addresses(place, wanted = NAMED, all, named);
    if (place->count == 0)
        own_addresses(place, wanted = ALL, all, NULL);
    if (named != NULL)
        freeaddrinfo(named);
    freeifaddrs(all);
    return wanted;
}

static int new_socket(const address *a)
{
    return socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int bound(const address *a)
{
    const int off = 0, fd = new_socket(a);
    if (fd < 0)
        return -1;
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &a->any, size_of(&a->any)) == 0 && listen(fd, 256) == 0)
        return fd;
    close(fd);
    return -1;
}

sheaf_status *sheaf__line_listen(int *fd, sheaf__line_place *place, bool here)
{
    address mine;
    socklen_t size = sizeof mine;
    memset(place, 0, sizeof *place);
    if (choose_addresses(place, here) != ALL) {
        place->count = 1;
        *fd = bound(&place->address[0]);
    } else {
        *fd = bound(&(address){ .v6 = { .sin6_family = AF_INET6 } });
        if (*fd < 0)
            *fd = bound(&(address){ .v4 = { .sin_family = AF_INET } });
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

static bool connected(int fd, const address *to)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct pollfd wait = { .fd = fd, .events = POLLOUT };
    if (connect(fd, &to->any, size_of(&to->any)) == 0)
        return true;
    return errno == EINPROGRESS && poll(&wait, 1, CONNECT_MS) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

static void without_delay(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int sheaf__line_connect(const sheaf__line_place *place, int i)
{
    const int fd = new_socket(&place->address[i]);
    if (fd >= 0 && connected(fd, &place->address[i])) {
        without_delay(fd);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

int sheaf__line_accept(int fd)
{
    const int caller = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (caller >= 0)
        without_delay(caller);
    return caller;
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
