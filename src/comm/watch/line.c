/* line.c - see line.h. */
#include "comm/watch/line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

enum { MAGIC = 0x77686173, HEAD = 12, SEND_MS = 2000, CONNECT_MS = 2000 };

typedef struct head {
    uint32_t magic;
    uint16_t kind, none;
    uint32_t size;
} head;

static sheaf_status *failed(const char *what)
{
    return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "watching the processes: %s", what), errno);
}

/* ---- where ---- */

static void add_address(sheaf__line_place *place, const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    const int i = place->count;
    if (i == SHEAF__LINE_PLACES || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
        return;
    place->address[i].v6 = a->sa_family == AF_INET6;
    if (a->sa_family == AF_INET) {
        memcpy(place->address[i].at, &v4->sin_addr, 4);
    } else {
        memcpy(place->address[i].at, &v6->sin6_addr, 16);
        place->address[i].scope = v6->sin6_scope_id;
    }
    place->count++;
}

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
    for (; named != NULL; named = named->ai_next)
        if (named->ai_family == a->sa_family &&
            (a->sa_family == AF_INET
                 ? memcmp(&((const struct sockaddr_in *)named->ai_addr)->sin_addr,
                          &((const struct sockaddr_in *)a)->sin_addr, 4) == 0
                 : memcmp(&((const struct sockaddr_in6 *)named->ai_addr)->sin6_addr,
                          &((const struct sockaddr_in6 *)a)->sin6_addr, 16) == 0))
            return true;
    return false;
}

/* Which addresses of this host the others are told. */
typedef enum whose { LOOPBACK, MPIRUNS, NAMED, ALL } whose;

/* IPv4 before IPv6, others before the loopback. */
static void own_addresses(sheaf__line_place *place, whose wanted, const struct ifaddrs *all,
                          const struct addrinfo *named)
{
    place->count = 0;
    for (int pass = 0; pass < 4; pass++)
        for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
            const bool loops = (i->ifa_flags & IFF_LOOPBACK) != 0;
            if (i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 && loops == (pass >= 2) &&
                i->ifa_addr->sa_family == (pass % 2 == 0 ? AF_INET : AF_INET6) &&
                (wanted == ALL || (wanted == LOOPBACK && loops) ||
                 (wanted == MPIRUNS && is_mpiruns(i)) ||
                 (wanted == NAMED && !loops && is_named(named, i->ifa_addr))))
                add_address(place, i->ifa_addr);
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

static int bound(int family, const sheaf__line_place *place)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    const int off = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (place != NULL && family == AF_INET6) {
        memcpy(&v6.sin6_addr, place->address[0].at, 16);
        v6.sin6_scope_id = place->address[0].scope;
    } else if (place != NULL) {
        memcpy(&v4.sin_addr, place->address[0].at, 4);
    } else if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    const int error = family == AF_INET6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6)
                                         : bind(fd, (struct sockaddr *)&v4, sizeof v4);
    if (error == 0 && listen(fd, 256) == 0)
        return fd;
    close(fd);
    return -1;
}

sheaf_status *sheaf__line_listen(int *fd, sheaf__line_place *place, bool here)
{
    struct sockaddr_in6 mine;
    socklen_t size = sizeof mine;
    memset(place, 0, sizeof *place);
    if (choose_addresses(place, here) != ALL) {
        place->count = 1;
        *fd = bound(place->address[0].v6 ? AF_INET6 : AF_INET, place);
    } else {
        *fd = bound(AF_INET6, NULL);
        if (*fd < 0)
            *fd = bound(AF_INET, NULL);
    }
    if (*fd < 0)
        return failed("listening");
    if (getsockname(*fd, (struct sockaddr *)&mine, &size) != 0 ||
        getrandom(place->token, sizeof place->token, 0) != sizeof place->token) {
        close(*fd);
        return failed("listening");
    }
    place->port = mine.sin6_port; /* at the same place in both families */
    return NULL;
}

static bool connected(int fd, const struct sockaddr *to, socklen_t size)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct pollfd wait = { .fd = fd, .events = POLLOUT };
    if (connect(fd, to, size) == 0)
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
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = place->port };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = place->port,
                               .sin6_scope_id = place->address[i].scope };
    const bool is_v6 = place->address[i].v6 != 0;
    memcpy(&v4.sin_addr, place->address[i].at, 4);
    memcpy(&v6.sin6_addr, place->address[i].at, 16);
    const int fd =
        socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (is_v6 ? connected(fd, (struct sockaddr *)&v6, sizeof v6)
                          : connected(fd, (struct sockaddr *)&v4, sizeof v4))) {
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

static bool send_all(int fd, const unsigned char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        struct pollfd wait = { .fd = fd, .events = POLLOUT };
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno != EAGAIN || poll(&wait, 1, SEND_MS) != 1))
            return false;
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        }
    }
    return true;
}

bool sheaf__line_send(int fd, int kind, const void *bytes, size_t size)
{
    unsigned char frame[HEAD + SHEAF__LINE_MOST];
    const head h = { .magic = MAGIC, .kind = (uint16_t)kind, .size = (uint32_t)size };
    if (fd < 0 || size > SHEAF__LINE_MOST)
        return false;
    memcpy(frame, &h, HEAD);
    if (size > 0)
        memcpy(frame + HEAD, bytes, size);
    return send_all(fd, frame, HEAD + size);
}

bool sheaf__line_wait(int fd, int ms)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    return poll(&wait, 1, ms) == 1;
}

bool sheaf__line_read(int fd, sheaf__line_in *in)
{
    memmove(in->bytes, in->bytes + in->taken, in->used - in->taken);
    in->used -= in->taken;
    in->taken = 0;
    while (in->used < sizeof in->bytes) {
        const ssize_t n = recv(fd, in->bytes + in->used, sizeof in->bytes - in->used, MSG_DONTWAIT);
        if (n > 0)
            in->used += (size_t)n;
        else if (n == 0)
            return false;
        else if (errno != EINTR)
            return errno == EAGAIN;
    }
    return true;
}

int sheaf__line_next(sheaf__line_in *in, const void **bytes, size_t *size)
{
    head h;
    if (in->used - in->taken < HEAD)
        return 0;
    memcpy(&h, in->bytes + in->taken, HEAD);
    if (h.magic != MAGIC || h.kind == 0 || h.size > SHEAF__LINE_MOST)
        return -1;
    if (in->used - in->taken < HEAD + h.size)
        return 0;
    *bytes = in->bytes + in->taken + HEAD;
    *size = h.size;
    in->taken += HEAD + h.size;
    return h.kind;
}
