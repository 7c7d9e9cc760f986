/* oniguruma.c - does a pattern mean the same in Oniguruma, which `tokenizers` uses, and in PCRE2?
 *
 * The constructs of published tokenizers are accepted: groups, look-around, sets of characters and
 * general categories, \s \d, repeats, and (?i:...) of ASCII. Constructs that differ are refused by
 * name:
 *
 *   \w \b \h   PCRE2's \w has fewer characters, its \h is a blank
 *   \uHHHH \x  other forms, or bytes
 *   {,n} {n,m}+ {n}?       {0,n}; what is repeated so is repeated again; PCRE2: as it stands,
 *              possessive, lazy
 *   \p{Name}   but general categories: scripts share characters, others are of an older Unicode
 *   [[:punct:]] [a[b]] [a&&b]   classes by name, sets of sets
 *   (?m) (?i)  another option; holds up to the end of its alternative, not of its group
 *   (?i:ss)    is also sharp s to Oniguruma */
#include <strings.h>

#include "pattern.h"
#include "base/base.h"

typedef struct reading {
    const char *at, *end, *whole;
    int groups, caseless; /* open groups; the one with (?i:, 0: none */
    bool in_set;
    char letter; /* the last character if it is a literal ASCII letter, else 0 */
} reading;

static sheaf_status *refuse(const reading *r, const char *what)
{
    const ptrdiff_t size = r->end - r->whole;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "pattern '%.*s'", size > 200 ? 200 : (int)size, r->whole);
    sheaf_expected(st, "a pattern with one meaning in Oniguruma and PCRE2");
    return sheaf_found(st, "%s, at byte %td", what, r->at - r->whole);
}

/* The character `n` behind the one at hand; 0: the pattern ends before. */
static char ahead(const reading *r, ptrdiff_t n)
{
    return r->end - r->at > n ? r->at[n] : '\0';
}

static bool is_one_of(const char *const *list, const char *name, size_t size)
{
    for (; *list != NULL; list++)
        if (strlen(*list) == size && strncasecmp(*list, name, size) == 0)
            return true;
    return false;
}

/* "\p{Name}" and "\P{Name}", perhaps with ^ before the name. */
static sheaf_status *property(reading *r)
{
    static const char *const categories[] = { "Any", "L",  "LC", "Lu", "Ll", "Lt", "Lm", "Lo",
                                              "M",   "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No",
                                              "P",   "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                              "S",   "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                              "Zp",  "C",  "Cc", "Cf", "Cn", "Co", NULL };
    const char *close = ahead(r, 2) == '{' ? memchr(r->at, '}', (size_t)(r->end - r->at)) : NULL;
    const char *name = r->at + 3 + (ahead(r, 3) == '^');
    if (close == NULL || close < name || !is_one_of(categories, name, (size_t)(close - name)))
        return refuse(r, "a property that is no general category");
    if (r->caseless > 0)
        return refuse(r, "a property under (?i)");
    r->at = close + 1;
    return NULL;
}

static sheaf_status *escape(reading *r)
{
    const char c = ahead(r, 1);
    if (c == 'p' || c == 'P')
        return property(r);
    if ((unsigned char)c >= 0x80 || c == '\0' ||
        (((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) &&
         strchr("rntfsSdD", c) == NULL))
        return refuse(r, "an escape that is not known");
    if (r->caseless > 0 && r->in_set && (c == 'S' || c == 'D'))
        return refuse(r, "an escape for letters under (?i)");
    r->at += 2;
    return NULL;
}

/* A character that stands for itself. Under (?i) those are refused that Oniguruma matches with two
 * characters, or two with one; any but ASCII may be such. */
static sheaf_status *itself(reading *r)
{
    static const char *const pairs[] = { "ss", "ff", "fi", "fl", "st", NULL };
    const char c = *r->at;
    const bool is_letter = !r->in_set && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    if (r->caseless > 0 && (unsigned char)c >= 0x80)
        return refuse(r, "a character that is no ASCII under (?i)");
    if (r->caseless > 0 && is_letter && is_one_of(pairs, (char[]){ r->letter, c }, 2))
        return refuse(r, "letters under (?i) that one character may stand for");
    r->letter = is_letter ? c : '\0';
    r->at++;
    return NULL;
}

static sheaf_status *set(reading *r)
{
    sheaf_status *st = NULL;
    r->in_set = true;
    r->at += 1 + (ahead(r, 1) == '^');
    r->at += ahead(r, 0) == ']'; /* a first ] is a literal in both */
    while (st == NULL && r->at < r->end && *r->at != ']')
        st = *r->at == '\\'                             ? escape(r)
             : *r->at == '['                            ? refuse(r, "a set in a set")
             : ahead(r, 0) == '&' && ahead(r, 1) == '&' ? refuse(r, "an intersection of sets")
                                                        : itself(r);
    r->in_set = false;
    r->at += st == NULL && r->at < r->end;
    return st;
}

/* "{n}", "{n,}" and "{n,m}"; another "{" is a character. */
static sheaf_status *repeat(reading *r)
{
    const ptrdiff_t least = (ptrdiff_t)strspn(r->at + 1, "0123456789");
    const bool comma = ahead(r, 1 + least) == ',';
    const ptrdiff_t most = comma ? (ptrdiff_t)strspn(r->at + 2 + least, "0123456789") : 0;
    const ptrdiff_t n = 1 + least + comma + most;
    const char behind = ahead(r, n + 1);
    if (ahead(r, n) == '}' && least + most > 0 &&
        (least == 0 || behind == '+' || (behind == '?' && !comma)))
        return refuse(r, "a repeat without its least number, or of a repeat");
    r->at++;
    return NULL;
}

/* "(" and what it says about its group. */
static sheaf_status *open_group(reading *r)
{
    static const char *const kinds[] = { "?:", "?=", "?!", "?>", "?<=", "?<!", "?i:" };
    size_t n = 0;
    if (ahead(r, 1) == '*')
        return refuse(r, "a verb");
    for (int i = 0; n == 0 && ahead(r, 1) == '?' && i < 7; i++)
        n = strncmp(r->at + 1, kinds[i], strlen(kinds[i])) == 0 ? strlen(kinds[i]) : 0;
    if (ahead(r, 1) == '?' && n == 0)
        return refuse(r, "a group or an option that is not known");
    r->groups++;
    if (ahead(r, 2) == 'i' && n > 0 && r->caseless == 0)
        r->caseless = r->groups;
    r->at += 1 + n;
    return NULL;
}

static sheaf_status *next_part(reading *r)
{
    const char c = *r->at;
    if (strchr("{)*+?([\\.^$|", c) == NULL)
        return itself(r);
    r->letter = '\0';
    switch (c) {
    case '(': return open_group(r);
    case '[': return set(r);
    case '{': return repeat(r);
    case '\\': return escape(r);
    case ')':
        r->caseless = r->caseless == r->groups ? 0 : r->caseless;
        r->groups -= r->groups > 0; /* PCRE2 reports unmatched ones */
        break;
    default: break;
    }
    r->at++;
    return NULL;
}

sheaf_status *sheaf__oniguruma_check(const char *pattern)
{
    reading r = { .at = pattern, .end = pattern + strlen(pattern), .whole = pattern };
    sheaf_status *st = NULL;
    while (st == NULL && r.at < r.end)
        st = next_part(&r);
    return st;
}
