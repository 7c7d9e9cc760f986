/* forms.h - which tensors of a base are quantised, and how, where its weights are not opened: for
 * plans. */
#pragma once

#include "ops/quant/quant.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf__forms_new - a source that answers sheaf__source_form() and nothing else: the tensors that
 * `chosen` names, which is called now, have this form. `schema` is borrowed. */
sheaf_status *sheaf__forms_new(sheaf_source **out, const sheaf_schema *schema,
                               const sheaf__quant *quant,
                               bool (*chosen)(void *self, const char *name), void *self);
