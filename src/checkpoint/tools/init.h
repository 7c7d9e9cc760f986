/* init.h - a new model with random weights.
 *
 * Matrices, tables and vectors are normal(0, initializer_range), norms one, biases zero,
 * computed in float32 and rounded once. Of CogVLM and CogAgent the buffers (frequencies, tables of
 * angles) are what SAT computes, and the positions that are added behind a tower begin as zero, as
 * upstream; initializer_range is SAT's init_method_std. Each number is a function of (seed, tensor
 * name, logical index) alone: not of threads, of dtype, or of the other tensors. */
#ifndef SHEAF_CHECKPOINT_TOOLS_INIT_H
#define SHEAF_CHECKPOINT_TOOLS_INIT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/events.h"
#include "schema/family.h"

typedef struct sheaf_init_options {
    const char *spec; /* path of a config.json or SAT's model_config.json, a folder with one, or one
                         of sheaf__init_spec_at() */
    const char *dst;  /* must not exist; becomes a Hugging Face folder */
    uint64_t seed;
    const sheaf_dtype *dtype; /* F32, BF16 or F16; NULL = what the config says */
    int threads;              /* 0 = one */
    const sheaf_events *events;
    const atomic_int *stop; /* not 0: stop soon, leaving nothing; may be NULL */
} sheaf_init_options;

typedef struct sheaf_init_report {
    int64_t tensors, parameters, bytes;
    sheaf_dtype dtype;
} sheaf_init_report;

/* sheaf_init - errors: SHEAF_E_ARG for an unknown name (nearest offered) or a dst that
 * exists; those of sheaf_config_read(); SHEAF_E_STOPPED. On failure nothing is left at dst. */
sheaf_status *sheaf_init(sheaf_init_report *report, const sheaf_init_options *options);

/* sheaf__init_values - numbers [first, first + n) of a tensor, in the order of its memory. */
void sheaf__init_values(float *out, const sheaf_tensor *tensor, const sheaf_config *config,
                        uint64_t seed, int64_t first, int64_t n);

/* sheaf__init_spec_at - the i-th built-in name; NULL behind the last. */
const sheaf__family_spec *sheaf__init_spec_at(int i);
/* sheaf__init_config - the config.json of a built-in name (malloc'd), NULL in *out if there
 * is none of that name. */
sheaf_status *sheaf__init_config(char **out, const char *name);

#endif
