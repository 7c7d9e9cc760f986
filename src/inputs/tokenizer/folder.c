/* folder.c - opening a tokenizer: chooses the file of a folder, and reads the files beside it.
 *
 * As AutoTokenizer of transformers 5.23: tokenizer.json comes before tokenizer.model, which is a
 * sentencepiece model, or tiktoken's ranks (ranks.h). Some classes
 * read only its vocabulary and merges and build their own steps (tokenizer_config.h); then named
 * special tokens, those of added_tokens_decoder and additional ones become added tokens, and tokens
 * around a text follow tokenizer.json, else add_bos_token and add_eos_token. A file given by its
 * own path is read as `tokenizers` reads it, with only the names from the files beside it. */
#include "base/base.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "gguf_files.h"
#include "parts.h"
#include "tokenizer_config.h"
#include "ranks.h"
#include "spm_file.h"

enum { FILE_MAX = 512 << 20 };

static const char memory_for[] = "tokenizer";

typedef struct opening {
    sheaf__tokenizer_config settings;
    sheaf__tokenizer_class class;
    sheaf__tokenizer_file file; /* the tokenizer.json, or one made from a tokenizer.model */
    json_t *spm; /* of a sentencepiece tokenizer.model, owned; NULL: it is another file */
    const char *name[SHEAF__NAMES]; /* the named tokens; NULL: none */
    json_t *added;                  /* list, owned */
    char *text;                     /* of the file, or made from it */
    size_t size;
} opening;

/* ---- added tokens ---- */

static const char *const flags[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };

static json_t *find_token(json_t *list, const char *content)
{
    for (size_t i = 0; content != NULL && i < json_array_size(list); i++) {
        json_t *token = json_array_get(list, i);
        const char *other = json_string_value(json_object_get(token, "content"));
        if (other != NULL && strcmp(other, content) == 0)
            return token;
    }
    return NULL;
}

/* Adds a token to the list, or sets the flags of an existing one. A string is a special token that
 * is not normalized. */
static sheaf_status *put_token(json_t *list, const json_t *token, bool special)
{
    const char *content = sheaf__tokenizer_config_text(token);
    if (content == NULL || content[0] == '\0')
        return NULL;
    json_t *to = find_token(list, content);
    bool good = true;
    if (to == NULL) {
        to = json_object();
        good = json_object_set_new(to, "content", json_string(content)) == 0 &&
               json_array_append_new(list, to) == 0;
    }
    const bool text = json_is_string(token);
    for (int i = 0; good && i < 5; i++) {
        const json_t *value = text ? NULL : json_object_get(token, flags[i]);
        bool on = json_is_true(value);
        if (i == 3 && !text && value == NULL)
            on = !json_is_true(json_object_get(token, "special"));
        if (i == 4)
            on = on || special || text;
        good = json_object_set_new(to, flags[i], json_boolean(on)) == 0;
    }
    good = good && json_object_set_new(to, "id", json_integer(SHEAF__ID_GIVEN)) == 0;
    return good ? NULL : sheaf__no_memory(memory_for);
}

static bool is_named(const opening *o, const char *content)
{
    for (int i = 0; content != NULL && i < SHEAF__NAMES; i++)
        if (o->name[i] != NULL && strcmp(o->name[i], content) == 0)
            return true;
    return false;
}

typedef struct numbered {
    int64_t id;
    const json_t *token;
} numbered;

static int by_id(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* added_tokens.json, texts and ids, in the form of added_tokens_decoder: named ones are special.
 * NULL: no memory. */
static json_t *older_list(const opening *o)
{
    json_t *all = json_object(), *id;
    const char *content;
    bool good = all != NULL;
    json_object_foreach(o->settings.added, content, id)
    {
        char key[24];
        const bool special = is_named(o, content);
        snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        good =
            good && json_object_set_new(all, key,
                                        json_pack("{s:s, s:b, s:b}", "content", content, "special",
                                                  special, "normalized", !special)) == 0;
    }
    if (!good)
        json_decref(all);
    return good ? all : NULL;
}

/* Adds those of tokenizer_config.json, or if it lists none those of added_tokens.json, by id. */
static sheaf_status *put_listed(opening *o, json_t *decoder)
{
    json_t *listed = json_object_get(o->settings.config, "added_tokens_decoder"), *token;
    listed = listed != NULL ? json_incref(listed) : older_list(o);
    numbered *list = calloc(json_object_size(listed) + 1, sizeof *list);
    sheaf_status *st = listed == NULL || list == NULL ? sheaf__no_memory(memory_for) : NULL;
    const char *key;
    size_t n = 0;
    if (list != NULL)
        json_object_foreach(listed, key, token)
        {
            list[n++] = (numbered){ strtoll(key, NULL, 10), token };
            if (st == NULL && sheaf__tokenizer_config_text(token) == NULL)
                st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT,
                                               "tokenizer_config.json: added_tokens_decoder: '%s'",
                                               key),
                                    "an object with a content");
        }
    if (st == NULL)
        qsort(list, n, sizeof *list, by_id);
    for (size_t i = 0; st == NULL && i < n; i++) {
        st = put_token(o->added, list[i].token,
                       is_named(o, sheaf__tokenizer_config_text(list[i].token)));
        TRY(st, put_token(decoder, list[i].token, false));
    }
    free(list);
    json_decref(listed);
    return st;
}

/* Adds a special token without other flags, as a Qwen2Tokenizer has them. */
static sheaf_status *put_plain(opening *o, const char *content)
{
    json_t *text = json_string(content);
    sheaf_status *st =
        text == NULL ? sheaf__no_memory(memory_for) : put_token(o->added, text, true);
    json_decref(text);
    return st;
}

/* Adds one of extra_special_tokens; a token that is listed already only becomes special, if it is
 * named. */
static sheaf_status *put_one(opening *o, const json_t *token, bool named)
{
    const char *content = sheaf__tokenizer_config_text(token);
    json_t *there = find_token(o->added, content);
    if (content != NULL && o->class == SHEAF__QWEN2_TOKENIZER)
        return put_plain(o, content);
    if (there == NULL)
        return put_token(o->added, token, named);
    return !named || json_object_set_new(there, "special", json_true()) == 0
               ? NULL
               : sheaf__no_memory(memory_for);
}

static sheaf_status *put_list(opening *o, const json_t *list)
{
    sheaf_status *st = NULL;
    const json_t *token;
    const char *key;
    size_t i;
    json_array_foreach((json_t *)list, i, token) if (st == NULL) st = put_one(o, token, false);
    json_object_foreach((json_t *)list, key, token) if (st == NULL) st = put_one(o, token, true);
    return st;
}

/* extra_special_tokens, with names or without; additional_special_tokens where it lists none. */
static sheaf_status *put_extra(opening *o)
{
    const json_t *extra = json_object_get(o->settings.config, "extra_special_tokens");
    const json_t *list = extra, *value;
    const char *key;
    if (json_array_size(list) == 0)
        list = json_object_get(o->settings.config, "additional_special_tokens");
    sheaf_status *st = NULL;
    json_object_foreach(o->settings.config, key, value)
    {
        if (st == NULL && sheaf__ends_with(key, "_token") && /* as "image_token" */
            sheaf__tokenizer_config_text(value) != NULL)
            st = put_one(o, value, true);
    }
    if (st == NULL && json_is_object(extra))
        st = put_list(o, extra);
    TRY(st, put_list(o, list));
    if (st == NULL && o->spm != NULL && json_array_size(list) + json_object_size(extra) == 0)
        st = put_list(o, json_object_get(o->spm, "extra"));
    return st;
}

static sheaf_status *put_named(opening *o, json_t *decoder)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < SHEAF__NAMES; i++) {
        if (o->name[i] == NULL)
            continue;
        const json_t *token = find_token(decoder, o->name[i]);
        if (token == NULL && json_is_object(o->settings.name[i]))
            token = o->settings.name[i];
        st = token != NULL && o->class != SHEAF__QWEN2_TOKENIZER ? put_token(o->added, token, true)
                                                                 : put_plain(o, o->name[i]);
    }
    return st;
}

static sheaf_status *collect_added(opening *o)
{
    json_t *decoder = json_array(); /* tokens with flags from a list of added tokens */
    const json_t *of_file = json_object_get(o->file.parts, "added_tokens");
    const bool listed = json_object_get(o->settings.config, "added_tokens_decoder") != NULL;
    sheaf_status *st = NULL;
    o->added = json_array();
    if (decoder == NULL || o->added == NULL)
        st = sheaf__no_memory(memory_for);
    for (size_t i = 0; st == NULL && i < json_array_size(of_file); i++) {
        const json_t *token = json_array_get(of_file, i);
        if (!listed)
            st = put_token(decoder, token, false);
        if (st == NULL && (o->class == SHEAF__GENERIC || !listed))
            st = put_token(o->added, token,
                           is_named(o, sheaf__tokenizer_config_text(token)) && !listed);
    }
    TRY(st, put_listed(o, decoder));
    TRY(st, put_named(o, decoder));
    TRY(st, put_extra(o));
    json_decref(decoder);
    return st;
}

/* ---- names ---- */

static const char *default_name(const opening *o, int which)
{
    if (o->class != SHEAF__GENERIC)
        return sheaf__class_name(o->class, which);
    return json_string_value(json_object_get(o->spm, sheaf__named_tokens[which]));
}

static void find_names(opening *o)
{
    for (int i = 0; i < SHEAF__NAMES; i++) {
        o->name[i] = sheaf__tokenizer_config_text(o->settings.name[i]);
        if (o->name[i] == NULL && !o->settings.none[i])
            o->name[i] = default_name(o, i);
    }
}

static int32_t id_of(const sheaf__tokenizer *t, const char *name)
{
    return name == NULL ? -1 : sheaf__tokenizer_find(t, name);
}

/* ---- the whole ---- */

/* Refuses a class that builds other steps than its files have and adds a token without a row in
 * models. */
static sheaf_status *check_known(const opening *o)
{
    const char *declared = o->settings.declared;
    if (o->class != SHEAF__GENERIC || declared == NULL ||
        strncmp(declared, "CodeLlamaTokenizer", 18) != 0 ||
        sheaf__tokenizer_config_is_file_only(&o->settings))
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "tokenizer_class"),
                                      "a class that takes the steps of its file, or whose own are "
                                      "known (LlamaTokenizer, ...)");
    return sheaf_try_this(sheaf_found(st, "'%s'", declared),
                          "`tokenizer FOLDER/tokenizer.json`, which is read as it stands");
}

/* A class derived only from the model_type is dropped if the file does not fit it. */
static sheaf_status *check_class(opening *o)
{
    const char *type =
        json_string_value(json_object_get(json_object_get(o->file.parts, "model"), "type"));
    if (json_is_true(json_object_get(o->settings.config, "split_special_tokens")))
        return sheaf_expected(
            sheaf_fail(SHEAF_E_UNSUPPORTED, "tokenizer_config.json: 'split_special_tokens'"),
            "false: each text says whether special tokens in it are text");
    if (o->class == SHEAF__GENERIC || type == NULL || strcmp(type, "BPE") == 0)
        return NULL;
    if (o->settings.declared == NULL) {
        o->class = SHEAF__GENERIC;
        return NULL;
    }
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "tokenizer_class '%s'", o->settings.declared);
    sheaf_expected(st, "a model of type BPE, which this class is made for");
    return sheaf_try_this(sheaf_found(st, "%s", type), "`tokenizer FOLDER/tokenizer.json`");
}

/* Are the file's added tokens the collected ones? */
static bool same_added(const opening *o)
{
    json_t *of_file = json_object_get(o->file.parts, "added_tokens");
    if (json_array_size(of_file) != json_array_size(o->added))
        return false;
    for (size_t i = 0; i < json_array_size(o->added); i++) {
        const json_t *a = json_array_get(o->added, i), *b = json_array_get(of_file, i);
        if (!json_equal(json_object_get(a, "content"), json_object_get(b, "content")))
            return false;
        for (int k = 0; k < 5; k++)
            if (json_is_true(json_object_get(a, flags[k])) !=
                json_is_true(json_object_get(b, flags[k])))
                return false;
    }
    return true;
}

/* Replaces tokens and steps by those of the folder and its class. */
static sheaf_status *change_parts(opening *o)
{
    sheaf_status *st = collect_added(o);
    if (st == NULL && !(o->class == SHEAF__GENERIC && same_added(o)) &&
        json_object_set(o->file.parts, "added_tokens", o->added) != 0)
        st = sheaf__no_memory(memory_for);
    TRY(st, sheaf__class_build(o->file.parts, o->class, &o->settings, o->name[SHEAF__UNK]));
    return st;
}

/* add_bos_token and add_eos_token are used without a tokenizer.json, whose post-processor decides
 * otherwise. */
static sheaf_status *finish(sheaf__tokenizer *t, opening *o)
{
    const sheaf__tokenizer_config *s = &o->settings;
    t->bos = id_of(t, o->name[SHEAF__BOS]);
    t->eos = id_of(t, o->name[SHEAF__EOS]);
    if (o->spm == NULL)
        return NULL;
    return sheaf__tokenizer_around(t, s->add_bos == 1 ? t->bos : -1, s->add_eos == 1 ? t->eos : -1);
}

static sheaf_status *read_model(opening *o)
{
    sheaf_text json = { 0 };
    const bool ranks = sheaf__ranks_are(o->text, o->size);
    const char *declared = o->settings.declared, *model_type = o->settings.model_type;
    if (o->class == SHEAF__QWEN2_TOKENIZER || o->class == SHEAF__GPT2_TOKENIZER) {
        sheaf_status *st =
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s '%s'",
                                      declared == NULL ? "model_type" : "tokenizer_class",
                                      declared == NULL ? model_type : declared),
                           "a tokenizer.json: the tokenizer of this name reads no tokenizer.model");
        return sheaf_try_this(st, "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) "
                                  "of transformers writes one");
    }
    sheaf_status *st =
        ranks ? sheaf__ranks_convert(&json, o->text, o->size)
              : sheaf__spm_convert(&json, &o->spm, o->text, o->size, o->class != SHEAF__GENERIC);
    free(o->text);
    o->text = NULL;
    o->size = json.size;
    TRY(st, sheaf__text_take(&o->text, &json));
    TRY(st, sheaf__tokenizer_read(&o->file, o->text, o->size));
    o->file.made = true;
    o->file.by_id = ranks;
    sheaf__text_release(&json);
    return st;
}

/* A tokenizer.json begins with a brace. */
static bool is_json(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && memchr(" \t\r\n", text[at], 4) != NULL)
        at++;
    return at < size && text[at] == '{';
}

/*   name      of the file: what calls itself JSON is read as that, also where a download left
 *             something else in it
 *   as_it_is  the file was named itself: a tokenizer.json as `tokenizers` reads it */
static sheaf_status *open_text(sheaf__tokenizer **out, opening *o, const char *name, bool as_it_is)
{
    sheaf__tokenizer *t = NULL;
    const bool json = sheaf__ends_with(name, ".json") || is_json(o->text, o->size),
               changed = !(json && as_it_is);
    sheaf_status *st = json ? sheaf__tokenizer_read(&o->file, o->text, o->size) : NULL;
    if (st == NULL && changed) {
        o->class = sheaf__tokenizer_config_class(&o->settings, o->file.parts);
        st = check_known(o);
    }
    if (!json)
        TRY(st, read_model(o));
    TRY(st, check_class(o));
    if (st == NULL)
        find_names(o);
    if (changed)
        TRY(st, change_parts(o));
    TRY(st, sheaf__tokenizer_build(&t, &o->file));
    TRY(st, finish(t, o));
    if (st == NULL)
        *out = t;
    else
        sheaf__tokenizer_close(t);
    return st;
}

static void release(opening *o)
{
    sheaf__tokenizer_config_release(&o->settings);
    json_decref(o->file.parts);
    json_decref(o->spm);
    json_decref(o->added);
    free(o->text);
}

/* tokenizer.json, else tokenizer.model. */
static sheaf_status *find_file(char path[SHEAF_PATH_SIZE], const char *folder)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model" };
    for (int i = 0; i < 2; i++)
        if (sheaf__path_has(folder, names[i], SHEAF_PATH_FILE)) {
            sheaf__path_in(path, folder, names[i]);
            return NULL;
        }
    return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", folder),
                                         "a tokenizer.json or a tokenizer.model"),
                          "the folder of the model that the tokenizer belongs to");
}

/* A GGUF file has what a folder has. */
static sheaf_status *open_gguf(sheaf__tokenizer **out, const char *gguf)
{
    opening o = { 0 };
    const char *name = "tokenizer.json";
    sheaf_status *st = sheaf__gguf_file(&o.text, &o.size, gguf, name);
    if (st == NULL && o.text == NULL)
        st = sheaf__gguf_file(&o.text, &o.size, gguf, name = "tokenizer.model");
    if (st == NULL && o.text == NULL)
        st = sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", gguf),
                                           "keys of a tokenizer, tokenizer.ggml.tokens"),
                            "the model's own tokenizer: `tokenizer FOLDER`");
    TRY(st, sheaf__tokenizer_config_read(&o.settings, gguf));
    TRY(st, sheaf_in(open_text(out, &o, name, false), "%s", gguf));
    release(&o);
    return st;
}

sheaf_status *sheaf__tokenizer_open(sheaf__tokenizer **out, const char *path)
{
    char file[SHEAF_PATH_SIZE], *folder = NULL, gguf[SHEAF_PATH_SIZE];
    opening o = { 0 };
    const char *found;
    sheaf_status *st = sheaf__gguf_alone(&found, gguf, path);
    if (st != NULL || found != NULL)
        return TRY(st, open_gguf(out, gguf));
    const bool is_folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    st = is_folder ? find_file(file, path) : sheaf__path_parent(&folder, path);
    const char *name = is_folder ? file : path;
    if (st == NULL) {
        st = sheaf__file_read_all(&o.text, &o.size, name, FILE_MAX);
        st = st == NULL ? NULL : sheaf__path_hub(st, path);
    }
    TRY(st, sheaf__tokenizer_config_read(&o.settings, is_folder ? path : folder));
    TRY(st, sheaf_in(open_text(out, &o, name, !is_folder), "%s", name));
    release(&o);
    free(folder);
    return st;
}
