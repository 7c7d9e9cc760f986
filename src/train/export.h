/* export.h - the result of a run: a PEFT adapter or a Hugging Face model. */
#pragma once

#include "dialects/hf/chat_files.h"
#include "models/open.h"
#include "ops/kernels.h"
#include "sheaf/source.h"
#include "train/options.h"

/* sheaf__export - reads the masters from the checkpoint of step `from` in options->out, tensor by
 * tensor in bounded memory, and writes OUT/adapter or OUT/model (atomically replaced if it exists).
 *   result, checkpoint  out: paths of that folder and of the checkpoint of `step`, malloc'd
 * A full model keeps each tensor's stored dtype; an adapter is float32, as PEFT saves it. */
sheaf_status *sheaf__export(char **result, char **checkpoint, const sheaf_train_options *options,
                            const sheaf__opened *opened, int64_t step, int64_t from,
                            const sheaf_events *events);

/* sheaf__export_step - the same form at OUT/exports/step-N, from the checkpoint of that step.
 * `only_missing`: an existing one stays. */
sheaf_status *sheaf__export_step(const sheaf_train_options *options, const sheaf__opened *opened,
                                 int64_t step, bool only_missing, const sheaf_events *events);

/* sheaf__export_adapter - the adapter alone; `replace` false: dst must not exist, or be an empty
 * folder. Masters are named "master/NAME", those of saved tensors by the base's name, and may be
 * flat: for a tensor with more than two axes only the order of its numbers counts. B of fused
 * layers is compact in masters and expanded in the file. A saved tensor without a master comes from
 * `base`, the initial weights. The file has the fingerprint of the base from the checkpoint's
 * `progress` (train/origin.h). `tokenizer`: a folder whose tokenizer is to lie beside it; NULL. */
sheaf_status *sheaf__export_adapter(const char *dst, bool replace, const sheaf_lora *lora,
                                    const char *model, sheaf_source *masters, sheaf_source *base,
                                    const char *progress, const char *tokenizer,
                                    const sheaf__chat_files *chat);

/* sheaf__export_model - the model of methods head and full: opened->base with tensors replaced by
 * the masters of the checkpoint. The other files are copied from the folder `model`. */
sheaf_status *sheaf__export_model(const char *dst, bool replace, const sheaf__opened *opened,
                                  const char *model, sheaf_source *masters,
                                  const sheaf__chat_files *chat);

/* ---- the model after a step ---- */

/* sheaf__stepped_source - the base with tensors replaced by their masters, rounded to the dtype in
 * which the base stores them, as in the result of a run.
 *
 *   masters  "master/NAME", which may be flat, as above; other tensors in it (moments) are ignored.
 *            Both sources are borrowed until the new one is closed
 * Errors: SHEAF_E_LAYOUT for a master without a tensor of its size in the base. */
sheaf_status *sheaf__stepped_source(sheaf_source **out, sheaf_source *masters, sheaf_source *base);
