/* info.c - `sheaf info`: what is this? */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/print.h"
#include "base/file.h"
#include "checkpoint/store/look.h"
#include "checkpoint/store/step.h"
#include "commands.h"
#include "dialects/hf/hf.h"
#include "findings.h"
#include "info_tell.h"
#include "lora/adapter.h"
#include "machine.h"
#include "models/open.h"
#include "library/run_model.h"
#include "library/verify_all.h"
#include "cli/lib/shared.h"
#include "train/rank.h"

const char cmd_info_usage[] =
    "usage: sheaf info PATH... [FLAG...]\n"
    "       sheaf info --machine [--measure]\n"
    "Says what a folder or file holds: a model or checkpoint of any program (docs/dialects.md), a\n"
    "PEFT adapter, the folder of a run, or a .safetensors file; its tensors and types, and what is\n"
    "odd about it. No data is read: sheaf verify reads all of it.\n";

void info_fact(info_teller *t, const char *key, const char *value)
{
    if (t->cli->json)
        sheaf__json_put_text(&t->json, key, value);
    else
        sheaf__print(t->cli->out, "  %-14s %s\n", key, value);
}

void info_fact_int(info_teller *t, const char *key, int64_t value)
{
    if (t->cli->json)
        sheaf__json_put_int(&t->json, key, value);
    else
        sheaf__print(t->cli->out, "  %-14s %" PRId64 "\n", key, value);
}

void info_fact_real(info_teller *t, const char *key, double value)
{
    if (t->cli->json)
        sheaf__json_put_real(&t->json, key, value);
    else
        sheaf__print(t->cli->out, "  %-14s %g\n", key, value);
}

void info_list_of(info_teller *t, const char *key, const sheaf_text *items)
{
    sheaf_text list = { 0 };
    sheaf__text_add(&list, "[%s]", items->at != NULL ? items->at : "");
    if (!list.failed && !items->failed)
        sheaf__json_put_raw(&t->json, key, list.at);
    sheaf__text_release(&list);
}

void info_odd(info_teller *t, sheaf_status *st)
{
    if (st == NULL)
        return;
    sheaf_text text = { 0 };
    const char *expected = sheaf_status_expected(st), *found = sheaf_status_found(st),
               *cure = sheaf_status_try(st);
    sheaf__text_add(&text, "%s", sheaf_status_where(st));
    if (*expected != '\0')
        sheaf__text_add(&text, "; expected %s", expected);
    if (*found != '\0')
        sheaf__text_add(&text, "; found %s", found);
    if (*cure != '\0')
        sheaf__text_add(&text, "; try: %s", cure);
    if (t->cli->json) { /* all of them in one list, at the end */
        sheaf__text_add(&t->odd, "%s", t->odd.size > 0 ? ", " : "");
        sheaf__text_json(&t->odd, text.failed ? "" : text.at);
    } else
        info_fact(t, "odd", text.failed ? "" : text.at);
    sheaf__text_release(&text);
    sheaf_status_free(st);
}

void info_end(info_teller *t)
{
    if (t->cli->json && t->odd.size > 0)
        info_list_of(t, "odd", &t->odd);
    if (t->cli->json)
        sheaf__json_close(&t->json, '}');
    sheaf__text_release(&t->odd);
}

/* ---- tensors ---- */

static void tell_tensor(info_teller *t, const sheaf_source_entry *e)
{
    if (t->cli->json) {
        sheaf__json_open(&t->json, NULL, '{');
        sheaf__json_put_text(&t->json, "name", e->name);
        sheaf__json_put_text(&t->json, "dtype", sheaf_dtype_name(e->dtype));
        sheaf__json_open(&t->json, "shape", '[');
        for (int i = 0; i < e->ndim; i++)
            sheaf__json_put_int(&t->json, NULL, e->shape[i]);
        sheaf__json_close(&t->json, ']');
        sheaf__json_close(&t->json, '}');
        return;
    }
    sheaf__print(t->cli->out, "    %-5s [", sheaf_dtype_name(e->dtype));
    for (int i = 0; i < e->ndim; i++)
        sheaf__print(t->cli->out, "%s%" PRId64, i == 0 ? "" : ", ", e->shape[i]);
    sheaf__print(t->cli->out, "] %s\n", e->name);
}

static void tell_entries(info_teller *t, const sheaf_source_entry *const *list, int64_t n)
{
    int64_t elements = 0, bits = 0, of[SHEAF_DTYPE_COUNT] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        int64_t rows, cols;
        sheaf__look_view(&rows, &cols, list[i]);
        elements += rows * cols;
        bits += rows * cols * sheaf_dtype_bits(list[i]->dtype);
        of[list[i]->dtype]++;
    }
    sheaf_text types = { 0 };
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        if (of[d] > 0)
            sheaf__text_add(&types, "%s%s (%" PRId64 ")", types.size > 0 ? ", " : "",
                            sheaf_dtype_name((sheaf_dtype)d), of[d]);
    info_fact_int(t, "tensors", n);
    info_fact_int(t, "elements", elements);
    info_fact_int(t, "bytes", bits / 8);
    if (t->cli->json) {
        sheaf__json_open(&t->json, "dtypes", '{');
        for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
            if (of[d] > 0)
                sheaf__json_put_int(&t->json, sheaf_dtype_name((sheaf_dtype)d), of[d]);
        sheaf__json_close(&t->json, '}');
    } else
        info_fact(t, "dtypes", types.size > 0 ? types.at : "none");
    sheaf__text_release(&types);
    if (!t->tensors)
        return;
    if (t->cli->json)
        sheaf__json_open(&t->json, "list", '[');
    for (int64_t i = 0; i < n; i++)
        tell_tensor(t, list[i]);
    if (t->cli->json)
        sheaf__json_close(&t->json, ']');
}

static sheaf_status *tell_tensors(info_teller *t, sheaf_source *source,
                                  const sheaf_catalog *catalog)
{
    const int64_t n = source != NULL ? source->count(source) : catalog->count;
    const sheaf_source_entry **list = calloc((size_t)n + 1, sizeof *list);
    if (list == NULL)
        return sheaf__no_memory("list of tensors");
    for (int64_t i = 0; i < n; i++)
        list[i] = source != NULL ? source->entry(source, i) : &catalog->tensor[i].told;
    tell_entries(t, list, n);
    free(list);
    return NULL;
}

/* ---- what is trained ---- */

/* Elements and bytes of what was trained: of a checkpoint the masters, of an adapter all. Of them
 * `added`: what the base has not. */
typedef struct trained {
    int64_t count, bytes, added;
} trained;

static trained count_trained(sheaf_source *source, const sheaf_schema *schema, bool masters)
{
    static const char master[] = "master/";
    const size_t n = sizeof master - 1;
    trained sum = { 0 };
    for (int64_t i = 0; i < source->count(source); i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const bool is = strncmp(e->name, master, n) == 0;
        int64_t rows, cols;
        if (masters && !is)
            continue;
        sheaf__look_view(&rows, &cols, e);
        sum.count += rows * cols;
        sum.bytes += rows * cols * sheaf_dtype_bits(e->dtype) / 8;
        sum.added += schema == NULL || sheaf_schema_find(schema, e->name + (is ? n : 0)) == NULL
                         ? rows * cols
                         : 0;
    }
    return sum;
}

/* model, config: where the base may be; where it is not, there is no share to tell. */
static void tell_trained(info_teller *t, sheaf_source *source, const char *model,
                         const char *config, bool masters)
{
    sheaf__opened base = { 0 };
    sheaf_status *st = model == NULL && config == NULL
                           ? sheaf_fail(SHEAF_E_IO, "base")
                           : sheaf__open_model(&base, &(sheaf__open_options){ .model = model,
                                                                              .config = config,
                                                                              .config_only = true,
                                                                              .slices = 8 });
    const sheaf_schema *schema = st == NULL ? base.schema : NULL;
    const trained sum = count_trained(source, schema, masters);
    info_fact_int(t, "trained", sum.count);
    info_fact_int(t, "trained_bytes", sum.bytes);
    if (schema != NULL) {
        const int64_t all = sheaf__parameters(schema);
        info_fact_int(t, "parameters", all);
        info_fact_real(t, "trained_share", (double)sum.count / (double)(all + sum.added));
    }
    sheaf_status_free(st);
    sheaf__opened_close(&base);
}

void info_trained_by(info_teller *t, sheaf_checkpoint *checkpoint, const char *path)
{
    char *model, *config;
    sheaf_source *source = NULL;
    sheaf_status_free(
        sheaf__run_model_base(&model, &config, path)); /* what is not known of a run is left out */
    sheaf_status *st = sheaf__checkpoint_source(&source, checkpoint);
    if (st == NULL) {
        tell_trained(t, source, model, config, true);
        source->close(source);
    }
    info_odd(t, st);
    free(model);
    free(config);
}

/* ---- kinds ---- */

static void tell_model(info_teller *t, const sheaf_look *look, const sheaf_catalog *catalog)
{
    sheaf_config c;
    if (look->config == NULL) {
        info_odd(t, sheaf_fail(SHEAF_E_LAYOUT, "no config.json"));
        return;
    }
    sheaf_status *st = sheaf_config_read(&c, look->config);
    const sheaf_finding *told =
        catalog != NULL ? sheaf__catalog_finding(catalog, "unsupported") : NULL;
    if (st != NULL && told != NULL) { /* it may know the model by its tensors */
        sheaf_status_free(st);
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", told->path), "%s", told->expected),
            "%s", told->found);
    }
    if (st != NULL) {
        info_odd(t, st);
        return;
    }
    info_fact(t, "family", sheaf_family_name(c.family));
    info_fact_int(t, "vocabulary", c.vocab);
    info_fact_int(t, "hidden", c.hidden);
    info_fact_int(t, "ffn", c.ffn);
    info_fact_int(t, "layers", c.layers);
    info_fact_int(t, "heads", c.heads);
    info_fact_int(t, "kv_heads", c.kv_heads);
    info_fact_int(t, "head_dim", c.head_dim);
    if (t->cli->json)
        sheaf__json_put_bool(&t->json, "tied", c.tied);
    else
        info_fact(t, "tied", c.tied ? "yes" : "no");
    info_fact(t, "tokenizer", c.byte_vocab ? "bytes" : "its own");
    sheaf_schema *schema = NULL;
    st = sheaf_schema_new(&schema, &c, 8);
    if (st == NULL) {
        info_fact_int(t, "parameters", sheaf__parameters(schema));
        st = sheaf_hf_check(look->source, schema);
    }
    info_odd(t, st);
    if (c.unknown_keys != NULL)
        info_fact(t, "unknown_keys", c.unknown_keys);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

static void tell_adapter(info_teller *t, const sheaf_look *look)
{
    sheaf_lora_options o;
    if (look->config == NULL) {
        info_odd(t, sheaf_fail(SHEAF_E_LAYOUT, "no adapter_config.json"));
        return;
    }
    sheaf_status *st = sheaf_lora_options_read(&o, look->config, NULL);
    if (st != NULL) {
        info_odd(t, st);
        return;
    }
    sheaf_text targets = { 0 };
    for (int i = 0; i < o.targets.n; i++)
        if (t->cli->json) {
            sheaf__text_add(&targets, "%s", i > 0 ? ", " : "");
            sheaf__text_json(&targets, o.targets.list[i]);
        } else
            sheaf__text_add(&targets, "%s%s", i > 0 ? ", " : "", o.targets.list[i]);
    if (t->cli->json)
        sheaf__json_put_text(&t->json, "base", o.base_name);
    else
        info_fact(t, "base", o.base_name != NULL ? o.base_name : "not said");
    info_fact_int(t, "rank", o.rank);
    info_fact_real(t, "alpha", o.alpha);
    if (t->cli->json && !o.all_linear && o.targets.regex == NULL)
        info_list_of(t, "targets", &targets);
    else
        info_fact(t, "targets",
                  o.all_linear              ? "all-linear"
                  : o.targets.regex != NULL ? o.targets.regex
                  : targets.size > 0        ? targets.at
                                            : "none");
    if (o.dora || o.lora_bias || o.ntokens > 0)
        info_fact(t, "kind",
                  o.dora        ? "DoRA (merge only)"
                  : o.lora_bias ? "LoRA with a bias on B (merge only)"
                                : "LoRA and trained token rows (merge only)");
    if (o.unknown_keys != NULL)
        info_fact(t, "unknown_keys", o.unknown_keys);
    sheaf__text_release(&targets);
    const bool there = o.base_name != NULL && sheaf__path_kind(o.base_name) ==
                                                  SHEAF_PATH_DIR; /* it may be a name on a hub */
    if (look->source != NULL)
        tell_trained(t, look->source, there ? o.base_name : NULL, NULL, false);
    sheaf_lora_options_release(&o);
}

/* What the catalog of any dialect says, beside what the kind has to say. */
static void tell_catalog(info_teller *t, const sheaf_verification *v, bool sizes)
{
    const sheaf_verify_report *r = &v->report;
    const sheaf_catalog *c = r->catalog;
    info_fact(t, "dialect", c->dialect->name);
    if (c->model != NULL)
        info_fact(t, "model", c->model);
    if (c->tp > 0)
        info_fact_int(t, "tp", c->tp);
    if (c->pp > 0)
        info_fact_int(t, "pp", c->pp);
    if (c->dp > 0)
        info_fact_int(t, "dp", c->dp);
    if (sizes && c->step >= 0)
        info_fact_int(t, "step", c->step);
    if (sizes && c->vocab >= 0)
        info_fact_int(t, "vocabulary", c->vocab);
    if (c->padded_vocab >= 0)
        info_fact_int(t, "padded", c->padded_vocab);
    if (r->factors > 0)
        info_fact_int(t, "lora_tensors", r->factors);
    if (r->moments > 0)
        info_fact_int(t, "moments", r->moments);
    if (t->cli->json) {
        sheaf__json_open(&t->json, "findings", '[');
        cli_findings_json(&t->json, v);
        sheaf__json_close(&t->json, ']');
    }
}

/* A checkpoint that only its catalog can be told of: foreign, or not whole. */
static sheaf_status *tell_foreign(info_teller *t, const sheaf_verification *v)
{
    tell_catalog(t, v, true);
    if (!t->cli->json)
        cli_findings_print(t->cli->out, v, 12, true);
    return tell_tensors(t, NULL, v->report.catalog);
}

static sheaf_status *tell_path(info_teller *t, const char *path)
{
    sheaf_look look;
    sheaf_verification v = { 0 };
    const sheaf_weights_verify_options quick = { .quick = true };
    const char *slash = strrchr(path, '/');
    if (strcmp(slash == NULL ? path : slash + 1, "metrics.jsonl") == 0 &&
        sheaf__path_kind(path) == SHEAF_PATH_FILE)
        return info_metrics(t, path);
    sheaf_status *st = sheaf_look_open(&look, path);
    sheaf_status *bad = sheaf__verify_all(&v.report, path, &quick);
    const bool foreign =
        v.report.catalog != NULL &&
        (st != NULL || (look.kind == SHEAF_LOOK_MODEL && !v.report.catalog->dialect->plain));
    if (st != NULL && foreign) {
        sheaf_status_free(st);
        st = NULL;
    }
    sheaf_status_free(bad);
    if (st != NULL) {
        sheaf_verify_release(&v.report);
        return st;
    }
    const char *kind = foreign ? "checkpoint" : sheaf_look_kind_name(look.kind);
    if (t->cli->json) {
        sheaf__json_open(&t->json, NULL, '{');
        sheaf__json_put_text(&t->json, "path", path);
        sheaf__json_put_text(&t->json, "kind", kind);
    } else
        sheaf__print(t->cli->out, "%s: %s\n", path, kind);
    if (!foreign && v.report.catalog != NULL)
        tell_catalog(t, &v, false);
    if (foreign)
        st = tell_foreign(t, &v);
    else if (look.kind == SHEAF_LOOK_MODEL)
        tell_model(t, &look, v.report.catalog);
    else if (look.kind == SHEAF_LOOK_ADAPTER)
        tell_adapter(t, &look);
    else if (look.kind == SHEAF_LOOK_CHECKPOINT)
        info_checkpoint(t, look.checkpoint, path);
    else if (look.kind == SHEAF_LOOK_RUN)
        info_run(t, path);
    if (!foreign && look.source != NULL)
        st = tell_tensors(t, look.source, NULL);
    info_end(t);
    sheaf_verify_release(&v.report);
    sheaf_look_close(&look);
    return st;
}

static sheaf_status *tell_rates(info_teller *t)
{
    cli_rate rates[CLI_RATES];
    sheaf_status *st = cli_machine_measure(rates);
    if (st != NULL)
        return st;
    if (t->cli->json)
        sheaf__json_open(&t->json, "gflops", '{');
    for (int i = 0; i < CLI_RATES; i++) {
        if (t->cli->json && rates[i].gflops > 0)
            sheaf__json_put_real(&t->json, rates[i].key, rates[i].gflops);
        else if (t->cli->json)
            sheaf__json_put_text(&t->json, rates[i].key, NULL);
        else if (rates[i].gflops > 0)
            sheaf__print(t->cli->out, "  %-28s %8.1f GFLOP/s a core\n", rates[i].name,
                         rates[i].gflops);
        else
            sheaf__print(t->cli->out, "  %-28s not on this machine\n", rates[i].name);
    }
    if (t->cli->json)
        sheaf__json_close(&t->json, '}');
    return NULL;
}

static sheaf_status *tell_machine(info_teller *t, bool measure)
{
    sheaf_status *st = NULL;
    const cli_machine m = cli_machine_look();
    if (t->cli->json)
        sheaf__json_open(&t->json, "machine", '{');
    else
        sheaf__print(t->cli->out, "this machine\n");
    info_fact(t, "processor", m.name);
    info_fact(t, "kernels", m.kernels);
    info_fact(t, "pairs", m.pairs);
    info_fact(t, "tiles", m.tiles);
    info_fact(t, "bf16_sums", m.sums);
    info_fact_int(t, "cores", m.cores);
    info_fact_int(t, "memory", m.memory);
    info_fact_int(t, "available", m.available);
    if (measure)
        st = tell_rates(t);
    if (t->cli->json)
        sheaf__json_close(&t->json, '}');
    return st;
}

int cmd_info(cli *cli, int argc, char **argv)
{
    info_teller t = { .cli = cli };
    bool machine = false, measure = false;
    const cli_option options[] = {
        { "tensors", CLI_FLAG, &t.tensors, "list every tensor" },
        { "machine", CLI_FLAG, &machine, "what this machine offers" },
        { "measure", CLI_FLAG, &measure, "with --machine: how fast each kind of product is" },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && paths.count == 0 && !machine)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf info"), "a PATH, or --machine");
    if (st == NULL && measure && !machine)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--measure"), "--machine beside it");
    if (st == NULL && cli->json)
        sheaf__json_begin(&t.json);
    if (st == NULL && machine)
        st = tell_machine(&t, measure);
    if (st == NULL && cli->json)
        sheaf__json_open(&t.json, "paths", '[');
    for (int i = 0; st == NULL && i < paths.count; i++)
        st = tell_path(&t, paths.word[i]);
    if (st == NULL && cli->json) {
        sheaf__json_close(&t.json, ']');
        cli_json_end(cli->out, &t.json);
    }
    sheaf__text_release(&t.json.text);
    return cli_report(cli, st);
}
