/* http.h - HTTP/1.1 on one port: access, sizes and rates of requests, and replies that are written
 * whole or in pieces. Messages are libmicrohttpd's, which is loaded when a server starts. */
#pragma once

#include "base/base.h"

typedef struct sheaf__http sheaf__http;
/* One request and its reply. */
typedef struct sheaf__exchange sheaf__exchange;

typedef struct sheaf__http_request {
    const char *method, *path; /* up to '?' */
    const char *body;
    size_t size;
} sheaf__http_request;

typedef struct sheaf__http_options {
    const char *host;  /* address to listen at, or "localhost" */
    int port;          /* 0: any that is free */
    const char *token; /* that a request must show, except for `open` paths; NULL: none */
    int connections;   /* at a time; fewer where the process may open few files */
    int of_address;    /* of them, of one address; 0: half */
    size_t most_body;  /* bytes */
    /* Seconds that the headers of a request may take, all of it, and the reading of a whole reply;
     * 0: 30, 120 and 120. */
    double headers_s, request_s, reply_s;
    int64_t rate; /* requests that an address may send in a minute; 0: no limit */
    /* By one of several threads: replies now, or keeps the exchange and replies later. */
    void (*handle)(void *self, sheaf__exchange *exchange, const sheaf__http_request *request);
    bool (*open)(void *self, const char *path); /* needs no token */
    /* Once for each request that is over, by one of several threads: its line, without a line feed
     * (docs/serve.md, "The log"); NULL: there is no log. */
    void (*log)(void *self, const char *line);
    void *self;
} sheaf__http_options;

/* sheaf__http_open - errors: SHEAF_E_UNSUPPORTED where libmicrohttpd is not installed; SHEAF_E_IO
 * for an address or port that cannot be had; SHEAF_E_ARG for a host that is no address. */
sheaf_status *sheaf__http_open(sheaf__http **out, const sheaf__http_options *options);
int sheaf__http_port(const sheaf__http *http);
/* sheaf__http_address - "http://127.0.0.1:8080": the address that it was given, and its port. */
enum { SHEAF__HTTP_ADDRESS = 96 };
const char *sheaf__http_address(char text[SHEAF__HTTP_ADDRESS], const sheaf__http *http);
/* sheaf__http_is_loopback - does only this machine reach the address? */
bool sheaf__http_is_loopback(const char *host);
/* sheaf__http_refuse - accepts no further connections; open ones go on. */
void sheaf__http_refuse(sheaf__http *http);
/* sheaf__http_close - all exchanges have been ended; accepts NULL. */
void sheaf__http_close(sheaf__http *http);

/* sheaf__http_reads - is the method GET or HEAD, which change nothing? */
bool sheaf__http_reads(const sheaf__http_request *request);

/* The rest may be called by any thread, until the exchange is ended, which is once. */

/* sheaf__exchange_reply - writes all of `text`, which it takes, and ends the exchange; 500 where an
 * addition to it has failed. */
void sheaf__exchange_reply(sheaf__exchange *exchange, int status, const char *type,
                           sheaf_text *text);
/* sheaf__exchange_copy - 200, and a copy of `text`. */
void sheaf__exchange_copy(sheaf__exchange *exchange, const char *type, const char *text,
                          size_t size);
/* sheaf__exchange_refuse - replies with an error about a part of the request. */
void sheaf__exchange_refuse(sheaf__exchange *exchange, int status, const char *part,
                            const char *expected, const char *found);
/* sheaf__exchange_begin - 200, and a body of server-sent events follows. */
void sheaf__exchange_begin(sheaf__exchange *exchange);
void sheaf__exchange_write(sheaf__exchange *exchange, const char *bytes, size_t size);
void sheaf__exchange_end(sheaf__exchange *exchange);
/* sheaf__exchange_note - text for the line of the log, behind the status: words with a blank before
 * each (http/log.h). For the owner of the exchange, before it ends that. */
sheaf_text *sheaf__exchange_note(sheaf__exchange *exchange);
/* sheaf__exchange_gone - has the other side closed the connection? */
bool sheaf__exchange_gone(sheaf__exchange *exchange);

/* sheaf__http_error_json - an error in OpenAI's form, with where, expected, found and try beside
 * its message; sheaf__http_error - replies with it. */
void sheaf__http_error_json(sheaf_text *to, const char *type, const char *code,
                            const sheaf_status *st);
void sheaf__http_error(sheaf__exchange *exchange, int status, const char *type, const char *code,
                       const sheaf_status *st);
