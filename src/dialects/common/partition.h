/* partition.h - how tensor-parallel programs divide the tensors of the Llama family: as the schema
 * cuts them, asked by name where no config says which model it is. */
#pragma once

#include "schema/schema.h"

/* sheaf__partition_new - the rows of one layer and of what lies around the layers, with every bias
 * that a model of the family may have and a head of its own.
 *   sizes  hidden, ffn, heads, kv_heads and head_dim; NULL where the axis of a cut is all that is
 *          asked for
 * Free with sheaf_schema_free(). Errors: SHEAF_E_LAYOUT for sizes that contradict each other. */
sheaf_status *sheaf__partition_new(sheaf_schema **out, const sheaf_config *sizes);

/* sheaf__partition_find - the row whose module and kind a name ends with ("q_proj.weight"),
 * whatever layer it is of and whatever a program puts before it; NULL: none has such an end. */
const sheaf_tensor *sheaf__partition_find(const sheaf_schema *rows, const char *name);
