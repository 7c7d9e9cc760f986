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
 *   (?m)      . is any character, which PCRE2 calls s
 *   {n,m}+ {n}?      what is repeated so is repeated again; PCRE2: possessive, lazy
 *   [a[b]], [a&&b]   sets of sets; PCRE2: as they stand. Refused
 *   \x80 and above, octal    bytes; PCRE2: characters. Refused */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int groups;
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

/* "\p{Name}" and "\P{Name}", perhaps with ^ before the name. */
static void property(translation *t)
{
    const char *close = left(t) > 3 && t->at[2] == '{' ? memchr(t->at, '}', left(t)) : NULL;
    const char *name = close != NULL ? t->at + 3 + (t->at[3] == '^') : NULL;
    if (close != NULL && is_script(t, name, (size_t)(close - name))) {
        copy(t, (size_t)(name - t->at));
        put(t, "sc:");
        copy(t, (size_t)(close + 1 - t->at));
        return;
    }
    copy_named(t);
}

/* "\uHHHH" and "\xHH". */
static sheaf_status *number(translation *t)
{
    size_t n = 0;
    if (t->at[1] == 'x' && left(t) > 2 && t->at[2] == '{') {
        copy_named(t);
        return NULL;
    }
    while (n < (t->at[1] == 'u' ? 4u : 2u) && left(t) > n + 2 && is_hex(t->at[n + 2]))
        n++;
    if (n == 0 || (t->at[1] == 'u' && n != 4))
        return refuse(t, "an escape without its digits");
    if (t->at[1] == 'x' && n == 2 && t->at[2] >= '8')
        return refuse(t, "a byte that is no ASCII");
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
    case 'X': return refuse(t, "an escape that is not known");
    default: break;
    }
    if (c == 'p' || c == 'P') {
        property(t);
        return NULL;
    }
    if (instead == NULL && c != '\0' && strchr("kg", c) != NULL) {
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

/* A class by name whose characters are those of Oniguruma. */
static bool is_class_alike(const char *at, size_t n)
{
    static const char *const alike[] = { "[:digit:]", "[:space:]", "[:upper:]", "[:lower:]",
                                         "[:punct:]" };
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        if (n >= strlen(alike[i]) && strncmp(at, alike[i], strlen(alike[i])) == 0)
            return true;
    return false;
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
        if (*t->at == '\\')
            st = escape(t);
        else if (*t->at == '[' && is_class_alike(t->at, left(t)))
            copy(t, (size_t)(strchr(t->at, ']') + 1 - t->at));
        else if (*t->at == '[')
            st = refuse(t, "a set in a set");
        else if (left(t) > 1 && t->at[0] == '&' && t->at[1] == '&')
            st = refuse(t, "an intersection of sets");
        else
            copy(t, 1);
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

/* "(?i)", "(?i:", "(?m-ix:" and the like. */
static sheaf_status *options(translation *t)
{
    copy(t, 2);
    while (left(t) > 0 && memchr("imx-", *t->at, 4) != NULL) {
        put(t, *t->at == 'm' ? "s" : (char[]){ *t->at, '\0' });
        t->at++;
    }
    return left(t) > 0 && (*t->at == ':' || *t->at == ')')
               ? NULL
               : refuse(t, "an option that is not known");
}

/* "(" and what it says about its group. */
static sheaf_status *open_group(translation *t)
{
    if (t->groups == GROUPS)
        return refuse(t, "groups in groups");
    t->group[t->groups++] = t->out.size;
    if (left(t) > 1 && t->at[1] == '*')
        return refuse(t, "a verb");
    if (left(t) > 2 && t->at[1] == '?' && ((t->at[2] >= 'a' && t->at[2] <= 'z') || t->at[2] == '-'))
        return options(t);
    copy(t, 1);
    return NULL;
}

static sheaf_status *next_part(translation *t)
{
    const char c = *t->at;
    if (c == '{')
        return repeat(t);
    if (c == ')') {
        copy(t, 1);
        t->atom = t->groups > 0 ? t->group[--t->groups] : t->atom;
        return NULL;
    }
    if (memchr("*+?", c, 3) == NULL && ((unsigned char)c & 0xc0) != 0x80)
        t->atom = t->out.size;
    if (c == '(')
        return open_group(t);
    if (c == '\\')
        return escape(t);
    if (c == '[')
        return set(t);
    copy(t, 1);
    return NULL;
}

sheaf_status *sheaf__pattern_translate(char **out, size_t *out_size, const char *pattern,
                                       size_t size)
{
    translation t = { .at = pattern, .end = pattern + size, .whole = pattern, .size = size };
    sheaf_status *st = NULL;
    sheaf__text_bytes(&t.out, "", 0);
    while (st == NULL && left(&t) > 0)
        st = next_part(&t);
    *out_size = t.out.size;
    if (st == NULL)
        return sheaf__text_take(out, &t.out);
    sheaf__text_release(&t.out);
    return st;
}
