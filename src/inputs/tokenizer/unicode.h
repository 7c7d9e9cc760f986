/* unicode.h - private: classes of characters, as the regular expressions of `tokenizers` 0.23 see
 * them: Unicode 16.0. (PCRE2 and utf8proc of a system know what they know.) */
#ifndef SHEAF_INPUTS_TOKENIZER_UNICODE_H
#define SHEAF_INPUTS_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHEAF__LETTER = 1, /* \p{L} */
    SHEAF__NUMBER = 2, /* \p{N} */
    SHEAF__SPACE = 4,  /* \s */
    SHEAF__WORD = 8,   /* \w */
};

/* sheaf__unicode_class - a set of the above. */
unsigned sheaf__unicode_class(uint32_t code);
/* sheaf__unicode_fill - the classes of the first characters. */
enum { SHEAF__UNICODE_TABLE = 0x20000 };
void sheaf__unicode_fill(uint8_t table[SHEAF__UNICODE_TABLE]);

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

/* A range of characters that are of one class. */
typedef struct sheaf__unicode_range {
    uint32_t first : 21, class : 11;
    uint32_t last;
} sheaf__unicode_range;
extern const sheaf__unicode_range sheaf__unicode_ranges[]; /* ascending (unicode_table.c) */
extern const int sheaf__unicode_count;

/* Characters that an older Unicode sees otherwise (14.0, and PCRE2's \s), each with one that all
 * see alike: of the same category, script and length. */
typedef struct sheaf__stand_in {
    uint32_t first, last, stand_in;
} sheaf__stand_in;
extern const sheaf__stand_in sheaf__stand_ins[]; /* ascending (unicode_table.c) */
extern const int sheaf__stand_in_count;
/* sheaf__unicode_stand_in - what stands for `code`: itself for most. */
uint32_t sheaf__unicode_stand_in(uint32_t code);

#endif
