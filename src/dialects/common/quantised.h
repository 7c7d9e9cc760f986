/* quantised.h - are a checkpoint's weights quantized, whatever its config says? */
#pragma once

#include "catalog/catalog.h"

/* sheaf__catalog_stale_quantization - removes a quantization_config from the catalog's config, with
 * a warning "conflict", if the weights are floats without scales (other than those of a KV
 * cache). */
sheaf_status *sheaf__catalog_stale_quantization(sheaf_catalog *catalog);

/* The tensors of a source whose dtype must not change: packed numbers with their scales, tables and
 * zero points. None in a source without quantized weights. */
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
