/* http.c - see http.h.
 *
 * Threads of libmicrohttpd read requests and write replies; a connection whose reply is not there
 * yet is suspended, and costs nothing but its memory. */
#include "http/http.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "http/callers.h"
#include "http/log.h"

enum {
    THREADS = 4,
    IDLE = 30,          /* seconds without a byte either way */
    HEADERS = 30,       /* seconds that those of a request may take to arrive */
    REQUEST = 120,      /* the same for all of it, with trailers */
    REPLY = 120,        /* seconds that a reply, once it is whole, may take to be read */
    PROBE = 1,          /* seconds after which a half-closed connection is probed */
    BODIES = 4,         /* requests of the largest size that are held at a time */
    ADDRESSES = 256,    /* addresses whose rate is known */
    MEMORY = 32 * 1024, /* of a connection, for its headers */
    STACK = 1 << 20,    /* of a thread */
    LAST = 5,           /* seconds to write the remaining replies at the end */
};

/* The library's functions, by their members of `library`; linked with it, the command would take
 * 15 ms longer to start. */
#define FUNCTIONS(X)                                                                               \
    X(start, MHD_start_daemon)                                                                     \
    X(stop, MHD_stop_daemon)                                                                       \
    X(quiesce, MHD_quiesce_daemon)                                                                 \
    X(connection_info, MHD_get_connection_info)                                                    \
    X(lookup, MHD_lookup_connection_value)                                                         \
    X(values, MHD_get_connection_values_n)                                                         \
    X(unescape, MHD_http_unescape)                                                                 \
    X(response, MHD_create_response_from_buffer)                                                   \
    X(stream, MHD_create_response_from_callback)                                                   \
    X(header, MHD_add_response_header)                                                             \
    X(queue, MHD_queue_response)                                                                   \
    X(destroy, MHD_destroy_response)                                                               \
    X(suspend, MHD_suspend_connection)                                                             \
    X(resume, MHD_resume_connection)

typedef struct library {
    void *handle;
#define MEMBER(member, function) __typeof__(&(function)) member;
    FUNCTIONS(MEMBER)
#undef MEMBER
} library;

/* The request rate of an address. */
typedef struct bucket {
    unsigned char address[SHEAF__CALLER_ADDRESS];
    double left, since; /* requests that it may send; the moment of this count */
} bucket;

struct sheaf__http {
    library lib;
    sheaf__http_options o;
    char *host, *token;
    struct MHD_Daemon *daemon;
    sheaf__callers *callers;
    int port, refused; /* refused: the socket that no longer listens, or -1 */
    bool loopback;
    pthread_mutex_t lock; /* for the members below */
    bucket bucket[ADDRESSES];
    size_t held;  /* bytes of bodies */
    int64_t open; /* exchanges whose reply is not written yet */
};

struct sheaf__exchange {
    sheaf__http *http;
    pthread_mutex_t lock;
    struct MHD_Connection *connection; /* NULL: it is over */
    sheaf__caller *caller;             /* while there is a connection */
    int owners;                        /* the connection, and the thread that replies */
    char *path, *method;
    sheaf_text body, out; /* out: bytes that are not written yet */
    size_t counted;       /* of the body, in http->held */
    size_t written;       /* of out */
    double half_closed;   /* since when the other side sends no more; 0: it may */
    int status;           /* of the reply; 0: none yet */
    const char *type;
    bool handled, streams, ended, queued, suspended, gone, close;
    bool modern, probed; /* modern: not HTTP/1.0; probed: it got an interim reply */
    bool unread;         /* the client had gone before the reply was whole */
    time_t arrived;      /* this and the next two: for the log */
    char client[INET6_ADDRSTRLEN];
    sheaf_text note;
};

/* ---- exchanges ---- */

static void count_body(sheaf__exchange *x, size_t bytes)
{
    pthread_mutex_lock(&x->http->lock);
    x->http->held += bytes - x->counted;
    x->counted = bytes;
    pthread_mutex_unlock(&x->http->lock);
}

static void count_open(sheaf__http *http, int change)
{
    pthread_mutex_lock(&http->lock);
    http->open += change;
    pthread_mutex_unlock(&http->lock);
}

/* The exchange has no owner left. */
static void log_request(const sheaf__exchange *x)
{
    const sheaf__http_options *o = &x->http->o;
    sheaf_text line = { 0 };
    if (o->log == NULL)
        return;
    sheaf__log_line(&line, &(sheaf__log_entry){ .arrived = x->arrived,
                                                .client = x->client,
                                                .method = x->method,
                                                .path = x->path,
                                                .status = x->unread ? 0 : x->status,
                                                .note = x->note.at });
    if (!line.failed)
        o->log(o->self, line.at);
    sheaf__text_release(&line);
}

static void leave(sheaf__exchange *x)
{
    pthread_mutex_lock(&x->lock);
    const bool last = --x->owners == 0;
    pthread_mutex_unlock(&x->lock);
    if (!last)
        return;
    if (x->path != NULL && x->method != NULL)
        log_request(x);
    count_body(x, 0);
    sheaf__text_release(&x->note);
    sheaf__text_release(&x->body);
    sheaf__text_release(&x->out);
    pthread_mutex_destroy(&x->lock);
    free(x->path);
    free(x->method);
    free(x);
}

/* The lock is held. */
static void move(sheaf__exchange *x, sheaf__caller_stage to)
{
    if (x->connection != NULL)
        sheaf__callers_move(x->http->callers, x->caller, to);
}

/* The lock is held. */
static void end(sheaf__exchange *x)
{
    x->ended = true;
    x->unread = x->gone;
    move(x, SHEAF__CALLER_READS);
}

/* The lock is held. */
static void wake(sheaf__exchange *x)
{
    if (x->suspended && x->connection != NULL) {
        x->suspended = false;
        x->http->lib.resume(x->connection);
    }
}

void sheaf__exchange_reply(sheaf__exchange *x, int status, const char *type, sheaf_text *text)
{
    pthread_mutex_lock(&x->lock);
    x->status = text->failed ? 500 : status;
    x->type = type;
    if (text->failed)
        sheaf__text_release(text);
    else
        x->out = *text;
    end(x);
    wake(x);
    pthread_mutex_unlock(&x->lock);
    leave(x);
}

void sheaf__exchange_copy(sheaf__exchange *x, const char *type, const char *text, size_t size)
{
    sheaf_text copy = { 0 };
    sheaf__text_bytes(&copy, text, size);
    sheaf__exchange_reply(x, 200, type, &copy);
}

void sheaf__exchange_begin(sheaf__exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->status = 200;
    x->type = "text/event-stream";
    x->streams = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void sheaf__exchange_write(sheaf__exchange *x, const char *bytes, size_t size)
{
    pthread_mutex_lock(&x->lock);
    if (!x->gone)
        sheaf__text_bytes(&x->out, bytes, size);
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void sheaf__exchange_end(sheaf__exchange *x)
{
    pthread_mutex_lock(&x->lock);
    end(x);
    wake(x);
    pthread_mutex_unlock(&x->lock);
    leave(x);
}

sheaf_text *sheaf__exchange_note(sheaf__exchange *x)
{
    return &x->note;
}

/* A client that sends no more may still read, or be gone: only writing to it shows which. An
 * interim reply, which every client of HTTP/1.1 skips, is written while there is nothing of the
 * reply; the pieces of a stream show it themselves. */
static void probe(sheaf__exchange *x, int socket)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const double now = sheaf__seconds();
    if (x->half_closed == 0)
        x->half_closed = now;
    if (x->probed || !x->modern || !x->suspended || x->status != 0 || now < x->half_closed + PROBE)
        return;
    x->probed = true;
    (void)!send(socket, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A suspended connection is not watched by the library. */
bool sheaf__exchange_gone(sheaf__exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (!x->gone && x->connection != NULL) {
        const union MHD_ConnectionInfo *info =
            x->http->lib.connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct pollfd p = { .fd = info == NULL ? -1 : info->connect_fd, .events = POLLRDHUP };
        const int shows = poll(&p, 1, 0) > 0 ? p.revents : 0;
        x->gone = (shows & (POLLHUP | POLLERR)) != 0;
        if (!x->gone && (shows & POLLRDHUP) != 0)
            probe(x, p.fd);
    }
    const bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return gone;
}

/* ---- replies ---- */

static ssize_t read_stream(void *self, uint64_t at, char *buffer, size_t most)
{
    sheaf__exchange *x = self;
    (void)at;
    pthread_mutex_lock(&x->lock);
    const size_t left = x->out.size - x->written, n = left < most ? left : most;
    const bool over = left == 0 && x->ended;
    if (n > 0)
        memcpy(buffer, x->out.at + x->written, n);
    x->written += n;
    if (n > 0 && x->written == x->out.size)
        x->written = x->out.size = 0;
    if (n == 0 && !over) {
        x->suspended = true;
        x->http->lib.suspend(x->connection);
    }
    const bool failed = x->out.failed;
    pthread_mutex_unlock(&x->lock);
    return failed ? MHD_CONTENT_READER_END_WITH_ERROR
           : over ? MHD_CONTENT_READER_END_OF_STREAM
                  : (ssize_t)n;
}

/* Headers of every reply, for browsers: nothing of another origin is loaded, whatever text a model
 * writes, and no other page frames or reads it. */
static const char *const headers[][2] = {
    { "X-Content-Type-Options", "nosniff" },
    { "X-Frame-Options", "DENY" },
    { "Referrer-Policy", "no-referrer" },
    { "Cross-Origin-Resource-Policy", "same-origin" },
    { "Cache-Control", "no-store" },
    { "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'" },
};

/* By the connection's own thread, once: the members that it reads no longer change. */
static enum MHD_Result queue(sheaf__exchange *x)
{
    const library *lib = &x->http->lib;
    struct MHD_Response *r = x->streams
                                 ? lib->stream(MHD_SIZE_UNKNOWN, 4096, read_stream, x, NULL)
                                 : lib->response(x->out.size, x->out.at, MHD_RESPMEM_MUST_COPY);
    if (r == NULL)
        return MHD_NO;
    lib->header(r, "Content-Type", x->type);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        lib->header(r, headers[i][0], headers[i][1]);
    if (x->status == 401)
        lib->header(r, "WWW-Authenticate", "Bearer");
    if (x->status == 429)
        lib->header(r, "Retry-After", "2");
    if (x->close)
        lib->header(r, "Connection", "close");
    const enum MHD_Result done = lib->queue(x->connection, (unsigned)x->status, r);
    lib->destroy(r);
    return done;
}

void sheaf__http_error_json(sheaf_text *to, const char *type, const char *code,
                            const sheaf_status *st)
{
    const struct {
        const char *name, *text;
    } part[] = { { "where", sheaf_status_where(st) },
                 { "expected", sheaf_status_expected(st) },
                 { "found", sheaf_status_found(st) },
                 { "try", sheaf_status_try(st) } };
    sheaf_text message = { 0 };
    const char *where = part[0].text;
    const bool names =
        *where != '\0' && strchr("`'\"", *where) != NULL; /* a field of the request */
    const char *end = names ? strchr(where + 1, *where) : NULL;
    char *param = end == NULL ? NULL : strndup(where + 1, (size_t)(end - where) - 1);
    for (size_t i = 0; i < 4; i++)
        if (part[i].text[0] != '\0')
            sheaf__text_add(&message, i == 0 ? "%.0s%s" : "; %s: %s", part[i].name, part[i].text);
    sheaf_json_writer j = { .text = *to };
    sheaf__json_put(
        &j, "{ error:{ message:s type:s param:s code:s where:s expected:s found:s try:s } }",
        message.at == NULL ? "" : message.at, type, param, code, part[0].text, part[1].text,
        part[2].text, part[3].text);
    sheaf__text_add(&j.text, "\n");
    *to = j.text;
    free(param);
    sheaf__text_release(&message);
}

void sheaf__http_error(sheaf__exchange *x, int status, const char *type, const char *code,
                       const sheaf_status *st)
{
    sheaf_text text = { 0 };
    sheaf__http_error_json(&text, type, code, st);
    sheaf__exchange_reply(x, status, "application/json", &text);
}

void sheaf__exchange_refuse(sheaf__exchange *x, int status, const char *part, const char *expected,
                            const char *found)
{
    sheaf_status *st = sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", part), "%s", expected), "%.60s", found);
    sheaf__http_error(x, status, "invalid_request_error", NULL, st);
    sheaf_status_free(st);
}

bool sheaf__http_reads(const sheaf__http_request *request)
{
    return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

/* ---- access ---- */

static const char *value_of(const sheaf__exchange *x, const char *header)
{
    const char *value = x->http->lib.lookup(x->connection, MHD_HEADER_KIND, header);
    return value == NULL ? "" : value;
}

/* Its time does not depend on the texts. */
static bool is_token(const char *given, const char *token)
{
    const size_t n = strlen(given), m = strlen(token);
    unsigned char differs = n != m;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(given[i] ^ token[m == 0 ? 0 : i % m]);
    return differs == 0;
}

/* Does a Host header name this server? A page of another name may resolve to this address. */
static bool is_host(const sheaf__http *http, const char *host)
{
    const char *const names[] = { "localhost", "127.0.0.1", "[::1]", http->host };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        char *end;
        if (strncasecmp(host, names[i], n) != 0)
            continue;
        if (host[n] == '\0' ||
            (host[n] == ':' && strtol(host + n + 1, &end, 10) == http->port && *end == '\0'))
            return true;
    }
    return false;
}

/* The address in words, for the log. */
static void name_client(char to[INET6_ADDRSTRLEN], const library *lib,
                        struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        lib->connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const bool four = info != NULL && info->client_addr->sa_family == AF_INET;
    const void *at = info == NULL ? NULL
                     : four
                         ? (const void *)&((const struct sockaddr_in *)info->client_addr)->sin_addr
                         : &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr;
    if (at == NULL || inet_ntop(four ? AF_INET : AF_INET6, at, to, INET6_ADDRSTRLEN) == NULL)
        snprintf(to, INET6_ADDRSTRLEN, "-");
}

/* The client: the four bytes of IPv4, or the half of IPv6 that names a network. */
static void address_of(unsigned char to[SHEAF__CALLER_ADDRESS], const library *lib,
                       struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        lib->connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    memset(to, 0, SHEAF__CALLER_ADDRESS);
    if (info == NULL)
        return;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr;
    if (info->client_addr->sa_family == AF_INET)
        memcpy(to, &((const struct sockaddr_in *)info->client_addr)->sin_addr, 4);
    else if (info->client_addr->sa_family == AF_INET6)
        memcpy(to, (const unsigned char *)six + (IN6_IS_ADDR_V4MAPPED(six) ? 12 : 0),
               IN6_IS_ADDR_V4MAPPED(six) ? 4 : 8);
}

/* May this address send another request? */
static bool in_rate(sheaf__http *http, struct MHD_Connection *connection)
{
    unsigned char address[SHEAF__CALLER_ADDRESS];
    if (http->o.rate == 0)
        return true;
    address_of(address, &http->lib, connection);
    const double now = sheaf__seconds(), most = (double)http->o.rate;
    pthread_mutex_lock(&http->lock);
    bucket *b = &http->bucket[0];
    for (int i = 0; i < ADDRESSES; i++) {
        bucket *other = &http->bucket[i];
        if (other->since > 0 && memcmp(other->address, address, sizeof address) == 0) {
            b = other;
            break;
        }
        if (other->since < b->since)
            b = other;
    }
    if (b->since == 0 || memcmp(b->address, address, sizeof address) != 0) {
        *b = (bucket){ .left = most, .since = now };
        memcpy(b->address, address, sizeof address);
    }
    b->left += (now - b->since) * most / 60;
    b->left = b->left < most ? b->left : most;
    b->since = now;
    const bool may = b->left >= 1;
    b->left -= may;
    pthread_mutex_unlock(&http->lock);
    return may;
}

/* Parts of a request that two readers could take differently, so that a proxy and this server would
 * divide two requests at different places. */
typedef struct framing {
    int hosts, lengths, encodings;
    bool bad_name, chunked;
    char length[24];
    bool lengths_differ;
} framing;

static enum MHD_Result take_header(void *self, enum MHD_ValueKind kind, const char *name,
                                   size_t name_size, const char *value, size_t size)
{
    framing *f = self;
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"; /* RFC 9110, 5.6.2 */
    (void)kind;
    if (value == NULL)
        value = "";
    if (name_size == 0 || strspn(name, letters) != name_size)
        f->bad_name = true;
    if (strcasecmp(name, "Host") == 0)
        f->hosts++;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        f->encodings++;
        f->chunked = strcasecmp(value, "chunked") == 0;
    }
    if (strcasecmp(name, "Content-Length") == 0) {
        f->lengths_differ |= f->lengths++ > 0 && strcmp(f->length, value) != 0;
        snprintf(f->length, sizeof f->length, "%s", value);
    }
    return MHD_YES;
}

static sheaf_status *check_framing(const sheaf__exchange *x)
{
    framing f = { 0 };
    x->http->lib.values(x->connection, MHD_HEADER_KIND, take_header, &f);
    const struct {
        bool bad;
        const char *part, *expected, *found;
    } rows[] = {
        { strstr(x->path, "%00") != NULL, "path", "no NUL", "%00" },
        { f.bad_name, "a header's name", "letters, digits and signs up to the colon", "others" },
        { f.hosts > 1, "header Host", "one", "several" },
        { f.hosts == 0 && x->modern, "header Host", "one", "none" },
        { f.lengths_differ, "header Content-Length", "one length", "several" },
        { f.encodings > 1 || (f.encodings == 1 && !f.chunked), "header Transfer-Encoding",
          "chunked, or none", "another" },
        { f.encodings > 0 && !x->modern, "header Transfer-Encoding", "none in HTTP/1.0", "one" },
        { f.encodings > 0 && f.lengths > 0, "request",
          "one of the headers Content-Length and Transfer-Encoding", "both" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].bad)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", rows[i].part), "%s", rows[i].expected),
                "%s", rows[i].found);
    return NULL;
}

/* application/json, perhaps with parameters. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    const size_t n = strcspn(type, "; \t"), blanks = strspn(type + n, " \t");
    return n == sizeof json - 1 && strncasecmp(type, json, n) == 0 &&
           (type[n + blanks] == '\0' || type[n + blanks] == ';');
}

typedef struct refusal {
    int status;
    const char *type, *code;
} refusal;

/* From the headers alone; NULL: go on. */
static sheaf_status *refuse(refusal *how, sheaf__exchange *x)
{
    sheaf__http *http = x->http;
    const char *host = value_of(x, "Host"), *origin = value_of(x, "Origin"),
               *given = value_of(x, "Authorization"), *length = value_of(x, "Content-Length");
    static const char bearer[] = "Bearer ";
    *how = (refusal){ 400, "invalid_request_error", NULL };
    sheaf_status *st = check_framing(x);
    if (st != NULL)
        return st;
    *how = (refusal){ 403, "permission_error", "forbidden" };
    if (http->loopback && !is_host(http, host))
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "header Host"),
                                       "a name of this server, as localhost:%d", http->port),
                        "'%.60s'", host),
            "http://localhost:%d", http->port);
    const char *at = strstr(origin, "://");
    if (origin[0] != '\0' && (at == NULL || strcasecmp(at + 3, host) != 0))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "header Origin"),
                                          "none, or that of this server's own page"),
                           "'%.60s'", origin);
    *how = (refusal){ 429, "rate_limit_error", "rate_limit_exceeded" };
    if (!in_rate(http, x->connection))
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "requests"),
                                             "at most %lld in a minute from one address",
                                             (long long)http->o.rate),
                              "it again, later");
    *how = (refusal){ 401, "authentication_error", "invalid_api_key" };
    const bool shown = strncasecmp(given, bearer, sizeof bearer - 1) == 0;
    if (http->token != NULL && !http->o.open(http->o.self, x->path) &&
        (!shown || !is_token(given + sizeof bearer - 1, http->token)))
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "header Authorization"),
                                       "the token of this server"),
                        shown ? "another" : "none"),
            "Authorization: Bearer TOKEN; clients call it API key");
    *how = (refusal){ 415, "invalid_request_error", NULL };
    if (strcmp(x->method, "POST") == 0 && !is_json(value_of(x, "Content-Type")))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "header Content-Type"), "application/json"),
            "'%.60s'", value_of(x, "Content-Type"));
    *how = (refusal){ 413, "invalid_request_error", NULL };
    if (strtoull(length, NULL, 10) > http->o.most_body)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "request"), "at most %zu bytes",
                                          http->o.most_body),
                           "%.20s", length);
    return NULL;
}

/* ---- libmicrohttpd's calls ---- */

static sheaf__caller *caller_of(const library *lib, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        lib->connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

/* A connection begins or ends. */
static void connected(void *self, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode what)
{
    sheaf__http *http = self;
    unsigned char address[SHEAF__CALLER_ADDRESS];
    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
        sheaf__callers_remove(http->callers, *own);
        *own = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        http->lib.connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    address_of(address, &http->lib, connection);
    *own = sheaf__callers_add(http->callers, info->connect_fd, address);
}

/* "%00" stays: a text that ends there would be another path. */
static size_t unescape(void *self, struct MHD_Connection *connection, char *text)
{
    const sheaf__http *http = self;
    (void)connection;
    return strstr(text, "%00") != NULL ? strlen(text) : http->lib.unescape(text);
}

static sheaf__exchange *new_exchange(sheaf__http *http, struct MHD_Connection *connection,
                                     const char *path, const char *method, const char *version)
{
    sheaf__exchange *x = calloc(1, sizeof *x);
    if (x == NULL)
        return NULL;
    *x = (sheaf__exchange){ .http = http,
                            .connection = connection,
                            .caller = caller_of(&http->lib, connection),
                            .owners = 2,
                            .arrived = time(NULL),
                            .path = strdup(path),
                            .method = strdup(method),
                            .modern = strcmp(version, "HTTP/1.0") != 0 };
    pthread_mutex_init(&x->lock, NULL);
    if (x->path == NULL || x->method == NULL) {
        x->owners = 1;
        leave(x);
        return NULL;
    }
    name_client(x->client, &http->lib, connection);
    count_open(http, 1);
    return x;
}

/* More of a body; false: the connection is closed. */
static bool take_body(sheaf__exchange *x, const char *bytes, size_t size)
{
    sheaf__http *http = x->http;
    pthread_mutex_lock(&http->lock);
    const bool room = http->held + size <= BODIES * http->o.most_body;
    pthread_mutex_unlock(&http->lock);
    if (!room || x->body.size + size > http->o.most_body)
        return false;
    sheaf__text_bytes(&x->body, bytes, size);
    count_body(x, x->body.size);
    return !x->body.failed;
}

static void handle(sheaf__exchange *x)
{
    const sheaf__http_options *o = &x->http->o;
    o->handle(o->self, x,
              &(sheaf__http_request){ .method = x->method,
                                      .path = x->path,
                                      .body = x->body.at == NULL ? "" : x->body.at,
                                      .size = x->body.size });
}

static enum MHD_Result access_to(void *self, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *size, void **own)
{
    sheaf__http *http = self;
    sheaf__exchange *x = *own;
    if (x == NULL) {
        refusal how;
        if ((x = new_exchange(http, connection, url, method, version)) == NULL)
            return MHD_NO;
        *own = x;
        sheaf_status *st = refuse(&how, x);
        sheaf__callers_move(http->callers, x->caller, SHEAF__CALLER_BODY);
        if (st == NULL)
            return MHD_YES;
        x->handled = x->close = true;
        sheaf__http_error(x, how.status, how.type, how.code, st);
        sheaf_status_free(st);
    } else if (*size > 0) {
        const bool taken = x->queued || take_body(x, upload, *size);
        *size = 0;
        return taken ? MHD_YES : MHD_NO;
    } else if (!x->handled) {
        x->handled = true;
        sheaf__callers_move(http->callers, x->caller, SHEAF__CALLER_WAITS);
        handle(x);
    }
    pthread_mutex_lock(&x->lock);
    const bool now = !x->queued && x->status != 0;
    if (now) {
        x->queued = true;
    } else if (!x->queued) {
        x->suspended = true;
        http->lib.suspend(connection);
    }
    pthread_mutex_unlock(&x->lock);
    return now ? queue(x) : MHD_YES;
}

static void completed(void *self, struct MHD_Connection *connection, void **own,
                      enum MHD_RequestTerminationCode why)
{
    sheaf__exchange *x = *own;
    (void)self;
    (void)connection;
    (void)why;
    if (x == NULL)
        return;
    pthread_mutex_lock(&x->lock);
    move(x, SHEAF__CALLER_HEADERS); /* of the next request */
    x->gone = true;
    x->connection = NULL;
    const bool alone = !x->handled; /* no thread replies to it */
    x->owners -= alone;
    pthread_mutex_unlock(&x->lock);
    *own = NULL;
    count_open(x->http, -1);
    leave(x);
}

/* ---- open and close ---- */

static sheaf_status *load(library *lib)
{
    static const char name[] = "libmicrohttpd.so.12";
    const struct {
        void *to;
        const char *name;
    } all[] = {
#define ROW(member, function) { &lib->member, #function },
        FUNCTIONS(ROW)
#undef ROW
#undef FUNCTIONS
    };
    lib->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof all / sizeof *all && lib->handle != NULL; i++) {
        void *function = dlsym(lib->handle, all[i].name);
        memcpy(all[i].to, &function, sizeof function);
        if (function == NULL) {
            dlclose(lib->handle);
            lib->handle = NULL;
        }
    }
    return lib->handle != NULL
               ? NULL
               : sheaf_try_this(
                     sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "a port for HTTP"),
                                                "%s, which reads and writes HTTP", name),
                                 "no such library"),
                     "apt-get install libmicrohttpd12");
}

/* An address, or "localhost". */
static bool find_address(struct sockaddr_storage *out, const char *host, int port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        return true;
    }
    if (inet_pton(AF_INET6, host, &six->sin6_addr) != 1)
        return false;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    return true;
}

bool sheaf__http_is_loopback(const char *host)
{
    struct sockaddr_storage at;
    if (!find_address(&at, host, 0))
        return false;
    return at.ss_family == AF_INET
               ? (ntohl(((struct sockaddr_in *)&at)->sin_addr.s_addr) >> 24) == 127
               : IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&at)->sin6_addr);
}

/* A socket of our own: the library's would say only that it failed. */
static sheaf_status *listen_at(int *out, int *port, const char *host)
{
    struct sockaddr_storage at;
    const int one = 1;
    if (!find_address(&at, host, *port))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`host`"),
                                          "localhost, or an address as 127.0.0.1 or ::"),
                           "'%.60s'", host);
    socklen_t size =
        at.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    const int s = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0)
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (s < 0 || bind(s, (struct sockaddr *)&at, size) != 0 || listen(s, 512) != 0 ||
        getsockname(s, (struct sockaddr *)&at, &size) != 0) {
        sheaf_status *st =
            sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s, port %d", host, *port), errno);
        if (s >= 0)
            close(s);
        return sheaf_try_this(st, "another port");
    }
    *out = s;
    *port = ntohs(at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
                                          : ((struct sockaddr_in6 *)&at)->sin6_port);
    return NULL;
}

/* Connections at a time: the process needs files, too. */
static int most_of(const sheaf__http_options *o)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 ||
        files.rlim_cur / 4 * 3 >= (rlim_t)o->connections) /* also where there is no limit */
        return o->connections;
    return files.rlim_cur < 8 ? 1 : (int)(files.rlim_cur / 4 * 3);
}

static sheaf_status *open_callers(sheaf__http *http)
{
    const sheaf__http_options *o = &http->o;
    const int most = most_of(o);
    return sheaf__callers_open(
        &http->callers,
        &(sheaf__callers_options){
            .most = most,
            .most_of_address = o->of_address > 0 ? o->of_address : (most + 1) / 2,
            .deadline = { [SHEAF__CALLER_HEADERS] = o->headers_s > 0 ? o->headers_s : HEADERS,
                          [SHEAF__CALLER_BODY] = o->request_s > 0 ? o->request_s : REQUEST,
                          [SHEAF__CALLER_READS] = o->reply_s > 0 ? o->reply_s : REPLY } });
}

sheaf_status *sheaf__http_open(sheaf__http **out, const sheaf__http_options *o)
{
    sheaf__http *http = calloc(1, sizeof *http);
    int socket = -1;
    *out = NULL;
    if (http == NULL)
        return sheaf__no_memory("serving");
    http->o = *o;
    http->port = o->port;
    http->refused = -1;
    http->loopback = sheaf__http_is_loopback(o->host);
    http->host = strdup(o->host);
    http->token = o->token == NULL ? NULL : strdup(o->token);
    pthread_mutex_init(&http->lock, NULL);
    sheaf_status *st = http->host == NULL || (o->token != NULL && http->token == NULL)
                           ? sheaf__no_memory("serving")
                           : load(&http->lib);
    TRY(st, open_callers(http));
    TRY(st, listen_at(&socket, &http->port, o->host));
    if (st == NULL) {
        const unsigned most = (unsigned)most_of(o);
        http->daemon = http->lib.start(
            MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, access_to,
            http, MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
            MHD_OPTION_NOTIFY_CONNECTION, connected, http, MHD_OPTION_UNESCAPE_CALLBACK, unescape,
            http, MHD_OPTION_CONNECTION_LIMIT, most + most / 8 + THREADS,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)MEMORY, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
            MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK, MHD_OPTION_END);
        if (http->daemon == NULL) {
            close(socket);
            st = sheaf_fail(SHEAF_E_IO, "starting the server at port %d", http->port);
        }
    }
    if (st == NULL)
        *out = http;
    else
        sheaf__http_close(http);
    return st;
}

int sheaf__http_port(const sheaf__http *http)
{
    return http->port;
}

const char *sheaf__http_address(char text[SHEAF__HTTP_ADDRESS], const sheaf__http *http)
{
    const bool six = strchr(http->host, ':') != NULL;
    snprintf(text, SHEAF__HTTP_ADDRESS, "http://%s%s%s:%d", six ? "[" : "", http->host,
             six ? "]" : "", http->port);
    return text;
}

void sheaf__http_refuse(sheaf__http *http)
{
    if (http->refused < 0)
        http->refused = http->lib.quiesce(http->daemon);
}

static bool any_open(sheaf__http *http)
{
    pthread_mutex_lock(&http->lock);
    const bool any = http->open > 0;
    pthread_mutex_unlock(&http->lock);
    return any;
}

void sheaf__http_close(sheaf__http *http)
{
    if (http == NULL)
        return;
    const double started = sheaf__seconds();
    while (http->daemon != NULL && sheaf__seconds() - started < LAST && any_open(http))
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    if (http->daemon != NULL)
        http->lib.stop(http->daemon);
    sheaf__callers_close(http->callers);
    if (http->refused >= 0)
        close(http->refused);
    /* the library's own threads are gone, but it is not unloaded: others may have loaded it */
    pthread_mutex_destroy(&http->lock);
    free(http->host);
    free(http->token);
    free(http);
}
