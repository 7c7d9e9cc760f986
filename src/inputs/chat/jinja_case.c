/* jinja_case.c - upper and lower case, as Python's str has them: whole mappings, in which a letter
 * may become several, and the sigma that ends a word.
 *
 * utf8proc has the mappings of one letter to one. What becomes several letters is listed here
 * (SpecialCasing.txt of Unicode, without conditions), and so are the characters that have a case,
 * or that a word goes on behind, by no category of theirs (Other_Lowercase, Other_Uppercase,
 * Word_Break). */
#include "inputs/chat/jinja_core.h"

#include <string.h>
#include <utf8proc.h>

#include "base/text.h"

/* ---- what a letter becomes ---- */

typedef struct special {
    int32_t from, upper[3], title[3];
} special;

static const special specials[] = {
    { 0xdf, { 0x53, 0x53 }, { 0x53, 0x73 } },
    { 0x149, { 0x2bc, 0x4e }, { 0x2bc, 0x4e } },
    { 0x1f0, { 0x4a, 0x30c }, { 0x4a, 0x30c } },
    { 0x390, { 0x399, 0x308, 0x301 }, { 0x399, 0x308, 0x301 } },
    { 0x3b0, { 0x3a5, 0x308, 0x301 }, { 0x3a5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x552 }, { 0x535, 0x582 } },
    { 0x1e96, { 0x48, 0x331 }, { 0x48, 0x331 } },
    { 0x1e97, { 0x54, 0x308 }, { 0x54, 0x308 } },
    { 0x1e98, { 0x57, 0x30a }, { 0x57, 0x30a } },
    { 0x1e99, { 0x59, 0x30a }, { 0x59, 0x30a } },
    { 0x1e9a, { 0x41, 0x2be }, { 0x41, 0x2be } },
    { 0x1f50, { 0x3a5, 0x313 }, { 0x3a5, 0x313 } },
    { 0x1f52, { 0x3a5, 0x313, 0x300 }, { 0x3a5, 0x313, 0x300 } },
    { 0x1f54, { 0x3a5, 0x313, 0x301 }, { 0x3a5, 0x313, 0x301 } },
    { 0x1f56, { 0x3a5, 0x313, 0x342 }, { 0x3a5, 0x313, 0x342 } },
    { 0x1f80, { 0x1f08, 0x399 }, { 0x1f88 } },
    { 0x1f81, { 0x1f09, 0x399 }, { 0x1f89 } },
    { 0x1f82, { 0x1f0a, 0x399 }, { 0x1f8a } },
    { 0x1f83, { 0x1f0b, 0x399 }, { 0x1f8b } },
    { 0x1f84, { 0x1f0c, 0x399 }, { 0x1f8c } },
    { 0x1f85, { 0x1f0d, 0x399 }, { 0x1f8d } },
    { 0x1f86, { 0x1f0e, 0x399 }, { 0x1f8e } },
    { 0x1f87, { 0x1f0f, 0x399 }, { 0x1f8f } },
    { 0x1f88, { 0x1f08, 0x399 }, { 0x1f88 } },
    { 0x1f89, { 0x1f09, 0x399 }, { 0x1f89 } },
    { 0x1f8a, { 0x1f0a, 0x399 }, { 0x1f8a } },
    { 0x1f8b, { 0x1f0b, 0x399 }, { 0x1f8b } },
    { 0x1f8c, { 0x1f0c, 0x399 }, { 0x1f8c } },
    { 0x1f8d, { 0x1f0d, 0x399 }, { 0x1f8d } },
    { 0x1f8e, { 0x1f0e, 0x399 }, { 0x1f8e } },
    { 0x1f8f, { 0x1f0f, 0x399 }, { 0x1f8f } },
    { 0x1f90, { 0x1f28, 0x399 }, { 0x1f98 } },
    { 0x1f91, { 0x1f29, 0x399 }, { 0x1f99 } },
    { 0x1f92, { 0x1f2a, 0x399 }, { 0x1f9a } },
    { 0x1f93, { 0x1f2b, 0x399 }, { 0x1f9b } },
    { 0x1f94, { 0x1f2c, 0x399 }, { 0x1f9c } },
    { 0x1f95, { 0x1f2d, 0x399 }, { 0x1f9d } },
    { 0x1f96, { 0x1f2e, 0x399 }, { 0x1f9e } },
    { 0x1f97, { 0x1f2f, 0x399 }, { 0x1f9f } },
    { 0x1f98, { 0x1f28, 0x399 }, { 0x1f98 } },
    { 0x1f99, { 0x1f29, 0x399 }, { 0x1f99 } },
    { 0x1f9a, { 0x1f2a, 0x399 }, { 0x1f9a } },
    { 0x1f9b, { 0x1f2b, 0x399 }, { 0x1f9b } },
    { 0x1f9c, { 0x1f2c, 0x399 }, { 0x1f9c } },
    { 0x1f9d, { 0x1f2d, 0x399 }, { 0x1f9d } },
    { 0x1f9e, { 0x1f2e, 0x399 }, { 0x1f9e } },
    { 0x1f9f, { 0x1f2f, 0x399 }, { 0x1f9f } },
    { 0x1fa0, { 0x1f68, 0x399 }, { 0x1fa8 } },
    { 0x1fa1, { 0x1f69, 0x399 }, { 0x1fa9 } },
    { 0x1fa2, { 0x1f6a, 0x399 }, { 0x1faa } },
    { 0x1fa3, { 0x1f6b, 0x399 }, { 0x1fab } },
    { 0x1fa4, { 0x1f6c, 0x399 }, { 0x1fac } },
    { 0x1fa5, { 0x1f6d, 0x399 }, { 0x1fad } },
    { 0x1fa6, { 0x1f6e, 0x399 }, { 0x1fae } },
    { 0x1fa7, { 0x1f6f, 0x399 }, { 0x1faf } },
    { 0x1fa8, { 0x1f68, 0x399 }, { 0x1fa8 } },
    { 0x1fa9, { 0x1f69, 0x399 }, { 0x1fa9 } },
    { 0x1faa, { 0x1f6a, 0x399 }, { 0x1faa } },
    { 0x1fab, { 0x1f6b, 0x399 }, { 0x1fab } },
    { 0x1fac, { 0x1f6c, 0x399 }, { 0x1fac } },
    { 0x1fad, { 0x1f6d, 0x399 }, { 0x1fad } },
    { 0x1fae, { 0x1f6e, 0x399 }, { 0x1fae } },
    { 0x1faf, { 0x1f6f, 0x399 }, { 0x1faf } },
    { 0x1fb2, { 0x1fba, 0x399 }, { 0x1fba, 0x345 } },
    { 0x1fb3, { 0x391, 0x399 }, { 0x1fbc } },
    { 0x1fb4, { 0x386, 0x399 }, { 0x386, 0x345 } },
    { 0x1fb6, { 0x391, 0x342 }, { 0x391, 0x342 } },
    { 0x1fb7, { 0x391, 0x342, 0x399 }, { 0x391, 0x342, 0x345 } },
    { 0x1fbc, { 0x391, 0x399 }, { 0x1fbc } },
    { 0x1fc2, { 0x1fca, 0x399 }, { 0x1fca, 0x345 } },
    { 0x1fc3, { 0x397, 0x399 }, { 0x1fcc } },
    { 0x1fc4, { 0x389, 0x399 }, { 0x389, 0x345 } },
    { 0x1fc6, { 0x397, 0x342 }, { 0x397, 0x342 } },
    { 0x1fc7, { 0x397, 0x342, 0x399 }, { 0x397, 0x342, 0x345 } },
    { 0x1fcc, { 0x397, 0x399 }, { 0x1fcc } },
    { 0x1fd2, { 0x399, 0x308, 0x300 }, { 0x399, 0x308, 0x300 } },
    { 0x1fd3, { 0x399, 0x308, 0x301 }, { 0x399, 0x308, 0x301 } },
    { 0x1fd6, { 0x399, 0x342 }, { 0x399, 0x342 } },
    { 0x1fd7, { 0x399, 0x308, 0x342 }, { 0x399, 0x308, 0x342 } },
    { 0x1fe2, { 0x3a5, 0x308, 0x300 }, { 0x3a5, 0x308, 0x300 } },
    { 0x1fe3, { 0x3a5, 0x308, 0x301 }, { 0x3a5, 0x308, 0x301 } },
    { 0x1fe4, { 0x3a1, 0x313 }, { 0x3a1, 0x313 } },
    { 0x1fe6, { 0x3a5, 0x342 }, { 0x3a5, 0x342 } },
    { 0x1fe7, { 0x3a5, 0x308, 0x342 }, { 0x3a5, 0x308, 0x342 } },
    { 0x1ff2, { 0x1ffa, 0x399 }, { 0x1ffa, 0x345 } },
    { 0x1ff3, { 0x3a9, 0x399 }, { 0x1ffc } },
    { 0x1ff4, { 0x38f, 0x399 }, { 0x38f, 0x345 } },
    { 0x1ff6, { 0x3a9, 0x342 }, { 0x3a9, 0x342 } },
    { 0x1ff7, { 0x3a9, 0x342, 0x399 }, { 0x3a9, 0x342, 0x345 } },
    { 0x1ffc, { 0x3a9, 0x399 }, { 0x1ffc } },
    { 0xfb00, { 0x46, 0x46 }, { 0x46, 0x66 } },
    { 0xfb01, { 0x46, 0x49 }, { 0x46, 0x69 } },
    { 0xfb02, { 0x46, 0x4c }, { 0x46, 0x6c } },
    { 0xfb03, { 0x46, 0x46, 0x49 }, { 0x46, 0x66, 0x69 } },
    { 0xfb04, { 0x46, 0x46, 0x4c }, { 0x46, 0x66, 0x6c } },
    { 0xfb05, { 0x53, 0x54 }, { 0x53, 0x74 } },
    { 0xfb06, { 0x53, 0x54 }, { 0x53, 0x74 } },
    { 0xfb13, { 0x544, 0x546 }, { 0x544, 0x576 } },
    { 0xfb14, { 0x544, 0x535 }, { 0x544, 0x565 } },
    { 0xfb15, { 0x544, 0x53b }, { 0x544, 0x56b } },
    { 0xfb16, { 0x54e, 0x546 }, { 0x54e, 0x576 } },
    { 0xfb17, { 0x544, 0x53d }, { 0x544, 0x56d } },
};

typedef struct range {
    int32_t begin, end; /* both are in it */
} range;

static const range other_lower[] = {
    { 0xaa, 0xaa },       { 0xba, 0xba },       { 0x2b0, 0x2b8 },     { 0x2c0, 0x2c1 },
    { 0x2e0, 0x2e4 },     { 0x345, 0x345 },     { 0x37a, 0x37a },     { 0x1d2c, 0x1d6a },
    { 0x1d78, 0x1d78 },   { 0x1d9b, 0x1dbf },   { 0x2071, 0x2071 },   { 0x207f, 0x207f },
    { 0x2090, 0x209c },   { 0x2170, 0x217f },   { 0x24d0, 0x24e9 },   { 0x2c7c, 0x2c7d },
    { 0xa69c, 0xa69d },   { 0xa770, 0xa770 },   { 0xa7f8, 0xa7f9 },   { 0xab5c, 0xab5f },
    { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107b0 }, { 0x107b2, 0x107ba },
};
static const range other_upper[] = { { 0x2160, 0x216f },
                                     { 0x24b6, 0x24cf },
                                     { 0x1f130, 0x1f149 },
                                     { 0x1f150, 0x1f169 },
                                     { 0x1f170, 0x1f189 } };
/* Of MidLetter, MidNumLet and Single_Quote. */
static const range inside_words[] = {
    { 0x27, 0x27 },     { 0x2e, 0x2e },     { 0x3a, 0x3a },     { 0xb7, 0xb7 },
    { 0x387, 0x387 },   { 0x55f, 0x55f },   { 0x5f4, 0x5f4 },   { 0x2018, 0x2019 },
    { 0x2024, 0x2024 }, { 0x2027, 0x2027 }, { 0xfe13, 0xfe13 }, { 0xfe52, 0xfe52 },
    { 0xfe55, 0xfe55 }, { 0xff07, 0xff07 }, { 0xff0e, 0xff0e }, { 0xff1a, 0xff1a },
};

#define AMONG(c, list) among(c, list, sizeof(list) / sizeof *(list))
static bool among(int32_t c, const range *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= list[i].begin && c <= list[i].end)
            return true;
    return false;
}

static bool is_lower(int32_t c)
{
    return c < 0x80 ? c >= 'a' && c <= 'z'
                    : utf8proc_category(c) == UTF8PROC_CATEGORY_LL || AMONG(c, other_lower);
}
static bool is_upper(int32_t c)
{
    return c < 0x80 ? c >= 'A' && c <= 'Z'
                    : utf8proc_category(c) == UTF8PROC_CATEGORY_LU || AMONG(c, other_upper);
}
static bool is_cased(int32_t c)
{
    return is_lower(c) || is_upper(c) ||
           (c >= 0x80 && utf8proc_category(c) == UTF8PROC_CATEGORY_LT);
}

/* Passed over by the search for a letter beside a sigma. */
static bool is_passed_over(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || AMONG(c, inside_words);
}

/* ---- texts ---- */

/* The character that begins at text.at[at], and behind it. */
static int32_t next_of(sheaf__jtext text, size_t *at)
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
    return next_of(text, &behind);
}

/* Is the sigma at [begin, end) the last letter of a word, and not its first? */
static bool ends_word(sheaf__j *j, sheaf__jtext text, size_t begin, size_t end)
{
    int32_t c = 0;
    bool letter = false;
    while (begin > 0 && is_passed_over(c = before(text, &begin)))
        sheaf__j_work(j, 1);
    letter = c != 0 && !is_passed_over(c) && is_cased(c);
    for (c = 0; letter && end < text.size && is_passed_over(c = next_of(text, &end));)
        sheaf__j_work(j, 1);
    return letter && (c == 0 || is_passed_over(c) || !is_cased(c));
}

static void put_one(sheaf__j *j, sheaf__jbuffer *b, int32_t c, const char *at)
{
    utf8proc_uint8_t bytes[4];
    sheaf__j_put_for(j, b, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes), at);
}

static const special *special_of(int32_t c)
{
    size_t low = 0, high = sizeof specials / sizeof *specials;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (specials[middle].from < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof specials / sizeof *specials && specials[low].from == c ? &specials[low]
                                                                               : NULL;
}

static void put_upper(sheaf__j *j, sheaf__jbuffer *b, int32_t c, bool title, const char *at)
{
    const special *s = c < 0x80 ? NULL : special_of(c);
    const int32_t *to = s == NULL ? NULL : title ? s->title : s->upper;
    if (s == NULL)
        put_one(j, b, title ? utf8proc_totitle(c) : utf8proc_toupper(c), at);
    for (int i = 0; s != NULL && i < 3 && to[i] != 0; i++)
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
    const int32_t c = next_of(text, &behind);
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
        const int32_t c = next_of(text, &end);
        if (how == 'u' || (first && how != 'l'))
            put_upper(j, &b, c, how != 'u', text.at + begin);
        else
            put_lower(j, &b, text, begin, end);
        first = how == 't' && !is_cased(c);
    }
    return sheaf__j_taken(&b);
}

bool sheaf__j_is_case(sheaf__j *j, sheaf__jtext text, bool upper)
{
    bool some = false;
    sheaf__j_work(j, text.size / 4);
    for (size_t at = 0; at < text.size;) {
        const int32_t c = next_of(text, &at);
        if (is_cased(c) && !(upper ? is_upper(c) : is_lower(c)))
            return false;
        some |= upper ? is_upper(c) : is_lower(c);
    }
    return some;
}
