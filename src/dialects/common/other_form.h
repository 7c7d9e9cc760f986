/* other_form.h - a model in the other of its family's two forms: SAT's, or that of the hub. */
#pragma once

#include "schema/family.h"
#include "sheaf/source.h"

/* sheaf__translate - tensors and config in that form.
 *   source  in, out: owned, also after a failure; its tensors are those of the schema
 *   schema  in, out: replaced by that of the other form
 *   config  in, out: the text (malloc'd)
 *   parsed  in, out: the same, read
 * A table that one form has several times and the other once must be the same each time. Errors:
 * SHEAF_E_LAYOUT where it is not; those of the family, for a model without that form. */
sheaf_status *sheaf__translate(sheaf_source **source, sheaf_schema **schema, char **config,
                               sheaf_config *parsed);
