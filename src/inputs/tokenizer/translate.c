/* translate.c - patterns of Oniguruma, which `tokenizers` uses, as PCRE2 writes them. Both read
 * most alike; what only one of them has, PCRE2 refuses. This file is about what both have, and read
 * differently:
 *
 *   \w \b     also marks and what Oniguruma takes for letters; PCRE2 10.42: letters, numbers and _
 *   \h        a hexadecimal digit; PCRE2: a blank
 *   \uHHHH    PCRE2 has it as \x{HHHH}
 *   {,n}      {0,n}; PCRE2: as it stands
 *   \p{Han}   the characters of a script; PCRE2 from 10.40 on: also those that it shares with
 * others, as marks and stops, unless it is written \p{sc:Han}
 *   \p{Name}  general categories and scripts; what else PCRE2 knows by a name is of an older
 * Unicode, or unknown to Oniguruma. Refused
 *   [:punct:] also symbols, [:upper:] also Roman numerals and letters in circles
 *   (?m)      . is any character, which PCRE2 calls s
 *   (?i)      a letter can be two: ss is also sharp s. Refused, but for ASCII without such pairs
 *   a(?i)b|c  is a(?i:b|c); PCRE2: a(?i:b)|(?i:c). Refused
 *   {n,m}+ {n}?      what is repeated so is repeated again; PCRE2: possessive, lazy
 *   [a[b]], [a&&b]   sets of sets; PCRE2: as they stand. Refused
 *   \x80 and above, octal    bytes; PCRE2: characters. Refused */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/regex.h"
#include "base/text.h"
#include "pattern.h"

/* What \w is, inside of brackets. */
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}"     \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define AT_EDGE "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NOT_AT_EDGE "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

enum { GROUPS = 200 }; /* inside each other */

typedef struct translation {
    const char *at, *end;
    const char *whole;
    size_t size;
    sheaf_text out;
    bool in_set;
    size_t atom; /* in `out`: where what a repeat repeats begins */
    size_t group[GROUPS];
    bool caseless_around[GROUPS], late_around[GROUPS]; /* a group */
    int groups;
    bool caseless; /* (?i) holds */
    char letter;   /* the last character, if it is an ASCII letter as it stands; 0: none */
    bool fresh;    /* nothing stands yet in this alternative */
    bool late;     /* an option of this group stood behind something in its alternative */
    bool by_script;
} translation;

static sheaf_status *refuse(const translation *t, const char *what)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "pattern '%.*s'",
                                  t->size > 200 ? 200 : (int)t->size, t->whole);
    sheaf_expected(st, "a pattern that Oniguruma and PCRE2 read alike");
    return sheaf_found(st, "%s, at byte %td", what, t->at - t->whole);
}

static void put(translation *t, const char *text)
{
    sheaf__text_bytes(&t->out, text, strlen(text));
}

static void copy(translation *t, size_t n)
{
    sheaf__text_bytes(&t->out, t->at, n);
    t->at += n;
}

static size_t left(const translation *t)
{
    return (size_t)(t->end - t->at);
}

static bool is_hex(char c)
{
    return c != '\0' && strchr("0123456789abcdefABCDEF", c) != NULL;
}

/* An escape with what stands in braces, or in <> (the name of a group), behind it. */
static void copy_named(translation *t)
{
    const char *close = NULL;
    if (left(t) > 2 && (t->at[2] == '{' || t->at[2] == '<'))
        close = memchr(t->at + 3, t->at[2] == '{' ? '}' : '>', left(t) - 3);
    copy(t, close != NULL ? (size_t)(close + 1 - t->at) : left(t) > 1 ? 2 : 1);
}

/* Does PCRE2 know this name as that of a script, and by "sc:" only? */
static bool is_script(translation *t, const char *name, size_t size)
{
    char text[64];
    int code;
    size_t at;
    if (size < 3 || size > 40 || memchr(name, ':', size) != NULL)
        return false;
    snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)size, name);
    pcre2_code *script =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(script);
    t->out.failed = t->out.failed || (script == NULL && sheaf__regex_starved(code));
    return script != NULL;
}

static bool is_one_of(const char *const *list, const char *name, size_t size)
{
    for (; *list != NULL; list++)
        if (strlen(*list) == size && strncasecmp(*list, name, size) == 0)
            return true;
    return false;
}

/* Names that have the same characters for Oniguruma and for PCRE2 behind stand-ins. */
static bool is_category(const char *name, size_t size)
{
    static const char *const names[] = { "Any", "L",  "LC", "Lu", "Ll", "Lt", "Lm", "Lo",
                                         "M",   "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No",
                                         "P",   "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                         "S",   "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                         "Zp",  "C",  "Cc", "Cf", "Cn", "Co", NULL };
    return is_one_of(names, name, size);
}

/* Scripts of which every character that has a stand-in has one of the same script, and no other
 * character has. */
static bool is_stable_script(const char *name, size_t size)
{
    static const char *const names[] = { "Han",      "Hani",     "Hiragana",  "Hira",    "Katakana",
                                         "Kana",     "Hangul",   "Hang",      "Greek",   "Grek",
                                         "Hebrew",   "Hebr",     "Thai",      "Lao",     "Armenian",
                                         "Georgian", "Bengali",  "Beng",      "Tamil",   "Taml",
                                         "Telugu",   "Kannada",  "Malayalam", "Sinhala", "Khmer",
                                         "Tibetan",  "Gujarati", "Gurmukhi",  "Oriya",   "Ethiopic",
                                         "Bopomofo", "Cherokee", "Thaana",    "Syriac",  "Braille",
                                         "Coptic",   "Gothic",   NULL };
    return is_one_of(names, name, size);
}

/* "\p{Name}" and "\P{Name}", perhaps with ^ before the name. */
static sheaf_status *property(translation *t)
{
    const char *close = left(t) > 3 && t->at[2] == '{' ? memchr(t->at, '}', left(t)) : NULL;
    const char *name = close != NULL ? t->at + 3 + (t->at[3] == '^') : NULL;
    const size_t size = close != NULL ? (size_t)(close - name) : 0;
    if (close != NULL && is_script(t, name, size)) {
        t->by_script = t->by_script || !is_stable_script(name, size);
        copy(t, (size_t)(name - t->at));
        put(t, "sc:");
        copy(t, (size_t)(close + 1 - t->at));
        return NULL;
    }
    if (!t->out.failed && !is_category(name, size))
        return refuse(t, "a property that is no general category and no script");
    copy_named(t);
    return NULL;
}

/* "\uHHHH" and "\xHH". */
static sheaf_status *number(translation *t)
{
    size_t n = 0;
    if (t->at[1] == 'x' && left(t) > 2 && t->at[2] == '{') {
        if (t->caseless)
            return refuse(t, "the number of a character under (?i)");
        copy_named(t);
        return NULL;
    }
    while (n < (t->at[1] == 'u' ? 4u : 2u) && left(t) > n + 2 && is_hex(t->at[n + 2]))
        n++;
    if (n == 0 || (t->at[1] == 'u' && n != 4))
        return refuse(t, "an escape without its digits");
    if (t->at[1] == 'x' && n == 2 && t->at[2] >= '8')
        return refuse(t, "a byte that is no ASCII");
    if (t->caseless)
        return refuse(t, "the number of a character under (?i)");
    put(t, "\\x{");
    sheaf__text_bytes(&t->out, t->at + 2, n);
    put(t, "}");
    t->at += 2 + n;
    return NULL;
}

static sheaf_status *escape(translation *t)
{
    const char c = left(t) > 1 ? t->at[1] : '\0';
    const char *instead = NULL;
    if (t->caseless && (t->in_set ? strchr("wWhHSDpPR", c) : strchr("123456789k", c)) != NULL &&
        c != '\0')
        return refuse(t, "an escape for letters under (?i)");
    switch (c) {
    case 'w': instead = t->in_set ? WORD : "[" WORD "]"; break;
    case 'h': instead = t->in_set ? "0-9a-fA-F" : "[0-9a-fA-F]"; break;
    case 'b': instead = t->in_set ? NULL : AT_EDGE; break;
    case 'W':
        if (t->in_set)
            return refuse(t, "\\W in a set");
        instead = "[^" WORD "]";
        break;
    case 'H':
        if (t->in_set)
            return refuse(t, "\\H in a set");
        instead = "[^0-9a-fA-F]";
        break;
    case 'B': instead = NOT_AT_EDGE; break;
    case 'u':
    case 'x': return number(t);
    case '0': return refuse(t, "an octal escape");
    case 'Q':
    case 'E':
    case 'v':
    case 'V':
    case 'C':
    case 'N':
    case 'y':
    case 'Y':
    case 'O':
    case 'g':
    case 'c':
    case 'X': return refuse(t, "an escape that is not known");
    default: break;
    }
    if (c == 'p' || c == 'P')
        return property(t);
    if (instead == NULL && c == 'k') {
        copy_named(t);
        return NULL;
    }
    if (instead == NULL) {
        copy(t, left(t) > 1 ? 2 : 1);
        return NULL;
    }
    put(t, instead);
    t->at += 2;
    return NULL;
}

/* What a class by name at `at` is, inside of brackets, and its length; NULL: it is not known.
 * (Oniguruma has [:alpha:], [:lower:] and those made of them by properties of its Unicode.) */
static const char *named_class(const char *at, size_t n, size_t *length)
{
    static const struct {
        const char *name, *is;
    } classes[] = {
        { "[:digit:]", "[:digit:]" },
        { "[:space:]", "[:space:]" },
        { "[:punct:]", "\\p{P}\\p{S}" },
        { "[:cntrl:]", "\\p{Cc}" },
        { "[:upper:]", "\\p{Lu}\\x{2160}-\\x{216f}\\x{24b6}-\\x{24cf}\\x{1f130}-\\x{1f149}"
                       "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}" },
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        *length = strlen(classes[i].name);
        if (n >= *length && strncmp(at, classes[i].name, *length) == 0)
            return classes[i].is;
    }
    return NULL;
}

/* A character that stands for itself. Under (?i) those are refused that Oniguruma takes for two, or
 * two for one; all but ASCII may be such. */
static sheaf_status *itself(translation *t)
{
    static const char *const pairs[] = { "ss", "ff", "fi", "fl", "st", NULL };
    const char c = *t->at;
    if (t->caseless && (unsigned char)c >= 0x80)
        return refuse(t, "a character that is no ASCII under (?i)");
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (t->caseless && is_letter && !t->in_set && t->letter != '\0' &&
        is_one_of(pairs, (char[]){ t->letter, c }, 2))
        return refuse(t, "letters under (?i) that one character may stand for");
    t->letter = is_letter && !t->in_set ? c : '\0';
    copy(t, 1);
    return NULL;
}

static sheaf_status *set(translation *t)
{
    sheaf_status *st = NULL;
    t->in_set = true;
    copy(t, 1);
    if (left(t) > 0 && *t->at == '^')
        copy(t, 1);
    if (left(t) > 0 && *t->at == ']') /* the first one is a character to both */
        copy(t, 1);
    while (st == NULL && left(t) > 0 && *t->at != ']') {
        size_t n;
        const char *is = *t->at == '[' ? named_class(t->at, left(t), &n) : NULL;
        if (*t->at == '\\')
            st = escape(t);
        else if (is != NULL && t->caseless)
            st = refuse(t, "a class under (?i)");
        else if (is != NULL) {
            put(t, is);
            t->at += n;
        } else if (*t->at == '[')
            st = refuse(t, "a set in a set");
        else if (left(t) > 1 && t->at[0] == '&' && t->at[1] == '&')
            st = refuse(t, "an intersection of sets");
        else
            st = itself(t);
    }
    t->in_set = false;
    if (st == NULL && left(t) > 0)
        copy(t, 1);
    return st;
}

/* "{n}", "{n,}", "{n,m}" or "{,m}"; its length, 0: none of them. */
static size_t counts(const translation *t)
{
    size_t n = 1, digits = 0;
    for (; n < left(t) && t->at[n] >= '0' && t->at[n] <= '9'; n++)
        digits++;
    const bool comma = n < left(t) && t->at[n] == ',';
    for (n += comma; comma && n < left(t) && t->at[n] >= '0' && t->at[n] <= '9'; n++)
        digits++;
    return n < left(t) && t->at[n] == '}' && digits > 0 ? n + 1 : 0;
}

static sheaf_status *repeat(translation *t)
{
    const size_t n = counts(t);
    if (n == 0) {
        copy(t, 1);
        return NULL;
    }
    const char after = left(t) > n ? t->at[n] : '\0';
    const bool again = after == '+' || (after == '?' && memchr(t->at, ',', n) == NULL);
    if (again) {
        put(t, "(?:");
        if (!t->out.failed) {
            memmove(t->out.at + t->atom + 3, t->out.at + t->atom, t->out.size - 3 - t->atom);
            memcpy(t->out.at + t->atom, "(?:", 3);
        }
    }
    copy(t, 1);
    if (*t->at == ',')
        put(t, "0");
    copy(t, n - 1);
    if (again)
        put(t, ")");
    return NULL;
}

/* "(?i)", "(?i:", "(?m-ix:" and the like. The first kind holds up to the end of the group. */
static sheaf_status *options(translation *t)
{
    bool on = true;
    copy(t, 2);
    while (left(t) > 0 && memchr("imx-", *t->at, 4) != NULL) {
        on = on && *t->at != '-';
        if (*t->at == 'i')
            t->caseless = on;
        put(t, *t->at == 'm' ? "s" : (char[]){ *t->at, '\0' });
        t->at++;
    }
    if (left(t) == 0 || (*t->at != ':' && *t->at != ')'))
        return refuse(t, "an option that is not known");
    if (*t->at == ')') { /* it is no group, and next_part() shall not see its end */
        t->late = t->late_around[--t->groups] || !t->fresh;
    } else
        t->fresh = true;
    copy(t, 1);
    return NULL;
}

/* "(" and what it says about its group. */
static sheaf_status *open_group(translation *t)
{
    static const char *const kinds[] = { "?:", "?=", "?!", "?>", "?<=", "?<!", NULL };
    if (t->groups == GROUPS)
        return refuse(t, "groups in groups");
    t->group[t->groups] = t->out.size;
    t->caseless_around[t->groups] = t->caseless;
    t->late_around[t->groups++] = t->late;
    t->late = false;
    if (left(t) > 1 && t->at[1] == '*')
        return refuse(t, "a verb");
    if (left(t) > 2 && t->at[1] == '?' && ((t->at[2] >= 'a' && t->at[2] <= 'z') || t->at[2] == '-'))
        return options(t);
    copy(t, 1);
    t->fresh = true;
    if (left(t) == 0 || *t->at != '?')
        return NULL;
    for (int i = 0; kinds[i] != NULL; i++) {
        const size_t n = strlen(kinds[i]);
        if (left(t) >= n && strncmp(t->at, kinds[i], n) == 0) {
            copy(t, n);
            return NULL;
        }
    }
    const char *close = left(t) > 1 && t->at[1] == '<' ? memchr(t->at, '>', left(t)) : NULL;
    if (close == NULL)
        return refuse(t, "a group that is not known");
    copy(t, (size_t)(close + 1 - t->at));
    return NULL;
}

static void close_group(translation *t)
{
    copy(t, 1);
    if (t->groups == 0)
        return; /* PCRE2 says so */
    t->atom = t->group[--t->groups];
    t->caseless = t->caseless_around[t->groups];
    t->late = t->late_around[t->groups];
    t->fresh = false;
}

static sheaf_status *next_part(translation *t)
{
    const char c = *t->at;
    const bool is_repeat = memchr("*+?", c, 3) != NULL, goes_on = ((unsigned char)c & 0xc0) == 0x80;
    if (memchr("{)*+?([\\.^$|", c, 12) != NULL)
        t->letter = '\0';
    if (c == '{')
        return repeat(t);
    if (c == ')') {
        close_group(t);
        return NULL;
    }
    if (!is_repeat && !goes_on)
        t->atom = t->out.size;
    if (c == '(')
        return open_group(t);
    if (c == '|' && t->late)
        return refuse(t, "an alternative behind an option that stands in the middle of one");
    t->fresh = c == '|';
    if (c == '\\')
        return escape(t);
    if (c == '[')
        return set(t);
    return itself(t);
}

sheaf_status *sheaf__pattern_translate(char **out, size_t *out_size, const char *pattern,
                                       size_t size, bool *by_script)
{
    translation t = {
        .at = pattern, .end = pattern + size, .whole = pattern, .size = size, .fresh = true
    };
    sheaf_status *st = NULL;
    sheaf__text_bytes(&t.out, "", 0);
    while (st == NULL && left(&t) > 0)
        st = next_part(&t);
    *out_size = t.out.size;
    *by_script = t.by_script;
    if (st == NULL)
        return sheaf__text_take(out, &t.out);
    sheaf__text_release(&t.out);
    return st;
}
