/* prometheus.c - see prometheus.h. */
#include "monitor/prometheus.h"

#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "base/json_write.h"
#include "http/http.h"
#include "ops/device.h"

enum {
    CONNECTIONS = 256, /* the run needs files, too, of the 1024 that a process may have open */
    BODY = 1024,       /* bytes of a request */
    PARTS = 5,         /* of the time of a step */
};

/* Costs of one rank since the start. */
typedef struct rank_numbers {
    double seconds[PARTS];
    uint64_t sent, received; /* bytes */
    uint64_t kind[SHEAF_MEM_KINDS];
} rank_numbers;

typedef struct numbers {
    int64_t done; /* steps since the start */
    sheaf_event_step last;
    int64_t tokens, skipped; /* since the start */
    int64_t evaluations;
    sheaf_event_evaluation evaluation;
    int ranks;
    bool by_kind;
    rank_numbers rank[SHEAF_EVENT_RANKS];
} numbers;

struct sheaf__prometheus {
    pthread_mutex_t lock; /* for `now` */
    numbers now;
    sheaf__http *http;
};

/* ---- events ---- */

static void take_ranks(numbers *n, const sheaf_event *event)
{
    n->ranks = event->ranks < SHEAF_EVENT_RANKS ? event->ranks : SHEAF_EVENT_RANKS;
    n->by_kind = event->spent != NULL;
    for (int r = 0; r < n->ranks; r++) {
        const sheaf_event_rank *from = &event->rank[r];
        const double seconds[PARTS] = { from->compute, from->wait, from->exchange, from->read,
                                        from->save };
        rank_numbers *to = &n->rank[r];
        for (int p = 0; p < PARTS; p++)
            to->seconds[p] += seconds[p];
        to->sent += from->sent;
        to->received += from->received;
        for (int k = 0; k < SHEAF_MEM_KINDS && n->by_kind; k++)
            to->kind[k] = event->spent[r].kind[k];
    }
}

void sheaf__prometheus_take(sheaf__prometheus *prometheus, const sheaf_event *event)
{
    if (prometheus == NULL)
        return;
    pthread_mutex_lock(&prometheus->lock);
    numbers *n = &prometheus->now;
    if (event->kind == SHEAF_EVENT_STEP) {
        n->done++;
        n->last = event->step;
        n->tokens += event->step.tokens;
        n->skipped += event->step.skipped;
        if (event->rank != NULL)
            take_ranks(n, event);
    } else if (event->kind == SHEAF_EVENT_EVALUATION) {
        n->evaluations++;
        n->evaluation = event->evaluation;
    }
    pthread_mutex_unlock(&prometheus->lock);
}

/* ---- text ---- */

static void put_head(sheaf_text *to, const char *name, const char *type, const char *help)
{
    sheaf__text_add(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* `labels`: "" or those in braces. */
static void put_sample(sheaf_text *to, const char *name, const char *labels, double value)
{
    char number[SHEAF__JSON_NUMBER];
    sheaf__text_add(to, "%s%s %s\n", name, labels,
                    isfinite(value) ? sheaf__number_json(number, value)
                    : isnan(value)  ? "NaN"
                    : value > 0     ? "+Inf"
                                    : "-Inf");
}

static void put_gauge(sheaf_text *to, const char *name, const char *help, double value)
{
    put_head(to, name, "gauge", help);
    put_sample(to, name, "", value);
}

static void put_counter(sheaf_text *to, const char *name, const char *help, double value)
{
    put_head(to, name, "counter", help);
    put_sample(to, name, "", value);
}

/* An objective's own numbers: one metric, each a label. */
static void put_values(sheaf_text *to, const char *name, const char *help,
                       const sheaf_event_value *value, int values)
{
    char label[64];
    if (values > 0)
        put_head(to, name, "gauge", help);
    for (int i = 0; i < values; i++) {
        snprintf(label, sizeof label, "{name=\"%s\"}", value[i].name);
        put_sample(to, name, label, value[i].value);
    }
}

static void put_step(sheaf_text *to, const numbers *n)
{
    const sheaf_event_step *s = &n->last;
    put_gauge(to, "sheaf_step", "Optimizer steps done.", (double)s->step);
    put_gauge(to, "sheaf_steps", "Optimizer steps of the whole run.", (double)s->steps);
    put_gauge(to, "sheaf_loss", "Loss of the last step, mean over its label tokens.", s->loss);
    put_gauge(to, "sheaf_learning_rate", "Learning rate of the last step.", s->lr);
    put_gauge(to, "sheaf_gradient_norm", "Norm of the last gradient, before clipping.",
              s->grad_norm);
    put_gauge(to, "sheaf_step_seconds", "Duration of the last step.", s->seconds);
    if (s->seconds > 0)
        put_gauge(to, "sheaf_tokens_per_second", "Speed of the last step.",
                  (double)s->tokens / s->seconds);
    put_counter(to, "sheaf_tokens_total", "Tokens read since the start.", (double)n->tokens);
    put_counter(to, "sheaf_skipped_steps_total",
                "Steps since the start whose gradients were not finite.", (double)n->skipped);
    put_values(to, "sheaf_objective", "Numbers of the objective, means of the last step.", s->value,
               s->values);
}

static void put_evaluation(sheaf_text *to, const numbers *n)
{
    const sheaf_event_evaluation *e = &n->evaluation;
    put_gauge(to, "sheaf_evaluation_step", "Steps done at the last evaluation.", (double)e->step);
    put_gauge(to, "sheaf_evaluation_loss", "Loss of the last evaluation.", e->loss);
    put_gauge(to, "sheaf_evaluation_accuracy", "Share of label tokens that it predicted.",
              e->accuracy);
    put_values(to, "sheaf_evaluation_objective", "Numbers of the objective at the last evaluation.",
               e->value, e->values);
}

static void put_ranks(sheaf_text *to, const numbers *n)
{
    static const char *const parts[PARTS] = { "compute", "wait", "exchange", "read", "save" };
    static const char seconds[] = "sheaf_rank_seconds_total", sent[] = "sheaf_sent_bytes_total",
                      received[] = "sheaf_received_bytes_total", memory[] = "sheaf_memory_bytes";
    char label[96];
    put_head(to, seconds, "counter", "Time of a rank since the start, by part.");
    for (int r = 0; r < n->ranks; r++)
        for (int p = 0; p < PARTS; p++) {
            snprintf(label, sizeof label, "{rank=\"%d\",part=\"%s\"}", r, parts[p]);
            put_sample(to, seconds, label, n->rank[r].seconds[p]);
        }
    put_head(to, sent, "counter", "Bytes that a rank sent to others since the start.");
    for (int r = 0; r < n->ranks; r++) {
        snprintf(label, sizeof label, "{rank=\"%d\"}", r);
        put_sample(to, sent, label, (double)n->rank[r].sent);
    }
    put_head(to, received, "counter", "Bytes that a rank received since the start.");
    for (int r = 0; r < n->ranks; r++) {
        snprintf(label, sizeof label, "{rank=\"%d\"}", r);
        put_sample(to, received, label, (double)n->rank[r].received);
    }
    if (!n->by_kind)
        return;
    put_head(to, memory, "gauge", "Memory of a rank by kind, as it was at its most.");
    for (int r = 0; r < n->ranks; r++)
        for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
            snprintf(label, sizeof label, "{rank=\"%d\",kind=\"%s\"}", r,
                     sheaf__memory_key((sheaf_memory)k));
            put_sample(to, memory, label, (double)n->rank[r].kind[k]);
        }
}

static void show_metrics(sheaf__prometheus *prometheus, sheaf__exchange *x)
{
    sheaf_text text = { 0 };
    pthread_mutex_lock(&prometheus->lock);
    const numbers n = prometheus->now;
    pthread_mutex_unlock(&prometheus->lock);
    put_head(&text, "sheaf_build_info", "gauge", "The version of sheaf.");
    put_sample(&text, "sheaf_build_info", "{version=\"" SHEAF_VERSION "\"}", 1);
    if (n.done > 0)
        put_step(&text, &n);
    if (n.evaluations > 0)
        put_evaluation(&text, &n);
    if (n.ranks > 0)
        put_ranks(&text, &n);
    sheaf__exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

static void handle(void *self, sheaf__exchange *x, const sheaf__http_request *r)
{
    if (strcmp(r->path, "/metrics") != 0)
        sheaf__exchange_refuse(x, 404, "path", "/metrics", r->path);
    else if (!sheaf__http_reads(r))
        sheaf__exchange_refuse(x, 405, "method", "GET", r->method);
    else
        show_metrics(self, x);
}

/* ---- open and close ---- */

sheaf_status *sheaf__prometheus_open(sheaf__prometheus **out, int port)
{
    sheaf__prometheus *prometheus = calloc(1, sizeof *prometheus);
    *out = NULL;
    if (prometheus == NULL)
        return sheaf__no_memory("numbers for Prometheus");
    pthread_mutex_init(&prometheus->lock, NULL);
    sheaf_status *st =
        sheaf__http_open(&prometheus->http, &(sheaf__http_options){ .host = "127.0.0.1",
                                                                    .port = port,
                                                                    .connections = CONNECTIONS,
                                                                    .most_body = BODY,
                                                                    .handle = handle,
                                                                    .self = prometheus });
    if (st == NULL)
        *out = prometheus;
    else
        sheaf__prometheus_close(prometheus);
    return st;
}

void sheaf__prometheus_close(sheaf__prometheus *prometheus)
{
    if (prometheus == NULL)
        return;
    sheaf__http_close(prometheus->http);
    pthread_mutex_destroy(&prometheus->lock);
    free(prometheus);
}
