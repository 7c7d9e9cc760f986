/* scanner.c - see pattern.h: the patterns of GPT-2, Llama 3 and Qwen2, by hand. The test beside it
 * holds each to PCRE2's reading of the same pattern. */
#include <limits.h>

#include "pattern.h"
#include "base/base.h"

const char sheaf__gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Llama 3's and its kin's: with the digits that are one match between them. */
#define BEHIND "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BEFORE "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"

const char sheaf__llama3_pattern[] = BEFORE "{1,3}" BEHIND;
const char sheaf__qwen2_pattern[] = BEFORE BEHIND;
/* No scanner is written for it. */
const char sheaf__tekken_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const struct {
    const char *pattern;
    int digits;
} known[] = {
    { sheaf__gpt2_pattern, 0 },
    { sheaf__llama3_pattern, 3 }, /* and cl100k_base as it is written for `tokenizers` */
    { sheaf__qwen2_pattern, 1 },
    { BEFORE "+" BEHIND, INT_MAX },
};

sheaf_status *sheaf__scanner_find(sheaf__scanner **out, const char *pattern)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].pattern, pattern) != 0)
            continue;
        sheaf__scanner *s = malloc(sizeof *s);
        if (s == NULL)
            return sheaf__no_memory("pattern");
        s->newer = i > 0;
        s->digits = known[i].digits;
        for (uint32_t code = 0; code < SHEAF__UNICODE_TABLE; code++)
            s->class_of[code] = (uint8_t)sheaf__unicode_class(code);
        *out = s;
        return NULL;
    }
    return NULL;
}

/* The class of the character at `at`, which is before `size`, and where the next one begins. */
static inline unsigned look(const sheaf__scanner *s, const char *text, size_t size, size_t at,
                            size_t *next)
{
    const unsigned char c = (unsigned char)text[at];
    if (c < 0x80) {
        *next = at + 1;
        return s->class_of[c];
    }
    size_t length;
    const uint32_t code = sheaf__unicode_take(text + at, size - at, &length);
    *next = at + length;
    return code < SHEAF__UNICODE_TABLE ? s->class_of[code] : sheaf__unicode_class(code);
}

enum { NOT_OTHER = SHEAF__LETTER | SHEAF__NUMBER | SHEAF__SPACE };

static inline size_t letters(const sheaf__scanner *s, const char *text, size_t size, size_t at)
{
    for (size_t next; at < size; at = next)
        if ((look(s, text, size, at, &next) & SHEAF__LETTER) == 0)
            break;
    return at;
}

static size_t digits(const sheaf__scanner *s, const char *text, size_t size, size_t at)
{
    size_t next;
    for (int n = 0; at < size && (s->digits == 0 || n < s->digits); n++, at = next)
        if ((look(s, text, size, at, &next) & SHEAF__NUMBER) == 0)
            break;
    return at;
}

static size_t others(const sheaf__scanner *s, const char *text, size_t size, size_t at)
{
    for (size_t next; at < size; at = next)
        if ((look(s, text, size, at, &next) & NOT_OTHER) != 0)
            break;
    while (s->newer && at < size && (text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

/* \s*[\r\n]+ | \s+(?!\S) | \s+ at a space. */
static size_t spaces(const sheaf__scanner *s, const char *text, size_t size, size_t at)
{
    size_t next, last = at, line = 0;
    const size_t begin = at;
    for (; at < size; last = at, at = next) {
        if ((look(s, text, size, at, &next) & SHEAF__SPACE) == 0)
            break;
        if (text[at] == '\r' || text[at] == '\n')
            line = next;
    }
    if (s->newer && line > 0)
        return line;
    return at == size || last == begin ? at : last;
}

/* The letters after ', in any case: s also as U+017F, the long s. 0: none. */
static size_t contraction(const sheaf__scanner *s, const char *text, size_t left)
{
    static const char ends[][3] = { "s", "t", "re", "ve", "m", "ll", "d" };
    if (s->newer && left >= 2 && memcmp(text, "\xc5\xbf", 2) == 0)
        return 2;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        size_t same = 0;
        while (same < n && same < left &&
               (text[same] == ends[i][same] || (s->newer && (text[same] | 0x20) == ends[i][same])))
            same++;
        if (same == n)
            return n;
    }
    return 0;
}

size_t sheaf__scanner_next(const sheaf__scanner *s, const char *text, size_t size, size_t at)
{
    size_t next, second = at;
    const char c = text[at];
    if (c == '\'') {
        const size_t n = contraction(s, text + at + 1, size - at - 1);
        if (n > 0)
            return at + 1 + n;
    }
    const unsigned class = look(s, text, size, at, &next);
    if (class & SHEAF__LETTER)
        return letters(s, text, size, next);
    const unsigned after = next < size ? look(s, text, size, next, &second) : SHEAF__SPACE;
    if ((after & SHEAF__LETTER) && (class & SHEAF__NUMBER) == 0 &&
        (s->newer ? c != '\r' && c != '\n' : c == ' '))
        return letters(s, text, size, second);
    if (class & SHEAF__NUMBER)
        return digits(s, text, size, at);
    if (s->digits == 0 && c == ' ' && (after & SHEAF__NUMBER))
        return digits(s, text, size, next);
    if ((class & NOT_OTHER) == 0)
        return others(s, text, size, next);
    if (c == ' ' && (after & NOT_OTHER) == 0)
        return others(s, text, size, second);
    return spaces(s, text, size, at);
}
