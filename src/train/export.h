/* export.h - what a finished run leaves for others: a PEFT adapter or a Hugging Face model. */
#ifndef SHEAF_TRAIN_EXPORT_H
#define SHEAF_TRAIN_EXPORT_H

#include "models/open.h"
#include "train/options.h"

/* sheaf__export - reads the masters from the checkpoint of `step` in options->out, tensor by
 * tensor in bounded memory, and writes OUT/adapter or OUT/model (replaced as a whole if there).
 *   result, checkpoint  out: the two folders' paths, malloc'd
 * A full model keeps each tensor's stored dtype; an adapter is float32, as PEFT saves it. */
sheaf_status *sheaf__export(char **result, char **checkpoint, const sheaf_train_options *options,
                            const sheaf__opened *opened, int64_t step, const sheaf_events *events);

/* sheaf__export_adapter - the adapter alone. Masters are named "master/NAME", those of saved tensors by the base's name, and
 * may be flat: of a tensor with more than two axes only the order of its numbers counts. B of fused layers is compact there and
 * spread here. A saved tensor that has no master is the base's. */
sheaf_status *sheaf__export_adapter(const char *dst, const sheaf_lora *lora, const char *model, sheaf_source *masters, sheaf_source *base);

#endif
