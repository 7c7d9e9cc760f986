/* hf.h - Hugging Face model folders: config.json, model.safetensors or shards with an index.
 *
 * Every tensor is whole in one file; nothing is divided. sheaf__open() opens such folders,
 * sheaf_hf_check() checks that the tensors are the model's, except those that can be computed. */
#pragma once

#include "base/events.h"
#include "dialects/common/model_folder.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf_hf_check - does the source have exactly the tensors of the schema, with their shapes, in
 * float32, bfloat16 or float16? A stored tied head must equal the table, which is compared. json:
 * the config's text, to say which number in it is wrong; NULL: the message leaves it out. Errors:
 * SHEAF_E_LAYOUT; says when it looks like one part of a divided model. */
sheaf_status *sheaf_hf_check(sheaf_source *source, const sheaf_schema *schema, const char *json);

/* sheaf_hf_compute - adds the buffers of `schema` that `*source` lacks (tables of positions), with
 * the values of the published files, in the dtype of the embedding table. The new source owns and
 * closes the old one; on failure *source is unchanged. Does not keep `schema`; notes each name.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_hf_compute(sheaf_source **source, const sheaf_schema *schema,
                               const sheaf_events *events);
