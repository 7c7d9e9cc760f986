/* serve.c - see serve.h. */
#include "serve/serve.h"

#include <time.h>

#include "base/base.h"
#include "base/control.h"
#include "base/numeric_env.h"
#include "base/text.h"
#include "http/token.h"
#include "serve/files.h"
#include "serve/reply.h"

enum { CONNECTIONS = 1024 };

typedef struct server {
    const sheaf__serve_options *o;
    sheaf__engine *engine;
    sheaf__http *http;
    long long began;
} server;

/* ---- paths ---- */

static void add_model(sheaf_text *text, server *s, int i)
{
    const sheaf__codec *codec;
    sheaf_model_facts facts;
    SHEAF_INIT(&facts);
    sheaf_status_free(sheaf_model_info(&facts, sheaf__engine_model(s->engine, i)));
    sheaf_status *no_chat = sheaf__engine_chat(&codec, s->engine, i);
    sheaf__text_add(text, "{\"id\": ");
    sheaf__text_json(text, sheaf__engine_name(s->engine, i));
    sheaf__text_add(text,
                    ", \"object\": \"model\", \"created\": %lld, \"owned_by\": \"sheaf\", "
                    "\"family\": \"%s\", \"adapter\": %s, \"chat\": %s, \"pictures\": %lld, "
                    "\"positions\": %lld}",
                    s->began, facts.family, i > 0 ? "true" : "false",
                    no_chat == NULL ? "true" : "false", (long long)facts.pictures,
                    (long long)facts.positions);
    sheaf_status_free(no_chat);
}

static void show_models(server *s, sheaf__exchange *x)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"object\": \"list\", \"data\": [");
    for (int i = 0; i < sheaf__engine_models(s->engine); i++) {
        sheaf__text_add(&text, "%s", i == 0 ? "" : ", ");
        add_model(&text, s, i);
    }
    sheaf__text_add(&text, "]}\n");
    sheaf__exchange_reply(x, 200, "application/json", &text);
}

static void show_health(server *s, sheaf__exchange *x)
{
    int64_t waiting, running;
    sheaf_text text = { 0 };
    sheaf__engine_counts(s->engine, &waiting, &running);
    sheaf__text_add(&text, "{\"status\": \"ok\", \"running\": %lld, \"waiting\": %lld}\n",
                    (long long)running, (long long)waiting);
    sheaf__exchange_reply(x, 200, "application/json", &text);
}

/* The model of that name; none named: the first. */
static sheaf_status *find_model(int *out, const server *s, const char *name)
{
    sheaf_text all = { 0 };
    const int n = sheaf__engine_models(s->engine);
    for (*out = 0; name != NULL && *out < n; ++*out)
        if (strcmp(sheaf__engine_name(s->engine, *out), name) == 0)
            break;
    if (*out < n)
        return NULL;
    for (int i = 0; i < n; i++)
        sheaf__text_add(&all, "%s%s", i == 0 ? "" : ", ", sheaf__engine_name(s->engine, i));
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
    sheaf_text text = { 0 };
    sheaf_status *st = find_model(&i, s, name);
    if (st != NULL) {
        no_model(x, st);
        return;
    }
    add_model(&text, s, i);
    sheaf__text_add(&text, "\n");
    sheaf__exchange_reply(x, 200, "application/json", &text);
}

static void answer(server *s, sheaf__exchange *x, const sheaf__http_request *http, bool chat)
{
    sheaf__request r;
    int model = 0;
    sheaf_status *st = sheaf__request_read(&r, http->body, http->size, chat);
    r.most_pixels = s->o->most_pixels;
    if (st == NULL) {
        st = find_model(&model, s, r.model);
        if (st != NULL) {
            no_model(x, st);
            sheaf__request_release(&r);
            return;
        }
    }
    sheaf_model *m = sheaf__engine_model(s->engine, model);
    const sheaf__codec *codec = &m->codec;
    if (st == NULL && chat)
        st = sheaf__engine_chat(&codec, s->engine, model);
    if (st == NULL && chat)
        st = sheaf__request_take_messages(&r, codec->placed);
    if (st != NULL) {
        sheaf__request_release(&r);
        sheaf__reply_error(x, st);
        return;
    }
    const int64_t max_new = s->o->max_new > 0           ? s->o->max_new
                            : m->generation.max_new > 0 ? m->generation.max_new
                                                        : 512;
    sheaf__reply(x, s->engine, model, codec, &r, s->o->system, max_new);
}

static void handle(void *self, sheaf__exchange *x, const sheaf__http_request *r)
{
    SHEAF__NUMERIC_ENV;
    server *s = self;
    static const char model[] = "/v1/models/"; /* NAME, which may have slashes */
    const char *text, *type;
    size_t size;
    const bool get = sheaf__http_reads(r), post = strcmp(r->method, "POST") == 0,
               chat = strcmp(r->path, "/v1/chat/completions") == 0,
               asks = chat || strcmp(r->path, "/v1/completions") == 0,
               models = strcmp(r->path, "/v1/models") == 0,
               one = strncmp(r->path, model, sizeof model - 1) == 0,
               health = strcmp(r->path, "/health") == 0,
               file = sheaf__served_file(&text, &size, &type, "chat", r->path);
    if (!asks && !models && !one && !health && !file)
        sheaf__exchange_refuse(
            x, 404, "path",
            "/v1/chat/completions, /v1/completions, /v1/models, /health, or a file of the page",
            r->path);
    else if (asks ? !post : !get)
        sheaf__exchange_refuse(x, 405, "method", asks ? "POST" : "GET", r->method);
    else if (asks)
        answer(s, x, r, chat);
    else if (models)
        show_models(s, x);
    else if (one)
        show_model(s, x, r->path + sizeof model - 1);
    else if (health)
        show_health(s, x);
    else
        sheaf__exchange_copy(x, type, text, size);
}

/* The page asks for the token; a watchdog asks how the server is. */
static bool is_open(void *self, const char *path)
{
    const char *text, *type;
    size_t size;
    (void)self;
    return strcmp(path, "/health") == 0 || sheaf__served_file(&text, &size, &type, "chat", path);
}

/* ---- serving ---- */

static const char *name_of(void *engine, int model)
{
    return sheaf__engine_name(engine, model);
}

static void wait_for(const atomic_int *stop)
{
    while (atomic_load(stop) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

sheaf_status *sheaf__serve(const sheaf__serve_options *o)
{
    SHEAF__NUMERIC_ENV;
    server s = { .o = o, .began = (long long)time(NULL) };
    char *token = NULL;
    sheaf_status *st = sheaf__http_token(&token, o->host, o->token_file);
    TRY(st,
        sheaf__engine_open(&s.engine, &(sheaf__engine_options){ .model = o->model,
                                                                .adapter = o->adapter,
                                                                .nadapters = o->nadapters,
                                                                .places = o->batch,
                                                                .waiting = o->queue,
                                                                .seconds = (double)o->seconds }));
    TRY(st, sheaf__http_open(&s.http, &(sheaf__http_options){ .host = o->host,
                                                              .port = o->port,
                                                              .token = token,
                                                              .connections = CONNECTIONS,
                                                              .most_body = (size_t)o->most_body,
                                                              .rate = o->rate,
                                                              .handle = handle,
                                                              .open = is_open,
                                                              .self = &s }));
    TRY(st, o->ready(o->self, s.http, sheaf__engine_models(s.engine), name_of, s.engine));
    if (st == NULL) {
        wait_for(sheaf__control_stop(o->control));
        sheaf__http_refuse(s.http);
        sheaf__engine_drain(s.engine);
    }
    sheaf__http_close(s.http);
    sheaf__engine_close(s.engine);
    free(token);
    return st;
}
