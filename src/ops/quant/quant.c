/* quant.c - see quant.h. */
#include "ops/quant/quant.h"

#include <stddef.h>

#include "sheaf/source.h"

const sheaf__quant *sheaf__source_form(sheaf_source *source, const char *name)
{
    return source->quantised == NULL ? NULL : source->quantised->form(source, name);
}
