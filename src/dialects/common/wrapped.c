/* wrapped.c - see wrapped.h.
 *
 * PEFT puts a layer of its own in the place of each that it adapts (tuners/tuners_utils.py,
 * utils/other.py), and the whole model into base_model.model:
 *   X.base_layer.weight            the layer's
 *   X.lora_A.NAME.weight, ...      the adapter NAME's, beside base_layer
 *   X.original_module.weight       the layer's, of modules_to_save
 *   X.modules_to_save.NAME.weight  the adapter's copy
 *   X.token_adapter....            the adapter's rows (trainable_token_indices)
 * Layers of which it adapts several parameters (target_parameters) lie in as many of its own:
 *   X.base_layer.base_layer.P      the layer's parameter
 *   X.base_layer.lora_A.NAME.weight, X.lora_A.NAME.weight   the first one's, the second one's */
#include "dialects/common/wrapped.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model_folder.h"
#include "dialects/common/tower_sizes.h"
#include "schema/family.h"
#include "schema/paths.h"

enum { MOST_CONFIG = 16 << 20 };

static char *base_of(const sheaf_logical *t)
{
    return (char *)(t->kind == SHEAF_MOMENT ? sheaf__moment_base(t->entry.name) : t->entry.name);
}

/* Two tensors of one name become a finding; the tables of names are made anew. */
static sheaf_status *renamed(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_sort(c);
    for (int64_t i = 1; st == NULL && i < c->count; i++)
        if (strcmp(c->tensor[i - 1].entry.name, c->tensor[i].entry.name) == 0)
            st = sheaf__defect(c, "duplicate", c->root, c->tensor[i].entry.name,
                               "one tensor of this name", "", "a second one, under another name");
    return st;
}

/* ---- words ---- */

/* DataParallel's word "module" may also be a real name: it is removed only if all names begin with
 * it. `first`: a word that was found; NULL: none. */
static sheaf_status *find_words(const char **first, const sheaf_catalog *c)
{
    bool every = true, certain = false;
    *first = NULL;
    for (int64_t i = 0; i < c->count; i++) {
        char *name = strdup(base_of(&c->tensor[i]));
        if (name == NULL)
            return sheaf__no_memory(c->root);
        const char *word = sheaf__unwrap(name);
        if (word == NULL)
            every = every && c->tensor[i].kind != SHEAF_WEIGHT;
        else
            *first = *first != NULL ? *first : word;
        certain = certain || (word != NULL && strcmp(word, "module.") != 0);
        const bool twice = word != NULL && c->tensor[i].kind != SHEAF_MOMENT &&
                           sheaf__catalog_find(c, name) != NULL;
        free(name);
        if (twice) { /* two models in one save: left to the checks */
            *first = NULL;
            return NULL;
        }
    }
    if (!certain && !every)
        *first = NULL;
    return NULL;
}

static sheaf_status *take_words(sheaf_catalog *c)
{
    const char *first;
    sheaf_status *st = find_words(&first, c);
    if (st != NULL || first == NULL)
        return st;
    for (int64_t i = 0; i < c->count; i++)
        sheaf__unwrap(base_of(&c->tensor[i]));
    st = sheaf__note(c, "inferred", c->root, "", "names as the model has them", "",
                     "names with '%s', a wrapper's word, which is left out", first);
    return st != NULL ? st : renamed(c);
}

/* ---- PEFT ---- */

static const char *const parts[] = { ".token_adapter.base_layer.", ".base_layer.",
                                     ".original_module." };
enum { BASE_LAYER = 1, PARTS = sizeof parts / sizeof *parts };

static bool has_part(const char *name)
{
    for (int k = 0; k < PARTS; k++)
        if (strstr(name, parts[k]) != NULL)
            return true;
    return false;
}

/* Is there a base_layer beside it? */
static bool beside(const sheaf_catalog *c, const char *name)
{
    char layer[600];
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const int n =
            snprintf(layer, sizeof layer, "%.*s.base_layer.weight", (int)(dot - name), name);
        if (n > 0 && (size_t)n < sizeof layer && sheaf__catalog_find(c, layer) != NULL)
            return true;
    }
    return false;
}

bool sheaf__is_lora_tensor(const char *name, bool rows)
{
    return strstr(name, ".lora_") != NULL || strstr(name, ".modules_to_save.") != NULL ||
           (rows && strstr(name, ".trainable_tokens_delta") != NULL);
}

static bool is_adapters(const sheaf_catalog *c, const char *name, bool layers)
{
    static const char whole[] = "base_model.", model[] = "base_model.model.";
    return sheaf__is_lora_tensor(name, true) || (layers && !has_part(name) && beside(c, name)) ||
           (strncmp(name, whole, strlen(whole)) == 0 && strncmp(name, model, strlen(model)) != 0);
}

static void cut(char *name, const char *part)
{
    for (char *at; (at = strstr(name, part)) != NULL;)
        memmove(at + 1, at + strlen(part), strlen(at + strlen(part)) + 1);
}

static void spell(char *name)
{
    static const char whole[] = "base_model.model.";
    if (strncmp(name, whole, sizeof whole - 1) == 0)
        memmove(name, name + sizeof whole - 1, strlen(name + sizeof whole - 1) + 1);
    const bool factor = strstr(name, ".lora_") != NULL; /* its base_layer tells which one's */
    for (int k = 0; k < PARTS; k++)
        if (!factor || k != BASE_LAYER)
            cut(name, parts[k]);
}

const char *sheaf__plain_name(char out[SHEAF__PLAIN_NAME], const char *name)
{
    const size_t n = strlen(name);
    if (n >= SHEAF__PLAIN_NAME)
        return name;
    memcpy(out, name, n + 1);
    sheaf__unwrap(out);
    spell(out);
    return out;
}

/* The adapter's name in a factor or a saved module; "": none. */
static const char *adapter_of(size_t *length, const char *name)
{
    static const char *const words[] = { ".modules_to_save.", ".trainable_tokens_delta.",
                                         ".lora_" };
    const char *at = NULL;
    for (size_t i = 0; at == NULL && i < sizeof words / sizeof *words; i++)
        at = strstr(name, words[i]);
    at = at != NULL ? strchr(at + 1, '.') : NULL;
    *length = at != NULL ? strcspn(at + 1, ".") : 0;
    if (at == NULL || strcmp(at, ".weight") == 0 || strcmp(at, ".bias") == 0)
        *length = 0;
    return *length > 0 ? at + 1 : "";
}

/* Is it a single LoRA that convert --to peft can extract? The trained rows of a table are only in
 * `config`. */
static bool is_single(const sheaf_catalog *c, const char *config)
{
    const char *first = NULL;
    size_t length = 0, n;
    for (int64_t i = 0; i < c->count; i++) {
        const char *name = c->tensor[i].entry.name;
        if (c->tensor[i].kind != SHEAF_LORA)
            continue;
        if (!sheaf__is_lora_tensor(name, config != NULL))
            return false;
        const char *adapter = adapter_of(&n, name);
        if (first != NULL && (n != length || strncmp(adapter, first, n) != 0))
            return false;
        first = adapter;
        length = n;
    }
    return true;
}

sheaf_status *sheaf__adapter_config_of(char **out, const char *root)
{
    char path[SHEAF_PATH_SIZE], above[SHEAF_PATH_SIZE];
    const char *const dirs[] = { root, sheaf__path_above(above, root) };
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        size_t size;
        sheaf__path_in(path, dirs[i], "adapter_config.json");
        if (sheaf__path_kind(path) == SHEAF_PATH_FILE)
            return sheaf__file_read_all(out, &size, path, MOST_CONFIG);
    }
    return NULL;
}

/* The remedy: sheaf's commands, or PEFT where only PEFT can merge. */
static sheaf_status *make_cure(char **out, const sheaf_catalog *c)
{
    char *config = NULL;
    const char *base = c->config != NULL ? "{config}" : " --config CONFIG";
    sheaf_status *st = sheaf__only_memory(sheaf__adapter_config_of(&config, c->root));
    const int n =
        st != NULL ? -1
        : !is_single(c, config)
            ? asprintf(out,
                       "merge it with PEFT (merge_and_unload); the base alone: sheaf "
                       "convert {} {+base} --to hf%s",
                       base)
            : asprintf(out,
                       "sheaf convert {} {+adapter} --to peft%s && sheaf convert {} "
                       "{+base} --to hf%s && sheaf merge {+base} {+adapter} {+merged}%s%s",
                       config != NULL ? "" : " --lora-alpha ALPHA", base,
                       config != NULL ? "" : "; ALPHA is the lora_alpha of the run",
                       c->config != NULL ? "" : "; CONFIG is the model's config.json");
    free(config);
    return st != NULL ? st : n < 0 ? sheaf__no_memory(c->root) : NULL;
}

static sheaf_status *report_unmerged(sheaf_catalog *c)
{
    const char *first = NULL;
    char *cure = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_LORA)
            first = n++ == 0 ? c->tensor[i].entry.name : first;
    if (n == 0 || sheaf__catalog_finding(c, "unmerged") != NULL)
        return NULL;
    sheaf_status *st = make_cure(&cure, c);
    TRY(st,
        sheaf__warning(c, "unmerged", c->root, "", "weights with LoRA merged into them", cure,
                       "%" PRId64 " tensors of PEFT's adapter beside the weights, the first '%s'",
                       n, first));
    free(cure);
    return st;
}

static sheaf_status *take_adapter(sheaf_catalog *c)
{
    bool layers = false, lora = false;
    for (int64_t i = 0; i < c->count; i++) {
        layers = layers || has_part(c->tensor[i].entry.name);
        lora = lora || c->tensor[i].kind == SHEAF_LORA ||
               strstr(c->tensor[i].entry.name, ".lora_") != NULL;
    }
    if (!layers && !lora)
        return NULL;
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_WEIGHT && is_adapters(c, c->tensor[i].entry.name, layers))
            c->tensor[i].kind = SHEAF_LORA;
    for (int64_t i = 0; i < c->count; i++)
        spell(base_of(&c->tensor[i]));
    sheaf_status *st = renamed(c);
    return st != NULL ? st : report_unmerged(c);
}

/* ---- several namings of one model ---- */

/* The name of a tensor, or of the tensor that a moment is of, as the model has it; *rule: by which
 * it was read; NULL: it stays. */
static sheaf_status *name_in_model(const sheaf__name_rule **rule, sheaf_logical *t,
                                   const sheaf__name_rule *rules)
{
    const char *name = t->entry.name, *base = base_of(t);
    char spelled[SHEAF__SPELLED], *whole = NULL;
    *rule = sheaf__respell(spelled, rules, false, base, 0);
    if (*rule == NULL || strcmp(spelled, base) == 0)
        return NULL;
    if (asprintf(&whole, "%.*s%s", (int)(base - name), name, spelled) < 0)
        return sheaf__no_memory("names of tensors");
    free((char *)name);
    t->entry.name = whole;
    return NULL;
}

static sheaf_status *take_file_names(sheaf_catalog *c)
{
    const sheaf__name_rule *rules = sheaf_hf_file_names(c->config), *rule, *lacks = NULL;
    unsigned read = 0;
    bool changed = false;
    sheaf_status *st = NULL;
    if (rules == NULL || c->file_names != 0)
        return NULL;
    for (int64_t i = 0; i < c->count && st == NULL; i++) {
        st = name_in_model(&rule, &c->tensor[i], rules);
        if (st != NULL || rule == NULL)
            continue;
        read |= 1u << (rule - rules);
        changed = changed || strcmp(rule->one, rule->other) != 0;
        if (sheaf__ends_with(rule->other, rule->one) && !sheaf__is_published(rule))
            lacks = strcmp(rule->one, rule->other) != 0 ? rule : lacks;
    }
    if (c->dialect->plain)
        c->file_names = read;
    if (lacks != NULL)
        TRY(st, sheaf__note(c, "inferred", c->root, "", "names as the model has them", "",
                            "names without '%.*s', which is put in front",
                            (int)(strlen(lacks->other) - strlen(lacks->one)), lacks->other));
    return st == NULL && changed ? renamed(c) : st;
}

/* ---- a second tower ---- */

static sheaf_status *add_sizes(sheaf_catalog *c)
{
    json_t *json = NULL;
    sheaf_config config = { 0 };
    if (c->config == NULL || c->count == 0)
        return NULL;
    sheaf_status *st = sheaf__json_parse(&json, c->config, strlen(c->config));
    TRY(st, sheaf_config_parse(&config, c->config, strlen(c->config)));
    if (st != NULL) /* its reader reports it */
        st = sheaf__only_memory(st);
    else
        st = sheaf__catalog_tower_sizes(c, &config, json, c->config_path);
    sheaf_config_release(&config);
    json_decref(json);
    return st;
}

sheaf_status *sheaf__catalog_unwrap(sheaf_catalog *c)
{
    if (c->dialect->adapter || c->dialect->own_lora || c->dialect->manifest)
        return NULL;
    sheaf_status *st = take_words(c);
    TRY(st, take_adapter(c));
    TRY(st, take_file_names(c));
    return st != NULL ? st : add_sizes(c);
}
