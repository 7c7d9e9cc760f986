/* output.h - where a merged model goes: a Hugging Face folder, or the parts of SAT. */
#pragma once

#include "checkpoint/merge/plan.h"
#include "dialects/common/folder.h"
#include "dialects/sat/write.h"

/* All zero is none. */
typedef struct sheaf__merge_output {
    sheaf_folder *folder;
    sheaf_sat_writer *sat;
    int64_t *index; /* SAT's number of each tensor of the plan */
} sheaf__merge_output;

/* sheaf__merge_output_begin - after sheaf__merge_plan_finish(). config: of the merged model; NULL:
 * there is none. */
sheaf_status *sheaf__merge_output_begin(sheaf__merge_output *out, const sheaf__merge_plan *plan,
                                        const char *config,
                                        const sheaf_weights_merge_options *options);
/* sheaf__merge_put - a box of a tensor's view (sheaf_source.read), dense. Thread-safe for boxes
 * that do not overlap. */
sheaf_status *sheaf__merge_put(const sheaf__merge_output *out, int64_t tensor, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols, const void *src);
/* sheaf__merge_output_finish - everything is written: what a reader needs is in place. Where it is
 * slow to sync, that is left for sheaf__merge_output_sync(), which another thread may call while
 * the output is read. */
sheaf_status *sheaf__merge_output_finish(sheaf__merge_output *out);
sheaf_status *sheaf__merge_output_sync(sheaf__merge_output *out);
/* sheaf__merge_output_open - what was written, as it lies there. */
sheaf_status *sheaf__merge_output_open(sheaf_source **written, const sheaf__merge_output *out);
/* sheaf__merge_output_commit - it gets its name. `out` is empty then, whatever comes of it. */
sheaf_status *sheaf__merge_output_commit(sheaf__merge_output *out);
void sheaf__merge_output_abandon(sheaf__merge_output *out);
