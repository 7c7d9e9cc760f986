/* options_json.c - adapter_config.json, read and written.
 *
 * Keys are read, known to be harmless, or known to change the arithmetic; the last
 * are refused unless they have the value that switches them off. */
#include <math.h>
#include <strings.h>

#include "base/base.h"
#include "base/json.h"
#include "base/json_write.h"
#include "lora/match.h"
#include "lora/adapter.h"
#include "schema/paths.h"

/* The form of a key's value in a file and in the options. */
typedef enum kind {
    NOT_KEPT,
    RANK,
    ALPHA, /* a whole number is written as an integer */
    SHARE, /* from 0 to 1 */
    SWITCH,
    LIST,     /* of names */
    NAMES,    /* a list of names, or one text */
    PATTERNS, /* an object of numbers; RANKS: of ranks */
    RANKS,
    LAYERS,
    TOKENS,
    BIAS,
    TEXT,
    TASK, /* SEQ_CLS, or CAUSAL_LM */
} kind;

#define KEEPS(kind, member) kind, offsetof(sheaf_lora_options, member)

/* Every known key, sorted. `written`: PEFT 0.21's value of a key that is not kept, or of one that
 * says how PEFT wrote the file; NULL: none.
 * `refused`: the key changes the arithmetic, and is refused under this name unless it is off:
 * absent, null, false, 0, "", [] or {}. */
static const struct {
    const char *key;
    kind kind;
    size_t at; /* of the member that keeps it */
    const char *written, *refused;
} keys[] = {
    { "alora_invocation_tokens", NOT_KEPT, 0, "null", "activated LoRA" },
    { "alpha_pattern", KEEPS(PATTERNS, alpha_pattern) },
    { "arrow_config", NOT_KEPT, 0, "null", "Arrow" },
    { "auto_mapping", NOT_KEPT, 0, "null" },
    { "base_model_name_or_path", KEEPS(TEXT, base_name) },
    { "bias", KEEPS(BIAS, bias) },
    { "corda_config", NOT_KEPT, 0, "null" },
    { "enable_lora" },
    { "ensure_weight_tying", KEEPS(SWITCH, keep_tie) },
    { "eva_config", NOT_KEPT, 0, "null" },
    { "exclude_modules", KEEPS(NAMES, exclude) },
    { "fan_in_fan_out", KEEPS(SWITCH, fan_in_fan_out) },
    { "inference_mode", NOT_KEPT, 0, "true" },
    { "init_lora_weights", NOT_KEPT, 0, "true" },
    { "kasa_config", NOT_KEPT, 0, "null", "KaSA" },
    { "layer_replication", NOT_KEPT, 0, "null", "layer replication" },
    { "layers_pattern", KEEPS(NAMES, layers_pattern) },
    { "layers_to_transform", KEEPS(LAYERS, layers) },
    { "loftq_config", NOT_KEPT, 0, "{}" },
    { "lora_alpha", KEEPS(ALPHA, alpha) },
    { "lora_bias", KEEPS(SWITCH, lora_bias) },
    { "lora_dropout", KEEPS(SHARE, dropout) },
    { "lora_ga_config", NOT_KEPT, 0, "null" },
    { "megatron_config", NOT_KEPT, 0, "null" },
    { "megatron_core", NOT_KEPT, 0, "\"megatron.core\"" },
    { "merge_weights" },
    { "mica_config", NOT_KEPT, 0, NULL, "MiCA" },
    { "modules_to_save", KEEPS(LIST, modules_to_save) },
    { "monteclora_config", NOT_KEPT, 0, "null", "MonteCLoRA" },
    { "peft_type", NOT_KEPT, 0, "\"LORA\"" },
    { "peft_version", KEEPS(TEXT, peft_version), "\"0.21.2\"" },
    { "qalora_group_size", NOT_KEPT, 0, "16" },
    { "r", KEEPS(RANK, rank) },
    { "rank_pattern", KEEPS(RANKS, rank_pattern) },
    { "revision", NOT_KEPT, 0, "null" },
    { "runtime_config" },
    { "target_modules", KEEPS(NAMES, targets) },
    { "target_parameters", KEEPS(LIST, parameters) },
    { "task_type", KEEPS(TASK, scores) },
    { "trainable_token_indices", KEEPS(TOKENS, tokens) },
    { "use_bdlora", NOT_KEPT, 0, "null", "BD-LoRA" },
    { "use_dora", KEEPS(SWITCH, dora) },
    { "use_qalora", NOT_KEPT, 0, "false", "QA-LoRA" },
    { "use_rslora", KEEPS(SWITCH, rslora) },
    { "velora_config", NOT_KEPT, 0, "null", "VeLoRA" },
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

/* The name to refuse a key by; NULL: accepted. An unknown key with true, a list or an object may
 * mean another kind of adapter; one with a number or a string is reported: *unknown. */
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
    const char *const kind = o->lora_bias     ? "'lora_bias' (a bias on B)"
                             : o->ntokens > 0 ? "'trainable_token_indices' (trained token rows)"
                                              : NULL;
    if (kind == NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", kind);
    sheaf_found(sheaf_expected(st, "null or false: LoRA or DoRA"), "an adapter that can be merged");
    return sheaf_try_this(st, "sheaf merge BASE ADAPTER MERGED, then MERGED without the adapter");
}

/* A name without the words of wrappers, as in names of tensors. */
static char *take_name(sheaf_json_reader *r, const char *key, const char *text)
{
    char *name = strdup(text);
    if (name == NULL)
        r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
    else
        sheaf__unwrap(name);
    return name;
}

/* A list of names, with `text` also one text. */
static void read_names(sheaf_json_reader *r, const char *key, sheaf_lora_names *out, bool text)
{
    const json_t *value = json_object_get(r->object, key);
    if (value == NULL || json_is_null(value) || r->st != NULL)
        return;
    if (json_is_string(value) && text) {
        if (json_string_length(value) > 0)
            out->regex = take_name(r, key, json_string_value(value));
        return;
    }
    if (!json_is_array(value)) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a list of names%s", text ? ", or one text" : "");
        return;
    }
    const size_t count = json_array_size(value);
    out->list = calloc(count + 1, sizeof *out->list);
    for (size_t i = 0; i < count && r->st == NULL; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "names that are not empty");
        else if (out->list == NULL)
            r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        else
            out->n += (out->list[out->n] = take_name(r, key, json_string_value(item))) != NULL;
    }
}

static void read_patterns(sheaf_json_reader *r, const char *key, sheaf_patterns *out, bool whole)
{
    const json_t *object = sheaf__json_object(r, key);
    if (object == NULL || json_object_size(object) == 0)
        return;
    out->at = calloc(json_object_size(object), sizeof *out->at);
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
        char *taken = out->at != NULL ? take_name(r, key, name) : NULL;
        if (taken == NULL) {
            r->st = r->st != NULL ? r->st : sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
            return;
        }
        out->at[out->n++] = (sheaf_pattern){ taken, number, sheaf__lora_is_plain(taken) };
    }
}

/* Whole numbers from 0: a list of them, or one by itself. */
static void read_numbers(sheaf_json_reader *r, const char *key, const json_t *value,
                         const char *expected, int64_t **out, int64_t *n)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *out = calloc(count + 1, sizeof **out);
    for (size_t i = 0; i < count && r->st == NULL; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (*out == NULL)
            r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
        else if (!json_is_integer(item) || json_integer_value(item) < 0)
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "%s", expected);
        else
            (*out)[(*n)++] = json_integer_value(item);
    }
}

static void read_rows(sheaf_json_reader *r, sheaf_lora_tokens *out, const char *module,
                      const json_t *list)
{
    static const char key[] = "trainable_token_indices";
    if (module != NULL && (out->module = strdup(module)) == NULL)
        r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
    else
        read_numbers(r, key, list, "numbers of rows, from 0", &out->row, &out->nrows);
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
    if (value != NULL && !json_is_null(value) && r->st == NULL)
        read_numbers(r, key, value, "a number of a layer, or a list of them", &out->layers,
                     &out->nlayers);
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
 * they put into A and B; the adapter then fits that changed base only. Of two it can be made again.
 */
static void check_init(sheaf_json_reader *r, sheaf_lora_options *out, bool started)
{
    const json_t *value = json_object_get(r->object, "init_lora_weights");
    const char *name = json_string_value(value);
    if (r->st != NULL || name == NULL ||
        sheaf__is_listed("gaussian orthogonal eva", name, json_string_length(value)))
        return;
    out->init = !started                     ? SHEAF_LORA_DEFAULT
                : strcmp(name, "pissa") == 0 ? SHEAF_LORA_PISSA
                : strcmp(name, "olora") == 0 ? SHEAF_LORA_OLORA
                                             : SHEAF_LORA_DEFAULT;
    if (out->init != SHEAF_LORA_DEFAULT)
        return;
    sheaf_status *st = sheaf__json_fail(
        r, SHEAF_E_UNSUPPORTED, "init_lora_weights",
        "an initialisation that leaves the base as it is (true, gaussian, orthogonal, eva)%s",
        started ? ", or that can be made again (pissa, olora)" : "");
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

static void check_together(sheaf_json_reader *r, sheaf_lora_options *o)
{
    sheaf_lora_names *layers = &o->layers_pattern;
    if (r->st == NULL && layers->regex != NULL) { /* one text is a list of one */
        layers->list = calloc(1, sizeof *layers->list);
        if (layers->list == NULL)
            r->st = sheaf__no_memory("'layers_pattern'");
        else
            layers->list[layers->n++] = layers->regex;
        layers->regex = r->st == NULL ? NULL : layers->regex;
    }
    if (o->targets.regex != NULL && strcasecmp(o->targets.regex, "all-linear") == 0) {
        free(o->targets.regex);
        o->targets.regex = NULL;
        o->all_linear = true;
    }
    if (r->st != NULL)
        return;
    if (o->targets.regex != NULL && o->nlayers > 0)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "layers_to_transform",
                         "nothing beside target_modules that is one text");
    else if (o->layers_pattern.n > 0 && o->nlayers == 0)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "layers_pattern", "layers_to_transform beside it");
}

static void read_key(sheaf_json_reader *r, sheaf_lora_options *out, int i)
{
    const char *const key = keys[i].key, *text;
    void *const to = (char *)out + keys[i].at;
    switch (keys[i].kind) {
    case NOT_KEPT: break;
    case RANK: out->rank = sheaf__json_int(r, key, 1, 65536, 8); break;
    case ALPHA: out->alpha = sheaf__json_real(r, key, 0, 1e30, 8); break;
    case SHARE: *(double *)to = sheaf__json_real(r, key, 0, 1, 0); break;
    case SWITCH: *(bool *)to = sheaf__json_bool(r, key, false); break;
    case LIST: read_names(r, key, to, false); break;
    case NAMES: read_names(r, key, to, true); break;
    case PATTERNS: read_patterns(r, key, to, false); break;
    case RANKS: read_patterns(r, key, to, true); break;
    case LAYERS: read_layers(r, out); break;
    case TOKENS: read_tokens(r, out); break;
    case BIAS: read_bias(r, out); break;
    case TASK:
        text = json_string_value(json_object_get(r->object, key));
        out->scores = text != NULL && strcmp(text, "SEQ_CLS") == 0;
        break;
    case TEXT:
        text = sheaf__json_string(r, key);
        if (text != NULL && (*(char **)to = strdup(text)) == NULL)
            r->st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", key);
    }
}

static sheaf_status *read_object(sheaf_lora_options *out, const json_t *object, bool started)
{
    sheaf_json_reader r = { .object = object };
    check_type(&r);
    for (int i = 0; i < KEYS; i++)
        read_key(&r, out, i);
    check_init(&r, out, started);
    check_together(&r, out);
    return r.st != NULL ? r.st : check_keys(out, object);
}

static sheaf_status *read_options(sheaf_lora_options *out, const char *path, bool started,
                                  const sheaf_events *events)
{
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_load(&object, path);
    if (st != NULL)
        return st;
    sheaf__lora_options_default(out);
    out->tolerant = true;
    out->whole_rank = true;
    st = read_object(out, object, started);
    json_decref(object);
    if (st == NULL && out->unknown_keys != NULL)
        sheaf_warn(events, "%s: keys that sheaf does not know: %s", path, out->unknown_keys);
    if (st != NULL)
        sheaf_lora_options_release(out);
    return sheaf_in(st, "%s", path);
}

sheaf_status *sheaf_lora_options_read(sheaf_lora_options *out, const char *path,
                                      const sheaf_events *events)
{
    return read_options(out, path, false, events);
}

sheaf_status *sheaf__lora_options_started(sheaf_lora_options *out, const char *path,
                                          const sheaf_events *events)
{
    return read_options(out, path, true, events);
}

/* ---- writing: every key PEFT 0.21 writes, sorted, two spaces, no newline at the end ---- */

/* As Python writes a float: the shortest text that reads back, with ".0" if it is whole. */
static void add_number(sheaf_text *text, double value, bool whole_is_int)
{
    char shown[SHEAF__JSON_NUMBER];
    sheaf__number_json(shown, value);
    sheaf__text_add(text, "%s%s", shown, !whole_is_int && strpbrk(shown, ".e") == NULL ? ".0" : "");
}

static void add_names(sheaf_text *text, const sheaf_lora_names *names)
{
    if (names->regex != NULL) {
        sheaf__text_json(text, names->regex);
        return;
    }
    for (int i = 0; i < names->n; i++) {
        sheaf__text_add(text, "%s", i == 0 ? "[\n    " : ",\n    ");
        sheaf__text_json(text, names->list[i]);
    }
    sheaf__text_add(text, names->n > 0 ? "\n  ]" : "null");
}

static void add_patterns(sheaf_text *text, const sheaf_patterns *patterns)
{
    for (int i = 0; i < patterns->n; i++) {
        sheaf__text_add(text, "%s", i == 0 ? "{\n    " : ",\n    ");
        sheaf__text_json(text, patterns->at[i].key);
        sheaf__text_add(text, ": ");
        add_number(text, patterns->at[i].value, true);
    }
    sheaf__text_add(text, patterns->n > 0 ? "\n  }" : "{}");
}

static void add_layers(sheaf_text *text, const sheaf_lora_options *o)
{
    for (int i = 0; i < o->nlayers; i++)
        sheaf__text_add(text, "%s%lld", i == 0 ? "[\n    " : ",\n    ", (long long)o->layers[i]);
    sheaf__text_add(text, o->nlayers > 0 ? "\n  ]" : "null");
}

static void add_value(sheaf_text *text, int i, const sheaf_lora_options *o)
{
    static const char *const bias[] = { "\"none\"", "\"all\"", "\"lora_only\"" };
    const void *const from = (const char *)o + keys[i].at;
    switch (keys[i].kind) {
    case NOT_KEPT: sheaf__text_add(text, "%s", keys[i].written); break;
    case RANK: sheaf__text_add(text, "%lld", (long long)o->rank); break;
    case ALPHA: add_number(text, o->alpha, true); break;
    case SHARE: add_number(text, *(const double *)from, false); break;
    case SWITCH: sheaf__text_add(text, *(const bool *)from ? "true" : "false"); break;
    case LIST:
    case NAMES:
        if (from == &o->targets && o->all_linear)
            sheaf__text_add(text, "\"all-linear\"");
        else if (from == &o->layers_pattern && o->layers_pattern.n == 1)
            sheaf__text_json(text, o->layers_pattern.list[0]);
        else
            add_names(text, from);
        break;
    case PATTERNS:
    case RANKS: add_patterns(text, from); break;
    case LAYERS: add_layers(text, o); break;
    case TOKENS: sheaf__text_add(text, "null"); break; /* no adapter that is written has them */
    case BIAS: sheaf__text_add(text, "%s", bias[o->bias]); break;
    case TASK: sheaf__text_add(text, o->scores ? "\"SEQ_CLS\"" : "\"CAUSAL_LM\""); break;
    case TEXT:
        if (keys[i].written == NULL && *(char *const *)from != NULL)
            sheaf__text_json(text, *(char *const *)from);
        else
            sheaf__text_add(text, "%s", keys[i].written != NULL ? keys[i].written : "null");
    }
}

sheaf_status *sheaf_lora_options_json(char **out, const sheaf_lora_options *options)
{
    sheaf_text text = { 0 };
    for (int i = 0; i < KEYS; i++) {
        if (keys[i].kind == NOT_KEPT && keys[i].written == NULL)
            continue;
        sheaf__text_add(&text, "%s  \"%s\": ", text.size == 0 ? "{\n" : ",\n", keys[i].key);
        add_value(&text, i, options);
    }
    sheaf__text_add(&text, "\n}");
    return sheaf__text_take(out, &text);
}
