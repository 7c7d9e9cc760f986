/* serve.c - see serve.h. */
#include "serve/serve.h"

#include <time.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/control.h"
#include "base/numeric_env.h"
#include "base/text.h"
#include "comm/all.h"
#include "http/token.h"
#include "pages/pages.h"
#include "serve/reply.h"

enum { CONNECTIONS = 1024 };

typedef struct server {
    const sheaf__serve_options *o;
    sheaf__served served;
    sheaf__engine *engine;
    sheaf__http *http;
    long long began;
} server;

/* ---- paths ---- */

static void put_model(sheaf_json_writer *j, server *s, int i)
{
    const sheaf__served_model *v = &s->served.model[i];
    sheaf_model_facts facts = { .size = sizeof facts };
    sheaf_status_free(sheaf_model_info(&facts, v->model));
    sheaf__json_put(j,
                    "{ id:s object:s created:d owned_by:s family:s adapter:b chat:b pictures:d "
                    "positions:d }",
                    v->name, "model", (int64_t)s->began, "sheaf", facts.family, i > 0,
                    v->no_chat == NULL, (int64_t)facts.pictures, (int64_t)facts.positions);
}

static void reply_json(sheaf__exchange *x, sheaf_json_writer *j)
{
    sheaf__text_add(&j->text, "\n");
    sheaf__exchange_reply(x, 200, "application/json", &j->text);
}

static void show_models(server *s, sheaf__exchange *x)
{
    sheaf_json_writer j = { .compact = false };
    sheaf__json_put(&j, "{ object:s data:[", "list");
    for (int i = 0; i < s->served.models; i++)
        put_model(&j, s, i);
    sheaf__json_put(&j, "] }");
    reply_json(x, &j);
}

static void show_health(server *s, sheaf__exchange *x)
{
    int64_t waiting, running;
    sheaf_json_writer j = { .compact = false };
    sheaf__engine_counts(s->engine, &waiting, &running);
    sheaf__json_put(&j, "{ status:s running:d waiting:d }", "ok", running, waiting);
    reply_json(x, &j);
}

/* The model of that name; none named: the first. */
static sheaf_status *find_model(int *out, const server *s, const char *name)
{
    sheaf_text all = { 0 };
    const int n = s->served.models;
    for (*out = 0; name != NULL && *out < n; ++*out)
        if (strcmp(s->served.name[*out], name) == 0)
            break;
    if (*out < n)
        return NULL;
    for (int i = 0; i < n; i++)
        sheaf__text_add(&all, "%s%s", i == 0 ? "" : ", ", s->served.name[i]);
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "'model'"), "one of %s",
                                      all.failed ? "/v1/models" : all.at);
    sheaf__text_release(&all);
    return sheaf_found(st, "'%.60s'", name);
}

static void no_model(sheaf__exchange *x, sheaf_status *st)
{
    sheaf__http_error(x, 404, "invalid_request_error", "model_not_found", st);
    sheaf_status_free(st);
}

static void show_model(server *s, sheaf__exchange *x, const char *name)
{
    int i;
    sheaf_json_writer j = { .compact = false };
    sheaf_status *st = find_model(&i, s, name);
    if (st != NULL) {
        no_model(x, st);
        return;
    }
    put_model(&j, s, i);
    reply_json(x, &j);
}

static void answer(server *s, sheaf__exchange *x, const sheaf__http_request *http,
                   sheaf__request_kind kind)
{
    const bool chat = kind != SHEAF__ASKS_TEXT;
    sheaf__request r;
    int model = 0;
    sheaf_status *st = sheaf__request_read(&r, http->body, http->size, kind);
    r.most_pixels = s->o->most_pixels;
    if (st == NULL) {
        st = find_model(&model, s, r.model);
        if (st != NULL) {
            no_model(x, st);
            sheaf__request_release(&r);
            return;
        }
    }
    const sheaf__served_model *v = &s->served.model[model];
    if (st == NULL && chat && v->no_chat != NULL)
        st = sheaf_status_copy(v->no_chat);
    if (st == NULL && chat)
        st = sheaf__request_take_messages(&r, v->chat.placed ? &v->chat.chat_encoder.form : NULL,
                                          v->chat.chat != NULL &&
                                              sheaf__chat_reads_thoughts(v->chat.chat));
    if (st != NULL) {
        sheaf__request_release(&r);
        sheaf__reply_error(x, st);
        return;
    }
    const int64_t max_new = s->o->max_new > 0 ? s->o->max_new : v->max_new > 0 ? v->max_new : 512;
    sheaf__reply(x, s->engine, &s->served, model, &r, s->o->system, max_new);
}

static void handle(void *self, sheaf__exchange *x, const sheaf__http_request *r)
{
    SHEAF__NUMERIC_ENV;
    server *s = self;
    static const char model[] = "/v1/models/"; /* NAME, which may have slashes */
    static const char *const answers[] = { "/v1/completions", "/v1/chat/completions",
                                           "/v1/responses" }; /* by kind */
    int kind = 0;
    while (kind < 3 && strcmp(r->path, answers[kind]) != 0)
        kind++;
    const sheaf__embedded *file = sheaf__page_file("chat", r->path);
    const bool get = sheaf__http_reads(r), post = strcmp(r->method, "POST") == 0,
               models = strcmp(r->path, "/v1/models") == 0,
               one = strncmp(r->path, model, sizeof model - 1) == 0,
               health = strcmp(r->path, "/health") == 0;
    if (kind == 3 && !models && !one && !health && file == NULL)
        sheaf__exchange_refuse(
            x, 404, "path",
            "/v1/chat/completions, /v1/responses, /v1/completions, /v1/models, /health, or a file of "
            "the page",
            r->path);
    else if (kind < 3 ? !post : !get)
        sheaf__exchange_refuse(x, 405, "method", kind < 3 ? "POST" : "GET", r->method);
    else if (kind < 3)
        answer(s, x, r, (sheaf__request_kind)kind);
    else if (models)
        show_models(s, x);
    else if (one)
        show_model(s, x, r->path + sizeof model - 1);
    else if (health)
        show_health(s, x);
    else
        sheaf__exchange_copy(x, sheaf__page_type(file->name), file->text, file->size);
}

/* The page is needed to enter the token; a watchdog reads /health. */
static bool is_open(void *self, const char *path)
{
    (void)self;
    return strcmp(path, "/health") == 0 || sheaf__page_file("chat", path) != NULL;
}

static void write_log(void *self, const char *line)
{
    const sheaf__serve_options *o = ((const server *)self)->o;
    o->log(o->self, line);
}

/* ---- serving ---- */

static sheaf_status *listen(server *s, const char *token)
{
    const sheaf__serve_options *o = s->o;
    sheaf_status *st =
        sheaf__http_open(&s->http, &(sheaf__http_options){ .host = o->host,
                                                           .port = o->port,
                                                           .token = token,
                                                           .connections = CONNECTIONS,
                                                           .most_body = (size_t)o->most_body,
                                                           .rate = o->rate,
                                                           .handle = handle,
                                                           .open = is_open,
                                                           .log = o->log == NULL ? NULL : write_log,
                                                           .self = s });
    return TRY(st, o->ready(o->self, s->http, s->served.models, s->served.name));
}

/* Until a request to stop, or the loss of another process. */
static sheaf_status *wait_for_end(server *s)
{
    const atomic_int *stop = sheaf__control_stop(s->o->control);
    bool over = false;
    sheaf_status *st = NULL;
    while (atomic_load(stop) == 0 && !over) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        st = sheaf__engine_lost(&over, s->engine);
    }
    sheaf__http_refuse(s->http);
    sheaf__engine_drain(s->engine);
    return st;
}

/* Of several processes the first listens, and the others compute until its engine is closed. */
sheaf_status *sheaf__serve(const sheaf__serve_options *o)
{
    SHEAF__NUMERIC_ENV;
    sheaf_comm *all = o->model->processes;
    const bool first = sheaf__all_first(all);
    server s = { .o = o, .began = (long long)time(NULL) };
    char *token = NULL;
    sheaf_status *st =
        sheaf__all_agree(all, first ? sheaf__http_token(&token, o->host, o->token_file) : NULL);
    TRY(st, sheaf__served_open(&s.served, o->model, o->adapter, o->nadapters, o->batch));
    if (st == NULL) {
        sheaf__engine_options e = sheaf__served_engine(&s.served);
        e.places = o->batch;
        e.waiting = o->queue;
        e.seconds = (double)o->seconds;
        e.stop = first ? NULL : sheaf__control_stop(o->control);
        st = sheaf__engine_open(&s.engine, &e);
    }
    if (first) {
        TRY(st, listen(&s, token));
        TRY(st, wait_for_end(&s));
    }
    sheaf__http_close(s.http);
    sheaf__engine_close(s.engine);
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_PEER)
        st = sheaf__all_agree(all, st);
    sheaf__served_close(&s.served);
    free(token);
    return st;
}
