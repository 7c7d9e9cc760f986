/* options.h - making sheaf_lora_options from words, and copying them. */
#pragma once

#include "lora/adapter.h"

/* PEFT's defaults: rank 8, alpha 8, nothing targeted. Never fails today. */
sheaf_status *sheaf__lora_options_default(sheaf_lora_options *out);
sheaf_status *sheaf__lora_options_copy(sheaf_lora_options *out, const sheaf_lora_options *from);

/* Each takes the text of a flag, in place of what was there; NULL or "" names nothing. A text with
 * one of \ * + ? ( ) [ ] { } | ^ $ is a regular expression, anything else a comma list. Errors:
 * SHEAF_E_ARG. */
sheaf_status *sheaf__lora_set_targets(sheaf_lora_options *out,
                                      const char *text); /* or "all-linear", "sat", "sat-vit" */
sheaf_status *sheaf__lora_set_exclude(sheaf_lora_options *out, const char *text);
sheaf_status *sheaf__lora_set_layers(sheaf_lora_options *out, const char *text); /* "0,2" */
sheaf_status *sheaf__lora_set_saved(sheaf_lora_options *out, const char *text);
/* "PATTERN=VALUE,PATTERN=VALUE"; a comma inside a pattern is fine. `whole`: ranks. */
sheaf_status *sheaf__lora_set_pattern(sheaf_patterns *out, const char *text, bool whole);
