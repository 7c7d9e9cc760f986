/* merge.c - `sheaf merge`: base model and adapters into one model. */
#include "base/base.h"
#include "base/file.h"
#include "base/number.h"
#include "base/print.h"
#include "commands.h"
#include "driver/signals.h"
#include "sheaf/checkpoint.h"

const char cmd_merge_usage[] =
    "usage: sheaf merge BASE ADAPTER... DST [FLAG...]\n"
    "       sheaf merge SAVE DST [FLAG...]\n"
    "       sheaf merge --adapter-only --combine linear|cat ADAPTER... DST [FLAG...]\n"
    "Adds LoRA adapters (PEFT folders), one after another, to the weights of BASE and writes the\n"
    "whole model to DST, which appears only once it is complete, read back and checked. Sums are\n"
    "made in float32 and rounded once; a few megabytes of memory suffice for a model of any size.\n"
    "  BASE     Hugging Face folder of any architecture, or a checkpoint (docs/dialects.md)\n"
    "  ADAPTER  also a run of sheaf train or one of its checkpoints, whatever it trained\n"
    "  SAVE     such a run or checkpoint, or an SAT checkpoint that has its LoRA in it, merged as\n"
    "           SAT does; DST then has as many parts\n";

static void print_json(FILE *to, const sheaf_weights_merge_report *r,
                       const sheaf_weights_merge_options *how)
{
    const bool own = r->parts > 0;
    sheaf_json_writer j = { 0 };
    sheaf__json_begin(&j);
    sheaf__json_put_text(&j, "out", how->dst);
    if (!how->adapter_only)
        sheaf__json_put(&j, "tensors:d adapted:d", r->tensors, r->adapted);
    if (!how->adapter_only && !own) {
        sheaf__json_put(
            &j,
            "replaced:d changed:d elements_changed:d elements_adapted:d elements_kept:d change_norm:f base_norm:f untied:b base_quantized:d requantized:d requantize_worst:f requantize_tensor:s requantize_mean:f rows_checked:d products_checked:d worst_product:f worst_tensor:s",
            r->replaced, r->changed, r->elements_changed, r->elements_adapted, r->elements_kept,
            r->change_norm, r->base_norm, r->untied, r->base_quantised, r->requantised,
            r->requantise_worst, r->requantised > 0 ? r->requantise_tensor : NULL,
            r->requantise_mean, r->rows_checked, r->products_checked, r->worst_product,
            r->worst_tensor[0] != '\0' ? r->worst_tensor : NULL);
    }
    if (!how->adapter_only)
        sheaf__json_put_int(&j, "bytes", r->bytes);
    cli_json_end(to, &j);
}

/* The treatment of a base in 4 or 8 bits. */
static void print_quantised(FILE *to, const sheaf_weights_merge_report *r)
{
    if (r->requantised > 0)
        sheaf__print(
            to,
            "%" PRId64 " of %" PRId64
            " weights of the base in 4 or 8 bits were changed and quantised again: written "
            "values differ from the merged ones by %.3g on average, at most %.3g (%s)\n",
            r->requantised, r->base_quantised, r->requantise_mean, r->requantise_worst,
            r->requantise_tensor);
    else if (r->base_quantised > 0)
        sheaf__print(to,
                     "%" PRId64 " weights of the base are in 4 or 8 bits: they were dequantised, "
                     "which is what the adapter was trained on\n",
                     r->base_quantised);
}

static void print_report(FILE *to, const sheaf_weights_merge_report *r,
                         const sheaf_weights_merge_options *how)
{
    const double share = r->base_norm > 0 ? r->change_norm / r->base_norm : 0;
    const char *dst = how->dst;
    if (r->parts > 0) {
        sheaf__print(to, "%s: %" PRId64 " tensors in %d part%s, LoRA merged into %" PRId64 "\n",
                     dst, r->tensors, r->parts, r->parts == 1 ? "" : "s", r->adapted);
        return;
    }
    if (how->adapter_only) {
        sheaf__print(to, "%s: %d adapters combined\n", dst, how->nadapters);
        return;
    }
    if (r->whole) {
        sheaf__print(to,
                     "%s: %" PRId64
                     " tensors, %.3f GB, those that were trained in place of the base's\n",
                     dst, r->tensors, (double)r->bytes / 1e9);
        return;
    }
    sheaf__print(to, "%s: %" PRId64 " tensors, %.3f GB\n", dst, r->tensors, (double)r->bytes / 1e9);
    print_quantised(to, r);
    sheaf__print(to,
                 "adapted %" PRId64 ", replaced %" PRId64 ", changed %" PRId64 " (%" PRId64
                 " elements)\n",
                 r->adapted, r->replaced, r->changed, r->elements_changed);
    sheaf__print(to, "norm of the change %.6g, of the changed weights %.6g (%.3g %%)\n",
                 r->change_norm, r->base_norm, 100 * share);
    if (r->elements_kept > 0)
        sheaf__print(to, "%" PRId64 " of %" PRId64 " adapted elements keep their bits: %s\n",
                     r->elements_kept, r->elements_adapted,
                     r->changed == 0 ? "nothing is changed" : "the change was rounded away");
    if (r->untied)
        sheaf__print(
            to,
            "tensors with several names, as lm_head and embed_tokens, are tensors of their own now\n");
    sheaf__print(to, "%" PRId64 " rows read back and recomputed: equal\n", r->rows_checked);
    if (r->products_checked > 0)
        sheaf__print(to,
                     "products with random vectors, merged against base + adapter, %" PRId64
                     " rows: largest difference %.3g of the "
                     "rounding expected (%s)\n",
                     r->products_checked, r->worst_product, r->worst_tensor);
}

enum { MOST_ADAPTERS = 64 };

typedef struct words {
    const char *weights;
    bool as_peft, safe;
    double weight[MOST_ADAPTERS];
} words;

/* "0.7,-0.4": one for each adapter. */
static sheaf_status *read_weights(double *out, int n, const char *text)
{
    if (strpbrk(text, "xX") == NULL && sheaf__numbers_read(out, n, text))
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--weights"),
                                      "%d numbers with commas between them, one for each adapter",
                                      n),
                       "%s", text);
}

static const cli_choice cpus[] = { { "intel", 1 }, { "amd", 2 }, { 0 } };

/* The last word is written: an adapter in its place stands where DST is missing. */
static sheaf_status *check_dst(const cli_paths *paths)
{
    if (!sheaf__path_has(paths->last, "adapter_config.json", SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf merge"), "DST behind the adapters");
    sheaf_found(st, "the adapter %s as the last word, which is written", paths->last);
    return sheaf_try_this(st, "sheaf merge ... %s DST", paths->last);
}

static sheaf_status *settle(sheaf_weights_merge_options *how, words *w, const cli_paths *paths)
{
    const int first = how->adapter_only ? 0 : 1;
    if (how->peft_cpu != 0 && !w->as_peft && !w->safe)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--peft-cpu"),
                              "--as-peft or --as-peft-safe beside it");
    if (paths->count < 2 + first && (how->adapter_only || w->as_peft || w->safe || how->combine))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf merge"), "at least one ADAPTER");
    sheaf_status *st = check_dst(paths);
    how->base = how->adapter_only ? NULL : paths->word[0];
    how->adapters = (const char *const *)paths->word + first;
    how->nadapters = paths->count - 1 - first;
    how->dst = paths->last;
    how->weights = w->weights != NULL && how->nadapters <= MOST_ADAPTERS ? w->weight : NULL;
    how->mode = w->safe      ? SHEAF_MERGE_LIKE_PEFT_SAFE
                : w->as_peft ? SHEAF_MERGE_LIKE_PEFT
                             : SHEAF_MERGE_ROUND_ONCE;
    if (how->weights != NULL)
        TRY(st, read_weights(w->weight, how->nadapters, w->weights));
    return st;
}

int cmd_merge(cli *cli, int argc, char **argv)
{
    sheaf_weights_merge_options how = { .size = sizeof how };
    sheaf_weights_merge_report report = { .size = sizeof report };
    words w = { 0 };
    const cli_option options[] = {
        { "as-peft", CLI_FLAG, &w.as_peft,
          "the bits of PEFT's merge_and_unload(); tied tables aside (docs/merge.md)" },
        { "as-peft-safe", CLI_FLAG, &w.safe,
          "the bits of merge_and_unload(safe_merge=True): the change is rounded before it is added" },
        { "peft-cpu", CLI_CHOICE, &how.peft_cpu,
          "with --as-peft: the processor that PEFT runs on; it matters above rank 192 (default this one)",
          .choices = cpus },
        { "combine", CLI_TEXT, &how.combine,
          "combine the adapters into one first, as PEFT's add_weighted_adapter does: linear or cat",
          "HOW" },
        { "weights", CLI_TEXT, &w.weights,
          "with --combine: a weight for each adapter (default 1 each)", "X,Y,..." },
        { "adapter-only", CLI_FLAG, &how.adapter_only,
          "with --combine, without BASE: write the combined adapter" },
        { "dtype", CLI_CHOICE, &how.dtype, "type of the written weights (default as in BASE)",
          .choices = cli_dtypes },
        { "quantize", CLI_CHOICE, &how.quantize,
          "quantise a plain BASE while it is read, as training did (default what the run was trained with)",
          .choices = sheaf__quantize_choices },
        { "plain-base", CLI_FLAG, &how.plain_base,
          "BASE is the plain model that was quantised for training: merge onto it as it is" },
        { "requantize", CLI_FLAG, &how.requantize,
          "BASE is in bitsandbytes' 4 or 8 bits: quantise changed weights again, copy the others (default: write plain weights)" },
        { "to", CLI_TEXT, &how.to,
          "form to write (default hf); sat gives what sheaf convert --to sat makes of the merged model, in one pass",
          "hf|sat" },
        { "tp", CLI_INT, &how.tp,
          "with --to sat: parts to write (default 1, of SAVE as many as it has)", .min = 1,
          .max = 1024 },
        { "config", CLI_PATH, &how.config, "the base's config.json, where its folder has none",
          "FILE" },
        { "threads", CLI_INT, &how.threads, "threads; 0 = all cores", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, settle(&how, &w, &paths));
    how.events = &cli->events;
    TRY(st, driver_signals_control(&how.control));
    TRY(st, driver_signals_explain(sheaf_weights_merge(&report, &how)));
    driver_progress_end(cli);
    if (st == NULL && cli->json)
        print_json(cli->out, &report, &how);
    else if (st == NULL)
        print_report(cli->out, &report, &how);
    return driver_report(cli, st);
}
