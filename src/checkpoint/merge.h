/* merge.h - a base model and a LoRA adapter become one model.
 *
 * W' = round(fp32(W) + s * D), D = B A as an ascending chain of fused multiply-adds in
 * float32, s rounded to float32, one rounding to the output dtype: bit for bit what
 * PEFT's merge_and_unload() gives on a CPU. Tensors stream through in rows; what is
 * held is A of one module and some rows per thread, never a weight. */
#ifndef SHEAF_CHECKPOINT_MERGE_H
#define SHEAF_CHECKPOINT_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/events.h"
#include "base/fault.h"
#include "sheaf/dtype.h"
#include "sheaf/status.h"

typedef enum sheaf_merge_mode {
    SHEAF_MERGE_BEST,         /* add in float32, round once */
    SHEAF_MERGE_AS_PEFT,      /* the bits of merge_and_unload(): differs above rank 192 */
    SHEAF_MERGE_AS_PEFT_SAFE, /* of merge_and_unload(safe_merge=True): s * D is rounded as well */
} sheaf_merge_mode;

typedef struct sheaf_merge_options {
    const char *base;    /* Hugging Face folder */
    const char *adapter; /* PEFT folder */
    const char *dst;     /* must not exist; appears complete */
    const char *config;  /* the base's config.json, where its folder has none; else NULL */
    sheaf_merge_mode mode;
    const sheaf_dtype *dtype; /* F32, BF16 or F16 of the output; NULL = each tensor's own */
    int threads;         /* 0 = one */
    const sheaf_events *events; /* progress and warnings; may be NULL */
    sheaf_faults *faults;       /* of writing; NULL outside tests */
} sheaf_merge_options;

typedef struct sheaf_merge_report {
    int64_t tensors;          /* written */
    int64_t adapted, replaced; /* by A and B; by whole tensors of the adapter */
    int64_t changed;          /* tensors with at least one other byte */
    int64_t elements_changed;
    double change_norm;       /* root of the sum of squares of all changes */
    double base_norm;         /* the same of the base values of changed tensors */
    int64_t rows_checked;     /* read back and computed again by the plain definition */
    bool untied;              /* the tied table became two tensors */
    int64_t bytes;            /* of tensor data written */
} sheaf_merge_report;

/* sheaf_merge - errors: SHEAF_E_ARG when dst exists; SHEAF_E_LAYOUT when adapter and base do
 * not fit (every tensor of the adapter must find its place); SHEAF_E_UNSUPPORTED by name for
 * kinds of adapters that are not plain LoRA; SHEAF_E_NUMBER when a finite weight would become
 * infinite. On failure nothing is left at dst. */
sheaf_status *sheaf_merge(sheaf_merge_report *report, const sheaf_merge_options *options);

#endif
