/* schema_cog.h - the tensors of CogVLM and CogAgent, as SAT names them. */
#ifndef SHEAF_SCHEMA_SCHEMA_COG_H
#define SHEAF_SCHEMA_SCHEMA_COG_H

#include "sheaf/schema.h"

/* sheaf__schema_cog - fills tensor, count and by_name of a schema whose config and slices are set.
 * On failure the caller frees what there is. Errors: SHEAF_E_LAYOUT, SHEAF_E_MEMORY. */
sheaf_status *sheaf__schema_cog(sheaf_schema *schema);

#endif
