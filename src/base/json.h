/* json.h - JSON objects that people and other programs wrote: bounded loading, and
 * reading of single keys with errors that name key, expected and found.
 *
 * Duplicate keys, text that is not UTF-8, and depth or size over the limits are
 * refused. Values are jansson's json_t, which this room does not hide; the text is read by
 * json_scan.c, because jansson's reader drops characters when memory runs out, as its writer does.
 */
#pragma once

#include <jansson.h>
#include <math.h>

#include "base/base.h"
#include "base/json_scan.h"
#include "sheaf/status.h"

#define SHEAF_JSON_MAX_DEPTH 64
#define SHEAF_JSON_MAX_BYTES (64u << 20)

/* sheaf__json_load - *out is new (json_decref). Errors: SHEAF_E_IO; SHEAF_E_FORMAT with
 * file, line and column; a top level that is not an object is one too. */
sheaf_status *sheaf__json_load(json_t **out, const char *path);
/* sheaf__json_parse - the same from memory; errors say "line L, column C". */
sheaf_status *sheaf__json_parse(json_t **out, const char *text, size_t size);

/* sheaf__json_parse_line - any value, from one line of JSON Lines. Strings (not keys) may contain
 * NUL, so their size is json_string_length(). Errors: SHEAF_E_DATA that names the column. */
sheaf_status *sheaf__json_parse_line(json_t **out, const char *text, size_t size);
/* sheaf__json_parse_value - any value, the next one of a scan. Errors: SHEAF_E_FORMAT with the
 * place in the scanned text. */
sheaf_status *sheaf__json_parse_value(json_t **out, sheaf_json_scan *scan);
/* sheaf__json_text - any value as text (malloc'd) that reads back as the same; `flags` are those of
 * json_dumps(), which, when memory runs out, may leave something out and report success. At most
 * SHEAF_JSON_MAX_DEPTH levels. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__json_text(char **out, const json_t *value, size_t flags);

/* Reads keys of one object. The first failure is kept in `st`; after it every
 * function returns its `absent` value, so a caller reads all keys and checks once. */
typedef struct sheaf_json_reader {
    const json_t *object;
    const char *inside; /* "rope_scaling." before key names in messages, or NULL */
    sheaf_status *st;   /* owned by the caller */
} sheaf_json_reader;

/* An absent key (or null) gives `absent`; SHEAF_JSON_NEEDED makes that an error. */
#define SHEAF_JSON_NEEDED INT64_MIN
#define SHEAF_JSON_NEEDED_REAL (-HUGE_VAL)

/* A whole number in [min, max]: 1.0, true and "1" are refused. */
int64_t sheaf__json_int(sheaf_json_reader *r, const char *key, int64_t min, int64_t max,
                        int64_t absent);
/* A finite number in [min, max]; whole numbers are numbers too. */
double sheaf__json_real(sheaf_json_reader *r, const char *key, double min, double max,
                        double absent);
bool sheaf__json_bool(sheaf_json_reader *r, const char *key, bool absent);
/* Borrowed from the object; NULL when absent or null. */
const char *sheaf__json_string(sheaf_json_reader *r, const char *key);
/* The list or object under `key`, borrowed; NULL when absent or null. */
const json_t *sheaf__json_list(sheaf_json_reader *r, const char *key);
const json_t *sheaf__json_object(sheaf_json_reader *r, const char *key);

/* sheaf__json_fail - keeps "'key'" with `expected` and what is there as r->st and returns
 * it, for more lines; unless an earlier failure is kept already: then NULL. */
sheaf_status *sheaf__json_fail(sheaf_json_reader *r, sheaf_code code, const char *key,
                               const char *expected, ...) SHEAF_PRINTF(4, 5);
/* sheaf__json_show - `value` in a few words for a message: `1.5`, `"abc" (a string)`. */
const char *sheaf__json_show(char buffer[96], const json_t *value);
