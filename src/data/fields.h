/* fields.h - records whose fields have other names: "question=prompt,answer=completion" reads a
 * record's "question" as its "prompt". Keys of messages (role, content, from, value, weight) apply
 * inside its lists: "speaker=from,text=value". */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "sheaf/status.h"

enum { SHEAF__MOST_FIELDS = 16 };

typedef struct sheaf__fields {
    struct {
        char *from;     /* owned */
        const char *to; /* the name that the readers use */
        bool inside;    /* a key of messages in a list */
    } of[SHEAF__MOST_FIELDS];
    int n;
} sheaf__fields;

/* sheaf__fields_read - parses a list of THEIRS=OURS; NULL or empty: no renames. Release also after
 * a failure. Errors: SHEAF_E_ARG for another form, and for a name that no reader has. */
sheaf_status *sheaf__fields_read(sheaf__fields *out, const char *list);
void sheaf__fields_release(sheaf__fields *fields);
/* sheaf__fields_apply - renames a record's fields to the readers' names. fields NULL: no renames.
 * Errors: SHEAF_E_DATA where the new name exists already. Thread-safe. */
sheaf_status *sheaf__fields_apply(const sheaf__fields *fields, json_t *record);
