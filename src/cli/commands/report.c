/* report.c - `sheaf report`: a page about runs of training, as a file or on a port. */
#include "base/base.h"
#include "base/file.h"
#include "base/print.h"
#include "commands.h"
#include "serve/follow.h"
#include "sheaf/report.h"

const char cmd_report_usage[] =
    "usage: sheaf report RUN... -o PAGE.html\n"
    "       sheaf report RUN... --watch [--port N]\n"
    "Writes one page that a browser opens from disk: loss, evaluations, learning rate,\n"
    "gradient norm, speed, memory, time and traffic of runs of sheaf train, over each\n"
    "other, with their settings. A run may still go on; --json has the numbers alone.\n"
    "With --watch the page is on a port, and follows the runs. Ctrl-C ends it, not them.\n";

typedef struct settings {
    const char *out;
    bool watch;
    const char *host, *token_file;
    int port;
} settings;

static sheaf_status *check(const cli *cli, const cli_option *options, const settings *s)
{
    static const char *const live[] = { "host", "port", "token-file" };
    if (s->watch && s->out != NULL)
        return sheaf_try_this(sheaf_fail(SHEAF_E_ARG, "--watch beside --out"),
                              "one of them: a page on a port, or in a file");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (!s->watch && sheaf__settings_given(&cli->settings, options, live[i]))
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--%s", live[i]), "--watch beside it");
    return s->watch || s->out != NULL || cli->json
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf report"),
                                "--out FILE, the page to write, --watch, or --json");
}

static sheaf_status *ready(void *self, const sheaf__http *http)
{
    const cli *cli = self;
    char address[SHEAF__HTTP_ADDRESS];
    sheaf__http_address(address, http);
    if (cli->json) {
        sheaf_json_writer j = { 0 };
        sheaf__json_begin(&j);
        sheaf__json_put(&j, "url:s port:i", address, sheaf__http_port(http));
        cli_json_end(cli->out, &j);
    } else {
        sheaf__print(cli->out, "%s has the report until Ctrl-C\n", address);
    }
    fflush(cli->out);
    return driver_written(cli);
}

static sheaf_status *write_page(const cli *cli, const sheaf_report *report, const settings *s,
                                int runs)
{
    char *text = NULL;
    sheaf_status *st = sheaf_report_page(&text, report);
    TRY(st, sheaf__file_write_whole(s->out, text, strlen(text)));
    if (st == NULL && !cli->json)
        sheaf__print(cli->out, "%s: %d run%s, %.1f KB\n", s->out, runs, runs == 1 ? "" : "s",
                     (double)strlen(text) / 1e3);
    free(text);
    return st;
}

int cmd_report(cli *cli, int argc, char **argv)
{
    settings s = { .host = "127.0.0.1", .port = 8081 };
    sheaf_report *report = NULL;
    sheaf_report_options how = { .size = sizeof how };
    const cli_option options[] = {
        { "out", CLI_PATH, &s.out, "the page to write; a file there is replaced", .unit = "FILE",
          .letter = 'o' },
        { "watch", CLI_FLAG, &s.watch, "the page is on a port until Ctrl-C, and follows the runs" },
        { "host", CLI_TEXT, &s.host,
          "address to listen at; what other machines reach needs --token-file", "ADDRESS", .min = 1,
          .heading = "port, with --watch" },
        { "port", CLI_INT, &s.port, "port to listen at; 0 = any that is free", .max = 65535 },
        { "token-file", CLI_PATH, &s.token_file,
          "file whose first line the page asks for and must show", "FILE" },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, check(cli, options, &s));
    if (st == NULL) {
        how.run = (const char *const *)paths.word;
        how.runs = paths.count;
        how.events = &cli->events;
        st = s.watch ? sheaf__follow(&(sheaf__follow_options){ .report = &how,
                                                               .host = s.host,
                                                               .port = s.port,
                                                               .token_file = s.token_file,
                                                               .ready = ready,
                                                               .self = cli })
                     : sheaf_report_open(&report, &how);
    }
    if (st == NULL && s.out != NULL)
        st = write_page(cli, report, &s, how.runs);
    if (st == NULL && cli->json) {
        fputs(sheaf_report_json(report), cli->out);
        fputc('\n', cli->out);
    }
    sheaf_report_close(report);
    return driver_report(cli, st);
}
