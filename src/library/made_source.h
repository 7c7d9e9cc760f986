/* made_source.h - made-up weights of any model, as ordinary numbers as real ones, to measure its
 * speed. */
#pragma once

#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf__made_source - in float32; `schema` is borrowed. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema);
