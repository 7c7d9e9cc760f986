/* partition.h - how tensor-parallel programs divide the tensors of the Llama family: as the schema
 * cuts them, by name where there is no config. */
#pragma once

#include "schema/schema.h"

/* sheaf__partition_new - the rows of one layer and of the tensors outside of layers, with every
 * bias that the family may have and an untied head.
 *   sizes  hidden, ffn, heads, kv_heads and head_dim; NULL if only the axes of cuts are needed
 * Free with sheaf_schema_free(). Errors: SHEAF_E_LAYOUT for sizes that contradict each other. */
sheaf_status *sheaf__partition_new(sheaf_schema **out, const sheaf_config *sizes);

/* sheaf__partition_find - the row whose module and kind a name ends with ("q_proj.weight"), for any
 * layer and prefix; NULL: none. */
const sheaf_tensor *sheaf__partition_find(const sheaf_schema *rows, const char *name);
