/* follow.c - see follow.h. */
#include "serve/follow.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/token.h"
#include "pages/pages.h"

enum {
    CONNECTIONS = 256,
    BODY = 1024, /* bytes of a request */
    FRESH_S = 1, /* numbers of the last second are new enough: a processor may be the runs' */
};

typedef struct server {
    pthread_mutex_t lock; /* for the rest */
    sheaf_report *report;
    double updated;
} server;

static void show_numbers(server *s, sheaf__exchange *x)
{
    sheaf_text text = { 0 };
    sheaf_status *st = NULL;
    pthread_mutex_lock(&s->lock);
    const bool old = sheaf__seconds() - s->updated >= FRESH_S;
    if (old && (st = sheaf_report_update(s->report)) == NULL)
        s->updated = sheaf__seconds();
    if (st == NULL)
        sheaf__text_add(&text, "%s\n", sheaf_report_json(s->report));
    pthread_mutex_unlock(&s->lock);
    if (st == NULL)
        sheaf__exchange_reply(x, 200, "application/json", &text);
    else
        sheaf__http_error(x, 500, "server_error", NULL, st);
    sheaf_status_free(st);
}

static void handle(void *self, sheaf__exchange *x, const sheaf__http_request *r)
{
    const bool numbers = strcmp(r->path, "/report.json") == 0;
    const sheaf__embedded *file = sheaf__page_file("report", r->path);
    if (!numbers && file == NULL)
        sheaf__exchange_refuse(x, 404, "path", "/, or /report.json", r->path);
    else if (!sheaf__http_reads(r))
        sheaf__exchange_refuse(x, 405, "method", "GET", r->method);
    else if (numbers)
        show_numbers(self, x);
    else
        sheaf__exchange_copy(x, sheaf__page_type(file->name), file->text, file->size);
}

/* The files of the page have no numbers, and are needed to enter the token. */
static bool is_open(void *self, const char *path)
{
    (void)self;
    return sheaf__page_file("report", path) != NULL;
}

sheaf_status *sheaf__follow(const sheaf__follow_options *o)
{
    server s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    sheaf__http *http = NULL;
    char *token = NULL;
    sheaf_status *st = sheaf__http_token(&token, o->host, o->token_file);
    TRY(st, sheaf_report_open(&s.report, o->report));
    s.updated = sheaf__seconds();
    TRY(st, sheaf__http_open(&http, &(sheaf__http_options){ .host = o->host,
                                                            .port = o->port,
                                                            .token = token,
                                                            .connections = CONNECTIONS,
                                                            .most_body = BODY,
                                                            .handle = handle,
                                                            .open = is_open,
                                                            .self = &s }));
    TRY(st, o->ready(o->self, http));
    while (st == NULL)
        pause();
    sheaf__http_close(http);
    sheaf_report_close(s.report);
    free(token);
    return st;
}
