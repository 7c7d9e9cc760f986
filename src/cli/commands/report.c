/* report.c - `sheaf report`: a page about runs of training. */
#include "base/base.h"
#include "base/file.h"
#include "base/print.h"
#include "commands.h"
#include "sheaf/report.h"

const char cmd_report_usage[] =
    "usage: sheaf report RUN... -o PAGE.html\n"
    "Writes one page that a browser opens from disk: loss, evaluations, learning rate,\n"
    "gradient norm, speed, memory, time and traffic of runs of sheaf train, over each\n"
    "other, with their settings. A run may still go on; --json has the numbers alone.\n";

int cmd_report(cli *cli, int argc, char **argv)
{
    sheaf_report_options how;
    const char *out = NULL;
    SHEAF_INIT(&how);
    const cli_option options[] = {
        { "out", CLI_PATH, &out, "the page to write; a file there is replaced", .unit = "FILE",
          .letter = 'o' },
        { 0 },
    };
    cli_paths paths;
    char *text = NULL;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && out == NULL && !cli->json)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf report"),
                            "--out FILE, the page to write, or --json");
    if (st == NULL) {
        how.run = (const char *const *)paths.word;
        how.runs = paths.count;
        how.events = &cli->events;
    }
    if (st == NULL && out != NULL) {
        st = sheaf_report_page(&text, &how);
        TRY(st, sheaf__file_write_whole(out, text, strlen(text)));
        if (st == NULL && !cli->json)
            sheaf__print(cli->out, "%s: %d run%s, %.1f KB\n", out, how.runs,
                         how.runs == 1 ? "" : "s", (double)strlen(text) / 1e3);
        free(text);
        text = NULL;
        how.events = NULL; /* what is odd was said */
    }
    if (st == NULL && cli->json) {
        st = sheaf_report_json(&text, &how);
        if (st == NULL) {
            fputs(text, cli->out);
            fputc('\n', cli->out);
        }
        free(text);
    }
    return driver_report(cli, st);
}
