/* over_source.h - a source over another one, with tensors of its own beside those of the other or
 * in place of some. */
#pragma once

#include <stdbool.h>

#include "sheaf/source.h"

typedef struct sheaf__over_source sheaf__over_source;
struct sheaf__over_source {
    sheaf_source source;     /* first */
    sheaf_source *under;     /* NULL: it has its own tensors alone */
    sheaf_source_entry *own; /* in the order in which they were added; names are released with it */
    int64_t count;
    bool beside; /* they are more than `under` has; else each takes the place of one */
    bool alone;  /* of `under` no tensor is shown: own ones are read from it in some way */
    bool sorted; /* sheaf__over_sort() was called */
    struct sheaf__over_name {
        const char *name;
        int64_t at;                            /* in `own` */
    } * by_name;                               /* once they are sorted */
    void (*release)(sheaf__over_source *self); /* of what its maker's struct owns; or NULL */
};

/* sheaf__over_new - all zero, in `size` bytes: a struct of its maker's that begins with it. There
 * is space for `most` tensors in s->own. `read` is sheaf_source's. The source's close() closes
 * `under`, too. NULL: no memory. */
void *sheaf__over_new(size_t size, sheaf_source *under, int64_t most,
                      sheaf_status *(*read)(sheaf_source *self, const char *name, int64_t row0,
                                            int64_t rows, int64_t col0, int64_t cols, void *dst),
                      void (*release)(sheaf__over_source *self));
/* sheaf__over_free - leaves `under` open. Accepts NULL. */
void sheaf__over_free(void *over);
/* sheaf__over_end - *out is the source; or where `st` is a failure, which it returns, the source is
 * freed and *out stays. */
sheaf_status *sheaf__over_end(sheaf_source **out, void *over, sheaf_status *st);
/* sheaf__over_init - of one that lies in its maker's struct: `s` is all zero but for `under`.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__over_init(sheaf__over_source *s, int64_t most);
/* sheaf__over_find - the number of one of its own; -1: it is none. */
int64_t sheaf__over_find(const sheaf__over_source *s, const char *name);
/* sheaf__over_add - takes the name, which was allocated: NULL for want of memory. */
sheaf_status *sheaf__over_add(sheaf__over_source *s, char *name, sheaf_source_entry entry);
/* sheaf__over_sort - after the last was added: they are found by bisection, and where no other is
 * shown listed by name. */
void sheaf__over_sort(sheaf__over_source *s);
/* sheaf__over_release - what sheaf__over_init() and _add() made. */
void sheaf__over_release(sheaf__over_source *s);

/* ---- tensors by other names ---- */

typedef struct sheaf__renamed_source {
    sheaf__over_source over; /* first; all tensors are its own */
    const char **stored;     /* of each its name in `under` */
} sheaf__renamed_source;

/* sheaf__renamed_new - of at most so many tensors of `under`, for sheaf__over_free() or _end().
 * NULL: no memory. */
sheaf__renamed_source *sheaf__renamed_new(sheaf_source *under, int64_t most);
/* sheaf__renamed_add - a tensor of `under` by this name, which was allocated: NULL for want of
 * memory. */
sheaf_status *sheaf__renamed_add(sheaf__renamed_source *s, char *name,
                                 const sheaf_source_entry *stored);
