/* convert.c - see convert.h: reads, decides, and hands the tensors to the writer of the target. */
#include "checkpoint/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/text.h"
#include "checkpoint/convert_adapter.h"
#include "checkpoint/convert_slices.h"
#include "checkpoint/own_catalog.h"
#include "dialects/hf.h"
#include "dialects/hf_catalog.h"
#include "dialects/peft.h"
#include "dialects/sat_lora.h"
#include "dialects/sat_write.h"
#include "formats/safetensors.h"
#include "sheaf/schema.h"

enum { SLICES = 8 };

typedef struct converter {
    const sheaf_convert_options *o;
    sheaf_convert_report *report;
    sheaf_catalog *catalog;  /* until a source owns it */
    char *root, *config;     /* of the catalog, which may be gone */
    const char *dialect;     /* of the catalog, a literal */
    char *model;             /* NULL = not recognised */
    int64_t step;
    int64_t lora_rank;       /* of the adapter; 0 = none */
    bool has_config;         /* `parsed` and `schema` are there */
    sheaf_config parsed;
    sheaf_schema *schema;
    sheaf_source *source;    /* weights and buffers, in the wanted dtype */
    sheaf_source *moments;   /* the same catalog opened once more; NULL = not wanted */
    _Atomic int64_t done;
    int64_t total;
} converter;

static sheaf_status *no_memory(const converter *k) { return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", k->o->src); }

/* ---- reading ---- */

static void tell_findings(const converter *k)
{
    for (int64_t i = 0; i < k->catalog->nfindings; i++) {
        const sheaf_finding *f = &k->catalog->finding[i];
        if (f->severity == SHEAF_WARNING)
            sheaf_warn(k->o->events, "%s: %s%s%s%s%s", f->code, f->path, *f->tensor != '\0' ? ": " : "", f->tensor, *f->found != '\0' ? ": " : "", f->found);
        else if (f->severity == SHEAF_NOTE)
            sheaf_note(k->o->events, "%s: %s%s%s%s%s", f->code, f->path, *f->tensor != '\0' ? ": " : "", f->tensor, *f->found != '\0' ? ": " : "", f->found);
    }
}

static bool takes_parts(const char *dialect)
{
    return strcmp(dialect, "sat") == 0 || strcmp(dialect, "colossalai") == 0 || strcmp(dialect, "hf") == 0;
}

static sheaf_status *read_catalog(converter *k)
{
    const sheaf_convert_options *o = k->o;
    const sheaf_dialect_hints hints = { .config = o->config, .model = o->model_class, .also = o->also };
    sheaf_status *st = sheaf__any_read(&k->catalog, o->src, o->from, &hints);
    if (st != NULL)
        return st;
    const sheaf_catalog *c = k->catalog;
    if (o->also != NULL && *o->also != NULL && !takes_parts(c->dialect)) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", *o->also), "one SOURCE: parts of a %s checkpoint lie in one folder", c->dialect);
        return st;
    }
    tell_findings(k);
    snprintf(k->report->from, sizeof k->report->from, "%s", c->dialect);
    k->dialect = c->dialect;
    k->report->parts = o->tp > 0 ? o->tp : o->own_lora && c->tp > 0 ? c->tp : 1;
    k->step = o->step >= 0 ? o->step : c->step;
    k->root = strdup(c->root);
    k->config = c->config == NULL ? NULL : strdup(c->config);
    k->model = c->model == NULL ? NULL : strdup(c->model);
    if (k->root == NULL || (c->config != NULL && k->config == NULL) || (c->model != NULL && k->model == NULL))
        return no_memory(k);
    return NULL;
}

static int64_t count_kind(const sheaf_catalog *c, sheaf_kind kind)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++)
        n += c->tensor[i].kind == kind;
    return n;
}

/* Is there what own_lora wants merged? */
static sheaf_status *check_own_lora(const converter *k)
{
    const int64_t factors = count_kind(k->catalog, SHEAF_LORA);
    if (!k->o->own_lora || (factors > 0 && strcmp(k->dialect, "sat") == 0))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", k->o->src);
    sheaf_expected(st, "an SAT checkpoint with LoRA that is not merged, or an ADAPTER beside it");
    sheaf_found(st, factors == 0 ? "no LoRA in it" : "LoRA in a checkpoint of %s", k->dialect);
    return sheaf_try_this(st, "name the adapter's folder between the two");
}

/* The model that the config speaks of, where sheaf knows it. */
static sheaf_status *read_model(converter *k, int slices)
{
    if (k->config == NULL || strcmp(k->dialect, "peft") == 0)
        return NULL;
    sheaf_status *st = sheaf_config_parse(&k->parsed, k->config, strlen(k->config));
    if (st == NULL) {
        k->has_config = true;
        st = sheaf_schema_new(&k->schema, &k->parsed, slices);
    }
    const bool told = sheaf__catalog_finding(k->catalog, "unsupported") != NULL && st != NULL && sheaf_status_code(st) == SHEAF_E_FORMAT;
    if (st != NULL && (told || sheaf_status_code(st) == SHEAF_E_UNSUPPORTED)) { /* told by the reader */
        sheaf_status_free(st);
        st = NULL;
    }
    return st;
}

/* Only the moments of a catalog. */
static void keep_moments(sheaf_catalog *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->tensor[i].kind == SHEAF_MOMENT) {
            const sheaf_logical moved = c->tensor[n];
            c->tensor[n++] = c->tensor[i];
            c->tensor[i] = moved;
        }
    }
    for (int64_t i = n; i < c->count; i++) {
        free((char *)c->tensor[i].told.name);
        free(c->tensor[i].piece);
    }
    c->count = n;
}

static sheaf_status *open_moments(converter *k)
{
    const sheaf_dialect_hints hints = { .config = k->o->config, .model = k->o->model_class, .also = k->o->also };
    sheaf_catalog *c = NULL;
    sheaf_source *inner = NULL;
    if (!k->o->optimizer)
        return NULL;
    if (count_kind(k->catalog, SHEAF_MOMENT) == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", k->o->src), "moments of an optimizer, as --optimizer asks for"), "none");
    sheaf_status *st = sheaf__any_read(&c, k->o->src, k->o->from, &hints);
    if (st == NULL) {
        keep_moments(c);
        st = sheaf__catalog_source(&inner, c, true);
    }
    return st != NULL ? st : sheaf__cast_source(&k->moments, inner, NULL, k->o->stop);
}

/* The model and the factors of the adapter. `source` is closed after a failure. */
static sheaf_status *adapt(converter *k, sheaf_source **source)
{
    if (k->schema == NULL || (k->parsed.family != SHEAF_COGVLM && k->parsed.family != SHEAF_COGAGENT)) {
        (*source)->close(*source);
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--adapter"), "a model of CogVLM or CogAgent, for SAT's form"),
                              "sheaf merge %s %s DST", k->o->src, k->o->adapter);
    }
    sheaf_status *st = sheaf__adapted_source(source, &k->lora_rank, *source, k->schema, k->o->adapter);
    for (int64_t i = 0; st == NULL && i < (*source)->count(*source); i++)
        k->report->adapted += sheaf__ends_with((*source)->entry(*source, i)->name, ".matrix_A.0");
    return st;
}

/* Weights and buffers; LoRA that lies beside them is merged as SAT's own merge does. */
static sheaf_status *open_source(converter *k)
{
    sheaf_source *inner = NULL;
    sheaf_catalog *c = k->catalog;
    const int64_t factors = count_kind(c, SHEAF_LORA), weights = count_kind(c, SHEAF_WEIGHT);
    const bool sat = strcmp(k->dialect, "sat") == 0;
    if (weights == 0 && k->moments != NULL)
        return NULL;
    if (weights == 0) {
        sheaf_status *st = sheaf__catalog_defects(c) > 0 ? sheaf__catalog_source(&inner, c, false) : NULL;
        if (st != NULL)
            k->catalog = NULL;
        return st != NULL ? st
                          : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", k->o->src), "the weights of a model"),
                                        factors > 0 ? "LoRA factors only" : "none");
    }
    if (factors > 0 && k->o->adapter != NULL)
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", k->o->src), "a base without LoRA of its own, for --adapter"),
                                          "%" PRId64 " factors", factors), "the base that it was trained from; or merge first: sheaf convert %s MERGED --to sat", k->o->src);
    if (factors > 0 && !sat)
        sheaf_warn(k->o->events, "%s: %" PRId64 " LoRA factors are left out", k->o->src, factors);
    if (factors > 0 && sat) {
        sheaf_warn(k->o->events, "%s: its LoRA is merged into the weights, as SAT's own merge does", k->o->src);
        for (int64_t i = 0; i < c->count; i++) /* a fused weight has several parts */
            k->report->merged += c->tensor[i].kind == SHEAF_LORA && sheaf__ends_with(c->tensor[i].told.name, ".matrix_A.0");
    }
    k->catalog = NULL; /* owned by the source, also after a failure */
    sheaf_status *st = factors > 0 && sat ? sheaf_sat_merged(&inner, c, SHEAF_SAT_ROUND_TWICE) : sheaf__catalog_source(&inner, c, false);
    if (st == NULL && k->o->adapter != NULL)
        st = adapt(k, &inner);
    return st != NULL ? st : sheaf__cast_source(&k->source, inner, k->o->dtype, k->o->stop);
}

static void count_bytes(converter *k, sheaf_source *source, bool moments)
{
    for (int64_t i = 0; source != NULL && i < source->count(source); i++) {
        k->report->bytes += sheaf__entry_bytes(source->entry(source, i));
        k->report->tensors++;
        k->report->moments += moments;
    }
    k->total = k->report->bytes;
}

/* ---- Hugging Face ---- */

/* Tensors in the order of the model; those that the schema does not have (a tied head) after them. */
static sheaf_status *order_tensors(converter *k, sheaf_copy **copies, sheaf_safetensors_spec **specs, int64_t *count)
{
    sheaf_source *source = k->source;
    const int64_t n = source->count(source);
    sheaf_safetensors_spec *model = NULL;
    int64_t nmodel = 0, used = 0;
    sheaf_copy *copy = calloc((size_t)n + 1, sizeof *copy);
    sheaf_safetensors_spec *spec = calloc((size_t)n + 1, sizeof *spec);
    sheaf_status *st = copy == NULL || spec == NULL ? no_memory(k) : NULL;
    if (st == NULL && k->schema != NULL)
        st = sheaf_hf_specs(&model, &nmodel, k->schema, source, SHEAF_F32);
    for (int64_t i = 0; st == NULL && i < nmodel; i++) {
        const sheaf_source_entry *e = source->find(source, model[i].name);
        if (e != NULL)
            copy[used++].entry = e;
    }
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        if (k->schema == NULL || sheaf_schema_find(k->schema, e->name) == NULL)
            copy[used++].entry = e;
    }
    for (int64_t i = 0; i < used; i++) {
        const sheaf_source_entry *e = copy[i].entry;
        copy[i].index = i;
        spec[i] = (sheaf_safetensors_spec){ e->name, e->dtype, e->ndim, { 0 } };
        memcpy(spec[i].shape, e->shape, sizeof e->shape);
    }
    free(model);
    *copies = copy;
    *specs = spec;
    *count = used;
    return st;
}

static sheaf_status *hf_config(char **out, const converter *k)
{
    char *edited = NULL;
    sheaf_status *st = NULL;
    if (k->has_config)
        st = sheaf_hf_config_whole(out, k->config, &k->parsed, k->report->merged == 0);
    else if ((*out = strdup(k->config)) == NULL)
        st = no_memory(k);
    if (st == NULL && k->o->dtype != NULL)
        st = sheaf_hf_config_with_dtype(&edited, *out, *k->o->dtype);
    if (edited != NULL) {
        free(*out);
        *out = edited;
    }
    return st;
}

static sheaf_status *put_in_folder(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void *src)
{
    return sheaf__folder_write(context, index, row0, rows, col0, cols, src);
}

static sheaf_status *put_in_file(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void *src)
{
    return sheaf__safetensors_write_box(context, index, row0, rows, col0, cols, src);
}

/* sheaf__copy_all() of `how`, whose source, copies and place to put them are given. */
static sheaf_status *copy_all(converter *k, sheaf_copying how)
{
    how.threads = k->o->threads;
    how.events = k->o->events;
    how.done = &k->done;
    how.total = k->total;
    how.what = "bytes converted";
    return sheaf__copy_all(&how);
}

/* optimizer.safetensors beside the model, in the folder that is being written. */
static sheaf_status *write_moments(converter *k, const char *dir)
{
    sheaf_source *source = k->moments;
    const int64_t n = source->count(source);
    sheaf_copy *copy = calloc((size_t)n + 1, sizeof *copy);
    sheaf_safetensors_spec *spec = calloc((size_t)n + 1, sizeof *spec);
    sheaf_safetensors_writer *file = NULL;
    char *path = NULL, step[32];
    snprintf(step, sizeof step, "%" PRId64, k->step);
    char format_key[] = "format", format[] = "pt", step_key[] = "step";
    const sheaf_safetensors_pair pairs[] = { { format_key, format }, { step_key, step } };
    sheaf_status *st = copy == NULL || spec == NULL ? no_memory(k) : sheaf__path_join(&path, dir, "optimizer.safetensors");
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        copy[i] = (sheaf_copy){ e, i };
        spec[i] = (sheaf_safetensors_spec){ e->name, e->dtype, e->ndim, { 0 } };
        memcpy(spec[i].shape, e->shape, sizeof e->shape);
    }
    if (st == NULL)
        st = sheaf__safetensors_begin(&file, path, spec, n, pairs, k->step >= 0 ? 2 : 1, k->o->faults);
    if (st == NULL)
        st = copy_all(k, (sheaf_copying){ .source = source, .copy = copy, .count = n, .put = put_in_file, .context = file });
    if (st == NULL)
        st = sheaf__safetensors_finish(file);
    else
        sheaf__safetensors_abandon(file);
    free(path);
    free(copy);
    free(spec);
    return st;
}

static sheaf_status *begin_folder(sheaf_folder **out, converter *k, const sheaf_safetensors_spec *specs, int64_t count)
{
    const sheaf_convert_options *o = k->o;
    char *config = NULL;
    if (k->config == NULL) {
        const sheaf_folder_options options = { .stem = "model", .faults = o->faults, .shard_bytes = o->shard_bytes > 0 ? o->shard_bytes : 50000000000 };
        sheaf_warn(o->events, "%s: no config: the output has none either (--config names one)", o->src);
        return sheaf__folder_begin(out, o->dst, specs, count, &options);
    }
    sheaf_status *st = hf_config(&config, k);
    if (st == NULL)
        st = sheaf_hf_begin(out, o->dst, config, specs, count, o->shard_bytes, false, o->faults);
    free(config);
    return st;
}

/* A folder of an optimizer alone: what is in it, named. */
static sheaf_status *write_moments_alone(converter *k)
{
    sheaf_output *output = NULL;
    sheaf_status *st = sheaf__output_begin(&output, k->o->dst, false, k->o->faults);
    if (st == NULL)
        st = write_moments(k, sheaf__output_dir(output));
    if (st == NULL && k->config != NULL)
        st = sheaf__output_write(output, "config.json", k->config, strlen(k->config));
    if (st == NULL)
        return sheaf__output_commit(output);
    sheaf__output_abandon(output);
    return st;
}

static sheaf_status *write_hf(converter *k)
{
    if (k->source == NULL)
        return write_moments_alone(k);
    sheaf_copy *copy = NULL;
    sheaf_safetensors_spec *specs = NULL;
    sheaf_folder *folder = NULL;
    int64_t count = 0;
    sheaf_status *st = order_tensors(k, &copy, &specs, &count);
    if (st == NULL)
        st = begin_folder(&folder, k, specs, count);
    if (st == NULL)
        st = copy_all(k, (sheaf_copying){ .source = k->source, .copy = copy, .count = count, .put = put_in_folder, .context = folder });
    if (st == NULL)
        st = sheaf_hf_copy_extras(folder, k->root);
    if (st == NULL && k->moments != NULL)
        st = write_moments(k, sheaf__folder_dir(folder));
    if (st == NULL)
        st = sheaf__folder_commit(folder);
    else
        sheaf__folder_abandon(folder);
    free(copy);
    free(specs);
    return st;
}

/* ---- SAT ---- */

/* The key that sheaf puts into a config.json of SAT's models goes again. */
static sheaf_status *sat_config(char **out, const converter *k)
{
    json_t *root = NULL;
    *out = NULL;
    if (k->config == NULL)
        return NULL;
    sheaf_status *st = sheaf__json_parse(&root, k->config, strlen(k->config));
    if (st == NULL && json_object_del(root, "model_type") == 0)
        st = sheaf__json_text(out, root, JSON_INDENT(4) | JSON_SORT_KEYS);
    else if (st == NULL && (*out = strdup(k->config)) == NULL)
        st = no_memory(k);
    json_decref(root);
    return st;
}

static sheaf_status *put_in_parts(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void *src)
{
    return sheaf_sat_put(context, index, row0, rows, col0, cols, src);
}

static sheaf_status *fill_sat(converter *k, sheaf_sat_writer *writer)
{
    const int64_t n = sheaf_sat_count(writer);
    sheaf_copy *copy = calloc((size_t)n + 1, sizeof *copy);
    if (copy == NULL)
        return no_memory(k);
    for (int64_t i = 0; i < n; i++)
        copy[i] = (sheaf_copy){ k->source->find(k->source, sheaf_sat_name(writer, i)), i };
    sheaf_status *st = copy_all(k, (sheaf_copying){ .source = k->source, .copy = copy, .count = n, .put = put_in_parts, .context = writer });
    free(copy);
    return st;
}

static sheaf_status *write_sat(converter *k)
{
    char *config = NULL;
    sheaf_sat_writer *writer = NULL;
    sheaf_status *st = sat_config(&config, k);
    const sheaf_sat_write_options how = { .config = config, .ways = k->report->parts, .lora_rank = k->lora_rank, .step = k->step, .faults = k->o->faults };
    k->report->step = k->step > 0 ? k->step : 1;
    if (st == NULL)
        st = sheaf_sat_begin(&writer, k->o->dst, k->source, &how);
    free(config);
    if (st != NULL)
        return st;
    st = fill_sat(k, writer);
    if (st == NULL)
        return sheaf_sat_commit(writer);
    sheaf_sat_abandon(writer);
    return st;
}

/* ---- sheaf's own ---- */

/* In the place of what a training loop keeps: the model's config. Not where it came from: equal models are equal files. */
static sheaf_status *own_progress(char **out, const converter *k)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"converted\": true");
    if (k->step < 0)
        sheaf__text_add(&text, ", \"step_unknown\": true");
    if (k->model != NULL) {
        sheaf__text_add(&text, ", \"model\": ");
        sheaf__text_json(&text, k->model);
    }
    if (k->config != NULL) {
        sheaf__text_add(&text, ", \"config\": ");
        sheaf__text_json(&text, k->config);
    }
    sheaf__text_add(&text, "}");
    return sheaf__text_take(out, &text);
}

static sheaf_status *write_own(converter *k)
{
    char *progress = NULL;
    sheaf_source *both = NULL;
    sheaf_slices_write how = { .source = k->source, .schema = k->schema, .slices = k->o->slices > 0 ? k->o->slices : SLICES,
                               .step = k->step > 0 ? k->step : 0, .threads = k->o->threads, .events = k->o->events,
                               .done = &k->done, .total = k->total, .faults = k->o->faults };
    sheaf_status *st = own_progress(&progress, k);
    if (st == NULL && k->source == NULL)
        how.source = k->moments;
    else if (st == NULL && k->moments != NULL) {
        st = sheaf__both_sources(&both, k->source, k->moments);
        how.source = both;
    }
    how.progress = progress;
    if (st == NULL)
        st = sheaf__slices_write(k->o->dst, &how);
    if (both != NULL)
        both->close(both);
    free(progress);
    return st;
}

/* ---- PEFT ---- */

static sheaf_status *write_sat_adapter(converter *k)
{
    sheaf_sat_lora *lora = NULL;
    sheaf_source *adapter = NULL;
    sheaf_status *st = sheaf_sat_lora_open(&lora, k->catalog);
    if (st == NULL)
        st = sheaf_sat_adapter(&adapter, lora);
    count_bytes(k, adapter, false);
    if (adapter != NULL)
        adapter->close(adapter);
    if (st == NULL)
        st = sheaf_sat_write_adapter(k->o->dst, lora, false, k->o->faults);
    sheaf_sat_lora_free(lora);
    return st;
}

static sheaf_status *write_peft(converter *k)
{
    sheaf_source *inner = NULL;
    sheaf_folder *folder = NULL;
    sheaf_catalog *c = k->catalog;
    if (strcmp(k->dialect, "sat") == 0)
        return write_sat_adapter(k);
    if (strcmp(k->dialect, "peft") != 0)
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--to peft"), "a PEFT adapter, or a SAT checkpoint with LoRA"),
                                          "a checkpoint of %s", k->dialect), "an adapter that sheaf trained lies in OUT/adapter");
    k->catalog = NULL;
    sheaf_status *st = sheaf__catalog_source(&inner, c, true);
    if (st == NULL)
        st = sheaf__cast_source(&k->source, inner, k->o->dtype, k->o->stop);
    if (st != NULL)
        return st;
    count_bytes(k, k->source, false);
    sheaf_copy *copy = NULL;
    sheaf_safetensors_spec *specs = NULL;
    int64_t count = 0;
    st = order_tensors(k, &copy, &specs, &count);
    if (st == NULL)
        st = sheaf_peft_begin(&folder, k->o->dst, k->config != NULL ? k->config : "{}", specs, count, false, k->o->faults);
    if (st == NULL)
        st = copy_all(k, (sheaf_copying){ .source = k->source, .copy = copy, .count = count, .put = put_in_folder, .context = folder });
    if (st == NULL)
        st = sheaf__folder_commit(folder);
    else
        sheaf__folder_abandon(folder);
    free(copy);
    free(specs);
    return st;
}

/* ---- the whole ---- */

typedef struct target {
    const char *name;
    bool weights, moments, tp, slices, dtype;
    sheaf_status *(*write)(converter *k);
} target;

static const target targets[] = {
    { "hf", true, true, false, false, true, write_hf },
    { "sat", true, false, true, false, true, write_sat },
    { "peft", false, false, false, false, true, write_peft },
    { "sheaf", true, true, false, true, true, write_own },
};
enum { TARGETS = sizeof targets / sizeof *targets };

static sheaf_status *find_target(const target **out, const sheaf_convert_options *o)
{
    for (int i = 0; i < TARGETS; i++)
        if (o->to != NULL && strcmp(o->to, targets[i].name) == 0)
            *out = &targets[i];
    if (*out == NULL) {
        const char *names[TARGETS];
        for (int i = 0; i < TARGETS; i++)
            names[i] = targets[i].name;
        const char *near = o->to == NULL ? NULL : sheaf__nearest(o->to, names, TARGETS);
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--to"), "hf, sat, peft or sheaf");
        sheaf_found(st, "%s", o->to == NULL ? "nothing" : o->to);
        return near != NULL ? sheaf_try_this(st, "%s", near) : st;
    }
    if (o->tp > 1 && !(*out)->tp)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--tp %d", o->tp), "a target that is divided over ranks: --to sat"),
                              "--to sheaf --slices %d, of which any number of ranks can load theirs", o->tp);
    if (o->adapter != NULL && !(*out)->tp)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--adapter"), "--to sat, whose files hold a model and its LoRA"),
                              "sheaf merge %s %s DST", o->src, o->adapter);
    if (o->slices > 0 && !(*out)->slices)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--slices"), "--to sheaf");
    if (o->optimizer && !(*out)->moments)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--optimizer"), "--to hf or --to sheaf");
    return NULL;
}

static bool is_adapter(const char *dir)
{
    char *path = NULL;
    sheaf_status_free(sheaf_peft_config_path(&path, dir));
    const bool yes = path != NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE;
    free(path);
    return yes;
}

/* An adapter is no part of its base: it would be passed over. */
static sheaf_status *check_also(const sheaf_convert_options *o)
{
    for (const char *const *also = o->also; also != NULL && *also != NULL; also++)
        if (is_adapter(*also) && !is_adapter(o->src)) {
            sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", *also);
            sheaf_found(sheaf_expected(st, "parts of the checkpoint %s", o->src), "a PEFT adapter");
            return sheaf_try_this(st, "sheaf merge %s %s DST; or --adapter %s with --to sat, whose files hold a model and its LoRA", o->src, *also, *also);
        }
    return NULL;
}

static sheaf_status *check_dst(const sheaf_convert_options *o)
{
    sheaf_output *probe = NULL; /* the same rule as for the output itself, before hours of work */
    sheaf_status *st = sheaf__output_outside(o->dst, o->src);
    for (const char *const *also = o->also; st == NULL && also != NULL && *also != NULL; also++)
        st = sheaf__output_outside(o->dst, *also);
    if (st == NULL && sheaf__path_kind(o->dst) != SHEAF_PATH_NONE)
        st = sheaf__output_begin(&probe, o->dst, false, NULL);
    sheaf__output_abandon(probe);
    return st;
}

static sheaf_status *check_dtypes(const converter *k)
{
    if (k->o->dtype == NULL || *k->o->dtype == SHEAF_F32 || *k->o->dtype == SHEAF_BF16 || *k->o->dtype == SHEAF_F16)
        return NULL;
    return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--dtype"), "float32, bfloat16 or float16");
}

static void converter_release(converter *k)
{
    if (k->source != NULL)
        k->source->close(k->source);
    if (k->moments != NULL)
        k->moments->close(k->moments);
    sheaf__catalog_free(k->catalog);
    sheaf_schema_free(k->schema);
    if (k->has_config)
        sheaf_config_release(&k->parsed);
    free(k->root);
    free(k->config);
    free(k->model);
}

sheaf_status *sheaf_convert(sheaf_convert_report *report, const sheaf_convert_options *o)
{
    converter k = { .o = o, .report = report };
    const target *to = NULL;
    *report = (sheaf_convert_report){ .step = -1 };
    sheaf_status *st = find_target(&to, o);
    if (st == NULL)
        st = check_dtypes(&k);
    if (st == NULL)
        st = check_also(o);
    if (st == NULL)
        st = check_dst(o);
    if (st == NULL)
        st = read_catalog(&k);
    if (st == NULL)
        st = check_own_lora(&k);
    if (st == NULL)
        st = read_model(&k, o->slices > 0 ? o->slices : SLICES);
    if (st == NULL)
        st = open_moments(&k);
    if (st == NULL && to->weights)
        st = open_source(&k);
    if (st == NULL && to->weights) {
        count_bytes(&k, k.source, false);
        count_bytes(&k, k.moments, true);
        report->step = to->slices || (to->moments && k.moments != NULL) ? k.step : -1;
    }
    if (st == NULL)
        st = to->write(&k);
    converter_release(&k);
    return st;
}
