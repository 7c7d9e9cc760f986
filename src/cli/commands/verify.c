/* verify.c - `sheaf verify`: complete, consistent, undamaged? */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/cores.h"
#include "base/print.h"
#include "commands.h"
#include "findings.h"
#include "monitor/monitor.h"
#include "cli/lib/signals.h"
#include "library/verify_all.h"

const char cmd_verify_usage[] =
    "usage: sheaf verify PATH... [FLAG...]\n"
    "Says what a checkpoint of any program is, and what is wrong with it: each part that is\n"
    "missing, foreign, stale, double, damaged, of the wrong shape or in conflict, copies that\n"
    "differ between ranks, NaN and Inf; and for each the command that cures it. All bytes are\n"
    "read. Several PATHs that are parts of one checkpoint, none of them whole, are one, as for\n"
    "sheaf convert; an adapter after a model is held against it. Exit code 0 when it is sound, 1 when it is not, 3 when it could not be looked at.\n";

enum { SHOWN = 12 };

typedef struct telling {
    cli *cli;
    sheaf_json_writer json;
    int count;                   /* paths */
    sheaf_verify_report *report; /* [count] */
} telling;

static void print_report(FILE *to, const sheaf_verify_report *r)
{
    const sheaf_catalog *c = r->catalog;
    const int64_t defects = sheaf__catalog_defects(c);
    int64_t warnings = 0;
    for (int64_t i = 0; i < c->nfindings; i++)
        warnings += c->finding[i].severity == SHEAF_WARNING;
    sheaf__print(to, "%s\n", c->root);
    cli_facts_print(to, r);
    cli_findings_print(to, c, SHOWN, true);
    if (sheaf_verify_sound(r))
        sheaf__print(to, "sound%s",
                     !r->full    ? ", as far as its structure tells"
                     : r->untold ? ", as far as these files tell"
                                 : "");
    else if (defects > 0)
        sheaf__print(to, "not sound: %" PRId64 " defect%s", defects, defects == 1 ? "" : "s");
    else /* by a warning that no program can do without the cure of */
        sheaf__print(to, "not sound: %s",
                     sheaf__catalog_finding(c, "time-stamp") != NULL
                         ? "the parts of one save lie in several folders"
                         : "weights in doubles, which can be converted and not run");
    if (warnings > 0)
        sheaf__print(to, "; %" PRId64 " warning%s", warnings, warnings == 1 ? "" : "s");
    sheaf__print(to, "\n");
}

static void print_json(telling *t, bool sound)
{
    sheaf_json_writer *j = &t->json;
    sheaf__json_begin(j);
    sheaf__json_put_bool(j, "sound", sound);
    if (t->count == 1)
        cli_facts_json(j, &t->report[0]);
    sheaf__json_open(j, "paths", '[');
    for (int i = 0; t->count > 1 && i < t->count; i++) {
        sheaf__json_open(j, NULL, '{');
        cli_facts_json(j, &t->report[i]);
        sheaf__json_close(j, '}');
    }
    sheaf__json_close(j, ']');
    sheaf__json_open(j, "findings", '[');
    for (int i = 0; i < t->count; i++)
        cli_findings_json(j, t->report[i].catalog);
    sheaf__json_close(j, ']');
    cli_json_end(t->cli->out, j);
}

int cmd_verify(cli *cli, int argc, char **argv)
{
    telling t = { .cli = cli };
    sheaf_verify_options how = { 0 };
    const cli_option options[] = {
        { "quick", CLI_FLAG, &how.quick, "structure only: no data is read" },
        { "config", CLI_PATH, &how.hints.config, "the model's config, where the folder has none",
          "FILE" },
        { "from", CLI_TEXT, &how.hints.from,
          "the dialect, where it is not recognised (docs/dialects.md)", "DIALECT" },
        { "threads", CLI_INT, &how.threads, "threads; 0 = every core at hand", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    sheaf_monitor *monitor = NULL;
    bool sound = true;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, sheaf_monitor_open(&monitor, &(sheaf_monitor_options){ .progress = cli->err }));
    TRY(st, cli_signals_stop(&how.stop));
    if (st == NULL && (t.report = calloc((size_t)paths.count, sizeof *t.report)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "verify");
    how.threads = sheaf__cores(how.threads);
    how.events = monitor != NULL ? sheaf_monitor_events(monitor) : NULL;
    const char **also = st == NULL ? calloc((size_t)paths.count, sizeof *also) : NULL;
    if (st == NULL && also == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "verify");
    bool joint = false;
    TRY(st, sheaf_verify_joint(&joint, (const char *const *)paths.word, paths.count, &how));
    for (int i = 1; joint && i < paths.count; i++)
        also[i - 1] = paths.word[i];
    if (joint)
        how.hints.also = also;
    for (int i = 0; st == NULL && i < (joint ? 1 : paths.count); i++) {
        t.count = i + 1;
        const sheaf_dialect *is = sheaf__dialect_of(paths.word[i]);
        if (is != NULL && !is->adapter) /* of adapters that follow */
            how.base = paths.word[i];
        st = sheaf__verify_all(&t.report[i], paths.word[i], &how);
        sound = st != NULL || (sound && sheaf_verify_sound(&t.report[i]));
        if (st == NULL && !cli->json)
            print_report(cli->out, &t.report[i]);
    }
    st = cli_signals_explain(st);
    if (monitor != NULL)
        sheaf_status_free(sheaf_monitor_close(monitor)); /* it holds no file */
    if (st == NULL && cli->json)
        print_json(&t, sound);
    for (int i = 0; t.report != NULL && i < t.count; i++)
        sheaf_verify_release(&t.report[i]);
    free(t.report);
    free(also);
    return cli_answer(cli, st, sound);
}
