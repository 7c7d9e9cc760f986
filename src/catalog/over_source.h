/* over_source.h - a source over another one, with tensors of its own beside those of the other or
 * in place of some. */
#pragma once

#include <stdbool.h>

#include "sheaf/source.h"

typedef struct sheaf__over_source {
    sheaf_source source;     /* first; its maker sets read and close */
    sheaf_source *under;     /* NULL: it has its own tensors alone */
    sheaf_source_entry *own; /* few, or sorted; names are released with it */
    int64_t count;
    bool beside; /* they are more than `under` has; else each takes the place of one */
    bool sorted; /* by name: sheaf__over_sort() */
} sheaf__over_source;

/* sheaf__over_init - `s` is all zero but for `under`; there is space for `most` tensors in s->own.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__over_init(sheaf__over_source *s, int64_t most);
/* sheaf__over_find - the number of one of its own; -1: it is none. */
int64_t sheaf__over_find(const sheaf__over_source *s, const char *name);
/* sheaf__over_add - takes the name, which was allocated: NULL for want of memory. */
sheaf_status *sheaf__over_add(sheaf__over_source *s, char *name, sheaf_source_entry entry);
/* sheaf__over_sort - after the last was added: they are found by bisection. */
void sheaf__over_sort(sheaf__over_source *s);
/* sheaf__over_release - what it owns, without `under`. */
void sheaf__over_release(sheaf__over_source *s);
