/* serve.c - `sheaf serve`: a model behind an HTTP port. */
#include "ask.h"
#include "base/base.h"
#include "base/print.h"
#include "commands.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "serve/serve.h"

const char cmd_serve_usage[] =
    "usage: sheaf serve MODEL [--adapter A,B] [--port N] [FLAG...]\n"
    "Answers over HTTP as OpenAI's API has it: /v1/chat/completions, /v1/responses, /v1/completions\n"
    "and /v1/models. Many questions are answered side by side; each answer is the one that sheaf\n"
    "generate gives for the same flags and seed. With adapters each is a model of its own, by its\n"
    "folder's name, or of a run's result by the run's.\n"
    "Ctrl-C ends it once the answers that have begun are there; a second one, at once.\n";

typedef struct settings {
    sheaf__serve_options how;
    int64_t max_body, max_pixels, max_length;
    bool specials, log;
    sheaf_model_open_options model;
    driver_processes processes;
} settings;

static void table_of(cli_option *table, settings *s)
{
    const cli_option rows[] = {
        { "host", CLI_TEXT | CLI_COMMON, &s->how.host,
          "address to listen at; what other machines reach needs --token-file", "ADDRESS", .min = 1,
          .heading = "port" },
        { "port", CLI_INT | CLI_COMMON, &s->how.port, "port to listen at; 0 = any that is free",
          .max = 65535 },
        { "token-file", CLI_PATH | CLI_COMMON, &s->how.token_file,
          "file whose first line every request must show, as API key", "FILE" },
        { "log", CLI_FLAG | CLI_COMMON, &s->log,
          "print a line for each request on standard error: time, client, path, model, tokens, speed" },
        { "rate", CLI_COUNT, &s->how.rate,
          "requests that an address may send in a minute; 0 = no limit", .max = 1e6 },
        { "max-body", CLI_COUNT, &s->max_body, "most megabytes of a request, with its pictures",
          .min = 1, .max = 1024 },
        { "max-pixels", CLI_COUNT, &s->max_pixels,
          "most million pixels of a request's pictures together", .min = 1, .max = 1e6 },
        { "batch", CLI_COUNT | CLI_COMMON, &s->how.batch, "answers computed together", .min = 1,
          .max = 1024, .heading = "answers" },
        { "queue", CLI_COUNT, &s->how.queue, "requests that may wait for that", .min = 1,
          .max = 1e6 },
        { "timeout", CLI_COUNT, &s->how.seconds,
          "most seconds of an answer, waiting included; 0 = no limit", .max = 1e7 },
        { "system", CLI_TEXT | CLI_COMMON, &s->how.system,
          "system message of conversations that have none, where the template has a place for it",
          "TEXT", .min = 1 },
        { "max-new", CLI_COUNT | CLI_COMMON, &s->how.max_new,
          "most tokens of an answer where a request does not say", .min = 1, .max = 1e7 },
        { "max-length", CLI_COUNT | CLI_COMMON, &s->max_length,
          "most positions of prompt (with images) and answer together", .min = 2, .max = 1e7 },
        { "tokenizer", CLI_PATH, &s->model.tokenizer, SHEAF__TOKENIZER_HELP, "PATH",
          .heading = "model" },
        { "template", CLI_TEXT | CLI_COMMON, &s->model.prompt_template,
          SHEAF__TEMPLATE_HELP "the run's, else the model's own, else its family's", "NAME" },
        { "date", CLI_TEXT, &s->model.date,
          SHEAF__DATE_HELP
          "; default: the run's, else the template's own, else today's at the start",
          "DATE" },
        { "specials", CLI_FLAG, &s->specials, SHEAF__SPECIALS_HELP },
        { 0 },
    };
    sheaf__settings_append(table, rows);
}

/* "A,B": its words, in one block that `text` owns. */
static sheaf_status *split(char **text, const char ***word, int *n, const char *list)
{
    *text = list == NULL ? NULL : strdup(list);
    *word = calloc(list == NULL ? 1 : strlen(list) + 1, sizeof **word);
    *n = 0;
    if ((list != NULL && *text == NULL) || *word == NULL)
        return sheaf__no_memory("--adapter");
    for (char *at = *text; at != NULL;) {
        char *next = strchr(at, ',');
        if (next != NULL)
            *next++ = '\0';
        if (at[0] == '\0')
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--adapter"),
                                              "folders, with a comma between two"),
                               "'%s'", list);
        (*word)[(*n)++] = at;
        at = next;
    }
    return NULL;
}

/* Until then a signal ends the process: nothing is lost. */
static sheaf_status *ready(void *self, const sheaf__http *http, int models, const char *const *name)
{
    const cli *cli = self;
    char address[SHEAF__HTTP_ADDRESS];
    sheaf__http_address(address, http);
    if (cli->json) {
        sheaf_json_writer j = { .compact = true };
        sheaf__json_begin(&j);
        sheaf__json_put(&j, "url:s port:i models:[", address, sheaf__http_port(http));
        for (int i = 0; i < models; i++)
            sheaf__json_put_text(&j, NULL, name[i]);
        sheaf__json_close(&j, ']');
        cli_json_end(cli->out, &j);
    } else {
        sheaf__print(cli->out, "%s serves ", address);
        for (int i = 0; i < models; i++)
            sheaf__print(cli->out, "%s%s", i == 0 ? "" : ", ", name[i]);
        fputc('\n', cli->out);
    }
    fflush(cli->out);
    return driver_signals_install_stops();
}

static void print_line(void *self, const char *line)
{
    FILE *err = ((const cli *)self)->err;
    flockfile(err); /* several threads have lines */
    sheaf__print(err, "%s\n", line);
    funlockfile(err);
}

int cmd_serve(cli *cli, int argc, char **argv)
{
    settings s = { .how = { .host = "127.0.0.1",
                            .port = 8080,
                            .batch = 8,
                            .queue = 64,
                            .seconds = 600,
                            .max_new = 512,
                            .model = &s.model,
                            .ready = ready,
                            .self = cli,
                            .control = driver_signals() },
                   .max_body = 32,
                   .max_pixels = 64,
                   .max_length = 2048 };
    cli_option table[CLI_MAX_OPTIONS] = { { 0 } };
    char *adapters = NULL;
    const char **adapter = NULL;
    table_of(table, &s);
    ask_model_table(table, &s.model);
    driver_processes_table(table, &s.processes, false);
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    TRY(st, split(&adapters, &adapter, &s.how.nadapters, s.model.adapter));
    TRY(st, driver_processes_begin(&s.processes, cli, s.model.tp, s.model.place));
    if (st == NULL && !s.processes.elsewhere) {
        if (!sheaf__settings_given(&cli->settings, table, "max-new"))
            s.how.max_new = 0;
        s.how.adapter = adapter;
        s.how.log = s.log ? print_line : NULL;
        s.how.most_body = s.max_body << 20;
        s.how.most_pixels = s.max_pixels * 1000000;
        s.model.adapter = NULL;
        s.model.processes = s.processes.all;
        s.model.events = &cli->events;
        s.model.specials = s.specials;
        s.model.positions = s.max_length;
        s.model.positions_fit = !sheaf__settings_given(&cli->settings, table, "max-length");
        st = sheaf__serve(&s.how);
    }
    free(adapters);
    free(adapter);
    return driver_processes_answer(&s.processes, cli, st, true);
}
