/* report.c - how a subcommand ends: what the user reads, and the exit code. */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "base/print.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "launched.h"
#include "sheaf/dtype.h"

int cli_exit_code(const sheaf_status *st)
{
    if (st == NULL)
        return CLI_DONE;
    return sheaf_status_code(st) == SHEAF_E_ARG ? CLI_USAGE : CLI_FAILED;
}

static const char *code_name(sheaf_code code)
{
    switch (code) {
    case SHEAF_E_ARG: return "usage";
    case SHEAF_E_MEMORY: return "memory";
    case SHEAF_E_IO: return "io";
    case SHEAF_E_FORMAT: return "format";
    case SHEAF_E_LAYOUT: return "layout";
    case SHEAF_E_UNSUPPORTED: return "unsupported";
    case SHEAF_E_DATA: return "data";
    case SHEAF_E_NUMBER: return "number";
    case SHEAF_E_PEER: return "peer";
    case SHEAF_E_STOPPED: return "stopped";
    case SHEAF_E_UNSAFE: return "unsafe";
    case SHEAF_E_CHANGED: return "changed";
    }
    return "other";
}

char *cli_error_json(const sheaf_status *st)
{
    const char *const key[] = { "code", "where", "expected", "found", "try" };
    const char *const value[] = { code_name(sheaf_status_code(st)), sheaf_status_where(st),
                                  sheaf_status_expected(st), sheaf_status_found(st),
                                  sheaf_status_try(st) };
    sheaf_json_writer j = { 0 };
    sheaf__json_begin(&j);
    sheaf__json_open(&j, "error", '{');
    for (int i = 0; i < 5; i++)
        sheaf__json_put_text(&j, key[i], value[i]);
    sheaf__json_close(&j, '}');
    sheaf__json_end(&j);
    sheaf__text_add(&j.text, "\n");
    char *line = NULL;
    sheaf_status_free(sheaf__text_take(&line, &j.text));
    return line;
}

char *cli_error_text(const sheaf_status *st)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL)
        return NULL;
    sheaf_status_print(st, to);
    fclose(to);
    return text;
}

sheaf_status *cli_progress(sheaf_progress **out, const sheaf_events **events, const cli *cli)
{
    sheaf_status *st = sheaf_progress_open(out, cli->err);
    if (st == NULL)
        *events = sheaf_progress_events(*out);
    return st;
}

void cli_say(const cli *cli, const char *text)
{
    if (isatty(fileno(cli->out)))
        sheaf__print_lines(cli->out, text);
    else
        fputs(text, cli->out);
}

static const char output[] = "standard output";

sheaf_status *cli_written(const cli *cli)
{
    return ferror(cli->out) ? sheaf__found_errno(sheaf_fail(SHEAF_E_IO, output), errno) : NULL;
}

sheaf_comm *cli_all(const cli *cli)
{
    return cli->join == NULL ? NULL : cli->join->all;
}

static bool is_awaited(const cli *cli)
{
    return cli->together && cli->join != NULL && sheaf__process_awaited(cli->join);
}

/* A file that is missing here may be there where the first process is, and where they cannot meet
 * it does not hear of it. */
static sheaf_status *print_aside(const cli *cli, sheaf_status *st)
{
    char host[64] = "";
    if (st == NULL || cli->aside == NULL || cli_all(cli) != NULL ||
        (sheaf_status_code(st) != SHEAF_E_IO && !is_awaited(cli)))
        return st;
    gethostname(host, sizeof host - 1);
    st = sheaf_in(st, "rank %d on %s", sheaf__launcher_look().number, host);
    sheaf_status_print(st, cli->aside);
    return st;
}

/* The others know nothing of a failure that this process found alone, and may wait for it before
 * they have met: it meets them to report it. */
static void send_to_others(const cli *cli, const sheaf_status *st)
{
    if (st == NULL || !cli->together)
        return;
    if (is_awaited(cli))
        sheaf_status_free(sheaf__process_start(cli->join, cli->mpi));
    sheaf__process_failed(cli_all(cli), st);
}

int cli_answer(cli *cli, sheaf_status *st, bool yes)
{
    int code = st != NULL ? cli_exit_code(st) : yes ? CLI_DONE : CLI_NO;
    if (!cli->helped)
        send_to_others(cli, st);
    if (cli->helped) {
        code = CLI_DONE;
    } else if (st != NULL && sheaf__all_first(cli_all(cli))) {
        fflush(cli->out);
        char *line = cli->json ? cli_error_json(st) : NULL;
        if (line != NULL)
            fputs(line, cli->out);
        free(line);
        sheaf_status_print(st, cli->err);
    }
    if (!cli->helped)
        st = print_aside(cli, st);
    const bool reported = st != NULL && strcmp(sheaf_status_where(st), output) == 0;
    sheaf_status_free(st);
    /* Results that never arrived are not results: a full disk behind > shows here. */
    if (fflush(cli->out) != 0 || ferror(cli->out)) {
        if (!reported)
            sheaf__print(cli->err, "sheaf: %s\n  found:    %s\n", output, strerror(errno));
        code = CLI_FAILED;
    }
    cli_launch_note_code(cli_all(cli), code);
    if (code != CLI_DONE && is_awaited(cli))
        cli_fail_by_signal();
    return code;
}

int cli_report(cli *cli, sheaf_status *st)
{
    return cli_answer(cli, st, true);
}

void cli_release(cli *cli)
{
    sheaf__settings_release(&cli->settings);
    if (cli->nowhere != NULL)
        fclose(cli->nowhere);
    cli->nowhere = NULL;
}

void cli_hush(cli *cli)
{
    if (cli->nowhere == NULL)
        cli->nowhere = fopen("/dev/null", "we");
    if (cli->nowhere == NULL)
        return;
    cli->aside = cli->err;
    cli->out = cli->err = cli->nowhere;
    cli->events = (sheaf_events){ 0 };
}

/* ---- what several subcommands need ---- */

const cli_choice cli_dtypes[] = {
    { "float32", SHEAF_F32 },
    { "bfloat16", SHEAF_BF16 },
    { "float16", SHEAF_F16 },
    { 0 },
};

bool cli_json_end(FILE *to, sheaf_json_writer *j)
{
    sheaf__json_end(j);
    sheaf__text_add(&j->text, "\n");
    const bool done = !j->text.failed && fputs(j->text.at, to) >= 0;
    sheaf__text_release(&j->text);
    return done;
}
