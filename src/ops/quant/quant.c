/* quant.c - see quant.h. */
#include "ops/quant/quant.h"

#include <stddef.h>

#include "sheaf/source.h"

const char *sheaf__codes_name(sheaf__codes codes)
{
#define KIND(id, name, ...) name,
    static const char *const names[SHEAF__CODES] = { SHEAF__KINDS_OF_CODES(KIND) };
#undef KIND
    return names[codes];
}

/* The source that has the codes of a tensor, and its name there; NULL: it is plain. */
static sheaf_source *owner(sheaf_source *source, const char **name)
{
    while (source != NULL && source->quantised != NULL && source->quantised->behind != NULL)
        source = source->quantised->behind(source, name);
    return source == NULL || source->quantised == NULL ? NULL : source;
}

const sheaf__quant *sheaf__source_held(sheaf_source *source, const char *name)
{
    sheaf_source *of = owner(source, &name);
    return of == NULL ? NULL : of->quantised->form(of, name);
}

const sheaf__quant *sheaf__source_form(sheaf_source *source, const char *name)
{
    const sheaf__quant *held = sheaf__source_held(source, name);
    return held == NULL || held->blocks ? NULL : held;
}

sheaf_status *sheaf__source_codes(sheaf_source *source, const char *name, int64_t row0,
                                  int64_t rows, int64_t col0, int64_t cols,
                                  const sheaf__quant_parts *to)
{
    sheaf_source *of = owner(source, &name);
    return of->quantised->read(of, name, row0, rows, col0, cols, to);
}

sheaf_status *sheaf__source_whole(sheaf_source *source, const char *name, sheaf__quant_whole *to)
{
    sheaf_source *of = owner(source, &name);
    return of->quantised->whole(of, name, to);
}
