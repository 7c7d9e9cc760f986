/* jinja_case.c - characters and their case, as Python's str has them: whole mappings, in which a
 * letter may become several, and the sigma that ends a word.
 *
 * utf8proc has the mappings of letters. The lists below have characters that are cased, or continue
 * a word, contrary to their category (Other_Lowercase, Other_Uppercase, Word_Break). */
#include "inputs/chat/jinja_core.h"

#include <utf8proc.h>

#include "base/base.h"
#include "inputs/tokenizer/unicode.h"

static const sheaf__code_range other_cased[] = {
    { 0xaa, 0xaa },       { 0xba, 0xba },       { 0x2b0, 0x2b8 },     { 0x2c0, 0x2c1 },
    { 0x2e0, 0x2e4 },     { 0x345, 0x345 },     { 0x37a, 0x37a },     { 0x1d2c, 0x1d6a },
    { 0x1d78, 0x1d78 },   { 0x1d9b, 0x1dbf },   { 0x2071, 0x2071 },   { 0x207f, 0x207f },
    { 0x2090, 0x209c },   { 0x2160, 0x217f },   { 0x24b6, 0x24e9 },   { 0x2c7c, 0x2c7d },
    { 0xa69c, 0xa69d },   { 0xa770, 0xa770 },   { 0xa7f8, 0xa7f9 },   { 0xab5c, 0xab5f },
    { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107b0 }, { 0x107b2, 0x107ba },
    { 0x1f130, 0x1f149 }, { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
};
static const sheaf__code_range other_upper[] = {
    { 0x2160, 0x216f },   { 0x24b6, 0x24cf },   { 0x1f130, 0x1f149 },
    { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
};
/* Of MidLetter, MidNumLet and Single_Quote. */
static const sheaf__code_range inside_words[] = {
    { 0x27, 0x27 },     { 0x2e, 0x2e },     { 0x3a, 0x3a },     { 0xb7, 0xb7 },
    { 0x387, 0x387 },   { 0x55f, 0x55f },   { 0x5f4, 0x5f4 },   { 0x2018, 0x2019 },
    { 0x2024, 0x2024 }, { 0x2027, 0x2027 }, { 0xfe13, 0xfe13 }, { 0xfe52, 0xfe52 },
    { 0xfe55, 0xfe55 }, { 0xff07, 0xff07 }, { 0xff0e, 0xff0e }, { 0xff1a, 0xff1a },
};

sheaf__jcased sheaf__j_cased(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    if (k == UTF8PROC_CATEGORY_LT)
        return SHEAF__J_TITLED;
    if (k == UTF8PROC_CATEGORY_LU || SHEAF__IN_RANGES(other_upper, (uint32_t)c))
        return SHEAF__J_UPPER;
    return k == UTF8PROC_CATEGORY_LL || SHEAF__IN_RANGES(other_cased, (uint32_t)c)
               ? SHEAF__J_LOWER
               : SHEAF__J_UNCASED;
}
static bool is_cased(int32_t c)
{
    return sheaf__j_cased(c) != SHEAF__J_UNCASED;
}

/* Ignored by the search for a letter beside a sigma. */
static bool is_passed_over(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK ||
           SHEAF__IN_RANGES(inside_words, (uint32_t)c);
}

/* ---- texts ---- */

int32_t sheaf__j_next(sheaf__jtext text, size_t *at)
{
    utf8proc_int32_t c;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.at + *at,
                                                (utf8proc_ssize_t)(text.size - *at), &c);
    *at += n > 0 ? (size_t)n : 1;
    return n > 0 ? c : 0xfffd;
}
static int32_t before(sheaf__jtext text, size_t *at)
{
    do
        (*at)--;
    while (*at > 0 && ((unsigned char)text.at[*at] & 0xc0) == 0x80);
    size_t behind = *at;
    return sheaf__j_next(text, &behind);
}

/* Is the sigma at [begin, end) the last letter of a word, and not its first? */
static bool ends_word(sheaf__j *j, sheaf__jtext text, size_t begin, size_t end)
{
    int32_t c = 0;
    bool letter = false;
    while (begin > 0 && is_passed_over(c = before(text, &begin)))
        sheaf__j_work(j, 1);
    letter = c != 0 && !is_passed_over(c) && is_cased(c);
    for (c = 0; letter && end < text.size && is_passed_over(c = sheaf__j_next(text, &end));)
        sheaf__j_work(j, 1);
    return letter && (c == 0 || is_passed_over(c) || !is_cased(c));
}

static void put_one(sheaf__j *j, sheaf__jbuffer *b, int32_t c, const char *at)
{
    utf8proc_uint8_t bytes[4];
    sheaf__j_put_for(j, b, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes), at);
}

/* The letters that `c` becomes in upper case, or as the first of a title; their number. utf8proc
 * has one for one; where several stand for a small letter they are those of its folded form. In a
 * title the first of them that changes is large, and a iota behind it stands below. */
static int upper_of(int32_t to[4], int32_t c, bool title)
{
    int unused = 0;
    const int32_t one = title ? utf8proc_totitle(c) : utf8proc_toupper(c);
    const bool single = c < 0x80 || utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
                        (title && utf8proc_category(one) == UTF8PROC_CATEGORY_LT);
    const int n = single ? 1 : (int)utf8proc_decompose_char(c, to, 4, UTF8PROC_CASEFOLD, &unused);
    if (n == 1)
        to[0] = one;
    for (int i = 0, large = 0; n > 1 && i < n; i++) {
        enum { IOTA = 0x3b9, IOTA_BELOW = 0x345 };
        const int32_t folded = to[i];
        to[i] = !title || !large ? utf8proc_toupper(folded) : folded == IOTA ? IOTA_BELOW : folded;
        large |= to[i] != folded;
    }
    return n;
}

static void put_upper(sheaf__j *j, sheaf__jbuffer *b, int32_t c, bool title, const char *at)
{
    int32_t to[4];
    const int n = upper_of(to, c, title);
    for (int i = 0; i < n; i++)
        put_one(j, b, to[i], at);
}

/* The character at [begin, end) of a text. */
static void put_lower(sheaf__j *j, sheaf__jbuffer *b, sheaf__jtext text, size_t begin, size_t end)
{
    enum {
        CAPITAL_SIGMA = 0x3a3,
        SIGMA = 0x3c3,
        FINAL_SIGMA = 0x3c2,
        DOTTED_I = 0x130,
        DOT = 0x307
    };
    size_t behind = begin;
    const int32_t c = sheaf__j_next(text, &behind);
    if (c == CAPITAL_SIGMA)
        put_one(j, b, ends_word(j, text, begin, end) ? FINAL_SIGMA : SIGMA, text.at + begin);
    else
        put_one(j, b, c == DOTTED_I ? 'i' : utf8proc_tolower(c), text.at + begin);
    if (c == DOTTED_I)
        put_one(j, b, DOT, text.at + begin);
}

sheaf__jvalue sheaf__j_case(sheaf__j *j, sheaf__jtext text, char how)
{
    sheaf__jbuffer b = { 0 };
    bool first = true;
    sheaf__j_work(j, 1 + text.size / 4);
    for (size_t begin = 0, end = 0; begin < text.size; begin = end) {
        const int32_t c = sheaf__j_next(text, &end);
        if (how == 'u' || (first && how != 'l'))
            put_upper(j, &b, c, how != 'u', text.at + begin);
        else
            put_lower(j, &b, text, begin, end);
        first = how == 't' && !is_cased(c);
    }
    return sheaf__j_buffer_text(&b);
}
