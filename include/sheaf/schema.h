/* schema.h - the undivided tensors of a model and how each falls into slices, from its config
 * alone. What rank owns which slices is owner.h's business; rows of a slice: sheaf_cut_rows(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sheaf/cut.h"
#include "sheaf/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_schema sheaf_schema;

#define SHEAF_TENSOR_MAX_DIMS 5 /* a convolution over the frames of a video has as many */

typedef struct sheaf_tensor_facts {
    size_t size;
    const char *name; /* canonical: Hugging Face's; of CogVLM and CogAgent SAT's. Borrowed */
    int layer;        /* of its own stack; -1 outside layers */
    int ndim;
    int64_t shape[SHEAF_TENSOR_MAX_DIMS]; /* 1 from ndim on */
    sheaf_cut cut;                        /* nparts 0: every rank holds all of it */
} sheaf_tensor_facts;

/* sheaf_schema_read - of the model that a config.json, or SAT's model_config.json, describes;
 * slices is a power of two. Errors: those of reading; SHEAF_E_LAYOUT when the config contradicts
 * itself; SHEAF_E_UNSUPPORTED for a model that sheaf does not know. */
SHEAF_API sheaf_status *sheaf_schema_read(sheaf_schema **out, const char *config, int slices);
/* sheaf_schema_free - accepts NULL. */
SHEAF_API void sheaf_schema_free(sheaf_schema *schema);
/* Tensors by number from 0, in the order of the model. Errors of _tensor: SHEAF_E_ARG. */
SHEAF_API int64_t sheaf_schema_count(const sheaf_schema *schema);
SHEAF_API sheaf_status *sheaf_schema_tensor(sheaf_tensor_facts *facts, const sheaf_schema *schema,
                                            int64_t index);

#ifdef __cplusplus
}
#endif
