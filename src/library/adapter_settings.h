/* adapter_settings.h - LoRA's settings of a run that starts from an adapter, whose config decides.
 */
#pragma once

#include "library/settings.h"
#include "train/options.h"

/* sheaf__adapter_settings - of a new run with --adapter: what a flag says of LoRA must be so in the
 * adapter, by what it means for this model; events hear of a recipe's lines, which are passed over.
 * Rank, alpha, dropout, rslora and bias that neither says become the adapter's, so that the
 * settings of the run are true. Other lists stay unset: the adapter holds them. Nothing where there
 * is no adapter, or the model or the adapter cannot be read: whoever opens them says why.
 * Errors: SHEAF_E_ARG with the flag. */
sheaf_status *sheaf__adapter_settings(const sheaf__settings *state, const sheaf__setting *table,
                                      sheaf_train_options *options, const sheaf_events *events);
