/* model_folder.c - see model_folder.h. */
#include "base/base.h"
#include "base/json_scan.h"
#include "dialects/common/model_folder.h"
#include "dialects/common/save.h"
#include "formats/gguf.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/gguf_files.h"
#include "schema/family.h"

static const int64_t default_shard_bytes = 50000000000; /* "50GB", as transformers 5 */

/* The order of a layer's modules in transformers' classes, which its sharding follows. */
static const sheaf_role layer_order[] = { SHEAF_Q,
                                          SHEAF_K,
                                          SHEAF_V,
                                          SHEAF_O,
                                          SHEAF_QKV,
                                          SHEAF_NORM_Q,
                                          SHEAF_NORM_K,
                                          SHEAF_GATE,
                                          SHEAF_UP,
                                          SHEAF_GATE_UP,
                                          SHEAF_DOWN,
                                          SHEAF_NORM_IN,
                                          SHEAF_NORM_AFTER_ATTENTION,
                                          SHEAF_NORM_POST,
                                          SHEAF_NORM_AFTER_MLP };
enum { LAYER_ROLES = sizeof layer_order / sizeof *layer_order };

typedef struct listing {
    sheaf_safetensors_spec *spec;
    int64_t count;
    sheaf_source *stored;
    sheaf_dtype dtype;
} listing;

static void list_tensor(listing *l, const sheaf_tensor *t)
{
    const sheaf_source_entry *e = l->stored == NULL ? NULL : l->stored->find(l->stored, t->name);
    sheaf_safetensors_spec *spec = &l->spec[l->count++];
    *spec = (sheaf_safetensors_spec){ t->name, e == NULL ? l->dtype : e->dtype, t->ndim, { 0 } };
    memcpy(spec->shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
}

static void list_role(listing *l, const sheaf_schema *schema, sheaf_role role, int layer)
{
    for (int bias = 0; bias < 2; bias++) {
        const sheaf_tensor *t = sheaf_schema_get(schema, role, layer, bias != 0);
        if (t != NULL)
            list_tensor(l, t);
    }
}

sheaf_status *sheaf_hf_specs(sheaf_safetensors_spec **out, int64_t *count,
                             const sheaf_schema *schema, sheaf_source *stored, sheaf_dtype dtype)
{
    listing l = { calloc((size_t)schema->count, sizeof *l.spec), 0, stored, dtype };
    if (l.spec == NULL)
        return sheaf__no_memory("out of memory for the list of tensors");
    bool plain = true; /* else roles do not cover all tensors: use the schema's order */
    for (int64_t i = 0; i < schema->count; i++)
        plain = plain && schema->tensor[i].role < SHEAF_ROLES;
    if (!plain) {
        for (int64_t i = 0; i < schema->count; i++)
            list_tensor(&l, &schema->tensor[i]);
    } else {
        list_role(&l, schema, SHEAF_EMBED, -1);
        for (int layer = 0; layer < schema->config.layers; layer++)
            for (int r = 0; r < LAYER_ROLES; r++)
                list_role(&l, schema, layer_order[r], layer);
        list_role(&l, schema, SHEAF_NORM_FINAL, -1);
        list_role(&l, schema, SHEAF_HEAD, -1);
    }
    *out = l.spec;
    *count = l.count;
    return NULL;
}

/* A new folder with a config in it. */
static sheaf_status *begin(sheaf_folder **out, const char *dst, const char *config_name,
                           const char *config_json, const sheaf_safetensors_spec *specs,
                           int64_t count, const sheaf_folder_options *options)
{
    sheaf_folder *folder = NULL;
    sheaf_status *st = sheaf__folder_begin(&folder, dst, specs, count, options);
    TRY(st, sheaf__folder_text(folder, config_name, config_json));
    if (st == NULL)
        *out = folder;
    else
        sheaf__folder_abandon(folder);
    return st;
}

const sheaf__name_rule *sheaf_hf_file_names(const char *config_json)
{
    json_t *root = NULL;
    if (config_json != NULL)
        sheaf_status_free(sheaf__json_parse(&root, config_json, strlen(config_json)));
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const sheaf__family *family = type == NULL ? NULL : sheaf__family_named(type);
    if (family == NULL && root != NULL && sheaf__family_reading(root)->claims != NULL)
        family = sheaf__family_reading(root);
    json_decref(root);
    return family == NULL ? NULL : family->file_names;
}

static sheaf_status *begin_spelled(sheaf_folder **out, const char *dst, const char *config_json,
                                   const sheaf_safetensors_spec *specs, int64_t count,
                                   const sheaf_folder_options *options,
                                   const sheaf__name_rule *names)
{
    sheaf_safetensors_spec *own = malloc(((size_t)count + 1) * sizeof *own);
    char(*spelled)[SHEAF__SPELLED] = malloc(((size_t)count + 1) * sizeof *spelled);
    sheaf_status *st = own == NULL || spelled == NULL ? sheaf__no_memory("names of tensors") : NULL;
    for (int64_t i = 0; i < count && st == NULL; i++) {
        own[i] = specs[i];
        if (sheaf__respell_as(spelled[i], names, options->file_names, specs[i].name) != NULL)
            own[i].name = spelled[i];
    }
    TRY(st, begin(out, dst, "config.json", config_json, own, count, options));
    free(spelled);
    free(own);
    return st;
}

sheaf_status *sheaf_hf_begin(sheaf_folder **out, const char *dst, const char *config_json,
                             const sheaf_safetensors_spec *specs, int64_t count,
                             const sheaf_folder_options *how)
{
    sheaf_folder_options options = *how;
    options.stem = "model";
    if (options.shard_bytes == 0)
        options.shard_bytes = default_shard_bytes;
    const sheaf__name_rule *names = sheaf_hf_file_names(config_json);
    return names != NULL ? begin_spelled(out, dst, config_json, specs, count, &options, names)
                         : begin(out, dst, "config.json", config_json, specs, count, &options);
}

sheaf_status *sheaf_peft_begin(sheaf_folder **out, const char *dst, const char *config_json,
                               const char *base_print, const sheaf_safetensors_spec *specs,
                               int64_t count, bool replace)
{
    const bool known = base_print != NULL && base_print[0] != '\0';
    const sheaf_folder_options options = { .stem = "adapter_model",
                                           .replace = replace,
                                           .base_print = known ? base_print : NULL };
    return begin(out, dst, "adapter_config.json", config_json, specs, count, &options);
}

const char *const sheaf_hf_extras[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    NULL,
};

/* Does one of the configs name classes in Python files beside it? */
static bool has_code(const char *dir)
{
    static const char *const configs[] = { "config.json", "tokenizer_config.json",
                                           "preprocessor_config.json" };
    bool found = false;
    for (size_t i = 0; i < sizeof configs / sizeof *configs && !found; i++) {
        char path[SHEAF_PATH_SIZE], *text = NULL;
        size_t length = 0;
        if (sheaf__has_file(dir, configs[i])) /* its readers report errors */
            sheaf_status_free(sheaf__file_read_all(
                &text, &length, sheaf__path_in(path, dir, configs[i]), (size_t)64 << 20));
        found = text != NULL && memmem(text, length, "\"auto_map\"", 10) != NULL;
        free(text);
    }
    return found;
}

/* Copies the Python files that auto_map names, and their imports. */
static sheaf_status *copy_code(sheaf_folder *folder, const char *dir)
{
    char **names = NULL;
    int64_t count = 0;
    if (sheaf__path_kind(dir) != SHEAF_PATH_DIR || !has_code(dir))
        return NULL;
    sheaf_status *st = sheaf__list_dir(&names, &count, dir);
    for (int64_t i = 0; i < count && st == NULL; i++)
        if (sheaf__ends_with(names[i], ".py") && sheaf__has_file(dir, names[i]))
            st = sheaf__folder_copy(folder, dir, names[i]);
    sheaf__names_free(names, count);
    return st;
}

bool sheaf_hf_has_tokenizer(const char *dir)
{
    return sheaf__has_file(dir, "tokenizer.json") || sheaf__has_file(dir, "tokenizer.model") ||
           sheaf__has_file(dir, "vocab.json");
}

bool sheaf_hf_is_tokenizers(const char *name)
{
    return strstr(name, "processor") == NULL && strcmp(name, "generation_config.json") != 0;
}

sheaf_status *sheaf_hf_more_templates(char ***names, int64_t *count, const char *dst,
                                      const char *from)
{
    char path[SHEAF_PATH_SIZE];
    int64_t all = 0;
    *names = NULL;
    *count = 0;
    if (!sheaf__path_has(from, SHEAF__MORE_TEMPLATES, SHEAF_PATH_DIR))
        return NULL;
    sheaf_status *st =
        sheaf__list_dir(names, &all, sheaf__path_in(path, from, SHEAF__MORE_TEMPLATES));
    for (int64_t i = 0; i < all; i++) {
        char *name = (*names)[i], *whole = NULL;
        TRY(st, sheaf__path_join(&whole, SHEAF__MORE_TEMPLATES, name));
        if (whole != NULL && sheaf__ends_with(name, ".jinja") &&
            sheaf__path_has(from, whole, SHEAF_PATH_FILE))
            (*names)[(*count)++] = whole;
        else
            free(whole);
        free(name);
    }
    return TRY(st, *count == 0 ? NULL
                               : sheaf__make_dir(sheaf__path_in(path, dst, SHEAF__MORE_TEMPLATES)));
}

static sheaf_status *copy_templates(sheaf_folder *folder, const char *from)
{
    char **names, path[SHEAF_PATH_SIZE];
    int64_t count;
    sheaf_status *st = sheaf_hf_more_templates(&names, &count, sheaf__folder_dir(folder), from);
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = sheaf__folder_copy(folder, from, names[i]);
    if (count > 0)
        TRY(st, sheaf__dir_sync(
                    sheaf__path_in(path, sheaf__folder_dir(folder), SHEAF__MORE_TEMPLATES)));
    sheaf__names_free(names, count);
    return st;
}

sheaf_status *sheaf_hf_copy_tokenizer(sheaf_folder *folder, const char *from)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && sheaf_hf_extras[i] != NULL; i++)
        if (sheaf_hf_is_tokenizers(sheaf_hf_extras[i]))
            st = sheaf__folder_copy(folder, from, sheaf_hf_extras[i]);
    return TRY(st, copy_templates(folder, from));
}

/* A GGUF file's, made of its keys. */
static sheaf_status *write_made(sheaf_folder *folder, const char *gguf)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && sheaf__gguf_files[i] != NULL; i++) {
        char *bytes = NULL;
        size_t size;
        st = sheaf__gguf_file(&bytes, &size, gguf, sheaf__gguf_files[i]);
        if (bytes != NULL)
            st = sheaf__folder_bytes(folder, sheaf__gguf_files[i], bytes, size);
        free(bytes);
    }
    return st;
}

sheaf_status *sheaf_hf_copy_extras(sheaf_folder *folder, const char *from, const char *tokenizer)
{
    char dir[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    if (tokenizer == NULL && sheaf__gguf_at(dir, from) != NULL)
        return write_made(folder, dir);
    if (sheaf__path_kind(from) == SHEAF_PATH_FILE) /* a model given as its file */
        from = sheaf__path_above(dir, from);
    for (int i = 0; st == NULL && sheaf_hf_extras[i] != NULL; i++)
        st = sheaf__folder_copy(
            folder,
            tokenizer != NULL && sheaf_hf_is_tokenizers(sheaf_hf_extras[i]) ? tokenizer : from,
            sheaf_hf_extras[i]);
    TRY(st, copy_templates(folder, tokenizer != NULL ? tokenizer : from));
    return TRY(st, copy_code(folder, from));
}

/* ---- changing one key of a config's text ---- */

typedef struct place {
    const char *key, *begin, *end; /* range of the key and its value; NULL: not there */
    const char *inside;            /* place for a new key */
    bool empty;                    /* the object has no keys */
} place;

static sheaf_status *find_key(place *at, const char *json, const char *key)
{
    sheaf_json_scan scan;
    *at = (place){ 0 };
    sheaf_status *st = sheaf__scan_init(&scan, json, strlen(json), true);
    TRY(st, !sheaf__scan_take(&scan, '{') ? sheaf__scan_fail(&scan, "an object") : NULL);
    at->inside = scan.at;
    for (bool first = true, more = true; st == NULL; first = false) {
        char *name = NULL;
        const char *before = scan.at;
        st = sheaf__scan_next_key(&scan, first, &more, &name);
        if (st != NULL || !more) {
            at->empty = first;
            break;
        }
        sheaf__scan_peek(&scan); /* to the value */
        const char *start = scan.at;
        st = sheaf__scan_skip(&scan, 1);
        if (st == NULL && strcmp(name, key) == 0) {
            at->key = strchr(before, '"');
            at->begin = start;
            at->end = scan.at;
        }
        free(name);
    }
    TRY(st, sheaf__scan_end(&scan));
    return sheaf_in(st, "config.json");
}

sheaf_status *sheaf_hf_config_set(char **out, const char *json, const char *key, const char *value)
{
    place at;
    sheaf_text text = { 0 };
    sheaf_status *st = find_key(&at, json, key);
    if (st != NULL)
        return st;
    if (at.begin != NULL) {
        sheaf__text_bytes(&text, json, (size_t)(at.begin - json));
        sheaf__text_add(&text, "%s%s", value, at.end);
    } else {
        sheaf__text_bytes(&text, json, (size_t)(at.inside - json));
        sheaf__text_add(&text, "\n  ");
        sheaf__text_json(&text, key);
        sheaf__text_add(&text, ": %s%s%s", value, at.empty ? "\n" : ",", at.inside);
    }
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf_hf_config_change(char **json, const char *key, const char *value)
{
    char *changed = NULL;
    sheaf_status *st = sheaf_hf_config_set(&changed, *json, key, value);
    if (st == NULL) {
        free(*json);
        *json = changed;
    }
    return st;
}

/* The text without an existing key. */
static sheaf_status *leave_out(char **out, const char *json, const place *at)
{
    static const char blanks[] = " \t\r\n";
    const char *begin = at->key, *end = at->end + strspn(at->end, blanks);
    sheaf_text text = { 0 };
    if (*end == ',')
        end += 1 + strspn(end + 1, blanks);
    else { /* the last one: the comma before it goes */
        while (begin > at->inside && strchr(blanks, begin[-1]) != NULL)
            begin--;
        begin -= begin > at->inside && begin[-1] == ',';
        while (end > json && strchr(blanks, end[-1]) != NULL)
            end--; /* keeps the blanks before the brace */
    }
    sheaf__text_bytes(&text, json, (size_t)(begin - json));
    sheaf__text_add(&text, "%s", end);
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf_hf_config_edit(char **out, const char *json, const char *part, const char *key,
                                   const char *value)
{
    char *inner = NULL, *edited = NULL;
    place at;
    sheaf_status *st = find_key(&at, json, part != NULL ? part : key);
    if (st == NULL && (at.begin == NULL || (part != NULL && *at.begin != '{')))
        st = (*out = strdup(json)) != NULL ? NULL : sheaf__no_memory("config.json");
    else if (st == NULL && part == NULL)
        st = value != NULL ? sheaf_hf_config_set(out, json, key, value) : leave_out(out, json, &at);
    else if (st == NULL && (inner = strndup(at.begin, (size_t)(at.end - at.begin))) == NULL)
        st = sheaf__no_memory("config.json");
    if (inner != NULL) {
        st = value != NULL ? sheaf_hf_config_set(&edited, inner, key, value)
                           : sheaf_hf_config_edit(&edited, inner, NULL, key, NULL);
        TRY(st, sheaf_hf_config_set(out, json, part, edited));
    }
    free(inner);
    free(edited);
    return st;
}

static sheaf_status *change_if_there(bool *there, char **json, const char *key, const char *value)
{
    place at;
    sheaf_status *st = find_key(&at, *json, key);
    *there = st == NULL && at.begin != NULL;
    return *there ? sheaf_hf_config_change(json, key, value) : st;
}

sheaf_status *sheaf_hf_config_with_dtype(char **out, const char *json, sheaf_dtype dtype)
{
    const char *name = sheaf_dtype_torch_name(dtype);
    char value[40], *text = strdup(json);
    bool old = false, new;
    snprintf(value, sizeof value, "\"%s\"", name != NULL ? name : "");
    sheaf_status *st =
        text == NULL ? sheaf__no_memory("config.json")
        : name == NULL
            ? sheaf_fail(SHEAF_E_ARG, "dtype %s has no name in torch", sheaf_dtype_name(dtype))
            : change_if_there(&old, &text, "torch_dtype", value); /* a file may have both */
    TRY(st, old ? change_if_there(&new, &text, "dtype", value)
                : sheaf_hf_config_change(&text, "dtype", value));
    if (st == NULL)
        *out = text;
    else
        free(text);
    return st;
}

/* ---- SAT's config in a Hugging Face folder ---- */

/* transformers' class of a reward model, which has one label; its score is read before `pad`. */
static sheaf_status *name_scores(char **text, const sheaf_config *config)
{
    const char *class = sheaf__family_for(config)->architecture;
    char value[128];
    snprintf(value, sizeof value, "[\n    \"%.*s" SHEAF__SCORES_CLASS "\"\n  ]",
             (int)(strstr(class, "ForCausalLM") - class), class);
    sheaf_status *st = sheaf_hf_config_change(text, "architectures", value);
    TRY(st, sheaf_hf_config_change(text, "id2label", "{\n    \"0\": \"LABEL_0\"\n  }"));
    return TRY(st, sheaf_hf_config_change(text, "label2id", "{\n    \"LABEL_0\": 0\n  }"));
}

sheaf_status *sheaf_hf_config_whole(char **out, const char *json, const sheaf_config *config,
                                    bool adapted)
{
    char *text = strdup(json);
    sheaf_status *st = text == NULL ? sheaf__no_memory("config.json") : NULL;
    if (st == NULL && sheaf__family_for(config)->classes != NULL) {
        char type[64];
        bool there;
        snprintf(type, sizeof type, "\"%s\"", sheaf_family_name(config->family));
        st = sheaf_hf_config_change(&text, "model_type", type);
        TRY(st, change_if_there(&there, &text, "model_parallel_size", "1"));
        TRY(st, !adapted ? change_if_there(&there, &text, "use_lora", "false") : NULL);
    }
    if (config->scores)
        TRY(st, name_scores(&text, config));
    if (st == NULL)
        *out = text;
    else
        free(text);
    return st;
}
