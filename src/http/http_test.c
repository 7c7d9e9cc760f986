/* http_test.c - requests as bytes on sockets of 127.0.0.1: what is refused, and who is cut off. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

#include "base/clock.h"
#include "http/http.h"

enum { LARGE = 16 << 20 };

#define HOST "Host: localhost\r\n"
#define JSON "Content-Type: application/json\r\n"
#define GET "GET /now HTTP/1.1\r\n"
#define POST "POST /now HTTP/1.1\r\n" HOST

/* ---- a server ---- */

typedef struct server {
    sheaf__http *http;
    pthread_mutex_t lock;
    sheaf__exchange *kept; /* of /later */
    sheaf_text log;
} server;

static void answer(sheaf__exchange *x, size_t size)
{
    sheaf_text text = { 0 };
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    sheaf__text_bytes(&text, bytes, size);
    free(bytes);
    sheaf__exchange_reply(x, 200, "text/plain", &text);
}

static void handle(void *self, sheaf__exchange *x, const sheaf__http_request *r)
{
    server *s = self;
    if (strcmp(r->path, "/later") != 0) {
        answer(x, strcmp(r->path, "/large") == 0 ? LARGE : 5);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->kept = x;
    pthread_mutex_unlock(&s->lock);
}

static void write_log(void *self, const char *line)
{
    server *s = self;
    pthread_mutex_lock(&s->lock);
    sheaf__text_add(&s->log, "%s\n", strchr(line, ' '));
    pthread_mutex_unlock(&s->lock);
}

static void begin(server *s, const sheaf__http_options *o)
{
    sheaf__http_options all = *o;
    *s = (server){ .lock = PTHREAD_MUTEX_INITIALIZER };
    all.host = "127.0.0.1";
    all.most_body = 1000;
    all.connections = o->connections > 0 ? o->connections : 64;
    all.handle = handle;
    all.self = s;
    CHECK_OK(sheaf__http_open(&s->http, &all));
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) },
              NULL);
}

/* The exchange of /later, once it is there. */
static sheaf__exchange *kept(server *s)
{
    sheaf__exchange *x = NULL;
    for (int i = 0; i < 500 && x == NULL; i++) {
        nap(0.01);
        pthread_mutex_lock(&s->lock);
        x = s->kept;
        s->kept = NULL;
        pthread_mutex_unlock(&s->lock);
    }
    assert_non_null(x);
    return x;
}

/* ---- its clients ---- */

/* Connects from 127.0.0.`host`. */
static int call(const server *s, int host)
{
    const struct sockaddr_in from = { .sin_family = AF_INET,
                                      .sin_addr.s_addr =
                                          htonl(INADDR_LOOPBACK - 1 + (unsigned)host) },
                             to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)sheaf__http_port(s->http)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static bool give(int fd, const char *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Has it been closed, within so many seconds? */
static bool closed(int fd, double seconds)
{
    const double end = sheaf__seconds() + seconds;
    char bytes[4096];
    while (sheaf__seconds() < end) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 20) > 0 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return true;
    }
    return false;
}

/* The status of the reply, behind interim ones; 0: it was closed without; -1: none in 5 s. */
static int status_of(int fd)
{
    char text[8192] = "";
    size_t n = 0;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 5000) <= 0)
            return -1;
        const ssize_t more = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (more <= 0)
            return 0;
        text[n += (size_t)more] = '\0';
        const char *at = text, *head;
        while (strncmp(at, "HTTP/1.1 100 ", 13) == 0 && (head = strstr(at, "\r\n\r\n")) != NULL)
            at = head + 4;
        if (strncmp(at, "HTTP/1.1 ", 9) == 0 && strstr(at, "\r\n\r\n") != NULL &&
            strncmp(at + 9, "100", 3) != 0)
            return atoi(at + 9);
    }
}

static int status(const server *s, const char *bytes, size_t size)
{
    const int fd = call(s, 1);
    assert_true(give(fd, bytes, size));
    const int got = status_of(fd);
    close(fd);
    return got;
}

/* ---- what is refused ---- */

#define ROW(name, text, want)                                                                      \
    {                                                                                              \
        name, text, sizeof(text) - 1, want                                                         \
    }
static const struct {
    const char *name, *text;
    size_t size;
    int want;
} requests[] = {
    ROW("a plain one", GET HOST "\r\n", 200),
    ROW("with a body", POST JSON "Content-Length: 2\r\n\r\n{}", 200),
    ROW("in chunks", POST JSON "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200),
    ROW("one length twice", POST JSON "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 200),
    ROW("two lengths", POST JSON "Content-Length: 2\r\nContent-Length: 1\r\n\r\n{}", 400),
    ROW("a list of lengths", POST JSON "Content-Length: 2, 2\r\n\r\n{}", 400),
    ROW("a sign", POST JSON "Content-Length: +2\r\n\r\n{}", 400),
    ROW("length and chunks",
        POST JSON "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        400),
    ROW("another encoding", POST JSON "Transfer-Encoding: gzip\r\n\r\n{}", 400),
    ROW("two encodings",
        POST JSON "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        400),
    ROW("chunks in HTTP/1.0",
        "POST /now HTTP/1.0\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ROW("two hosts", GET HOST "Host: evil\r\n\r\n", 400),
    ROW("one host twice", GET HOST HOST "\r\n", 400),
    ROW("no host", GET "\r\n", 400),
    ROW("no host in HTTP/1.0", "GET /now HTTP/1.0\r\n\r\n", 403),
    ROW("another host", GET "Host: evil\r\n\r\n", 403),
    ROW("a host that begins alike", GET "Host: localhost.evil\r\n\r\n", 403),
    ROW("another port", GET "Host: localhost:1\r\n\r\n", 403),
    ROW("in capitals", GET "Host: LOCALHOST\r\n\r\n", 200),
    ROW("an address", GET "Host: 127.0.0.1\r\n\r\n", 200),
    ROW("a page of its own", GET HOST "Origin: http://localhost\r\n\r\n", 200),
    ROW("a page of another origin", GET HOST "Origin: http://evil\r\n\r\n", 403),
    ROW("a page without origin", GET HOST "Origin: null\r\n\r\n", 403),
    ROW("a blank before the colon", GET "Host : localhost\r\n\r\n", 400),
    ROW("a tab", GET HOST "X-A\t: b\r\n\r\n", 400),
    ROW("a blank in a name", GET HOST "X A: b\r\n\r\n", 400),
    ROW("hidden chunks", POST JSON "Content-Length: 2\r\nTransfer-Encoding : chunked\r\n\r\n{}",
        400),
    ROW("a NUL in the path", "GET /now%00evil HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("another letter's number", "GET /n%6fw HTTP/1.1\r\n" HOST "\r\n", 200),
    ROW("parameters", POST "Content-Type: application/json ; charset=utf-8\r\n\r\n", 200),
    ROW("capitals", POST "Content-Type: Application/JSON\r\n\r\n", 200),
    ROW("a type that begins alike", POST "Content-Type: application/jsonevil\r\n\r\n", 415),
    ROW("two types", POST "Content-Type: application/json, text/plain\r\n\r\n", 415),
    ROW("no type", POST "\r\n", 415),
    ROW("a large body", POST JSON "Content-Length: 1001\r\n\r\n", 413),
};

TEST(test_http__refuses_what_has_two_meanings)
{
    server s;
    begin(&s, &(sheaf__http_options){ .rate = 0 });
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        const int got = status(&s, requests[i].text, requests[i].size);
        if (got != requests[i].want)
            fail_msg("%s: %d, wanted %d", requests[i].name, got, requests[i].want);
    }
    sheaf__http_close(s.http);
}

TEST(test_http__knows_its_port)
{
    server s;
    char text[96], address[SHEAF__HTTP_ADDRESS];
    begin(&s, &(sheaf__http_options){ .rate = 0 });
    const int n =
        snprintf(text, sizeof text, GET "Host: localhost:%d\r\n\r\n", sheaf__http_port(s.http));
    assert_int_equal(status(&s, text, (size_t)n), 200);
    snprintf(text, sizeof text, "http://127.0.0.1:%d", sheaf__http_port(s.http));
    assert_string_equal(sheaf__http_address(address, s.http), text);
    sheaf__http *other;
    CHECK_FAILS(sheaf__http_open(&other, &(sheaf__http_options){ .host = "127.0.0.1",
                                                                 .port = sheaf__http_port(s.http),
                                                                 .connections = 1 }),
                SHEAF_E_IO, "in use");
    CHECK_FAILS(sheaf__http_open(
                    &other, &(sheaf__http_options){ .host = "nowhere.example", .connections = 1 }),
                SHEAF_E_ARG, "localhost, or an address");
    sheaf__http_close(s.http);
}

static bool is_open(void *self, const char *path)
{
    return strcmp(path, "/open") == 0;
}

TEST(test_http__a_token_opens)
{
#define WITH(authorization) GET HOST "Authorization: " authorization "\r\n\r\n"
    static const struct {
        const char *name, *text;
        int want;
    } rows[] = {
        { "none", GET HOST "\r\n", 401 },
        { "the token", WITH("Bearer 0123456789abcdef"), 200 },
        { "small letters", WITH("bearer 0123456789abcdef"), 200 },
        { "another", WITH("Bearer 0123456789abcdeX"), 401 },
        { "its beginning", WITH("Bearer 0123456789abcde"), 401 },
        { "one letter more", WITH("Bearer 0123456789abcdef0"), 401 },
        { "twice", WITH("Bearer 0123456789abcdef0123456789abcdef"), 401 },
        { "empty", WITH("Bearer "), 401 },
        { "of another kind", WITH("Basic 0123456789abcdef"), 401 },
        { "what needs none", "GET /open HTTP/1.1\r\n" HOST "\r\n", 200 },
    };
    server s;
    begin(&s, &(sheaf__http_options){ .token = "0123456789abcdef", .open = is_open });
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (status(&s, rows[i].text, strlen(rows[i].text)) != rows[i].want)
            fail_msg("%s: not %d", rows[i].name, rows[i].want);
    sheaf__http_close(s.http);
}

TEST(test_http__some_addresses_are_this_machines_alone)
{
    static const char *const own[] = { "localhost", "127.0.0.1", "127.9.9.9", "::1" },
                             *const others[] = { "0.0.0.0",   "::",      "10.0.0.1",
                                                 "128.0.0.1", "fe80::1", "nowhere.example",
                                                 "" };
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (!sheaf__http_is_loopback(own[i]))
            fail_msg("%s", own[i]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (sheaf__http_is_loopback(others[i]))
            fail_msg("%s", others[i]);
}

TEST(test_http__an_address_has_a_rate)
{
    server s;
    begin(&s, &(sheaf__http_options){ .rate = 2 }); /* each minute */
    for (int i = 0; i < 4; i++)
        assert_int_equal(status(&s, GET HOST "\r\n", sizeof GET HOST + 1), i < 2 ? 200 : 429);
    sheaf__http_close(s.http);
}

/* ---- deadlines ---- */

/* The text a byte at a time, each 0.05 s: closed before all is there? */
static bool drips(const server *s, const char *text)
{
    const int fd = call(s, 1);
    bool over = false;
    for (; *text != '\0' && !over; text++)
        over = !give(fd, text, 1) || closed(fd, 0.05);
    close(fd);
    return over;
}

TEST(test_http__a_request_has_a_deadline)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        { "headers", GET HOST "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" },
        { "a body", "{                                                            }" },
        { "trailers", "2\r\n{}\r\n0\r\nX-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" },
    };
    server s;
    begin(&s, &(sheaf__http_options){ .headers_s = 0.4, .request_s = 0.8 });
    assert_true(drips(&s, rows[0].text));
    for (size_t i = 1; i < ARRAY_LEN(rows); i++) {
        const char *head = i == 1 ? POST JSON "Content-Length: 100\r\n\r\n"
                                  : POST JSON "Transfer-Encoding: chunked\r\n\r\n";
        const int fd = call(&s, 1);
        const double begun = sheaf__seconds();
        bool over = false;
        assert_true(give(fd, head, strlen(head)));
        for (const char *c = rows[i].text; *c != '\0' && !over; c++)
            over = !give(fd, c, 1) || closed(fd, 0.05);
        if (!over || sheaf__seconds() - begun < 0.6)
            fail_msg("%s: %s", rows[i].name, over ? "cut too early" : "not cut");
        close(fd);
    }
    sheaf__http_close(s.http);
}

/* While an answer is computed there is none; the connection is then used again. */
TEST(test_http__an_answer_has_no_deadline)
{
    static const char later[] = "GET /later HTTP/1.1\r\n" HOST "\r\n", now[] = GET HOST "\r\n";
    server s;
    begin(&s, &(sheaf__http_options){ .headers_s = 0.3, .request_s = 0.3, .reply_s = 0.3 });
    const int fd = call(&s, 1);
    assert_true(give(fd, later, sizeof later - 1));
    sheaf__exchange *x = kept(&s);
    assert_false(closed(fd, 0.8));
    assert_false(sheaf__exchange_gone(x));
    answer(x, 5);
    assert_int_equal(status_of(fd), 200);
    nap(0.1);
    assert_true(give(fd, now, sizeof now - 1));
    assert_int_equal(status_of(fd), 200);
    assert_true(closed(fd, 2));
    close(fd);
    sheaf__http_close(s.http);
}

TEST(test_http__a_reply_must_be_read)
{
    static const char large[] = "GET /large HTTP/1.1\r\n" HOST "\r\n";
    static char bytes[1 << 16];
    server s;
    size_t all = 0;
    begin(&s, &(sheaf__http_options){ .reply_s = 0.4 });
    const int fd = call(&s, 1);
    assert_true(give(fd, large, sizeof large - 1));
    nap(1.5);
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0;)
        all += (size_t)n;
    assert_in_range(all, 1, LARGE - 1);
    close(fd);
    sheaf__http_close(s.http);
}

/* ---- how many ---- */

TEST(test_http__idle_connections_make_room)
{
    enum { IDLE = 40, MOST = 12 };
    static const char part[] = "GET /n", rest[] = "ow HTTP/1.1\r\n" HOST "\r\n";
    static const struct {
        const char *name;
        int of_address, from, left_at_least;
    } rows[] = {
        { "of all", MOST, 2, MOST - 2 },
        { "of an address", 4, 2, 3 },
        { "of one's own", 4, 1, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        server s;
        int fd[IDLE], left = 0;
        begin(&s, &(sheaf__http_options){ .connections = MOST, .of_address = rows[i].of_address });
        const int early = call(&s, 1);
        for (int k = 0; k < IDLE; k++) {
            fd[k] = call(&s, rows[i].from);
            (void)give(fd[k], part, sizeof part - 1);
        }
        nap(0.3); /* they are cut by then */
        for (int k = 0; k < IDLE; k++)
            left += !closed(fd[k], 0.001);
        if (status(&s, requests[0].text, requests[0].size) != 200)
            fail_msg("%s: a new one is not answered", rows[i].name);
        if (left < rows[i].left_at_least || left > rows[i].of_address)
            fail_msg("%s: %d stay", rows[i].name, left);
        if (i == 1) { /* others' flood does not touch it */
            assert_true(give(early, part, sizeof part - 1) && give(early, rest, sizeof rest - 1));
            assert_int_equal(status_of(early), 200);
        }
        for (int k = 0; k < IDLE; k++)
            close(fd[k]);
        close(early);
        sheaf__http_close(s.http);
    }
}

/* ---- the log ---- */

/* The server writes a line when a request is over, which is after its client has the reply. */
static void wait_for_lines(server *s, int64_t count)
{
    int64_t lines = 0;
    for (int k = 0; k < 1000 && lines < count; k++) {
        nap(0.01);
        pthread_mutex_lock(&s->lock);
        lines = 0;
        for (size_t i = 0; i < s->log.size; i++)
            lines += s->log.at[i] == '\n';
        pthread_mutex_unlock(&s->lock);
    }
    assert_int_equal(lines, count);
}

TEST(test_http__each_request_is_logged_once_it_is_over)
{
    static const char later[] = "GET /later?all HTTP/1.1\r\n" HOST "\r\n",
                      part[] = POST JSON "Content-Length: 9\r\n\r\n{";
    server s;
    begin(&s, &(sheaf__http_options){ .log = write_log });
    assert_int_equal(status(&s, GET HOST "\r\n", sizeof GET HOST + 1), 200);
    wait_for_lines(&s, 1);
    assert_int_equal(status(&s, GET "Host: evil\r\n\r\n", sizeof GET + 13), 403);
    wait_for_lines(&s, 2);
    for (int i = 0; i < 2; i++) { /* one waits for its reply, one leaves */
        const int fd = call(&s, 1);
        assert_true(give(fd, later, sizeof later - 1));
        sheaf__exchange *x = kept(&s);
        sheaf__text_add(sheaf__exchange_note(x), " note=%d", i);
        if (i == 1)
            close(fd);
        for (int k = 0; k < 1000 && i == 1 && !sheaf__exchange_gone(x); k++)
            nap(0.01);
        answer(x, 5);
        if (i == 0)
            assert_int_equal(status_of(fd), 200);
        if (i == 0)
            close(fd);
        wait_for_lines(&s, 3 + i);
    }
    const int fd = call(&s, 1);
    assert_true(give(fd, part, sizeof part - 1));
    nap(0.1);
    close(fd);
    wait_for_lines(&s, 5);
    sheaf__http_close(s.http);
    assert_string_equal(s.log.at, " 127.0.0.1 GET /now 200\n 127.0.0.1 GET /now 403\n"
                                  " 127.0.0.1 GET /later 200 note=0\n"
                                  " 127.0.0.1 GET /later closed note=1\n"
                                  " 127.0.0.1 POST /now closed\n");
    sheaf__text_release(&s.log);
}

/* ---- half closed, and gone ---- */

static bool gone_within(sheaf__exchange *x, double seconds)
{
    const double end = sheaf__seconds() + seconds;
    bool gone = false;
    while (!gone && sheaf__seconds() < end) {
        nap(0.05);
        gone = sheaf__exchange_gone(x);
    }
    return gone;
}

TEST(test_http__who_sends_no_more_is_answered)
{
    static const char later[] = "GET /later HTTP/1.1\r\n" HOST "\r\n",
                      old[] = "GET /later HTTP/1.0\r\n" HOST "\r\n";
    const struct {
        const char *name, *text;
        bool closes, gone;
    } rows[] = {
        { "half closed", later, false, false },
        { "half closed, HTTP/1.0", old, false, false },
        { "closed", later, true, true },
    };
    server s;
    begin(&s, &(sheaf__http_options){ .rate = 0 });
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const int fd = call(&s, 1);
        assert_true(give(fd, rows[i].text, strlen(rows[i].text)));
        sheaf__exchange *x = kept(&s);
        if (rows[i].closes)
            close(fd);
        else
            shutdown(fd, SHUT_WR);
        if (gone_within(x, 2) != rows[i].gone)
            fail_msg("%s: %s", rows[i].name, rows[i].gone ? "not gone" : "gone");
        answer(x, 5);
        if (!rows[i].closes) {
            assert_int_equal(status_of(fd), 200);
            close(fd);
        }
    }
    sheaf__http_close(s.http);
}
