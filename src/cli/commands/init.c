/* init.c - `sheaf init`: a new model with seeded random weights. */
#include "base/base.h"
#include "base/print.h"
#include "commands.h"
#include "driver/signals.h"
#include "sheaf/checkpoint.h"

const char cmd_init_usage[] =
    "usage: sheaf init SPEC DST [FLAG...]\n"
    "Makes the Hugging Face folder DST with random weights. SPEC is a config.json, SAT's\n"
    "model_config.json (of CogVLM or CogAgent), a folder that has one, or a name below.\n"
    "Matrices are normal(0, initializer_range), norms one, biases zero; each number depends\n"
    "on the seed, the tensor's name and its place alone. Names of small models:\n";

void cmd_init_names(sheaf_text *to)
{
    const char *name, *what;
    for (int i = 0; (name = sheaf_weights_init_name(&what, i)) != NULL; i++)
        sheaf__text_add(to, "  %-18s %s\n", name, what);
}

int cmd_init(cli *cli, int argc, char **argv)
{
    sheaf_weights_init_options how = { .size = sizeof how };
    sheaf_weights_init_report report = { .size = sizeof report };
    const cli_option options[] = {
        { "seed", CLI_SEED, &how.seed, "seed of all random numbers" },
        { "dtype", CLI_CHOICE, &how.dtype, "type of the weights (default as in SPEC)",
          .choices = cli_dtypes },
        { "quantize", CLI_CHOICE, &how.quantize,
          "write linear layers in 4 or 8 bits, as sheaf convert --quantize does",
          .choices = sheaf__quantize_choices },
        { "threads", CLI_INT, &how.threads, "threads; 0 = all cores", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    how.events = &cli->events;
    TRY(st, driver_signals_control(&how.control));
    if (st == NULL) {
        how.spec = paths.word[0];
        how.dst = paths.word[1];
    }
    TRY(st, driver_signals_explain(sheaf_weights_init(&report, &how)));
    driver_progress_end(cli);
    if (st == NULL && cli->json) {
        sheaf_json_writer j = { 0 };
        sheaf__json_begin(&j);
        sheaf__json_put(&j, "out:s tensors:d parameters:d dtype:s quantized:d bytes:d", how.dst,
                        report.tensors, report.parameters, sheaf_dtype_torch_name(report.dtype),
                        report.quantised, report.bytes);
        cli_json_end(cli->out, &j);
    } else if (st == NULL) {
        sheaf__print(cli->out, "%s: %" PRId64 " tensors, %" PRId64 " parameters, %s", how.dst,
                     report.tensors, report.parameters, sheaf_dtype_torch_name(report.dtype));
        if (report.quantised > 0)
            sheaf__print(cli->out, ", %" PRId64 " weights quantised", report.quantised);
        sheaf__print(cli->out, "\n");
    }
    return driver_report(cli, st);
}
