/* tokenizer.c - a folder's tokenizer and chat template, as keys; see model.h.
 *
 * llama.cpp encodes byte-level tokenizers ("gpt2") by their merges and a pattern of its own, which
 * it knows by name, others ("llama") by the scores of sentencepiece. */
#include "base/base.h"
#include "dialects/gguf/model.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/listing.h"

static const float unused_score = -10000;

/* How a text is divided (sheaf__listing.splitting), and what llama.cpp calls it. */
static const struct {
    const char *splitting, *pre;
    bool bos; /* it puts bos before a text, where files do not say */
    bool kin; /* families have names of their own for it (sheaf__gguf_form.pre) */
} patterns[] = {
    { "llama3", "llama-bpe", .bos = true, .kin = true },
    { "qwen2", "qwen2" },
    { "gpt2", "gpt-2" },
    { "digits\ngpt2", "smollm" },
    { "tekken", "tekken", .bos = true },
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
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "--to gguf: tokenizer");
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

static void put_ids(sheaf__gguf_keys *keys, const sheaf__listing *l, const sheaf_config *c)
{
    put_id(keys, "tokenizer.ggml.bos_token_id", l->bos, c->bos);
    put_id(keys, "tokenizer.ggml.eos_token_id", l->eos, c->neos > 0 ? c->eos[0] : -1);
    put_id(keys, "tokenizer.ggml.unknown_token_id", l->unk, -1);
    put_id(keys, "tokenizer.ggml.padding_token_id", l->pad, c->pad);
}

static void put_all(sheaf__gguf_keys *keys, const sheaf__listing *l, const sheaf_config *c)
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
    const bool bos = at < 0 || (patterns[at].bos && own == NULL);
    sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_bos_token",
                         l->adds_bos >= 0 ? l->adds_bos == 1 : bos);
    if (!l->byte_level || l->adds_eos == 1)
        sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", l->adds_eos == 1);
    if (!l->byte_level)
        sheaf__gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", l->space_prefix != 0);
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
            put_all(keys, &l, c);
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
    if (st == NULL)
        put_all(keys, &l, c);
    if (st == NULL && chat.program != NULL)
        sheaf__gguf_put_text(keys, "tokenizer.chat_template", chat.program);
    sheaf__listing_release(&l);
    sheaf__stored_chat_release(&chat);
    return st;
}
