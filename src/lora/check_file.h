/* check_file.h - is an adapter complete by itself? Checks that need the base model are the
 * caller's. */
#pragma once

#include "base/events.h"
#include "lora/adapter.h"

/* sheaf_lora_check_file - the options name every tensor, and its dtype is supported; A and B are
 * both there, of the rank in the options; magnitudes with DoRA, biases and rows where the options
 * name these; every number is finite, except in PEFT's copies of the base. Reads all of the adapter
 * once. Every command that takes an adapter calls it.
 *   adapter  names as sheaf__peft_name() spells them
 * Errors: SHEAF_E_LAYOUT, SHEAF_E_UNSUPPORTED (types), SHEAF_E_NUMBER. */
sheaf_status *sheaf_lora_check_file(const sheaf_lora_options *options, sheaf_source *adapter);

/* Called with an error of a tensor and verify's code for it; frees `wrong`. A returned status ends
 * the check. */
typedef sheaf_status *sheaf_lora_report(void *self, const char *code, const char *tensor,
                                        sheaf_status *wrong);
/* sheaf_lora_check_parts - the same without the numbers, and reports every error. Reads no
 * values. */
sheaf_status *sheaf_lora_check_parts(const sheaf_lora_options *options, sheaf_source *adapter,
                                     sheaf_lora_report *report, void *self);
/* sheaf_lora_check_alone - checks for want of a base: a target without a module in the adapter, a
 * module that one layer lacks and the next one has. Entries ascend by name. */
sheaf_status *sheaf_lora_check_alone(const sheaf_lora_options *options, sheaf_source *adapter,
                                     sheaf_lora_report *report, void *self);

/* sheaf_lora_check_modules - n adapters of one base, without the base: if one has a module and
 * another's options name it, that one must have it too (SHEAF_E_LAYOUT, in path[i]). Layers that
 * differ give a warning only, as some models have such layers. */
sheaf_status *sheaf_lora_check_modules(const sheaf_lora_options *options,
                                       sheaf_source *const *adapters, const char *const *paths,
                                       int n, const sheaf_events *events);

/* sheaf__lora_check_type - SHEAF_E_UNSUPPORTED unless F32, BF16 or F16. */
sheaf_status *sheaf__lora_check_type(const sheaf_source_entry *entry);
/* sheaf__lora_find_part - the tensor PATH + end; NULL: none. Takes no memory: of names that
 * are too long for it an adapter is refused by the checks above. */
const sheaf_source_entry *sheaf__lora_find_part(sheaf_source *adapter, const char *path,
                                                size_t length, const char *end);
/* sheaf__lora_asks_whole - do the options save this tensor of the base in full? */
bool sheaf__lora_asks_whole(const sheaf_lora_options *options, const char *name);
/* sheaf_lora_missing - the status for a missing tensor PATH + end. */
sheaf_status *sheaf_lora_missing(const char *path, size_t length, const char *end);
