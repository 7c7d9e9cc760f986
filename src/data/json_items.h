/* json_items.h - the records of a file, one after the other: lines of JSON Lines, or entries of one
 * JSON array.
 *
 * The file may be packed (byte_source.h). Only one record is held at a time. The first character
 * that is no blank decides between the forms; a byte order mark before it is skipped. The text of a
 * record is delimited here, not checked: its parser does that. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "data/byte_source.h"
#include "data/fields.h"
#include "sheaf/status.h"

/* The most bytes of a record. */
#define SHEAF__RECORD_MAX ((size_t)64 << 20)

typedef struct sheaf__json_items {
    const char *path; /* borrowed */
    const char *unit; /* "line" or "entry" */
    int64_t place;    /* of the record in that unit, from 1 */
    const char *text; /* of the record, until the next one; not ended by NUL */
    size_t size;
    sheaf__byte_source source;
    char *buffer;
    size_t capacity;
    int64_t line, column; /* of the last character */
    bool array, ended;
    sheaf_status *failed; /* failure to read the file */
} sheaf__json_items;

/* sheaf__json_items_open - errors (with the path before): SHEAF_E_IO, SHEAF_E_FORMAT for a file
 * that is not text. Close also after a failure. */
sheaf_status *sheaf__json_items_open(sheaf__json_items *out, const char *path);
/* sheaf__json_items_next - *more false at the end. Errors (with the path): SHEAF_E_FORMAT naming
 * the line when the array itself is broken, a record is larger than SHEAF__RECORD_MAX, or a packed
 * file is damaged; SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__json_items_next(bool *more, sheaf__json_items *items);
void sheaf__json_items_close(sheaf__json_items *items);

/* sheaf__record_parse - a record's text as JSON (json_decref). Drops fields that are null, which
 * tables have where a column is empty. All readers of records use it, so that training, evaluation
 * and generation agree. Errors: those of sheaf__json_parse_line() and sheaf__fields_apply(). */
sheaf_status *sheaf__record_parse(json_t **out, const char *text, size_t size,
                                  const sheaf__fields *fields);
/* sheaf__record_tidy - only drops the null fields, from a parsed record; before anything borrows
 * from it. */
void sheaf__record_tidy(json_t *record);
