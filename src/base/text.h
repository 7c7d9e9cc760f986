/* text.h - a growing string, UTF-8, and the known name nearest to a mistyped one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf/status.h"

/* All zero is an empty text. A failed allocation is remembered: additions then do
 * nothing and sheaf__text_take() says so, so callers check once, at the end. */
typedef struct sheaf_text {
    char *at; /* NUL-terminated once something was added */
    size_t size, capacity;
    bool failed;
} sheaf_text;

/* A part of a text that lies elsewhere. */
typedef struct sheaf__text_piece {
    const char *at;
    size_t size;
} sheaf__text_piece;

void sheaf__text_add(sheaf_text *text, const char *fmt, ...) SHEAF_PRINTF(2, 3);
void sheaf__text_bytes(sheaf_text *text, const void *bytes, size_t size);
/* sheaf__text_little - the lowest bytes of a number, least significant first. sheaf__little - reads
 * what stands so. */
void sheaf__text_little(sheaf_text *text, uint64_t number, int bytes);
static inline uint64_t sheaf__little(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | at[bytes];
    return number;
}
/* sheaf__text_json - appends `string` as a JSON string with its quotes; what is not
 * ASCII stays as it is (UTF-8), as Python's json does with ensure_ascii=False. A byte that is
 * no part of UTF-8, as paths may have, becomes U+FFFD. */
void sheaf__text_json(sheaf_text *text, const char *string);
/* sheaf__text_json_bytes - the same of bytes among which there may be NUL. */
void sheaf__text_json_bytes(sheaf_text *text, const char *bytes, size_t size);
/* sheaf__text_utf8 - appends `string` with U+FFFD for each byte that is no part of UTF-8. */
void sheaf__text_utf8(sheaf_text *text, const char *string);
/* sheaf__text_word - appends `word` as a shell reads it back: as it is, or in single quotes. */
void sheaf__text_word(sheaf_text *text, const char *word);
/* sheaf__text_take - hands the string to the caller (free()) and empties the text.
 * Never gives NULL on success. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__text_take(char **out, sheaf_text *text);
void sheaf__text_release(sheaf_text *text);

/* sheaf__is_given - is it neither NULL nor empty? */
static inline bool sheaf__is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}
/* sheaf__ends_with - are the last characters of `text` those of `end`? */
bool sheaf__ends_with(const char *text, const char *end);
/* sheaf__is_listed - is the word one of those of a list, which blanks divide? */
bool sheaf__is_listed(const char *list, const char *word, size_t length);
int sheaf__hex_digit(char c); /* -1: it is none */
/* sheaf__base64_decode - whole groups of four characters (RFC 4648, section 4), of which the last
 * may end with '='; `out` has space for size / 4 * 3 bytes. The number of bytes, 0: it is something
 * else. */
size_t sheaf__base64_decode(unsigned char *out, const char *text, size_t size);
/* sheaf__text_count - how many times `part`, which is not empty, stands in `text`. */
int64_t sheaf__text_count(const char *text, const char *part);

/* sheaf__same_shape - as many axes, of the same sizes? */
bool sheaf__same_shape(int ndim, const int64_t *shape, int other_ndim, const int64_t *other);
/* sheaf__show_shape - "[511, 64]"; gives `text` back. */
const char *sheaf__show_shape(char text[128], int ndim, const int64_t *shape);

/* sheaf__utf8_length - bytes of the UTF-8 sequence at `p`, of which `left` (at least 1) may be
 * read: shortest form, no surrogates, up to U+10FFFF. 0 if it is none. */
size_t sheaf__utf8_length(const void *p, size_t left);
bool sheaf__is_utf8(const char *text);
/* sheaf__utf8_blank - bytes of the blank at `p`, of which `left` may be read, or 0: a blank is what
 * Python's str.isspace() holds for one. sheaf__utf8_strip - takes the blanks at both ends off, as
 * Python's str.strip(). */
size_t sheaf__utf8_blank(const char *p, size_t left);
void sheaf__utf8_strip(const char **text, size_t *size);

/* sheaf__nearest - the name in `list` (n of them) that `name` was probably meant to be,
 * by the number of letters added, dropped, changed or swapped with a neighbour, ignoring
 * case; the first of equals. NULL when even the best differs in more
 * than a third of the longer name's letters (but one difference is always allowed). */
const char *sheaf__nearest(const char *name, const char *const *list, int n);
/* sheaf__misspelt - the name in `list` that `name` is but for upper and lower case, '-', '_' and
 * blanks, or but for one letter too many, too few or swapped with its neighbour; its digits are the
 * same. NULL otherwise: names of models that differ in a letter or a number, as mistral and
 * mixtral, qwen2 and qwen3, are of different models. */
const char *sheaf__misspelt(const char *name, const char *const *list, int n);
