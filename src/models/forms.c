/* forms.c - see forms.h. */
#include "models/forms.h"

#include "base/base.h"

typedef struct forms {
    sheaf_source source; /* first */
    const sheaf_schema *schema;
    sheaf__quant quant;
    bool chosen[]; /* by number in the schema */
} forms;

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    const forms *f = (const forms *)self;
    const sheaf_tensor *t = sheaf_schema_find(f->schema, name);
    return t != NULL && f->chosen[t - f->schema->tensor] ? &f->quant : NULL;
}

static const sheaf__quantised_source quantised = { .form = form };

static void close_forms(sheaf_source *self)
{
    free(self);
}

sheaf_status *sheaf__forms_new(sheaf_source **out, const sheaf_schema *schema,
                               const sheaf__quant *quant,
                               bool (*chosen)(void *self, const char *name), void *self)
{
    forms *f = calloc(1, sizeof *f + (size_t)schema->count * sizeof *f->chosen);
    if (f == NULL)
        return sheaf__no_memory("plan");
    f->source.close = close_forms;
    f->source.quantised = &quantised;
    f->schema = schema;
    f->quant = *quant;
    for (int64_t i = 0; i < schema->count; i++)
        f->chosen[i] = chosen(self, schema->tensor[i].name);
    *out = &f->source;
    return NULL;
}
