/* pre_tokenize.c - the pre-tokenizers that go by classes of characters: WhitespaceSplit,
 * Punctuation and Digits. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
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

/* ---- WhitespaceSplit ---- */

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

const sheaf__step_kind sheaf__whitespace_split = { "WhitespaceSplit", sheaf__open_plain,
                                                   run_white };

/* ---- Punctuation ---- */

static const sheaf__behavior behaviors[] = { SHEAF__REMOVED, SHEAF__ISOLATED,
                                             SHEAF__MERGED_WITH_PREVIOUS, SHEAF__MERGED_WITH_NEXT,
                                             SHEAF__CONTIGUOUS };

static bool is_punct(const void *state, uint32_t c)
{
    (void)state;
    return sheaf__is_punctuation(c);
}

static sheaf_status *split_punct(const void *state, sheaf__prepared *text,
                                 const sheaf__piece *piece)
{
    divide_each(text, piece, NULL, is_punct, *(const sheaf__behavior *)state);
    return NULL;
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

const sheaf__step_kind sheaf__punctuation = { "Punctuation", open_punct, run_punct };

/* ---- Digits ---- */

static bool is_numeric(const void *state, uint32_t c)
{
    (void)state;
    return sheaf__is_numeric(c);
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

const sheaf__step_kind sheaf__digits = { "Digits", open_digits, run_digits };

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
