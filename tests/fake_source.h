/* fake_source.h - for tests: tensors that lie in memory, or nowhere, under names and shapes of the
 * test's own. */
#pragma once

#include <string.h>

#include "sheaf/source.h"

enum { FAKE_MOST = 256 };

/* read and close are the test's, or NULL where nothing calls them. */
typedef struct fake_source {
    sheaf_source source;
    int n;
    sheaf_source_entry entry[FAKE_MOST];
} fake_source;

/* -1: there is none. */
static inline int fake_index(const fake_source *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->entry[i].name, name) == 0)
            return i;
    return -1;
}

static inline const sheaf_source_entry *fake_find(sheaf_source *self, const char *name)
{
    const int i = fake_index((fake_source *)self, name);
    return i < 0 ? NULL : &((fake_source *)self)->entry[i];
}

static inline int64_t fake_count(sheaf_source *self)
{
    return ((fake_source *)self)->n;
}

static inline const sheaf_source_entry *fake_entry(sheaf_source *self, int64_t i)
{
    return &((fake_source *)self)->entry[i];
}
