/* made_source.h - made-up weights of any model: as many bytes and as ordinary numbers as real ones
 * have, for whoever measures how long a step takes. */
#ifndef SHEAF_LIBRARY_MADE_SOURCE_H
#define SHEAF_LIBRARY_MADE_SOURCE_H

#include "sheaf/schema.h"
#include "sheaf/source.h"

/* sheaf__made_source - in the type that the config names; `schema` is borrowed. Norms are those of
 * a new model, biases zero. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema);

#endif
