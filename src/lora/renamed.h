/* renamed.h - adapters that name the tensors of their base otherwise than the base does: with the
 * names that an older or a newer transformers gives the model, with a prefix more or less, with the
 * names of the model's other form, or of the text model inside.
 *
 * Every command that takes an adapter calls one of these first, so that all take the same ones;
 * what comes after knows the base's names alone. */
#pragma once

#include "lora/adapter.h"
#include "schema/family.h"

/* sheaf__lora_rename - finds the one rule that explains all names of the adapter, and gives options
 * and tensors the names of the base; a note says which. Without such a rule both stay.
 *   options  targets, patterns and modules to save become paths of single modules where they would
 *            mean others of the base's
 *   adapter  names as sheaf__peft_name() spells them; afterwards a source that owns it, or the same
 *   path     of the adapter, for notes
 *   base     all tensors of the base
 * Errors: SHEAF_E_MEMORY, and SHEAF_E_ARG for an invalid expression in the options. */
sheaf_status *sheaf__lora_rename(sheaf_lora_options *options, sheaf_source **adapter,
                                 const char *path, const sheaf__tensor_names *base,
                                 const sheaf_events *events);
/* sheaf__lora_rename_for - the same for a model of this config, and SHEAF_E_LAYOUT where
 * factors of the adapter are for modules that it lacks: the adapter is another model's. */
sheaf_status *sheaf__lora_rename_for(sheaf_lora_options *options, sheaf_source **adapter,
                                     const char *path, const sheaf_config *config,
                                     const sheaf_events *events);
