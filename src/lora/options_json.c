/* options_json.c - adapter_config.json, read and written.
 *
 * Keys are read, known to be harmless, or known to change the arithmetic; the last
 * are refused unless they have the value that switches them off. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "base/json.h"
#include "base/text.h"
#include "lora/match.h"
#include "lora/options.h"
#include "schema/wrappers.h"

#define BY_OPTIONS "" /* written, as the options have it */

/* Every key that is known, sorted. `written`: what PEFT 0.21 writes for it; NULL: it does not.
 * `refused`: it changes the arithmetic, and is called so in a message, unless it is off: absent,
 * null, false, 0, "", [] or {}. */
static const struct {
    const char *key, *written, *refused;
} keys[] = {
    { "alora_invocation_tokens", "null", "activated LoRA" },
    { "alpha_pattern", BY_OPTIONS },
    { "arrow_config", "null", "Arrow" },
    { "auto_mapping", "null" },
    { "base_model_name_or_path", BY_OPTIONS },
    { "bias", BY_OPTIONS },
    { "corda_config", "null" },
    { "enable_lora" },
    { "ensure_weight_tying", BY_OPTIONS },
    { "eva_config", "null" },
    { "exclude_modules", BY_OPTIONS },
    { "fan_in_fan_out", BY_OPTIONS },
    { "inference_mode", "true" },
    { "init_lora_weights", "true" },
    { "kasa_config", "null", "KaSA" },
    { "layer_replication", "null", "layer replication" },
    { "layers_pattern", BY_OPTIONS },
    { "layers_to_transform", BY_OPTIONS },
    { "loftq_config", "{}" },
    { "lora_alpha", BY_OPTIONS },
    { "lora_bias", "false" },
    { "lora_dropout", BY_OPTIONS },
    { "lora_ga_config", "null" },
    { "megatron_config", "null" },
    { "megatron_core", "\"megatron.core\"" },
    { "merge_weights" },
    { "mica_config", NULL, "MiCA" },
    { "modules_to_save", BY_OPTIONS },
    { "monteclora_config", "null", "MonteCLoRA" },
    { "peft_type", "\"LORA\"" },
    { "peft_version", "\"0.21.2\"" },
    { "qalora_group_size", "16" },
    { "r", BY_OPTIONS },
    { "rank_pattern", BY_OPTIONS },
    { "revision", "null" },
    { "runtime_config" },
    { "target_modules", BY_OPTIONS },
    { "target_parameters", "null", "LoRA on bare parameters" },
    { "task_type", "\"CAUSAL_LM\"" },
    { "trainable_token_indices", "null" },
    { "use_bdlora", "null", "BD-LoRA" },
    { "use_dora", "false" },
    { "use_qalora", "false", "QA-LoRA" },
    { "use_rslora", BY_OPTIONS },
    { "velora_config", "null", "VeLoRA" },
};
enum { KEYS = sizeof keys / sizeof *keys };

static bool is_off(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE: return true;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_OBJECT: return json_object_size(value) == 0;
    default: return false;
    }
}

static bool listed(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return true;
    return false;
}

/* What to refuse; NULL: nothing. A switch that is on, or settings, of a key that is not known may
 * be another kind of adapter; a number or a word is reported: *unknown. */
static const char *what_is(bool *unknown, const char *key, const json_t *value)
{
    *unknown = false;
    for (int i = 0; i < KEYS; i++)
        if (strcmp(key, keys[i].key) == 0)
            return is_off(value) ? NULL : keys[i].refused;
    *unknown = !is_off(value);
    return is_off(value) || json_is_number(value) || json_is_string(value)
               ? NULL
               : "a setting sheaf does not know";
}

static sheaf_status *refuse_key(const char *key, const char *what, const json_t *value)
{
    char shown[96];
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' (%s)", key, what);
    sheaf_expected(st, "null or false: LoRA, DoRA, trained biases, token rows or modules");
    sheaf_found(st, "%s", sheaf__json_show(shown, value));
    return sheaf_try_this(
        st, "PEFT's merge_and_unload(); sheaf does not know this kind of adapter yet");
}

static sheaf_status *check_keys(sheaf_lora_options *out, const json_t *object)
{
    sheaf_text unknown = { 0 };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool other;
        const char *what = what_is(&other, key, value);
        if (what != NULL) {
            sheaf__text_release(&unknown);
            return refuse_key(key, what, value);
        }
        if (other)
            sheaf__text_add(&unknown, "%s%s", unknown.size > 0 ? ", " : "", key);
    }
    if (unknown.size > 0 || unknown.failed)
        return sheaf__text_take(&out->unknown_keys, &unknown);
    sheaf__text_release(&unknown); /* a key without a name leaves an empty text */
    return NULL;
}

sheaf_status *sheaf_lora_check_runs(const sheaf_lora_options *o)
{
    const char *const kind = o->dora          ? "'use_dora' (DoRA)"
                             : o->lora_bias   ? "'lora_bias' (a bias on B)"
                             : o->ntokens > 0 ? "'trainable_token_indices' (trained token rows)"
                                              : NULL;
    if (kind == NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", kind);
    sheaf_found(sheaf_expected(st, "null or false: plain LoRA"), "an adapter that can be merged");
    return sheaf_try_this(st, "sheaf merge BASE ADAPTER MERGED, then MERGED without the adapter");
}

/* Without the words of wrappers, as the tensors are named. */
static char *take_name(sheaf_json_reader *r, const char *key, const char *text)
{
    char *name = strdup(text);
    if (name == NULL)
        r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
    else
        sheaf__unwrap(name);
    return name;
}

/* A string, or a list of strings: exactly one of *one and *list is set. */
static void read_names(sheaf_json_reader *r, const char *key, char **one, char ***list, int *n)
{
    const json_t *value = json_object_get(r->object, key);
    if (value == NULL || json_is_null(value) || r->st != NULL)
        return;
    if (json_is_string(value) && one != NULL) {
        if (json_string_length(value) > 0)
            *one = take_name(r, key, json_string_value(value));
        return;
    }
    if (!json_is_array(value)) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a list of names%s",
                         one != NULL ? ", or one text" : "");
        return;
    }
    const size_t count = json_array_size(value);
    *list = calloc(count + 1, sizeof **list);
    for (size_t i = 0; i < count && r->st == NULL; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "names that are not empty");
        else if (*list == NULL)
            r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        else
            *n += ((*list)[*n] = take_name(r, key, json_string_value(item))) != NULL;
    }
}

static void read_patterns(sheaf_json_reader *r, const char *key, sheaf_pattern **list, int *n,
                          bool whole)
{
    const json_t *object = sheaf__json_object(r, key);
    if (object == NULL || json_object_size(object) == 0)
        return;
    *list = calloc(json_object_size(object), sizeof **list);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const double number = json_number_value(value);
        if (!json_is_number(value) || !(number > 0) || !isfinite(number) ||
            (whole && (!json_is_integer(value) || number > 65536))) {
            sheaf__json_fail(r, SHEAF_E_FORMAT, key,
                             whole ? "ranks, whole numbers of at least 1" : "numbers above 0");
            return;
        }
        if (*list == NULL || ((*list)[*n].key = take_name(r, key, name)) == NULL) {
            r->st = r->st != NULL ? r->st : sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
            return;
        }
        (*list)[*n].plain = sheaf__lora_is_plain((*list)[*n].key);
        (*list)[(*n)++].value = number;
    }
}

static void read_rows(sheaf_json_reader *r, sheaf_lora_tokens *out, const char *module,
                      const json_t *list)
{
    static const char key[] = "trainable_token_indices";
    const size_t count = json_array_size(list);
    out->module = module != NULL ? strdup(module) : NULL;
    out->row = calloc(count + 1, sizeof *out->row);
    if (out->row == NULL || (module != NULL && out->module == NULL)) {
        r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0) {
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "numbers of rows, from 0");
            return;
        }
        out->row[out->nrows++] = json_integer_value(item);
    }
}

/* A list of rows of the input embedding, or such a list for each of several tables. */
static void read_tokens(sheaf_json_reader *r, sheaf_lora_options *out)
{
    static const char key[] = "trainable_token_indices";
    const json_t *value = json_object_get(r->object, key);
    if (value == NULL || r->st != NULL || is_off(value))
        return;
    out->tokens = calloc(json_is_object(value) ? json_object_size(value) : 1, sizeof *out->tokens);
    if (out->tokens == NULL) {
        r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        return;
    }
    const char *module;
    json_t *list;
    if (json_is_array(value))
        read_rows(r, &out->tokens[out->ntokens++], NULL, value);
    else if (json_is_object(value))
        json_object_foreach((json_t *)value, module, list)
        {
            if (r->st == NULL && !json_is_array(list))
                sheaf__json_fail(r, SHEAF_E_FORMAT, key, "lists of rows");
            if (r->st == NULL)
                read_rows(r, &out->tokens[out->ntokens++], module, list);
        }
    else
        sheaf__json_fail(r, SHEAF_E_FORMAT, key,
                         "a list of rows, or one for each of several tables");
}

static void read_layers(sheaf_json_reader *r, sheaf_lora_options *out)
{
    static const char key[] = "layers_to_transform";
    const json_t *value = json_object_get(r->object, key);
    if (value == NULL || json_is_null(value) || r->st != NULL)
        return;
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    out->layers = calloc(count + 1, sizeof *out->layers);
    for (size_t i = 0; i < count && r->st == NULL; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a number of a layer, or a list of them");
        else if (out->layers == NULL)
            r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        else
            out->layers[out->nlayers++] = json_integer_value(item);
    }
}

static void read_bias(sheaf_json_reader *r, sheaf_lora_options *out)
{
    const char *bias = sheaf__json_string(r, "bias");
    if (bias == NULL || strcmp(bias, "none") == 0)
        out->bias = SHEAF_BIAS_NONE;
    else if (strcmp(bias, "all") == 0)
        out->bias = SHEAF_BIAS_ALL;
    else if (strcmp(bias, "lora_only") == 0)
        out->bias = SHEAF_BIAS_LORA_ONLY;
    else
        sheaf__json_fail(r, SHEAF_E_FORMAT, "bias", "\"none\", \"all\" or \"lora_only\"");
}

/* Some initialisations (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) subtract from the base what
 * they put into A and B; the adapter then fits that changed base only. */
static void check_init(sheaf_json_reader *r)
{
    static const char *const keep_base[] = { "gaussian", "orthogonal", "eva" };
    const json_t *value = json_object_get(r->object, "init_lora_weights");
    if (r->st != NULL || !json_is_string(value) ||
        listed(json_string_value(value), keep_base, sizeof keep_base / sizeof *keep_base))
        return;
    sheaf_status *st = sheaf__json_fail(
        r, SHEAF_E_UNSUPPORTED, "init_lora_weights",
        "an initialisation that leaves the base as it is (true, gaussian, orthogonal, eva)");
    sheaf_try_this(
        st,
        "save the adapter as plain LoRA: save_pretrained(..., path_initial_model_for_weight_conversion=...)");
}

static void check_type(sheaf_json_reader *r)
{
    const char *type = sheaf__json_string(r, "peft_type");
    if (r->st != NULL || (type != NULL && strcmp(type, "LORA") == 0))
        return;
    sheaf_try_this(sheaf__json_fail(r, type == NULL ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED,
                                    "peft_type", "\"LORA\""),
                   "PEFT itself for other kinds of adapters: sheaf knows LoRA and its variants");
}

static void check_together(sheaf_json_reader *r, const sheaf_lora_options *o)
{
    if (r->st != NULL)
        return;
    if (o->target_regex != NULL && o->nlayers > 0)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "layers_to_transform",
                         "nothing beside target_modules that is one text");
    else if (o->nlayers_pattern > 0 && o->nlayers == 0)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "layers_pattern", "layers_to_transform beside it");
}

static sheaf_status *read_object(sheaf_lora_options *out, const json_t *object)
{
    sheaf_json_reader r = { .object = object };
    check_type(&r);
    out->rank = sheaf__json_int(&r, "r", 1, 65536, 8);
    out->alpha = sheaf__json_real(&r, "lora_alpha", 0, 1e30, 8);
    out->rslora = sheaf__json_bool(&r, "use_rslora", false);
    out->fan_in_fan_out = sheaf__json_bool(&r, "fan_in_fan_out", false);
    out->dropout = sheaf__json_real(&r, "lora_dropout", 0, 1, 0);
    out->keep_tie = sheaf__json_bool(&r, "ensure_weight_tying", false);
    read_names(&r, "target_modules", &out->target_regex, &out->targets, &out->ntargets);
    read_names(&r, "exclude_modules", &out->exclude_regex, &out->exclude, &out->nexclude);
    read_names(&r, "modules_to_save", NULL, &out->modules_to_save, &out->nmodules_to_save);
    read_patterns(&r, "rank_pattern", &out->rank_pattern, &out->nrank_pattern, true);
    read_patterns(&r, "alpha_pattern", &out->alpha_pattern, &out->nalpha_pattern, false);
    read_layers(&r, out);
    char *pattern = NULL; /* one text is a list of one */
    read_names(&r, "layers_pattern", &pattern, &out->layers_pattern, &out->nlayers_pattern);
    if (pattern != NULL) {
        out->layers_pattern = calloc(2, sizeof *out->layers_pattern);
        if (out->layers_pattern != NULL) {
            out->layers_pattern[out->nlayers_pattern++] = pattern;
        } else {
            free(pattern);
            r.st = r.st != NULL ? r.st : sheaf__no_memory("'layers_pattern'");
        }
    }
    read_bias(&r, out);
    out->dora = sheaf__json_bool(&r, "use_dora", false);
    out->lora_bias = sheaf__json_bool(&r, "lora_bias", false);
    read_tokens(&r, out);
    check_init(&r);
    check_together(&r, out);
    const char *base = sheaf__json_string(&r, "base_model_name_or_path");
    if (r.st == NULL && base != NULL && (out->base_name = strdup(base)) == NULL)
        r.st = sheaf__no_memory("'base_model_name_or_path'");
    if (r.st == NULL && out->target_regex != NULL &&
        strcasecmp(out->target_regex, "all-linear") == 0) {
        free(out->target_regex);
        out->target_regex = NULL;
        out->all_linear = true;
    }
    return r.st != NULL ? r.st : check_keys(out, object);
}

sheaf_status *sheaf_lora_options_read(sheaf_lora_options *out, const char *path,
                                      const sheaf_events *events)
{
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_load(&object, path);
    if (st != NULL)
        return st;
    sheaf__lora_options_default(out);
    out->tolerant = true;
    out->whole_rank = true;
    st = read_object(out, object);
    json_decref(object);
    if (st == NULL && out->unknown_keys != NULL)
        sheaf_warn(events, "%s: keys that sheaf does not know: %s", path, out->unknown_keys);
    if (st != NULL)
        sheaf_lora_options_release(out);
    return sheaf_in(st, "%s", path);
}

/* ---- writing: every key PEFT 0.21 writes, sorted, two spaces, no newline at the end ---- */

/* As Python writes a float: the shortest text that reads back, with ".0" if it is whole. */
static void add_number(sheaf_text *text, double value, bool whole_is_int)
{
    char shown[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(shown, sizeof shown, "%.*g", digits, value);
        if (strtod(shown, NULL) == value)
            break;
    }
    if (value == floor(value) && fabs(value) < 1e15)
        snprintf(shown, sizeof shown, whole_is_int ? "%.0f" : "%.1f", value);
    sheaf__text_add(text, "%s", shown);
}

static void add_list(sheaf_text *text, char *const *list, int n)
{
    for (int i = 0; i < n; i++) {
        sheaf__text_add(text, "%s", i == 0 ? "[\n    " : ",\n    ");
        sheaf__text_json(text, list[i]);
    }
    sheaf__text_add(text, n > 0 ? "\n  ]" : "null");
}

static void add_patterns(sheaf_text *text, const sheaf_pattern *list, int n)
{
    for (int i = 0; i < n; i++) {
        sheaf__text_add(text, "%s", i == 0 ? "{\n    " : ",\n    ");
        sheaf__text_json(text, list[i].key);
        sheaf__text_add(text, ": ");
        add_number(text, list[i].value, true);
    }
    sheaf__text_add(text, n > 0 ? "\n  }" : "{}");
}

static void add_layers(sheaf_text *text, const sheaf_lora_options *o)
{
    for (int i = 0; i < o->nlayers; i++)
        sheaf__text_add(text, "%s%lld", i == 0 ? "[\n    " : ",\n    ", (long long)o->layers[i]);
    sheaf__text_add(text, o->nlayers > 0 ? "\n  ]" : "null");
}

static void add_names(sheaf_text *text, const char *regex, char *const *list, int n)
{
    if (regex != NULL)
        sheaf__text_json(text, regex);
    else
        add_list(text, list, n);
}

static void add_value(sheaf_text *text, const char *key, const sheaf_lora_options *o)
{
    static const char *const bias[] = { "\"none\"", "\"all\"", "\"lora_only\"" };
    if (strcmp(key, "alpha_pattern") == 0)
        add_patterns(text, o->alpha_pattern, o->nalpha_pattern);
    else if (strcmp(key, "rank_pattern") == 0)
        add_patterns(text, o->rank_pattern, o->nrank_pattern);
    else if (strcmp(key, "base_model_name_or_path") == 0 && o->base_name != NULL)
        sheaf__text_json(text, o->base_name);
    else if (strcmp(key, "bias") == 0)
        sheaf__text_add(text, "%s", bias[o->bias]);
    else if (strcmp(key, "ensure_weight_tying") == 0)
        sheaf__text_add(text, o->keep_tie ? "true" : "false");
    else if (strcmp(key, "exclude_modules") == 0)
        add_names(text, o->exclude_regex, o->exclude, o->nexclude);
    else if (strcmp(key, "fan_in_fan_out") == 0)
        sheaf__text_add(text, o->fan_in_fan_out ? "true" : "false");
    else if (strcmp(key, "layers_pattern") == 0)
        add_names(text, o->nlayers_pattern == 1 ? o->layers_pattern[0] : NULL, o->layers_pattern,
                  o->nlayers_pattern);
    else if (strcmp(key, "layers_to_transform") == 0)
        add_layers(text, o);
    else if (strcmp(key, "lora_alpha") == 0)
        add_number(text, o->alpha, true);
    else if (strcmp(key, "lora_dropout") == 0)
        add_number(text, o->dropout, false);
    else if (strcmp(key, "modules_to_save") == 0)
        add_list(text, o->modules_to_save, o->nmodules_to_save);
    else if (strcmp(key, "r") == 0)
        sheaf__text_add(text, "%lld", (long long)o->rank);
    else if (strcmp(key, "target_modules") == 0)
        add_names(text, o->all_linear ? "all-linear" : o->target_regex, o->targets, o->ntargets);
    else if (strcmp(key, "use_rslora") == 0)
        sheaf__text_add(text, o->rslora ? "true" : "false");
    else
        sheaf__text_add(text, "null");
}

sheaf_status *sheaf_lora_options_json(char **out, const sheaf_lora_options *options)
{
    sheaf_text text = { 0 };
    for (int i = 0; i < KEYS; i++) {
        if (keys[i].written == NULL)
            continue;
        sheaf__text_add(&text, "%s  \"%s\": %s", text.size == 0 ? "{\n" : ",\n", keys[i].key,
                        keys[i].written);
        if (keys[i].written[0] == '\0')
            add_value(&text, keys[i].key, options);
    }
    sheaf__text_add(&text, "\n}");
    return sheaf__text_take(out, &text);
}
