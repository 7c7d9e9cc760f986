/* serve.h - a model, and adapters of it, behind OpenAI's HTTP API on one port (docs/serve.md). */
#pragma once

#include "base/base.h"
#include "http/http.h"
#include "sheaf/control.h"
#include "sheaf/generate.h"

typedef struct sheaf__serve_options {
    const sheaf_model_open_options *model; /* `adapter` is not read */
    const char *const *adapter;            /* [nadapters] */
    int nadapters;
    const char *system;   /* message of conversations that have none; NULL */
    int64_t max_new;      /* tokens of an answer where a request has no limit; 0: those of the
                             model's generation_config.json, else 512 */
    int64_t batch, queue; /* answers side by side; requests that wait */
    int64_t seconds;      /* that an answer may take, waiting included; 0: no limit */
    int64_t most_body;    /* bytes of a request */
    int64_t most_pixels;  /* of the pictures of a request */
    int64_t rate;         /* requests of an address in a minute; 0: no limit */
    const char *host;     /* address, or "localhost" */
    int port;             /* 0: any */
    const char
        *token_file; /* its first line is the token; NULL: none, of loopback addresses alone */
    /* Called once it listens; a failure ends it. */
    sheaf_status *(*ready)(void *self, const sheaf__http *http, int models,
                           const char *const *name);
    /* As that of http/http.h; NULL: there is no log. */
    void (*log)(void *self, const char *line);
    void *self;
    const sheaf_control *control; /* ends it, once the started answers are complete */
} sheaf__serve_options;

/* sheaf__serve - returns after a request to stop by the control. Errors: those of loading; of the
 * address, port and token. */
sheaf_status *sheaf__serve(const sheaf__serve_options *options);
