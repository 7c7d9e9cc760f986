/* load.h - rotary tables, and a model's owned slices from a source. */
#ifndef SHEAF_MODELS_LOAD_H
#define SHEAF_MODELS_LOAD_H

#include "models/build.h"

/* sheaf__rope_fill - cos and sin of every position, rounded to dtype. */
void sheaf__rope_fill(sheaf__rope_table *table, const sheaf_config *config,
                      const sheaf__kernels *kernels, sheaf_dtype dtype);

#endif
