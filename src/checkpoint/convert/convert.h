/* convert.h - a checkpoint of any dialect becomes one of another: joined, divided, unpadded, in
 * another dtype.
 *
 * Tensors stream from the pieces that were found to the places that are wanted, some megabytes for
 * each thread; that nothing is missing is proven before the first byte is written, and the output
 * appears by one rename. */
#ifndef SHEAF_CHECKPOINT_CONVERT_CONVERT_H
#define SHEAF_CHECKPOINT_CONVERT_CONVERT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/events.h"
#include "sheaf/dtype.h"
#include "sheaf/status.h"

typedef struct sheaf_convert_options {
    const char *src;         /* the checkpoint */
    const char *const *also; /* further folders with parts of it, ends with NULL; or NULL */
    const char *dst;         /* must not exist, or be an empty folder */
    const char *to;          /* "hf", "sat", "peft" or "sheaf" */
    const char *adapter; /* sat: a PEFT adapter of the model, to be written as SAT's LoRA; NULL */
    double
        lora_alpha; /* peft: of LoRA inside of src whose config does not lie there; 0 = not given */
    const char *from;        /* dialect of src; NULL = recognise it */
    const char *config;      /* of the model, where src has none; NULL */
    const char *model_class; /* "CogAgentModel", where the config names the wrong one; NULL */
    bool drop_unread;        /* tensors of kinds that are not read are left out, with a warning */
    /* F32, BF16 or F16 for every floating-point weight; NULL = as stored */
    const sheaf_dtype *dtype;
    int tp;        /* sat: parts; others: 0 or 1 */
    bool own_lora; /* to sat: src must be SAT's and have LoRA to merge; without tp, as many parts as
                      it has */
    int slices;    /* sheaf: 0 = 8 */
    int64_t step;  /* -1 = as found */
    int64_t shard_bytes; /* hf: 0 = 50 GB */
    bool optimizer;      /* moments too: hf optimizer.safetensors, sheaf among the tensors */
    int threads;         /* 0 = one */
    const sheaf_events *events;
    const atomic_int *stop; /* not 0: stop soon, leaving nothing; may be NULL */
} sheaf_convert_options;

typedef struct sheaf_convert_report {
    char from[24];
    int64_t tensors, bytes; /* written, moments included */
    int64_t moments;        /* of them */
    int64_t merged;         /* weights that LoRA was merged into */
    int64_t adapted;        /* layers written with factors of the adapter */
    int64_t step;           /* -1 = not known or not kept */
    int parts;              /* of SAT */
} sheaf_convert_report;

/* sheaf_convert - warnings and notes of the reader go to events. Errors: those of the reader; the
 * first defect of a source that is not whole (SHEAF_E_LAYOUT); SHEAF_E_ARG for what the target
 * cannot be; SHEAF_E_NUMBER when a finite number would become Inf; SHEAF_E_STOPPED. */
sheaf_status *sheaf_convert(sheaf_convert_report *report, const sheaf_convert_options *options);

#endif
