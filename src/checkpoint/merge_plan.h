/* merge_plan.h - what each tensor of a merged model is made of. No values move here. */
#ifndef SHEAF_CHECKPOINT_MERGE_PLAN_H
#define SHEAF_CHECKPOINT_MERGE_PLAN_H

#include "checkpoint/merge_rows.h"
#include "dialects/hf.h"

typedef struct sheaf__merge_plan {
    sheaf_config config;       /* of the base */
    sheaf_schema *schema;      /* of the output; untied when the adapter names a tied table */
    sheaf_lora *lora;
    sheaf_source *base, *adapter;
    bool was_tied;
    int64_t count;             /* tensors of the schema */
    sheaf__merge_tensor *tensor;
    sheaf_safetensors_spec *specs; /* one for each, in the same order */
    int64_t most_elements, most_rank; /* of a chunk: elements, rows * rank */
} sheaf__merge_plan;

/* sheaf__merge_plan_open - reads configs and headers, matches everything with everything.
 * Errors as sheaf_merge(). */
sheaf_status *sheaf__merge_plan_open(sheaf__merge_plan *plan, const sheaf_merge_options *options);
void sheaf__merge_plan_close(sheaf__merge_plan *plan);

#endif
