/* lora.h - the LoRA in an unmerged SAT checkpoint: merged into its weights, or as a PEFT adapter.
 *
 * Part p of the rows of an adapted weight gets scale * B_p A_p, scale = 1 / rank (lora_alpha is
 * always 1). Each model-parallel rank k merges its own slice of the weight with its own factors. If
 * the factor that is not cut differs by rank, rank k uses A_pk for the rows of its slice (weights
 * divided along their output), or B_k for the columns of its slice (along their input). The
 * equivalent adapter has one A and one B, of
 *     parts * rank                  rows of A_p one under the other, B_p on the diagonal
 *     parts * ways * rank           the same for each slice, where factors differ by rank
 * and alpha chosen so that alpha / its rank is 1 / rank. */
#pragma once

#include "catalog/catalog.h"
#include "sheaf/source.h"

typedef struct sheaf_sat_lora_linear {
    char *name; /* X; its weight is X.weight */
    int64_t out, in;
    int axis, parts;      /* axis that SAT divides; parts of the rows, each with its own A and B */
    bool apart;           /* factors that should be copies differ between ranks */
    int64_t adapter_rank; /* of the exact adapter */
    sheaf_dtype dtype;    /* of the factors */
} sheaf_sat_lora_linear;

typedef struct sheaf_sat_lora {
    const sheaf_catalog *catalog; /* borrowed */
    int ways;
    int64_t rank;
    float scale;
    int64_t count;
    sheaf_sat_lora_linear *linear; /* by name */
} sheaf_sat_lora;

/* sheaf_sat_lora_open - from a catalog of SAT's dialect. Without adapted layers count is 0. Errors:
 * SHEAF_E_LAYOUT when factors are missing, have wrong shapes, or another rank than lora_rank in the
 * config; SHEAF_E_UNSUPPORTED for dtypes without arithmetic. */
sheaf_status *sheaf_sat_lora_open(sheaf_sat_lora **out, const sheaf_catalog *catalog);
void sheaf_sat_lora_free(sheaf_sat_lora *lora);
/* sheaf_sat_merged - weights and buffers of the catalog with LoRA merged as they are read, with the
 * roundings of SAT's merge_lora. Takes ownership of the catalog, also on failure. Errors: those of
 * sheaf__catalog_source() and sheaf_sat_lora_open(). */
sheaf_status *sheaf_sat_merged(sheaf_source **out, sheaf_catalog *catalog);

/* sheaf_sat_adapter - base_model.model.X.lora_A.weight and .lora_B.weight of each layer, in the
 * order of lora->linear. The source borrows `lora`. Errors: SHEAF_E_LAYOUT when there is no
 * LoRA. */
sheaf_status *sheaf_sat_adapter(sheaf_source **out, const sheaf_sat_lora *lora);
/* sheaf_sat_adapter_config - adapter_config.json for it (malloc'd). */
sheaf_status *sheaf_sat_adapter_config(char **out, const sheaf_sat_lora *lora);
