/* tokenizer_config.c - see tokenizer_config.h. */
#include "tokenizer_config.h"

#include "base/base.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "inputs/tokenizer/gguf_files.h"

const char *const sheaf__named_tokens[SHEAF__NAMES] = { "bos_token", "eos_token", "unk_token",
                                                        "sep_token", "pad_token", "cls_token",
                                                        "mask_token" };

void sheaf__tokenizer_config_release(sheaf__tokenizer_config *s)
{
    json_decref(s->config);
    json_decref(s->added);
    free(s->declared);
    free(s->model_type);
    *s = (sheaf__tokenizer_config){ 0 };
}

/* Makes such a file from a GGUF file. */
static sheaf_status *load_made(json_t **out, const char *gguf, const char *name)
{
    char *text = NULL;
    size_t size;
    sheaf_status *st = sheaf__gguf_file(&text, &size, gguf, name);
    if (text != NULL)
        st = sheaf__json_parse(out, text, size);
    free(text);
    return st;
}

/* *out NULL: there is no such file. */
static sheaf_status *load(json_t **out, const char *folder, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    *out = NULL;
    if (sheaf__gguf_at(path, folder) != NULL)
        return load_made(out, path, name);
    sheaf__path_in(path, folder, name);
    return sheaf__path_kind(path) == SHEAF_PATH_FILE ? sheaf__json_load(out, path) : NULL;
}

static sheaf_status *copy_string(char **out, const json_t *value)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return NULL;
    free(*out);
    *out = strdup(json_string_value(value));
    return *out == NULL ? sheaf__no_memory("tokenizer") : NULL;
}

/* special_tokens_map.json is read if tokenizer_config.json has no added_tokens_decoder. */
static sheaf_status *merge_map(sheaf__tokenizer_config *s, const char *folder)
{
    json_t *map = NULL;
    if (json_object_get(s->config, "added_tokens_decoder") != NULL)
        return NULL;
    sheaf_status *st = load(&map, folder, "special_tokens_map.json");
    if (st == NULL && map != NULL && json_object_update(s->config, map) != 0)
        st = sheaf__no_memory("tokenizer");
    json_decref(map);
    return st != NULL ? st : load(&s->added, folder, "added_tokens.json");
}

static int flag(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    return json_is_boolean(value) ? json_is_true(value) : -1;
}

const char *sheaf__tokenizer_config_text(const json_t *name)
{
    return json_string_value(json_is_object(name) ? json_object_get(name, "content") : name);
}

static sheaf_status *read_names(sheaf__tokenizer_config *s)
{
    for (int i = 0; i < SHEAF__NAMES; i++) {
        const json_t *name = json_object_get(s->config, sheaf__named_tokens[i]);
        s->none[i] = json_is_null(name);
        if (name == NULL || s->none[i])
            continue;
        if (sheaf__tokenizer_config_text(name) == NULL)
            return sheaf_expected(
                sheaf_fail(SHEAF_E_FORMAT, "tokenizer_config.json: '%s'", sheaf__named_tokens[i]),
                "a token: a string, or an object with its content");
        s->name[i] = name;
    }
    return NULL;
}

static sheaf_status *read_model_type(sheaf__tokenizer_config *s, const char *folder)
{
    json_t *config = NULL;
    sheaf_status *st = load(&config, folder, "config.json");
    TRY(st, copy_string(&s->model_type, json_object_get(config, "model_type")));
    if (st == NULL && s->declared == NULL)
        st = copy_string(&s->declared, json_object_get(config, "tokenizer_class"));
    json_decref(config);
    return st;
}

static sheaf_status *read_all(sheaf__tokenizer_config *s, const char *folder)
{
    sheaf_status *st = load(&s->config, folder, "tokenizer_config.json");
    if (st == NULL && s->config == NULL && (s->config = json_object()) == NULL)
        st = sheaf__no_memory("tokenizer");
    TRY(st, copy_string(&s->declared, json_object_get(s->config, "tokenizer_class")));
    TRY(st, merge_map(s, folder));
    TRY(st, read_names(s));
    TRY(st, read_model_type(s, folder));
    if (st != NULL)
        return st;
    s->add_bos = flag(s->config, "add_bos_token");
    s->add_eos = flag(s->config, "add_eos_token");
    s->prefix_space = flag(s->config, "add_prefix_space");
    s->legacy = flag(s->config, "legacy") == 1;
    return NULL;
}

sheaf_status *sheaf__tokenizer_config_read(sheaf__tokenizer_config *out, const char *folder)
{
    *out = (sheaf__tokenizer_config){ 0 };
    sheaf_status *st = sheaf_in(read_all(out, folder), "%s", folder);
    if (st != NULL)
        sheaf__tokenizer_config_release(out);
    return st;
}

/* ---- the class ---- */

static sheaf__tokenizer_class class_named(const char *name, size_t size)
{
    /* The second and third are MiniCPM-V's own, which add names; where they are of a byte-level
     * file see below. */
    static const char *const known[] = {
        [SHEAF__LLAMA_TOKENIZER] = "LlamaTokenizer LlamaTokenizerWrapper MiniCPMVTokenizer",
        [SHEAF__GEMMA_TOKENIZER] = "GemmaTokenizer",
        [SHEAF__QWEN2_TOKENIZER] = "Qwen2Tokenizer",
        [SHEAF__GPT2_TOKENIZER] = "GPT2Tokenizer",
    };
    for (int i = SHEAF__LLAMA_TOKENIZER; i <= SHEAF__GPT2_TOKENIZER; i++)
        if (sheaf__is_listed(known[i], name, size))
            return (sheaf__tokenizer_class)i;
    return SHEAF__GENERIC;
}

/* The classes that transformers registers for the models that sheaf may meet; for other models the
 * folder's word counts. `wrong`: folders are known to declare a wrong class for them. */
static const struct {
    const char *model_types; /* with blanks between them */
    sheaf__tokenizer_class class;
    bool wrong;
} registered[] = {
    { "gemma gemma2 gemma3 gemma3_text", SHEAF__GEMMA_TOKENIZER, false },
    { "gpt2 phi starcoder2", SHEAF__GPT2_TOKENIZER, false },
    { "qwen2", SHEAF__QWEN2_TOKENIZER, true },
    { "qwen2_moe qwen3 qwen3_moe", SHEAF__QWEN2_TOKENIZER, false },
    { "phi3 phimoe", SHEAF__GENERIC, true },
    { "ministral ministral3 mistral mistral3 mixtral olmo2 olmo3 stablelm granite", SHEAF__GENERIC,
      false },
};

static int registered_for(const char *model_type)
{
    for (size_t i = 0; model_type != NULL && i < sizeof registered / sizeof *registered; i++)
        if (sheaf__is_listed(registered[i].model_types, model_type, strlen(model_type)))
            return (int)i;
    return -1;
}

/* Is there a step of this type, also inside a Sequence? */
static bool has_type(const json_t *step, const char *wanted)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    const char *const lists[] = { "pretokenizers", "decoders" };
    if (type != NULL && strcmp(type, wanted) == 0)
        return true;
    for (int i = 0; i < 2; i++) {
        const json_t *list = json_object_get(step, lists[i]);
        for (size_t k = 0; k < json_array_size(list); k++)
            if (has_type(json_array_get(list, k), wanted))
                return true;
    }
    return false;
}

sheaf__tokenizer_class sheaf__tokenizer_config_class(const sheaf__tokenizer_config *s,
                                                     const json_t *parts)
{
    const int at = registered_for(s->model_type);
    if (s->declared == NULL)
        return at < 0 ? SHEAF__GENERIC : registered[at].class;
    size_t size = strlen(s->declared);
    if (size > 4 && strcmp(s->declared + size - 4, "Fast") == 0)
        size -= 4;
    const sheaf__tokenizer_class declared = class_named(s->declared, size);
    const bool bytes = has_type(json_object_get(parts, "pre_tokenizer"), "ByteLevel") ||
                       has_type(json_object_get(parts, "decoder"), "ByteLevel");
    if (declared == SHEAF__LLAMA_TOKENIZER && bytes && (at < 0 || !registered[at].wrong))
        return SHEAF__GENERIC;
    if (at < 0 || (declared == registered[at].class && declared != SHEAF__GENERIC))
        return declared;
    if (registered[at].class == SHEAF__GENERIC)
        return SHEAF__GENERIC;
    return registered[at].wrong ? registered[at].class : declared;
}

bool sheaf__tokenizer_config_is_file_only(const sheaf__tokenizer_config *s)
{
    const int at = registered_for(s->model_type);
    return at >= 0 && registered[at].class == SHEAF__GENERIC;
}
