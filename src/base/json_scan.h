/* json_scan.h - a JSON reader that goes through a text once; json.c builds objects with it, and
 * safetensors headers of up to 100 MB are read with it directly.
 *
 * It decides as Rust's serde_json does, which the official safetensors parser is built on.
 * jansson's own reader would need gigabytes for a large header, drops duplicate keys unseen,
 * takes -0 for a whole number, cannot hold numbers from 2^63, and, when an allocation fails,
 * goes on with a character missing. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf_json_scan {
    const char *begin, *at, *end;
    bool by_line, one_line;
    bool nul; /* strings of values may hold NUL */
} sheaf_json_scan;

/* sheaf__scan_init - checks that the text is UTF-8. Places in messages are "line L, column C"
 * (columns are bytes), or "byte N of the JSON". */
sheaf_status *sheaf__scan_init(sheaf_json_scan *scan, const char *text, size_t size, bool by_line);
/* sheaf__scan_init_line - one line of JSON Lines: places are "column C", which the caller puts
 * behind a line number, and sheaf__scan_value_string() takes \u0000 for the character it is. */
sheaf_status *sheaf__scan_init_line(sheaf_json_scan *scan, const char *text, size_t size);
/* sheaf__scan_fail - the place, with what was expected and what is there. */
sheaf_status *sheaf__scan_fail(const sheaf_json_scan *scan, const char *expected);
/* sheaf__scan_peek - the next character that is not blank, '\0' at the end. */
char sheaf__scan_peek(sheaf_json_scan *scan);
/* sheaf__scan_take - consumes that character if it is `c`. */
bool sheaf__scan_take(sheaf_json_scan *scan, char c);
/* sheaf__scan_string - a string, decoded and malloc'd. Errors: SHEAF_E_UNSUPPORTED when it contains
 * NUL. */
sheaf_status *sheaf__scan_string(sheaf_json_scan *scan, char **out);
/* sheaf__scan_value_string - the same for a value, with its bytes: there may be NUL among them only
 * where scan->nul is true, as after sheaf__scan_init_line(). */
sheaf_status *sheaf__scan_value_string(sheaf_json_scan *scan, char **out, size_t *size);
/* sheaf__scan_string_to - a string, decoded into `to`, with a NUL behind it; there may be NUL in it
 * too. `to` has room for the rest of the text, and one byte. For lists of many strings. */
sheaf_status *sheaf__scan_string_to(sheaf_json_scan *scan, char *to, size_t *size);
/* sheaf__scan_count - a whole number that fits 64 bits without sign. */
sheaf_status *sheaf__scan_count(sheaf_json_scan *scan, uint64_t *out);
/* sheaf__scan_number - any number: *whole says that it has neither fraction nor exponent, and is
 * then in *integer; otherwise it is in *real, finite. A whole number that *integer cannot hold is
 * in *real too, and must be a double's, digit by digit, but in a line: whole numbers of
 * records are hashes that serve as names. */
sheaf_status *sheaf__scan_number(sheaf_json_scan *scan, bool *whole, int64_t *integer,
                                 double *real);
/* sheaf__scan_word - consumes `word` ("true", "null") if it comes next. */
bool sheaf__scan_word(sheaf_json_scan *scan, const char *word);
/* sheaf__scan_skip - any value, checked. `depth` is how deep it lies; 127 levels are the most. */
sheaf_status *sheaf__scan_skip(sheaf_json_scan *scan, int depth);
/* sheaf__scan_end - nothing but blanks is left. */
sheaf_status *sheaf__scan_end(sheaf_json_scan *scan);

/* sheaf__scan_next_key - walks an object whose '{' was taken: *more says whether a key came (then
 * the scan stands before its value). `first` is true on the first call. */
sheaf_status *sheaf__scan_next_key(sheaf_json_scan *scan, bool first, bool *more, char **key);
/* sheaf__scan_next_key_to - the same; the key as sheaf__scan_string_to() gives it. */
sheaf_status *sheaf__scan_next_key_to(sheaf_json_scan *scan, bool first, bool *more, char *to,
                                      size_t *size);
/* sheaf__scan_next_item - the same for a list whose '[' was taken. */
sheaf_status *sheaf__scan_next_item(sheaf_json_scan *scan, bool first, bool *more);
