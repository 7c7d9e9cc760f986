/* unicode.h - private: characters, as classified by the Rust crates behind `tokenizers` 0.23, each
 * with tables of another Unicode version. utf8proc has the tables, of Unicode 14 or newer;
 * bench/tokenizers_live.py compares all code points. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

enum {
    SHEAF__LETTER = 1, /* \p{L} */
    SHEAF__NUMBER = 2, /* \p{N} */
    SHEAF__SPACE = 4,  /* \s */
    SHEAF__WORD = 8,   /* \w */
};

/* SHEAF__IN_RANGES - is the character in one of an ascending array of ranges? */
typedef struct sheaf__code_range {
    uint32_t first, last;
} sheaf__code_range;
#define SHEAF__IN_RANGES(ranges, code)                                                             \
    sheaf__in_ranges(ranges, sizeof(ranges) / sizeof *(ranges), code)
bool sheaf__in_ranges(const sheaf__code_range *r, size_t n, uint32_t code);

/* sheaf__unicode_class - a set of the above, for regular expressions: Unicode 16. */
unsigned sheaf__unicode_class(uint32_t code);
enum { SHEAF__UNICODE_TABLE = 0x20000 }; /* characters in tables of classes */

/* sheaf__unicode_take - the character at `text`, which is UTF-8, with its length (may be NULL). */
static inline uint32_t sheaf__unicode_take(const char *text, size_t left, size_t *length)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    if (n > left) /* cannot be */
        n = left;
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    if (length != NULL)
        *length = n;
    return code;
}
/* sheaf__unicode_put - `code` as UTF-8; the length. */
size_t sheaf__unicode_put(char to[4], uint32_t code);
/* sheaf__utf8_ascii - the bytes up to the first that is not ASCII. */
size_t sheaf__utf8_ascii(const char *text, size_t size);
/* sheaf__utf8_valid - the first byte that is no part of UTF-8; `size`: there is none. */
size_t sheaf__utf8_valid(const char *text, size_t size);

/* sheaf__check_text - SHEAF_E_DATA for a text of more bytes or that is not UTF-8. */
sheaf_status *sheaf__check_text(const char *text, size_t size, size_t most);

/* sheaf__form_unknown - is this decomposition or mark newer than the crate for normal forms? (False
 * for most characters that are neither.) */
bool sheaf__form_unknown(uint32_t c);
/* sheaf__unicode_stand_in - a character that Unicode 14.0 and PCRE2's \s treat like `code` in
 * Unicode 16: of the same category, script and length; `code` itself for most. */
uint32_t sheaf__unicode_stand_in(uint32_t code);
