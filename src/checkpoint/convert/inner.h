/* inner.h - a conversion under way: what convert.c has read and write.c writes.
 *
 * The catalog belongs to the converter until a source is made of it; `source` is closed, and all
 * else freed, by sheaf_convert() at its end, whatever a writer returned. */
#pragma once

#include <stdatomic.h>

#include "checkpoint/convert/copy.h"
#include "catalog/catalog.h"
#include "schema/schema.h"

enum { SHEAF__CONVERT_SLICES = 8 }; /* where --slices does not say */

typedef struct sheaf__converter {
    const sheaf_weights_convert_options *o;
    sheaf_weights_convert_report *report;
    sheaf_catalog *catalog;       /* until a source owns it */
    char *root, *config;          /* of the catalog, which may be gone */
    const sheaf_dialect *dialect; /* of the catalog */
    char *model;                  /* NULL = not recognised */
    int64_t step;
    int64_t lora_rank; /* of the adapter; 0 = none */
    bool has_config;   /* `parsed` and `schema` are there */
    sheaf_config parsed;
    sheaf_schema *schema;
    sheaf_source *source; /* weights and buffers, in the wanted dtype, and moments where wanted */
    int64_t nweights, nmoments; /* of these */
    _Atomic int64_t done;
    int64_t total;
} sheaf__converter;

sheaf_status *sheaf__convert_no_memory(const sheaf__converter *k);
/* sheaf__convert_count - adds the tensors of k->source to the report. */
void sheaf__convert_count(sheaf__converter *k);
/* sheaf__convert_inside - k->source: PEFT's LoRA of a checkpoint of the whole model, under the
 * names that an adapter has; k->config: its adapter_config.json, found beside the checkpoint or
 * made of
 * --lora-alpha, names and shapes. */
sheaf_status *sheaf__convert_inside(sheaf__converter *k);

/* The writers of the targets. Each makes the output whole or leaves none. */
sheaf_status *sheaf__convert_to_hf(sheaf__converter *k);
sheaf_status *sheaf__convert_to_sat(sheaf__converter *k);
sheaf_status *sheaf__convert_to_sheaf(sheaf__converter *k);
sheaf_status *sheaf__convert_to_peft(sheaf__converter *k);

/* sheaf__convert_cast - k->source: `inner` (owned from now on, also after a failure) in the dtype
 * that is asked for. */
static inline sheaf_status *sheaf__convert_cast(sheaf__converter *k, sheaf_source *inner)
{
    return sheaf__cast_source(&k->source, inner, k->o->dtype == SHEAF_BOOL ? NULL : &k->o->dtype,
                              k->config);
}
