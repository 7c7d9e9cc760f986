/* computed.c - tables of positions that files may lack, because they can be computed. */
#include "dialects/hf/hf.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "ops/kernels.h"
#include "schema/family.h"

enum { PART = 256 }; /* numbers made at once */

typedef struct table {
    sheaf_tensor tensor;
    sheaf_source_entry entry;
    char *name;
} table;

typedef struct computed {
    sheaf_source source;
    sheaf_source *files;
    sheaf_config config; /* owns nothing: sizes for the family's formula */
    const sheaf__kernels *kernels;
    table *table; /* room for every buffer of the schema */
    int64_t count;
} computed;

static int64_t at(const computed *x, const char *name)
{
    int64_t i = 0;
    while (i < x->count && strcmp(x->table[i].name, name) != 0)
        i++;
    return i;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const computed *x = (const computed *)self;
    const int64_t i = at(x, name);
    return i < x->count ? &x->table[i].entry : x->files->find(x->files, name);
}

static int64_t count(sheaf_source *self)
{
    const computed *x = (const computed *)self;
    return x->files->count(x->files) + x->count;
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    const computed *x = (const computed *)self;
    const int64_t files = x->files->count(x->files);
    return i < files ? x->files->entry(x->files, i) : &x->table[i - files].entry;
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const computed *x = (const computed *)self;
    const int64_t i = at(x, name);
    if (i == x->count)
        return x->files->read(x->files, name, row0, rows, col0, cols, dst);
    const sheaf_source_entry *e = &x->table[i].entry;
    const sheaf__family *family = sheaf__family_for(&x->config);
    const int64_t width = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
    float part[PART];
    char *to = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = 0, n; c < cols; c += n, to += (size_t)n * sheaf_dtype_bytes(e->dtype)) {
            n = cols - c < PART ? cols - c : PART;
            for (int64_t k = 0; k < n; k++)
                part[k] = family->buffer(&x->table[i].tensor, &x->config, r * width + col0 + c + k);
            x->kernels->round(to, e->dtype, part, n);
        }
    return NULL;
}

static void release(computed *x)
{
    for (int64_t i = 0; i < x->count; i++)
        free(x->table[i].name);
    free(x->table);
    free(x);
}

static void close_computed(sheaf_source *self)
{
    computed *x = (computed *)self;
    x->files->close(x->files);
    release(x);
}

/* The type of the table of embeddings: that of what was saved with it. */
static sheaf_dtype stored_as(sheaf_source *files, const sheaf__family *family)
{
    const sheaf_source_entry *table = files->find(files, family->table);
    const bool half = table != NULL && (table->dtype == SHEAF_BF16 || table->dtype == SHEAF_F16);
    return half ? table->dtype : SHEAF_F32;
}

static sheaf_status *add(computed *x, const sheaf_tensor *t, sheaf_dtype dtype)
{
    char *name = strdup(t->name);
    if (name == NULL)
        return sheaf__no_memory(t->name);
    table *to = &x->table[x->count++];
    *to = (table){ *t, { .name = name, .dtype = dtype, .ndim = t->ndim }, name };
    to->tensor.name = name;
    for (int a = 0; a < t->ndim; a++)
        to->entry.shape[a] = t->shape[a];
    return NULL;
}

static int64_t buffers(const sheaf_schema *schema)
{
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++)
        n += schema->tensor[i].buffer;
    return n;
}

sheaf_status *sheaf_hf_compute(sheaf_source **source, const sheaf_schema *schema,
                               const sheaf_events *events)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    sheaf_source *files = *source;
    sheaf_status *st = NULL;
    const int64_t most = buffers(schema);
    if (most == 0 || family->buffer == NULL)
        return NULL;
    computed *x = calloc(1, sizeof *x);
    table *room = calloc((size_t)most, sizeof *room);
    if (x == NULL || room == NULL) {
        free(x);
        free(room);
        return sheaf__no_memory("tables of positions");
    }
    *x = (computed){ { find, count, entry, read_box, close_computed },
                     files,
                     schema->config,
                     .kernels = sheaf__kernels_for(NULL),
                     .table = room };
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!t->buffer || files->find(files, t->name) != NULL)
            continue;
        st = add(x, t, stored_as(files, family));
        if (st == NULL)
            sheaf_note(events, "'%s' is not in the files: computed, as a new model has it",
                       t->name);
    }
    if (st == NULL && x->count > 0)
        *source = &x->source;
    else
        release(x);
    return st;
}
