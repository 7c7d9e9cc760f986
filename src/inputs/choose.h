/* choose.h - which tokenizer and which prompt template a model's texts are read with, where a user
 * may name them and may leave it to the model. */
#pragma once

#include <stdbool.h>

#include "base/events.h"
#include "inputs/sentencepiece.h"
#include "inputs/template.h"
#include "schema/config.h"

/* sheaf__choose_tokenizer - the file `given`, else tokenizer.model in the model's `folder` (each
 * may be NULL or empty). *out NULL when there is neither. Errors: those of
 * sheaf__sentencepiece_open(); SHEAF_E_LAYOUT for more pieces than the model has rows. */
sheaf_status *sheaf__choose_tokenizer(sheaf__sentencepiece **out, const char *given,
                                      const char *folder, const sheaf_config *config);
/* sheaf__choose_template - the one `given` by name (NULL or empty: none), else the config's
 * text_processor_version, else base. *from_model: the config named it. `events` (may be NULL) are
 * warned of a version that is no template here. Errors: SHEAF_E_ARG for a name given that is none;
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__choose_template(sheaf__template *out, bool *from_model, const char *given,
                                     const sheaf_config *config, const sheaf_events *events);
