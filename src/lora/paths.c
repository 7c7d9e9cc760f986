/* paths.c - see paths.h. */
#include "lora/paths.h"

#include <math.h>

#include "base/base.h"
#include "base/regex.h"
#include "schema/family.h"
#include "schema/paths.h"

bool sheaf__lora_by_paths(const sheaf_schema *schema)
{
    return sheaf__family_for(&schema->config)->paths;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_target_kind(const sheaf_tensor *t)
{
    return !t->bias && !t->buffer && t->ndim == 2 && sheaf__is_linear(t->role) && !t->idle;
}

/* ---- matching an entry ---- */

static size_t without_number(const char *path)
{
    const char *dot = strrchr(path, '.');
    const bool number =
        dot != NULL && dot[1] != '\0' && dot[1 + strspn(dot + 1, "0123456789")] == '\0';
    return number ? (size_t)(dot - path) : strlen(path);
}

static bool ends_with_item(const char *path, const char *item)
{
    return sheaf__ends_with_item(path, strlen(path), item) ||
           sheaf__ends_with_item(path, without_number(path), item);
}

/* The weight of the module with this path, or the tensor that is one without a suffix. */
static const sheaf_tensor *by_path(const sheaf_schema *schema, const char *path)
{
    char name[512];
    const int n = snprintf(name, sizeof name, "%s.weight", path);
    const sheaf_tensor *t =
        n > 0 && (size_t)n < sizeof name ? sheaf_schema_find(schema, name) : NULL;
    return t != NULL ? t : sheaf_schema_find(schema, path);
}

static bool means(const sheaf_schema *schema, const char *item, const sheaf_tensor *t)
{
    const sheaf_tensor *exact = by_path(schema, item);
    return exact != NULL ? exact == t : ends_with_item(t->module, item);
}

bool sheaf__lora_in_sat_set(sheaf_sat_set set, const sheaf_schema *schema, const char *path)
{
    const sheaf__sat_layers *of = sheaf__family_for(&schema->config)->sat_layers;
    if (set == SHEAF_SAT_SET_NONE || of == NULL ||
        (!begins(path, of->text) && !(set == SHEAF_SAT_SET_VIT && begins(path, of->vit))))
        return false;
    for (const char *const *end = of->end; *end != NULL; end++)
        if (sheaf__ends_with_item(path, strlen(path), *end))
            return true;
    return false;
}

static sheaf_status *layer_wanted(bool *out, const sheaf_lora_options *o, const sheaf_tensor *t)
{
    if (o->layers_pattern.n > 0)
        return sheaf__lora_layer_wanted(out, o, t->module);
    *out = o->nlayers == 0;
    for (int i = 0; i < o->nlayers; i++)
        *out |= o->layers[i] == t->layer;
    return NULL;
}

/* Buffers never are. */
static bool paths_saves(const sheaf_lora_options *o, const sheaf_schema *schema,
                        const sheaf_tensor *t)
{
    if (t->buffer || t->idle)
        return false;
    for (int i = 0; i < o->modules_to_save.n; i++) {
        const sheaf_lora_options one = { .modules_to_save = { &o->modules_to_save.list[i], 1 } };
        const sheaf_tensor *exact = by_path(schema, o->modules_to_save.list[i]);
        if (exact != NULL && strcmp(exact->module, o->modules_to_save.list[i]) != 0)
            continue; /* one tensor of a module, which may be adapted all the same:
                         sheaf__lora_saves_tensor() */
        if (exact != NULL ? strcmp(exact->module, t->module) == 0
                          : sheaf__lora_saves(&one, t->module))
            return true;
    }
    return false;
}

bool sheaf__lora_saves_whole(const sheaf_lora_options *o, const sheaf_schema *schema,
                             const sheaf_tensor *t)
{
    return (sheaf__lora_saves_tensor(o, t->name) && !t->buffer && !t->idle) ||
           (sheaf__lora_by_paths(schema) ? paths_saves(o, schema, t)
                                         : sheaf__lora_saves(o, t->module));
}

static sheaf_status *excluded(bool *out, const sheaf_lora_options *o, const sheaf_schema *schema,
                              const sheaf_tensor *t)
{
    *out = paths_saves(o, schema, t);
    for (int i = 0; i < o->exclude.n && !*out; i++)
        *out = means(schema, o->exclude.list[i], t);
    if (*out || o->exclude.regex == NULL)
        return NULL;
    return sheaf__regex_match(out, NULL, "", o->exclude.regex, "", t->module, true);
}

sheaf_status *sheaf__lora_paths_hit(sheaf_hit *out, const sheaf_lora_options *o,
                                    const sheaf_schema *schema, const sheaf_tensor *t)
{
    bool yes = false, wanted = false;
    *out = SHEAF_HIT_NONE;
    if (!is_target_kind(t))
        return NULL;
    sheaf_status *st = excluded(&yes, o, schema, t);
    if (st != NULL || yes) {
        *out = SHEAF_HIT_EXCLUDED;
        return st;
    }
    if (o->targets.regex != NULL)
        st = sheaf__regex_match(&yes, NULL, "", o->targets.regex, "", t->module, true);
    else
        yes = sheaf__lora_in_sat_set(o->sat_set, schema, t->module) ||
              (o->all_linear && t->role != SHEAF_HEAD);
    for (int i = 0; i < o->targets.n && !yes; i++)
        yes = means(schema, o->targets.list[i], t);
    TRY(st, layer_wanted(&wanted, o, t));
    wanted |= sheaf__lora_has_name(&o->targets, t->module); /* a whole path counts in any layer */
    if (st == NULL && yes && wanted)
        *out = SHEAF_HIT_TARGET;
    return st;
}

/* ---- entries that match nothing ---- */

/* Refuses a target that only matches modules that cannot be adapted. */
static sheaf_status *refuse(const sheaf_tensor *t, const char *item)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "target '%s'", item);
    sheaf_expected(st, "linear layers");
    if (t->idle)
        return sheaf_try_this(sheaf_found(st, "%s, which the model never executes", t->module),
                              "leave it out");
    return sheaf_try_this(sheaf_found(st, "%s, which is none", t->module),
                          "train it whole: modules_to_save %s", item);
}

sheaf_status *sheaf__lora_paths_target(const sheaf_schema *schema, const char *item)
{
    const sheaf_tensor *other = NULL;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!means(schema, item, t))
            continue;
        if (is_target_kind(t))
            return NULL;
        other = other == NULL || !sheaf__is_linear(other->role) ? t : other;
    }
    return other != NULL ? refuse(other, item) : sheaf__lora_no_module(schema, "target", item);
}

/* ---- the options of a file ---- */

/* "^" and the path: PEFT would match a bare path with the end of another, and paths of the text
 * model end paths of the ViT. */
static sheaf_status *add_pattern(sheaf_patterns *to, const char *path, double value)
{
    if (asprintf(&to->at[to->n].key, "^%s", path) < 0)
        return sheaf__no_memory("LoRA options");
    to->at[to->n++].value = value;
    return NULL;
}

/* Parameters of a module, as the resampler's query, are no modules by themselves. */
enum { NAMES = 256, NAME = 96 };

sheaf_status *sheaf__lora_no_module(const sheaf_schema *schema, const char *what, const char *item)
{
    const bool cog = sheaf__lora_by_paths(schema), path = strchr(item, '.') != NULL,
               target = strcmp(what, "target") == 0;
    const char *names[NAMES];
    char(*buffer)[NAME] = malloc(sizeof *buffer * NAMES);
    int n = 0;
    for (int64_t i = 0; buffer != NULL && i < schema->count && n < NAMES; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const bool named = cog ? !t->buffer && (!target || is_target_kind(t))
                               : !t->bias && strcmp(t->name, t->module) != 0;
        if (t->layer > 0 || !named)
            continue;
        const size_t length = cog && !path ? without_number(t->module) : strlen(t->module);
        snprintf(buffer[n], NAME, "%.*s", (int)length, t->module);
        const char *dot = strrchr(buffer[n], '.');
        names[n] = path || dot == NULL ? buffer[n] : dot + 1;
        n++;
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s '%s'", what, item);
    sheaf_expected(st, "the name of a module of this model, for example %s",
                   cog ? "attention.dense" : "q_proj");
    sheaf_found(st, "no module of that name");
    const char *near = sheaf__nearest(item, names, n);
    if (near != NULL)
        sheaf_try_this(st, "%s", near);
    free(buffer);
    return st;
}

sheaf_status *sheaf__lora_paths_spell(sheaf_lora *lora)
{
    const sheaf_lora_options *o = &lora->options;
    const sheaf_lora_module *first = &lora->module[0];
    sheaf_lora_options written = { .rank = first->file_rank,
                                   .whole_rank = true,
                                   .alpha = first->file_alpha,
                                   .rslora = o->rslora,
                                   .dora = o->dora,
                                   .dropout = o->dropout,
                                   .bias = o->bias,
                                   .keep_tie = o->keep_tie,
                                   .tolerant = o->tolerant };
    const size_t n = (size_t)lora->nmodules + 1;
    const char **path = calloc(n, sizeof *path);
    sheaf_text targets = { 0 };
    written.rank_pattern.at = calloc(n, sizeof *written.rank_pattern.at);
    written.alpha_pattern.at = calloc(n, sizeof *written.alpha_pattern.at);
    sheaf_status *st =
        path == NULL || written.rank_pattern.at == NULL || written.alpha_pattern.at == NULL
            ? sheaf__no_memory("LoRA options")
            : NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        path[i] = m->base->module;
        if (m->file_rank != first->file_rank)
            st = add_pattern(&written.rank_pattern, m->base->module, (double)m->file_rank);
        if (st == NULL && m->file_alpha != first->file_alpha)
            st = add_pattern(&written.alpha_pattern, m->base->module, m->file_alpha);
    }
    if (st == NULL) {
        sheaf__paths_pattern(&targets, path, lora->nmodules);
        st = sheaf__text_take(&written.targets.regex, &targets);
    }
    free(path);
    if (st != NULL) {
        sheaf_lora_options_release(&written);
        return st;
    }
    written.modules_to_save = o->modules_to_save; /* moved */
    written.base_name = o->base_name;
    written.unknown_keys = o->unknown_keys;
    lora->options.modules_to_save = (sheaf_lora_names){ 0 };
    lora->options.base_name = lora->options.unknown_keys = NULL;
    sheaf_lora_options_release(&lora->options);
    lora->options = written;
    return NULL;
}

/* ---- modules to exclude ---- */

/* Does the entry in `one` exclude the module of this tensor? */
static sheaf_status *is_excluded(bool *yes, const sheaf_schema *schema,
                                 const sheaf_lora_options *one, const sheaf_tensor *t)
{
    sheaf_hit hit = SHEAF_HIT_NONE;
    *yes = false;
    if (t->bias || strcmp(t->name, t->module) == 0)
        return NULL;
    sheaf_status *st = sheaf__lora_by_paths(schema) ? sheaf__lora_paths_hit(&hit, one, schema, t)
                                                    : sheaf__lora_hit(&hit, one, t->module);
    *yes = hit == SHEAF_HIT_EXCLUDED;
    return st;
}

/* The error for an entry that excludes nothing: a name of a container needs an expression for the
 * modules inside. */
static sheaf_status *excludes_nothing(const sheaf_schema *schema, const char *item, bool expression)
{
    char inside[160];
    snprintf(inside, sizeof inside, ".%.150s.", item);
    if (expression) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "expression '%s'", item);
        sheaf_expected(st, "one that matches the whole path of a module, for example %s",
                       schema->tensor[schema->count / 2].module);
        return sheaf_found(st, "no module that it matches");
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const char *path = schema->tensor[i].module;
        if (strstr(path, inside) == NULL && strncmp(path, inside + 1, strlen(inside) - 1) != 0)
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "module to exclude '%s'", item);
        sheaf_found(sheaf_expected(st, "a module with weights"), "one around others, as %s", path);
        return sheaf_try_this(st, "an expression for the modules inside: \"(.*\\.)?%s\\..*\"",
                              item);
    }
    return sheaf__lora_no_module(schema, "module to exclude", item);
}

sheaf_status *sheaf_lora_check_exclude(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < o->exclude.n + (o->exclude.regex != NULL) && st == NULL; i++) {
        const sheaf_lora_options one = {
            .exclude = { i < o->exclude.n ? &o->exclude.list[i] : NULL, i < o->exclude.n,
                         i < o->exclude.n ? NULL : o->exclude.regex }
        };
        bool met = false;
        for (int64_t t = 0; t < schema->count && !met && st == NULL; t++)
            st = is_excluded(&met, schema, &one, &schema->tensor[t]);
        if (st == NULL && !met)
            st = excludes_nothing(schema, i < o->exclude.n ? o->exclude.list[i] : o->exclude.regex,
                                  i == o->exclude.n);
    }
    return st;
}
