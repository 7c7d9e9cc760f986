/* tokenizer.c - a folder's tokenizer and chat template, as keys; see model.h.
 *
 * llama.cpp encodes byte-level tokenizers ("gpt2") by their merges and a pattern of its own, which
 * it knows by name, others ("llama") by the scores of sentencepiece. */
#include <ctype.h>

#include "base/base.h"
#include "dialects/gguf/model.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/listing.h"

static const float unused_score = -10000;

/* How a text is divided (sheaf__listing.splitting), and what llama.cpp calls it. */
static const struct {
    const char *splitting, *pre;
    bool kin; /* families have names of their own for it (sheaf__gguf_form.pre) */
} patterns[] = {
    { "llama3", "llama-bpe", .kin = true }, { "qwen2", "qwen2" },   { "gpt2", "gpt-2" },
    { "digits\ngpt2", "smollm" },           { "tekken", "tekken" },
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static int pattern_of(const char *splitting)
{
    int i = 0;
    while (i < PATTERNS && strcmp(patterns[i].splitting, splitting) != 0)
        i++;
    return i < PATTERNS ? i : -1;
}

static sheaf_status *check(const sheaf__listing *l, const sheaf_config *c)
{
    if (l->count > c->vocab)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tokenizer"),
                                          "at most %" PRId64 " tokens, the model's vocabulary",
                                          c->vocab),
                           "%" PRId64, l->count);
    if (!l->byte_level || pattern_of(l->splitting) >= 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf`: tokenizer");
    sheaf_expected(st,
                   "texts divided as GPT-2's, Llama 3's, Qwen2's, SmolLM's or Tekken's tokenizer "
                   "does, which llama.cpp knows by name");
    return sheaf_found(st, "'%.300s'", l->splitting);
}

static sheaf__token_kind kind_of(const sheaf__listing *l, int64_t i)
{
    return i < l->count && l->token[i].text != NULL ? l->token[i].kind : SHEAF__TOKEN_UNUSED;
}

static void put_tokens(sheaf__gguf_keys *keys, const sheaf__listing *l, int64_t vocab)
{
    sheaf__gguf_put_array(keys, "tokenizer.ggml.tokens", SHEAF__GGUF_STRING, vocab);
    for (int64_t i = 0; i < vocab; i++) {
        char none[32];
        const bool has = i < l->count && l->token[i].text != NULL;
        const int size = snprintf(none, sizeof none, "[PAD%" PRId64 "]", i);
        sheaf__gguf_add_text(keys, has ? l->token[i].text : none,
                             has ? l->token[i].size : (size_t)size);
    }
    if (!l->byte_level) {
        sheaf__gguf_put_array(keys, "tokenizer.ggml.scores", SHEAF__GGUF_F32, vocab);
        for (int64_t i = 0; i < vocab; i++)
            sheaf__gguf_add_f32(keys, i < l->count && l->token[i].text != NULL ? l->token[i].score
                                                                               : unused_score);
    }
    sheaf__gguf_put_array(keys, "tokenizer.ggml.token_type", SHEAF__GGUF_I32, vocab);
    for (int64_t i = 0; i < vocab; i++)
        sheaf__text_little(&keys->text, kind_of(l, i), 4);
}

static void put_merges(sheaf__gguf_keys *keys, const sheaf__listing *l)
{
    sheaf__gguf_put_array(keys, "tokenizer.ggml.merges", SHEAF__GGUF_STRING, l->merges);
    for (int64_t i = 0; i < l->merges; i++) {
        const sheaf__listed_token *a = &l->token[l->merge[i][0]], *b = &l->token[l->merge[i][1]];
        sheaf__text_little(&keys->text, a->size + 1 + b->size, 8);
        sheaf__text_bytes(&keys->text, a->text, a->size);
        sheaf__text_bytes(&keys->text, " ", 1);
        sheaf__text_bytes(&keys->text, b->text, b->size);
    }
}

static void put_id(sheaf__gguf_keys *keys, const char *key, int64_t id, int64_t config)
{
    if (id < 0)
        id = config;
    if (id >= 0)
        sheaf__gguf_put_u32(keys, key, id);
}

/* A file says of what stands around each text only whether that is bos, and eos. As in llama.cpp's
 * script another token behind it becomes eos, and eos the end of a turn (*eot). */
static void settle_around(sheaf__listing *l, int64_t *eot, const sheaf_config *c,
                          const char *folder, const sheaf_events *events)
{
    static const char cannot[] = "%s: the tokenizer puts %" PRId64 " %s, which a GGUF file cannot "
                                 "say: in llama.cpp a prompt must have them written";
    const int64_t before = l->before.count, behind = l->behind.count;
    const int64_t eos = l->eos >= 0 || c->neos == 0 ? l->eos : c->eos[0];
    if (before == 1 && l->bos < 0)
        l->bos = l->before.id[0];
    if (before > 1 || (before == 1 && l->bos != l->before.id[0])) {
        sheaf_warn(events, cannot, folder, before, "tokens other than bos before each text");
        l->before.count = 0;
    }
    if (behind == 1 && eos != l->behind.id[0]) {
        *eot = eos;
        l->eos = l->behind.id[0];
    } else if (behind > 1) {
        sheaf_warn(events, cannot, folder, behind, "tokens behind each text");
        l->behind.count = 0;
    }
}

static void put_ids(sheaf__gguf_keys *keys, const sheaf__listing *l, const sheaf_config *c)
{
    put_id(keys, "tokenizer.ggml.bos_token_id", l->bos, c->bos);
    put_id(keys, "tokenizer.ggml.eos_token_id", l->eos, c->neos > 0 ? c->eos[0] : -1);
    put_id(keys, "tokenizer.ggml.unknown_token_id", l->unk, -1);
    put_id(keys, "tokenizer.ggml.padding_token_id", l->pad, c->pad);
}

static void put_all(sheaf__gguf_keys *keys, const sheaf__listing *l, int64_t eot,
                    const sheaf_config *c)
{
    const int at = l->byte_level ? pattern_of(l->splitting) : -1;
    const char *pre = at < 0 ? "default" : patterns[at].pre, *own = sheaf__gguf_form_of(c)->pre;
    const bool kin = at >= 0 && patterns[at].kin && own != NULL;
    sheaf__gguf_put_text(keys, "tokenizer.ggml.model", l->byte_level ? "gpt2" : "llama");
    sheaf__gguf_put_text(keys, "tokenizer.ggml.pre", kin ? own : pre);
    put_tokens(keys, l, c->vocab);
    if (l->byte_level)
        put_merges(keys, l);
    put_ids(keys, l, c);
    put_id(keys, "tokenizer.ggml.eot_token_id", eot, -1);
    sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", l->before.count > 0);
    sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", l->behind.count > 0);
    if (!l->byte_level)
        sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", l->space_prefix != 0);
}

/* In place: of characters other than ASCII's letters and digits llama.cpp's script makes "_". */
static void spell(char *name)
{
    char *to = name;
    for (const char *c = name; *c != '\0'; c++)
        if (((unsigned char)*c & 0xc0) != 0x80)
            *to++ = (unsigned char)*c < 0x80 && isalnum((unsigned char)*c) ? *c : '_';
    *to = '\0';
}

static sheaf_status *put_other(sheaf__gguf_keys *keys, const sheaf__stored_chat *chat, int64_t i)
{
    const sheaf__other_template *t = &chat->other[i];
    char *key = NULL;
    for (int64_t k = 0; k < i; k++)
        if (strcmp(chat->other[k].name, t->name) == 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "chat templates"),
                                              "names that differ in letters and digits, as keys "
                                              "of a GGUF file have them"),
                               "two that are '%s' there", t->name);
    if (asprintf(&key, "tokenizer.chat_template.%s", t->name) < 0)
        return sheaf__no_memory("chat template");
    sheaf__gguf_put_text(keys, key, t->program);
    free(key);
    return NULL;
}

static sheaf_status *put_templates(sheaf__gguf_keys *keys, sheaf__stored_chat *chat)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < chat->others && st == NULL; i++) {
        spell(chat->other[i].name);
        st = put_other(keys, chat, i);
    }
    if (chat->others > 0)
        sheaf__gguf_put_array(keys, "tokenizer.chat_templates", SHEAF__GGUF_STRING, chat->others);
    for (int64_t i = 0; i < chat->others; i++)
        sheaf__gguf_add_text(keys, chat->other[i].name, strlen(chat->other[i].name));
    if (chat->program != NULL)
        sheaf__gguf_put_text(keys, "tokenizer.chat_template", chat->program);
    return st;
}

sheaf_status *sheaf__gguf_tokenizer_keys(sheaf__gguf_keys *keys, const sheaf_config *c,
                                         const char *folder, const sheaf_events *events)
{
    const char *there = NULL;
    sheaf__listing l = { 0 };
    sheaf__stored_chat chat = { 0 };
    sheaf_status *st = sheaf__tokenizer_folder(&there, folder);
    if (st == NULL && c->byte_vocab) {
        st = sheaf__listing_bytes(&l, c->vocab,
                                  (int64_t[]){ c->bos, c->neos > 0 ? c->eos[0] : -1, c->pad });
        if (st == NULL)
            put_all(keys, &l, -1, c);
        sheaf__listing_release(&l);
        return st;
    }
    if (st == NULL && there == NULL) {
        sheaf_warn(events, "%s: no tokenizer: llama.cpp takes and gives token ids with this file",
                   folder);
        sheaf__gguf_put_text(keys, "tokenizer.ggml.model", "no_vocab");
        put_ids(keys, &(sheaf__listing){ .bos = -1, .eos = -1, .unk = -1, .pad = -1 }, c);
        return NULL;
    }
    TRY(st, sheaf__listing_read(&l, folder));
    TRY(st, sheaf_in(check(&l, c), "%s", folder));
    TRY(st, sheaf__stored_chat_read(&chat, folder));
    if (st == NULL) {
        int64_t eot = -1;
        settle_around(&l, &eot, c, folder, events);
        put_all(keys, &l, eot, c);
    }
    TRY(st, put_templates(keys, &chat));
    sheaf__listing_release(&l);
    sheaf__stored_chat_release(&chat);
    return st;
}
