/* pre_tokenize.c - the pre-tokenizers that go by classes of characters: Whitespace,
 * WhitespaceSplit, Punctuation, Digits, CharDelimiterSplit and FixedLength. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "characters.h"
#include "kinds.h"
#include "rewrite.h"
#include "split.h"
#include "unicode.h"

/* A character that `is` is true for is a match by itself. */
typedef bool is_match(const void *state, uint32_t c);

static void divide_each(sheaf__prepared *text, const sheaf__piece *piece, const void *state,
                        is_match *is, sheaf__behavior behavior)
{
    sheaf__dividing d = { text, piece, behavior, 0, 0, false, false };
    size_t before = piece->begin, n;
    for (size_t at = piece->begin; at < piece->end; at += n) {
        const uint32_t c = sheaf__unicode_take(text->now.bytes + at, piece->end - at, &n);
        if (!is(state, c))
            continue;
        if (before < at)
            sheaf__divide(&d, before, at, false);
        sheaf__divide(&d, at, at + n, true);
        before = at + n;
    }
    if (before < piece->end)
        sheaf__divide(&d, before, piece->end, false);
    sheaf__divide_end(&d);
}

/* ---- WhitespaceSplit, Whitespace ---- */

static bool is_white(const void *state, uint32_t c)
{
    (void)state;
    return sheaf__is_white(c);
}

static sheaf_status *split_white(const void *state, sheaf__prepared *text,
                                 const sheaf__piece *piece)
{
    divide_each(text, piece, state, is_white, SHEAF__REMOVED);
    return NULL;
}

static sheaf_status *run_white(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_white);
}

const sheaf__step_kind sheaf__whitespace_split = { "WhitespaceSplit", sheaf__open_plain, run_white,
                                                   sheaf__close_plain };

/* \w+|[^\w\s]+ */
static sheaf_status *split_words(const void *state, sheaf__prepared *text,
                                 const sheaf__piece *piece)
{
    enum { WHITE, WORD, OTHER } last = WHITE, now;
    size_t begin = piece->begin, n;
    (void)state;
    for (size_t at = piece->begin; at < piece->end; at += n) {
        const uint32_t c = sheaf__unicode_take(text->now.bytes + at, piece->end - at, &n);
        now = (sheaf__character_class(c) & SHEAF__RUST_WORD) != 0 ? WORD
              : sheaf__is_white(c)                                ? WHITE
                                                                  : OTHER;
        if (now == last)
            continue;
        if (last != WHITE)
            sheaf__prepared_put(text, piece, begin, at, -1);
        begin = at;
        last = now;
    }
    if (last != WHITE)
        sheaf__prepared_put(text, piece, begin, piece->end, -1);
    return NULL;
}

static sheaf_status *run_words(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_words);
}

const sheaf__step_kind sheaf__whitespace = { "Whitespace", sheaf__open_plain, run_words,
                                             sheaf__close_plain };

/* ---- Punctuation ---- */

static const sheaf__behavior behaviors[] = { SHEAF__REMOVED, SHEAF__ISOLATED,
                                             SHEAF__MERGED_WITH_PREVIOUS, SHEAF__MERGED_WITH_NEXT,
                                             SHEAF__CONTIGUOUS };

sheaf__behavior sheaf__json_behavior(sheaf_json_reader *r, const char *key)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const char *name = sheaf__json_string(r, key);
    for (int i = 0; name != NULL && i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return behaviors[i];
    sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key,
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
    return SHEAF__ISOLATED;
}

static bool is_punct(const void *state, uint32_t c)
{
    (void)state;
    return (sheaf__character_class(c) & SHEAF__PUNCT) != 0;
}

static sheaf_status *split_punct(const void *state, sheaf__prepared *text,
                                 const sheaf__piece *piece)
{
    divide_each(text, piece, NULL, is_punct, *(const sheaf__behavior *)state);
    return NULL;
}

sheaf_status *sheaf__split_punctuation(sheaf__prepared *text, sheaf__behavior behavior)
{
    return sheaf__prepared_split(text, &behavior, split_punct);
}

static sheaf_status *open_punct(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "behavior", NULL };
    (void)how;
    sheaf__only_keys(r, keys);
    const sheaf__behavior behavior = json_object_get(r->object, "behavior") == NULL
                                         ? SHEAF__ISOLATED
                                         : sheaf__json_behavior(r, "behavior");
    *state = (void *)&behaviors[behavior];
    return NULL;
}

static sheaf_status *run_punct(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_punct);
}

const sheaf__step_kind sheaf__punctuation = { "Punctuation", open_punct, run_punct,
                                              sheaf__close_plain };

/* ---- Digits ---- */

static bool is_numeric(const void *state, uint32_t c)
{
    (void)state;
    return (sheaf__character_class(c) & SHEAF__NUMERIC) != 0;
}

static sheaf_status *split_digits(const void *state, sheaf__prepared *text,
                                  const sheaf__piece *piece)
{
    divide_each(text, piece, NULL, is_numeric, *(const sheaf__behavior *)state);
    return NULL;
}

static sheaf_status *open_digits(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "individual_digits", NULL };
    (void)how;
    sheaf__only_keys(r, keys);
    *state =
        (void *)&behaviors[sheaf__json_bool_needed(r, "individual_digits") ? SHEAF__ISOLATED
                                                                           : SHEAF__CONTIGUOUS];
    return NULL;
}

static sheaf_status *run_digits(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_digits);
}

const sheaf__step_kind sheaf__digits = { "Digits", open_digits, run_digits, sheaf__close_plain };

/* ---- CharDelimiterSplit ---- */

uint32_t sheaf__json_character(sheaf_json_reader *r, const char *key)
{
    const char *text = sheaf__json_string(r, key);
    size_t n = 0;
    const uint32_t c =
        text == NULL || text[0] == '\0' ? 0 : sheaf__unicode_take(text, strlen(text), &n);
    if (text == NULL || n == 0 || text[n] != '\0')
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "one character");
    return c;
}

static bool is_delimiter(const void *state, uint32_t c)
{
    return c == *(const uint32_t *)state;
}

static sheaf_status *split_delimiter(const void *state, sheaf__prepared *text,
                                     const sheaf__piece *piece)
{
    divide_each(text, piece, state, is_delimiter, SHEAF__REMOVED);
    return NULL;
}

static sheaf_status *open_delimiter(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "delimiter", NULL };
    uint32_t *delimiter = malloc(sizeof *delimiter);
    (void)how;
    *state = delimiter;
    if (delimiter == NULL)
        return sheaf__no_memory("CharDelimiterSplit");
    sheaf__only_keys(r, keys);
    *delimiter = sheaf__json_character(r, "delimiter");
    return NULL;
}

static sheaf_status *run_delimiter(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_delimiter);
}

const sheaf__step_kind sheaf__delimiter_split = { "CharDelimiterSplit", open_delimiter,
                                                  run_delimiter, free };

/* ---- FixedLength ---- */

static sheaf_status *split_lengths(const void *state, sheaf__prepared *text,
                                   const sheaf__piece *piece)
{
    const int64_t length = *(const int64_t *)state;
    int64_t held = 0;
    size_t begin = piece->begin, n;
    for (size_t at = piece->begin; at < piece->end; at += n) {
        sheaf__unicode_take(text->now.bytes + at, piece->end - at, &n);
        if (++held == length) {
            sheaf__prepared_put(text, piece, begin, at + n, -1);
            begin = at + n;
            held = 0;
        }
    }
    sheaf__prepared_put(text, piece, begin, piece->end, -1);
    return NULL;
}

static sheaf_status *open_length(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "length", NULL };
    int64_t *length = malloc(sizeof *length);
    (void)how;
    *state = length;
    if (length == NULL)
        return sheaf__no_memory("FixedLength");
    sheaf__only_keys(r, keys);
    *length = sheaf__json_int(r, "length", 1, INT32_MAX, 5);
    return NULL;
}

static sheaf_status *run_length(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_lengths);
}

const sheaf__step_kind sheaf__fixed_length = { "FixedLength", open_length, run_length, free };
