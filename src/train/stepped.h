/* stepped.h - a model as it was after a step: the base, with what a checkpoint's masters say in
 * place of its tensors. */
#pragma once

#include "ops/kernels.h"
#include "sheaf/source.h"

/* sheaf__stepped_source - names, shapes and dtypes are the base's, and so is every tensor that has
 * no master; a master is rounded to the dtype in which the base stores the tensor, as in the model
 * that a run leaves.
 *
 *   masters  "master/NAME", which may be flat: of a tensor with more than two axes only the order
 *            of its numbers counts. Both sources are borrowed until the new one is closed. Other
 *            tensors in it (moments) are passed over
 * Errors: SHEAF_E_LAYOUT for a master that the base has no tensor for, or one of another size. */
sheaf_status *sheaf__stepped_source(sheaf_source **out, sheaf_source *masters, sheaf_source *base);

/* sheaf__source_numbers - n numbers from number `first` on of a tensor of `source`, in its order,
 * as `dtype`. */
sheaf_status *sheaf__source_numbers(void *dst, sheaf_dtype dtype, sheaf_source *source,
                                    const sheaf_source_entry *entry, int64_t first, int64_t n,
                                    const sheaf__kernels *kernels);
