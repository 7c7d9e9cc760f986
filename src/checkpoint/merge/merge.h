/* merge.h - a base model and LoRA adapters become one model.
 *
 * W' = round(fp32(W) + s * D), D = B A as an ascending chain of fused multiply-adds in
 * float32, s rounded to float32, one rounding to the output dtype; with DoRA, magnitudes,
 * trained biases, rows and modules as PEFT's merge_and_unload() has them (docs/merge.md).
 * The base may be any model: what an adapter names is found by name. Tensors stream
 * through in tiles; what is held does not grow with the model or its largest tensor. */
#pragma once

#include "base/control.h"
#include "lora/combine.h"
#include "lora/delta.h"
#include "sheaf/checkpoint.h"

enum { SHEAF_MERGE_ADAPTERS = 64 }; /* the most */

/* sheaf_merge - sheaf_weights_merge() of what are no runs, by one thread where options->threads is
 * 0; with options->combine one weight for each adapter is needed. */
sheaf_status *sheaf_merge(sheaf_weights_merge_report *report,
                          const sheaf_weights_merge_options *options);

/* sheaf_merge_check_base - is an adapter given in the base's place? SHEAF_E_UNSUPPORTED with the
 * line that was meant; sheaf_merge() asks it. */
sheaf_status *sheaf_merge_check_base(const sheaf_weights_merge_options *options);

/* sheaf_merge_fits - does sheaf_merge() find a place in the base for all of the adapter, and all
 * that its config asks for? The status is what it would fail with. *held is false where the base
 * cannot be opened. */
sheaf_status *sheaf_merge_fits(bool *held, const char *base, const char *adapter);

/* sheaf_merge_adapters - only the combined adapter, as a PEFT folder at dst. Uses adapters,
 * combine, weights, dst, events and stop. */
sheaf_status *sheaf_merge_adapters(const sheaf_weights_merge_options *options);
