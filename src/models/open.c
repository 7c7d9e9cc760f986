/* open.c - see open.h. */
#include "models/open.h"

#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "catalog/boxes.h"
#include "dialects/common/class.h"
#include "dialects/common/model.h"
#include "dialects/hf/hf.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"
#include "dialects/sat/lora.h"
#include "lora/check_file.h"
#include "lora/renamed.h"
#include "lora/adapter.h"
#include "lora/names.h"
#include "lora/start.h"
#include "models/open_layers.h"
#include "models/picture_settings.h"
#include "schema/config_text.h"
#include "schema/family.h"

static sheaf_status *lay_over(sheaf__opened *o, bool untied, const sheaf__added_rows *added)
{
    const bool makes = added->count > 0 || (o->config.scores && o->adapter == NULL);
    sheaf_status *st = o->base != NULL && makes
                           ? sheaf__widened_new(&o->widened, o->base, o->schema, added)
                           : NULL;
    sheaf_source *below = o->widened != NULL ? o->widened : o->base;
    o->weights = below;
    return st != NULL || below == NULL || (!untied && (o->adapter == NULL || o->lora->nsaved == 0))
               ? st
               : sheaf__overlay_new(&o->weights, below, o->adapter, o->lora,
                                    untied ? sheaf__family_for(&o->config) : NULL);
}

/* ---- opening ---- */

/* *catalog: of --model; for a plan only its config. */
static sheaf_status *read_config(sheaf__opened *o, sheaf_catalog **catalog,
                                 const sheaf__open_options *how)
{
    const bool given = how->config != NULL && how->config[0] != '\0';
    const sheaf_dialect_hints hints = { .config = given ? how->config : NULL,
                                        .want = SHEAF_WANT_MODEL,
                                        .as_stored = true, /* checked against the config here */
                                        .config_only = how->config_only };
    sheaf_status *st = NULL;
    if (given && (st = sheaf_config_read(&o->config, how->config)) != NULL)
        return st;
    if (given && how->config_only &&
        (how->model == NULL || sheaf__path_kind(how->model) != SHEAF_PATH_DIR))
        return NULL;
    if (how->model == NULL || how->model[0] == '\0')
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "model"), "`model DIR`");
    if (sheaf__path_kind(how->model) == SHEAF_PATH_NONE) {
        st = sheaf_fail(SHEAF_E_IO, "%s", how->model);
        sheaf_expected(st, "a model folder");
        sheaf_found(st, "nothing there");
        return sheaf__path_hub(
            sheaf_try_this(st, "check the path given to `model`; sheaf downloads nothing"),
            how->model);
    }
    st = sheaf__open(catalog, how->model, &hints);
    TRY(st, sheaf__catalog_refuse_class(*catalog));
    return st == NULL && !given ? sheaf__open_config(&o->config, *catalog) : st;
}

static bool has_targets(const sheaf_lora_options *o)
{
    return o->targets.n > 0 || o->targets.regex != NULL || o->all_linear ||
           o->sat_set != SHEAF_SAT_SET_NONE;
}

/* ---- a new adapter ---- */

/* The last part of a tensor's module: "lm_head" of "lm_head.weight". */
static sheaf_status *save_module(sheaf_lora_options *options, const char *tensor)
{
    char *name = strdup(tensor);
    sheaf_status *st = NULL;
    if (name == NULL)
        return sheaf__no_memory(tensor);
    char *end = strrchr(name, '.');
    *end = '\0';
    const char *last = strrchr(name, '.');
    if (!sheaf__lora_add_name(&options->modules_to_save, last == NULL ? name : last + 1))
        st = sheaf__no_memory(tensor);
    free(name);
    return st;
}

static sheaf_status *no_new_tokens(const sheaf__open_options *how, const char *expected,
                                   const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: tokens to add", how->model);
    return sheaf_found(sheaf_expected(st, "%s", expected), "%s", found);
}

/* A new adapter has the tables in full, and a tied one stays tied. */
static sheaf_status *save_tables(sheaf_lora_options *filled, const sheaf_config *c,
                                 const sheaf__open_options *how)
{
    const sheaf__family *family = sheaf__family_for(c);
    char rows[96];
    if (family->towers != NULL || family->classes != NULL || family->table == NULL || c->byte_vocab)
        return no_new_tokens(how, "a text model with a tokenizer.json of its own",
                             c->byte_vocab ? "a vocabulary of bytes"
                                           : sheaf_family_name(c->family));
    if (how->added.first < 1 || how->added.first > c->vocab) {
        snprintf(rows, sizeof rows, "%" PRId64 " tokens of the tokenizer, %" PRId64 " rows",
                 how->added.first, c->vocab);
        return no_new_tokens(how, "a row of the model for each token of its tokenizer", rows);
    }
    filled->keep_tie = c->tied;
    sheaf_status *st = save_module(filled, family->table);
    return st != NULL || c->tied ? st : save_module(filled, family->head);
}

/* Default targets of a new adapter: those of the family's own program. */
static sheaf_status *fresh_options(const sheaf_lora_options **out, sheaf_lora_options *filled,
                                   const sheaf_config *config, const sheaf__open_options *how)
{
    *out = how->fresh;
    if (how->fresh == NULL || (has_targets(how->fresh) && how->added.count == 0 && !how->scores))
        return NULL;
    const char *targets = sheaf__family_for(config)->lora_targets;
    const bool unnamed = !has_targets(how->fresh);
    sheaf_status *st = sheaf__lora_options_copy(filled, how->fresh);
    TRY(st, unnamed ? sheaf__lora_set_targets(filled, targets) : NULL);
    TRY(st, how->added.count > 0 ? save_tables(filled, config, how) : NULL);
    filled->scores = how->scores;
    TRY(st, how->scores ? save_module(filled, "base." SHEAF__SCORE) : NULL);
    *out = filled;
    if (st == NULL && unnamed)
        sheaf_note(how->events, "LoRA on %s, the default for %s (`lora-targets` changes it)",
                   targets, sheaf_family_name(config->family));
    return st;
}

/* ---- the tower of cross-attention ---- */

static sheaf_status *no_tower(const char *where, const char *expected, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: the high-resolution tower", where);
    sheaf_expected(st, "%s", expected);
    sheaf_found(st, "%s", found);
    return sheaf_try_this(
        st,
        "a CogAgent that was merged or converted as CogVLM loses its tower: go back to the parts from before, and join them with sheaf convert");
}

/* Cross-attention without a tower has no source: such files can be converted, but not run. */
static sheaf_status *check_config(const sheaf_config *c, const sheaf__open_options *how)
{
    sheaf__tower tower;
    if (!sheaf__has_cross(c) || sheaf__tower_beside(&tower, c) >= 0)
        return NULL;
    return no_tower(
        how->config != NULL && how->config[0] != '\0' ? how->config : how->model,
        "a config of CogAgent, as it has cross-attention",
        "layers with cross-attention (is_decoder) in a config of CogVLM, which has no tower");
}

/* A tower that is missing as a whole is reported as one loss. */
static sheaf_status *check_tower(const sheaf__opened *o, const char *where, sheaf_component is)
{
    const sheaf__family *family = sheaf__family_for(&o->config);
    const sheaf__component_rule *rule = family->components;
    int64_t wanted = 0, there = 0, others = 0;
    char expected[96];
    while (rule->part != NULL && rule->is != is)
        rule++;
    for (int64_t i = 0; rule->part != NULL && i < o->schema->count; i++) {
        const char *name = o->schema->tensor[i].name;
        const bool here = o->base->find(o->base, name) != NULL,
                   part = sheaf__family_component(family, name) == is;
        wanted += part;
        there += part && here;
        others += !part && here;
    }
    for (int64_t i = 0; rule->part != NULL && i < o->base->count(o->base); i++) /* another one */
        there += strncmp(o->base->entry(o->base, i)->name, rule->part, strlen(rule->part)) == 0;
    if (wanted == 0 || there > 0 || others == 0)
        return NULL;
    snprintf(expected, sizeof expected, "its %" PRId64 " tensors, %s*", wanted, rule->part);
    if (is != SHEAF_PLAN_VIT)
        return no_tower(where, expected, "none of them");
    const sheaf__tensor_names names = sheaf__source_names(o->base);
    const sheaf__identity found = sheaf__model_by_names(&names);
    sheaf_text title = { 0 };
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: the vision tower", where);
    sheaf_expected(st, "%s, as %s has them", expected, sheaf__config_title(&o->config));
    if (found.family != NULL && !sheaf__may_be(&found, &o->config))
        sheaf__identity_title(&title, &found);
    const bool other = title.size > 0 && !title.failed;
    sheaf_found(st, "none of them%s%s", other ? ", but tensors of " : "", other ? title.at : "");
    sheaf_try_this(
        st,
        "the files of the model from before it was trained: a program that does not train the tower may leave it out of what it saves%s%s",
        other ? "; or the config.json of " : "", other ? title.at : "");
    sheaf__text_release(&title);
    return st;
}

/* The options of the adapter to read or to create; *read owns them unless they are how->fresh. */
static sheaf_status *adapter_options(const sheaf_lora_options **out, sheaf_lora_options *read,
                                     sheaf__opened *o, const sheaf__open_options *how)
{
    char *path = NULL;
    if (how->adapter == NULL || how->adapter[0] == '\0')
        return fresh_options(out, read, &o->config, how);
    sheaf_status *st = sheaf_peft_config_path(&path, how->adapter);
    TRY(st, sheaf__lora_options_started(read, path, how->events));
    TRY(st, sheaf_in(sheaf_lora_check_runs(read), "%s", path));
    free(path);
    *out = read;
    TRY(st, sheaf__open_source(
                &o->adapter, how->adapter,
                &(sheaf_dialect_hints){ .want = SHEAF_WANT_ADAPTER, .as_stored = true }));
    if (how->config_only && st != NULL && o->adapter == NULL) /* its config may be all there is */
        st = sheaf__only_memory(st);
    else
        TRY(st, sheaf_in(sheaf__lora_rename_for(read, &o->adapter, how->adapter, &o->config,
                                                how->events),
                         "%s", how->adapter));
    TRY(st, sheaf_in(sheaf__lora_take_start(&o->adapter, read, o->base), "%s", how->adapter));
    read->init = how->init;
    return st;
}

/* ---- is it the adapter's base? ---- */

/* sheaf_peft_base_print(), with a note if there is none: whether `model` is its base is then
 * unknown. */
static sheaf_status *adapter_print(char out[33], const char *model, const char *adapter,
                                   const sheaf_events *events)
{
    sheaf_status *st = sheaf_peft_base_print(out, adapter);
    if (st == NULL && out[0] == '\0' && sheaf__path_kind(adapter) != SHEAF_PATH_NONE)
        sheaf_note(events,
                   "%s: it carries no fingerprint of its base, so whether that is %s is not known",
                   adapter, model);
    return st;
}

static sheaf_status *compare_base(const char *is, const char *was, const char *model,
                                  const char *adapter)
{
    if (strcmp(was, is) == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: its base", adapter);
    sheaf_expected(st, "fingerprint %s, of the base that it was trained on", was);
    sheaf_found(st, "another, %s: %s", model, is);
    return sheaf_try_this(
        st,
        "give the base that it was trained on, with `quantize` if it was quantised while it was "
        "loaded; to use it on this one all the same: "
        "sheaf convert ADAPTER COPY --to peft, whose copy carries no fingerprint, or of the plain "
        "model that was quantised for training: sheaf merge --plain-base");
}

sheaf_status *sheaf__opened_compare(const sheaf__opened *o, const char *is)
{
    return o->base_print[0] == '\0' ? NULL : compare_base(is, o->base_print, o->model, o->carrier);
}

sheaf_status *sheaf__opened_check(const sheaf__opened *o, sheaf_comm *all)
{
    char is[33];
    if (o->base_print[0] == '\0')
        return NULL;
    sheaf_status *st = sheaf__hashed_rest(o->hashed);
    st = all == NULL ? st : sheaf_comm_agree(all, st);
    TRY(st, sheaf__hashed_gather(o->hashed));
    TRY(st, sheaf__hashed_weights(is, o->hashed));
    TRY(st, sheaf__opened_compare(o, is));
    return all == NULL ? st : sheaf_comm_agree(all, st);
}

static sheaf_status *open_adapter(sheaf__opened *o, const sheaf__open_options *how,
                                  const sheaf_lora_options *options, bool untied)
{
    const bool stored = how->adapter != NULL && how->adapter[0] != '\0';
    const char *table = NULL;
    sheaf_status *st =
        stored && !how->config_only ? sheaf_lora_check_file(options, o->adapter) : NULL;
    TRY(st, sheaf_lora_resolve(&o->lora, o->schema, options));
    if (st == NULL && !stored && how->new_run)
        st = sheaf_in(sheaf_lora_check_exclude(o->schema, options), "`lora-exclude`");
    if (st == NULL && stored && !how->config_only) {
        st = sheaf_lora_take_tables(&table, o->lora, o->schema, o->adapter);
        TRY(st, sheaf_lora_take_copies(&table, o->lora, o->schema, o->adapter, o->base, untied));
        TRY(st, sheaf_lora_fit(&o->adapter, o->lora));
        if (st == NULL && how->for_training)
            st = sheaf_lora_check_trainable(o->lora);
        if (st == NULL && how->for_training && table != NULL)
            st = sheaf_lora_refuse_table(table);
        if (st == NULL && table != NULL)
            sheaf_note(
                how->events,
                "%s: its '%s' is used in place of the base's, as PEFT does, though its config does not ask for it",
                how->adapter, table);
    }
    return stored ? sheaf_in(st, "%s", how->adapter) : st;
}

/* LoRA in the model's own files: merged as by SAT's own merge, unless the model is to be
 * trained. */
static sheaf_status *take_weights(sheaf_source **out, sheaf_catalog *c,
                                  const sheaf__open_options *how)
{
    int64_t factors = 0;
    char *cure = NULL;
    for (int64_t i = 0; i < c->count; i++)
        factors += c->tensor[i].kind == SHEAF_LORA;
    const bool sat = c->dialect->own_lora,
               more = how->for_training || (how->adapter != NULL && how->adapter[0] != '\0');
    if (factors == 0 || sheaf__catalog_defects(c) > 0)
        return sheaf__catalog_source(out, c, false);
    if (sat && !more) {
        sheaf_note(
            how->events,
            "%s: its LoRA is merged into the weights as they are read, as SAT's own merge does",
            c->root);
        return sheaf_sat_merged(out, c);
    }
    sheaf_status *st = sheaf_fail(sat ? SHEAF_E_LAYOUT : SHEAF_E_UNSUPPORTED, "%s", c->root);
    sheaf_expected(st, "a model whose LoRA is merged");
    sheaf_found(st, "%" PRId64 " LoRA factors beside the weights", factors);
    const sheaf_finding *unmerged = sheaf__catalog_finding(c, "unmerged");
    sheaf_status *unmade = sheaf__cure(&cure, c, "sheaf merge {} {+merged}{config}");
    if (!sat && unmerged != NULL)
        sheaf_try_this(st, "%s", unmerged->cure);
    else
        sheaf_try_this(st, "%s", cure != NULL ? cure : "merge them");
    sheaf_status_free(unmade);
    free(cure);
    sheaf__catalog_free(c);
    return st;
}

static sheaf_status *add_file(sheaf__opened *o, const char *path)
{
    if (!SHEAF_GROW(&o->file, NULL, o->nfiles + 1) || (o->file[o->nfiles] = strdup(path)) == NULL)
        return sheaf__no_memory("files of the model");
    o->nfiles++;
    return NULL;
}

/* Adds the files of a catalog. In another program's folder other files may say where the tensors
 * are in them. */
static sheaf_status *add_files(sheaf__opened *o, const sheaf_catalog *c)
{
    char **names = NULL, path[SHEAF_PATH_SIZE];
    int64_t n = 0;
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < c->nfiles; i++)
        st = add_file(o, c->file[i].path);
    if (st == NULL && !c->dialect->plain && sheaf__path_kind(c->root) == SHEAF_PATH_DIR)
        st = sheaf__list_dir(&names, &n, c->root);
    for (int64_t i = 0; st == NULL && i < n; i++)
        if (sheaf__path_kind(sheaf__path_in(path, c->root, names[i])) == SHEAF_PATH_FILE)
            st = add_file(o, path);
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *read_print(sheaf__opened *o, const sheaf__open_options *how)
{
    if (how->adapter == NULL || how->adapter[0] == '\0' || how->base_known || how->config_only)
        return NULL;
    o->model = strdup(how->model);
    o->carrier = strdup(how->adapter);
    return o->model == NULL || o->carrier == NULL
               ? sheaf__no_memory(how->adapter)
               : adapter_print(o->base_print, how->model, how->adapter, how->events);
}

/* *catalog as read_config() left it; the source takes it. */
static sheaf_status *open_base(sheaf__opened *o, sheaf_catalog **catalog,
                               const sheaf__open_options *how)
{
    sheaf_catalog *c = *catalog;
    sheaf_status *st = how->hashed ? add_files(o, c) : NULL;
    if (st != NULL)
        return st;
    o->file_names = c->file_names;
    *catalog = NULL;
    st = take_weights(&o->base, c, how);
    TRY(st, check_tower(o, how->model, SHEAF_PLAN_TOWER));
    TRY(st, check_tower(o, how->model, SHEAF_PLAN_VIT));
    TRY(st, sheaf_hf_compute(&o->base, o->schema, how->events));
    return st == NULL
               ? sheaf_in(sheaf_hf_check(o->base, o->schema, o->config.json), "%s", how->model)
               : st;
}

static void shorten(sheaf_config *c, int64_t most)
{
    int64_t *const stack[] = { &c->layers, &c->experts, &c->vit.layers, &c->encoder.layers };
    for (size_t i = 0; i < sizeof stack / sizeof *stack; i++)
        *stack[i] = *stack[i] < most ? *stack[i] : most;
}

/* A config that came with another form of the weights: what is loaded takes more memory than it
 * lets expect. */
static void warn_of_config(const sheaf_catalog *c, const sheaf__open_options *how)
{
    const sheaf_finding *f = sheaf__catalog_finding(c, "conflict");
    if (f != NULL && f->severity == SHEAF_WARNING && c->config_path != NULL &&
        strcmp(f->path, c->config_path) == 0)
        sheaf_warn(how->events, "%s: %s", f->path, f->found);
}

/* Code that is never run; weights that are read in another type than they are stored in. */
static void note_reading(const sheaf_catalog *c, const sheaf__open_options *how)
{
    static const char *const codes[] = { "code", "dtype" };
    for (int i = 0; i < 2; i++) {
        const sheaf_finding *f = sheaf__catalog_finding(c, codes[i]);
        if (f != NULL && f->severity == SHEAF_NOTE)
            sheaf_note(how->events, "%s: %s", f->path, f->found);
    }
}

/* The schema of a config that the adapter changed: a tied table becomes two tensors if it names one
 * of its uses, tables have more rows if it adds tokens, and a reward model has another head. */
static sheaf_status *change_schema(sheaf__opened *o, bool untied, bool scores, int64_t vocab,
                                   int slices)
{
    if (!untied && !scores && vocab == o->config.vocab)
        return NULL;
    if (scores)
        sheaf__config_score(&o->config);
    sheaf_schema_free(o->schema);
    o->schema = NULL;
    o->config.tied = o->config.tied && !untied;
    o->config.vocab = vocab;
    return sheaf_schema_new(&o->schema, &o->config, slices);
}

/* ---- added tokens ---- */

/* Rows of the table that the adapter has in full; 0: it has none. */
static int64_t adapter_rows(const sheaf__opened *o)
{
    const sheaf__family *family = sheaf__family_for(&o->config);
    const char *const tables[] = { family->table, family->head };
    int64_t rows = 0;
    for (int i = 0; i < 2 && o->adapter != NULL; i++) {
        const sheaf_source_entry *e =
            tables[i] == NULL ? NULL
                              : sheaf__lora_find_part(o->adapter, tables[i], strlen(tables[i]), "");
        if (e != NULL && e->ndim == 2 && e->shape[1] == o->config.hidden && e->shape[0] > rows)
            rows = e->shape[0];
    }
    return rows;
}

/* Rows of the tables with the tokens of the adapter, read or new. */
static int64_t find_vocab(const sheaf__opened *o, const sheaf__open_options *how)
{
    const bool stored = how->adapter != NULL && how->adapter[0] != '\0';
    const int64_t rows = stored ? adapter_rows(o) : how->added.first + how->added.count;
    if (rows <= o->config.vocab)
        return o->config.vocab;
    sheaf_note(how->events,
               "tables of %" PRId64 " rows, where those of the base have %" PRId64
               ": it gets more tokens",
               rows, o->config.vocab);
    return rows;
}

/* *begins: the adapter, or the run, makes a reward model of a base that is none. */
static sheaf_status *check_scores(bool *begins, const sheaf__opened *o,
                                  const sheaf_lora_options *options, const sheaf__open_options *how)
{
    const bool adapted = options != NULL && options->scores,
               stored = how->adapter != NULL && how->adapter[0] != '\0', is = o->config.scores;
    *begins = !is && (adapted || how->scores);
    if (*begins && !sheaf__may_score(&o->config))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "a reward model"),
                                          "a text model of Llama's kin"),
                           "one of family %s", sheaf_family_name(o->config.family));
    if (how->scores && stored && !adapted)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", how->adapter),
                                       "an adapter of a reward model (task_type SEQ_CLS)"),
                        "one of another task"),
            "merge it into the base first: sheaf merge BASE ADAPTER MERGED");
    if (how->for_training && !how->scores && (is || adapted))
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`objective`"),
                                                         "reward, of a reward model"),
                                          "another"),
                              "`objective` reward");
    return NULL;
}

sheaf_status *sheaf__open_model(sheaf__opened *out, const sheaf__open_options *how)
{
    *out = (sheaf__opened){ .as_stored = how->as_stored };
    if (how->slices < 1 || how->slices > SHEAF_MAX_SLICES || (how->slices & (how->slices - 1)) != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`slices`"),
                                          "a power of two, at most %d", SHEAF_MAX_SLICES),
                           "%d", how->slices);
    sheaf_lora_options read = { 0 };
    const sheaf_lora_options *options = NULL;
    sheaf_catalog *catalog = NULL;
    bool untied = false, scores = false;
    sheaf_status *st = read_config(out, &catalog, how);
    if (st == NULL && catalog != NULL) {
        warn_of_config(catalog, how);
        note_reading(catalog, how);
    }
    if (st == NULL && how->layers > 0)
        shorten(&out->config, how->layers);
    if (st == NULL && !how->weights_only)
        st = sheaf__picture_settings_read(&out->config, how->model, how->config, how->events);
    TRY(st, sheaf_schema_new(&out->schema, &out->config, how->slices));
    out->base_vocab = out->config.vocab;
    if (st == NULL && !how->config_only)
        st = open_base(out, &catalog, how); /* explains a wrong class better */
    TRY(st, read_print(out, how));
    if (st == NULL && (how->hashed || out->base_print[0] != '\0'))
        st = sheaf__opened_lay_print(out, !how->hashed, how->all);
    TRY(st, check_config(&out->config, how));
    TRY(st, adapter_options(&options, &read, out, how));
    TRY(st, check_scores(&scores, out, options, how));
    if (st == NULL && (options != NULL || scores)) {
        untied = !scores && options != NULL && sheaf_lora_unties(options, &out->config);
        st = change_schema(out, untied, scores,
                           options == NULL ? out->config.vocab : find_vocab(out, how), how->slices);
    }
    if (st == NULL && options != NULL)
        st = open_adapter(out, how, options, untied);
    if (how->config_only && out->adapter != NULL) {
        out->adapter->close(out->adapter);
        out->adapter = NULL;
    }
    TRY(st, lay_over(out, untied, &how->added));
    if (st == NULL && how->config_only)
        st = sheaf__opened_find_forms(out, catalog, how);
    if (st == NULL && how->quantize != SHEAF_QUANTIZE_NONE)
        st = sheaf__opened_lay_codes(out, how->quantize, NULL, NULL, !how->hashed, how->all);
    sheaf_lora_options_release(&read);
    sheaf__catalog_free(catalog);
    return st;
}

const char *sheaf__opened_tokenizer(const sheaf__opened *o, const char *adapter)
{
    bool own = false;
    for (int i = 0; o->lora != NULL && i < o->lora->nsaved; i++)
        own |= sheaf__lora_is_table(o->lora->saved[i]->name, o->lora->saved[i]->ndim);
    return own && adapter != NULL && sheaf_hf_has_tokenizer(adapter) ? adapter : NULL;
}

void sheaf__opened_close(sheaf__opened *o)
{
    if (o->weights != NULL && o->weights != o->base && o->weights != o->widened)
        o->weights->close(o->weights);
    if (o->widened != NULL)
        o->widened->close(o->widened);
    if (o->adapter != NULL)
        o->adapter->close(o->adapter);
    if (o->base != NULL)
        o->base->close(o->base);
    if (o->stored != NULL)
        o->stored->close(o->stored);
    if (o->forms != NULL)
        o->forms->close(o->forms);
    sheaf__hashed_free(o->hashed);
    for (int64_t i = 0; i < o->nfiles; i++)
        free(o->file[i]);
    free(o->file);
    free(o->config_text);
    free(o->model);
    free(o->carrier);
    sheaf_lora_free(o->lora);
    sheaf_schema_free(o->schema);
    sheaf_config_release(&o->config);
    *o = (sheaf__opened){ 0 };
}

/* ---- adapters of a base that is not run ---- */

static sheaf_status *hash_base(char out[33], const char *base, const char *config,
                               sheaf_quantize as)
{
    sheaf__opened opened = { 0 };
    sheaf_status *st = sheaf__open_model(&opened, &(sheaf__open_options){ .model = base,
                                                                          .config = config,
                                                                          .weights_only = true,
                                                                          .slices = 8,
                                                                          .hashed = true,
                                                                          .quantize = as });
    TRY(st, sheaf__hashed_all(opened.hashed, 0));
    TRY(st, sheaf__hashed_weights(out, opened.hashed));
    sheaf__opened_close(&opened);
    return st;
}

sheaf_status *sheaf__adapters_base(const char *base, const char *config, sheaf_quantize as,
                                   const char *const *adapters, int n, const sheaf_events *events)
{
    char is[33] = "", was[33];
    sheaf_status *st = NULL;
    for (int i = 0; i < n && st == NULL; i++) {
        st = adapter_print(was, base, adapters[i], events);
        if (st != NULL || was[0] == '\0')
            continue;
        if (is[0] == '\0')
            st = hash_base(is, base, config, as);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY) {
            sheaf_warn(events,
                       "the adapter's fingerprint of its base cannot be compared with %s: %s: %s",
                       base, sheaf_status_where(st), sheaf_status_found(st));
            sheaf_status_free(st);
            return NULL;
        }
        TRY(st, compare_base(is, was, base, adapters[i]));
    }
    return st;
}

/* ---- fingerprint ---- */

/* Columns of a source's rows: the last axis. */
static int64_t row_width(const sheaf_tensor *t)
{
    return t->ndim == 1 ? 1 : t->shape[t->ndim - 1];
}

sheaf_status *sheaf__fingerprint(char out[33], const sheaf_schema *schema, sheaf_source *source)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    int64_t widest = 1;
    for (int64_t i = 0; i < schema->count; i++)
        widest = row_width(&schema->tensor[i]) > widest ? row_width(&schema->tensor[i]) : widest;
    void *row = malloc((size_t)widest * 8);
    sheaf_status *st =
        hasher == NULL || row == NULL ? sheaf__no_memory("fingerprint of the base") : NULL;
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const sheaf_source_entry *e = source->find(source, t->name);
        if (e == NULL) {
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", t->name),
                                            "a tensor of this name in the base"),
                             "none");
            break;
        }
        const int64_t facts[3] = { e->dtype, t->shape[0], t->shape[1] }, cols = row_width(t);
        const int64_t rows = sheaf__elements(t->ndim, t->shape) / cols;
        sheaf__hasher_add(hasher, t->name, strlen(t->name) + 1);
        sheaf__hasher_add(hasher, facts, sizeof facts);
        for (int last = 0; last < 2 && st == NULL; last++) { /* e->name may be an adapter's */
            st = source->read(source, t->name, last ? rows - 1 : 0, 1, 0, cols, row);
            if (st == NULL)
                sheaf__hasher_add(hasher, row, (size_t)cols * sheaf_dtype_bytes(e->dtype));
        }
    }
    if (st == NULL)
        sheaf__hash_text(out, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    free(row);
    return st;
}
