/* new_tokens.c - see new_tokens.h. */
#include "dialects/hf/new_tokens.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model_folder.h"
#include "inputs/tokenizer/parts.h"
#include "inputs/tokenizer/tokenizer.h"
#include "inputs/tokenizer/tokenizer_config.h"

enum { MOST = 65536, LONGEST = 512, FILE_MAX = 512 << 20 };

static const char memory_for[] = "tokens to add";
static const char file_name[] = "tokenizer.json", config_name[] = "tokenizer_config.json";

/* In the order in which `tokenizers` writes them. */
static const char *const flags[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };

/* ---- the list ---- */

typedef struct reading {
    sheaf__new_tokens *out;
    const sheaf__tokenizer *tokenizer;
    const char *file, *unit; /* "line", "token" */
    int64_t at;              /* counted from 1 */
    json_t *seen;            /* text: where it stood */
} reading;

static sheaf_status *wrong(const reading *r, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s: %s %" PRId64, r->file, r->unit, r->at),
                          "%s", expected);
}

static sheaf_status *check_text(const reading *r, const char *text, size_t size)
{
    if (size == 0)
        return sheaf_found(wrong(r, "a token"), "nothing");
    if (size > LONGEST)
        return sheaf_found(wrong(r, "a token of at most 512 bytes"), "%zu bytes", size);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return sheaf_found(wrong(r, "a token without control characters"),
                               "the byte 0x%02x in it", (unsigned char)text[i]);
    const int32_t known = sheaf__tokenizer_find(r->tokenizer, text);
    if (known >= 0)
        return sheaf_try_this(sheaf_found(wrong(r, "a token that the tokenizer does not have"),
                                          "'%s', which is its token %" PRId32, text, known),
                              "leave it out: it can be trained as it is");
    const json_int_t before = json_integer_value(json_object_get(r->seen, text));
    if (before > 0)
        return sheaf_found(wrong(r, "each token once"), "'%s', as in %s %" JSON_INTEGER_FORMAT,
                           text, r->unit, before);
    return NULL;
}

/* `given`: an object with flags, or NULL. */
static sheaf_status *add_token(reading *r, const char *text, size_t size, const json_t *given)
{
    sheaf_status *st = check_text(r, text, size);
    if (st != NULL)
        return st;
    if (r->out->count == MOST)
        return sheaf_found(wrong(r, "at most 65536 tokens to add"), "more");
    const bool special = json_is_true(json_object_get(given, "special"));
    json_t *token =
        json_pack("{s:I, s:s}", "id", (json_int_t)(r->out->first + r->out->count), "content", text);
    bool good = token != NULL;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && good; i++) {
        const json_t *declared = json_object_get(given, flags[i]);
        const bool on = declared != NULL ? json_is_true(declared)
                                         : strcmp(flags[i], "normalized") == 0 && !special;
        good = json_object_set_new(token, flags[i], json_boolean(on)) == 0;
    }
    good = good && json_array_append(r->out->list, token) == 0 &&
           json_object_set_new(r->seen, text, json_integer(r->at)) == 0;
    json_decref(token);
    r->out->count++;
    return good ? NULL : sheaf__no_memory(memory_for);
}

static sheaf_status *add_object(reading *r, const json_t *object)
{
    const json_t *content = json_object_get(object, "content");
    const char *key;
    json_t *value;
    if (!json_is_string(content))
        return wrong(r, "a text, or an object with its \"content\"");
    json_object_foreach((json_t *)object, key, value)
    {
        bool known = strcmp(key, "content") == 0;
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            known |= strcmp(key, flags[i]) == 0 && json_is_boolean(value);
        if (!known)
            return sheaf_found(wrong(r, "beside \"content\" special, normalized, lstrip, rstrip "
                                        "and single_word, true or false"),
                               "'%s'", key);
    }
    return add_token(r, json_string_value(content), json_string_length(content), object);
}

static sheaf_status *read_list(reading *r, const char *text, size_t size)
{
    sheaf_json_scan scan;
    json_t *list = NULL;
    const json_t *token;
    size_t i;
    sheaf_status *st = sheaf__scan_init(&scan, text, size, true);
    TRY(st, sheaf__json_parse_value(&list, &scan));
    TRY(st, sheaf__scan_end(&scan));
    if (st == NULL && !json_is_array(list))
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "line 1"), "a list of tokens");
    st = sheaf_in(st, "%s", r->file);
    json_array_foreach(list, i, token)
    {
        r->at = (int64_t)i + 1;
        TRY(st, json_is_string(token)
                    ? add_token(r, json_string_value(token), json_string_length(token), NULL)
                    : add_object(r, token));
    }
    json_decref(list);
    return st;
}

static sheaf_status *read_lines(reading *r, char *text, size_t size)
{
    sheaf_status *st = NULL;
    const size_t mark = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
    for (size_t at = mark; at < size && st == NULL;) {
        char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - line);
        at += length + 1;
        length -= length > 0 && line[length - 1] == '\r';
        line[length] = '\0'; /* there is a NUL behind the file's text */
        r->at++;
        if (strlen(line) == length && !sheaf__is_utf8(line))
            st = sheaf_try_this(wrong(r, "UTF-8"), "iconv -t UTF-8");
        TRY(st, add_token(r, line, length, NULL));
    }
    return st;
}

/* ---- the tokenizer ---- */

static sheaf_status *check_folder(const char *tokenizer)
{
    if (tokenizer != NULL && sheaf__path_has(tokenizer, file_name, SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: its tokenizer",
                                  tokenizer == NULL ? "the model" : tokenizer);
    sheaf_expected(st, "a folder with a tokenizer.json, which tokens can be added to");
    return sheaf_try_this(st, "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of "
                              "transformers writes one, of a GGUF file sheaf convert FILE FOLDER "
                              "--to hf; then `tokenizer FOLDER`");
}

sheaf_status *sheaf__new_tokens_read(sheaf__new_tokens *out, const char *file,
                                     const char *tokenizer)
{
    sheaf__tokenizer *t = NULL;
    char *text = NULL;
    size_t size = 0;
    *out = (sheaf__new_tokens){ .list = json_array() };
    reading r = { .out = out, .file = file, .seen = json_object() };
    sheaf_status *st = out->list == NULL || r.seen == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, check_folder(tokenizer));
    TRY(st, sheaf__tokenizer_open(&t, tokenizer));
    TRY(st, sheaf__file_read_all(&text, &size, file, 64 << 20));
    if (st == NULL) {
        const bool json = sheaf__ends_with(file, ".json");
        r.tokenizer = t;
        r.unit = json ? "token" : "line";
        out->first = sheaf__tokenizer_size(t);
        st = json ? read_list(&r, text, size) : read_lines(&r, text, size);
    }
    if (st == NULL && out->count == 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", file), "tokens to add"),
                         "none");
    sheaf__tokenizer_close(t);
    json_decref(r.seen);
    free(text);
    return st;
}

void sheaf__new_tokens_release(sheaf__new_tokens *tokens)
{
    json_decref(tokens->list);
    *tokens = (sheaf__new_tokens){ 0 };
}

/* ---- files ---- */

static sheaf_status *read_file(char **out, size_t *size, const char *folder, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    return sheaf__file_read_all(out, size, sheaf__path_in(path, folder, name), FILE_MAX);
}

static sheaf_status *write_file(const char *folder, const char *name, const char *bytes,
                                size_t size)
{
    char path[SHEAF_PATH_SIZE];
    return sheaf__file_write_whole(sheaf__path_in(path, folder, name), bytes, size);
}

static sheaf_status *copy_file(const char *dst, const char *from, const char *name)
{
    char *bytes = NULL;
    size_t size;
    sheaf_status *st = read_file(&bytes, &size, from, name);
    TRY(st, write_file(dst, name, bytes, size));
    free(bytes);
    return st;
}

static sheaf_status *copy_files(const char *dst, const char *from)
{
    char **names = NULL;
    int64_t count = 0;
    sheaf_status *st = sheaf_hf_more_templates(&names, &count, dst, from);
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = copy_file(dst, from, names[i]);
    for (int i = 0; st == NULL && sheaf_hf_extras[i] != NULL; i++)
        if (sheaf_hf_is_tokenizers(sheaf_hf_extras[i]) &&
            sheaf__path_has(from, sheaf_hf_extras[i], SHEAF_PATH_FILE))
            st = copy_file(dst, from, sheaf_hf_extras[i]);
    sheaf__names_free(names, count);
    return st;
}

/* Sets a key of a file to a value, indented as a member of the object. */
static sheaf_status *set_key(const char *dst, const char *name, const char *key,
                             const json_t *value)
{
    char *old = NULL, *text = NULL, *changed = NULL;
    size_t size;
    sheaf_text indented = { 0 };
    sheaf_status *st = sheaf__path_has(dst, name, SHEAF_PATH_FILE)
                           ? read_file(&old, &size, dst, name)
                       : (old = strdup("{}")) == NULL ? sheaf__no_memory(memory_for)
                                                      : NULL;
    TRY(st, sheaf__json_text(&text, value, JSON_INDENT(2) | JSON_ENCODE_ANY));
    for (const char *line = text; st == NULL && line != NULL;) {
        const char *end = strchr(line, '\n');
        const size_t n = end == NULL ? strlen(line) : (size_t)(end - line) + 1;
        sheaf__text_bytes(&indented, line, n);
        sheaf__text_add(&indented, end == NULL ? "" : "  ");
        line = end == NULL ? NULL : end + 1;
    }
    free(text);
    text = NULL;
    TRY(st, sheaf__text_take(&text, &indented));
    TRY(st, sheaf_hf_config_set(&changed, old, key, text));
    TRY(st, write_file(dst, name, changed, strlen(changed)));
    sheaf__text_release(&indented);
    free(changed);
    free(text);
    free(old);
    return st;
}

/* ---- the files with the tokens ---- */

/* Those that tokenizer_config.json lists count too, where it lists any. */
static sheaf_status *add_listed(const char *dst, const sheaf__new_tokens *tokens,
                                const json_t *config)
{
    json_t *all = json_deep_copy(json_object_get(config, "added_tokens_decoder"));
    const json_t *token;
    size_t i;
    if (all == NULL)
        return NULL;
    bool good = true;
    json_array_foreach(tokens->list, i, token)
    {
        char id[24];
        json_t *copy = json_copy((json_t *)token);
        snprintf(id, sizeof id, "%" PRId64, tokens->first + (int64_t)i);
        good = good && json_object_del(copy, "id") == 0 && json_object_set(all, id, copy) == 0;
        json_decref(copy);
    }
    sheaf_status *st = good ? set_key(dst, config_name, "added_tokens_decoder", all)
                            : sheaf__no_memory(memory_for);
    json_decref(all);
    return st;
}

/* The class that the folder's tokenizer has, without a config.json beside it too. */
static sheaf_status *keep_class(const char *dst, sheaf__tokenizer_class class, const json_t *parts)
{
    static const char *const names[] = {
        [SHEAF__GENERIC] = "PreTrainedTokenizerFast", [SHEAF__LLAMA_TOKENIZER] = "LlamaTokenizer",
        [SHEAF__GEMMA_TOKENIZER] = "GemmaTokenizer",  [SHEAF__QWEN2_TOKENIZER] = "Qwen2Tokenizer",
        [SHEAF__GPT2_TOKENIZER] = "GPT2Tokenizer",
    };
    sheaf__tokenizer_config alone;
    sheaf_status *st = sheaf__tokenizer_config_read(&alone, dst);
    if (st != NULL)
        return st;
    if (sheaf__tokenizer_config_class(&alone, parts) != class) {
        json_t *name = json_string(names[class]);
        st = name == NULL ? sheaf__no_memory(memory_for)
                          : set_key(dst, config_name, "tokenizer_class", name);
        json_decref(name);
    }
    sheaf__tokenizer_config_release(&alone);
    return st;
}

/* All added tokens of the tokenizer, which its class may have added too, and the new ones. */
static sheaf_status *list_all(json_t *all, const char *from, const json_t *list)
{
    sheaf__tokenizer *t = NULL;
    sheaf_status *st = sheaf__tokenizer_open(&t, from);
    for (int64_t i = 0; st == NULL && i < t->added.count; i++) {
        const sheaf__added_token *a = &t->added.token[i];
        json_t *token =
            json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", a->id, "content", a->content,
                      flags[0], a->single_word, flags[1], a->lstrip, flags[2], a->rstrip, flags[3],
                      a->normalized, flags[4], a->special);
        if (token == NULL || json_array_append_new(all, token) != 0)
            st = sheaf__no_memory(memory_for);
    }
    if (st == NULL && json_array_extend(all, (json_t *)list) != 0)
        st = sheaf__no_memory(memory_for);
    sheaf__tokenizer_close(t);
    return st;
}

/* Has each token the id that its row is made for? */
static sheaf_status *check_ids(const char *dst, const sheaf__new_tokens *tokens, const char *from)
{
    sheaf__tokenizer *t = NULL;
    const json_t *token;
    size_t i;
    sheaf_status *st = sheaf__tokenizer_open(&t, dst);
    json_array_foreach(tokens->list, i, token)
    {
        const int64_t wanted = tokens->first + (int64_t)i;
        const char *text = json_string_value(json_object_get(token, "content"));
        const int32_t id = st == NULL ? sheaf__tokenizer_find(t, text) : -1;
        if (st == NULL && id != (int32_t)wanted) {
            st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: tokens added to its tokenizer", from);
            sheaf_found(sheaf_expected(st, "the id %" PRId64 " for '%s'", wanted, text), "%" PRId32,
                        id);
        }
    }
    sheaf__tokenizer_close(t);
    return st;
}

sheaf_status *sheaf__new_tokens_write(const char *dst, const sheaf__new_tokens *tokens,
                                      const char *tokenizer)
{
    sheaf__tokenizer_config settings = { 0 };
    sheaf__tokenizer_file file = { 0 };
    char *text = NULL;
    size_t size;
    sheaf_status *st = read_file(&text, &size, tokenizer, file_name);
    TRY(st, sheaf__tokenizer_read(&file, text, size));
    TRY(st, sheaf__tokenizer_config_read(&settings, tokenizer));
    json_t *all = json_array();
    if (st == NULL && all == NULL)
        st = sheaf__no_memory(memory_for);
    TRY(st, list_all(all, tokenizer, tokens->list));
    TRY(st, copy_files(dst, tokenizer));
    TRY(st, set_key(dst, file_name, "added_tokens", all));
    TRY(st, add_listed(dst, tokens, settings.config));
    TRY(st, keep_class(dst, sheaf__tokenizer_config_class(&settings, file.parts), file.parts));
    TRY(st, check_ids(dst, tokens, tokenizer));
    json_decref(all);
    json_decref(file.parts);
    sheaf__tokenizer_config_release(&settings);
    free(text);
    return st;
}
