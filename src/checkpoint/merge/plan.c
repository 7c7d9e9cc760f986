/* plan.c - see plan.h. */
#include "checkpoint/merge/plan.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "catalog/quantising.h"
#include "catalog/tiled.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/quantised.h"
#include "dialects/hf/hf.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"
#include "lora/check_file.h"
#include "lora/renamed.h"
#include "lora/start.h"
#include "schema/family.h"

static const char memory_for[] = "merge: out of memory for the list of tensors";

/* ---- the base ---- */

static sheaf_status *list_base(sheaf__merge_plan *p)
{
    const int64_t n = p->base->count(p->base);
    p->tensor = calloc((size_t)n + 2, sizeof *p->tensor);
    if (p->tensor == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = p->base->entry(p->base, i);
        if (sheaf_dtype_bytes(e->dtype) == 0) {
            sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", e->name);
            return sheaf_found(sheaf_expected(st, "elements of whole bytes"), "%s",
                               sheaf_dtype_name(e->dtype));
        }
        p->tensor[p->count] = sheaf__merge_make_tensor(e->name, e);
        p->tensor[p->count].form = sheaf__source_form(p->base, e->name);
        p->nquantised += p->tensor[p->count++].form != NULL;
    }
    qsort(p->tensor, (size_t)p->count, sizeof *p->tensor, sheaf__by_name);
    return NULL;
}

/* The schema of a known model, else NULL. tied NULL: as the config says. */
static sheaf_status *known_schema(sheaf_schema **out, const sheaf__merge_plan *p, const bool *tied)
{
    sheaf_config config = { 0 };
    *out = NULL;
    if (p->config == NULL)
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, p->config, strlen(p->config));
    if (st != NULL)
        return sheaf__only_memory(st);
    config.tied = tied != NULL ? *tied : config.tied;
    st = sheaf_schema_new(out, &config, 1);
    sheaf_config_release(&config);
    return st;
}

/* A base whose schema is known must be complete; others are not checked. First, tables that files
 * may lack are computed: an adapter may hold them with their module. */
static sheaf_status *hold_against_schema(sheaf__merge_plan *p, bool check,
                                         const sheaf_events *events)
{
    sheaf_schema *schema;
    sheaf_status *st = known_schema(&schema, p, NULL);
    if (st == NULL && schema != NULL)
        st = check ? sheaf_hf_check(p->base, schema, p->config)
                   : sheaf_hf_compute(&p->base, schema, events);
    sheaf_schema_free(schema);
    return st;
}

/* The base is open, p->config is set. */
static sheaf_status *read_config(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    json_t *object = NULL;
    sheaf_status *st = NULL;
    if (p->config != NULL)
        st = sheaf_in(sheaf__json_parse(&object, p->config, strlen(p->config)), "%s",
                      p->config_path != NULL ? p->config_path
                      : o->config != NULL    ? o->config
                                             : o->base);
    const char *type = json_string_value(json_object_get(object, "model_type"));
    if (st == NULL && (p->model_type = strdup(type != NULL ? type : "")) == NULL)
        st = sheaf__no_memory(memory_for);
    if (st == NULL)
        sheaf__merge_find_quantized(p, object);
    if (st == NULL && p->config == NULL)
        sheaf_warn(
            o->events,
            "%s: no config.json: what kind of model it is and whether its tables are tied is not known, and %s gets none either (`config FILE` gives one)",
            o->base, o->dst);
    TRY(st, sheaf_in(sheaf__merge_find_ties(p, object), "%s", o->base != NULL ? o->base : "base"));
    json_decref(object);
    return st;
}

/* Its own unmerged LoRA would be dropped silently. */
static sheaf_status *refuse_own_lora(const sheaf_catalog *c, const char *path)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_LORA) {
            sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s", path);
            sheaf_expected(st, "a base whose own LoRA is merged");
            sheaf_found(st, "LoRA that is not merged, '%s'", c->tensor[i].entry.name);
            char *cure = NULL;
            sheaf_status *unmade = sheaf__cure(
                &cure, c,
                c->dialect->own_lora
                    ? "sheaf merge {} {+merged}; its output is a base"
                    : "sheaf convert {} {+base} --to hf{config}, which leaves it out; that is the base of an adapter saved beside it, and sheaf verify {} shows how to merge what lies in it");
            sheaf_try_this(st, "%s", cure != NULL ? cure : "merge it first");
            sheaf_status_free(unmade);
            free(cure);
            return st;
        }
    return NULL;
}

/* The text of the config: from another program's checkpoint the output is in Hugging Face's form,
 * with a config that describes it. */
static sheaf_status *take_config(sheaf__merge_plan *p, const sheaf_catalog *c,
                                 const sheaf_weights_merge_options *o)
{
    const sheaf__family *family = c->model == NULL ? NULL : sheaf__family_named(c->model);
    char type[64];
    if (c->config == NULL)
        return NULL;
    if (c->quantization != NULL && (p->quantization = strdup(c->quantization)) == NULL)
        return sheaf__no_memory(memory_for);
    if (c->config_path != NULL && (p->config_path = strdup(c->config_path)) == NULL)
        return sheaf__no_memory(memory_for);
    if (o->config == NULL && family != NULL && family->classes != NULL) {
        snprintf(type, sizeof type, "\"%s\"", family->name);
        return sheaf_hf_config_set(&p->config, c->config, "model_type", type);
    }
    return (p->config = strdup(c->config)) == NULL ? sheaf__no_memory(memory_for) : NULL;
}

static bool is_chosen(void *self, const char *name)
{
    const sheaf_tensor *t = sheaf_schema_find(self, name);
    return t != NULL && sheaf__is_quantisable(t);
}

/* The values that training met, which quantised the base while it was loaded. */
static sheaf_status *quantise_base(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    sheaf_schema *schema;
    sheaf_status *st = known_schema(&schema, p, NULL);
    if (st == NULL && schema == NULL)
        st = sheaf__quantise_unknown(o->base, p->config);
    TRY(st, sheaf_in(sheaf__quantise(&p->base, o->quantize, is_chosen, schema), "%s", o->base));
    sheaf_schema_free(schema);
    return st;
}

static sheaf_status *open_files(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    const sheaf_dialect_hints hints = { .config = o->config, .as_stored = true };
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__any_read(&c, o->base, &hints);
    if (st == NULL) {
        p->checked = !c->as_stored;
        p->file_names = c->file_names;
        st = refuse_own_lora(c, o->base);
    }
    const sheaf_finding *stale = st == NULL ? sheaf__catalog_finding(c, "conflict") : NULL;
    if (stale != NULL && stale->severity == SHEAF_WARNING)
        sheaf_warn(o->events, "%s: %s", stale->path, stale->found);
    TRY(st, take_config(p, c, o));
    if (st != NULL) {
        sheaf__catalog_free(c);
        return st;
    }
    st = sheaf__catalog_source(&p->base, c, false);
    TRY(st, sheaf__tiled(&p->base, c));
    TRY(st, sheaf__merge_score(p, o));
    TRY(st, hold_against_schema(p, false, o->events));
    return st == NULL && o->quantize != SHEAF_QUANTIZE_NONE ? quantise_base(p, o) : st;
}

static sheaf_status *open_base(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    sheaf_status *st = open_files(p, o);
    TRY(st, list_base(p));
    TRY(st, read_config(p, o));
    if (st == NULL && p->config != NULL && !p->checked && p->quantized[0] == '\0')
        st = sheaf_in(hold_against_schema(p, true, o->events), "%s", o->base);
    return st;
}

/* ---- the adapters ---- */

static sheaf_status *open_adapter(sheaf__merge_adapter *a, const char *dir,
                                  const sheaf_events *events)
{
    char *path = NULL;
    a->path = dir;
    sheaf_status *st = sheaf_peft_config_path(&path, dir);
    TRY(st, sheaf__lora_options_started(&a->options, path, events));
    free(path);
    TRY(st, sheaf__open_source(
                &a->source, dir,
                &(sheaf_dialect_hints){ .want = SHEAF_WANT_ADAPTER, .as_stored = true }));
    TRY(st, sheaf_peft_base_print(a->base_print, dir));
    TRY(st, sheaf_in(sheaf_lora_check_file(&a->options, a->source), "%s", dir));
    return st;
}

sheaf_status *sheaf__merge_open_adapters(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    if (o->nadapters < 1 || o->nadapters > SHEAF_MERGE_ADAPTERS)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "adapters"), "1 to %d", SHEAF_MERGE_ADAPTERS),
            "%d", o->nadapters);
    p->read = calloc((size_t)o->nadapters, sizeof *p->read);
    if (p->read == NULL)
        return sheaf__no_memory(memory_for);
    sheaf_status *st = NULL;
    for (; p->nread < o->nadapters && st == NULL; p->nread++)
        st = open_adapter(&p->read[p->nread], o->adapters[p->nread], o->events);
    return st;
}

sheaf_status *sheaf__merge_combine(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    sheaf_source *sources[SHEAF_MERGE_ADAPTERS];
    sheaf_lora_options options[SHEAF_MERGE_ADAPTERS]; /* borrowed */
    for (int i = 0; i < p->nread; i++) {
        sources[i] = p->read[i].source;
        options[i] = p->read[i].options;
        if (options[i].init != SHEAF_LORA_DEFAULT)
            return sheaf_try_this(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", p->read[i].path),
                               "plain LoRA, or the base beside an adapter of PiSSA or OLoRA"),
                "sheaf merge BASE ADAPTER... DST");
        if (options[i].parameters.n > 0)
            return sheaf__merge_refuse_parameters(&p->read[i], "adapters to combine");
    }
    if (o->base == NULL) { /* else each is checked against the base */
        sheaf_status *st =
            sheaf_lora_check_modules(options, sources, o->adapters, p->nread, o->events);
        if (st != NULL)
            return st;
    }
    sheaf_combine combine;
    sheaf_status *st = sheaf_in(sheaf_combine_parse(&combine, o->combine), "combine");
    if (st != NULL)
        return st;
    p->combined.path = "the combined adapter";
    p->combined.made = true;
    return sheaf_lora_combine(&p->combined.source, &p->combined.options, sources, options,
                              o->weights, p->nread, combine);
}

/* ---- tiles ---- */

static int64_t last_axis(const sheaf_source_entry *e)
{
    return e->ndim > 2 && e->shape[e->ndim - 1] > 0 ? e->shape[e->ndim - 1] : 1;
}

static sheaf_status *set_tiles(sheaf__merge_tensor *t)
{
    t->ranks = 0;
    for (int i = 0; i < t->nsteps; i++)
        if (t->step[i].kind == SHEAF__MERGE_DELTA &&
            __builtin_add_overflow(t->ranks, t->step[i].rank, &t->ranks))
            t->ranks = INT64_MAX;
    if (t->ranks > SHEAF__MERGE_RANKS) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': the ranks of its adapters", t->name);
        return sheaf_found(sheaf_expected(st, "at most %d in all", SHEAF__MERGE_RANKS), "%" PRId64,
                           t->ranks);
    }
    /* A tile's buffers hold four bytes an element; wider types are only copied and compared. */
    const int64_t size = (int64_t)sheaf_dtype_bytes(t->base->dtype),
                  most = size > 4 ? SHEAF__MERGE_TILE * 4 / size : SHEAF__MERGE_TILE;
    int64_t panel = most;
    if (t->ranks > 0 &&
        SHEAF__MERGE_RIGHT / t->ranks < panel + 16) /* packed panels are padded to 16 columns */
        panel = SHEAF__MERGE_RIGHT / t->ranks / 16 * 16;
    const int64_t last = last_axis(t->base);
    panel = panel / last * last;
    if (panel < 1 && sheaf__merge_touched(t)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': last axis", t->name);
        return sheaf_found(sheaf_expected(st, "at most %d elements", SHEAF__MERGE_TILE), "%" PRId64,
                           last);
    }
    t->panel = t->cols < panel ? t->cols : panel; /* 0: empty, or too wide for tiles */
    t->chunk = t->panel > 0 ? most / t->panel : 1;
    if (t->ranks > 0 && SHEAF__MERGE_LEFT / t->ranks < t->chunk)
        t->chunk = SHEAF__MERGE_LEFT / t->ranks;
    if (t->chunk > t->rows)
        t->chunk = t->rows;
    t->chunk = t->chunk < 1 ? 1 : t->chunk;
    return NULL;
}

static sheaf_status *set_types(sheaf__merge_plan *p, sheaf_dtype dtype)
{
    sheaf__quantised packed = { 0 };
    sheaf_status *st =
        dtype != SHEAF_BOOL ? sheaf__quantised_find(&packed, p->base, p->config) : NULL;
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        sheaf__merge_tensor *t = &p->tensor[i];
        const sheaf_dtype was = t->base->dtype;
        const bool changed = t->nsteps > 0 || t->whole != NULL;
        t->kept = p->requantise && t->form != NULL && !changed;
        t->requantised = p->requantise && t->form != NULL && changed;
        const bool number = sheaf__merge_is_float(was) && !t->kept &&
                            !sheaf__quantised_keeps(&packed, t->name); /* copied as they are */
        t->out_dtype = t->requantised ? SHEAF_F32 : dtype != SHEAF_BOOL && number ? dtype : was;
        st = set_tiles(t);
    }
    sheaf__quantised_release(&packed);
    return st;
}

sheaf_status *sheaf__merge_check_dst(const sheaf_weights_merge_options *o)
{
    sheaf_status *st = o->base != NULL ? sheaf__output_outside(o->dst, o->base) : NULL;
    for (int i = 0; st == NULL && i < o->nadapters; i++)
        st = sheaf__output_outside(o->dst, o->adapters[i]);
    return st != NULL ? st : sheaf__output_check(o->dst); /* before hours of work */
}

/* Resets the plan to the state before any adapter was matched. */
static void clear_steps(sheaf__merge_plan *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        const sheaf__merge_tensor was = p->tensor[i];
        sheaf__merge_release_tensor(&p->tensor[i]);
        p->tensor[i] = sheaf__merge_make_tensor(was.name, was.base);
        p->tensor[i].table = was.table;
        p->tensor[i].form = was.form;
        p->tensor[i].made = was.made;
        p->tensor[i].twice = was.twice;
    }
}

static const char *name_in_plan(const void *self, int64_t i)
{
    return ((const sheaf__merge_plan *)self)->tensor[i].name;
}

static sheaf_status *match_all(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    const sheaf__tensor_names names = { name_in_plan, p, p->count };
    sheaf_status *st = sheaf__merge_open_adapters(p, o);
    for (int i = 0; i < p->nread && st == NULL; i++) {
        sheaf_schema *schema = NULL;
        const sheaf_lora_options *options = &p->read[i].options;
        st = options->parameters.n > 0 || options->modules_to_save.n > 0
                 ? known_schema(&schema, p, NULL)
                 : NULL;
        TRY(st, sheaf__merge_spread_parameters(&p->read[i], schema));
        TRY(st, sheaf__lora_rename(&p->read[i].options, &p->read[i].source, p->read[i].path, &names,
                                   o->events));
        TRY(st, sheaf_in(sheaf__lora_take_start(&p->read[i].source, &p->read[i].options, p->base),
                         "%s", p->read[i].path));
    }
    for (int i = 0; i < p->nread && st == NULL && o->combine != NULL; i++) {
        st = sheaf__merge_match(p, &p->read[i], i); /* each must fit on its own, too */
        clear_steps(p);
    }
    TRY(st, o->combine != NULL ? sheaf__merge_combine(p, o) : NULL);
    sheaf__merge_adapter *adapter = o->combine == NULL ? p->read : &p->combined;
    const int n = o->combine == NULL ? p->nread : 1;
    for (int i = 0; i < n && st == NULL; i++) {
        st = sheaf__merge_match(p, &adapter[i], i);
        TRY(st, sheaf__merge_settle_ties(p, &adapter[i], i));
    }
    return st == NULL ? sheaf__merge_check_tables(p) : st;
}

static sheaf_status *not_plain(const sheaf_weights_merge_options *o)
{
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`plain-base`"), "a base of plain weights");
    sheaf_found(st, "%s, whose weights are in 4 or 8 bits", o->base);
    return sheaf_try_this(st, "the model that was quantised; or leave `plain-base` out");
}

sheaf_status *sheaf__merge_plan_open(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    *p = (sheaf__merge_plan){ 0 };
    p->requantise = o->requantize;
    sheaf_status *st = open_base(p, o);
    TRY(st, o->plain_base && p->nquantised > 0 ? not_plain(o) : NULL);
    TRY(st, match_all(p, o));
    TRY(st, set_types(p, o->dtype));
    TRY(st, p->requantise ? sheaf__merge_requantise_open(p, o) : NULL);
    if (st != NULL)
        sheaf__merge_plan_close(p);
    return st;
}

sheaf_status *sheaf_merge_fits(bool *held, const char *base, const char *adapter)
{
    const sheaf_weights_merge_options o = { .base = base, .adapters = &adapter, .nadapters = 1 };
    sheaf__merge_plan p = { 0 };
    sheaf_status *st = open_base(&p, &o);
    *held = st == NULL;
    st = sheaf__only_memory(st); /* otherwise the base's own error */
    if (*held)
        st = match_all(&p, &o);
    sheaf__merge_plan_close(&p);
    return st;
}

/* ---- the order of the output ---- */

/* In transformers' order of shards if the schema is known, else by name. */
static sheaf_status *order_as_schema(sheaf__merge_plan *p)
{
    sheaf_schema *schema = NULL;
    sheaf_safetensors_spec *specs = NULL;
    int64_t n = 0, placed = 0;
    const bool tied = p->tied && p->tie.first == NULL;
    sheaf_status *st = p->checked ? NULL : known_schema(&schema, p, &tied);
    if (st != NULL || schema == NULL)
        return st;
    sheaf__merge_tensor *sorted = calloc((size_t)p->count + 1, sizeof *sorted);
    st = sorted == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, sheaf_hf_specs(&specs, &n, schema, NULL, SHEAF_F32));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf__merge_tensor *t = sheaf__merge_find(p, specs[i].name);
        if (t != NULL && placed < p->count)
            sorted[placed++] = *t;
    }
    if (st == NULL && placed == p->count) {
        free(p->tensor);
        p->tensor = sorted;
        sorted = NULL;
    }
    free(sorted);
    free(specs);
    sheaf_schema_free(schema);
    return st;
}

sheaf_status *sheaf__merge_plan_finish(sheaf__merge_plan *p)
{
    sheaf_status *st = order_as_schema(p);
    p->specs = calloc((size_t)p->count + 1, sizeof *p->specs);
    TRY(st, p->specs == NULL ? sheaf__no_memory(memory_for) : NULL);
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        p->specs[i] =
            (sheaf_safetensors_spec){ .name = t->name, .dtype = t->out_dtype, .ndim = t->ndim };
        memcpy(p->specs[i].shape, t->shape, sizeof p->specs[i].shape);
    }
    return st;
}

void sheaf__merge_plan_close(sheaf__merge_plan *p)
{
    for (int64_t i = 0; i < p->count; i++)
        sheaf__merge_release_tensor(&p->tensor[i]);
    free(p->tensor);
    free(p->specs);
    if (p->combined.source != NULL)
        p->combined.source->close(p->combined.source);
    sheaf_lora_options_release(&p->combined.options);
    for (int i = 0; i < p->nread; i++) {
        sheaf_lora_options_release(&p->read[i].options);
        if (p->read[i].source != NULL)
            p->read[i].source->close(p->read[i].source);
        sheaf_lora_free(p->read[i].lora);
        sheaf_schema_free(p->read[i].schema);
    }
    free(p->read);
    if (p->base != NULL)
        p->base->close(p->base);
    if (p->files != NULL)
        p->files->close(p->files);
    free(p->config);
    free(p->quantization);
    free(p->config_path);
    free(p->made_name);
    free(p->model_type);
    *p = (sheaf__merge_plan){ 0 };
}
