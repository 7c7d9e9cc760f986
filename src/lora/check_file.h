/* check_file.h - is an adapter whole by itself? What needs a base model to be seen is the
 * caller's. */
#ifndef SHEAF_LORA_CHECK_FILE_H
#define SHEAF_LORA_CHECK_FILE_H

#include "base/events.h"
#include "lora/adapter.h"

/* sheaf_lora_check_file - every tensor is one that the options ask for, of a type that is computed
 * with; A and B are there both, of the rank the options say; magnitudes where there is DoRA; every
 * number is finite, but of PEFT's copies of the base. Reads all of the adapter once. Every command
 * that takes an adapter for merging, combining or converting calls it.
 *   adapter  names as sheaf__peft_name() spells them
 * Errors: SHEAF_E_LAYOUT, SHEAF_E_UNSUPPORTED (types), SHEAF_E_NUMBER. */
sheaf_status *sheaf_lora_check_file(const sheaf_lora_options *options, sheaf_source *adapter);

/* sheaf_lora_check_modules - n adapters of one base, without the base: a module that one of them
 * has and another's options ask for must be in that one too (SHEAF_E_LAYOUT, in path[i]). A layer
 * that lacks a module, or has it in another shape than its fellows, is warned of: there are models
 * like that. */
sheaf_status *sheaf_lora_check_modules(const sheaf_lora_options *options,
                                       sheaf_source *const *adapters, const char *const *paths,
                                       int n, const sheaf_events *events);

/* sheaf_lora_missing - the status that PATH + end is not in the adapter. */
sheaf_status *sheaf_lora_missing(const char *path, size_t length, const char *end);

#endif
