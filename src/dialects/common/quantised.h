/* quantised.h - are a checkpoint's weights quantized, whatever its config says? */
#ifndef SHEAF_DIALECTS_COMMON_QUANTISED_H
#define SHEAF_DIALECTS_COMMON_QUANTISED_H

#include "catalog/catalog.h"

/* sheaf__catalog_stale_quantization - a quantization_config over weights in floats is taken out of
 * the catalog's config, with a warning "conflict". */
sheaf_status *sheaf__catalog_stale_quantization(sheaf_catalog *catalog);

/* sheaf__keeps_dtype - of a source with quantized weights: would the tensor mean something else in
 * another type? Those that hold packed numbers, and what they are read with: scales, tables, zero
 * points. False of all tensors of other sources. */
typedef struct sheaf__quantised {
    char **module; /* of each packed tensor, sorted; owned */
    int64_t count;
    bool any;
} sheaf__quantised;

/* sheaf__quantised_find - free with sheaf__quantised_release(). `config` may be NULL. */
sheaf_status *sheaf__quantised_find(sheaf__quantised *out, sheaf_source *source,
                                    const char *config);
bool sheaf__quantised_keeps(const sheaf__quantised *q, const char *name);
void sheaf__quantised_release(sheaf__quantised *q);

#endif
