/* tokenizer_rows.c - how many tokens a tokenizer's files know: one more than the greatest number of
 * a token. See model.h.
 *
 *   tokenizer.json     model.vocab, an object of numbers (BPE, WordPiece) or a list (Unigram);
 *                      added_tokens, with "id"
 *   tokenizer.model    a protocol buffer of sentencepiece, whose field 1 is one token each
 *   added_tokens.json  an object of numbers, beside either */
#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "inputs/tokenizer/spm_file.h"

enum { MOST_TOKENS = 1 << 24, MOST_MODEL = 64 << 20 };

static void take_number(int64_t *rows, const json_t *number)
{
    const int64_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    if (id >= *rows && id < MOST_TOKENS)
        *rows = id + 1;
}

static void take_object(int64_t *rows, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) take_number(rows, value);
}

static void take_tokenizer(int64_t *rows, const json_t *root)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    if (json_is_array(vocab) && json_array_size(vocab) < MOST_TOKENS)
        *rows = (int64_t)json_array_size(vocab);
    take_object(rows, vocab);
    for (size_t i = 0; *rows > 0 && i < json_array_size(added); i++)
        take_number(rows, json_object_get(json_array_get(added, i), "id"));
}

static sheaf_status *rows_in(int64_t *rows, char path[SHEAF_PATH_SIZE], const char *dir)
{
    char added[SHEAF_PATH_SIZE], *bytes = NULL;
    size_t size = 0;
    json_t *root = NULL;
    sheaf_status *st = NULL;
    *rows = 0;
    if (sheaf__has_file(dir, "tokenizer.json")) {
        st = sheaf__json_load(&root, sheaf__path_in(path, dir, "tokenizer.json"));
        take_tokenizer(rows, root);
    } else if (sheaf__has_file(dir, "tokenizer.model")) {
        sheaf__path_in(path, dir, "tokenizer.model");
        st = sheaf__file_read_all(&bytes, &size, path, MOST_MODEL);
        const int64_t pieces = bytes != NULL ? sheaf__spm_count(bytes, size) : 0;
        *rows = pieces < MOST_TOKENS ? pieces : 0;
    }
    json_decref(root);
    root = NULL;
    if (*rows > 0 && sheaf__has_file(dir, "added_tokens.json"))
        TRY(st, sheaf__json_load(&root, sheaf__path_in(added, dir, "added_tokens.json")));
    take_object(rows, root);
    json_decref(root);
    free(bytes);
    return st;
}

sheaf_status *sheaf__tokenizer_rows(int64_t *rows, char path[SHEAF_PATH_SIZE], const char *dir)
{
    sheaf_status *st = rows_in(rows, path, dir);
    if (st != NULL || *rows == 0)
        *rows = -1; /* missing or unreadable: it is no part of the checkpoint */
    return sheaf__only_memory(st);
}
