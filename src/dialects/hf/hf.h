/* hf.h - Hugging Face model folders: config.json, model.safetensors or shards with an index.
 *
 * Every tensor is whole in one file; nothing is divided. sheaf__open() opens such folders,
 * sheaf_hf_check() proves that the tensors are the model's, but for those that can be computed. */
#pragma once

#include "base/events.h"
#include "dialects/common/model_folder.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf_hf_check - has the source exactly the tensors of the schema, with their shapes, in float32,
 * bfloat16 or float16? A tied head that is stored too must equal the table (it is read to
 * compare); its values are then those of the table.
 * Errors: SHEAF_E_LAYOUT; says when it looks like one part of a divided model. */
sheaf_status *sheaf_hf_check(sheaf_source *source, const sheaf_schema *schema);

/* sheaf_hf_compute - has `*source` give the buffers of `schema` too that it lacks (tables of
 * positions), as the files of the same model hold them, in the type of its table of embeddings.
 * Where it lacks none nothing changes. Takes the source, which the new one closes; on failure it
 * stays the caller's. `schema` is not kept; each name is an event. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_hf_compute(sheaf_source **source, const sheaf_schema *schema,
                               const sheaf_events *events);
