/* merge.h - a base model and LoRA adapters become one model.
 *
 * W' = round(fp32(W) + s * D), D = B A as an ascending chain of fused multiply-adds in
 * float32, s rounded to float32, one rounding to the output dtype; with DoRA, magnitudes,
 * trained biases, rows and modules as PEFT's merge_and_unload() has them (docs/merge.md).
 * The base may be any model: what an adapter names is found by name. Tensors stream
 * through in tiles; what is held does not grow with the model or its largest tensor. */
#ifndef SHEAF_CHECKPOINT_MERGE_MERGE_H
#define SHEAF_CHECKPOINT_MERGE_MERGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/events.h"
#include "lora/combine.h"
#include "lora/peft_sums.h"
#include "sheaf/dtype.h"
#include "sheaf/source.h"
#include "sheaf/status.h"

typedef enum sheaf_merge_mode {
    SHEAF_MERGE_BEST,    /* add all in float32, round once */
    SHEAF_MERGE_AS_PEFT, /* the bits of merge_and_unload(): each adapter rounds, tables twice, other
                            chains above rank 192 (peft_cpu) */
    SHEAF_MERGE_AS_PEFT_SAFE, /* of merge_and_unload(safe_merge=True): s * D is rounded as well */
} sheaf_merge_mode;

enum { SHEAF_MERGE_ADAPTERS = 64 }; /* the most */

typedef struct sheaf_merge_options {
    const char *base; /* Hugging Face folder, a .safetensors file, or a checkpoint of any dialect
                         that is read */
    sheaf_source *source; /* the base's tensors from here instead, borrowed; NULL: from `base` */
    const char *const *adapters; /* PEFT folders, merged in this order */
    int nadapters;
    sheaf_combine combine; /* not NONE: they become one adapter first */
    const double *weights; /* for that, one each */
    const char *dst;       /* must not exist; appears complete */
    const char *to; /* NULL or "hf": a Hugging Face folder; "sat": SAT's parts, as a conversion of
                       that folder writes them */
    int tp;         /* of "sat": how many; 0 = 1 */
    const char *config; /* the base's config.json, where its folder has none; else NULL */
    sheaf_merge_mode mode;
    sheaf_peft_cpu peft_cpu;  /* of AS_PEFT and AS_PEFT_SAFE: the processor whose PEFT is meant; it
                                 counts above rank 192 */
    const sheaf_dtype *dtype; /* F32, BF16 or F16 of the output; NULL = each tensor's own */
    int threads;              /* 0 = one */
    const sheaf_events *events; /* progress and warnings; may be NULL */
    const atomic_int *stop;     /* not 0: stop soon, leaving nothing; may be NULL */
} sheaf_merge_options;

typedef struct sheaf_merge_report {
    int64_t tensors;           /* written */
    int64_t adapted, replaced; /* by a change that is added; by tensors or rows of the adapter */
    int64_t changed;           /* tensors with at least one other byte */
    int64_t elements_changed;
    int64_t elements_adapted; /* of tensors to which a change is added, and none is replaced */
    int64_t elements_kept;    /* of these, with the bits of the base: the change was rounded away */
    double change_norm;       /* root of the sum of squares of all changes */
    double base_norm;         /* the same of the base values of changed tensors */
    int64_t rows_checked;     /* read back and computed again: equal */
    int64_t products_checked; /* rows of adapted weights whose product with a random vector was
                                 compared */
    double worst_product;     /* largest difference, in units of the rounding expected */
    char worst_tensor[256];   /* where that was; "" when none was compared */
    bool untied;              /* a tied tensor became several */
    int64_t bytes;            /* of tensor data written */
} sheaf_merge_report;

/* sheaf_merge - errors: SHEAF_E_ARG when dst exists; SHEAF_E_LAYOUT when adapter and base do
 * not fit (every tensor of the adapter must find its place); SHEAF_E_UNSUPPORTED by name for
 * kinds of adapters it does not know; SHEAF_E_NUMBER when a finite weight would become
 * infinite, or a product comes out wrong; SHEAF_E_STOPPED. On failure nothing is left at dst. */
sheaf_status *sheaf_merge(sheaf_merge_report *report, const sheaf_merge_options *options);

/* sheaf_merge_check_base - is an adapter given in the base's place? SHEAF_E_UNSUPPORTED with the
 * line that was meant; sheaf_merge() asks it. */
sheaf_status *sheaf_merge_check_base(const sheaf_merge_options *options);

/* sheaf_merge_fits - does sheaf_merge() find a place in the base for all of the adapter, and all
 * that its config asks for? The status is what it would fail with. *held is false where the base
 * cannot be opened. */
sheaf_status *sheaf_merge_fits(bool *held, const char *base, const char *adapter);

/* sheaf_merge_adapters - only the combined adapter, as a PEFT folder at dst. Uses adapters,
 * combine, weights, dst, events and stop. */
sheaf_status *sheaf_merge_adapters(const sheaf_merge_options *options);

#endif
