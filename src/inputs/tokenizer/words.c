/* words.c - texts whose words know nothing of each other: see pieces.h. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/status.h"
#include "characters.h"
#include "kinds.h"
#include "pieces.h"
#include "unicode.h"

/* ---- which tokenizers do ---- */

static bool is_one_of(const sheaf__step *step, const sheaf__step_kind *const *kinds)
{
    for (; *kinds != NULL; kinds++)
        if (step->kind == *kinds)
            return true;
    return false;
}

/* These keep tabs, line ends and blanks white, and change nothing over them. */
static const sheaf__step_kind *const by_words[] = { &sheaf__bert_normalizer,
                                                    &sheaf__lowercase,
                                                    &sheaf__strip_accents,
                                                    &sheaf__nmt,
                                                    &sheaf__nfc,
                                                    &sheaf__nfd,
                                                    &sheaf__nfkc,
                                                    &sheaf__nfkd,
                                                    NULL };
/* These join no sign of ASCII with a mark behind it, as NFC does: '<' and U+0338 are U+226E. */
static const sheaf__step_kind *const by_signs[] = { &sheaf__bert_normalizer,
                                                    &sheaf__lowercase,
                                                    &sheaf__strip_accents,
                                                    &sheaf__nfd,
                                                    &sheaf__nfkd,
                                                    NULL };
/* These end pieces at what is white, and leave it out. */
static const sheaf__step_kind *const at_blanks[] = { &sheaf__bert_splitting, &sheaf__whitespace,
                                                     &sheaf__whitespace_split, NULL };

/* Normal forms put marks in order, which is seen only of those that are not taken away. */
static void find_by_character(sheaf__words *words, const sheaf__steps *n)
{
    bool stays = false; /* marks stay that NFD or NFKD has made or put in order */
    for (int64_t i = 0; i < n->count; i++) {
        const sheaf__step *step = &n->step[i];
        const bool form = step->kind == &sheaf__nfd || step->kind == &sheaf__nfkd;
        words->orders = words->orders || form || sheaf__takes_accents(step);
        stays = (stays || form) && step->kind != &sheaf__strip_accents;
    }
    words->by_character = !stays;
}

void sheaf__words_find(sheaf__tokenizer *t)
{
    const sheaf__steps *n = &t->normalizer, *p = &t->pre_tokenizer;
    bool signs = p->count > 0 && p->step[0].kind == &sheaf__bert_splitting;
    if (p->count == 0 || !is_one_of(&p->step[0], at_blanks) || t->needs_origin ||
        t->added.normalized.nodes > 0)
        return;
    for (int64_t i = 0; i < n->count; i++) {
        if (!is_one_of(&n->step[i], by_words))
            return;
        signs = signs && is_one_of(&n->step[i], by_signs);
    }
    t->words.on = true;
    if (signs && p->count == 1)
        find_by_character(&t->words, n);
    for (int c = 0; c < 128; c++)
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
            t->words.byte[c] = SHEAF__BLANK;
        else if (signs && c > ' ' && (sheaf__character_class((uint32_t)c) & SHEAF__PUNCT) != 0)
            t->words.byte[c] = SHEAF__SIGN;
}

/* ---- how ---- */

/* The word that is in `w`, through all steps. */
static sheaf_status *by_steps(const sheaf__tokenizer *t, sheaf__work *w, bool raw)
{
    sheaf__prepared *text = &w->prepared;
    (void)raw;
    sheaf__prepared_begin(text, w->bytes, w->size, (uint32_t)w->origin, false);
    sheaf_status *st = sheaf__steps_run(&t->normalizer, t->normalizer.count, text);
    TRY(st, sheaf__steps_run(&t->pre_tokenizer, t->pre_tokenizer.count, text));
    return st != NULL ? st : sheaf__encode_pieces(t, w);
}

/* ---- by characters ---- */

enum {
    FORM_IN_WORD,
    FORM_BLANK,
    FORM_ALONE, /* a sign, or a character that has blanks put around it: a piece */
    FORM_OTHER, /* the word is to go through the steps */
};

static uint8_t kind_of(const sheaf__words *words, const char *bytes, size_t *begin, size_t *end)
{
    int blanks[2] = { 0, 0 }, signs = 0, inner = 0; /* blanks before the others, and behind */
    for (size_t at = *begin, size = *end, n; at < size; at += n) {
        const uint32_t c = sheaf__unicode_take(bytes + at, size - at, &n);
        const bool blank = sheaf__is_white(c);
        if (words->orders && utf8proc_get_property((utf8proc_int32_t)c)->combining_class != 0)
            return FORM_OTHER;
        if (!blank && blanks[1] > 0)
            return FORM_OTHER;
        blanks[signs + inner > 0] += blank;
        signs += !blank && (sheaf__character_class(c) & SHEAF__PUNCT) != 0;
        inner += !blank && (sheaf__character_class(c) & SHEAF__PUNCT) == 0;
        if (blank && signs + inner == 0)
            *begin = at + n;
        else if (!blank)
            *end = at + n;
    }
    if (signs + inner == 0)
        return blanks[0] > 0 ? FORM_BLANK : FORM_IN_WORD;
    if (signs == 0 && blanks[0] == 0 && blanks[1] == 0)
        return FORM_IN_WORD;
    return (signs == 1 && inner == 0) || (signs == 0 && blanks[0] > 0 && blanks[1] > 0)
               ? FORM_ALONE
               : FORM_OTHER;
}

/* Of `code`, which is `size` bytes: by the steps, the first time. */
static sheaf_status *make_form(sheaf__character_form *f, const sheaf__tokenizer *t, sheaf__work *w,
                               uint32_t code, const char *bytes, size_t size)
{
    sheaf__prepared *text = &w->prepared;
    sheaf__prepared_begin(text, bytes, size, 0, false);
    sheaf_status *st = sheaf__steps_run(&t->normalizer, t->normalizer.count, text);
    if (st != NULL)
        return st;
    size_t begin = 0, end = text->now.size;
    *f = (sheaf__character_form){ .code_1 = code + 1 };
    f->kind = kind_of(&t->words, text->now.bytes, &begin, &end);
    if (end - begin > sizeof f->bytes)
        f->kind = FORM_OTHER;
    if (f->kind != FORM_OTHER) {
        f->size = (uint8_t)(end - begin);
        memcpy(f->bytes, text->now.bytes + begin, end - begin);
    }
    return NULL;
}

static sheaf_status *encode_part(const sheaf__tokenizer *t, sheaf__work *w, const char *bytes,
                                 size_t size)
{
    return size == 0 ? NULL : t->model_kind->encode(t->model, w, bytes, size, false);
}

/* The word that is in `w`; `to` has room for what becomes of it. */
static sheaf_status *by_forms(const sheaf__tokenizer *t, sheaf__work *w, char *to)
{
    const int64_t first = w->out.count;
    const char *bytes = w->bytes;
    const size_t size = w->size;
    sheaf_status *st = NULL;
    size_t done = 0, put = 0; /* of `to`: what the model has got, and what is there */
    w->emitted = 0;
    for (size_t at = 0, n; st == NULL && at < size; at += n) {
        const uint32_t c = sheaf__unicode_take(bytes + at, size - at, &n);
        sheaf__character_form *f = &w->forms[(c ^ c >> 12) % SHEAF__CHARACTER_FORMS];
        if (f->code_1 != c + 1)
            st = make_form(f, t, w, c, bytes + at, n);
        if (st != NULL)
            return st;
        if (f->kind == FORM_OTHER) { /* all of it anew */
            w->out.count = first;
            return by_steps(t, w, false);
        }
        if (f->kind != FORM_IN_WORD) {
            st = encode_part(t, w, to + done, put - done);
            done = put;
        }
        memcpy(to + put, f->bytes, sizeof f->bytes);
        put += f->size;
        if (f->kind == FORM_ALONE && st == NULL) {
            st = encode_part(t, w, to + done, put - done);
            done = put;
        }
    }
    return st != NULL ? st : encode_part(t, w, to + done, put - done);
}

static sheaf_status *by_characters(const sheaf__tokenizer *t, sheaf__work *w, bool raw)
{
    enum { EACH = sizeof w->forms->bytes, MOST = 1 << 16 };
    char few[(SHEAF__WORD_BYTES + 1) * EACH];
    if (w->forms == NULL)
        w->forms = calloc(SHEAF__CHARACTER_FORMS, sizeof *w->forms);
    if (w->forms == NULL)
        return sheaf__no_memory("a word");
    if (w->size <= SHEAF__WORD_BYTES)
        return by_forms(t, w, few);
    if (w->size > MOST)
        return by_steps(t, w, raw);
    if (!SHEAF_GROW(&w->barred, &w->barred_size, ((int64_t)w->size + 1) * EACH))
        return sheaf__no_memory("a word");
    return by_forms(t, w, w->barred);
}

sheaf_status *sheaf__encode_words(const sheaf__tokenizer *t, sheaf__work *w, const char *bytes,
                                  size_t size, size_t readable, size_t begin)
{
    const uint8_t *byte = t->words.byte;
    sheaf_status *st = NULL;
    sheaf__queue q;
    sheaf__queue_begin(&q, t, w, false);
    q.encode = t->words.by_character ? by_characters : by_steps;
    q.mark = SHEAF__WORD_MARK;
    for (size_t at = 0, end; st == NULL && at < size; at = end) {
        end = at + 1;
        const uint8_t what = byte[(unsigned char)bytes[at]];
        if (what == SHEAF__BLANK)
            continue;
        while (what == SHEAF__IN_WORD && end < size &&
               byte[(unsigned char)bytes[end]] == SHEAF__IN_WORD)
            end++;
        st = sheaf__queue_put(&q, bytes + at, end - at, size + readable - at, begin + at, NULL);
    }
    return st != NULL ? st : sheaf__queue_end(&q);
}
