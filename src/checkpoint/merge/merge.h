/* merge.h - merges a base model and LoRA adapters into one model.
 *
 * W' = round(fp32(W) + s * D), D = B A as an ascending chain of fused multiply-adds in
 * float32, s rounded to float32, one rounding to the output dtype; with DoRA, magnitudes,
 * trained biases, rows and modules as PEFT's merge_and_unload() has them (docs/merge.md).
 * The base may be any model: tensors are found by name. They stream through in tiles; the memory
 * does not grow with the model or its largest tensor. */
#pragma once

#include "base/control.h"
#include "lora/combine.h"
#include "lora/delta.h"
#include "sheaf/checkpoint.h"

enum { SHEAF_MERGE_ADAPTERS = 64 }; /* at most */

/* sheaf_merge - sheaf_weights_merge() for inputs that are not runs; options->threads 0 means one
 * thread; with options->combine, one weight for each adapter. */
sheaf_status *sheaf_merge(sheaf_weights_merge_report *report,
                          const sheaf_weights_merge_options *options);

/* sheaf_merge_check_base - is an adapter given in place of the base? SHEAF_E_UNSUPPORTED with the
 * intended command line; sheaf_merge() calls it. */
sheaf_status *sheaf_merge_check_base(const sheaf_weights_merge_options *options);

/* sheaf_merge_fits - does all of the adapter match the base, and has it all that its config
 * requires? Returns the status that sheaf_merge() would fail with. *held is false if the base
 * cannot be opened. */
sheaf_status *sheaf_merge_fits(bool *held, const char *base, const char *adapter);

/* sheaf_merge_adapters - writes only the combined adapter, as a PEFT folder at dst. Reads adapters,
 * combine, weights, dst, events and stop. */
sheaf_status *sheaf_merge_adapters(const sheaf_weights_merge_options *options);
