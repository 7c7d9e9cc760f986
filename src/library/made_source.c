/* made_source.c - see made_source.h. */
#include "library/made_source.h"

#include <stdlib.h>

#include "catalog/boxes.h"
#include "checkpoint/tools/init.h"
#include "ops/kernels.h"
#include "schema/family.h"

enum { PERIOD = 8191, PART = 256 }; /* a prime, so that rows differ */

typedef struct made {
    sheaf_source source;
    const sheaf_schema *schema;
    const sheaf__kernels *kernels;
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

/* Elements [first, first + n) of a tensor, at most PART. */
static void make(const made *m, float *out, const sheaf_tensor *t, int64_t first, int64_t n)
{
    if (t->bias || t->zero || t->buffer || sheaf__is_norm(t->role))
        sheaf__init_values(out, t, &m->schema->config, 1, first, n);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = m->value[(first + i) % PERIOD];
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const made *m = (const made *)self;
    const sheaf_tensor *t = sheaf_schema_find(m->schema, name);
    const sheaf_source_entry *e = find(self, name);
    const size_t bytes = sheaf_dtype_bytes(e->dtype);
    const int64_t width = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    float part[PART];
    char *to = dst;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0, n; c < cols; c += n, to += (size_t)n * bytes) {
            n = cols - c < PART ? cols - c : PART;
            make(m, part, t, (row0 + r) * width + col0 + c, n);
            m->kernels->round(to, e->dtype, part, n);
        }
    return NULL;
}

static void close_made(sheaf_source *self)
{
    free(((made *)self)->entry);
    free(self);
}

sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema)
{
    const sheaf_dtype stored = schema->config.dtype;
    made *m = calloc(1, sizeof *m);
    if (m == NULL || (m->entry = calloc((size_t)schema->count + 1, sizeof *m->entry)) == NULL) {
        free(m);
        return sheaf_fail(SHEAF_E_MEMORY, "made-up weights");
    }
    m->source = (sheaf_source){ find, count, entry, read_box, close_made };
    m->schema = schema;
    m->kernels = sheaf__kernels_for(NULL);
    uint32_t state = 1;
    for (int i = 0; i < PERIOD; i++) { /* between -0.03 and 0.03 */
        state = state * 1664525u + 1013904223u;
        m->value[i] = 0.06f * ((float)(state >> 8) / 16777216.0f - 0.5f);
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        sheaf_source_entry *e = &m->entry[i];
        e->name = t->name;
        e->dtype = stored == SHEAF_BF16 || stored == SHEAF_F16 ? stored : SHEAF_F32;
        e->ndim = t->ndim;
        for (int a = 0; a < t->ndim; a++)
            e->shape[a] = t->shape[a];
    }
    *out = &m->source;
    return NULL;
}
