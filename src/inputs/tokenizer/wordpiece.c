/* wordpiece.c - the models WordPiece (Schuster and Nakajima 2012), which takes the longest token of
 * the word's beginning and goes on behind it, and WordLevel, whose tokens are whole words. */
#include <stdlib.h>
#include <string.h>

#include "base/no_memory.h"
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
} wordpiece;

static void close_wordpiece(void *state)
{
    wordpiece *w = state;
    if (w != NULL) {
        free(w->unknown_name);
        free(w->prefix);
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
    for (int64_t i = 0; i < vocab->ids; i++) {
        size_t size = 0;
        if (sheaf__vocab_token(vocab, i, &size) != NULL && size > w->longest)
            w->longest = size;
    }
    return NULL;
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

/* The longest token at `begin`, *end: where it ends; -1: none. `buffer` has room for the prefix and
 * the longest token. */
static int32_t longest_at(const wordpiece *w, char *buffer, const char *bytes, size_t size,
                          size_t begin, size_t *end)
{
    const size_t ahead = begin > 0 ? w->prefix_size : 0;
    size_t length = size - begin < w->longest ? size - begin : w->longest;
    memcpy(buffer, w->prefix, ahead);
    memcpy(buffer + ahead, bytes + begin, length);
    while (length > 0) {
        /* not within a character */
        if (begin + length == size || ((unsigned char)bytes[begin + length] & 0xc0) != 0x80) {
            const int32_t id = sheaf__vocab_find(w->vocab, buffer, ahead + length);
            *end = begin + length;
            if (id >= 0)
                return id;
        }
        length--;
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
    found *list = sheaf__work_scratch(work, size * sizeof *list + w->prefix_size + w->longest);
    if (list == NULL)
        return sheaf__no_memory("a word");
    char *buffer = (char *)(list + size);
    for (size_t at = 0; at < size; at = list[n++].end) {
        list[n].id = longest_at(w, buffer, bytes, size, at, &list[n].end);
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
