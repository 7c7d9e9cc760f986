/* cmd_merge.c - `sheaf merge`: base model and adapter into one model. */
#include <inttypes.h>

#include "checkpoint/merge.h"
#include "commands.h"
#include "monitor/monitor.h"
#include "shared.h"

const char cmd_merge_usage[] =
    "usage: sheaf merge BASE ADAPTER DST [FLAG...]\n"
    "Adds a LoRA adapter (PEFT folder) to the weights of BASE (Hugging Face folder) and\n"
    "writes the whole model to DST, which appears only once complete and is then read back\n"
    "and checked. Sums are made in float32 and rounded once. Memory stays small whatever\n"
    "the size of the model. What is not plain LoRA (DoRA, adapted tables, ...) is refused.\n";

static void print_report(FILE *to, bool json, const sheaf_merge_report *r, const char *dst)
{
    const double share = r->base_norm > 0 ? r->change_norm / r->base_norm : 0;
    if (json) {
        cli_json j = { to };
        cli_json_begin(&j);
        cli_json_text(&j, "out", dst);
        cli_json_int(&j, "tensors", r->tensors);
        cli_json_int(&j, "adapted", r->adapted);
        cli_json_int(&j, "replaced", r->replaced);
        cli_json_int(&j, "changed", r->changed);
        cli_json_int(&j, "elements_changed", r->elements_changed);
        cli_json_real(&j, "change_norm", r->change_norm);
        cli_json_real(&j, "base_norm", r->base_norm);
        cli_json_bool(&j, "untied", r->untied);
        cli_json_int(&j, "rows_checked", r->rows_checked);
        cli_json_int(&j, "bytes", r->bytes);
        cli_json_end(&j);
        return;
    }
    fprintf(to, "%s: %" PRId64 " tensors, %.3f GB\n", dst, r->tensors, (double)r->bytes / 1e9);
    fprintf(to, "adapted %" PRId64 ", replaced %" PRId64 ", changed %" PRId64 " (%" PRId64 " elements)\n", r->adapted,
            r->replaced, r->changed, r->elements_changed);
    fprintf(to, "norm of the change %.6g, of the changed weights %.6g (%.3g %%)\n", r->change_norm, r->base_norm,
            100 * share);
    if (r->untied)
        fprintf(to, "lm_head and embed_tokens were tied and are two tensors now\n");
    fprintf(to, "%" PRId64 " rows read back and recomputed: equal\n", r->rows_checked);
}

int cmd_merge(cli *cli, int argc, char **argv)
{
    sheaf_merge_options how = { 0 };
    bool as_peft = false, safe = false;
    int dtype = -1;
    const cli_option options[] = {
        { "as-peft", CLI_FLAG, &as_peft, "the bits of PEFT's merge_and_unload()" },
        { "as-peft-safe", CLI_FLAG, &safe, "the bits of merge_and_unload(safe_merge=True): the change is rounded before it is added" },
        { "dtype", CLI_CHOICE, &dtype, "type of the written weights (default as in BASE)", .choices = cli_dtypes },
        { "config", CLI_PATH, &how.config, "the base's config.json, where its folder has none", "FILE" },
        { "threads", CLI_INT, &how.threads, "threads; 0 = every core at hand", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    sheaf_monitor *monitor = NULL;
    sheaf_merge_report report;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && as_peft && safe)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--as-peft-safe"), "one of --as-peft and --as-peft-safe");
    if (st == NULL)
        st = sheaf_monitor_open(&monitor, &(sheaf_monitor_options){ .progress = cli->err });
    if (st == NULL) {
        const sheaf_dtype as = (sheaf_dtype)dtype;
        how.base = paths.word[0];
        how.adapter = paths.word[1];
        how.dst = paths.word[2];
        how.dtype = dtype >= 0 ? &as : NULL;
        how.mode = safe ? SHEAF_MERGE_AS_PEFT_SAFE : as_peft ? SHEAF_MERGE_AS_PEFT : SHEAF_MERGE_BEST;
        how.threads = cli_threads(how.threads);
        how.events = sheaf_monitor_events(monitor);
        st = sheaf_merge(&report, &how);
    }
    sheaf_status_free(sheaf_monitor_close(monitor)); /* it holds no file */
    if (st == NULL)
        print_report(cli->out, cli->json, &report, how.dst);
    return cli_report(cli, st);
}
