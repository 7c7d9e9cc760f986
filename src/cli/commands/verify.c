/* verify.c - `sheaf verify`: complete, consistent, undamaged? */
#include "base/base.h"
#include "base/file.h"
#include "base/print.h"
#include "commands.h"
#include "findings.h"
#include "driver/signals.h"

const char cmd_verify_usage[] =
    "usage: sheaf verify PATH... [FLAG...]\n"
    "Checks a checkpoint of any program (docs/dialects.md): names each part that is missing,\n"
    "foreign, stale, double, damaged, of the wrong shape or in conflict, copies that differ between\n"
    "ranks, NaN and Inf, and for each the command that repairs it. All bytes are read. PATHs that\n"
    "are parts of one checkpoint are checked as one; an adapter behind a model is checked against\n"
    "it; of a run its newest checkpoint and its result are checked. Exit code 0: sound, 1: not\n"
    "sound, 3: it could not be read.\n";

enum { SHOWN = 12 };

typedef struct telling {
    cli *cli;
    int count;                     /* paths, and results of runs */
    sheaf_verification **verified; /* [count] */
    bool one;                      /* path was given */
} telling;

static int64_t count(const sheaf_verification *v, sheaf_severity severity)
{
    int64_t n = 0;
    for (int64_t i = 0; i < sheaf_verification_count(v); i++)
        n += sheaf_verification_finding(v, i)->severity == severity;
    return n;
}

static bool has(const sheaf_verification *v, const char *code)
{
    for (int64_t i = 0; i < sheaf_verification_count(v); i++)
        if (strcmp(sheaf_verification_finding(v, i)->code, code) == 0)
            return true;
    return false;
}

static void print_report(FILE *to, const sheaf_verification *v, const sheaf_verification_facts *f)
{
    const int64_t defects = count(v, SHEAF_DEFECT), warnings = count(v, SHEAF_WARNING);
    sheaf__print(to, "%s\n", f->path);
    if (f->step >= 0 && sheaf__path_has(f->path, "checkpoints", SHEAF_PATH_DIR))
        sheaf__print(to, "  %-14s checkpoints/step-%08" PRId64 "\n", "checkpoint", f->step);
    cli_facts_print(to, f);
    cli_findings_print(to, sheaf_verification_finding(v, 0), sheaf_verification_count(v), SHOWN);
    if (f->sound)
        sheaf__print(to, "sound%s",
                     !f->full     ? ", as far as its structure tells"
                     : f->partial ? ", as far as these files tell"
                                  : "");
    else if (defects > 0)
        sheaf__print(to, "not sound: %" PRId64 " defect%s", defects, defects == 1 ? "" : "s");
    else /* because of a warning that must be cured before any use */
        sheaf__print(to, "not sound: %s",
                     has(v, "time-stamp")
                         ? "the parts of one save lie in several folders"
                         : "weights in doubles, which can be converted and not run");
    if (warnings > 0)
        sheaf__print(to, "; %" PRId64 " warning%s", warnings, warnings == 1 ? "" : "s");
    sheaf__print(to, "\n");
}

static void facts_json(sheaf_json_writer *j, const sheaf_verification *v)
{
    sheaf_verification_facts facts = { .size = sizeof facts };
    sheaf_status_free(sheaf_verification_info(&facts, v)); /* its size is right */
    cli_facts_json(j, &facts);
}

static void print_json(const telling *t, bool sound)
{
    sheaf_json_writer j = { 0 };
    sheaf__json_begin(&j);
    sheaf__json_put_bool(&j, "sound", sound);
    if (t->count == 1 || t->one)
        facts_json(&j, t->verified[0]);
    sheaf__json_open(&j, "paths", '[');
    for (int i = 0; t->count > 1 && i < t->count; i++) {
        sheaf__json_open(&j, NULL, '{');
        facts_json(&j, t->verified[i]);
        sheaf__json_close(&j, '}');
    }
    sheaf__json_put(&j, "] findings:[");
    for (int i = 0; i < t->count; i++)
        cli_findings_json(&j, t->verified[i]);
    sheaf__json_close(&j, ']');
    cli_json_end(t->cli->out, &j);
}

static sheaf_status *verify_one(telling *t, bool *sound, sheaf_verification_facts *facts,
                                const char *path, const sheaf_weights_verify_options *how)
{
    SHEAF_INIT(facts);
    sheaf_status *st = sheaf_weights_verify(&t->verified[t->count], path, how);
    TRY(st, sheaf_verification_info(facts, t->verified[t->count]));
    if (st != NULL)
        return st;
    *sound &= facts->sound;
    driver_progress_end(t->cli);
    if (!t->cli->json)
        print_report(t->cli->out, t->verified[t->count], facts);
    t->count++;
    return NULL;
}

/* OUT/model or OUT/adapter of a run, which its newest checkpoint was checked for. */
static sheaf_status *verify_result(telling *t, bool *sound, const char *run,
                                   const sheaf_weights_verify_options *how)
{
    static const char *const results[] = { "model", "adapter" };
    sheaf_weights_verify_options alone = *how;
    sheaf_verification_facts facts;
    sheaf_status *st = NULL;
    alone.base = NULL; /* that of its config */
    alone.dialect = alone.config = NULL;
    if (!sheaf__path_has(run, "settings", SHEAF_PATH_FILE) ||
        !sheaf__path_has(run, "checkpoints", SHEAF_PATH_DIR))
        return NULL;
    char path[SHEAF_PATH_SIZE];
    for (int i = 0; i < 2 && st == NULL; i++)
        if (sheaf__path_has(run, results[i], SHEAF_PATH_DIR))
            st = verify_one(t, sound, &facts, sheaf__path_in(path, run, results[i]), &alone);
    return st;
}

/* Each path, or all of them as one if they are parts of one checkpoint. */
static sheaf_status *verify(telling *t, bool *sound, const cli_paths *paths,
                            sheaf_weights_verify_options *how)
{
    bool joint = false;
    const char *const *words = (const char *const *)paths->word;
    t->one = paths->count == 1;
    t->verified = calloc(3 * (size_t)paths->count, sizeof *t->verified);
    sheaf_status *st = t->verified == NULL ? sheaf__no_memory("verify") : NULL;
    TRY(st, sheaf_weights_joint(&joint, words, paths->count, how));
    if (joint) {
        paths->word[paths->count] = NULL; /* in argv there is one more place, at least its end */
        how->also = words + 1;
    }
    for (int i = 0; st == NULL && i < (joint ? 1 : paths->count); i++) {
        sheaf_verification_facts facts;
        st = verify_one(t, sound, &facts, words[i], how);
        TRY(st, verify_result(t, sound, words[i], how));
        if (st == NULL && !facts.adapter) /* of adapters that follow */
            how->base = words[i];
    }
    return st;
}

int cmd_verify(cli *cli, int argc, char **argv)
{
    telling t = { .cli = cli };
    sheaf_weights_verify_options how = { .size = sizeof how };
    const cli_option options[] = {
        { "quick", CLI_FLAG, &how.quick, "structure only: no tensor data is read" },
        { "config", CLI_PATH, &how.config, "the model's config.json, if its folder has none",
          "FILE" },
        { "from", CLI_TEXT, &how.dialect,
          "form of PATH (docs/dialects.md), if it is not recognised", "DIALECT" },
        { "threads", CLI_INT, &how.threads, "threads; 0 = all cores", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    bool sound = true;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    how.events = &cli->events;
    TRY(st, driver_signals_control(&how.control));
    TRY(st, driver_signals_explain(verify(&t, &sound, &paths, &how)));
    if (st == NULL && cli->json)
        print_json(&t, sound);
    for (int i = 0; i < t.count; i++)
        sheaf_verification_free(t.verified[i]);
    free(t.verified);
    return driver_answer(cli, st, sound);
}
