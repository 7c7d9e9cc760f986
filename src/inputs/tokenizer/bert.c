/* bert.c - BertNormalizer and BertPreTokenizer. */
#include <stdlib.h>

#include "base/status.h"
#include "characters.h"
#include "kinds.h"
#include "rewrite.h"
#include "split.h"
#include "unicode.h"

typedef struct bert {
    bool clean, chinese, accents, lower;
} bert;

static sheaf_status *open_bert(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "clean_text", "handle_chinese_chars", "strip_accents",
                                        "lowercase", NULL };
    bert *b = calloc(1, sizeof *b);
    (void)how;
    *state = b;
    if (b == NULL)
        return sheaf__no_memory("BertNormalizer");
    sheaf__only_keys(r, keys);
    b->clean = sheaf__json_bool_needed(r, "clean_text");
    b->chinese = sheaf__json_bool_needed(r, "handle_chinese_chars");
    b->lower = sheaf__json_bool_needed(r, "lowercase");
    b->accents = sheaf__json_bool(r, "strip_accents", b->lower);
    return NULL;
}

static int clean(uint32_t to[2], uint32_t c)
{
    to[0] = c;
    if (c == 0 || c == 0xfffd ||
        ((c < ' ' || c > '~') && (sheaf__character_class(c) & SHEAF__OTHER) != 0))
        return 0;
    to[0] = sheaf__is_white(c) ? ' ' : c;
    return 1;
}

static int without_nonspacing(uint32_t to[2], uint32_t c)
{
    to[0] = c;
    return c >= 0x300 && (sheaf__character_class(c) & SHEAF__NONSPACING) != 0 ? 0 : 1;
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static sheaf_status *rewrite_clean(const void *state, sheaf__edit *e)
{
    (void)state;
    sheaf__rewrite_each(e, clean);
    return NULL;
}

static sheaf_status *rewrite_chinese(const void *state, sheaf__edit *e)
{
    size_t n;
    (void)state;
    for (size_t at = 0; at < e->size; at += n)
        if (is_chinese(sheaf__unicode_take(e->bytes + at, e->size - at, &n))) {
            sheaf__edit_keep(e, at - e->at);
            sheaf__edit_replace(e, n, " ", 1);
            sheaf__edit_insert(e, e->bytes + at, n);
            sheaf__edit_insert(e, " ", 1);
        }
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

static sheaf_status *rewrite_accents(const void *state, sheaf__edit *e)
{
    (void)state;
    sheaf__rewrite_each(e, without_nonspacing);
    return NULL;
}

static sheaf_status *run_bert(const void *state, sheaf__prepared *text)
{
    const bert *b = state;
    sheaf_status *st = NULL;
    if (b->clean)
        st = sheaf__prepared_rewrite(text, NULL, rewrite_clean);
    if (st == NULL && b->chinese)
        st = sheaf__prepared_rewrite(text, NULL, rewrite_chinese);
    if (st == NULL && b->accents)
        st = sheaf__normalize_nfd(text);
    if (st == NULL && b->accents)
        st = sheaf__prepared_rewrite(text, NULL, rewrite_accents);
    return st != NULL || !b->lower ? st : sheaf__lowercase.run(NULL, text);
}

const sheaf__step_kind sheaf__bert_normalizer = { "BertNormalizer", open_bert, run_bert, free };

bool sheaf__takes_accents(const sheaf__step *step)
{
    return step->kind == &sheaf__bert_normalizer && ((const bert *)step->state)->accents;
}

/* ---- the pre-tokenizer ---- */

static sheaf_status *run_split(const void *state, sheaf__prepared *text)
{
    sheaf_status *st = sheaf__whitespace_split.run(state, text);
    return st == NULL ? sheaf__split_punctuation(text, SHEAF__ISOLATED) : st;
}

const sheaf__step_kind sheaf__bert_splitting = { "BertPreTokenizer", sheaf__open_plain, run_split,
                                                 sheaf__close_plain };
