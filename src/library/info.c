/* info.c - describes a path as JSON: sheaf_path_info() of sheaf/checkpoint.h. */
#include <jansson.h>
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "base/numeric_env.h"
#include "base/json.h"
#include "base/json_write.h"
#include "catalog/coded.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/codes.h"
#include "dialects/hf/hf.h"
#include "library/run_model.h"
#include "library/structs.h"
#include "library/verify_all.h"
#include "lora/adapter.h"
#include "models/open.h"
#include "monitor/metrics.h"
#include "monitor/provenance.h"
#include "sheaf/checkpoint.h"
#include "train/rank.h"

typedef struct info {
    sheaf_json_writer json;
    sheaf_text odd; /* the list "odd" */
    bool tensors;
} info;

/* Adds a status to "odd" as text; frees it. */
static void put_odd(info *t, sheaf_status *st)
{
    if (st == NULL)
        return;
    sheaf_text text = { 0 };
    const char *const part[] = { sheaf_status_expected(st), sheaf_status_found(st),
                                 sheaf_status_try(st) };
    static const char *const name[] = { "expected ", "found ", "try: " };
    sheaf__text_add(&text, "%s", sheaf_status_where(st));
    for (int i = 0; i < 3; i++)
        if (part[i][0] != '\0')
            sheaf__text_add(&text, "; %s%s", name[i], part[i]);
    sheaf__text_add(&t->odd, "%s", t->odd.size > 0 ? ", " : "");
    sheaf__text_json(&t->odd, text.failed ? "" : text.at);
    sheaf__text_release(&text);
    sheaf_status_free(st);
}

/* ---- tensors ---- */

static void put_list(sheaf_json_writer *j, const sheaf_source_entry *const *list, int64_t n)
{
    sheaf__json_open(j, "list", '[');
    for (int64_t i = 0; i < n; i++) {
        sheaf__json_put(j, "{ name:s dtype:s shape:[", list[i]->name,
                        sheaf_dtype_name(list[i]->dtype));
        for (int d = 0; d < list[i]->ndim; d++)
            sheaf__json_put_int(j, NULL, list[i]->shape[d]);
        sheaf__json_put(j, "] }");
    }
    sheaf__json_close(j, ']');
}

/* Types, and bytes as they are stored; of codes, and of types of GGUF files that are read as
 * others, what `catalog` (may be NULL) knows of them. */
static void put_entries(info *t, const sheaf_source_entry *const *list, int64_t n,
                        const sheaf_catalog *catalog)
{
    int64_t elements = 0, bits = 0, of[SHEAF_DTYPE_COUNT] = { 0 }, coded[SHEAF__CODES] = { 0 },
            blocks[SHEAF__GGML_TYPES] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        int64_t rows, cols;
        const sheaf_logical *l =
            catalog == NULL ? NULL : sheaf__catalog_find(catalog, list[i]->name);
        sheaf__entry_view(&rows, &cols, list[i]);
        elements += rows * cols;
        if (l != NULL && l->coded != NULL) {
            bits += 8 * sheaf__coded_bytes(l->coded);
            coded[l->coded->form.codes]++;
            continue;
        }
        if (l != NULL && l->npieces > 0 && l->piece[0].converted) { /* all of one type */
            const sheaf__gguf_type type = l->piece[0].stored;
            bits += 8 * rows * cols / sheaf__gguf_type_block(type) * sheaf__gguf_type_bytes(type);
            blocks[type]++;
            continue;
        }
        bits += rows * cols * sheaf_dtype_bits(list[i]->dtype);
        of[list[i]->dtype]++;
    }
    sheaf__json_put(&t->json, "tensors:d elements:d bytes:d dtypes:{", n, elements, bits / 8);
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        if (of[d] > 0)
            sheaf__json_put_int(&t->json, sheaf_dtype_name((sheaf_dtype)d), of[d]);
    for (int k = 0; k < SHEAF__CODES; k++)
        if (coded[k] > 0)
            sheaf__json_put_int(&t->json, sheaf__codes_name((sheaf__codes)k), coded[k]);
    for (int k = 0; k < SHEAF__GGML_TYPES; k++)
        if (blocks[k] > 0)
            sheaf__json_put_int(&t->json, sheaf__gguf_type_at(k)->name, blocks[k]);
    sheaf__json_close(&t->json, '}');
    if (t->tensors)
        put_list(&t->json, list, n);
}

static sheaf_status *put_tensors(info *t, sheaf_source *source, const sheaf_catalog *catalog)
{
    const int64_t n = source != NULL ? source->count(source) : catalog->count;
    const sheaf_source_entry **list = calloc((size_t)n + 1, sizeof *list);
    if (list == NULL)
        return sheaf__no_memory("list of tensors");
    for (int64_t i = 0; i < n; i++)
        list[i] = source != NULL ? source->entry(source, i) : &catalog->tensor[i].entry;
    put_entries(t, list, n, catalog);
    free(list);
    return NULL;
}

/* ---- trained parameters ---- */

/* Elements and bytes of trained tensors: the masters of a checkpoint, or all of an adapter;
 * `added`: those not in the base. */
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
        sheaf__entry_view(&rows, &cols, e);
        sum.count += rows * cols;
        sum.bytes += rows * cols * sheaf_dtype_bits(e->dtype) / 8;
        sum.added += schema == NULL || sheaf_schema_find(schema, e->name + (is ? n : 0)) == NULL
                         ? rows * cols
                         : 0;
    }
    return sum;
}

/* model, config: where the base may be; without it there is no share. */
static void put_trained(info *t, sheaf_source *source, const char *model, const char *config,
                        bool masters)
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
    sheaf__json_put(&t->json, "trained:d trained_bytes:d", sum.count, sum.bytes);
    if (schema != NULL) {
        const int64_t all = sheaf__parameters(schema);
        sheaf__json_put(&t->json, "parameters:d trained_share:f", all,
                        (double)sum.count / (double)(all + sum.added));
    }
    sheaf_status_free(st);
    sheaf__opened_close(&base);
}

/* The number of parameters that the run, or step, at `path` trains. */
static void put_trained_by(info *t, sheaf_checkpoint *checkpoint, const char *path)
{
    char *model, *config;
    sheaf_source *source = NULL;
    sheaf_status_free(
        sheaf__run_model_base(&model, &config, path)); /* unknown facts are left out */
    sheaf_status *st = sheaf__checkpoint_source(&source, checkpoint);
    if (st == NULL) {
        put_trained(t, source, model, config, true);
        source->close(source);
    }
    put_odd(t, st);
    free(model);
    free(config);
}

/* ---- checkpoints ---- */

/* The progress of a checkpoint, without "evaluation" if there was none. */
static json_t *progress_of(const char *text)
{
    json_t *progress = json_loads(text, 0, NULL), *judged = json_object_get(progress, "evaluation");
    if (json_integer_value(json_object_get(judged, "best")) > 0)
        return progress;
    if (json_integer_value(json_object_get(judged, "last")) > 0) { /* none was finite */
        json_object_set_new(judged, "best", json_null());
        json_object_set_new(judged, "best_loss", json_null());
    } else {
        json_object_del(progress, "evaluation");
    }
    return progress;
}

static void put_checkpoint(info *t, sheaf_checkpoint *c, const char *path)
{
    json_t *progress = progress_of(c->manifest->progress);
    sheaf__json_put(&t->json, "step:d slices:i contract:i", c->manifest->step, c->manifest->slices,
                    SHEAF__CONTRACT);
    put_trained_by(t, c, path);
    char *text = NULL;
    put_odd(t, sheaf__json_text(&text, progress, JSON_SORT_KEYS));
    if (text != NULL)
        sheaf__json_put_raw(&t->json, "progress", text);
    free(text);
    json_decref(progress);
}

/* The complete checkpoints of a run, and the progress of the newest. */
static void put_saved(info *t, const char *dir, const char *path_of_run)
{
    char **names = NULL, path[SHEAF_PATH_SIZE];
    int64_t n = 0;
    sheaf_checkpoint *newest = NULL;
    put_odd(t, sheaf__list_dir(&names, &n, dir));
    sheaf__json_open(&t->json, "checkpoints", '[');
    for (int64_t i = 0; i < n; i++) {
        int64_t step;
        if (!sheaf__step_of(&step, names[i], false))
            continue;
        sheaf_checkpoint *c = NULL; /* whatever else is in the folder */
        sheaf_status *st = sheaf_checkpoint_open(&c, sheaf__path_in(path, dir, names[i]));
        if (st != NULL) {
            put_odd(t, st);
            continue;
        }
        sheaf__json_put_int(&t->json, NULL, step);
        sheaf_checkpoint_close(newest);
        newest = c;
    }
    sheaf__json_close(&t->json, ']');
    if (newest != NULL)
        put_checkpoint(t, newest, path_of_run);
    sheaf_checkpoint_close(newest);
    sheaf__names_free(names, n);
}

/* ---- progress of a run ---- */

/* All steps of the run, from the newest start in run.json; 0: not stated. */
static int64_t steps_of(const char *path)
{
    json_t *root = NULL;
    char file[SHEAF_PATH_SIZE];
    if (sheaf__path_kind(sheaf__path_in(file, path, "run.json")) == SHEAF_PATH_FILE)
        sheaf_status_free(sheaf__json_load(&root, file));
    const int64_t steps = sheaf_provenance_steps(root);
    json_decref(root);
    return steps;
}

static void put_loss(info *t, const char *key, double loss)
{
    if (isfinite(loss))
        sheaf__json_put_real(&t->json, key, loss);
    else
        sheaf__json_put_text(&t->json, key, "not finite");
}

static void put_last(info *t, const sheaf__metrics_last *m)
{
    if (m->step > 0)
        put_loss(t, "loss", m->loss);
    if (m->eval_step > 0) {
        sheaf__json_put_int(&t->json, "evaluated_at", m->eval_step);
        put_loss(t, "eval_loss", m->eval_loss);
    }
    if (m->tokens_per_s > 0)
        sheaf__json_put_real(&t->json, "tokens_per_s", m->tokens_per_s);
}

static void put_state(info *t, const char *path)
{
    char file[SHEAF_PATH_SIZE];
    sheaf__metrics_last m = { 0 };
    sheaf_status *st = NULL;
    if (sheaf__path_kind(sheaf__path_in(file, path, "metrics.jsonl")) == SHEAF_PATH_FILE)
        st = sheaf__metrics_read(&m, file);
    const bool running = sheaf__checkpoints_busy(path);
    const int64_t steps = steps_of(path);
    sheaf__json_put(&t->json, "state:s last_step:d", sheaf_provenance_state(running, m.step, steps),
                    m.step);
    if (steps > 0)
        sheaf__json_put_int(&t->json, "steps", steps);
    put_last(t, &m);
    if (running && steps > m.step && m.seconds_per_step > 0)
        sheaf__json_put_real(&t->json, "seconds_left",
                             m.seconds_per_step * (double)(steps - m.step));
    put_odd(t, st);
}

static void put_run(info *t, const char *path)
{
    static const char *const parts[] = { "settings",      "adapter",  "model",    "exports",
                                         "metrics.jsonl", "run.json", "best.json" };
    char inside[SHEAF_PATH_SIZE];
    put_state(t, path);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (sheaf__path_has(path, parts[i], SHEAF_PATH_NONE))
            sheaf__json_put_text(&t->json, parts[i], sheaf__path_in(inside, path, parts[i]));
    put_saved(t, sheaf__path_in(inside, path, "checkpoints"), path);
}

static sheaf_status *put_metrics(info *t, const char *path)
{
    sheaf__metrics_last m;
    sheaf_status *st = sheaf__metrics_read(&m, path);
    if (st != NULL && m.step == 0 && m.eval_step == 0)
        return st;
    sheaf__json_put(&t->json, "path:s kind:s last_step:d", path, "metrics", m.step);
    put_last(t, &m);
    put_odd(t, st);
    return NULL;
}

/* ---- kinds ---- */

static void put_model(info *t, const sheaf_probe *probe, const sheaf_catalog *catalog)
{
    sheaf_config c;
    if (probe->config == NULL) {
        put_odd(t, sheaf_fail(SHEAF_E_LAYOUT, "no config.json"));
        return;
    }
    const char *read = catalog == NULL ? NULL : catalog->config; /* with what tensors say */
    sheaf_status *st =
        read == NULL ? sheaf_config_read(&c, probe->config)
                     : sheaf_in(sheaf_config_parse(&c, read, strlen(read)), "%s", probe->config);
    const sheaf_finding *unsupported =
        catalog != NULL ? sheaf__catalog_finding(catalog, "unsupported") : NULL;
    if (st != NULL && unsupported != NULL) { /* it may recognise the model by its tensors */
        sheaf_status_free(st);
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", unsupported->path),
                                        "%s", unsupported->expected),
                         "%s", unsupported->found);
    }
    if (st != NULL) {
        put_odd(t, st);
        return;
    }
    sheaf__json_put(
        &t->json,
        "family:s vocabulary:d hidden:d ffn:d layers:d heads:d kv_heads:d head_dim:d tied:b tokenizer:s",
        sheaf_family_name(c.family), c.vocab, c.hidden, c.ffn, c.layers, c.heads, c.kv_heads,
        c.head_dim, c.tied, c.byte_vocab ? "bytes" : "its own");
    sheaf_schema *schema = NULL;
    st = sheaf_schema_new(&schema, &c, 8);
    if (st == NULL) {
        sheaf__json_put_int(&t->json, "parameters", sheaf__parameters(schema));
        st = sheaf_hf_check(probe->source, schema, c.json);
    }
    put_odd(t, st);
    if (c.unknown_keys != NULL)
        sheaf__json_put_text(&t->json, "unknown_keys", c.unknown_keys);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

static void put_names(info *t, const char *key, const sheaf_lora_names *names)
{
    sheaf__json_open(&t->json, key, '[');
    for (int i = 0; i < names->n; i++)
        sheaf__json_put_text(&t->json, NULL, names->list[i]);
    sheaf__json_close(&t->json, ']');
}

/* Has it factors of a table, the head or parameters, which no DoRA runs with? */
static bool only_merges(const sheaf_lora_options *o, sheaf_source *factors)
{
    bool other = o->parameters.n > 0;
    for (int64_t i = 0; factors != NULL && i < factors->count(factors); i++) {
        const char *name = factors->entry(factors, i)->name;
        other |= strstr(name, ".lora_embedding_") != NULL || strstr(name, "lm_head.lora_") != NULL;
    }
    return other;
}

static void put_adapter(info *t, const sheaf_probe *probe)
{
    sheaf_lora_options o;
    if (probe->config == NULL) {
        put_odd(t, sheaf_fail(SHEAF_E_LAYOUT, "no adapter_config.json"));
        return;
    }
    sheaf_status *st = sheaf_lora_options_read(&o, probe->config, NULL);
    if (st != NULL) {
        put_odd(t, st);
        return;
    }
    sheaf__json_put(&t->json, "base:s rank:d alpha:f", o.base_name, o.rank, o.alpha);
    if (o.all_linear || o.targets.regex != NULL)
        sheaf__json_put_text(&t->json, "targets", o.all_linear ? "all-linear" : o.targets.regex);
    else
        put_names(t, "targets", &o.targets);
    if (o.parameters.n > 0) { /* how they are read depends on the version */
        put_names(t, "target_parameters", &o.parameters);
        sheaf__json_put_text(&t->json, "peft_version", o.peft_version);
    }
    if (o.dora || o.lora_bias || o.ntokens > 0)
        sheaf__json_put_text(&t->json, "variant",
                             o.lora_bias && o.dora ? "DoRA with a bias on B (merge only)"
                             : o.lora_bias         ? "LoRA with a bias on B (merge only)"
                             : o.ntokens > 0       ? "LoRA and trained token rows (merge only)"
                             : only_merges(&o, probe->source) ? "DoRA (merge only)"
                                                              : "DoRA");
    if (o.unknown_keys != NULL)
        sheaf__json_put_text(&t->json, "unknown_keys", o.unknown_keys);
    const bool there = o.base_name != NULL && sheaf__path_kind(o.base_name) ==
                                                  SHEAF_PATH_DIR; /* it may be a name on a hub */
    if (probe->source != NULL)
        put_trained(t, probe->source, there ? o.base_name : NULL, NULL, false);
    sheaf_lora_options_release(&o);
}

static void put_forms(info *t, const sheaf_catalog *c)
{
    sheaf_text forms = { 0 };
    int64_t coded = 0;
    sheaf__catalog_forms(&forms, &coded, c);
    if (coded > 0)
        sheaf__json_put(&t->json, "quantization:s quantized_tensors:d",
                        forms.failed ? "" : forms.at, coded);
    sheaf__text_release(&forms);
}

/* Facts from the catalog of any dialect, beside those of the kind. */
static void put_catalog(info *t, const sheaf_verify_report *r, bool sizes)
{
    const sheaf_catalog *c = r->catalog;
    const struct {
        const char *key;
        int64_t value;
        bool is; /* known, or printed nowhere else */
    } counts[] = { { "tp", c->tp, c->tp > 0 },
                   { "pp", c->pp, c->pp > 0 },
                   { "dp", c->dp, c->dp > 0 },
                   { "step", c->step, sizes && c->step >= 0 },
                   { "vocabulary", c->vocab, sizes && c->vocab >= 0 },
                   { "padded", c->padded_vocab, c->padded_vocab >= 0 },
                   { "lora_tensors", r->factors, r->factors > 0 },
                   { "moments", r->moments, r->moments > 0 } };
    sheaf__json_put_text(&t->json, "dialect", c->dialect->name);
    if (c->model != NULL)
        sheaf__json_put_text(&t->json, "model", c->model);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].is)
            sheaf__json_put_int(&t->json, counts[i].key, counts[i].value);
    put_forms(t, c);
    sheaf__json_open(&t->json, "findings", '[');
    for (int64_t i = 0; i < c->nfindings; i++)
        sheaf__json_put_finding(&t->json, &c->finding[i]);
    sheaf__json_close(&t->json, ']');
}

static sheaf_status *put_path(info *t, const char *path)
{
    sheaf_probe probe;
    sheaf_verify_report report = { 0 };
    const sheaf_weights_verify_options quick = { .quick = true };
    const char *slash = strrchr(path, '/');
    if (strcmp(slash == NULL ? path : slash + 1, "metrics.jsonl") == 0 &&
        sheaf__path_kind(path) == SHEAF_PATH_FILE)
        return put_metrics(t, path);
    sheaf_status *st = sheaf_probe_open(&probe, path, false);
    sheaf_status *bad = sheaf__verify_all(&report, path, &quick);
    const bool foreign =
        report.catalog != NULL &&
        (st != NULL || (probe.kind == SHEAF_WEIGHTS_MODEL && !report.catalog->dialect->plain));
    if (st != NULL && foreign) {
        sheaf_status_free(st);
        st = NULL;
    }
    sheaf_status_free(bad);
    if (st != NULL) {
        sheaf_verify_release(&report);
        return st;
    }
    const char *kind = foreign ? "checkpoint" : sheaf_probe_kind_name(probe.kind);
    sheaf__json_put(&t->json, "path:s kind:s", path, kind);
    if (report.catalog != NULL)
        put_catalog(t, &report, foreign);
    if (foreign)
        st = put_tensors(t, NULL, report.catalog);
    else if (probe.kind == SHEAF_WEIGHTS_MODEL)
        put_model(t, &probe, report.catalog);
    else if (probe.kind == SHEAF_WEIGHTS_ADAPTER)
        put_adapter(t, &probe);
    else if (probe.kind == SHEAF_WEIGHTS_CHECKPOINT)
        put_checkpoint(t, probe.checkpoint, path);
    else if (probe.kind == SHEAF_WEIGHTS_RUN)
        put_run(t, path);
    if (!foreign && probe.source != NULL)
        st = put_tensors(t, probe.source, report.catalog);
    sheaf_verify_release(&report);
    sheaf_probe_close(&probe);
    return st;
}

sheaf_status *sheaf_path_info(char **json, const char *path, const sheaf_path_info_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_path_info_options o;
    info t = { 0 };
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_path_info_options");
    *json = NULL;
    if (st == NULL && path == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_path_info"), "a path");
    t.tensors = o.tensors;
    sheaf__json_begin(&t.json);
    TRY(st, put_path(&t, path));
    if (t.odd.size > 0) {
        sheaf_text list = { 0 };
        sheaf__text_add(&list, "[%s]", t.odd.at);
        sheaf__json_put_raw(&t.json, "odd", list.failed || t.odd.failed ? "null" : list.at);
        sheaf__text_release(&list);
    }
    sheaf__json_end(&t.json);
    TRY(st, sheaf__text_take(json, &t.json.text));
    sheaf__text_release(&t.json.text);
    sheaf__text_release(&t.odd);
    return st;
}
