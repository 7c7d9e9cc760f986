/* of_runs.h - convert and merge where a run, or a checkpoint of training, may stand for what it
 * trained. */
#ifndef SHEAF_LIBRARY_OF_RUNS_H
#define SHEAF_LIBRARY_OF_RUNS_H

#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"

/* sheaf__convert_any - sheaf_convert(), also of a run or a checkpoint of training, to hf, sat or
 * peft.
 *   base  of a run: the model that was trained on; NULL: as its settings name it
 * Errors besides: those of sheaf__run_export(); SHEAF_E_ARG for a base where there is no run. */
sheaf_status *sheaf__convert_any(sheaf_convert_report *report, const sheaf_convert_options *options,
                                 const char *base);

typedef struct sheaf__merged {
    sheaf_merge_report report;
    bool whole; /* the run trained whole tensors: they stand in place of the base's */
    bool own;   /* LoRA that lay in the base itself (SAT's) was merged, into this many parts */
    int parts;
} sheaf__merged;

/* sheaf__merge_any - sheaf_merge(), or with `adapter_only` sheaf_merge_adapters(). Adapters may be
 * runs or checkpoints of training; base NULL is that of the first one. With no adapter the base is
 * a run, or a model with LoRA of its own. */
sheaf_status *sheaf__merge_any(sheaf__merged *out, const sheaf_merge_options *options,
                               bool adapter_only);

#endif
