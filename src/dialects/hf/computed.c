/* computed.c - tables of positions that files may lack, because they can be computed. */
#include "base/base.h"
#include "dialects/hf/hf.h"

#include "catalog/over_source.h"
#include "ops/kernels.h"
#include "schema/family.h"

enum { PART = 256 }; /* numbers made at once */

typedef struct computed {
    sheaf__over_source over; /* first; its own tensors are the buffers that the files lack */
    sheaf_config config;     /* owns nothing: sizes for the family's formula */
    const sheaf__kernels *kernels;
    sheaf_tensor *tensor; /* of each own tensor */
} computed;

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const computed *x = (const computed *)self;
    const int64_t i = sheaf__over_find(&x->over, name);
    if (i < 0)
        return x->over.under->read(x->over.under, name, row0, rows, col0, cols, dst);
    const sheaf_source_entry *e = &x->over.own[i];
    const sheaf__family *family = sheaf__family_for(&x->config);
    const int64_t width = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
    float part[PART];
    char *to = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = 0, n; c < cols; c += n, to += (size_t)n * sheaf_dtype_bytes(e->dtype)) {
            n = cols - c < PART ? cols - c : PART;
            for (int64_t k = 0; k < n; k++)
                part[k] = family->buffer(&x->tensor[i], &x->config, r * width + col0 + c + k);
            x->kernels->round(to, e->dtype, part, n);
        }
    return NULL;
}

static void release(sheaf__over_source *self)
{
    free(((computed *)self)->tensor);
}

/* The dtype of the embedding table, as that of the tensors saved with it. */
static sheaf_dtype stored_as(sheaf_source *files, const sheaf__family *family)
{
    const sheaf_source_entry *table = files->find(files, family->table);
    const bool half = table != NULL && (table->dtype == SHEAF_BF16 || table->dtype == SHEAF_F16);
    return half ? table->dtype : SHEAF_F32;
}

static sheaf_status *add(computed *x, const sheaf_tensor *t, sheaf_dtype dtype)
{
    sheaf_source_entry e = { .dtype = dtype, .ndim = t->ndim };
    const int64_t i = x->over.count;
    for (int a = 0; a < t->ndim; a++)
        e.shape[a] = t->shape[a];
    sheaf_status *st = sheaf__over_add(&x->over, strdup(t->name), e);
    if (st != NULL)
        return st;
    x->tensor[i] = *t;
    x->tensor[i].name = (char *)x->over.own[i].name;
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
    const int64_t most = buffers(schema);
    if (most == 0 || family->buffer == NULL)
        return NULL;
    computed *x = sheaf__over_new(sizeof *x, files, most, read_box, release);
    if (x == NULL)
        return sheaf__no_memory("tables of positions");
    x->over.beside = true;
    x->config = schema->config;
    x->kernels = sheaf__kernels_for(NULL);
    x->tensor = calloc((size_t)most, sizeof *x->tensor);
    sheaf_status *st = x->tensor == NULL ? sheaf__no_memory("tables of positions") : NULL;
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!t->buffer || files->find(files, t->name) != NULL)
            continue;
        st = add(x, t, stored_as(files, family));
        if (st == NULL)
            sheaf_note(events, "'%s' is not in the files: computed, as a new model has it",
                       t->name);
    }
    if (st == NULL && x->over.count > 0)
        *source = &x->over.source;
    else
        sheaf__over_free(x);
    return st;
}
