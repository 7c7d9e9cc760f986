/* made_source.c - see made_source.h. */
#include "library/made_source.h"

#include <stdlib.h>
#include <string.h>

#include "catalog/boxes.h"
#include "base/status.h"

enum { PERIOD = 8191 }; /* a prime, so that rows differ */

typedef struct made {
    sheaf_source source;
    const sheaf_schema *schema;
    sheaf_source_entry *entry;
    float value[PERIOD];
} made;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const made *m = (const made *)self;
    const sheaf_tensor *t = sheaf_schema_find(m->schema, name);
    return t == NULL ? NULL : &m->entry[t - m->schema->tensor];
}

static int64_t count(sheaf_source *self)
{
    return ((made *)self)->schema->count;
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return &((made *)self)->entry[i];
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const made *m = (const made *)self;
    const sheaf_tensor *t = sheaf_schema_find(m->schema, name);
    const int64_t width = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    float *to = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++)
            *to++ = m->value[(r * width + c) % PERIOD];
    return NULL;
}

static void close_made(sheaf_source *self)
{
    free(((made *)self)->entry);
    free(self);
}

sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema)
{
    made *m = calloc(1, sizeof *m);
    if (m == NULL || (m->entry = calloc((size_t)schema->count + 1, sizeof *m->entry)) == NULL) {
        free(m);
        return sheaf__no_memory("made-up weights");
    }
    m->source = (sheaf_source){ find, count, entry, read_box, close_made };
    m->schema = schema;
    uint32_t state = 1;
    for (int i = 0; i < PERIOD; i++) { /* between -0.03 and 0.03 */
        state = state * 1664525u + 1013904223u;
        m->value[i] = 0.06f * ((float)(state >> 8) / 16777216.0f - 0.5f);
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        m->entry[i] = (sheaf_source_entry){ .name = t->name, .dtype = SHEAF_F32, .ndim = t->ndim };
        memcpy(m->entry[i].shape, t->shape, sizeof t->shape);
    }
    *out = &m->source;
    return NULL;
}
