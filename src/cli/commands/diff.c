/* diff.c - `sheaf diff`: which logical tensors differ. */
#include <inttypes.h>
#include <math.h>

#include "base/print.h"
#include "commands.h"
#include "sheaf/checkpoint.h"

const char cmd_diff_usage[] =
    "usage: sheaf diff A B [FLAG...]\n"
    "Compares two models, adapters, checkpoints or .safetensors files tensor by tensor.\n"
    "Undivided tensors are compared, whatever the shards, slices or order in files, also LoRA that\n"
    "is not merged, and the optimizer's moments if both have them. Exit code 0 when all bytes of all\n"
    "tensors agree and the configs mean the same, 1 if not.\n";

typedef struct telling {
    cli *cli;
    sheaf_json_writer json;
    double atol;
    bool beyond;           /* something differs by more than atol, or otherwise than by a number */
    int64_t shapes, alone; /* tensors of other shapes, and those that one side has alone */
} telling;

static void print_shape(FILE *to, const sheaf_source_entry *e)
{
    sheaf__print(to, "%s [", sheaf_dtype_name(e->dtype));
    for (int i = 0; i < e->ndim; i++)
        sheaf__print(to, "%s%" PRId64, i == 0 ? "" : ", ", e->shape[i]);
    sheaf__print(to, "]");
}

static void tell_text(FILE *to, const sheaf_diff_item *item)
{
    switch (item->kind) {
    case SHEAF_DIFF_CONFIG:
        sheaf__print(to, "config: %s: %s / %s\n", item->name,
                     item->a_text != NULL ? item->a_text : "nothing",
                     item->b_text != NULL ? item->b_text : "nothing");
        return;
    case SHEAF_DIFF_ONLY_A:
    case SHEAF_DIFF_ONLY_B:
        sheaf__print(to, "%s: only in %s\n", item->name,
                     item->kind == SHEAF_DIFF_ONLY_A ? "A" : "B");
        return;
    case SHEAF_DIFF_SHAPE:
    case SHEAF_DIFF_DTYPE:
        sheaf__print(to, "%s: ", item->name);
        print_shape(to, item->a);
        sheaf__print(to, " / ");
        print_shape(to, item->b);
        sheaf__print(to, item->kind == SHEAF_DIFF_SHAPE ? "\n" : ", ");
        if (item->kind == SHEAF_DIFF_SHAPE)
            return;
        break;
    case SHEAF_DIFF_VALUES: sheaf__print(to, "%s: ", item->name); break;
    }
    sheaf__print(to, "%" PRId64 " of %" PRId64 " elements differ", item->differing, item->elements);
    if (item->differing > 0)
        sheaf__print(to, ", by at most %.6g, first at %" PRId64, item->largest, item->first);
    sheaf__print(to, "\n");
}

static void json_shape(sheaf_json_writer *j, const char *key, const sheaf_source_entry *e)
{
    sheaf__json_open(j, key, '{');
    sheaf__json_put(j, "dtype:s shape:[", sheaf_dtype_name(e->dtype));
    for (int i = 0; i < e->ndim; i++)
        sheaf__json_put_int(j, NULL, e->shape[i]);
    sheaf__json_put(j, "] }");
}

static void json_value(sheaf_json_writer *j, const char *key, const char *json)
{
    if (json != NULL)
        sheaf__json_put_raw(j, key, json);
    else
        sheaf__json_put_text(j, key, NULL);
}

static void tell_json(sheaf_json_writer *j, const sheaf_diff_item *item)
{
    static const char *const kinds[] = { "values", "shape", "dtype", "only_a", "only_b", "config" };
    sheaf__json_put(j, "{ kind:s name:s", kinds[item->kind], item->name);
    if (item->kind == SHEAF_DIFF_CONFIG) {
        json_value(j, "a", item->a_text);
        json_value(j, "b", item->b_text);
    } else {
        if (item->a != NULL)
            json_shape(j, "a", item->a);
        if (item->b != NULL)
            json_shape(j, "b", item->b);
    }
    if (item->kind == SHEAF_DIFF_VALUES || item->kind == SHEAF_DIFF_DTYPE) {
        sheaf__json_put(j, "elements:d differing:d largest:f first:d", item->elements,
                        item->differing, item->largest, item->first);
    }
    sheaf__json_close(j, '}');
}

static void tell(void *context, const sheaf_diff_item *item)
{
    telling *t = context;
    const bool numbers = item->kind == SHEAF_DIFF_VALUES || item->kind == SHEAF_DIFF_DTYPE;
    t->shapes += item->kind == SHEAF_DIFF_SHAPE;
    t->alone += item->kind == SHEAF_DIFF_ONLY_A || item->kind == SHEAF_DIFF_ONLY_B;
    t->beyond |= !numbers || !(item->largest <= t->atol);
    driver_progress_clear(t->cli);
    if (t->cli->json)
        tell_json(&t->json, item);
    else
        tell_text(t->cli->out, item);
}

/* Results about optimizers and codes, to the end of the line. */
static void tell_rest(const cli *cli, const sheaf_weights_diff_report *r)
{
    const int64_t alone = r->moments_only_a + r->moments_only_b;
    if (r->moments > 0)
        sheaf__print(cli->out, "; %" PRId64 " of the tensors are moments of an optimizer",
                     r->moments);
    if (alone > 0)
        sheaf__print(cli->out, "; not compared: %" PRId64 " moments of an optimizer, only in %s",
                     alone, r->moments_only_a > 0 ? "A" : "B");
    if (r->forms > 0)
        sheaf__print(cli->out,
                     "; %" PRId64 " of the tensors are quantized otherwise in A than in "
                     "B: their values were compared, dequantised",
                     r->forms);
    sheaf__print(cli->out, "\n");
}

static void summary(telling *t, const sheaf_weights_diff_report *r)
{
    if (t->cli->json) {
        sheaf__json_put(
            &t->json,
            "] same:b tensors:d different:d shapes:d alone:d config_keys:d largest:f moments:d moments_only_a:d moments_only_b:d forms:d",
            r->same, r->tensors, r->different, t->shapes, t->alone, r->config_keys, r->largest,
            r->moments, r->moments_only_a, r->moments_only_b, r->forms);
        cli_json_end(t->cli->out, &t->json);
    } else if (r->same) {
        sheaf__print(t->cli->out, "equal: %" PRId64 " tensors, all %s agree", r->tensors,
                     r->forms > 0 ? "values" : "bytes");
        tell_rest(t->cli, r);
    } else {
        const int64_t values = r->different - t->shapes - t->alone;
        sheaf__print(t->cli->out, "%" PRId64 " of %" PRId64 " tensors differ", r->different,
                     r->tensors);
        if (t->shapes > 0)
            sheaf__print(t->cli->out, ", %" PRId64 " in shape", t->shapes);
        if (t->alone > 0)
            sheaf__print(t->cli->out, ", %" PRId64 " in one of the two alone", t->alone);
        if (values > 0 && values < r->different)
            sheaf__print(t->cli->out, ", %" PRId64 " by at most %.6g", values, r->largest);
        else if (values > 0)
            sheaf__print(t->cli->out, ", by at most %.6g", r->largest);
        sheaf__print(t->cli->out, "; %" PRId64 " config key%s", r->config_keys,
                     r->config_keys == 1 ? "" : "s");
        tell_rest(t->cli, r);
    }
}

int cmd_diff(cli *cli, int argc, char **argv)
{
    telling t = { .cli = cli };
    bool tolerant = false;
    const cli_option options[] = {
        { "atol", CLI_NUMBER, &t.atol,
          "exit code 0 also when no element differs by more than this" },
        { 0 },
    };
    cli_paths paths;
    sheaf_weights_diff_report report = { .size = sizeof report };
    sheaf_weights_diff_options how = {
        .size = sizeof how, .on_item = tell, .context = &t, .events = &cli->events
    };
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL) {
        tolerant = sheaf__settings_given(&cli->settings, options, "atol");
        if (cli->json) {
            sheaf__json_begin(&t.json);
            sheaf__json_open(&t.json, "differences", '[');
        }
        st = sheaf_weights_diff(&report, paths.word[0], paths.word[1], &how);
    }
    driver_progress_end(cli);
    if (st == NULL)
        summary(&t, &report);
    else
        sheaf__text_release(&t.json.text);
    return driver_answer(cli, st, report.same || (tolerant && !t.beyond));
}
