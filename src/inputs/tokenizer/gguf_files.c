/* gguf_files.c - see gguf_files.h.
 *
 * Byte-level tokenizers ("gpt2") are tokens, merges and the name of a way to divide texts
 * (tokenizer.ggml.pre), whose patterns llama.cpp has in its code. Those of sentencepiece ("llama")
 * are tokens with scores, of which its own file is made again. */
#include "inputs/tokenizer/gguf_files.h"

#include "base/file.h"
#include "formats/gguf.h"
#include "inputs/tokenizer/listing.h"
#include "inputs/tokenizer/pattern.h"
#include "inputs/tokenizer/tokenizer_config.h"

const char *const sheaf__gguf_files[] = { "tokenizer.json", "tokenizer.model",
                                          "tokenizer_config.json", NULL };

typedef struct making {
    const sheaf__gguf *file;
    const sheaf__gguf_key *tokens, *types;
    sheaf_text text;
} making;

/* By tokenizer.ggml.token_type: one of sheaf__token_kind, or a number that llama.cpp lacks. */
static int64_t type_of(const making *m, int64_t i)
{
    bool ok = true;
    const int64_t type = sheaf__gguf_integer(m->types, i, &ok);
    return ok ? type : SHEAF__TOKEN_NORMAL;
}

/* The id that a key has, of a token that there is; -1: none. */
static int64_t id_of(const making *m, const char *name)
{
    char key[64];
    bool ok = true;
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    const int64_t id = sheaf__gguf_integer(sheaf__gguf_find(m->file, key), 0, &ok);
    return ok && id >= 0 && id < m->tokens->count ? id : -1;
}

/* A key that is true or false; -1: there is none. */
static int flag_of(const making *m, const char *name)
{
    char key[64];
    bool ok = true;
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    const int64_t value = sheaf__gguf_integer(sheaf__gguf_find(m->file, key), 0, &ok);
    return ok ? value != 0 : -1;
}

static void put_token(making *m, int64_t i)
{
    const sheaf__gguf_text t = m->tokens->texts[i];
    sheaf__text_json_bytes(&m->text, t.at, (size_t)t.size);
}

/* ---- byte-level: tokenizer.json ---- */

static const struct {
    const char *names; /* tokenizer.ggml.pre, with blanks between them */
    sheaf__byte_level_form form;
    bool whole; /* a word that is a token is not put together from others */
    bool bos;   /* stands before a text, where no key says it */
} ways[] = {
    { "llama-bpe llama3 llama-v3 falcon3", { sheaf__llama3_pattern }, .whole = true, .bos = true },
    { "dbrx smaug-bpe glm4 chatglm-bpe", { sheaf__llama3_pattern } },
    { "qwen2 deepseek-r1-qwen", { sheaf__qwen2_pattern, .composed = true } },
    { "gpt-2 phi-2 olmo jais", { NULL } },
    { "smollm refact starcoder command-r codeshell", { .digits = true } },
    { "tekken", { sheaf__tekken_pattern }, .whole = true, .bos = true },
};

static int way_of(const char *pre)
{
    for (size_t i = 0; pre != NULL && i < sizeof ways / sizeof *ways; i++)
        if (sheaf__is_listed(ways[i].names, pre, strlen(pre)))
            return (int)i;
    return -1;
}

/* Tokens that are found in a text before all else. */
static void put_added(making *m)
{
    bool any = false;
    sheaf__text_add(&m->text, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                              "\"added_tokens\":[");
    for (int64_t i = 0; i < m->tokens->count; i++) {
        const int64_t type = type_of(m, i);
        if (type != SHEAF__TOKEN_CONTROL && type != SHEAF__TOKEN_USER &&
            type != SHEAF__TOKEN_UNKNOWN)
            continue;
        sheaf__text_add(&m->text, "%s{\"id\":%" PRId64 ",\"content\":", any ? "," : "", i);
        put_token(m, i);
        sheaf__text_add(&m->text,
                        ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                        "\"normalized\":false,\"special\":%s}",
                        type == SHEAF__TOKEN_USER ? "false" : "true");
        any = true;
    }
    sheaf__text_add(&m->text, "]");
}

/* Ids before and behind each text, as tokenizer.json has them. */
static void put_around(making *m, int way)
{
    const int adds_bos = flag_of(m, "add_bos_token");
    const int64_t bos = (adds_bos < 0 ? ways[way].bos : adds_bos) ? id_of(m, "bos_token_id") : -1,
                  eos = flag_of(m, "add_eos_token") == 1 ? id_of(m, "eos_token_id") : -1;
    const int64_t around[2] = { bos, eos };
    if (bos < 0 && eos < 0) {
        sheaf__text_add(&m->text, ",\"post_processor\":null");
        return;
    }
    sheaf__text_add(&m->text, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int pair = 0; pair < 2; pair++) {
        for (int k = 0; k <= pair; k++) {
            const char *sequence = k == 0 ? "A" : "B";
            for (int side = 0; side < 2; side++) {
                if (side == 1)
                    sheaf__text_add(&m->text, "%s{\"Sequence\":{\"id\":\"%s\",\"type_id\":%d}}",
                                    bos >= 0 || k > 0 ? "," : "", sequence, k);
                if (around[side] < 0)
                    continue;
                sheaf__text_add(&m->text,
                                "%s{\"SpecialToken\":{\"id\":", side == 1 || k > 0 ? "," : "");
                put_token(m, around[side]);
                sheaf__text_add(&m->text, ",\"type_id\":%d}}", k);
            }
        }
        sheaf__text_add(&m->text, pair == 0 ? "],\"pair\":[" : "],\"special_tokens\":{");
    }
    for (int side = 0; side < 2; side++) {
        if (around[side] < 0 || (side == 1 && eos == bos))
            continue;
        sheaf__text_add(&m->text, side == 1 && bos >= 0 ? "," : "");
        put_token(m, around[side]);
        sheaf__text_add(&m->text, ":{\"id\":");
        put_token(m, around[side]);
        sheaf__text_add(&m->text, ",\"ids\":[%" PRId64 "],\"tokens\":[", around[side]);
        put_token(m, around[side]);
        sheaf__text_add(&m->text, "]}");
    }
    sheaf__text_add(&m->text, "}}");
}

/* Tokens that llama.cpp's script filled the table up with are left out. */
static int64_t true_count(const making *m)
{
    int64_t n = m->tokens->count;
    while (n > 0 && type_of(m, n - 1) == SHEAF__TOKEN_UNUSED && m->tokens->texts[n - 1].size > 4 &&
           memcmp(m->tokens->texts[n - 1].at, "[PAD", 4) == 0)
        n--;
    return n;
}

/* Added tokens are in the vocabulary too: an id that it has not is given by `tokenizers` itself. */
static void put_model(making *m, int way, const sheaf__gguf_key *merges)
{
    sheaf__text_add(&m->text,
                    ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                    "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\"vocab\":{",
                    ways[way].whole ? "true" : "false");
    const int64_t count = true_count(m);
    for (int64_t i = 0; i < count; i++) {
        sheaf__text_add(&m->text, i > 0 ? "," : "");
        put_token(m, i);
        sheaf__text_add(&m->text, ":%" PRId64, i);
    }
    sheaf__text_add(&m->text, "},\"merges\":[");
    for (int64_t i = 0; i < merges->count; i++) {
        const sheaf__gguf_text t = merges->texts[i];
        sheaf__text_add(&m->text, i > 0 ? "," : "");
        sheaf__text_json_bytes(&m->text, t.at, (size_t)t.size);
    }
    sheaf__text_add(&m->text, "]}}");
}

static sheaf_status *make_json(making *m)
{
    const sheaf__gguf_key *merges = sheaf__gguf_find(m->file, "tokenizer.ggml.merges");
    char *pre = sheaf__gguf_string(sheaf__gguf_find(m->file, "tokenizer.ggml.pre"));
    const int way = way_of(pre);
    sheaf_status *st = NULL;
    if (merges == NULL || merges->type != SHEAF__GGUF_ARRAY || merges->texts == NULL) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "key 'tokenizer.ggml.merges'"),
                            "a list of texts, of a byte-level tokenizer");
    } else if (way < 0) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "key 'tokenizer.ggml.pre'");
        sheaf_expected(st, "llama-bpe, dbrx, glm4, qwen2, gpt-2, smollm, tekken or another name "
                           "of the same patterns");
        sheaf_found(st, "'%.60s'", pre == NULL ? "no such key" : pre);
        sheaf_try_this(st, "the model's own tokenizer: `tokenizer FOLDER`");
    } else {
        put_added(m);
        sheaf__text_add(&m->text, ",");
        sheaf__put_byte_level(&m->text, &ways[way].form);
        put_around(m, way);
        put_model(m, way, merges);
    }
    free(pre);
    return st;
}

/* ---- by scores: tokenizer.model, a protocol buffer (spm_file.c) ---- */

static void put_varint(sheaf_text *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        sheaf__text_little(to, (value & 127) | 128, 1);
    sheaf__text_little(to, value, 1);
}

enum { VARINT, BYTES = 2, FOUR = 5 }; /* kinds of fields */

static void put_number(sheaf_text *to, int field, uint64_t value)
{
    put_varint(to, (uint64_t)field << 3 | VARINT);
    put_varint(to, value);
}

static void put_bytes(sheaf_text *to, int field, const char *bytes, size_t size)
{
    put_varint(to, (uint64_t)field << 3 | BYTES);
    put_varint(to, size);
    sheaf__text_bytes(to, size > 0 ? bytes : "", size);
}

/* A message as a field; then it is empty. */
static void put_message(sheaf_text *to, int field, sheaf_text *message)
{
    put_bytes(to, field, message->at, message->size);
    to->failed |= message->failed;
    message->size = 0;
}

static void put_pieces(making *m, const sheaf__gguf_key *scores, int64_t count)
{
    sheaf_text piece = { 0 };
    for (int64_t i = 0; i < count; i++) {
        bool ok = true;
        const float score = (float)sheaf__gguf_number(scores, i, &ok);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        put_bytes(&piece, 1, m->tokens->texts[i].at, (size_t)m->tokens->texts[i].size);
        put_varint(&piece, 2 << 3 | FOUR);
        sheaf__text_little(&piece, ok ? bits : 0, 4);
        if (type_of(m, i) != SHEAF__TOKEN_NORMAL)
            put_number(&piece, 3, (uint64_t)type_of(m, i));
        put_message(&m->text, 1, &piece);
    }
    sheaf__text_release(&piece);
}

/* How it was trained, as far as that says how it is used; and what is done with blanks. */
static void put_specs(making *m)
{
    static const struct {
        const char *id;
        int field, text;
    } named[] = { { "unknown_token_id", 40, 45 },
                  { "bos_token_id", 41, 46 },
                  { "eos_token_id", 42, 47 },
                  { "padding_token_id", 43, 48 } };
    const int prefix = flag_of(m, "add_space_prefix");
    sheaf_text spec = { 0 };
    put_number(&spec, 3, 2); /* BPE */
    put_number(&spec, 35, 1);
    for (int i = 0; i < 4; i++) {
        const int64_t id = id_of(m, named[i].id);
        put_number(&spec, named[i].field, id >= 0 ? (uint64_t)id : UINT64_MAX);
        if (id >= 0)
            put_bytes(&spec, named[i].text, m->tokens->texts[id].at,
                      (size_t)m->tokens->texts[id].size);
    }
    put_message(&m->text, 2, &spec);
    put_bytes(&spec, 1, "identity", 8);
    put_number(&spec, 3, prefix != 0);
    put_number(&spec, 4, flag_of(m, "remove_extra_whitespaces") == 1);
    put_number(&spec, 5, 1);
    put_message(&m->text, 3, &spec);
    sheaf__text_release(&spec);
}

static sheaf_status *make_model(making *m)
{
    const sheaf__gguf_key *scores = sheaf__gguf_find(m->file, "tokenizer.ggml.scores");
    if (scores == NULL || scores->items != SHEAF__GGUF_F32 || scores->count != m->tokens->count)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "key 'tokenizer.ggml.scores'"),
                              "a number of type f32 for each token");
    put_pieces(m, scores, true_count(m));
    put_specs(m);
    return NULL;
}

/* ---- tokenizer_config.json ---- */

/* `absent`: what llama.cpp does where there is no such key. */
static void put_flag(making *m, const char *key, const char *name, int absent)
{
    const int stored = flag_of(m, key), flag = stored >= 0 ? stored : absent;
    sheaf__text_add(&m->text, ",\"%s\":%s", name, flag == 1 ? "true" : "false");
}

/* The one, or a list of those that have a name: their keys end with it. */
static void put_templates(making *m)
{
    static const char one[] = "tokenizer.chat_template", named[] = "tokenizer.chat_template.";
    bool several = false, any = false;
    for (int64_t i = 0; i < m->file->nkeys; i++)
        several |= strncmp(m->file->key[i].name, named, sizeof named - 1) == 0;
    for (int64_t i = 0; i < m->file->nkeys; i++) {
        const char *key = m->file->key[i].name;
        const bool is_named = strncmp(key, named, sizeof named - 1) == 0;
        char *program =
            is_named || strcmp(key, one) == 0 ? sheaf__gguf_string(&m->file->key[i]) : NULL;
        if (program == NULL)
            continue;
        sheaf__text_add(&m->text, any       ? ","
                                  : several ? ",\"chat_template\":["
                                            : ",\"chat_template\":");
        if (several) {
            sheaf__text_add(&m->text, "{\"name\":");
            sheaf__text_json(&m->text, is_named ? key + sizeof named - 1 : "default");
            sheaf__text_add(&m->text, ",\"template\":");
        }
        sheaf__text_json(&m->text, program);
        sheaf__text_add(&m->text, several ? "}" : "");
        free(program);
        any = true;
    }
    sheaf__text_add(&m->text, several && any ? "]" : "");
}

static void make_config(making *m, bool by_scores)
{
    static const char *const named[][2] = { { "bos_token", "bos_token_id" },
                                            { "eos_token", "eos_token_id" },
                                            { "unk_token", "unknown_token_id" },
                                            { "pad_token", "padding_token_id" } };
    char *architecture = sheaf__gguf_string(sheaf__gguf_find(m->file, "general.architecture"));
    const bool gemma = architecture != NULL && strncmp(architecture, "gemma", 5) == 0;
    sheaf__text_add(&m->text, "{\"tokenizer_class\":\"%s\",\"clean_up_tokenization_spaces\":false",
                    !by_scores ? "PreTrainedTokenizerFast"
                    : gemma    ? "GemmaTokenizer"
                               : "LlamaTokenizer");
    for (int i = 0; i < 4; i++) {
        const int64_t id = id_of(m, named[i][1]);
        sheaf__text_add(&m->text, ",\"%s\":", named[i][0]);
        if (id >= 0)
            put_token(m, id);
        else
            sheaf__text_add(&m->text, "null");
    }
    if (by_scores) {
        put_flag(m, "add_bos_token", "add_bos_token", 1);
        put_flag(m, "add_eos_token", "add_eos_token", 0);
        put_flag(m, "add_space_prefix", "add_prefix_space", 1);
    }
    put_templates(m);
    sheaf__text_add(&m->text, "}\n");
    free(architecture);
}

/* ---- the whole ---- */

/* tokenizer.ggml.model: one of sentencepiece's? Errors: it is of a third kind. */
static sheaf_status *find_kind(bool *by_scores, const making *m)
{
    char *kind = sheaf__gguf_string(sheaf__gguf_find(m->file, "tokenizer.ggml.model"));
    *by_scores = kind != NULL && strcmp(kind, "llama") == 0;
    sheaf_status *st = NULL;
    if (!*by_scores && (kind == NULL || strcmp(kind, "gpt2") != 0)) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "key 'tokenizer.ggml.model'");
        sheaf_found(sheaf_expected(st, "gpt2 or llama"), "'%.60s'",
                    kind == NULL ? "no such key" : kind);
        sheaf_try_this(st, "the model's own tokenizer: `tokenizer FOLDER`");
    }
    free(kind);
    return st;
}

static sheaf_status *make(making *m, const char *name)
{
    bool by_scores = false;
    sheaf_status *st = find_kind(&by_scores, m);
    if (st != NULL)
        return st;
    if (strcmp(name, "tokenizer_config.json") == 0)
        make_config(m, by_scores);
    else if (strcmp(name, "tokenizer.json") == 0)
        st = by_scores ? NULL : make_json(m);
    else if (strcmp(name, "tokenizer.model") == 0)
        st = by_scores ? make_model(m) : NULL;
    return st;
}

sheaf_status *sheaf__gguf_file(char **out, size_t *size, const char *path, const char *name)
{
    sheaf__gguf *file = NULL;
    *out = NULL;
    *size = 0;
    sheaf_status *st = sheaf__gguf_open(&file, path);
    if (st != NULL)
        return st;
    making m = { .file = file,
                 .tokens = sheaf__gguf_find(file, "tokenizer.ggml.tokens"),
                 .types = sheaf__gguf_find(file, "tokenizer.ggml.token_type") };
    if (m.tokens != NULL && m.tokens->type == SHEAF__GGUF_ARRAY && m.tokens->texts != NULL)
        st = sheaf_in(make(&m, name), "%s", path);
    *size = m.text.size;
    if (st == NULL && m.text.size > 0)
        st = sheaf__text_take(out, &m.text);
    sheaf__text_release(&m.text);
    sheaf__gguf_close(file);
    return st;
}
