/* status.h - what our own code adds to sheaf/status.h: the next step of several, and the failure
 * of an allocation. */
#pragma once

#include "base/spell.h"
#include "sheaf/status.h"

/* TRY - the next step of several: `call` runs, and its status lands in `st`, unless a step before
 * it failed.
 *
 *     sheaf_status *st = sheaf__file_open(&file, path);
 *     TRY(st, read_header(&header, file));
 *     TRY(st, read_rows(rows, file, &header));
 *
 * A macro, as a function would evaluate `call` in any case. It never returns from the function that
 * it stands in. */
#define TRY(st, ...) ((st) = (st) != NULL ? (st) : (__VA_ARGS__))

/* sheaf__no_memory - SHEAF_E_MEMORY at `what`: what the memory was for, or a path. */
static inline sheaf_status *sheaf__no_memory(const char *what)
{
    return sheaf_fail(SHEAF_E_MEMORY, "%s", what);
}

/* sheaf__first_of - of two steps that were both taken, `then` after `first`: the failure to pass
 * on; the other one is freed. */
static inline sheaf_status *sheaf__first_of(sheaf_status *first, sheaf_status *then)
{
    if (first == NULL)
        return then;
    sheaf_status_free(then);
    return first;
}

/* sheaf__only_memory - passes a lack of memory on; any other failure is freed. */
static inline sheaf_status *sheaf__only_memory(sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* sheaf__found_errno - sheaf_found() with strerror(error); sheaf_status_errno() gives `error`. */
sheaf_status *sheaf__found_errno(sheaf_status *st, int error);

/* sheaf__replaced - `text` with `to` in the place of each `from` (malloc'd); NULL: no memory. */
char *sheaf__replaced(const char *text, const char *from, const char *to);
/* sheaf__status_replace - does so in the four answers of a status; NULL stays NULL. */
void sheaf__status_replace(sheaf_status *st, const char *from, const char *to);
/* sheaf__status_spell - spells the fields in the four answers; gives `st` back, NULL or not. */
sheaf_status *sheaf__status_spell(sheaf_status *st, sheaf__is_key *is_key);
