/* synthetic.c - see synthetic.h. */
#include "tests/ranks/synthetic.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

typedef struct synthetic {
    sheaf_source source;
    int64_t count;
    sheaf_source_entry *entry;
} synthetic;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const synthetic *s = (const synthetic *)self;
    for (int64_t i = 0; i < s->count; i++)
        if (strcmp(s->entry[i].name, name) == 0)
            return &s->entry[i];
    return NULL;
}

static int64_t count(sheaf_source *self)
{
    return ((synthetic *)self)->count;
}
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return &((synthetic *)self)->entry[i];
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const sheaf_source_entry *e = find(self, name);
    const uint64_t key = sheaf__name_key(name);
    const int64_t width = e->ndim == 1 ? 1 : e->shape[1];
    const float base = strstr(name, "norm") != NULL || strstr(name, "magnitude") != NULL ? 1 : 0;
    float *x = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++) {
            /* one philox call for a number would dominate large tests: mix cheaply instead */
            uint64_t h = key + (uint64_t)(r * width + c) * 0x9e3779b97f4a7c15u;
            h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
            h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
            *x++ = base + 0.1f * (sheaf__unit_float((uint32_t)(h >> 32)) - 0.5f);
        }
    return NULL;
}

static void close_source(sheaf_source *self)
{
    free(((synthetic *)self)->entry);
    free(self);
}

sheaf_source *synthetic_source(const sheaf_schema *schema, const sheaf_lora *lora)
{
    synthetic *s = calloc(1, sizeof *s);
    const int64_t modules = lora == NULL ? 0 : lora->nmodules;
    s->source = (sheaf_source){ find, count, entry, read_box, close_source };
    s->entry = calloc((size_t)(schema->count + 3 * modules), sizeof *s->entry);
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        s->entry[s->count++] =
            (sheaf_source_entry){ t->name, SHEAF_F32, t->ndim, { t->shape[0], t->shape[1] } };
    }
    for (int64_t i = 0; i < modules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const int64_t *a = m->a_shape, *b = m->b_shape;
        s->entry[s->count++] = (sheaf_source_entry){ m->a_name, SHEAF_F32, 2, { a[0], a[1] } };
        s->entry[s->count++] = (sheaf_source_entry){ m->b_name, SHEAF_F32, 2, { b[0], b[1] } };
        if (m->m_name != NULL)
            s->entry[s->count++] = (sheaf_source_entry){ m->m_name, SHEAF_F32, 1, { b[0] } };
    }
    return &s->source;
}
