/* check_file.h - is an adapter whole by itself? What needs a base model to be seen is the
 * caller's. */
#pragma once

#include "base/events.h"
#include "lora/adapter.h"

/* sheaf_lora_check_file - every tensor is one that the options ask for, of a type that is computed
 * with; A and B are there both, of the rank the options say; magnitudes where there is DoRA, biases
 * and rows where the options ask for these; every number is finite, but of PEFT's copies of the
 * base. Reads all of the adapter once. Every command that takes an adapter calls it.
 *   adapter  names as sheaf__peft_name() spells them
 * Errors: SHEAF_E_LAYOUT, SHEAF_E_UNSUPPORTED (types), SHEAF_E_NUMBER. */
sheaf_status *sheaf_lora_check_file(const sheaf_lora_options *options, sheaf_source *adapter);

/* Gets what is wrong with a tensor, by the code that verify has for it; frees `wrong`. A status it
 * returns ends the check. */
typedef sheaf_status *sheaf_lora_report(void *self, const char *code, const char *tensor,
                                        sheaf_status *wrong);
/* sheaf_lora_check_parts - the same but for the numbers, and all that is wrong. Reads no values. */
sheaf_status *sheaf_lora_check_parts(const sheaf_lora_options *options, sheaf_source *adapter,
                                     sheaf_lora_report *report, void *self);
/* sheaf_lora_check_alone - what a base would tell better: a target that no module of the adapter
 * is, a module that a layer lacks though its neighbour has it in the same place. Entries ascend by
 * name. */
sheaf_status *sheaf_lora_check_alone(const sheaf_lora_options *options, sheaf_source *adapter,
                                     sheaf_lora_report *report, void *self);

/* sheaf_lora_check_modules - n adapters of one base, without the base: a module that one of them
 * has and another's options ask for must be in that one too (SHEAF_E_LAYOUT, in path[i]). Layers
 * that differ are warned of: there are models like that. */
sheaf_status *sheaf_lora_check_modules(const sheaf_lora_options *options,
                                       sheaf_source *const *adapters, const char *const *paths,
                                       int n, const sheaf_events *events);

/* sheaf__lora_check_values - is every number finite, but for PEFT's copies of the base? Of types
 * that are computed with. Errors: SHEAF_E_NUMBER; SHEAF_E_UNSUPPORTED for a last axis that is too
 * long. */
sheaf_status *sheaf__lora_check_values(sheaf_source *adapter);

/* sheaf__lora_check_type - SHEAF_E_UNSUPPORTED for another than F32, BF16 and F16. */
sheaf_status *sheaf__lora_check_type(const sheaf_source_entry *entry);
/* sheaf__lora_find_part - the tensor of module PATH that ends so; NULL: none. */
const sheaf_source_entry *sheaf__lora_find_part(sheaf_source *adapter, const char *path,
                                                size_t length, const char *end);
/* sheaf__lora_asks_whole - do the options ask for this tensor of the base as a whole? */
bool sheaf__lora_asks_whole(const sheaf_lora_options *options, const char *name);
/* sheaf_lora_missing - the status that PATH + end is not in the adapter. */
sheaf_status *sheaf_lora_missing(const char *path, size_t length, const char *end);
