/* fields.h - records whose fields have other names: "question=prompt,answer=completion" reads a
 * record's "question" as its "prompt". The words of messages (role, content, from, value, weight)
 * are those of the entries of its lists: "speaker=from,text=value". */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "sheaf/status.h"

enum { SHEAF__MOST_FIELDS = 16 };

typedef struct sheaf__fields {
    struct {
        char *from;     /* owned */
        const char *to; /* as the readers of records have it */
        bool inside;    /* of the entries of a list */
    } of[SHEAF__MOST_FIELDS];
    int n;
} sheaf__fields;

/* sheaf__fields_read - of a list of THEIRS=OURS; NULL or empty: none. Release also after a failure.
 * Errors: SHEAF_E_ARG for what is no such list, and for a name that no reader has. */
sheaf_status *sheaf__fields_read(sheaf__fields *out, const char *list);
void sheaf__fields_release(sheaf__fields *fields);
/* sheaf__fields_apply - gives a record's fields the names that are read. fields NULL: none has
 * another. Errors: SHEAF_E_DATA where one of that name is there already. Thread-safe. */
sheaf_status *sheaf__fields_apply(const sheaf__fields *fields, json_t *record);
