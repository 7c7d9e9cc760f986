/* schema_cog.h - the tensors of CogVLM and CogAgent, as SAT names them. */
#ifndef SHEAF_SCHEMA_SCHEMA_COG_H
#define SHEAF_SCHEMA_SCHEMA_COG_H

#include "sheaf/schema.h"

/* How SAT divides a tensor over the N parts of a checkpoint. Each holds, of each of `parts` equal
 * blocks of the axis, its N-th, in order of the blocks. A fact of the name alone, whatever the
 * sizes. */
typedef struct sheaf_sat_rule {
    int axis, parts; /* parts 0: every part has a copy */
    bool table;      /* SAT's embedding: divided from 1000 rows on, else copied */
    bool buffer;
    bool tower; /* CogAgent's alone: the high-resolution tower and the second table of positions */
    bool cross; /* of cross-attention */
} sheaf_sat_rule;

/* sheaf__sat_rule_of - false when neither model has a tensor of this name. */
bool sheaf__sat_rule_of(sheaf_sat_rule *out, const char *name);

/* sheaf__schema_cog - fills tensor, count and by_name of a schema whose config and slices are set.
 * On failure the caller frees what there is. Errors: SHEAF_E_LAYOUT, SHEAF_E_MEMORY. */
sheaf_status *sheaf__schema_cog(sheaf_schema *schema);

#endif
