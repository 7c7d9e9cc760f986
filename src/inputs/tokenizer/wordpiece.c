/* wordpiece.c - the models WordPiece (Schuster and Nakajima 2012), which takes the longest token of
 * the word's beginning and goes on behind it, and WordLevel, whose tokens are whole words. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kinds.h"
#include "rewrite.h"
#include "unicode.h"
#include "work.h"

typedef struct wordpiece {
    const sheaf__vocab *vocab;
    int32_t unknown;             /* -1: the vocabulary has no such token */
    char *unknown_name;          /* owned */
    char *prefix;                /* of what does not begin a word; owned; NULL: WordLevel */
    size_t prefix_size, longest; /* longest: bytes of the longest token */
    int64_t most;                /* characters of a word that is looked at */
    uint64_t *may;               /* bits: of all tokens those at their hash are set */
    int may_shift;               /* of a hash, for its bit */
    uint64_t prefix_hash;
} wordpiece;

/* The hash of the bytes before and one more. */
static inline uint64_t hash_on(uint64_t hash, char byte)
{
    return (hash + (unsigned char)byte + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t hash_of(const char *bytes, size_t size)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < size; i++)
        hash = hash_on(hash, bytes[i]);
    return hash;
}

static inline bool may_be(const wordpiece *w, uint64_t hash)
{
    const uint64_t bit = hash >> w->may_shift;
    return (w->may[bit / 64] >> bit % 64 & 1) != 0;
}

static void close_wordpiece(void *state)
{
    wordpiece *w = state;
    if (w != NULL) {
        free(w->unknown_name);
        free(w->prefix);
        free(w->may);
    }
    free(w);
}

static char *needed_string(sheaf_json_reader *r, const char *key)
{
    const char *text = sheaf__json_string(r, key);
    if (text == NULL)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a string");
    return strdup(text == NULL ? "" : text);
}

/* Sixteen bits a token: what is none is told from it without a look at the vocabulary 15 of 16
 * times. */
static sheaf_status *mark_tokens(wordpiece *w)
{
    int bits = 16;
    while (((int64_t)1 << bits) < w->vocab->count * 16)
        bits++;
    w->may = calloc((size_t)1 << (bits - 6), sizeof *w->may);
    if (w->may == NULL)
        return sheaf__no_memory("WordPiece");
    w->may_shift = 64 - bits;
    for (int64_t i = 0; i < w->vocab->ids; i++) {
        size_t size = 0;
        const char *token = sheaf__vocab_token(w->vocab, i, &size);
        const uint64_t bit = hash_of(token, size) >> w->may_shift;
        if (token != NULL)
            w->may[bit / 64] |= UINT64_C(1) << bit % 64;
        w->longest = size > w->longest ? size : w->longest;
    }
    w->prefix_hash = w->prefix != NULL ? hash_of(w->prefix, w->prefix_size) : 0;
    return NULL;
}

static sheaf_status *read_vocab(wordpiece *w, sheaf__vocab *vocab, const sheaf__model_file *file)
{
    sheaf_json_scan scan = file->vocab;
    if (scan.begin == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "vocab"), "an object of tokens and ids");
    sheaf_status *st = sheaf__vocab_read(vocab, &scan);
    if (st != NULL)
        return st;
    w->vocab = vocab;
    w->unknown = sheaf__vocab_find(vocab, w->unknown_name, strlen(w->unknown_name));
    return mark_tokens(w);
}

static sheaf_status *open_wordpiece(void **state, sheaf__vocab *vocab,
                                    const sheaf__model_file *file)
{
    static const char *const keys[] = { "unk_token", "continuing_subword_prefix",
                                        "max_input_chars_per_word", NULL };
    wordpiece *w = calloc(1, sizeof *w);
    sheaf_json_reader *r = file->options;
    *state = w;
    if (w == NULL)
        return sheaf__no_memory("WordPiece");
    sheaf__only_keys(r, keys);
    w->unknown_name = needed_string(r, "unk_token");
    w->prefix = needed_string(r, "continuing_subword_prefix");
    w->most = sheaf__json_int(r, "max_input_chars_per_word", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    if (w->unknown_name == NULL || w->prefix == NULL)
        return sheaf__no_memory("WordPiece");
    w->prefix_size = strlen(w->prefix);
    return read_vocab(w, vocab, file);
}

static sheaf_status *open_wordlevel(void **state, sheaf__vocab *vocab,
                                    const sheaf__model_file *file)
{
    static const char *const keys[] = { "unk_token", NULL };
    wordpiece *w = calloc(1, sizeof *w);
    *state = w;
    if (w == NULL)
        return sheaf__no_memory("WordLevel");
    sheaf__only_keys(file->options, keys);
    w->unknown_name = needed_string(file->options, "unk_token");
    return w->unknown_name == NULL ? sheaf__no_memory("WordLevel") : read_vocab(w, vocab, file);
}

static sheaf_status *emit_unknown(const wordpiece *w, sheaf__work *work, size_t size)
{
    if (w->unknown < 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "a word that is no token"),
                              "a vocabulary with the unknown token '%s'", w->unknown_name);
    sheaf__emit(work, w->unknown, 0, size);
    return NULL;
}

static sheaf_status *encode_word(const void *state, sheaf__work *work, const char *bytes,
                                 size_t size, bool raw)
{
    const wordpiece *w = state;
    const int32_t id = sheaf__vocab_find(w->vocab, bytes, size);
    (void)raw;
    if (id < 0)
        return emit_unknown(w, work, size);
    sheaf__emit(work, id, 0, size);
    return NULL;
}

/* The longest token at `begin`, *end: where it ends; -1: none. `word` has room for the prefix
 * before its bytes, and what was taken of it is not needed any more. */
static int32_t longest_at(const wordpiece *w, char *word, size_t size, size_t begin, size_t *end)
{
    enum { AT_ONCE = 64 };
    uint64_t hash[AT_ONCE];
    const size_t ahead = begin > 0 ? w->prefix_size : 0;
    char *token = word + w->prefix_size + begin - ahead;
    size_t length = size - begin < w->longest ? size - begin : w->longest;
    memcpy(token, w->prefix, ahead);
    uint64_t h = ahead > 0 ? w->prefix_hash : 0;
    for (size_t i = 0; i < length && i < AT_ONCE; i++)
        hash[i] = h = hash_on(h, token[ahead + i]);
    for (; length > 0; length--) {
        if (length <= AT_ONCE && !may_be(w, hash[length - 1]))
            continue;
        const int32_t id = sheaf__vocab_find(w->vocab, token, ahead + length);
        *end = begin + length;
        if (id >= 0)
            return id;
    }
    return -1;
}

static int64_t characters(const char *bytes, size_t size)
{
    int64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return n;
}

typedef struct found {
    int32_t id;
    size_t end;
} found;

static sheaf_status *encode(const void *state, sheaf__work *work, const char *bytes, size_t size,
                            bool raw)
{
    const wordpiece *w = state;
    int64_t n = 0;
    (void)raw;
    if (characters(bytes, size) > w->most)
        return emit_unknown(w, work, size);
    found *list = sheaf__work_scratch(work, size * sizeof *list + w->prefix_size + size);
    if (list == NULL)
        return sheaf__no_memory("a word");
    char *word = (char *)(list + size);
    memcpy(word + w->prefix_size, bytes, size);
    for (size_t at = 0; at < size; at = list[n++].end) {
        list[n].id = longest_at(w, word, size, at, &list[n].end);
        if (list[n].id < 0)
            return emit_unknown(w, work, size);
    }
    for (int64_t i = 0; i < n; i++)
        sheaf__emit(work, list[i].id, i > 0 ? list[i - 1].end : 0, list[i].end);
    return NULL;
}

const sheaf__model_kind sheaf__wordpiece = {
    .name = "WordPiece", .open = open_wordpiece, .encode = encode, .close = close_wordpiece
};
const sheaf__model_kind sheaf__wordlevel = {
    .name = "WordLevel", .open = open_wordlevel, .encode = encode_word, .close = close_wordpiece
};
