/* init.h - a new model with random weights.
 *
 * Matrices, tables and vectors are normal(0, initializer_range), norms one, biases zero,
 * computed in float32 and rounded once. For CogVLM and CogAgent the buffers (frequencies, tables of
 * angles) are those that SAT computes, and the positions added behind a tower are zero, as
 * upstream; initializer_range is SAT's init_method_std. Each number is a function of (seed, tensor
 * name, logical index) alone: not of threads, of dtype, or of the other tensors. */
#pragma once

#include <stdint.h>

#include "schema/family.h"
#include "sheaf/checkpoint.h"

/* sheaf_init - sheaf_weights_init(), by one thread where options->threads is 0. */
sheaf_status *sheaf_init(sheaf_weights_init_report *report,
                         const sheaf_weights_init_options *options);

/* sheaf__init_spec_at - the i-th built-in name; NULL after the last. */
const sheaf__family_spec *sheaf__init_spec_at(int i);
/* sheaf__init_config - the config.json of a built-in name (malloc'd); *out is NULL for another
 * name. */
sheaf_status *sheaf__init_config(char **out, const char *name);
